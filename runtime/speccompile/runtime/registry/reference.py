"""`oci://registry/name:tag`: where an artifact is, or shall be, in an OCI registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from speccompile.runtime.errors import SpeccompileError

__all__ = ["Reference", "parse_reference"]

_PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
# The grammar of the OCI distribution specification, with the registry spelled out.
_FORM = re.compile(
    r"oci://(?P<registry>(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?)"
    rf"/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True)
class Reference:
    """`registry` is a host and perhaps a port; the `digest`, "sha256:...", goes before the tag."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"oci://{self.registry}/{self.repository}{tag}{digest}"

    @property
    def version(self) -> str:
        """What a registry looks it up by; raises SpeccompileError where there is neither."""
        version = self.digest or self.tag
        if version is None:
            raise SpeccompileError(f"{self}: names no version; add a tag, as in {self}:1.0")
        return version

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is on this very host, so that nobody else hears plain HTTP."""
        host = re.sub(":[0-9]+$", "", self.registry).strip("[]")
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:  # another name
            return False


def parse_reference(text: str) -> Reference:
    """Read `oci://registry/name`, with `:tag`, `@sha256:digest` or both behind it.

    Raises SpeccompileError for anything else.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise SpeccompileError(
            f"{text}: is no place in a registry; write oci://registry/name:tag, the name in small "
            "letters"
        )
    return Reference(form["registry"], form["repository"], form["tag"], form["digest"])
