"""The sizes that a plan is built for."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from speccompile.compiler.stages.plan import profiles
from speccompile.compiler.tensorrt.builder import Profile
from tests.cuda import target_plan

TARGET = replace(target_plan(1024), rows=128, batch=1)


def test_tensorrt_has_a_profile_for_rounds_and_one_for_prompts() -> None:
    rounds, prompts = profiles(TARGET, "tensorrt")
    assert rounds == Profile((1, 1, 2), (1, 6, 16))
    assert prompts == Profile((1, 1, 2), (16, 128, 128))


@pytest.mark.parametrize(("role", "usual"), [("target", 6), ("draft", 1)])
def test_tensorrt_rtx_has_one_for_both(role: Literal["target", "draft"], usual: int) -> None:
    info = replace(TARGET, role=role, batch=4)
    assert profiles(info, "tensorrt_rtx") == (Profile((1, 1, 4), (1, usual, 128)),)
