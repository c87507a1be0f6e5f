"""TRL's SFTTrainer as the oracle: same data, seed and settings, the same losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.engine.conftest import events, train
from tests.engine.prepared import prepare
from tests.engine.trl_settings import settings_of
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import Example
from tunesmith_engine.data.collate import collate
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter
from tunesmith_engine.train.schedule import StepPlan

NUM_STEPS = 6


class GivenOrder(torch.utils.data.Sampler[int]):
    """Our order of rows for as many steps as are trained."""

    def __init__(self, plan: StepPlan, num_steps: int) -> None:
        self._rows = [row for step in range(num_steps) for row in plan.rows(step)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _oracle_log(spec: RunSpec, folder: Path, out: Path) -> list[dict[str, float]]:
    """Train by TRL from the same start and return its log of the steps."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    tokenizer = load_tokenizer(folder)
    examples = prepare(spec, tokenizer).train
    model = load_model(folder, choose_compute(spec), False)
    model = attach_adapter(model, spec) if spec.adapter.kind == "lora" else model.requires_grad_(True)
    plan = StepPlan(spec.schedule, len(examples))

    def collator(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        return collate([examples[row["number"]] for row in rows], 0)  # type: ignore[call-overload]

    class Oracle(SFTTrainer):
        def _get_train_sampler(self, *_: object) -> GivenOrder:
            return GivenOrder(plan, NUM_STEPS)

    config = SFTConfig(
        **settings_of(spec, out, NUM_STEPS),
        loss_type="nll",
        remove_unused_columns=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    rows = Dataset.from_list([{"number": n, "input_ids": _ids(example)} for n, example in enumerate(examples)])
    trainer = Oracle(model=model, args=config, train_dataset=rows, data_collator=collator, processing_class=tokenizer)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def _ids(example: Example) -> list[int]:
    return [int(token) for token in example.input_ids]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "optimizer"), [("lora", "adamw"), ("full", "adamw"), ("full", "adafactor")])
def test_losses_are_those_of_trl(
    tiny_spec: Callable[..., RunSpec],
    new_run: Callable[[RunSpec], Run],
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    optimizer: str,
) -> None:
    rate = {"lora": 2e-2, "full": 2e-3}[kind]
    spec = tiny_spec(
        optimizer={"learning_rate": rate, "weight_decay": 0.1, "max_grad_norm": 0.2, "beta2": 0.95},
        schedule={
            "max_steps": NUM_STEPS,
            "micro_batch_size": 2,
            "gradient_accumulation_steps": 4,
            "seed": 5,
        },
    )
    spec.adapter.kind, spec.optimizer.name = kind, optimizer
    run = new_run(spec)
    assert train(run) == 0
    theirs = _oracle_log(spec, tiny_model, tmp_path / "oracle")
    capsys.readouterr()
    ours = [event.data for event in events(run, "step")]
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in theirs], rel=1e-5)
    assert [step["grad_norm"] for step in ours] == pytest.approx([step["grad_norm"] for step in theirs], rel=1e-4)
    assert [step["lr"] for step in ours] == pytest.approx([step["learning_rate"] for step in theirs], rel=1e-6)
    assert max(step["grad_norm"] for step in ours) > 0.2
