"""The trial before the first step: it meets the lack of memory that a run would meet, and leaves nothing behind."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch

from tests.engine.fused.test_model import CPU, adapted, compute, rows
from tunesmith_core.errors import RunFailure
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.fused.arena import AdapterArena
from tunesmith_engine.methods.sft import METHOD
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.train.fused_path import FusedPath, RowLengths
from tunesmith_engine.train.loss import Objective, Totals, num_trained_tokens
from tunesmith_engine.train.loss_paths import PlainPath
from tunesmith_engine.train.memory_trial import longest_rows, try_longest
from tunesmith_engine.train.oom import MemoryLadder
from tunesmith_engine.train.optim import Updater

LENGTHS = (5, 30, 12, 28, 7, 29)


class SmallMemory:
    """A path in which only so many tokens have room: they double whenever less is kept."""

    name = "small"
    arena: AdapterArena | None = None
    keeps_less_first = True
    longest = 30
    objective: Objective | None = None
    plan_bytes: int | None = None
    report: tuple[str, ...] = ()

    def __init__(self, room_tokens: int, num_rungs: int) -> None:
        self.room_tokens, self.num_rungs, self.micro_batch_size = room_tokens, num_rungs, 3
        self.tried: list[int] = []
        self.num_trained: list[int] = []

    def portions(self, examples: list[Example]) -> list[list[Example]]:
        size = self.micro_batch_size
        return [examples[start : start + size] for start in range(0, len(examples), size)]

    def add_gradients(self, portion: list[Example], totals: Totals, updater: Updater) -> torch.Tensor:
        num_tokens = sum(len(example.input_ids) for example in portion)
        self.tried.append(num_tokens)
        self.num_trained.append(totals.num_trained_tokens)
        if num_tokens > self.room_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return torch.zeros(1)

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        return torch.zeros(1, dtype=torch.float64)

    def weights_changed(self) -> None: ...

    def use_micro_batch_size(self, micro_batch_size: int) -> bool:
        is_less = micro_batch_size < self.micro_batch_size
        self.micro_batch_size = micro_batch_size
        return is_less

    def keep_less(self) -> str | None:
        self.num_rungs -= 1
        self.room_tokens *= 2
        return "Keeping less." if self.num_rungs >= 0 else None

    def out_of_the_way(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


def updater_for(model: torch.nn.Module, arena: AdapterArena | None = None) -> Updater:
    return Updater(trainable(model), OptimizerSpec(), CPU, torch.float32, arena)  # type: ignore[arg-type]


def ladder_for(path: SmallMemory) -> tuple[MemoryLadder, list[str]]:
    warnings: list[str] = []
    ladder = MemoryLadder(path.micro_batch_size, lambda _, words: warnings.append(words))
    ladder.path = path
    return ladder, warnings


def test_the_largest_micro_batch_of_the_longest_rows_is_tried() -> None:
    path = SmallMemory(1000, 0)
    ladder, warnings = ladder_for(path)
    assert [len(row.input_ids) for row in longest_rows(rows(LENGTHS), 4)] == [30, 29, 28, 12]
    assert try_longest(path, updater_for(adapted("llama")), ladder, rows(LENGTHS), 4, CPU) == 0
    assert path.tried == [30 + 29 + 28]
    assert path.num_trained == [num_trained_tokens(longest_rows(rows(LENGTHS), 3))]
    assert not warnings
    untrained = [Example(row.input_ids, np.full_like(row.input_ids, IGNORED_LABEL)) for row in rows(LENGTHS)]
    try_longest(path, updater_for(adapted("llama")), ladder, untrained, 4, CPU)
    assert path.num_trained[1:] == [1], "nothing is divided by zero"


def test_it_steps_down_until_the_largest_fits() -> None:
    path = SmallMemory(25, 1)
    ladder, warnings = ladder_for(path)
    try_longest(path, updater_for(adapted("llama")), ladder, rows(LENGTHS), 6, CPU)
    # More room, then micro-batches of one row.
    assert path.tried == [87, 87, 30]
    assert (ladder.num_kept_less, ladder.micro_batch_size) == (1, 1)
    assert [words.startswith("Before the first step: ") for words in warnings] == [True, True]


def test_what_never_fits_ends_the_run() -> None:
    path = SmallMemory(1, 0)
    with pytest.raises(RunFailure) as failure:
        try_longest(path, updater_for(adapted("llama")), ladder_for(path)[0], rows(LENGTHS), 6, CPU)
    assert failure.value.code == "cuda-oom"


@pytest.mark.parametrize("fused", [True, False])
def test_nothing_is_left_behind(fused: bool) -> None:
    model = adapted("llama", lora_dropout=0.5).train()
    path = (
        FusedPath(model, compute(), RowLengths(30, 111), 6)
        if fused
        else PlainPath(model, compute(), 0, 6, False, "A test.", METHOD)
    )
    updater = updater_for(model, path.arena)
    before = {name: parameter.clone() for name, parameter in trainable(model).items()}
    torch.manual_seed(7)
    expected = torch.rand(4)
    torch.manual_seed(7)
    ladder = MemoryLadder(6, lambda *_: None)
    ladder.path = path
    try_longest(path, updater, ladder, rows(LENGTHS), 6, CPU)
    assert torch.equal(torch.rand(4), expected)
    assert all(torch.equal(parameter, before[name]) for name, parameter in trainable(model).items())
    assert not any(p.grad is not None and p.grad.any() for p in trainable(model).values())
