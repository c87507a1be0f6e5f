"""Held-out losses and sample texts: what they say, and that neither changes the training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.fused.test_model import CPU, adapted, compute, num_trained, row_loss, rows
from tunesmith_core.errors import TunesmithError
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.decode.plain import PlainDecoder
from tunesmith_engine.methods.sft import METHOD
from tunesmith_engine.train.evaluate import HeldOut, generate, held_out
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.loss_paths import PlainPath


def test_the_held_out_loss_is_the_mean_without_dropout_and_leaves_no_trace() -> None:
    model, examples = adapted("llama", lora_dropout=0.5), rows()
    path = PlainPath(model, compute(), 0, 2, False, "A test.", METHOD)
    with torch.no_grad():
        model.eval()
        expected = sum(float(row_loss(model, row)) for row in examples if num_trained([row])) / num_trained(examples)
    for training in (True, False):
        model.train(training)
        torch.manual_seed(3)
        before = torch.get_rng_state()
        measured = held_out(model, path, examples, CPU, (), True, lambda: False)
        assert measured is not None
        assert (measured.loss, measured.num_tokens) == (pytest.approx(expected, rel=1e-5), num_trained(examples))
        assert model.training == training
        assert torch.equal(torch.get_rng_state(), before)
    without = held_out(model, path, examples, CPU, (), False, lambda: False)
    assert without is not None
    assert without.loss != pytest.approx(expected, rel=1e-3)


class Portions:
    """A path that takes a row at a time and finds a loss of 3 in each."""

    objective = None

    def __init__(self) -> None:
        self.seen: list[int] = []

    def portions(self, examples: list[Example]) -> list[list[Example]]:
        return [[example] for example in examples]

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        assert with_adapter
        self.seen.append(len(portion[0].input_ids))
        return torch.tensor([3.0 / totals.num_trained_tokens], dtype=torch.float64)


def test_the_longest_rows_come_first_and_a_stop_is_met_between_portions() -> None:
    model, path = torch.nn.Linear(1, 1), Portions()
    measured = held_out(model, path, rows((2, 9, 5)), CPU, (), True, lambda: False)  # type: ignore[arg-type]
    assert measured is not None
    assert path.seen == [9, 5, 2]
    path.seen.clear()
    stopped = held_out(model, path, rows((2, 9, 5)), CPU, (), True, lambda: len(path.seen) == 2)  # type: ignore[arg-type]
    assert (stopped, path.seen, model.training) == (None, [9, 5], True)


def test_each_data_file_has_a_loss_of_its_own_beside_the_whole() -> None:
    model, examples = adapted("llama"), rows()
    path = PlainPath(model, compute(), 0, 2, False, "A test.", METHOD)
    nums = (2, 0, len(examples) - 2)

    def measured(rows: list[Example], nums: tuple[int, ...] = ()) -> HeldOut:
        found = held_out(model, path, rows, CPU, (), True, lambda: False, nums)
        assert found is not None
        return found

    whole = measured(examples, nums)
    assert whole.loss == pytest.approx(measured(examples).loss, rel=1e-6)
    assert [num for _, num in whole.source_losses] == [num_trained(examples[:2]), num_trained(examples[2:])]
    alone = [measured(examples[:2]).loss, measured(examples[2:]).loss]
    assert [loss for loss, _ in whole.source_losses] == pytest.approx(alone, rel=1e-6)
    for unknown in ((), (0, 0), (len(examples),)):
        assert measured(examples, unknown).source_losses == ()
    assert held_out(model, path, examples, CPU, (), True, lambda: True, nums) is None


@pytest.mark.parametrize("num_tokens", [0, 1, 2])
def test_few_tokens_have_a_loss_too(num_tokens: int) -> None:
    ids = np.arange(4, dtype=np.int32)
    labels = np.where(ids > 3 - num_tokens, ids, IGNORED_LABEL).astype(np.int32)
    row = Example(ids, labels)
    measured = held_out(torch.nn.Linear(1, 1), Portions(), [row], CPU, (), True, lambda: False)  # type: ignore[arg-type]
    assert measured == HeldOut(3.0 / max(num_tokens, 1), num_tokens, {})


class Speaker(torch.nn.Module):
    """A model that answers with three tokens and remembers how it was asked."""

    def __init__(self, ends: object) -> None:
        super().__init__()
        self.generation_config = SimpleNamespace(eos_token_id=ends)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=50))
        self.asked: dict[str, Any] = {}

    def get_base_model(self) -> Speaker:
        return self

    def get_decoder(self) -> Speaker:
        return self

    def generate(self, **asked: Any) -> torch.Tensor:
        assert not self.training
        self.asked = asked
        return torch.cat([asked["input_ids"], torch.tensor([[7, 8, 2]])], dim=1)


@pytest.mark.parametrize(
    ("ends", "own", "expected"),
    [(None, 2, [2]), (9, 2, [2, 9]), ([9, 4], 2, [2, 4, 9]), (2, 2, [2]), (None, None, None), (9, None, [9])],
)
def test_an_answer_is_the_likeliest_and_ends_where_the_model_or_the_tokenizer_says(
    ends: object, own: int | None, expected: list[int] | None
) -> None:
    def decode(tokens: list[int], skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return f" {tokens}\n"

    tokenizer = SimpleNamespace(eos_token_id=own, pad_token_id=5, decode=decode)
    model = Speaker(ends)
    said = " [7, 8]\n" if 2 in (expected or []) else " [7, 8, 2]\n"
    assert generate(PlainDecoder(model, compute()), model, tokenizer, [3, 4], 11).text == said  # type: ignore[arg-type]
    config = model.asked["generation_config"]
    assert (config.do_sample, config.max_new_tokens, config.use_cache) == (False, 11, True)
    assert (config.pad_token_id, config.eos_token_id) == (expected[0] if expected else 0, expected or [2**31 - 1])
    assert (model.asked["input_ids"].tolist(), model.asked["attention_mask"].tolist()) == ([[3, 4]], [[1, 1]])
    assert model.training


@pytest.mark.parametrize(("max_tokens", "end", "cut_at"), [(3, 9, 3), (4, 9, 0), (3, 2, 0)])
def test_an_answer_that_reached_the_limit_is_cut(max_tokens: int, end: int, cut_at: int) -> None:
    tokenizer = SimpleNamespace(eos_token_id=end, pad_token_id=5, decode=lambda tokens, skip_special_tokens: "")
    model = Speaker(end)
    written = generate(PlainDecoder(model, compute()), model, tokenizer, [3, 4], max_tokens)  # type: ignore[arg-type]
    assert written.cut_at == cut_at


def test_an_answer_ends_at_the_last_position_that_the_model_has_learned() -> None:
    tokenizer = SimpleNamespace(eos_token_id=9, pad_token_id=5, decode=lambda tokens, skip_special_tokens: "")
    model = Speaker(9)
    model.wpe = torch.nn.Embedding(5, 2)
    written = generate(PlainDecoder(model, compute()), model, tokenizer, [3, 4], 40)  # type: ignore[arg-type]
    assert (model.asked["generation_config"].max_new_tokens, written.cut_at) == (3, 3)
    with pytest.raises(TunesmithError, match="The prompt has 5 tokens, and this model reads at most 5"):
        generate(PlainDecoder(model, compute()), model, tokenizer, [3] * 5, 40)  # type: ignore[arg-type]
