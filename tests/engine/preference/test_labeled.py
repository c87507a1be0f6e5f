"""KTO's losses, slopes, metrics and mismatched answers are TRL's."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trl import KTOTrainer

from tests.engine.preference.pairs import labeled
from tests.engine.preference.trl_loss import _Accelerator, _Model
from tunesmith_core.preferences import LABEL_METRICS
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.preference.labeled import LOSSES, LabeledObjective, mismatched

SAME_NAMES = {
    "reward_chosen": "rewards/chosen",
    "reward_rejected": "rewards/rejected",
    "reward_margin": "rewards/margins",
    "logp_chosen": "logps/chosen",
    "logp_rejected": "logps/rejected",
    "kl": "kl",
}
SIDES = {"both": [True, False, True, True, False], "good": [True] * 5, "bad": [False] * 5}


class _Apart(_Model):
    """Tells the answers of the rows, and those of mismatched ones, by the width of what it is given."""

    def __init__(self, token_logps: torch.Tensor, others: torch.Tensor) -> None:
        super().__init__(token_logps)
        self._others = others

    def __call__(self, input_ids: torch.Tensor, **given: object) -> SimpleNamespace:
        chosen = self.token_logps if input_ids.shape[1] == self.token_logps.shape[1] + 1 else self._others
        return SimpleNamespace(log_probs=chosen, entropy=chosen, mean_logits=chosen, is_top1=chosen < 0)


def _theirs(
    name: str,
    objective: LabeledObjective,
    logps: torch.Tensor,
    reference: torch.Tensor,
    others: tuple[torch.Tensor, torch.Tensor],
    labels: list[bool],
) -> tuple[torch.Tensor, dict[str, float]]:
    trainer: Any = SimpleNamespace(
        model=_Apart(logps, others[0]),
        ref_model=_Apart(reference, others[1]),
        accelerator=_Accelerator(),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        beta=objective.beta,
        loss_type=name,
        desirable_weight=objective.good_weight,
        undesirable_weight=objective.bad_weight,
        calculate_KL=objective.needs_kl,
        precompute_ref_logps=False,
        aux_loss_enabled=False,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    trainer._compute_kl_logps = lambda model, batch: KTOTrainer._compute_kl_logps(trainer, model, batch)
    batch: dict[str, Any] = {"label": torch.tensor(labels)}
    for prefix, values in (("", logps), ("KL_", others[0])):
        ones = torch.ones(len(values), values.shape[1] + 1, dtype=torch.long)
        batch |= {f"{prefix}{key}": ones for key in ("input_ids", "attention_mask", "completion_mask")}
    loss = KTOTrainer._compute_loss(trainer, trainer.model, batch, False)
    return loss, {key: values[0] for key, values in trainer._metrics["train"].items()}


@pytest.mark.parametrize("labels", SIDES.values(), ids=SIDES)
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_has_the_value_the_slope_and_the_metrics_of_trl(name: str, labels: list[bool]) -> None:
    objective = LabeledObjective(LOSSES[name], 0.3, 1.25, 0.5, name == "kto")
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        logps, reference = (-torch.rand(5, 7, generator=generator, dtype=torch.float64) for _ in range(2))
        now, before = (-torch.rand(5, 9, generator=generator, dtype=torch.float64) for _ in range(2))
        logps.requires_grad_()
        theirs, their_metrics = _theirs(name, objective, logps, reference, (now, before), labels)
        (their_slopes,) = torch.autograd.grad(theirs, logps)
        kl = (now - before).sum(dim=1).mean().clamp(min=0) if objective.needs_kl else None
        sums, good = logps.detach().sum(dim=1).requires_grad_(), torch.tensor(labels)
        ours = objective(sums, reference.sum(dim=1), good, 5, sum(labels), kl)
        (slopes,) = torch.autograd.grad(ours[0], sums)
        assert ours[0].item() == pytest.approx(theirs.item(), rel=1e-9)
        assert torch.allclose(slopes[:, None].expand(-1, 7), their_slopes, rtol=1e-9, atol=1e-15)
        metrics = dict(zip(LABEL_METRICS, ours[1:].tolist(), strict=True))
        for name_, their_name in SAME_NAMES.items():
            if their_name in their_metrics:
                assert metrics[name_] == pytest.approx(their_metrics[their_name], rel=1e-6, abs=1e-9), name_
            else:
                assert np.isnan(metrics[name_]), name_


def test_answers_are_rated_on_the_right_side_of_what_the_model_has_moved() -> None:
    objective = LabeledObjective(LOSSES["kto"], 0.1, 1.0, 1.0, True)
    sums = torch.tensor([3.0, 1.0, 1.0, 3.0])
    good = torch.tensor([True, True, False, False])
    found = objective(sums, sums * 0, good, 4, 2, torch.tensor(2.0))
    told = dict(zip(LABEL_METRICS, found[1:].tolist(), strict=True))
    assert told["reward_accuracy"] == 0.5
    assert told["kl"] == 2.0
    # The base model itself is right about nothing.
    told = dict(zip(LABEL_METRICS, objective(sums, sums, good, 4, 2, None)[1:].tolist(), strict=True))
    assert (told["reward_accuracy"], told["reward_margin"], told["kl"]) == (0.0, 0.0, 0.0)


def test_each_question_gets_the_answer_of_the_row_before() -> None:
    rows = labeled([(3, 4), (2, 5), (1, 2)])
    found = mismatched(rows, 100)
    for place, each in enumerate(found):
        row, other = rows[place], rows[place - 1]
        prompt = [3, 2, 1][place]
        answer = other.input_ids[[3, 2, 1][place - 1] :]
        assert each.input_ids.tolist() == [*row.input_ids[:prompt], *answer]
        assert each.labels.tolist() == [*[IGNORED_LABEL] * prompt, *answer]
    assert [len(each.input_ids) for each in mismatched(rows, 5)] == [5, 5, 5]


def test_what_a_template_writes_behind_an_answer_is_no_part_of_it() -> None:
    ids = np.arange(6, dtype=np.int32)
    row = Example(ids, np.array([-100, -100, 2, 3, -100, -100], np.int32))
    (found,) = mismatched([row], 100)
    assert found.input_ids.tolist() == [0, 1, 2, 3]
