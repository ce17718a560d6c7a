"""Which of our own extras brings a package that is not installed."""

from __future__ import annotations

import re
from importlib.metadata import requires

__all__ = ["missing_package"]

_REQUIREMENT = re.compile(r"(?P<package>[\w.-]+).*?(?:extra == ['\"](?P<extra>[\w-]+)['\"])?", re.S)
_FALLBACK = "compiler"
"""For what only our requirements require: the largest of the extras."""

_PACKAGES = {
    "cuda": "cuda-core",
    "cyclonedx": "cyclonedx-python-lib",
    "tensorrt_rtx": "tensorrt-rtx-cu13",
}
"""Of modules with another name than their package."""


def missing_package(error: ModuleNotFoundError) -> str | None:
    """One line for the user, or None if the module is our own, whose absence is a bug."""
    module = (error.name or "speccompile").partition(".")[0]
    if module == "speccompile":
        return None
    package = _PACKAGES.get(module, module.lower().replace("_", "-"))
    extra = _extras().get(package, _FALLBACK)
    ours = f"'speccompile[{extra}]'" if extra else "speccompile"
    return f"this needs the package {module}; install it with: pip install {ours}"


def _extras() -> dict[str, str]:
    """The extra that names each package; "" for what a plain installation has."""
    found: dict[str, str] = {}
    for line in requires("speccompile") or ():
        if (form := _REQUIREMENT.fullmatch(line)) and form["extra"] != "dev":
            found.setdefault(form["package"].lower(), form["extra"] or "")
    return found
