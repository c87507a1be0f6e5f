"""The same training by TRL's SFTTrainer and by our fused path: rows, order, first adapter and settings are the same."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel

from tests.engine.fused import families
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.data.collate import collate
from tunesmith_engine.device import Compute
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter, trainable
from tunesmith_engine.train.fused_path import FusedPath, RowLengths
from tunesmith_engine.train.loss import Totals, num_trained_tokens
from tunesmith_engine.train.optim import Updater
from tunesmith_engine.train.schedule import StepPlan

NUM_ROWS, NUM_EVAL_ROWS = 64, 16
STEP_ROWS = 8
FIRST_TOKEN, LAST_TOKEN = 3, 160
CPU = torch.device("cpu")


@dataclass(slots=True)
class Curve:
    """What a training left behind.

    Attributes:
        losses: of each step.
        first_gradient: all adapters' gradients of the first step in one row; their length is that after clipping.
        first_norm: its length before clipping.
        eval_loss: of the held-out rows at the end, by the transformers model in the format that it was trained in.
    """

    losses: list[float] = field(default_factory=list)
    first_gradient: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    first_norm: float = 0.0
    eval_loss: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """A family, a seed and a length of training."""

    family: str
    seed: int
    num_steps: int
    dtype: torch.dtype = torch.float32
    learning_rate: float = 1e-2
    four_bit: bool = False

    def spec(self) -> RunSpec:
        """Return the settings of the training."""
        spec = RunSpec()
        spec.adapter.rank, spec.adapter.alpha = 4, 8.0
        spec.optimizer.learning_rate, spec.optimizer.weight_decay = self.learning_rate, 0.01
        spec.schedule.max_steps, spec.schedule.warmup_steps, spec.schedule.seed = self.num_steps, 5, self.seed
        spec.schedule.micro_batch_size, spec.schedule.gradient_accumulation_steps = STEP_ROWS, 1
        spec.evaluation.percent = 0
        return spec

    def model(self) -> PeftModel:
        """Return the base model with its first adapter."""
        model = families.make(self.family, self.seed).to(self.dtype)
        if self.four_bit:
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                model = load_model(Path(folder), Compute(CPU, self.dtype, "CPU", 1), four_bit=True)
        return attach_adapter(model, self.spec()).train()

    def rows(self) -> tuple[list[Example], list[Example]]:
        """Return rows to train on and rows to keep: counting by a stride that the first two tokens tell."""
        chance = random.Random(self.seed)
        examples = []
        for _ in range(NUM_ROWS + NUM_EVAL_ROWS):
            start, stride = chance.randrange(40), chance.randrange(1, 4)
            length, num_prompt = chance.randrange(4, 40), chance.randrange(1, 4)
            ids = FIRST_TOKEN + (start + stride * np.arange(length, dtype=np.int32)) % (LAST_TOKEN - FIRST_TOKEN)
            labels = ids.copy()
            labels[:num_prompt] = IGNORED_LABEL
            examples.append(Example(ids, labels))
        return examples[:NUM_ROWS], examples[NUM_ROWS:]

    def steps(self) -> list[list[int]]:
        """Return the numbers of the rows of each step."""
        plan = StepPlan(self.spec().schedule, NUM_ROWS)
        return [plan.rows(step) for step in range(self.num_steps)]


def train_ours(case: Case) -> Curve:
    """Train by the fused path."""
    spec, model, (examples, held_out) = case.spec(), case.model(), case.rows()
    compute = Compute(CPU, case.dtype, "CPU", 1)
    steps = [[examples[row] for row in rows] for rows in case.steps()]
    sizes = [sum(len(example.input_ids) for example in step) for step in steps]
    longest = max(len(example.input_ids) for example in examples + held_out)
    path = FusedPath(model, compute, RowLengths(longest, max(sizes)), STEP_ROWS)
    assert not path.notes, path.notes
    updater = Updater(trainable(model), spec.optimizer, CPU, case.dtype, path.arena)
    plan, curve = StepPlan(spec.schedule, NUM_ROWS), Curve()
    for number, step in enumerate(steps):
        totals = Totals.of(step)
        losses = [path.add_gradients(portion, totals, updater) for portion in path.portions(step)]
        if number == 0:
            curve.first_gradient = _gradient(model)
        norm = updater.update(spec.optimizer.learning_rate * plan.learning_rate_factor(number))
        path.weights_changed()
        curve.losses.append(sum(loss.item() for loss in losses))
        if number == 0:
            curve.first_norm = norm.item()
    path.close()
    curve.eval_loss = plain_loss(model, held_out, case.dtype)
    return curve


class GivenOrder(torch.utils.data.Sampler[int]):
    """Rows in the order of our steps."""

    def __init__(self, steps: Sequence[Sequence[int]]) -> None:
        self._rows = [row for step in steps for row in step]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def train_trl(
    case: Case, out: Path, micro_batch_size: int = STEP_ROWS, reverse: bool = False, attention: str = "eager"
) -> Curve:
    """Train by TRL from the same start.

    Args:
        case: what to train.
        out: folder for its files.
        micro_batch_size: rows at a time; the step stays the same.
        reverse: take the rows of each step in reverse order, which changes nothing but rounding.
        attention: "eager" or "sdpa", which round differently too.
    """
    from datasets import Dataset
    from trl import SFTTrainer

    model, (examples, held_out) = case.model(), case.rows()
    model.get_base_model().set_attn_implementation(attention)
    order = GivenOrder([rows[::-1] if reverse else rows for rows in case.steps()])

    def collator(rows: list[dict[str, int]]) -> dict[str, torch.Tensor]:
        return collate([examples[row["number"]] for row in rows], 0)

    class Oracle(SFTTrainer):
        def _get_train_sampler(self, *_: object) -> GivenOrder:
            return order

    curve = Curve()
    first_weights = {name: weight.detach().clone() for name, weight in trainable(model).items()}
    trainer = Oracle(
        model=model,
        args=_settings(case, out, micro_batch_size),
        train_dataset=Dataset.from_list([{"number": n, "input_ids": [0]} for n in range(NUM_ROWS)]),
        data_collator=collator,
        processing_class=_tokenizer(),
        callbacks=[_watcher(model, curve)],
    )
    for name, weight in trainable(model).items():
        # On a 4-bit base TRL rounds the adapter to bfloat16; ours stays in float32.
        weight.data = first_weights[name]
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    curve.losses, curve.first_norm = [step["loss"] for step in steps], steps[0]["grad_norm"]
    curve.eval_loss = plain_loss(model, held_out, case.dtype)
    return curve


def _settings(case: Case, out: Path, micro_batch_size: int) -> Any:  # Any: a trl.SFTConfig
    from trl import SFTConfig

    spec = case.spec()
    return SFTConfig(
        output_dir=str(out),
        max_steps=case.num_steps,
        per_device_train_batch_size=micro_batch_size,
        gradient_accumulation_steps=STEP_ROWS // micro_batch_size,
        learning_rate=spec.optimizer.learning_rate,
        # TRL adds the balance of experts where the model itself doesn't.
        router_aux_loss_coef=0.0,
        lr_scheduler_type=spec.schedule.scheduler,
        warmup_steps=spec.schedule.warmup_steps,
        weight_decay=spec.optimizer.weight_decay,
        max_grad_norm=spec.optimizer.max_grad_norm,
        adam_beta2=spec.optimizer.beta2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=case.dtype == torch.bfloat16,
        activation_checkpointing=False,
        loss_type="nll",
        seed=case.seed,
        remove_unused_columns=False,
        disable_tqdm=True,
        dataset_kwargs={"skip_prepare_dataset": True},
        optim="adamw_torch",
    )


def _watcher(model: PeftModel, curve: Curve) -> Any:  # Any: a transformers.TrainerCallback
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):
        """Takes the first step's gradients."""

        def on_pre_optimizer_step(self, args: object, state: Any, control: object, **_: object) -> None:
            if state.global_step == 0:
                curve.first_gradient = _gradient(model)

    return Watcher()


def _tokenizer() -> Any:  # Any: a transformers tokenizer
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1}, "<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>")


def _gradient(model: PeftModel) -> torch.Tensor:
    return torch.cat([weight.grad.detach().flatten().clone() for weight in trainable(model).values()])


def plain_loss(model: PeftModel, examples: Sequence[Example], dtype: torch.dtype) -> float:
    """Return the mean cross-entropy of rows in nats, by transformers, a row at a time.

    The model stays in training mode, which changes nothing without dropout: bitsandbytes packs 4-bit weights anew for
    inference on CPUs, which fails for some widths.
    """
    total = 0.0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        for example in examples:
            logits = model(input_ids=torch.from_numpy(example.input_ids).long()[None]).logits[0, :-1]
            labels = torch.from_numpy(example.labels).long()[1:]
            total += torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum").item()
    return total / num_trained_tokens(list(examples))
