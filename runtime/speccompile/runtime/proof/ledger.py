"""What of a proof is done, kept in a file, so that one that was killed goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.proof.check import Check

__all__ = ["Ledger"]

_SCHEMA = 1


class Ledger:
    """Finished checks, and of those under way what they know so far, as JSON.

    Without a path nothing is kept. The file is replaced as a whole, never left half written; where
    that fails, SpeccompileError is raised.
    """

    def __init__(
        self, path: Path | None = None, subject: Mapping[str, object] | None = None
    ) -> None:
        """`subject` is what is proved of what, as JSON: a file about another one is refused.

        Raises RequestError for a file that cannot be read or is about something else.
        """
        self._path = path
        self._subject: Any = json.loads(json.dumps({"schema": _SCHEMA, **(subject or {})}))
        self._checks: dict[str, Check] = {}
        self._parts: dict[str, Any] = {}
        if path is not None and path.exists():
            self._read(path)

    def finished(self, name: str) -> Check | None:
        """The check of that name, if it is done."""
        return self._checks.get(name)

    def finish(self, check: Check) -> None:
        """A check is done; what was known of it on the way is not needed any more."""
        self._checks[check.name] = check
        self._parts.pop(check.name, None)
        self._write()

    def known(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """What was last noted of a check under way, None if nothing was."""
        return self._parts.get(name)

    def note(self, name: str, state: object) -> None:
        """Where a check stands."""
        self._parts[name] = state
        self._write()

    def _read(self, path: Path) -> None:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            subject = document["subject"]
            self._checks = {each["name"]: Check(**each) for each in document["checks"]}
            self._parts = dict(document["parts"])
        except OSError as error:
            raise RequestError(f"{path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(
                f"{path}: is no state of a proof; remove it, or name another file"
            ) from error
        for name, expected in self._subject.items():
            if subject.get(name) != expected:
                raise RequestError(
                    f"{path}: is of a proof with another {name} ({_short(subject.get(name))}, now "
                    f"{_short(expected)}); go on with the same, or name another file"
                )

    def _write(self) -> None:
        if self._path is None:
            return
        document = {
            "subject": self._subject,
            "checks": [asdict(check) for check in self._checks.values()],
            "parts": self._parts,
        }
        scratch = self._path.with_name(f"{self._path.name}.part")
        try:
            scratch.write_text(json.dumps(document), encoding="utf-8")
            scratch.replace(self._path)
        except OSError as error:
            raise SpeccompileError(f"{self._path}: {error.strerror}") from error


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
