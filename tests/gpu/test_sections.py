"""The sections of `make gpu-check`, under pytest."""

from __future__ import annotations

import pytest

from speccompile.runtime.gpus import find_gpus
from tests.gpu.section import run_apart
from tests.gpu.sections import SECTIONS

pytestmark = pytest.mark.gpu

_SECONDS = 90.0


@pytest.mark.parametrize("name", SECTIONS)
def test_section(name: str) -> None:
    found = find_gpus()
    if not found.gpus:
        pytest.skip(str(found.reason))
    outcome = run_apart(name, _SECONDS)
    if outcome.status == "skipped":
        pytest.skip(outcome.reason)
    assert outcome.status == "ok", f"{outcome.reason}\n{outcome.trace}"
