"""Losses of what a model wrote: values, slopes and metrics are those of TRL; advantages are those of the papers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.reinforcement import trl_policy
from tunesmith_core.rewards import OF_UPDATES
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_objective import POLICY_LOSSES
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.methods import method_of
from tunesmith_engine.packed.answers import Answers
from tunesmith_engine.reinforcement.advantages import leaving_one_out, relative_to_group, spread_of_groups
from tunesmith_engine.reinforcement.objective import PolicyObjective

CPU = torch.device("cpu")
LENGTHS = (5, 9, 2, 7)
CLIP = (0.2, 0.28)


def _rows() -> list[Example]:
    """Answers of these lengths behind prompts of three tokens."""
    rows = []
    for length in LENGTHS:
        ids = np.arange(3 + length, dtype=np.int32)
        rows.append(Example(ids, np.where(ids < 3, IGNORED_LABEL, ids).astype(np.int32)))
    return rows


def _objective(kind: str = "grpo", **settings: object) -> PolicyObjective:
    spec = RunSpec()
    spec.objective.kind = kind
    spec.rollouts.max_tokens = 12
    spec.objective.clip, spec.objective.clip_high = CLIP
    for name, value in settings.items():
        setattr(spec.objective, name, value)
    objective = method_of(kind).objective(spec)
    assert isinstance(objective, PolicyObjective)
    return objective


def _padded(values: torch.Tensor) -> torch.Tensor:
    """Return values of tokens, [T], as TRL has them, [answers, most]."""
    parts = values.split(LENGTHS)
    return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)


class _Numbers:
    """Log-probabilities in float64 by the model now, then and the base model; some ratios are beyond the bounds."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        num = sum(LENGTHS)
        self.now = -torch.rand(num, generator=generator, dtype=torch.float64) * 3 - 0.1
        self.then = self.now + 0.4 * torch.randn(num, generator=generator, dtype=torch.float64)
        self.reference = self.now + 0.3 * torch.randn(num, generator=generator, dtype=torch.float64)
        self.advantages = torch.tensor([1.2, -0.7, -1.1, 0.4], dtype=torch.float64)
        self.mask = _padded(torch.ones(num)).long()


def _ours(objective: PolicyObjective, numbers: _Numbers, then: torch.Tensor | None) -> tuple[list[float], torch.Tensor]:
    now = numbers.now.clone().requires_grad_()
    reference = numbers.reference if objective.has_reference else None
    answers = Answers.of(_rows(), CPU)
    answers = replace(answers, num_tokens=answers.num_tokens.double())
    values = objective(now, then, reference, numbers.advantages, answers, len(LENGTHS), sum(LENGTHS))
    values[0].backward()
    assert now.grad is not None
    return values.tolist(), now.grad


@pytest.mark.parametrize("is_first", [True, False], ids=["first update", "later update"])
@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("ratio_of", ["token", "answer"])
@pytest.mark.parametrize("loss", POLICY_LOSSES)
def test_loss_slope_and_metrics_are_those_of_trl(loss: str, ratio_of: str, beta: float, is_first: bool) -> None:
    if loss == "luspo" and ratio_of == "token":
        pytest.skip("refused")
    numbers = _Numbers()
    then = None if is_first else numbers.then
    (value, *metrics), slope = _ours(_objective(policy_loss=loss, ratio_of=ratio_of, beta=beta), numbers, then)
    now = numbers.now.clone().requires_grad_()
    inputs = {"mask": numbers.mask, "advantages": numbers.advantages, "ref_per_token_logps": _padded(numbers.reference)}
    if then is not None:
        inputs["old_per_token_logps"] = _padded(then)
    level = {"token": "token", "answer": "sequence"}[ratio_of]
    theirs, told = trl_policy.grpo(loss, level, CLIP, beta, 12, _padded(now), inputs)
    theirs.backward()
    assert value == pytest.approx(theirs.item(), rel=1e-9, abs=1e-12)
    assert now.grad is not None
    torch.testing.assert_close(slope, now.grad, rtol=1e-9, atol=1e-12)
    kl, _, clip_share = metrics
    assert kl == pytest.approx(told.get("kl", 0.0), rel=1e-6)
    if "clip_ratio/region_mean" in told and ratio_of == "token":
        assert clip_share == pytest.approx(told["clip_ratio/region_mean"], rel=1e-6)
        assert (clip_share > 0) == (not is_first), "the numbers go beyond the bounds"


@pytest.mark.parametrize("loss", ["dapo", "grpo"])
def test_a_largest_ratio_is_trls_delta(loss: str) -> None:
    numbers = _Numbers()
    (value, *_), slope = _ours(_objective(policy_loss=loss, clip_most=1.35), numbers, numbers.then)
    (free, *_), _ = _ours(_objective(policy_loss=loss), numbers, numbers.then)
    now = numbers.now.clone().requires_grad_()
    inputs = {"mask": numbers.mask, "advantages": numbers.advantages, "old_per_token_logps": _padded(numbers.then)}
    theirs, _ = trl_policy.grpo(loss, "token", CLIP, 0.0, 12, _padded(now), inputs, delta=1.35)
    theirs.backward()
    assert value == pytest.approx(theirs.item(), rel=1e-9)
    assert now.grad is not None
    torch.testing.assert_close(slope, now.grad, rtol=1e-9, atol=1e-12)
    assert value != pytest.approx(free, rel=1e-3), "some ratio is beyond it"


def test_loss_and_slope_of_leaving_one_out_are_those_of_trl() -> None:
    numbers = _Numbers()
    # Ratios of whole answers are the exponential of sums: only small changes stay within the bounds.
    numbers.then = numbers.now + 0.03 * (numbers.then - numbers.now)
    (value, *metrics), slope = _ours(_objective("rloo"), numbers, numbers.then)
    now = numbers.now.clone().requires_grad_()
    inputs = {"mask": numbers.mask, "advantages": numbers.advantages, "old_logps": _padded(numbers.then).sum(1)}
    theirs, _ = trl_policy.rloo(CLIP, _padded(now), inputs)
    theirs.backward()
    assert value == pytest.approx(theirs.item(), rel=1e-9)
    assert now.grad is not None
    torch.testing.assert_close(slope, now.grad, rtol=1e-9, atol=1e-12)
    assert len(metrics) == len(OF_UPDATES)


def test_entropy_is_that_of_what_was_written() -> None:
    numbers = _Numbers()
    _, _, entropy, _ = _ours(_objective(), numbers, numbers.then)[0]
    assert entropy == pytest.approx(-numbers.then.mean().item(), rel=1e-6)


REWARDS = np.array([[1.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5], [0.0, 3.0, 0.0, 0.0]])


def test_answers_are_compared_with_their_group() -> None:
    by_group = relative_to_group(REWARDS, "group")
    spread = REWARDS[0].std(ddof=1)
    gain = 0.5 / (spread + 1e-4)
    assert by_group[0].tolist() == pytest.approx([gain, -gain, -gain, gain])
    assert by_group[1].tolist() == [0.0] * 4
    assert relative_to_group(REWARDS, "none")[2].tolist() == [-0.75, 2.25, -0.75, -0.75]
    by_batch = relative_to_group(REWARDS, "batch")
    assert by_batch[2, 1] == pytest.approx(2.25 / (REWARDS.std(ddof=1) + 1e-4))
    assert spread_of_groups(REWARDS)[1] == 0.0


def test_answers_are_compared_with_the_others() -> None:
    assert leaving_one_out(REWARDS, "none")[2].tolist() == [-1.0, 3.0, -1.0, -1.0]
    standard = leaving_one_out(REWARDS, "batch")
    assert standard.mean() == pytest.approx(0.0, abs=1e-12)
    assert standard.std(ddof=1) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("compare", [relative_to_group, leaving_one_out])
def test_an_answer_that_nobody_can_score_teaches_nothing(compare: object) -> None:
    rewards = np.array([[1.0, np.nan, 0.0, 0.5], [np.nan, np.nan, np.nan, 2.0]])
    advantages = compare(rewards, "none")  # type: ignore[operator]
    assert advantages[0, 1] == 0.0
    assert advantages[0, 0] == pytest.approx(0.5 if compare is relative_to_group else 0.75)
    assert advantages[1].tolist() == [0.0] * 4
