"""Runs that learn from stored probabilities: TRL's own loop, fused and plain, packed and apart, resumed to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.distillation.stored_rows import write_stored
from tests.engine.distillation.test_gkd_runs import BATCH_SIZE, NUM_STEPS, _oracle_log
from tests.engine.exact_resume import goes_on_to_the_bit
from tests.tiny_model import build_tiny_model
from tunesmith_core.datafmt import stored
from tunesmith_core.report.facts import read, verdict_on
from tunesmith_core.report.page import page
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.answering import likely

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]

PLAIN: dict[str, Any] = {"hardware": {"kernels": False}}


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model with the same tokenizer."""
    return build_tiny_model(tmp_path_factory.mktemp("teacher") / "bigger", seed=7)


@pytest.fixture
def kd_spec(tiny_spec: MakeSpec, teacher: Path, tmp_path: Path) -> MakeSpec:
    """Make a spec that learns from what the teacher has stored; `share` is that of the written answer."""

    def make(share: float = 0.0, **sections: Any) -> RunSpec:
        values = tiny_spec(**sections).to_dict()
        path = tmp_path / "stored.jsonl"
        if not path.exists():
            write_stored(RunSpec.from_dict(values), teacher, path)
        values["data"]["sources"][0]["path"] = str(path)
        values["objective"] = {"kind": "kd", "written_share": share}
        return RunSpec.from_dict(values)

    return make


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kernels", [True, False])
def test_thirty_steps_are_those_of_trl_where_everything_is_stored(
    kernels: bool,
    kd_spec: MakeSpec,
    new_run: NewRun,
    tiny_model: Path,
    teacher: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the whole vocabulary stored, it is GKD with beta 0 on the same rows: no divergence but the forward one."""
    monkeypatch.setattr(likely, "KEPT_TOKENS", 10_000)
    monkeypatch.setattr(likely, "LEAST_KEPT", 1e-30)
    monkeypatch.setattr(stored, "DECIMALS", 9)
    spec = kd_spec(
        optimizer={"learning_rate": 5e-3, "weight_decay": 0.1, "max_grad_norm": 1.0},
        schedule={
            "max_steps": NUM_STEPS,
            "micro_batch_size": BATCH_SIZE,
            "gradient_accumulation_steps": 1,
            "seed": 5,
        },
        hardware={"kernels": kernels},
    )
    run = new_run(spec)
    assert train(run) == 0, result_of(run)
    taught = spec.to_dict() | {"objective": {"kind": "gkd"}, "teacher": {"path": str(teacher), "beta": 0.0}}
    theirs = _oracle_log(RunSpec.from_dict(taught), tiny_model, teacher, tmp_path / "oracle")
    capsys.readouterr()
    ours = [event.data for event in events(run, "step")]
    assert len(ours) == len(theirs) == NUM_STEPS
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in theirs], rel=2e-4, abs=2e-5)
    norms = [step["grad_norm"] for step in theirs]
    assert [step["grad_norm"] for step in ours] == pytest.approx(norms, rel=5e-3, abs=1e-4)
    assert ours[-1]["loss"] < 0.8 * ours[0]["loss"], "it learns"


def test_fused_and_plain_packed_and_apart_learn_the_same(kd_spec: MakeSpec, new_run: NewRun) -> None:
    evaluated = {"evaluation": {"percent": 25.0, "every_steps": 3}}
    apart = {"schedule": {"micro_batch_size": 1, "gradient_accumulation_steps": 4}}
    runs = [new_run(kd_spec(0.25, **evaluated, **sections)) for sections in ({}, PLAIN, apart)]
    for run in runs:
        assert train(run) == 0, result_of(run)
    assert events(runs[0], "setup")[-1].data["kernels"] != events(runs[1], "setup")[-1].data["kernels"]
    first, *others = runs
    for other in others:
        assert step_losses(first) == pytest.approx(step_losses(other), rel=1e-4)
        norms = [[event.data["grad_norm"] for event in events(run, "step")] for run in (first, other)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-3)
        assert result_of(first)["eval_loss_after"] == pytest.approx(result_of(other)["eval_loss_after"], rel=1e-4)


def test_all_of_the_written_answer_is_sft(kd_spec: MakeSpec, tiny_spec: MakeSpec, new_run: NewRun) -> None:
    steps = {"schedule": {"max_steps": 3}}
    ours, usual = new_run(kd_spec(1.0, **steps)), new_run(tiny_spec(**steps))
    assert train(ours) == train(usual) == 0
    assert step_losses(ours) == pytest.approx(step_losses(usual), rel=1e-5)


def test_a_whole_model_learns_it(kd_spec: MakeSpec, new_run: NewRun) -> None:
    runs = []
    for sections in ({}, PLAIN):
        steps = {"schedule": {"max_steps": 3}, "optimizer": {"learning_rate": 1e-3}, **sections}
        values = kd_spec(**steps).to_dict()
        values["adapter"] = {"kind": "full"}
        runs.append(new_run(RunSpec.from_dict(values)))
        assert train(runs[-1]) == 0, result_of(runs[-1])
    losses = [step_losses(run) for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][-1] < losses[0][0]


def test_a_stopped_run_goes_on_to_the_bit(
    kd_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = kd_spec(0.1, method={"dropout": 0.3}, evaluation={"percent": 40.0, "every_steps": 2})
    whole, halves = new_run(spec), new_run(spec)
    goes_on_to_the_bit(whole, halves)
    told = events(whole, "eval")
    assert told[-1].data["loss"] < told[0].data["loss"]
    capsys.readouterr()


def test_a_resume_with_other_probabilities_is_told(kd_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(kd_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    path = Path(run.load_spec().data.sources[0].path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[0]["logprobs"]["top_logprobs"][0][0] -= 1.0
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert train(run) == 0
    assert "The training rows are not the same as before" in str(events(run, "warning")[-1].data)


def test_the_report_the_verdict_and_the_card_tell_of_it(kd_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(kd_spec(evaluation={"percent": 40.0, "every_steps": 6}))
    assert train(run) == 0
    facts = read(run)
    verdict = verdict_on(facts)
    assert "another row" not in verdict.evidence, "under any question a model may be near to its teacher"
    assert events(run, "comparison")[-1].data["dependence"] is None
    html = page(run, run.load_spec(), facts, verdict)
    assert "divergence" in html
    assert "erplexity" not in html
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert "Knowledge distillation from stored probabilities, Hinton et al. 2015, arXiv:1503.02531" in card


def test_a_row_of_another_tokenizer_is_named_or_left_out(kd_spec: MakeSpec, new_run: NewRun) -> None:
    spec = kd_spec()
    path = Path(spec.data.sources[0].path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[2]["logprobs"]["vocabulary"] = "another"
    # Two letters as the tokenizer here would never write them.
    rows[4]["logprobs"]["token_ids"][0] += 1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = new_run(spec)
    assert train(run) == 2
    error = events(run, "error")[-1].data
    assert f"{path}, line 3: the probabilities of this row don't fit the base model" in error["message"]
    assert "same family" in error["hint"]
    spec.data.skip_bad_rows = True
    run = new_run(spec)
    assert train(run) == 0
    setup = events(run, "setup")[-1].data
    assert (setup["num_skipped_rows"], setup["num_train_rows"]) == (2, 14)
    for row in rows:
        row["logprobs"]["vocabulary"] = "another"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = new_run(spec)
    assert train(run) == 2
    assert "line 1: the probabilities" in events(run, "error")[-1].data["message"], "nothing is left"


def test_data_without_probabilities_is_named(kd_spec: MakeSpec, tiny_spec: MakeSpec, new_run: NewRun) -> None:
    spec = kd_spec()
    spec.data.sources = tiny_spec().data.sources
    run = new_run(spec)
    assert train(run) == 2
    error = events(run, "error")[-1].data
    assert 'There is no column "logprobs"' in error["message"]
    assert "Have a bigger model answer" in error["hint"]


