"""To which sizes batches are filled up, and that filling up changes nothing."""

from __future__ import annotations

import random
import weakref
from collections import Counter

import pytest
import torch

from tests.engine.fused.test_model import CPU, adapted, compute, num_trained, rows
from tunesmith_engine.fused.graphs import (
    HOST_S_PER_LAYER,
    LEAST_TOKENS,
    MOST_GRAPHS,
    StepGraphs,
    fixed_sizes,
    most_tokens,
)
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.packed.pack import make_packed_batch

CAPACITY = 8192


def varied(seed: int, least_tokens: int = 1) -> list[int]:
    """Return lengths of rows that fill a batch, at least so far."""
    generator = random.Random(seed)
    lengths: list[int] = []
    while sum(lengths) < least_tokens or generator.random() < 0.8:
        length = generator.randint(1, 900)
        if sum(lengths) + length > CAPACITY:
            break
        lengths.append(length)
    return lengths


@pytest.mark.parametrize("seed", range(40))
def test_rows_fit_into_their_sizes(seed: int) -> None:
    lengths = [*varied(seed), 1]
    examples = rows(tuple(lengths))
    sizes = fixed_sizes(lengths, num_trained(examples), CAPACITY)
    batch = make_packed_batch(examples, CPU, **sizes)
    assert sum(lengths) <= batch.num_tokens <= min(CAPACITY, max(1.125 * sum(lengths) + 1, LEAST_TOKENS))
    assert batch.documents.bounds.shape[0] == sizes["num_documents"] + 1
    assert num_trained(examples) <= batch.trained_rows.shape[0] <= max(1.25 * num_trained(examples) + 1, LEAST_TOKENS)
    assert max(lengths) <= batch.documents.max_length <= batch.num_tokens


def test_tokens_that_fill_up_have_documents_too() -> None:
    examples = rows((10,) * 31 + (20,))
    sizes = fixed_sizes([10] * 31 + [20], num_trained(examples), CAPACITY)
    assert sizes["num_tokens"] > 330
    assert make_packed_batch(examples, CPU, **sizes).documents.bounds.shape[0] > 33


def test_few_graphs_serve_nearly_all_full_batches() -> None:
    sizes: Counter[tuple[int, ...]] = Counter()
    for seed in range(500):
        lengths = varied(seed, round(0.8 * CAPACITY))
        share = random.Random(seed).uniform(0.55, 0.75)
        sizes[tuple(fixed_sizes(lengths, round(share * sum(lengths)), CAPACITY).values())] += 1
    assert sum(number for _, number in sizes.most_common(MOST_GRAPHS)) > 475, sizes


def test_mean_padding_is_small() -> None:
    numbers = range(LEAST_TOKENS, CAPACITY)
    filled = [fixed_sizes([number - 1, 1], number, CAPACITY)["num_tokens"] / number for number in numbers]
    assert sum(filled) / len(filled) < 1.06


def test_rows_of_one_length_stay_what_they_are() -> None:
    assert fixed_sizes([2048, 2048], 1000, CAPACITY) == {"num_trained": 1024}
    examples = rows((16, 16, 16))
    batch = make_packed_batch(examples, CPU, **fixed_sizes([16] * 3, num_trained(examples), CAPACITY))
    assert batch.documents.equal_length == 16


def test_capacity_is_the_largest_size() -> None:
    assert fixed_sizes([600, 401], 1, 1010)["num_tokens"] == 1010


def test_large_models_are_captured_at_fewer_tokens() -> None:
    # A GPU that computes a layer of so many tokens as fast as the host launches it is just busy.
    assert most_tokens(28 * HOST_S_PER_LAYER / 1500, 28 * HOST_S_PER_LAYER) == pytest.approx(1500, abs=1)
    assert most_tokens(1e-4, 0.06) < most_tokens(1e-6, 0.06) / 99


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_filling_up_changes_no_more_than_roundings(name: str) -> None:
    model, examples = adapted(name), rows()
    twin = FusedModel.attach(model, compute(), 512)
    loss = twin.loss_and_gradients(make_packed_batch(examples, CPU), num_trained(examples))
    gradients = twin.arena.gradients.clone()
    twin.arena.gradients.zero_()
    sizes = fixed_sizes([len(example.input_ids) for example in examples], num_trained(examples), 512)
    filled = twin.loss_and_gradients(make_packed_batch(examples, CPU, **sizes), num_trained(examples))
    assert sizes["num_tokens"] > 5 * sum(len(example.input_ids) for example in examples)
    step = torch.finfo(torch.float32).eps
    assert abs(filled - loss) <= 8 * step * loss
    assert (twin.arena.gradients - gradients).norm() <= 16 * step * gradients.norm()


def test_a_cpu_fills_up_nothing() -> None:
    assert FusedModel.attach(adapted("llama"), compute(), 64).fixed_sizes(rows()) == {}


class Capturing:
    """Stands in for PyTorch's captures: notes their ends."""

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def __call__(self, _graph: object, pool: object) -> Capturing:
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.told.append("capture ends")


def test_without_room_for_a_graph_the_step_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun on other streams ends first, what was held is free again, and no second attempt is made."""
    held: list[weakref.ref[torch.Tensor]] = []
    told: list[str] = []

    def step(_batch: PackedBatch, _scale: torch.Tensor) -> torch.Tensor:
        assert all(tensor() is None for tensor in held)
        told.append("step")
        if len(told) == 2:
            activations = torch.zeros(4)
            held.append(weakref.ref(activations))
            raise torch.OutOfMemoryError
        return torch.ones(())

    for name in ("CUDAGraph", "graph_pool_handle"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", Capturing(told))
    graphs = StepGraphs(step, lambda _: True, CAPACITY, lambda: told.append("settle"))
    batch = make_packed_batch(rows(), CPU)
    for _ in range(4):
        assert graphs.run(batch, torch.ones(())) == 1
    assert told == ["step", "step", "settle", "capture ends", "step", "step", "step"]
    assert held
