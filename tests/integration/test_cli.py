"""The command line as a user meets it: what it prints, and one line for every mistake."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.cli.main import main
from tests.oci_registry import registry_in

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def speccompile(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command in this process; returns exit code, output and error output."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["speccompile", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_every_help_can_be_read(speccompile: Run) -> None:
    code, out, _ = speccompile("--help")
    assert code == 0
    for command in (
        *("build", "run", "bench", "verify", "inspect", "quantize"),
        *("recipes", "recipe", "cache", "doctor", "tune"),
    ):
        assert command in out
        code, text, _ = speccompile(command, "--help")
        assert code == 0
        assert text.startswith("Usage:")


def test_help_and_the_runtime_import_no_framework() -> None:
    heavy = "('torch', 'transformers', 'onnx', 'pydantic', 'openvino', 'onnxruntime', 'rich')"
    code = (
        "import sys; from speccompile.cli.main import cli; "
        "cli.main(['--help'], standalone_mode=False); "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
    code = (
        "import sys; import speccompile.runtime.runner, speccompile.runtime.engines.openvino; "
        "import speccompile.runtime.engines.onnxruntime; "
        "print([m for m in ('torch', 'transformers', 'onnx', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_run_streams_text_and_ends_with_statistics(speccompile: Run, artifact: Path) -> None:
    code, out, err = speccompile("run", artifact, "def f", "-n", "12")
    assert code == 0
    assert out.endswith("\n")
    assert err.startswith("-- ")
    assert "tokens/s" in err


def test_every_draft_gives_the_same_text(speccompile: Run, artifact: Path) -> None:
    texts = {
        speccompile("run", artifact, "def f", "-n", "24", "--draft", draft)[1]
        for draft in ("model", "ngram", "none")
    }
    assert len(texts) == 1


def test_sampling_repeats_with_its_seed(speccompile: Run, artifact: Path) -> None:
    options = ("-n", "16", "--temperature", "1.0", "--top-k", "40", "--top-p", "0.9")
    first = speccompile("run", artifact, "def f", *options, "--seed", "7")[1]
    again = speccompile("run", artifact, "def f", *options, "--seed", "7")[1]
    other = speccompile("run", artifact, "def f", *options, "--seed", "8")[1]
    assert first == again
    assert first != other


def test_a_prompt_may_come_from_a_file_or_standard_input(
    speccompile: Run, artifact: Path, tmp_path: Path
) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("def f", encoding="utf-8")
    expected = speccompile("run", artifact, "def f", "-n", "8")[1]
    assert speccompile("run", artifact, "--file", prompt, "-n", "8")[1] == expected
    command = [sys.executable, "-m", "speccompile.cli.main", "run", str(artifact), "-n", "8"]
    done = subprocess.run(command, input="def f", capture_output=True, text=True, check=True)
    assert done.stdout == expected


def test_from_the_build_to_production(speccompile: Run, artifact: Path, tmp_path: Path) -> None:
    """Pushed, pulled, put to use, and run by what it brings along, without torch."""
    words = ("def f", "-n", "12", "-q")
    _, text, _ = speccompile("run", artifact, *words)
    with registry_in(tmp_path / "registry") as registry:
        code, reference, _ = speccompile(
            "push", artifact, f"oci://{registry.address}/models/tiny:1"
        )
        assert code == 0
        code, identity, error = speccompile("pull", reference.strip(), tmp_path / "pulled")
    assert (code, error) == (0, f"-- tiny is in {tmp_path / 'pulled'}\n")
    served = tmp_path / "served"
    assert speccompile("deploy", served, "--add", tmp_path / "pulled") == (0, identity, "")
    assert speccompile("deploy", served, "--use", identity.strip()) == (0, identity, "")
    archive = str(served / "current" / "run.pyz")
    driver = (
        "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", driver, archive, *words], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (text, "")


def test_a_conversation_reuses_its_cache(artifact: Path) -> None:
    command = [sys.executable, "-m", "speccompile.cli.main", "run", str(artifact)]
    done = subprocess.run(
        [*command, "--interactive", "-n", "6"],
        input="first\nsecond\n",
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if " tokens (" in line]
    assert len(lines) == 2
    assert "prompt tokens cached" in lines[1]


def _damaged(artifact: Path, folder: Path, damage: Callable[[Path], None]) -> Path:
    copy = folder / "copy"
    shutil.copytree(artifact, copy)
    damage(copy)
    return copy


def _flip(copy: Path) -> None:
    path = copy / "engines/cpu/target/model.onnx.data"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def _remove_tokenizer(copy: Path) -> None:
    (copy / "tokenizer/tokenizer.json").unlink()


def _remove_manifest(copy: Path) -> None:
    (copy / "manifest.json").unlink()


def _add(copy: Path) -> None:
    (copy / "extra.bin").write_bytes(b"x")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_flip, "engines/cpu/target/model.onnx.data"),
        (_remove_tokenizer, "tokenizer/tokenizer.json"),
        (_add, "extra.bin"),
        (_remove_manifest, "not a speccompile artifact"),
    ],
    ids=["changed", "missing", "added", "no manifest"],
)
def test_a_damaged_artifact_is_refused_in_one_line(
    speccompile: Run,
    artifact: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    code, out, err = speccompile("run", _damaged(artifact, tmp_path, damage), "hi")
    assert code == 3
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_user_mistakes_are_one_line(speccompile: Run, artifact: Path, tmp_path: Path) -> None:
    mistakes = [
        (("build", "smolm2-135m"), 2, "smollm2-135m"),
        (("run", tmp_path / "nowhere", "hi"), 3, "nowhere"),
        (("run", artifact, "word " * 400), 2, "the prompt has"),
        (("run", artifact, "  "), 2, "the prompt is empty"),
        (("run", artifact, "hi", "--temperature", "-1"), 2, "temperature"),
        (("run", artifact, "hi", "--top-p", "0"), 2, "top_p"),
        (("run", artifact, "--file", tmp_path / "none.txt"), 1, "none.txt"),
    ]
    for arguments, expected, message in mistakes:
        code, _, err = speccompile(*arguments)
        assert (code, "Traceback" in err) == (expected, False), err
        assert message in err


def test_a_wrong_recipe_reports_every_mistake_at_once(speccompile: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "bad.toml"
    recipe.write_text(
        'name = "bad"\n[target]\nsource = "x"\nprecison = "fp16"\n[draft]\nlength = 99\n'
    )
    code, _, err = speccompile("build", recipe)
    assert code == 2
    assert "did you mean precision" in err
    assert "draft.length" in err


def test_an_unknown_model_writes_nothing(speccompile: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "absent.toml"
    recipe.write_text('name = "absent"\n[target]\nsource = "./no-such-folder"\n', encoding="utf-8")
    output = tmp_path / "out"
    code, _, err = speccompile("build", recipe, "-o", output, "--cache", tmp_path / "cache")
    assert code == 2
    assert "no-such-folder" in err
    assert not output.exists()
