"""Stop, commands and resume: the second half of a run is the one it would have been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.desk.checking import host_in
from tests.engine.prepared import prepare
from tests.processes import KILLED
from tunesmith_core import files
from tunesmith_core.checkpoint_manifest import read_manifest, sealed
from tunesmith_core.environments import module_command
from tunesmith_core.operations.kinds.evaluate import EvaluateSpec
from tunesmith_core.protocol import post_command
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data import order
from tunesmith_engine.evaluation.evaluate import evaluate
from tunesmith_engine.host import Host
from tunesmith_engine.train.schedule import StepPlan

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]

HARD = {
    "method": {"dropout": 0.3, "rank": 4},
    "schedule": {"max_steps": 10, "micro_batch_size": 2, "gradient_accumulation_steps": 3, "seed": 7},
    "evaluation": {"percent": 20.0, "every_steps": 3, "sample_prompts": ["Hi"], "sample_max_tokens": 3},
}
"""Dropout, shuffling, accumulation, an uneven epoch, evaluations and samples in between."""


def _adapter(run: Run) -> bytes:
    return (run.adapter_path / "adapter_model.safetensors").read_bytes()


WAYS = {
    "fused": {"method": {"rank": 4}},
    "DoRA": {"method": {"rank": 4, "dora": True}},
    "dropout": {},
    "unfused parts": {"method": {"dropout": 0.3, "rank": 4, "dora": True}},
    "plain": {"hardware": {"kernels": False}},
    "8-bit": {},
}
"""Dropout draws random numbers; with DoRA it keeps the linear layers from being fused."""


@pytest.fixture
def whole(request: pytest.FixtureRequest, tiny_spec: MakeSpec, new_run: NewRun) -> Run:
    """The run that nobody interrupted."""
    way = getattr(request, "param", "dropout")
    spec = tiny_spec(**{**HARD, **WAYS[way]})
    spec.quantization.kind = "int8" if way == "8-bit" else "none"
    run = new_run(spec)
    assert train(run) == 0
    return run


@pytest.mark.parametrize("whole", ["fused", "DoRA", "dropout", "unfused parts", "plain", "8-bit"], indirect=True)
@pytest.mark.parametrize("stop_at", [3, 9, *(pytest.param(step, marks=pytest.mark.long) for step in (1, 4))])
def test_stopped_and_resumed_run_is_bit_exact(new_run: NewRun, whole: Run, stop_at: int) -> None:
    run = new_run(whole.load_spec())
    assert train(run, lambda host: after_step(host, stop_at, host.on_signal)) == 5
    assert result_of(run)["status"] == "stopped"
    assert result_of(run)["step"] == stop_at
    assert run.status().state == "stopped"
    torch.manual_seed(999)
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == stop_at
    assert step_losses(run) == step_losses(whole)
    assert _adapter(run) == _adapter(whole)
    assert result_of(run)["eval_loss_before"] == result_of(whole)["eval_loss_before"]
    assert result_of(run)["eval_loss_after"] == result_of(whole)["eval_loss_after"]
    assert {e.data["code"] for e in events(run, "warning")} <= {"not-fused"}


def write_copies(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[number % 6] for number in range(16)), encoding="utf-8")


@pytest.mark.parametrize("stops", [[4], pytest.param([3, 7], marks=pytest.mark.long)], ids=str)
def test_a_run_of_a_version_that_split_copies_of_rows_continues_with_its_own_split(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, stops: list[int]
) -> None:
    spec = tiny_spec(**HARD)
    write_copies(Path(spec.data.sources[0].path))
    with monkeypatch.context() as earlier:
        earlier.setattr(order, "_with_copies", lambda sampled, *_: set(sampled))
        whole, run = new_run(spec), new_run(spec)
        assert train(whole) == 0
        assert train(run, lambda host: after_step(host, stops[0], host.on_signal)) == 5
    for stop in stops[1:]:
        assert train(run, lambda host, at=stop: after_step(host, at, host.on_signal)) == 5
    assert train(run) == 0
    assert step_losses(run) == step_losses(whole)
    assert _adapter(run) == _adapter(whole)
    assert result_of(run)["eval_loss_after"] == result_of(whole)["eval_loss_after"]
    asked = [[event.data["answers"] for event in events(each, "answers")][-1:] for each in (run, whole)]
    assert asked[0] == asked[1]
    assert {event.data["code"] for event in events(run, "warning")} <= {"not-fused"}
    with host_in(run.path / "tmp" / "evaluation") as host:
        measured = evaluate(host, EvaluateSpec(str(run.path), rows=2))
    (*_, newest) = sorted(run.checkpoints_path.glob("step-*"))
    assert measured["data"]["held_out"] == read_manifest(newest).fingerprint["held_out"]
    # Whoever begins now has the copies of a row on one side.
    now = new_run(spec)
    assert train(now) == 0
    assert step_losses(now) != step_losses(whole)


def test_killed_run_goes_on_from_its_last_checkpoint(tiny_spec: MakeSpec, new_run: NewRun, whole: Run) -> None:
    run = new_run(tiny_spec(**HARD, saving={"every_steps": 2}))

    class Killed(BaseException):
        """Nobody catches this, as nobody catches SIGKILL."""

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        train(run, lambda host: after_step(host, 7, die))
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == 6
    assert step_losses(run)[-4:] == step_losses(whole)[-4:]
    assert _adapter(run) == _adapter(whole)


@pytest.mark.parametrize(
    ("kind", "of_step", "resumed_from"), [("step", 1, None), ("checkpoint", 1, 1), ("eval", 0, 1), ("step", 2, 1)]
)
def test_a_run_that_is_killed_early_loses_a_step_at_most(
    tiny_spec: MakeSpec, new_run: NewRun, whole: Run, kind: str, of_step: int, resumed_from: int | None
) -> None:
    run = new_run(tiny_spec(**HARD))

    class Killed(BaseException):
        """Nobody catches this, as nobody catches SIGKILL."""

    def die_at(host: Host) -> None:
        write = host.event

        def watched(name: str, /, **data: Any) -> None:
            write(name, **data)
            if (name, data.get("step")) == (kind, of_step):
                raise Killed

        host.event = watched  # type: ignore[method-assign]

    with pytest.raises(Killed):
        train(run, die_at)
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == resumed_from
    assert step_losses(run)[-9:] == step_losses(whole)[-9:]
    assert _adapter(run) == _adapter(whole)
    for name in ("eval_loss_before", "eval_loss_after"):
        assert result_of(run)[name] == result_of(whole)[name]


@pytest.mark.parametrize(
    ("point", "resumed_from"),
    [pytest.param("ckpt.after-adapter", None, marks=pytest.mark.long), ("ckpt.after-rename", 1)],
)
def test_a_run_that_is_killed_while_it_saves_for_the_first_time(
    tiny_spec: MakeSpec, new_run: NewRun, point: str, resumed_from: int | None
) -> None:
    run = new_run(tiny_spec(schedule={"max_steps": 2}))
    command = module_command(sys.executable, "tunesmith_engine", "run", "--run-dir", str(run.path))
    environment = {**os.environ, files.CRASHPOINT_VARIABLE: point}
    assert subprocess.run(command, env=environment, check=False, capture_output=True).returncode == KILLED
    assert (run.status().state, run.status().step) == ("interrupted", 1)
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == resumed_from
    assert result_of(run)["status"] == "finished"


def test_a_short_run_that_is_killed_loses_a_tenth(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec(schedule={"max_steps": 20}, saving={"every_steps": 0}))

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, lambda host: after_step(host, 7, die))
    assert [event.data["step"] for event in events(run, "checkpoint")] == [1, 2, 4, 6]
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == 6
    assert [event.data["step"] for event in events(run, "checkpoint")][4:] == [8, 10, 12, 14, 16, 18, 20]


def test_stop_save_leaves_adapter_and_checkpoint(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, lambda: _post(run, "stop", mode="save"))) == 5
    assert [e.data["mode"] for e in events(run, "stopping")] == ["save"]
    assert [(e.data["command"], e.data["ok"]) for e in events(run, "ack")] == [("stop", True)]
    assert result_of(run)["artifacts"] == {"adapter": "adapter"}
    assert (run.adapter_path / "adapter_model.safetensors").is_file()
    assert max(path.name for path in run.checkpoints_path.iterdir()) == f"step-{result_of(run)['step']:06d}"


def test_stop_discard_leaves_no_adapter(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, lambda: _post(run, "stop", mode="discard"))) == 5
    assert result_of(run)["status"] == "stopped"
    assert result_of(run)["artifacts"] == {}
    assert not run.adapter_path.exists()
    assert [event.data["step"] for event in events(run, "checkpoint")] == [1]


def test_discard_sharpens_a_save_but_not_the_reverse(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    for mode in ("save", "discard", "save"):
        _post(run, "stop", mode=mode)
    assert train(run) == 5
    assert [e.data["mode"] for e in events(run, "stopping")] == ["save", "discard"]
    assert not run.adapter_path.exists()


def test_stop_before_the_first_step_ends_without_product(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    _post(run, "stop", mode="save")
    assert train(run) == 5
    assert result_of(run)["step"] == 0
    assert not events(run, "step")
    assert not run.adapter_path.exists()


def test_evaluation_cut_short_by_a_stop_is_made_up_for(tiny_spec: MakeSpec, new_run: NewRun, whole: Run) -> None:
    run = new_run(tiny_spec(**HARD))
    assert train(run, lambda host: after_step(host, 3, host.on_signal)) == 5
    assert [e.data["step"] for e in events(run, "eval")] == [0]
    assert train(run) == 0
    seen = [(e.data["step"], e.data["loss"]) for e in events(run, "eval")]
    assert seen == [(e.data["step"], e.data["loss"]) for e in events(whole, "eval")]


def test_signal_saves_as_a_stop_does(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    earlier = signal.getsignal(signal.SIGTERM)

    def arm(host: object) -> None:
        signal.signal(signal.SIGTERM, host.on_signal)  # type: ignore[attr-defined]
        after_step(host, 2, lambda: os.kill(os.getpid(), signal.SIGTERM))  # type: ignore[arg-type]

    try:
        assert train(run, arm) == 5
    finally:
        signal.signal(signal.SIGTERM, earlier)
    assert run.adapter_path.is_dir()


def test_commands_are_carried_out_and_answered(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec(schedule={"max_steps": 6}, evaluation={"percent": 20.0, "every_steps": 100}))

    def ask() -> None:
        for name, data in (
            ("checkpoint", {}),
            ("evaluate", {}),
            ("sample", {"prompt": "Hello"}),
            ("sample", {"prompt": " "}),
            ("stop", {"mode": "gently"}),
            ("ping", {}),
        ):
            _post(run, name, **data)

    assert train(run, lambda host: after_step(host, 2, ask)) == 0
    acks = {(e.data["command"], e.data["ok"]) for e in events(run, "ack")}
    assert acks == {
        ("checkpoint", True),
        ("evaluate", True),
        ("sample", True),
        ("sample", False),
        ("stop", False),
        ("ping", True),
    }
    assert [e.data["step"] for e in events(run, "eval")] == [0, 2, 6]
    assert [(e.data["step"], e.data["prompt"]) for e in events(run, "sample")] == [(2, "Hello")]
    assert [e.data["step"] for e in events(run, "checkpoint")] == [1, 2, 6]


def test_evaluate_without_data_is_refused_and_training_goes_on(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    _post(run, "evaluate")
    assert train(run) == 0
    assert [e.data["ok"] for e in events(run, "ack")] == [False]
    assert result_of(run)["status"] == "finished"


@pytest.mark.parametrize(
    ("kind", "kernels"),
    [
        ("qlora", True),
        ("lora", False),
        pytest.param("lora", True, marks=pytest.mark.long),
        pytest.param("qlora", False, marks=pytest.mark.long),
    ],
)
def test_asking_for_things_changes_no_loss(tiny_spec: MakeSpec, new_run: NewRun, kind: str, kernels: bool) -> None:
    """Evaluation, samples and checkpoints leave random states, mode, weights and gradients as they were."""
    method, hardware = {**HARD["method"], "kind": kind}, {"kernels": kernels}
    quiet = new_run(tiny_spec(**{**HARD, "method": method, "hardware": hardware, "evaluation": {"percent": 20.0}}))
    run = new_run(tiny_spec(**{**HARD, "method": method, "hardware": hardware}))

    def ask() -> None:
        for name, data in (("evaluate", {}), ("sample", {"prompt": "Hello"}), ("checkpoint", {})):
            _post(run, name, **data)

    assert train(quiet) == 0
    assert train(run, lambda host: after_step(host, 4, ask)) == 0
    assert step_losses(run) == step_losses(quiet)
    assert _adapter(run) == _adapter(quiet)


def test_resume_says_what_differs(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    assert train(run) == 0
    (warning,) = events(run, "warning")
    assert warning.data["code"] == "resume-differs"
    assert "rows: 16 -> 15" in warning.data["message"]


def _edit(run: Run, section: str, **changes: object) -> None:
    values = files.read_json(run.path / "spec.json")
    values[section] |= changes
    files.atomic_write_json(run.path / "spec.json", values)


def test_resume_names_the_settings_that_were_edited(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    _edit(run, "optimizer", learning_rate=5e-3)
    _edit(run, "schedule", max_steps=4)
    assert train(run) == 0
    (warning,) = events(run, "warning")
    assert warning.data["code"] == "resume-differs"
    assert warning.data["message"] == (
        "The run continues under different conditions.\n"
        "optimizer.learning_rate: 0.01 -> 0.005. The remaining updates are computed with the new value.\n"
        "schedule.max_steps: 6 -> 4. The run ends at another step, and the learning rate follows the new length."
    )
    assert result_of(run)["step"] == 4


def test_resume_refuses_settings_that_the_checkpoint_depends_on(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    _edit(run, "adapter", rank=2)
    assert train(run) == 2
    assert "adapter.rank: 4 -> 2" in events(run, "error")[0].data["message"]
    _edit(run, "adapter", rank=4)
    assert train(run) == 0


def test_a_checkpoint_of_an_earlier_release_goes_on(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    """Its run folder holds a spec of version 1, and its manifest a hash in place of a spec."""
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    manifest = run.checkpoints_path / "step-000002" / "MANIFEST.json"
    values = files.read_json(manifest)
    for name in ("spec", "run", "base_model", "sha256"):
        del values[name]
    files.atomic_write_json(manifest, values | {"config_hash": "0" * 64})
    spec = files.read_json(run.path / "spec.json")
    (source,) = spec["data"].pop("sources")
    source = {name: source[name] for name in ("path", "format", "columns")}
    hardware = {"device": "cpu", "gpu_index": 0, "cpu_threads": 1}
    sections = {"data": spec["data"] | source, "method": {"kind": "lora"} | spec["adapter"], "hardware": hardware}
    kept = ("name", "model", "optimizer", "schedule", "evaluation", "saving")
    files.atomic_write_json(run.path / "spec.json", {"version": 1} | {name: spec[name] for name in kept} | sections)
    assert train(run) == 0
    assert (result_of(run)["status"], len(step_losses(run))) == ("finished", 6)
    (warning,) = events(run, "warning")
    assert warning.data["message"].count("from an earlier version") == 2, "neither settings nor files were compared"


def _post(run: Run, name: str, **data: object) -> None:
    post_command(run.control_path, name, **data)


def test_pairs_that_were_plain_text_do_not_become_a_chat_without_a_word(
    tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    rows = tmp_path / "pairs.jsonl"
    rows.write_text(
        "".join(json.dumps({"prompt": f"What is {n}?", "completion": f"It is {n}."}) + "\n" for n in range(8))
    )
    run = new_run(tiny_spec(data={"path": str(rows)}, schedule={"max_steps": 4}))
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    manifest = run.checkpoints_path / "step-000002" / "MANIFEST.json"
    saved = json.loads(manifest.read_text())
    assert saved["fingerprint"].pop("pairs") == "chat"
    del saved["fingerprint"]["tokens"]
    manifest.write_text(json.dumps(sealed(saved)))
    assert train(run) == 0
    (warning,) = events(run, "warning")
    assert "pairs: text -> chat" in warning.data["message"]


def test_another_chat_template_is_told(tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    run = new_run(tiny_spec(model={"path": str(model)}, schedule={"max_steps": 4}))
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|im_start|>", "<|im_start|>the "))
    assert train(run) == 0
    (warning,) = events(run, "warning")
    assert "chat_template.jinja changed. From here on, rows become other tokens." in warning.data["message"]
    assert "or become other tokens." in warning.data["message"]


def test_plain_text_against_a_template_is_warned_of(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    rows = tmp_path / "pairs.jsonl"
    rows.write_text('{"prompt": "Who?", "completion": "Me."}\n' * 4)
    data = {"path": str(rows), "format": "prompt-completion-raw"}
    run = new_run(tiny_spec(data=data, schedule={"max_steps": 2}))
    assert train(run) == 0
    assert [event.data["code"] for event in events(run, "warning")] == ["dataset-raw-text"]


def test_a_run_of_two_files_is_bit_exact_after_a_stop(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("q,a\n" + "".join(f"Say {n}.,{n}!\n" for n in range(5)), encoding="utf-8")
    spec = tiny_spec()
    spec.data.sources.append(
        SourceSpec(
            path=str(tmp_path / "pairs.csv"), format="prompt-completion", columns={"prompt": "q", "completion": "a"}
        )
    )
    whole = new_run(spec)
    assert train(whole) == 0
    assert events(whole, "setup")[0].data["num_train_rows"] == 16 + 5
    run = new_run(spec)
    assert train(run, lambda host: after_step(host, 3, host.on_signal)) == 5
    assert train(run) == 0
    assert step_losses(run) == step_losses(whole)
    assert _adapter(run) == _adapter(whole)


def test_a_run_by_weight_and_cap_is_bit_exact_after_a_stop(
    tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "Row {n} of many.", "g": {n % 9}}}\n' for n in range(40)))
    more = SourceSpec(path=str(tmp_path / "texts.jsonl"), weight=1.0, most_rows=20)
    schedule = {"max_steps": 12, "micro_batch_size": 2, "gradient_accumulation_steps": 2}
    spec = tiny_spec(schedule=schedule, evaluation={"percent": 0.0})
    spec.data.sources[0].weight = 3.0
    spec.data.sources.append(more)
    whole = new_run(spec)
    assert train(whole) == 0
    (setup,) = events(whole, "setup")
    assert [each["num_epoch_rows"] for each in setup.data["sources"]] == [27, 9]
    assert (setup.data["steps_per_epoch"], setup.data["num_train_rows"]) == (9, 36)
    data = prepare(spec, AutoTokenizer.from_pretrained(spec.model.path))
    plan = StepPlan.of(spec.schedule, data)
    tokens = sum(len(data.train[row].input_ids) for step in range(plan.total_steps) for row in plan.rows(step))
    assert events(whole, "step")[-1].data["tokens"] == tokens
    codes = {event.data["code"] for event in events(whole, "warning")}
    assert {"dataset-mixture", "dataset-rows-capped"} <= codes
    run = new_run(spec)
    assert train(run, lambda host: after_step(host, 3, host.on_signal)) == 5
    assert train(run) == 0
    assert step_losses(run) == step_losses(whole)
    assert _adapter(run) == _adapter(whole)


def test_a_changed_weight_is_told_at_the_resume(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "Another row."}\n' * 8)
    spec = tiny_spec(evaluation={"percent": 0.0})
    spec.data.sources.append(SourceSpec(path=str(tmp_path / "texts.jsonl"), weight=1.0))
    spec.data.sources[0].weight = 1.0
    run = new_run(spec)
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    spec.data.sources[0].weight = 2.0
    files.atomic_write_json(run.spec_path, spec.to_dict())
    assert train(run) == 0
    (warning,) = (event for event in events(run, "warning") if event.data["code"] == "resume-differs")
    assert "data.sources: " in warning.data["message"]
    assert "The remaining steps train on other rows." in warning.data["message"]


def test_a_run_that_lost_its_checkpoints_does_not_begin_again(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    adapter = _adapter(run)
    for path in run.checkpoints_path.glob("*/state.json"):
        path.write_text("{}")
    run.journal_path.unlink()
    for _ in range(2):
        assert train(run) == 2
        assert result_of(run)["code"] == "run-nothing-to-resume"
    shutil.rmtree(run.checkpoints_path)
    assert train(run) == 2
    assert _adapter(run) == adapter
    assert not events(run, "step")
