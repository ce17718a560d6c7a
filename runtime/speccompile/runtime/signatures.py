"""Whether an artifact has to be signed, and by whom.

Nothing here needs the library of signatures but what is asked to verify one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from speccompile.runtime.errors import SignatureError, SpeccompileError
from speccompile.runtime.files import SIGNATURE_NAME
from speccompile.runtime.records import MAX_RECORD_BYTES

__all__ = [
    "REQUIRE_SIGNATURE",
    "read_signature",
    "require_library",
    "required_signature",
    "verify_signature",
]

REQUIRE_SIGNATURE = "SPECCOMPILE_REQUIRE_SIGNATURE"
"""The environment variable that has whatever opens an artifact to run it ask for a signature."""


def required_signature() -> Path | None:
    """The PEM file of who must have signed what runs here; None where nobody must."""
    named = os.environ.get(REQUIRE_SIGNATURE)
    return Path(named) if named else None


def verify_signature(root: Path, digests: Mapping[str, str], trusted: Path) -> None:
    """Check that the artifact in `root`, whose files have the sha256 `digests`, is what was signed.

    `trusted` is a PEM file: the signer's public key, or certificates of which one has to vouch for
    the signer's. That the files have these digests is for the caller to check. Raises
    SignatureError, and SpeccompileError where the library or `trusted` cannot be used.
    """
    if read_signature(root) is None:
        raise SignatureError(
            f"{root}: is not signed, though it has to be; sign it with "
            "`speccompile sign ARTIFACT --key FILE`"
        )
    require_library()
    from speccompile.runtime.openssf import verify

    verify(root, root / SIGNATURE_NAME, digests, trusted)


def read_signature(root: Path) -> bytes | None:
    """The signature of the artifact in `root`, as it is; None where there is none. Raises
    SignatureError for a file too large to be one."""
    signature = root / SIGNATURE_NAME
    if not signature.is_file():
        return None
    if signature.stat().st_size > MAX_RECORD_BYTES:
        raise SignatureError(
            f"{root}: {SIGNATURE_NAME!r} is larger than the limit of {MAX_RECORD_BYTES >> 20} MiB"
        )
    return signature.read_bytes()


def require_library() -> None:
    """Raise SpeccompileError unless signatures can be made and verified here."""
    try:
        import model_signing  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import OpenSSL  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as error:
        raise SpeccompileError(
            f"signatures need {error.name}: pip install 'speccompile[signing]'"
        ) from error
