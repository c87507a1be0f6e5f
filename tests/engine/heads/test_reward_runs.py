"""Runs that train a reward model by TRL's trainer: the losses of TRL alone, resumed to the bit, and what is told."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.trainer import base_trainer

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.exact_resume import goes_on_to_the_bit
from tests.engine.preference.test_trl_runs import write_pairs
from tests.engine.prepared import prepare
from tests.engine.test_oracle import GivenOrder
from tests.engine.trl_settings import settings_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.evaluations import PAIR_LOSS_HELP, SCORED_HELP, notes
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host as OperationHost
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.chat import AskSpec
from tunesmith_core.operations.kinds.evaluate import EvaluateSpec
from tunesmith_core.protocol import post_command
from tunesmith_core.report.facts import read, verdict_on
from tunesmith_core.report.page import page
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.chat.serve import ask
from tunesmith_engine.device import choose_compute
from tunesmith_engine.evaluation.evaluate import evaluate
from tunesmith_engine.host import Host
from tunesmith_engine.methods import method_of
from tunesmith_engine.methods.reward import METRICS
from tunesmith_engine.model import heads
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.train.schedule import StepPlan
from tunesmith_engine.train.trl_path import TrlPath

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
NUM_STEPS, BATCH_SIZE = 30, 3


@pytest.fixture
def reward_spec(tiny_spec: MakeSpec, tmp_path: Path) -> MakeSpec:
    """Make a spec of 12 pairs."""

    def make(**sections: dict[str, Any]) -> RunSpec:
        path = tmp_path / "pairs.jsonl"
        if not path.exists():
            write_pairs(path)
        sections["data"] = {"path": str(path), **sections.get("data", {})}
        spec = tiny_spec(**sections)
        spec.objective.kind = "reward"
        return spec

    return make


def _oracle_log(spec: RunSpec, folder: Path, out: Path) -> list[dict[str, float]]:
    """Train by TRL's own loop from the same start and return its log of the steps."""
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    tokenizer = load_tokenizer(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    examples = prepare(spec, tokenizer).train
    plan = StepPlan(spec.schedule, len(examples))

    class Oracle(RewardTrainer):
        def _get_train_sampler(self, *_: object) -> GivenOrder:
            return GivenOrder(plan, NUM_STEPS)

    rows = [
        {"chosen_ids": row.input_ids.tolist(), "rejected_ids": row.rejected.input_ids.tolist()}
        for row in examples
        if row.rejected
    ]
    trainer = Oracle(
        model=method_of("reward").load(folder, spec, choose_compute(spec)),
        args=RewardConfig(**settings_of(spec, out, NUM_STEPS), disable_dropout=False, max_length=None),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.timeout(600)
def test_thirty_steps_are_those_of_trl(
    reward_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = reward_spec(
        optimizer={"learning_rate": 5e-3, "weight_decay": 0.1, "max_grad_norm": 1.0},
        schedule={
            "max_steps": NUM_STEPS,
            "micro_batch_size": BATCH_SIZE,
            "gradient_accumulation_steps": 1,
            "seed": 5,
        },
    )
    run = new_run(spec)
    assert train(run) == 0
    theirs = _oracle_log(spec, tiny_model, tmp_path / "oracle")
    capsys.readouterr()
    ours = [event.data for event in events(run, "step")]
    assert len(ours) == len(theirs) == NUM_STEPS
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in theirs], rel=2e-4, abs=2e-5)
    norms = [step["grad_norm"] for step in theirs]
    assert [step["grad_norm"] for step in ours] == pytest.approx(norms, rel=5e-3, abs=1e-4)
    for their_name, name in METRICS.items():
        expected = [step[their_name] for step in theirs]
        assert [step[name] for step in ours] == pytest.approx(expected, rel=1e-3, abs=1e-4), name
    assert ours[-1]["loss"] < 0.5 * ours[0]["loss"], "it learns"


@pytest.mark.timeout(600)
def test_portions_of_a_step_add_up_to_the_whole_step(
    reward_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = []
    for micro_batch_size in (4, 2, 1):
        schedule = {
            "max_steps": 6,
            "micro_batch_size": micro_batch_size,
            "gradient_accumulation_steps": 4 // micro_batch_size,
        }
        run = new_run(reward_spec(schedule=schedule))
        assert train(run) == 0
        losses.append(step_losses(run))
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=1e-4)
    capsys.readouterr()


def test_a_stopped_run_goes_on_to_the_bit(
    reward_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = reward_spec(
        method={"dropout": 0.3},
        evaluation={"percent": 25.0, "every_steps": 2, "sample_prompts": ["Hi"], "sample_max_tokens": 3},
    )
    whole, halves = new_run(spec), new_run(spec)
    goes_on_to_the_bit(whole, halves)
    assert [event.data for event in events(whole, "eval")][-1]["loss"] == result_of(halves)["eval_loss_after"]
    assert not events(whole, "sample", "answers"), "it writes nothing"
    assert not events(whole, "warning")
    capsys.readouterr()


def test_nothing_talks_to_a_network_or_stays_on_the_disk(
    reward_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def called(*_: object, **__: object) -> None:
        pytest.fail("TRL tells the hub of a trainer")

    monkeypatch.setattr(base_trainer, "send_telemetry", called)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.delenv("CI", raising=False)
    run = new_run(reward_spec())
    assert train(run) == 0
    assert not list((tmp_path / "temporary").iterdir())
    told = {event.type for event in events(run)}
    assert told - {"gpu"} == {"hello", "phase", "setup", "step", "checkpoint", "result"}
    assert events(run, "setup")[-1].data["writes"] is False
    assert "RewardTrainer of TRL computes this objective." in events(run, "setup")[-1].data["kernels"][-1]


def test_held_out_pairs_are_told_apart_and_the_verdict_says_so(
    reward_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    path = Path(reward_spec().data.sources[0].path)
    rows = [{"prompt": f"Say {n}.", "chosen": f"{n} {n * 7} :)", "rejected": f"{n} {n * 7}"} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run = new_run(
        reward_spec(
            schedule={"max_steps": 40, "micro_batch_size": 4, "gradient_accumulation_steps": 1, "warmup_steps": 0},
            evaluation={"percent": 25.0, "every_steps": 40},
        )
    )
    assert train(run) == 0
    after = events(run, "eval")[-1].data
    assert after["reward_accuracy"] == 1.0
    verdict = verdict_on(read(run))
    assert verdict.sentence.startswith("Improved, but 10 held-out rows are too few to say by how much. In 100% of the")
    assert "reward margin" in verdict.evidence
    assert verdict.advice == "Hold out more rows, at least 20, to know how much better it is."
    (tmp_path / "evaluation").mkdir()
    with OperationHost(Operation(tmp_path / "evaluation")) as host:
        found = evaluate(host, EvaluateSpec(run=RunFolder(str(run.path))))
    assert found["losses"]["after"] == pytest.approx(after["loss"], rel=1e-3)
    (preferred,) = found["metrics"]
    assert (preferred["after"], preferred["reason"]) == (1.0, SCORED_HELP)
    assert notes(found)[0] == PAIR_LOSS_HELP
    with OperationHost(Operation(tmp_path / "evaluation")) as host, pytest.raises(TunesmithError, match="no answers"):
        evaluate(host, EvaluateSpec(run=RunFolder(str(run.path)), matches="yes"))
    text = page(run, run.load_spec(), read(run), verdict)
    assert "Answers before and after" not in text
    assert "Reward model (Bradley-Terry)" in text
    assert "Better answer preferred" in text


def test_short_memory_is_answered_by_smaller_portions(
    reward_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    means = TrlPath._means

    def short(path: TrlPath, portion: list[Any]) -> torch.Tensor:
        if len(portion) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return means(path, portion)

    whole = new_run(reward_spec())
    assert train(whole) == 0
    monkeypatch.setattr(TrlPath, "_means", short)
    run = new_run(reward_spec())
    assert train(run) == 0
    assert step_losses(run) == pytest.approx(step_losses(whole), rel=1e-4)
    assert "Continuing with" in events(run, "warning")[0].data["message"]


def test_a_model_without_such_a_head_is_refused_by_name(
    reward_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads.AutoModelForSequenceClassification, "_model_mapping", {})
    run = new_run(reward_spec())
    assert train(run) == 3
    error = events(run, "error")[-1].data
    assert error["code"] == "model-kind-unsupported"
    assert "no head that rates texts for models of type llama" in error["message"]


def test_rows_without_pairs_are_refused_by_name(reward_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"prompt": "a", "completion": "b"}\n' * 4, encoding="utf-8")
    run = new_run(reward_spec(data={"path": str(path)}))
    assert train(run) == 2
    assert "this objective learns from preference pairs" in events(run, "error")[-1].data["message"]


def test_nobody_chats_with_it(reward_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    run = new_run(reward_spec())
    (tmp_path / "question").mkdir()
    host = OperationHost(Operation(tmp_path / "question"))
    with host, pytest.raises(TunesmithError, match="nothing to chat with"):
        ask(host, AskSpec(run=RunFolder(str(run.path)), question="Hi"))


def test_a_prompt_on_the_way_is_refused(reward_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(reward_spec())

    def during(host: Host) -> None:
        after_step(host, 2, lambda: post_command(run.control_path, "sample", prompt="Hi"))

    assert train(run, during) == 0
    (told,) = [event.data for event in events(run, "ack")]
    assert (told["ok"], told["message"]) == (
        False,
        "This model rates texts and writes none, so it can't answer a prompt.",
    )


@pytest.mark.parametrize(
    ("of_step", "resumed_from"), [(1, None), (2, 1), pytest.param(3, 2, marks=pytest.mark.long), (5, 4)]
)
def test_a_killed_run_goes_on_and_loses_nothing(
    reward_spec: MakeSpec, new_run: NewRun, of_step: int, resumed_from: int | None
) -> None:
    measured = {"percent": 25.0, "every_steps": 2}
    spec = reward_spec(method={"dropout": 0.3}, evaluation=measured, saving={"every_steps": 2})
    whole, run = new_run(spec), new_run(spec)
    assert train(whole) == 0

    class Killed(BaseException):
        """Nobody catches this, as nobody catches SIGKILL."""

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        train(run, lambda host: after_step(host, of_step, die))
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == resumed_from
    assert step_losses(run)[-1] == step_losses(whole)[-1]
    assert _weights(run) == _weights(whole)


def _weights(run: Run) -> bytes:
    return (run.adapter_path / "adapter_model.safetensors").read_bytes()
