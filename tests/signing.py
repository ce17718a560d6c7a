"""Keys and certificates to sign artifacts with, and artifacts that were changed with care."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from speccompile.runtime.artifact import list_files, read_manifest
from speccompile.runtime.files import UNLISTED_NAMES, FileEntry
from speccompile.runtime.measurements import unmeasured

__all__ = ["Authority", "Keys", "make_keys", "reseal"]


@dataclass(frozen=True)
class Keys:
    """PEM files of one pair."""

    private: Path
    public: Path


def make_keys(folder: Path) -> Keys:
    """A new pair on P-256 in `folder`, which is made."""
    folder.mkdir()
    keys, key = (
        Keys(folder / "key.pem", folder / "key.pub"),
        ec.generate_private_key(ec.SECP256R1()),
    )
    keys.private.write_bytes(_pem(key))
    keys.public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return keys


class Authority:
    """A certificate that vouches for others, in the PEM file `root`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self._folder, self._name = folder, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.root = folder / "root.pem"
        certificate = self._certify(self._name, self._key.public_key(), signer=False)
        self.root.write_bytes(certificate)

    def signer(self, name: str, *, may_sign: bool = True) -> tuple[Path, Path]:
        """The PEM files of a new key and of its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        files = self._folder / f"{name}.key", self._folder / f"{name}.pem"
        files[0].write_bytes(_pem(key))
        files[1].write_bytes(self._certify(_named(name), key.public_key(), signer=may_sign))
        return files

    def _certify(self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, signer: bool) -> bytes:
        now, authority = datetime.now(UTC), name == self._name
        usage = {
            "digital_signature": signer,
            "key_cert_sign": authority,
            "crl_sign": authority,
            "key_encipherment": not signer and not authority,
        }
        others = ("content_commitment", "data_encipherment", "key_agreement")
        usage |= dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
        purpose = ExtendedKeyUsageOID.SERVER_AUTH
        if signer or authority:
            purpose = ExtendedKeyUsageOID.CODE_SIGNING
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1 if signer else 2))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


def reseal(root: Path) -> None:
    """Give an artifact that was changed records that hide it, as who means harm would."""
    manifest = read_manifest(root)
    contents = {
        path: (root / path).read_bytes() for path in list_files(root) if path not in UNLISTED_NAMES
    }
    files = {
        path: FileEntry(sha256(content).hexdigest(), len(content), "engine")
        for path, content in contents.items()
    }
    manifest = replace(manifest, files=files)
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    (root / "measurements.json").write_bytes(unmeasured(manifest).to_bytes())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
