from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from speccompile.compiler.drafts.library import library_prompts
from speccompile.compiler.drafts.prompt import Prompt

SOURCE = '''
# Every temperature here is in kelvin. Those of other scales are converted where
# they enter, so that no arithmetic has to know of scales. A temperature below
# zero is an error of the caller.


class Oven:
    """Heats what is put into it, slowly."""

    async def heat(self, seconds):
        """Wait, and take the temperature in between."""
        for second in range(seconds):
            await self.tick(second)
        return self.temperature


def convert(celsius):
    """Kelvin of a temperature in degrees Celsius, however high it may be."""
    shifted = celsius + 273.15
    return shifted
'''


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Prompt]:
    for name in ("kitchen.py", "test/kitchen.py", "tools/test_kitchen.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SOURCE, encoding="utf-8")
    (tmp_path / "broken.py").write_text("def (", encoding="utf-8")

    def folder(_: str) -> str:
        return str(tmp_path)

    monkeypatch.setattr(sysconfig, "get_path", folder)
    return list(library_prompts())


def texts(prompts: list[Prompt], kind: str, *, raw: bool) -> Iterator[str]:
    return (prompt.text for prompt in prompts if prompt.kind == kind and prompt.raw == raw)


def test_tests_and_what_is_no_python_are_left_out(prompts: list[Prompt]) -> None:
    assert len(prompts) == len(set(prompts))  # one of the three files only


def test_functions_come_as_halves_and_stubs(prompts: list[Prompt]) -> None:
    raw = set(texts(prompts, "code", raw=True))
    description = '    """Wait, and take the temperature in between."""\n'
    head = f"async def heat(self, seconds):\n{description}"
    assert head in raw
    assert f"{head}    for second in range(seconds):\n" in raw
    assert 'class Oven:\n    """Heats what is put into it, slowly."""\n' in raw
    asked = list(texts(prompts, "code", raw=False))
    assert len(asked) == 3
    assert sum("def convert(celsius):" in text for text in asked) == 1


def test_descriptions_and_comments_open_texts(prompts: list[Prompt]) -> None:
    opened = list(texts(prompts, "text", raw=True))
    assert any(text.startswith("Every temperature here is in kelvin.") for text in opened)
    assert any(text.startswith("Kelvin of a temperature in degrees") for text in opened)


def test_public_names_are_asked_about(prompts: list[Prompt]) -> None:
    asked = list(texts(prompts, "chat", raw=False))
    assert sum("`kitchen.convert`" in text for text in asked) == 1
    assert sum("`kitchen.Oven`" in text for text in asked) == 1
