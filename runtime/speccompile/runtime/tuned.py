"""What `speccompile tune` adds to an artifact for its runtime to use."""

from __future__ import annotations

from speccompile.runtime.artifact import Artifact
from speccompile.runtime.control.predictor import Predictor, parse_predictor
from speccompile.runtime.errors import ArtifactError

__all__ = ["PREDICTOR_FILE", "read_predictor"]

PREDICTOR_FILE = "reports/predictor.json"
"""Of the draft model. What it was trained on was measured: it is no part of the identity."""


def read_predictor(artifact: Artifact) -> Predictor | None:
    """The artifact's predictor, or None where it was never tuned.

    Raises ArtifactError for one that is unreadable or is no predictor.
    """
    if PREDICTOR_FILE not in artifact.files:
        return None
    path = artifact.path(PREDICTOR_FILE)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_predictor(data, str(path))
