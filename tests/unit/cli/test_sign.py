"""`sign`, and `check` of what was signed: what is refused, and with which words."""

import json
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from model_signing import hashing, signing, verifying

from speccompile.cli.main import main
from speccompile.runtime.artifact import read_manifest
from speccompile.runtime.errors import SignatureError
from speccompile.runtime.measurements import unmeasured
from speccompile.runtime.runner import Runner
from tests.signing import Authority, Keys, make_keys, reseal
from tests.table_artifact import write_artifact

Command = Callable[..., tuple[int, str, str]]

ENGINE = "engines/draft.onnx"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["speccompile", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        output = capsys.readouterr()
        return int(caught.value.code or 0), output.out, output.err

    return run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys") / "ours")


@pytest.fixture
def root(tmp_path: Path, keys: Keys, command: Command) -> Path:
    """A signed artifact."""
    folder = write_artifact(tmp_path / "tiny", {})
    code, said, error = command("sign", folder, "--key", keys.private)
    assert (code, error) == (0, "")
    assert "signs 5 files" in said
    return folder


def refused(command: Command, root: Path, trusted: Path, code: int = 6) -> str:
    start = time.process_time()
    found, said, error = command("check", root, "--key", trusted)
    assert time.process_time() - start < 1
    assert (found, said) == (code, "")
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def test_a_signature_is_no_part_of_what_it_signs(
    tmp_path: Path, root: Path, keys: Keys, command: Command
) -> None:
    unsigned = write_artifact(tmp_path / "unsigned", {})
    assert read_manifest(root).identity == read_manifest(unsigned).identity
    code, said, _ = command("check", root, "--key", keys.public)
    assert (code, f"verified with {keys.public}" in said) == (0, True)
    assert "not verified: --key PEM does" in command("check", root)[1]
    assert "signature  none" in command("check", unsigned)[1]
    document = json.loads(command("check", root, "--key", keys.public, "--json")[1])
    assert document["signed"]
    assert document["verified_with"] == str(keys.public)
    assert document["identity"] == read_manifest(root).identity
    assert [path.name for path in tmp_path.iterdir() if "signature" in path.name] == []


def test_the_standard_itself_verifies_what_we_sign(root: Path, keys: Keys) -> None:
    verifier = verifying.Config().use_elliptic_key_verifier(public_key=keys.public)
    verifier.verify(root, root / "model.sig")
    (root / ENGINE).write_bytes(b"craft")
    with pytest.raises(ValueError, match=f"Hash mismatch for .*{ENGINE}"):
        verifier.verify(root, root / "model.sig")


def test_we_verify_what_the_standard_itself_signs(
    tmp_path: Path, keys: Keys, command: Command
) -> None:
    root = write_artifact(tmp_path / "foreign", {})
    signer = signing.Config().use_elliptic_key_signer(private_key=keys.private)
    signer.set_hashing_config(hashing.Config().set_ignored_paths(paths=["model.sig"]))
    signer.sign(root, root / "model.sig")
    assert command("check", root, "--key", keys.public)[0] == 0


def flip(root: Path) -> None:
    (root / ENGINE).write_bytes(b"craft")


def add(root: Path) -> None:
    (root / "engines/more").write_bytes(b"more")


def remove(root: Path) -> None:
    (root / "engines/spare.onnx").unlink()


def rename(root: Path) -> None:
    (root / "engines/spare.onnx").rename(root / "engines/other.onnx")


@pytest.mark.parametrize(
    ("change", "unhidden", "hidden"),
    [
        (flip, f"the content of '{ENGINE}' changed", f"'{ENGINE}' is not what was signed"),
        (add, "'engines/more' was added after the build", "'engines/more' was added after the art"),
        (remove, "'engines/spare.onnx' is missing", "'engines/spare.onnx' was signed, but is miss"),
        (rename, "'engines/spare.onnx' is missing", "renamed to 'engines/other.onnx' after it was"),
    ],
)
def test_each_change_has_its_own_sentence(
    tmp_path: Path,
    keys: Keys,
    command: Command,
    change: Callable[[Path], None],
    unhidden: str,
    hidden: str,
) -> None:
    root = write_artifact(tmp_path / "tiny", {})
    (root / "engines/spare.onnx").write_bytes(b"spare")
    reseal(root)
    assert command("sign", root, "--key", keys.private)[0] == 0
    change(root)
    assert unhidden in refused(command, root, keys.public, code=3)
    reseal(root)
    assert command("check", root)[0] == 0  # whole, as far as its records can tell
    assert hidden in refused(command, root, keys.public)


def test_records_that_were_written_anew(root: Path, keys: Keys, command: Command) -> None:
    manifest = replace(read_manifest(root), compiler_version="0.2.0")
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    (root / "measurements.json").write_bytes(unmeasured(manifest).to_bytes())
    assert "'manifest.json' is not what was signed" in refused(command, root, keys.public)


def test_another_key(tmp_path: Path, root: Path, command: Command) -> None:
    other = make_keys(tmp_path / "theirs")
    assert f"made with another key than that of {other.public}" in refused(
        command, root, other.public
    )


def test_no_signature(root: Path, keys: Keys, command: Command) -> None:
    (root / "model.sig").unlink()
    assert "is not signed, though it has to be" in refused(command, root, keys.public)
    (root / "model.sig").mkdir()
    assert "is not signed, though it has to be" in refused(command, root, keys.public)
    assert command("check", root)[0] == 0


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_a_cut_signature(root: Path, keys: Keys, command: Command, kept: int) -> None:
    signature = root / "model.sig"
    signature.write_bytes(signature.read_bytes()[:kept])
    assert "'model.sig' is cut, damaged" in refused(command, root, keys.public)


def test_a_signature_that_was_changed(root: Path, keys: Keys, command: Command) -> None:
    signature = root / "model.sig"
    bundle = json.loads(signature.read_text())
    payload = b64decode(bundle["dsseEnvelope"]["payload"]).replace(b"engines/", b"Engines/", 1)
    bundle["dsseEnvelope"]["payload"] = b64encode(payload).decode()
    signature.write_text(json.dumps(bundle))
    assert "'model.sig' was changed after it was made" in refused(command, root, keys.public)


@pytest.mark.parametrize(
    "content", ["[]", "null", "{}", '{"verificationMaterial": []}', '{"verificationMaterial": {}}']
)
def test_json_that_is_no_signature(root: Path, keys: Keys, command: Command, content: str) -> None:
    (root / "model.sig").write_text(content)
    assert "'model.sig' is cut, damaged" in refused(command, root, keys.public)


def test_a_huge_signature_is_not_read(root: Path, keys: Keys, command: Command) -> None:
    with (root / "model.sig").open("wb") as file:
        file.truncate(1 << 40)
    assert "larger than the limit of 4 MiB" in refused(command, root, keys.public)


def test_a_signature_that_is_a_link(root: Path, keys: Keys, command: Command) -> None:
    (root / "model.sig").rename(root.parent / "elsewhere")
    (root / "model.sig").symlink_to(root.parent / "elsewhere")
    assert "'model.sig' is a symbolic link" in refused(command, root, keys.public, code=3)


def test_certificates(tmp_path: Path, root: Path, command: Command) -> None:
    ours, theirs = Authority(tmp_path / "a", "ours"), Authority(tmp_path / "b", "theirs")
    key, certificate = ours.signer("builder")
    assert command("sign", root, "--key", key, "--certificate", certificate)[0] == 0
    assert command("check", root, "--certificate", ours.root)[0] == 0
    message = refused(command, root, theirs.root)
    assert f"nothing in {theirs.root} vouches for the certificate" in message
    key, certificate = ours.signer("server", may_sign=False)
    assert command("sign", root, "--key", key, "--certificate", certificate)[0] == 0
    assert "a certificate that is not for signing" in refused(command, root, ours.root)


def test_keys_that_are_none(tmp_path: Path, root: Path, keys: Keys, command: Command) -> None:
    junk = tmp_path / "junk"
    junk.write_text("no key")
    for pem in (junk, tmp_path / "absent", keys.public):
        code, _, error = command("sign", root, "--key", pem)
        assert (code, error.count("\n")) == (1, 1)
        assert f"error: {pem}: cannot be used as a private key" in error
    for pem in (junk, tmp_path / "absent", keys.private):
        code, _, error = command("check", root, "--key", pem)
        assert (code, error.count("\n")) == (1, 1)
        assert f"error: {pem}: cannot be used as a public key" in error
    assert command("check", root, "--key", keys.public)[0] == 0  # the old signature is there


def test_only_what_is_whole_is_signed(root: Path, keys: Keys, command: Command) -> None:
    flip(root)
    before = (root / "model.sig").read_bytes()
    code, _, error = command("sign", root, "--key", keys.private)
    assert (code, f"the content of '{ENGINE}' changed" in error) == (3, True)
    assert (root / "model.sig").read_bytes() == before


def test_without_the_library_only_signatures_are_missing(
    root: Path, keys: Keys, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    assert command("check", root)[0] == 0
    for arguments in (("check", root, "--key", keys.public), ("sign", root, "--key", keys.private)):
        code, _, error = command(*arguments)
        assert code == 1
        assert error == (
            "error: signatures need model_signing: pip install 'speccompile[signing]'\n"
        )


def test_a_policy_holds_for_whatever_runs_an_artifact(
    tmp_path: Path, root: Path, keys: Keys, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_keys(tmp_path / "theirs")
    Runner.open(root, on="cpu", require_signature=keys.public)
    code, _, error = command("run", root, "w1", "--require-signature", other.public)
    assert (code, "made with another key" in error) == (6, True)
    monkeypatch.setenv("SPECCOMPILE_REQUIRE_SIGNATURE", str(other.public))
    with pytest.raises(SignatureError, match="made with another key"):
        Runner.open(root, on="cpu")
    for name in ("bench", "check"):
        assert command(name, root)[0] == 6
    monkeypatch.setenv("SPECCOMPILE_REQUIRE_SIGNATURE", str(keys.public))
    assert Runner.open(root, on="cpu").manifest.name == "tiny"
    (root / "model.sig").unlink()
    with pytest.raises(SignatureError, match="is not signed"):
        Runner.open(root, on="cpu")
