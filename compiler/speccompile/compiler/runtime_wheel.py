"""The wheel of the runtime that every artifact carries: for a program that runs artifacts itself.

It is the distribution `speccompile-runtime`, of the version that built the artifact. What is asked
of other packages is what our own metadata say, so that it stands in one place; an engine is an
extra, named as in `requires` of the manifest.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from speccompile.compiler.runtime_files import runtime_files, write_archive

__all__ = ["wheel_name", "write_wheel"]

_NAME = "speccompile-runtime"
_ENGINES = frozenset({"onnxruntime", "openvino"})
_NOT_NEEDED = frozenset({"rich"})
"""By the runtime: it writes the tables of our other commands."""
_EXTRAS = ("grammar", "signing", "cuda", "tensorrt-rtx")
"""Those of our own that are the runtime's too."""

_SAME = ("Version", "License-Expression", "Requires-Python")
"""What its metadata and ours have in common."""
_TAG = "py3-none-manylinux_2_17_x86_64"
"""No Python's in particular, and of libc what `nm -D` of the operators shows."""
_WHEEL = """\
Wheel-Version: 1.0
Generator: speccompile {version}
Root-Is-Purelib: false
Tag: {tag}
"""
_ENTRY_POINTS = """\
[console_scripts]
speccompile-run = speccompile.cli.run:main
"""


def wheel_name() -> str:
    """The name of the file."""
    return f"{_stem()}-{_TAG}.whl"


def write_wheel(folder: Path) -> Path:
    """Write the wheel into `folder`, byte for byte the same from the same sources."""
    info = PurePosixPath(f"{_stem()}.dist-info")
    metadata = {
        "METADATA": _metadata(),
        "WHEEL": _WHEEL.format(version=distribution("speccompile").version, tag=_TAG),
        "entry_points.txt": _ENTRY_POINTS,
        "licenses/LICENSE": _license(),
    }
    members = [*sorted(runtime_files()), *((info / n, t.encode()) for n, t in metadata.items())]
    record = info / "RECORD"
    listed = "".join([*_record(members), f"{record},,\n"]).encode()
    path = folder / wheel_name()
    with path.open("wb") as file:
        write_archive(file, [*members, (record, listed)])
    return path


def _stem() -> str:
    return f"{_NAME.replace('-', '_')}-{distribution('speccompile').version}"


def _record(members: Iterable[tuple[PurePosixPath, bytes]]) -> Iterator[str]:
    for name, content in members:
        digest = urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
        yield f"{name},sha256={digest},{len(content)}\n"


def _license() -> str:
    text = distribution("speccompile").read_text("licenses/LICENSE")
    if text is None:
        raise FileNotFoundError("speccompile is installed without its license; install it again")
    return text


def _metadata() -> str:
    ours = distribution("speccompile").metadata
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {_NAME}",
        "Summary: What runs the artifacts of speccompile",
        *(f"{field}: {ours[field]}" for field in _SAME),
        "License-File: LICENSE",
        *_requirements(),
    ]
    return "\n".join(lines) + "\n"


def _requirements() -> Iterator[str]:
    requirements = [Requirement(line) for line in distribution("speccompile").requires or ()]
    for wanted in requirements:
        if wanted.marker is None and wanted.name not in _ENGINES | _NOT_NEEDED:
            yield f"Requires-Dist: {wanted}"
    for engine in sorted(_ENGINES):
        yield f"Provides-Extra: {engine}"
        for wanted in requirements:
            if wanted.marker is None and wanted.name == engine:
                yield f'Requires-Dist: {wanted}; extra == "{engine}"'
    for extra in _EXTRAS:
        yield f"Provides-Extra: {extra}"
        for wanted in requirements:
            if wanted.marker and str(wanted.marker) == f'extra == "{extra}"':
                yield f"Requires-Dist: {wanted}"
