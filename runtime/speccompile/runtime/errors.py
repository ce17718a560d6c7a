"""The errors a user can cause or meet: one line that says where, what, and the way out."""

from __future__ import annotations

__all__ = [
    "ArtifactError",
    "CompatibilityError",
    "EngineError",
    "NoRoomError",
    "RequestError",
    "SignatureError",
    "SpeccompileError",
]


class SpeccompileError(Exception):
    """An expected failure; the command line prints its message alone and exits with `exit_code`."""

    exit_code = 1


class ArtifactError(SpeccompileError):
    """The artifact is absent, incomplete, changed or of a schema this version does not read."""

    exit_code = 3


class SignatureError(ArtifactError):
    """The artifact is not signed by who is trusted, or is not what was signed."""

    exit_code = 6


class CompatibilityError(SpeccompileError):
    """The artifact is whole, but needs hardware or libraries that this host does not have."""

    exit_code = 4


class EngineError(SpeccompileError):
    """An inference engine refused a graph or failed while running it."""

    exit_code = 5


class RequestError(SpeccompileError):
    """A request asks for what the artifact or the runtime cannot do."""

    exit_code = 2


class NoRoomError(RequestError):
    """There is no memory for more rows until another sequence ends."""
