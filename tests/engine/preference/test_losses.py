"""Preference losses and their slopes are TRL's, and the numbers told of a step are those that TRL tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.engine.preference import trl_loss
from tunesmith_core.preferences import METRICS
from tunesmith_engine.preference import losses
from tunesmith_engine.preference.losses import Pairs, Strength
from tunesmith_engine.preference.objective import PreferenceObjective

SEEDS = range(4)
STRENGTHS = [Strength(0.1, 0.1, 0.5), Strength(2.0, 0.3, 1.6)]
SAME_IN_TRL = {"sigmoid", "sigmoid_norm"}
"""TRL smooths no labels there; without smoothing both agree."""


def _answers(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log-probabilities of tokens by two models, and which tokens are trained, as `trl_loss.dpo` wants them."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (10, 1), generator=generator)
    mask = (torch.arange(12) < lengths).long()
    logps, reference = (-torch.rand(10, 12, generator=generator, dtype=torch.float64) * 2 * mask for _ in range(2))
    return logps, reference, mask


def _in_turns(values: torch.Tensor) -> torch.Tensor:
    """Return values of better answers before worse ones in our order, each pair behind the one before."""
    return torch.stack(values.chunk(2), dim=1).flatten()


@pytest.mark.parametrize("strength", STRENGTHS, ids=["weak", "strong"])
@pytest.mark.parametrize("name", losses.DPO_LOSSES)
def test_a_loss_of_dpo_has_the_value_the_slope_and_the_metrics_of_trl(name: str, strength: Strength) -> None:
    if name in SAME_IN_TRL:
        strength = Strength(strength.beta)
    objective = PreferenceObjective(losses.DPO_LOSSES[name], strength, True, False, 0.0)
    for seed in SEEDS:
        logps, reference, mask = _answers(seed)
        logps.requires_grad_()
        theirs, their_metrics = trl_loss.dpo(name, logps, reference, mask, strength)
        (their_slopes,) = torch.autograd.grad(theirs, logps)
        sums = _in_turns(logps.detach().sum(dim=1)).requires_grad_()
        ours = objective(sums, _in_turns(reference.sum(dim=1)), _in_turns(mask.sum(dim=1)), 5, 1)
        (slopes,) = torch.autograd.grad(ours[0], sums)
        # TRL takes EXO's logarithms in float32.
        assert ours[0].item() == pytest.approx(theirs.item(), rel=1e-7, abs=1e-12)
        # Every token of an answer has its slope.
        per_token = their_slopes.masked_select(mask.bool())
        spread = slopes.view(-1, 2).T.reshape(-1, 1).expand(-1, 12).masked_select(mask.bool())
        assert torch.allclose(spread, per_token, rtol=1e-7, atol=1e-12)
        metrics = dict(zip(METRICS, ours[1:].tolist(), strict=True))
        for ours_, theirs_ in (
            ("reward_chosen", "rewards/chosen"),
            ("reward_rejected", "rewards/rejected"),
            ("reward_margin", "rewards/margins"),
            ("reward_accuracy", "rewards/accuracies"),
            ("logp_chosen", "logps/chosen"),
            ("logp_rejected", "logps/rejected"),
        ):
            # TRL counts right pairs in float32.
            assert metrics[ours_] == pytest.approx(their_metrics[theirs_], rel=1e-6, abs=1e-9), ours_


@pytest.mark.parametrize("strength", STRENGTHS, ids=["weak", "strong"])
@pytest.mark.parametrize(
    ("loss", "theirs", "per_token"),
    [
        (losses.simpo, trl_loss.simpo, True),
        (losses.sigmoid, trl_loss.cpo, False),
        (losses.odds_ratio, trl_loss.orpo, True),
    ],
    ids=["simpo", "cpo", "orpo"],
)
def test_a_loss_without_reference_has_the_value_and_the_slope_of_trl(
    loss: losses.Loss,
    theirs: Callable[[torch.Tensor, torch.Tensor, Strength], torch.Tensor],
    per_token: bool,
    strength: Strength,
) -> None:
    for seed in SEEDS:
        logps, _, mask = _answers(seed)
        sums, num_tokens = logps.sum(dim=1).requires_grad_(), mask.sum(dim=1)
        given = sums / num_tokens if per_token else sums
        # TRL's odds are float32.
        expected = theirs(*given.chunk(2), strength)
        (their_slopes,) = torch.autograd.grad(expected.sum(), sums)
        found = loss(Pairs(*sums.chunk(2), *num_tokens.chunk(2)), strength)
        (slopes,) = torch.autograd.grad(found.sum(), sums)
        assert torch.allclose(found.float(), expected.float(), rtol=2e-5, atol=1e-6)
        assert torch.allclose(slopes.float(), their_slopes.float(), rtol=2e-4, atol=1e-6)


def test_the_share_of_cross_entropy_is_a_mean_over_all_better_tokens_of_the_step() -> None:
    objective = PreferenceObjective(losses.sigmoid, Strength(0.1), False, False, 2.0)
    alone = PreferenceObjective(losses.sigmoid, Strength(0.1), False, False, 0.0)
    sums, num_tokens = torch.tensor([-3.0, -4.0, -5.0, -1.0]), torch.tensor([2.0, 2.0, 4.0, 1.0])
    given = (None, num_tokens, 3, 10)
    assert (objective(sums, *given)[0] - alone(sums, *given)[0]).item() == pytest.approx(2.0 * 8.0 / 10)


def test_odds_are_finite_however_sure_the_model_is() -> None:
    for logp in (0.0, -1e-9, -1e-3, -1.0, -90.0):
        sums = torch.tensor([logp, -2.0, -2.0, logp]).requires_grad_()
        pairs = Pairs(sums[::2], sums[1::2], torch.ones(2), torch.ones(2))
        loss = losses.odds_ratio(pairs, Strength(0.1)).sum()
        (slopes,) = torch.autograd.grad(loss, sums)
        assert torch.isfinite(loss)
        assert torch.isfinite(slopes).all()
