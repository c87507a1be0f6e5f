"""Objectives of rewards on the fused and the plain path: loss, metrics and gradients are those of float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import PeftModel

from tests.engine.fused.test_model import CPU, adapted, compute
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tests.engine.preference.pairs import pairs
from tunesmith_core.rewards import OF_UPDATES
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.data.example import Example, Sampled
from tunesmith_engine.methods import method_of
from tunesmith_engine.packed.answers import Answers
from tunesmith_engine.reinforcement.objective import PolicyObjective
from tunesmith_engine.train.fused_path import FusedPath, RowLengths
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.loss_paths import LossPath, PlainPath
from tunesmith_engine.train.optim import Updater

ADVANTAGES = (0.9, -1.3, 0.5, -0.2)


def _rows(model: PeftModel) -> list[Example]:
    """Answers with advantages, by a model that has moved a little since."""
    sequences = [sequence for pair in pairs([(3, 5, 9), (4, 8, 2)]) for sequence in pair.sequences]
    rows = []
    for place, (sequence, advantage) in enumerate(zip(sequences, ADVANTAGES, strict=True)):
        plain = replace(sequence, rejected=None)
        now = _log_probabilities(model, [plain]).detach().float().numpy()
        then = now + np.random.default_rng(place).normal(0, 0.15, len(now)).astype(np.float32)
        rows.append(replace(plain, sampled=Sampled(advantage, then)))
    return rows


def _log_probabilities(model: PeftModel, rows: Sequence[Example]) -> torch.Tensor:
    found = []
    for row in rows:
        logits = model(input_ids=torch.from_numpy(row.input_ids).long()[None]).logits[0, :-1]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        labels = torch.from_numpy(row.labels).long()[1:]
        chosen = logits.log_softmax(dim=1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
        found.append(chosen[labels >= 0])
    return torch.cat(found)


def _by_autograd(
    model: PeftModel, rows: Sequence[Example], objective: PolicyObjective, dtype: torch.dtype
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model = copy.deepcopy(model).to(dtype)
    answers = Answers.of(rows, CPU)
    answers = replace(answers, num_tokens=answers.num_tokens.to(dtype))
    with torch.no_grad(), model.disable_adapter():
        reference = _log_probabilities(model, rows)
    sampled = [row.sampled for row in rows if row.sampled]
    then = torch.from_numpy(np.concatenate([each.log_probabilities for each in sampled])).to(dtype)
    advantages = torch.tensor([each.advantage for each in sampled], dtype=dtype)
    num_tokens = sum(row.num_trained_tokens for row in rows)
    now = _log_probabilities(model, rows)
    values = objective(now, then, reference, advantages, answers, len(rows), num_tokens)
    values[0].backward()
    return values.detach(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def _fused_path(objective: PolicyObjective, model: PeftModel) -> LossPath:
    return FusedPath(model, compute(), RowLengths(13, 40), 2, objective=objective)


def _plain_path(objective: PolicyObjective, model: PeftModel) -> LossPath:
    return PlainPath(model, compute(), 0, 2, False, "A test.", method_of("grpo"), objective)


def _vector(gradients: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([(gradients[name] / exact[name].square().mean().sqrt()).flatten() for name in exact])


@pytest.mark.parametrize("open_path", [_fused_path, _plain_path])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
@pytest.mark.parametrize(
    ("loss", "ratio_of"), [("dapo", "token"), ("grpo", "answer"), ("cispo", "token"), ("sapo", "token")]
)
def test_a_step_in_portions_is_the_objective_of_all_its_answers(
    loss: str, ratio_of: str, name: str, open_path: Callable[[PolicyObjective, PeftModel], LossPath]
) -> None:
    spec = RunSpec()
    spec.objective.kind, spec.objective.policy_loss, spec.objective.ratio_of = "grpo", loss, ratio_of
    spec.objective.beta, spec.rollouts.max_tokens = 0.1, 10
    objective = method_of("grpo").objective(spec)
    assert isinstance(objective, PolicyObjective)
    model = adapted(name).eval()
    rows = _rows(model)
    exact_values, exact = _by_autograd(model, rows, objective, torch.float64)
    usual_values, usual = _by_autograd(model, rows, objective, torch.float32)
    path = open_path(objective, model)
    parameters = {key: weight for key, weight in model.named_parameters() if weight.requires_grad}
    updater = Updater(parameters, OptimizerSpec(), CPU, torch.float32, path.arena)
    portions = path.portions(rows)
    assert len(portions) == 2
    totals = Totals.of(rows)
    values = sum(path.add_gradients(portion, totals, updater) for portion in portions)
    assert isinstance(values, torch.Tensor)
    assert len(values) == 1 + len(OF_UPDATES)
    tolerance = 4 * REDUCTION
    judge("loss and metrics", values.double(), (usual_values.double(),), exact_values, torch.float32, tolerance)
    found = {key: weight.grad for key, weight in parameters.items() if weight.grad is not None}
    ours, theirs, oracle = (_vector(each, exact) for each in (found, usual, exact))
    judge("gradients", ours, (theirs,), oracle, torch.float32, tolerance)
    mutants_fail(lambda mutant: judge("gradients", mutant, (theirs,), oracle, torch.float32, tolerance), ours)
