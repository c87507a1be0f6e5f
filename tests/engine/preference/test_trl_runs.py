"""TRL's trainers as oracles of whole preference runs: same data, order and settings, the same losses and metrics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.causal_types import write_model
from tests.engine.conftest import events, train
from tests.engine.prepared import prepare
from tests.engine.test_oracle import GivenOrder
from tests.engine.trl_settings import settings_of
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import Example
from tunesmith_engine.data.collate import collate
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter
from tunesmith_engine.preference.labeled import mismatched
from tunesmith_engine.train.schedule import StepPlan

NUM_STEPS, NUM_ROWS, BATCH_SIZE = 30, 12, 3
SAME_NAMES = {
    "rewards/chosen": "reward_chosen",
    "rewards/rejected": "reward_rejected",
    "rewards/margins": "reward_margin",
    "rewards/accuracies": "reward_accuracy",
    "logps/chosen": "logp_chosen",
    "logps/rejected": "logp_rejected",
}


def write_pairs(path: Path, num_rows: int = NUM_ROWS) -> None:
    """Write pairs of which the better answer ends with a smile."""
    words = "red green blue sea sky fish bird tree".split()
    rows = []
    for number in range(num_rows):
        answer = " ".join(words[(number + place) % 8] for place in range(2 + number % 4))
        asked = f"Say {words[number % 8]}."
        rows.append({"prompt": asked, "chosen": f"{answer} :)", "rejected": answer[: 4 + number]})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def write_labels(path: Path, num_rows: int = NUM_ROWS) -> None:
    """Write answers of which those that end with a smile are good."""
    write_pairs(path, num_rows)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    labeled = [
        {"prompt": row["prompt"], "completion": row["rejected" if number % 2 else "chosen"], "label": not number % 2}
        for number, row in enumerate(rows)
    ]
    path.write_text("\n".join(map(json.dumps, labeled)), encoding="utf-8")


def _both(rows: list[Example]) -> tuple[list[Example], list[Example]]:
    return rows, [row.rejected for row in rows if row.rejected]


def _for_dpo(rows: list[Example]) -> dict[str, torch.Tensor]:
    """Return a batch as TRL's DPO has it: all better answers before all worse ones."""
    better, worse = _both(rows)
    batch = collate([*better, *worse], 0)
    labels = batch.pop("labels")
    return batch | {"completion_mask": (labels != -100).long()}


def _for_cpo(rows: list[Example]) -> dict[str, torch.Tensor]:
    """Return a batch as TRL's CPO and ORPO have it."""
    return {
        f"{name}_{key}": values
        for name, answers in zip(("chosen", "rejected"), _both(rows), strict=True)
        for key, values in collate(answers, 0).items()
    }


def _for_kto(rows: list[Example]) -> dict[str, torch.Tensor]:
    """Return a batch as TRL's KTO has it, with the answer of the row before behind each question."""
    longest = max(len(row.input_ids) for row in rows)
    found = {"label": torch.tensor([not row.is_bad for row in rows])}
    for prefix, answers in (("", rows), ("KL_", mismatched(rows, 128))):
        batch = collate(answers, 0)
        mask = (batch.pop("labels") != -100).long()
        found |= {f"{prefix}{key}": values for key, values in (*batch.items(), ("completion_mask", mask))}
    assert longest <= 128
    return found


def _trainer(kind: str, spec: RunSpec, out: Path) -> tuple[type[Any], Any, Callable[[list[Example]], Any]]:
    """Return TRL's trainer, its settings, and what makes its batches."""
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    usual = settings_of(spec, out, NUM_STEPS) | {"remove_unused_columns": False}
    if kind == "kto":
        config = KTOConfig(**usual, loss_type=spec.objective.kto_loss, beta=0.1, desirable_weight=1.0)
        config.undesirable_weight = spec.objective.bad_weight
        return KTOTrainer, config, _for_kto
    if kind == "cpo":
        return CPOTrainer, CPOConfig(**usual, loss_type="sigmoid", beta=0.1, cpo_alpha=1.0, max_length=128), _for_cpo
    if kind == "simpo":
        config = CPOConfig(**usual, loss_type="simpo", beta=2.0, simpo_gamma=0.5, cpo_alpha=0.0, max_length=128)
        return CPOTrainer, config, _for_cpo
    if kind == "orpo":
        return ORPOTrainer, ORPOConfig(**usual, beta=0.1, max_length=128), _for_cpo
    return DPOTrainer, DPOConfig(**usual, loss_type=[spec.objective.dpo_loss], beta=0.1), _for_dpo


def oracle_log(
    kind: str, spec: RunSpec, folder: Path, out: Path, ref_model: Any = None
) -> list[dict[str, float]]:
    """Train by TRL from the same start and return its log of the steps; without a model TRL's reference is the start.
    """
    from datasets import Dataset

    tokenizer = load_tokenizer(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    examples = prepare(spec, tokenizer).train
    model = attach_adapter(load_model(folder, choose_compute(spec), False), spec)
    plan = StepPlan(spec.schedule, len(examples))
    trainer_class, config, batch_of = _trainer(kind, spec, out)

    class Oracle(trainer_class):  # type: ignore[misc]
        def _get_train_sampler(self, *_: object) -> GivenOrder:
            return GivenOrder(plan, NUM_STEPS)

    # The rows of the trainer only have to be there: its batches are made of ours.
    answers = {"completion": "a b", "label": True} if kind == "kto" else {"chosen": "a b", "rejected": "b a"}
    rows = Dataset.from_list([{"prompt": f"{n}", **answers, "number": n} for n in range(99)])
    reference = {} if ref_model is None else {"ref_model": ref_model}
    trainer = Oracle(
        **reference,
        model=model,
        args=config,
        train_dataset=rows.select(range(len(examples))),
        data_collator=lambda picked: batch_of([examples[row["number"]] for row in picked]),
        processing_class=tokenizer,
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def _spec(kind: str, loss: str, make: Callable[..., RunSpec], data: Path) -> RunSpec:
    write_pairs(data)
    spec = make(
        # TRL's ORPO learns to write the question, too; ours does where everything is trained.
        data={"path": str(data), "train_on": "all" if kind == "orpo" else "assistant"},
        optimizer={"learning_rate": 5e-3, "weight_decay": 0.1, "max_grad_norm": 1.0},
        schedule={"max_steps": NUM_STEPS, "micro_batch_size": BATCH_SIZE, "gradient_accumulation_steps": 1, "seed": 5},
    )
    spec.objective.kind = kind
    if kind == "kto":
        write_labels(data)
        spec.objective.kto_loss, spec.objective.bad_weight = loss, 0.75
    else:
        spec.objective.dpo_loss = loss or "sigmoid"
    return spec


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        *(("dpo", "sigmoid"), ("simpo", ""), ("orpo", ""), ("cpo", ""), ("kto", "kto")),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("dpo", "ipo"), ("dpo", "robust"), ("kto", "apo_zero_unpaired"))
        ),
    ],
)
def test_thirty_steps_are_those_of_trl(
    kind: str,
    loss: str,
    tiny_spec: Callable[..., RunSpec],
    new_run: Callable[[RunSpec], Run],
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = _spec(kind, loss, tiny_spec, tmp_path / "pairs.jsonl")
    run = new_run(spec)
    assert train(run) == 0
    theirs = oracle_log(kind, spec, tiny_model, tmp_path / "oracle")
    capsys.readouterr()
    ours = [event.data for event in events(run, "step")]
    assert len(ours) == len(theirs) == NUM_STEPS
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in theirs], rel=2e-4, abs=2e-5)
    # A norm before clipping is more sensitive than a loss to what rounding did in the steps before.
    norms = [step["grad_norm"] for step in theirs]
    assert [step["grad_norm"] for step in ours] == pytest.approx(norms, rel=5e-3, abs=1e-4)
    names = SAME_NAMES | ({"kl": "kl"} if kind == "kto" else {})
    for their_name, name in names.items():
        if kind == "kto" and name == "reward_accuracy":
            continue
        # A step of labels may have no good answer, or no bad one.
        assert [name in step for step in ours] == [their_name in step for step in theirs], name
        expected = [step[their_name] for step in theirs if their_name in step]
        size = 1e-4 * max(1.0, *map(abs, expected))
        assert [step[name] for step in ours if name in step] == pytest.approx(expected, rel=1e-3, abs=size), name
    if loss == "kto":
        assert max(step["kl"] for step in ours) > 1.0, "the model moves"
    epoch = NUM_ROWS // BATCH_SIZE
    first, last = (sum(step["loss"] for step in steps) for steps in (ours[:epoch], ours[-epoch:]))
    assert last < 0.98 * first, "it learns"


@pytest.mark.usefixtures("whole_vocabulary")
@pytest.mark.parametrize(
    ("kind", "loss"),
    [("dpo", "sigmoid"), *(pytest.param(*case, marks=pytest.mark.long) for case in (("kto", "kto"), ("simpo", "")))],
)
def test_experts_are_balanced_as_by_trl(
    kind: str,
    loss: str,
    tiny_spec: Callable[..., RunSpec],
    new_run: Callable[[RunSpec], Run],
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write_model(
        "mixtral", tmp_path / "experts", tiny_model, output_router_logits=True, router_aux_loss_coef=0.5
    )
    spec = _spec(kind, loss, tiny_spec, tmp_path / "pairs.jsonl")
    spec.model.path, spec.optimizer.learning_rate = str(folder), 1e-3
    run = new_run(spec)
    assert train(run) == 0
    theirs = oracle_log(kind, spec, folder, tmp_path / "oracle")
    capsys.readouterr()
    ours = [event.data for event in events(run, "step")]
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in theirs], rel=2e-4, abs=2e-5)
    norms = [step["grad_norm"] for step in theirs]
    assert [step["grad_norm"] for step in ours] == pytest.approx(norms, rel=5e-3, abs=1e-4)
    # An even use alone adds the number of experts for each token times the weight.
    assert ours[0]["loss"] > 1.0
    assert not [line for line in events(run, "setup")[0].data["kernels"] if "even use" in line]
