"""What a loss is computed from: the trained places of a batch, and what a model is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.fused.test_model import CPU, adapted, num_trained, row_loss, rows
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.train.loss import (
    Batch,
    balances_experts,
    logits_of,
    make_batch,
    num_trained_tokens,
    own_summed_loss,
    takes_positions,
)

NO = IGNORED_LABEL
TWO_ROWS = [
    Example(np.array([1, 2, 3, 4], np.int32), np.array([1, NO, 3, 4], np.int32)),
    Example(np.array([5, 6], np.int32), np.array([NO, 6], np.int32)),
]


class Model:
    """Stands for an adapted model: it has no logits but its tokens, and remembers how it was called."""

    def __init__(self, *names: str, **config: bool) -> None:
        self.asked: dict[str, Any] = {}
        parameters = ", ".join(names)
        self.forward = eval(f"lambda {parameters}: None")
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(**config))

    def get_base_model(self) -> Model:
        return self

    def __call__(self, **arguments: Any) -> SimpleNamespace:
        self.asked = arguments
        logits = arguments["input_ids"][..., None].to(torch.bfloat16)
        kept = arguments.get("logits_to_keep")
        return SimpleNamespace(
            logits=logits if kept is None else logits[:, kept], loss=torch.tensor(1.5, dtype=torch.bfloat16)
        )


def made() -> Batch:
    return make_batch(TWO_ROWS, 9, CPU)


def test_a_batch_has_the_places_whose_next_token_is_trained_in_any_row() -> None:
    batch = made()
    assert batch.input_ids.tolist() == [[1, 2, 3, 4], [5, 6, 9, 9]]
    assert batch.positions.tolist() == [0, 1, 2]
    assert batch.targets.tolist() == [[NO, 3, 4], [6, NO, NO]]
    assert batch.lengths == (4, 2)
    assert num_trained_tokens(TWO_ROWS) == 3
    assert make_batch(TWO_ROWS[:1], 9, CPU).positions.tolist() == [1, 2]


@pytest.mark.parametrize("some_positions", [True, False])
def test_logits_are_those_of_the_trained_places_and_nothing_is_cached(some_positions: bool) -> None:
    batch = make_batch(TWO_ROWS[:1], 9, CPU)
    model = Model("input_ids", *(["logits_to_keep"] if some_positions else []))
    assert takes_positions(model) == some_positions  # type: ignore[arg-type]
    logits = logits_of(model, batch, some_positions)  # type: ignore[arg-type]
    assert (logits.tolist(), logits.dtype) == ([[[2.0], [3.0]]], torch.float32)
    assert model.asked["use_cache"] is False
    assert ("logits_to_keep" in model.asked) == some_positions


@pytest.mark.parametrize(("config", "balanced"), [({}, False), ({"output_router_logits": True}, True)])
def test_a_model_that_balances_its_experts_says_so(config: dict[str, bool], balanced: bool) -> None:
    assert balances_experts(Model("input_ids", **config)) is balanced  # type: ignore[arg-type]


def test_the_own_loss_of_a_model_is_told_what_is_trained_and_what_is_padding() -> None:
    model = Model("input_ids")
    loss = own_summed_loss(model, made())  # type: ignore[arg-type]
    assert (loss.item(), loss.dtype) == (1.5 * 3, torch.float32)
    assert model.asked["labels"].tolist() == [[NO, NO, 3, 4], [NO, 6, NO, NO]]
    assert model.asked["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert model.asked["use_cache"] is False


def test_the_own_loss_is_the_sum_of_the_rows() -> None:
    model, examples = adapted("llama").eval(), rows()
    with torch.no_grad():
        expected = sum(row_loss(model, example) for example in examples if num_trained([example]))
        ours = own_summed_loss(model, make_batch(examples, 0, CPU))
    assert ours.item() == pytest.approx(float(expected), rel=1e-5)
