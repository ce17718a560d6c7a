"""The packages that ours are installed with, as their metadata tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["Package", "installed"]

_LONGEST_LICENSE = 100
"""Characters; what is longer is not the name of a license, but its text."""


@dataclass(frozen=True)
class Package:
    """An installed package; `requires` are the canonical names of others that are installed."""

    name: str
    version: str
    license: str | None
    requires: tuple[str, ...]


def installed(package: str, extras: Iterable[str] = ()) -> dict[str, Package]:
    """The package with these extras, and all that it requires, by canonical name, sorted.

    What is required but not installed is left out: it did nothing here. Raises
    `importlib.metadata.PackageNotFoundError` where the package itself is not.
    """
    found: dict[str, Package] = {}
    metadata.version(package)
    waiting = [(canonicalize_name(package), frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            told = _told(name)
        except metadata.PackageNotFoundError:
            continue
        needed = list(_needed(told, wanted))
        names: set[str] = {canonicalize_name(each.name) for each in needed}
        if name in found:
            names |= {*found[name].requires}
        found[name] = Package(name, told["Version"], _license(told), tuple(sorted(names)))
        waiting += [(canonicalize_name(each.name), frozenset(each.extras)) for each in needed]
    return {
        name: Package(
            name, each.version, each.license, tuple(n for n in each.requires if n in found)
        )
        for name, each in sorted(found.items())
    }


@cache
def _told(name: str) -> metadata.PackageMetadata:
    """Of an installed package; read and parsed once, which `importlib.metadata` does every time."""
    return metadata.distribution(name).metadata


def _needed(told: metadata.PackageMetadata, extras: frozenset[str]) -> Iterable[Requirement]:
    for line in told.get_all("Requires-Dist") or ():
        requirement, among = Requirement(line), ("", *extras)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in among):
            yield requirement


def _license(told: metadata.PackageMetadata) -> str | None:
    name = next((told[key] for key in ("License-Expression", "License") if key in told), "")
    return name if 0 < len(name) <= _LONGEST_LICENSE and name.isprintable() else None
