"""Runs that learn from a bigger model: TRL's own loop, own answers, a resume to the bit, and unsuitable teachers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import events, step_losses, train
from tests.engine.exact_resume import goes_on_to_the_bit
from tests.engine.test_oracle import GivenOrder, prepare
from tests.engine.trl_settings import settings_of
from tests.tiny_model import build_tiny_model
from tunesmith_core.report.facts import read, verdict_on
from tunesmith_core.report.page import page
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.collate import collate
from tunesmith_engine.device import choose_compute
from tunesmith_engine.distillation.own_answers import OwnAnswers
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.load import load_model
from tunesmith_engine.train.schedule import StepPlan

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
NUM_STEPS, BATCH_SIZE = 30, 4


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model with the same tokenizer."""
    return build_tiny_model(tmp_path_factory.mktemp("teacher") / "bigger", seed=7)


@pytest.fixture
def gkd_spec(tiny_spec: MakeSpec, teacher: Path) -> MakeSpec:
    """Make a spec that learns from the teacher."""

    def make(teaching: dict[str, Any] | None = None, **sections: Any) -> RunSpec:
        values = tiny_spec(**sections).to_dict()
        values["objective"] = {"kind": "gkd"}
        values["teacher"] = {"path": str(teacher), **(teaching or {})}
        return RunSpec.from_dict(values)

    return make


def _oracle_log(spec: RunSpec, folder: Path, teacher: Path, out: Path) -> list[dict[str, float]]:
    """Train by TRL's own loop from the same start and return its log of the steps."""
    from datasets import Dataset
    from trl.experimental.gkd import GKDConfig, GKDTrainer

    tokenizer = load_tokenizer(folder)
    examples = prepare(spec, tokenizer).train
    plan = StepPlan(spec.schedule, len(examples))

    class Oracle(GKDTrainer):
        def _get_train_sampler(self, *_: object) -> GivenOrder:
            return GivenOrder(plan, NUM_STEPS)

    trainer = Oracle(
        model=method_of("gkd").load(folder, spec, choose_compute(spec)),
        teacher_model=load_model(teacher, choose_compute(spec), four_bit=False),
        args=GKDConfig(**settings_of(spec, out, NUM_STEPS), disable_dropout=False, lmbda=0.0, beta=spec.teacher.beta),
        train_dataset=Dataset.from_list([{"number": number} for number in range(len(examples))]),
        data_collator=lambda rows: collate([examples[row["number"]] for row in rows], 0),
        processing_class=tokenizer,
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_thirty_steps_are_those_of_trl(
    beta: float,
    gkd_spec: MakeSpec,
    new_run: NewRun,
    tiny_model: Path,
    teacher: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = gkd_spec(
        {"beta": beta},
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
    theirs = _oracle_log(spec, tiny_model, teacher, tmp_path / "oracle")
    capsys.readouterr()
    ours = [event.data for event in events(run, "step")]
    assert len(ours) == len(theirs) == NUM_STEPS
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in theirs], rel=2e-4, abs=2e-5)
    norms = [step["grad_norm"] for step in theirs]
    assert [step["grad_norm"] for step in ours] == pytest.approx(norms, rel=5e-3, abs=1e-4)
    assert ours[-1]["loss"] < 0.8 * ours[0]["loss"], "it learns"
    assert all(0 <= step["agreement"] <= 1 for step in ours)


def test_portions_of_a_step_add_up_to_the_whole_step(gkd_spec: MakeSpec, new_run: NewRun) -> None:
    losses = []
    for size in (4, 1):
        schedule = {"max_steps": 3, "micro_batch_size": size, "gradient_accumulation_steps": 4 // size}
        run = new_run(gkd_spec(schedule=schedule))
        assert train(run) == 0
        losses.append(step_losses(run))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_stopped_run_goes_on_to_the_bit(
    share: float, gkd_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    teaching = {"own_answers": share, "max_tokens": 6}
    spec = gkd_spec(teaching, method={"dropout": 0.3}, evaluation={"percent": 40.0, "every_steps": 2})
    whole, halves = new_run(spec), new_run(spec)
    goes_on_to_the_bit(whole, halves)
    told = events(whole, "eval")
    assert told[-1].data["loss"] < told[0].data["loss"]
    assert {event.data["agreement"] <= 1 for event in told} == {True}
    capsys.readouterr()


def test_the_report_the_verdict_and_the_card_tell_of_the_teacher(
    gkd_spec: MakeSpec, new_run: NewRun, teacher: Path
) -> None:
    spec = gkd_spec(evaluation={"percent": 40.0, "every_steps": 6})
    run = new_run(spec)
    assert train(run) == 0
    facts = read(run)
    verdict = verdict_on(facts)
    assert "the same as the bigger one" in verdict.evidence
    assert "another row" not in verdict.evidence, "under any question a model may be near to its teacher"
    assert events(run, "comparison")[-1].data["dependence"] is None
    html = page(run, run.load_spec(), facts, verdict)
    assert str(teacher) in html
    assert "Agrees with the bigger model" in html
    assert "erplexity" not in html
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert "Generalized knowledge distillation (GKD), Agarwal et al. 2024" in card
    assert "- Teacher: bigger\n" in card
    assert str(teacher) not in card


def test_own_answers_are_learned_in_their_share_of_steps(
    gkd_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    rows = OwnAnswers.rows

    def noted(own: OwnAnswers, numbers: Any, step: int, should_stop: Any) -> Any:
        asked.append(step)
        found = rows(own, numbers, step, should_stop)
        for example in found or ():
            assert 1 <= example.num_trained_tokens <= 5
        return found

    monkeypatch.setattr(OwnAnswers, "rows", noted)
    run = new_run(gkd_spec({"own_answers": 1.0, "max_tokens": 5}, schedule={"max_steps": 3}))
    assert train(run) == 0
    assert asked == [0, 1, 2]
    asked.clear()
    run = new_run(gkd_spec({"own_answers": 0.5, "max_tokens": 5}))
    assert train(run) == 0
    assert 0 < len(asked) < 6


def _error(run: Run) -> str:
    assert train(run) in (2, 4)
    return str(events(run, "error")[-1].data["message"])


def test_a_teacher_with_another_tokenizer_is_named(
    gkd_spec: MakeSpec, new_run: NewRun, teacher: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(teacher, tmp_path / "other")
    values = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = values["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (other / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    message = _error(new_run(gkd_spec({"path": str(other)})))
    assert "their tokenizers differ, first in the token" in message
    assert str(other) in message


def test_own_answers_need_prompts(gkd_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "Some words that nobody asked for."}\n' * 8, encoding="utf-8")
    message = _error(new_run(gkd_spec({"own_answers": 0.5})))
    assert "without a prompt of its own" in message
