"""Leases on folders that several processes share: who uses one keeps the others from removing it.

They are locks of the kernel, which end with their process however that dies. Nothing need be
written for them, and no process id, which is given out again, tells who is still alive.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["lease", "lease_alone"]


def lease(folder: Path) -> int | None:
    """A descriptor whose closing ends the lease, or None if there is no such folder.

    Waits for whoever is removing the folder. Raises OSError.
    """
    return _lock(folder, fcntl.LOCK_SH)


def lease_alone(folder: Path) -> int | None:
    """As `lease`, while nobody else has one; None too if somebody has, or it cannot be known."""
    try:
        return _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # network file systems lock only what is open for writing
        return None


def _lock(folder: Path, operation: int) -> int | None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, operation)
        if _is_at(descriptor, folder):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_at(descriptor: int, folder: Path) -> bool:
    """Whether the folder still has its name, now that it is locked."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False
