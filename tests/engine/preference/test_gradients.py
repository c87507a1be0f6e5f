"""Preference objectives on the fused and the plain path: loss, metrics and gradients are those of autograd."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.engine.fused.test_model import CPU, adapted, compute
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tests.engine.preference.pairs import by_autograd, in_portions, labeled, one_by_one, padded, pairs
from tunesmith_core.preferences import METRICS
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.methods import method_of
from tunesmith_engine.packed.answers import Answers
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.preference.labeled import LabeledObjective
from tunesmith_engine.preference.objective import PreferenceObjective
from tunesmith_engine.train.fused_path import FusedPath, RowLengths
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.loss_paths import LossPath, PlainPath, totals_of
from tunesmith_engine.train.optim import Updater

KINDS = ["dpo", "simpo", "orpo", "cpo", "kto"]
ROWS = pairs([(3, 5, 9), (4, 8, 2), (1, 3, 3)])
"""Two of them fit into a micro-batch of 40 tokens, and the third goes alone."""
LABELED = labeled([(3, 9), (4, 8), (1, 3), (5, 2)])


def _objective(kind: str, **settings: object) -> PreferenceObjective | LabeledObjective:
    spec = RunSpec()
    spec.objective.kind = kind
    for name, value in settings.items():
        setattr(spec.objective, name, value)
    objective = method_of(kind).objective(spec)
    assert isinstance(objective, PreferenceObjective | LabeledObjective)
    return objective


def _fused_path(objective: PreferenceObjective | LabeledObjective, model: object) -> LossPath:
    return FusedPath(model, compute(), RowLengths(26, 60), 1, objective=objective)  # type: ignore[arg-type]


def _plain_path(objective: PreferenceObjective | LabeledObjective, model: object) -> LossPath:
    return PlainPath(model, compute(), 0, 2, False, "A test.", method_of("dpo"), objective)  # type: ignore[arg-type]


def _side_by_side(gradients: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return all gradients as one vector in which every parameter weighs alike, large or small."""
    return torch.cat([(gradients[name] / exact[name].square().mean().sqrt()).flatten() for name in exact])


@pytest.mark.parametrize("open_path", [_fused_path, _plain_path])
@pytest.mark.parametrize("name", ["llama", "gemma2", "cohere"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_in_portions_is_the_objective_of_all_its_pairs(
    kind: str, name: str, open_path: Callable[[PreferenceObjective | LabeledObjective, object], LossPath]
) -> None:
    objective = _objective(kind, sft_weight=0.5, good_weight=1.5, bad_weight=0.75)
    rows = LABELED if kind == "kto" else ROWS
    model = adapted(name).eval()
    exact_values, exact = by_autograd(model, rows, objective, torch.float64)
    # The worst of thousands of numbers is chance: it lies elsewhere on other processors.
    ways = (one_by_one, padded, in_portions)
    usual = [by_autograd(model, rows, objective, torch.float32, way) for way in ways]
    path = open_path(objective, model)
    parameters = {key: weight for key, weight in model.named_parameters() if weight.requires_grad}
    updater = Updater(parameters, OptimizerSpec(), CPU, torch.float32, path.arena)
    portions = path.portions(rows)
    assert len(portions) == 2
    # A gradient is a sum of sums through three layers, forward and backward: four times what one sum may have.
    totals = totals_of(path, rows)
    values = sum(path.losses(portion, totals, True) for portion in portions)
    shares = sum(path.add_gradients(portion, totals, updater) for portion in portions)
    assert isinstance(values, torch.Tensor)
    assert isinstance(shares, torch.Tensor)
    assert len(values) == 1 + len(objective.metrics)
    for what in (values, shares):
        usual_values = tuple(values.double() for values, _ in usual)
        judge("loss and metrics", what.double(), usual_values, exact_values, torch.float32, 4 * REDUCTION)
    assert parameters.keys() == exact.keys()
    found = {key: weight.grad for key, weight in parameters.items() if weight.grad is not None}
    ours, oracle = _side_by_side(found, exact), _side_by_side(exact, exact)
    theirs = tuple(_side_by_side(gradients, exact) for _, gradients in usual)
    judge("gradients", ours, theirs, oracle, torch.float32, 4 * REDUCTION)
    mutants_fail(lambda mutant: judge("gradients", mutant, theirs, oracle, torch.float32, 4 * REDUCTION), ours)


def test_without_the_adapter_the_reference_is_the_model_itself() -> None:
    for open_path in (_fused_path, _plain_path):
        path = open_path(_objective("dpo"), adapted("llama").eval())
        loss, *metrics = path.losses(ROWS[:1], Totals.of(ROWS[:1]), False).tolist()
        told = dict(zip(METRICS, metrics, strict=True))
        assert loss == pytest.approx(0.693147, abs=1e-4)
        assert told["reward_margin"] == pytest.approx(0.0, abs=1e-5)


def test_what_the_model_adds_for_an_even_use_of_experts_counts() -> None:
    model = adapted("mixtral").eval()
    config = model.get_base_model().config
    config.output_router_logits = True

    def loss(weight: float) -> float:
        config.router_aux_loss_coef = weight
        path = _plain_path(_objective("dpo"), model)
        return path.losses(ROWS, Totals.of(ROWS), True)[0].item()

    without, added = loss(0.0), loss(0.5) - loss(0.0)
    assert without == pytest.approx(0.69, abs=0.2)
    # An even use alone adds the number of experts for each token times the weight.
    assert added >= 0.5 * config.num_experts_per_tok * 0.99
    assert loss(1.0) - without == pytest.approx(2 * added, rel=1e-4)


@pytest.mark.parametrize("policy", ["mlp", "smart", "full", "offload"])
def test_no_way_to_keep_activations_changes_a_bit(policy: str) -> None:
    """The logits are computed twice, with the layers' activations kept between."""

    def gradients(policy: str) -> torch.Tensor:
        twin = FusedModel.attach(adapted("llama"), compute(), 64, policy)
        batch, answers = make_packed_batch(ROWS, CPU), Answers.of(ROWS, CPU)
        objective = _objective("simpo")
        twin.objective_and_gradients(batch, lambda each: objective(answers.sums(each), None, answers.num_tokens, 3, 16))
        return twin.arena.gradients.clone()

    assert torch.equal(gradients(policy), gradients("none"))


def test_sums_and_weights_find_their_documents() -> None:
    answers = Answers.of(ROWS, CPU)
    counts = [5, 9, 8, 2, 3, 3]
    assert answers.num_tokens.tolist() == counts
    values = torch.arange(float(sum(counts)))
    assert answers.sums(values).tolist() == [part.sum().item() for part in values.split(counts)]
    spread = answers.spread(torch.arange(6.0))
    assert spread.tolist() == [float(place) for place, count in enumerate(counts) for _ in range(count)]


def test_both_answers_of_a_pair_are_documents_that_share_their_beginning() -> None:
    batch = make_packed_batch(ROWS[:1], CPU)
    documents = batch.documents
    assert documents.lengths == (8, 12)
    assert documents.shared
    # The question's last token predicts the first one of both answers, so each answer has its own.
    assert batch.positions.tolist() == [*range(8), *range(2, 12)]
    better, worse = ROWS[0], ROWS[0].rejected
    assert isinstance(worse, Example)
    assert batch.targets.tolist() == [*better.labels[3:], *worse.labels[3:]]
    assert batch.trained_rows.tolist() == [*range(2, 7), *range(8, 17)]
    assert batch.input_ids[documents.shared.rows].tolist() == [*better.input_ids, *worse.input_ids]
    assert batch.input_ids.tolist() == [*better.input_ids, *worse.input_ids[2:]]


@pytest.mark.parametrize(
    ("better", "worse", "shared"),
    [
        (([1, 2, 3, 4, 5], 3), ([1, 2, 3, 9, 9, 9], 3), 2),
        (([1, 2, 3, 4, 5], 3), ([1, 2, 3, 4, 7], 3), 2),
        (([1, 2, 3, 4, 5], 4), ([1, 8, 3, 9], 3), 1),
        (([1, 2, 3, 4, 5], 0), ([1, 2, 3, 9], 3), 0),
        (([1, 2], 2), ([1, 2], 2), 1),
        (([7, 2, 3], 1), ([8, 2, 3], 1), 0),
        (([1, 2, *range(30, 60)], 2), ([1, 2, 3], 2), 0),
    ],
    ids=["question", "equal answers", "cut", "trained", "nothing trained", "nothing shared", "too little"],
)
def test_tokens_that_predict_what_is_learned_are_never_shared(
    better: tuple[list[int], int], worse: tuple[list[int], int], shared: int
) -> None:
    def example(ids: list[int], num_prompt: int, rejected: Example | None = None) -> Example:
        array = np.array(ids, np.int32)
        return Example(array, np.where(np.arange(len(ids)) < num_prompt, IGNORED_LABEL, array), rejected)

    pair = example(*better, example(*worse))
    assert pair.num_shared_tokens == shared
    assert pair.num_computed_tokens == len(better[0]) + len(worse[0]) - shared
    assert make_packed_batch([pair], CPU).num_tokens == pair.num_computed_tokens


def test_a_shared_beginning_changes_nothing_and_takes_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 the gradients are those of each answer behind its own question."""
    rows = pairs([(30, 5, 9), (20, 2, 7), (1, 4, 4)])

    def gradients() -> tuple[int, torch.Tensor]:
        twin = FusedModel.attach(adapted("gemma2").double(), compute(torch.float64), 200)
        batch, answers = make_packed_batch(rows, CPU), Answers.of(rows, CPU)
        objective = _objective("simpo")
        twin.objective_and_gradients(batch, lambda each: objective(answers.sums(each), None, answers.num_tokens, 3, 11))
        return batch.num_tokens, twin.arena.gradients.clone()

    tokens, shared = gradients()
    monkeypatch.setattr("tunesmith_engine.data.example.LEAST_SHARED", 2.0)
    all_tokens, separate = gradients()
    assert (tokens, all_tokens) == (133 - 29 - 19, 133)
    torch.testing.assert_close(shared, separate, rtol=1e-9, atol=1e-14)
