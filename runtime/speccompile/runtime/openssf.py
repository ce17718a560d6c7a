"""Signatures as OpenSSF Model Signing has them: a Sigstore bundle over the hashes of all files.

Import it late: the library takes a second. Other tools of that standard verify these signatures,
and make such that are verified here. A chain of certificates is judged as of the moment that the
signer's became valid, as the library does: what it signed stays signed when it has expired.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from model_signing import hashing, manifest, signing, verifying
from OpenSSL.crypto import X509StoreContextError

from speccompile.runtime.errors import SignatureError, SpeccompileError
from speccompile.runtime.files import SIGNATURE_NAME

__all__ = ["sign", "verify"]

_SERIALIZATION = {
    "method": "files",
    "hash_type": "sha256",
    "allow_symlinks": False,
    "ignore_paths": [SIGNATURE_NAME],
}
# What the library raises over a bundle that is none, as far as it tells at all.
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError)


class _Known(hashing.Config):
    """Takes the hashes from who has checked them: the files are not read a second time."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._digests = digests
        self.asked = False

    def hash(self, model_path: str | bytes | PathLike[Any], **_: object) -> manifest.Manifest:
        self.asked = True  # the library verifies what was signed before it compares
        kind = manifest.SerializationType.from_args(_SERIALIZATION)
        # It exports no name for what its own manifests are made of.
        engines = hashing.hashing  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]
        digest = engines.Digest
        items = [
            kind.new_item(path, digest("sha256", bytes.fromhex(value)))
            for path, value in self._digests.items()
        ]
        return manifest.Manifest(Path(str(model_path)).resolve().name, items, kind)


def sign(
    root: Path,
    digests: Mapping[str, str],
    signature: Path,
    key: Path,
    certificates: Sequence[Path] = (),
) -> None:
    """Write the signature of an artifact whose files have the sha256 `digests`.

    `key` is a private one of an elliptic curve, as PEM, not encrypted. `certificates` are the
    signer's own, and then any between it and the one that is trusted. Raises SpeccompileError for
    those that cannot be used; OSError where the signature cannot be written.
    """
    config = signing.Config().set_hashing_config(_Known(digests))
    try:
        if certificates:
            config.use_certificate_signer(
                private_key=key,
                signing_certificate=certificates[0],
                certificate_chain=certificates[1:] or certificates,  # it takes no empty one
            )
        else:
            config.use_elliptic_key_signer(private_key=key)
    except (OSError, UnsupportedAlgorithm, *_MALFORMED) as error:
        named = ", ".join(map(str, (key, *certificates)))
        raise _unusable(named, "a private key, and the certificate of that key", error) from error
    config.sign(root, signature)


def verify(root: Path, signature: Path, digests: Mapping[str, str], trusted: Path) -> None:
    """See `verify_signature`, which has looked for the signature before."""
    known = _Known(digests)
    config = verifying.Config().set_hashing_config(known)
    try:
        if b"BEGIN CERTIFICATE" in trusted.read_bytes():
            config.use_certificate_verifier(certificate_chain=[trusted])
        else:
            config.use_elliptic_key_verifier(public_key=trusted)
    except (OSError, UnsupportedAlgorithm, *_MALFORMED) as error:
        raise _unusable(trusted, "a public key or certificates", error) from error
    try:
        config.verify(root, signature)
    except InvalidSignature as error:
        raise SignatureError(
            f"{root}: {SIGNATURE_NAME!r} was changed after it was made, or made with another key "
            f"than {trusted} says; get the artifact again from who signed it"
        ) from error
    except X509StoreContextError as error:
        raise SignatureError(
            f"{root}: nothing in {trusted} vouches for the certificate in {SIGNATURE_NAME!r}: "
            f"{error}"
        ) from error
    except OSError as error:
        raise SignatureError(
            f"{root}: {SIGNATURE_NAME!r} cannot be read: {error.strerror}"
        ) from error
    except _MALFORMED as error:
        if known.asked:
            _refuse_files(root, _signed(signature), digests)
        _refuse_bundle(root, trusted, error)


def _refuse_files(root: Path, signed: Mapping[str, str], found: Mapping[str, str]) -> NoReturn:
    """Say what is not as it was signed; the records last, as they change with anything."""
    missing, added = sorted(signed.keys() - found.keys()), sorted(found.keys() - signed.keys())
    changed = sorted(path for path in signed.keys() & found.keys() if signed[path] != found[path])
    by_digest = {found[path]: path for path in added}
    for path in missing:
        if new := by_digest.get(signed[path]):
            raise _differs(root, f"{path!r} was renamed to {new!r} after it was signed")
        raise _differs(root, f"{path!r} was signed, but is missing")
    for path in added:
        raise _differs(root, f"{path!r} was added after the artifact was signed")
    named = next((path for path in changed if "/" in path), changed[0] if changed else "it")
    raise _differs(root, f"{named!r} is not what was signed")


def _refuse_bundle(root: Path, trusted: Path, error: Exception) -> NoReturn:
    reason = " ".join(str(error).split()) or type(error).__name__
    if reason.startswith("Key mismatch"):
        raise SignatureError(
            f"{root}: {SIGNATURE_NAME!r} was made with another key than that of {trusted}"
        ) from error
    if "cannot be used for signing" in reason:
        raise SignatureError(
            f"{root}: {SIGNATURE_NAME!r} was made with a certificate that is not for signing"
        ) from error
    raise SignatureError(
        f"{root}: {SIGNATURE_NAME!r} is cut, damaged, or of another kind than {trusted} verifies "
        f"({reason[:80]}); copy it again"
    ) from error


def _signed(signature: Path) -> dict[str, str]:
    """The sha256 of the files that a signature which was verified is of, for the refusal."""
    envelope = json.loads(signature.read_text(encoding="utf-8"))["dsseEnvelope"]
    predicate = json.loads(b64decode(envelope["payload"])).get("predicate", {})
    return {each["name"]: each["digest"] for each in predicate.get("resources", ())}


def _differs(root: Path, fault: str) -> SignatureError:
    return SignatureError(f"{root}: {fault}; get the artifact again from who signed it")


def _unusable(named: object, wanted: str, error: Exception) -> SpeccompileError:
    reason = (error.strerror or "") if isinstance(error, OSError) else " ".join(str(error).split())
    return SpeccompileError(f"{named}: cannot be used as {wanted}, as PEM: {reason[:120]}")
