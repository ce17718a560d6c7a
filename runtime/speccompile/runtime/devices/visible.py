"""Which GPUs a process sees, and which of them a name means.

CUDA's own rules for ``CUDA_VISIBLE_DEVICES``: unset, all GPUs; otherwise a list of indices, of
UUIDs of GPUs (``GPU-8932f937``, shortened as long as it is clear) or of MIG instances
(``MIG-...``), read up to the first entry that is none. Empty, no GPU at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from speccompile.runtime.errors import CompatibilityError

__all__ = ["choose", "visible_note"]

_UUID = re.compile("(?:GPU|MIG)-[0-9a-f][0-9a-f/-]*|MIG-GPU-[0-9a-f/-]+", re.IGNORECASE)


def choose(wanted: str, uuids: Sequence[str], visible: str | None) -> int:
    """The index of the device that `wanted` names: "auto", "1", "cuda:1", or a beginning of a UUID.

    `uuids` are those of the devices that the driver shows, ``GPU-...`` or ``MIG-...``; `visible` is
    CUDA_VISIBLE_DEVICES. Raises CompatibilityError, saying what there is.
    """
    if not uuids:
        raise CompatibilityError(f"no GPU is visible{visible_note(visible)}; {_way_out(visible)}")
    name = wanted.removeprefix("cuda:")
    if name == "auto":
        return 0
    if name.isdecimal():
        if int(name) < len(uuids):
            return int(name)
        raise CompatibilityError(
            f"GPU {name} is none of the {len(uuids)} that are visible{visible_note(visible)}; "
            f"choose {_indices(len(uuids))}"
        )
    if not _UUID.fullmatch(name):
        raise CompatibilityError(
            f"{wanted!r} names no GPU; give auto, an index such as cuda:0, or a UUID that "
            "`nvidia-smi -L` lists"
        )
    found = [index for index, uuid in enumerate(uuids) if uuid.lower().startswith(name.lower())]
    if len(found) == 1:
        return found[0]
    raise CompatibilityError(
        f"{wanted} is {'more than one' if found else 'none'} of the visible GPUs"
        f"{visible_note(visible)}; choose one of {', '.join(uuids)}"
    )


def visible_note(visible: str | None) -> str:
    """What CUDA_VISIBLE_DEVICES is, in brackets, where it is set."""
    return "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"


def _way_out(visible: str | None) -> str:
    if visible is None:
        return "`nvidia-smi -L` lists those of this host; in a container, pass them with --gpus all"
    first = visible.split(",")[0].strip()
    if not first:
        return "the variable is empty, which hides all GPUs: unset it, or set it to an index"
    if first.isdecimal() or _UUID.fullmatch(first):
        return f"the host has no {first}: set it to what `nvidia-smi -L` lists"
    return f"{first!r} is neither an index nor a UUID, and hides all GPUs: unset it"


def _indices(count: int) -> str:
    return "0" if count == 1 else f"0 to {count - 1}"
