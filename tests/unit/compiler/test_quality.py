"""Quality figures against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from speccompile.compiler.quality import compare, log_softmax

RANDOM = np.random.default_rng(5)
TOKENS = [3, 1, None, 4, 0, None]


def _logits(seed: int) -> list[NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return [random.normal(size=(3, 7)).astype(np.float32) * 3 for _ in range(2)]


def test_log_softmax() -> None:
    rows = RANDOM.normal(size=(5, 9)).astype(np.float32) * 40
    expected = torch.log_softmax(torch.tensor(rows), dim=-1).numpy()
    np.testing.assert_allclose(log_softmax(rows), expected, rtol=1e-5, atol=1e-5)


def test_figures_equal_torchs() -> None:
    ours, exact, target = _logits(1), _logits(2), _logits(3)
    quality = compare(TOKENS, ours, exact, target)
    p, q, t = (torch.tensor(np.concatenate(rows)).log_softmax(-1) for rows in (exact, ours, target))
    rows = [index for index, token in enumerate(TOKENS) if token is not None]
    labels = torch.tensor([token for token in TOKENS if token is not None])
    nll = torch.nn.functional.nll_loss
    assert quality.positions == 6
    assert quality.perplexity == pytest.approx(float(nll(q[rows], labels).exp()), rel=1e-5)
    assert quality.reference_perplexity == pytest.approx(
        float(nll(p[rows], labels).exp()), rel=1e-5
    )
    divergence = torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean")
    assert quality.kl_divergence == pytest.approx(float(divergence), rel=1e-5)
    assert quality.top1_agreement == float((p.argmax(-1) == q.argmax(-1)).double().mean())
    assert quality.acceptance == float((t.argmax(-1) == q.argmax(-1)).double().mean())
    assert quality.reference_acceptance == float((t.argmax(-1) == p.argmax(-1)).double().mean())
    overlap = torch.minimum(t.exp(), q.exp()).sum(-1).mean()
    assert quality.sampled_acceptance == pytest.approx(float(overlap), rel=1e-5)


def test_a_draft_that_leaves_tokens_out_is_judged_by_what_it_proposes() -> None:
    ours, exact, target = _logits(1), _logits(2), _logits(3)
    for rows in ours:
        rows[:, 4:] = -np.inf
    quality = compare(TOKENS, ours, exact, target)
    assert quality.kl_divergence == quality.perplexity == quality.perplexity_increase == np.inf
    t, q = (torch.tensor(np.concatenate(rows)).log_softmax(-1) for rows in (target, ours))
    assert quality.acceptance == float((t.argmax(-1) == q.argmax(-1)).double().mean())
    overlap = torch.minimum(t.exp(), q.exp()).sum(-1).mean()
    assert quality.sampled_acceptance == pytest.approx(float(overlap), rel=1e-5)
    # A text that has none of the missing tokens is predicted all the same.
    assert np.isfinite(compare([3, 1, None, 2, 0, None], ours, exact).perplexity)


def test_a_model_does_not_differ_from_itself() -> None:
    rows = _logits(1)
    quality = compare(TOKENS, rows, rows)
    assert quality.kl_divergence == 0.0
    assert quality.top1_agreement == 1.0
    assert quality.perplexity_increase == 0.0
    assert quality.acceptance is None
