import pytest

from speccompile.plugins import laws, spec_verify
from speccompile.runtime import sampler
from speccompile.runtime.proof.enumeration import Decisions, SpentTwiceError, deciding
from speccompile.runtime.proof.exact import TOLERANCE, check_exact
from tests.unit.runtime.proof import sessions


def test_the_rules_are_exact() -> None:
    check = check_exact()
    assert check.passed
    errors = check.details["errors"]
    assert isinstance(errors, dict)
    assert errors.keys() == {"token", "traversal", "walk"}
    assert max(errors.values()) <= TOLERANCE


def test_a_wrong_rule_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speccompile.runtime.verify.verify", sessions.short)
    check = check_exact()
    assert not check.passed
    errors = check.details["errors"]
    assert isinstance(errors, dict)
    assert max(errors.values()) > 1e-3


def test_every_outcome_has_its_probability() -> None:
    decisions = Decisions()

    def act() -> tuple[int, int]:
        first = decisions.choose([0.25, 0.0, 0.75])
        return first, decisions.choose([0.5, 0.5]) if first else 0

    assert decisions.law(act) == {(0, 0): 0.25, (2, 0): 0.375, (2, 1): 0.375}


def test_a_number_decides_once() -> None:
    decisions = Decisions()
    with pytest.raises(SpentTwiceError, match="the number 7"):
        decisions.law(lambda: (decisions.accepts(7, 0.5, 1.0), decisions.accepts(7, 0.5, 1.0)))


def test_all_is_put_back() -> None:
    def decided() -> list[object]:
        places = (
            (sampler, "draw"),
            (sampler, "law"),
            (spec_verify, "draw"),
            (spec_verify, "accepts"),
        )
        return [vars(module)[name] for module, name in places]

    before = decided()
    with deciding():
        assert not set(map(id, decided())) & set(map(id, before))
    assert decided() == before == [laws.draw, laws.law, laws.draw, laws.accepts]
