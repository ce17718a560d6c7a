"""Signing an artifact in its place: the old signature, or none, or the new one is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speccompile.runtime.artifact import Artifact, open_artifact, read_manifest
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.files import SIGNATURE_NAME
from speccompile.runtime.publish import lock, recover, sync_paths
from speccompile.runtime.signatures import require_library

__all__ = ["sign_artifact"]


def sign_artifact(path: Path, key: Path, certificates: Sequence[Path] = ()) -> Artifact:
    """Sign the artifact in the folder `path`, whatever signature it had; see `openssf.sign`.

    Raises ArtifactError for one that is not whole, and SpeccompileError for a key that cannot be
    used, where another process writes to the artifact, and where the disk refuses.
    """
    require_library()
    from speccompile.runtime.openssf import sign

    root = path.resolve()  # where a link leads: what is written beside it must be on its disk
    read_manifest(root)  # a lock file is not put beside what is none
    with lock(root):
        recover(root)
        artifact = open_artifact(path, on_cpu=False)
        part = root.with_name(f".{root.name}.signature")
        try:
            sign(root, artifact.digests, part, key, certificates)
            sync_paths([part])
            part.replace(root / SIGNATURE_NAME)
            sync_paths([root])
        except OSError as error:
            raise SpeccompileError(
                f"{path}: cannot be written: {error.strerror or error}; it is as it was"
            ) from error
        finally:
            part.unlink(missing_ok=True)
    return artifact
