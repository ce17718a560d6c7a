"""What a stage took: kept in its result, so that a result from the cache still tells."""

from __future__ import annotations

import json
import re
import resource
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Usage", "peak_memory_bytes", "read_usage", "write_usage"]

_FILE = "usage.json"
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Usage:
    """`peak_memory_bytes` is the most that the process had resident, mapped files included."""

    seconds: float
    peak_memory_bytes: int


def write_usage(folder: Path, seconds: float) -> None:
    """Write down, in a stage's `folder`, what its process, this one, has taken."""
    usage = Usage(round(seconds, 3), peak_memory_bytes())
    (folder / _FILE).write_text(json.dumps(asdict(usage)), encoding="utf-8")


def read_usage(folder: Path) -> Usage:
    """What `write_usage` wrote."""
    return Usage(**json.loads((folder / _FILE).read_text(encoding="utf-8")))


def peak_memory_bytes() -> int:
    """The most that this process has had resident so far."""
    # `ru_maxrss` outlives exec: in a young process it is its parent's peak.
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", _STATUS.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return 1024 * (int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
