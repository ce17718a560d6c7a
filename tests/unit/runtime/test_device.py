import pytest

from speccompile.runtime.device import wait_until
from speccompile.runtime.errors import EngineError


def test_a_wait_ends_when_it_is_over() -> None:
    left = iter([False, False, True])
    wait_until(lambda: next(left), 10.0, "a GPU", "round 3")


def test_a_wait_that_is_too_long_names_the_device_what_it_does_and_the_seconds() -> None:
    with pytest.raises(EngineError, match=r"^a GPU: round 3 did not end within 0\.02 s; see what"):
        wait_until(lambda: False, 0.02, "a GPU", "round 3")
