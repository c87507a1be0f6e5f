"""The command line: texts, exit codes, JSON for programs, and no traceback whatever happens."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_supervisor import kinds, wait_for, with_signals
from tests.processes import kill, press_control_c
from tests.run_adapter import make_adapter
from tunesmith_core import cli, cli_runs, cli_specs, environments, files, launch, settings, trash
from tunesmith_core.errors import EnvironmentProblem, RunFailure
from tunesmith_core.hardware import Hardware
from tunesmith_core.planner import Plan, Saving
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]
ENGINE = Path(cli.__file__).parents[1]
CPU = Hardware("cpu", "a processor", 8 << 30, 4 << 30, 8 << 30, 4 << 30)


@pytest.fixture
def spec_file(tmp_path: Path, make_spec: Make, fake_engine: Script) -> str:
    path = tmp_path / "spec.json"
    files.atomic_write_json(path, make_spec("c").to_dict())
    return str(path)


def start_process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ENGINE)}
    command = [sys.executable, "-m", "tunesmith_core", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, **options)


# Train, resume, follow


def test_train_tells_a_person(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    setup = ["event", "setup", {"total_steps": 3}]
    fake_engine({"*": [["hello"], setup, ["steps", 3], ["checkpoint"], ["result", "finished"]]})
    assert cli.main(["train", spec_file]) == 0
    out, err = capsys.readouterr()
    assert "step 3/3  loss 0.333  10 tokens/s" in out
    assert "saved step 3" in out
    assert out.endswith("finished after 3 steps\n")
    assert err == f"run c-01 in {home / 'runs' / 'c-01'}\n"


def test_a_single_step_is_singular(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine({"*": [["hello"], ["event", "setup", {"total_steps": 1}], ["steps", 1], ["result", "finished"]]})
    assert cli.main(["train", spec_file]) == 0
    assert capsys.readouterr().out.endswith("finished after 1 step\n")


def test_the_help_shows_a_spec_that_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.make_parser().parse_args(["train", "--help"])
    out = capsys.readouterr().out
    assert 'add "objective": {"kind": "dpo"}. Objectives: classify, cpo, dpo, gkd, grpo, kd, kto, orpo, ' in out
    shown = next(line for line in out.splitlines() if line.startswith("The smallest"))
    (tmp_path / "spec.json").write_text(shown[shown.index("{") :])
    assert Path(RunSpec.load(tmp_path / "spec.json").data.sources[0].path).name == "FILE"


def test_train_tells_a_program(spec_file: str, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert cli.main(["train", spec_file, "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["type"] for event in events] == kinds(Run(home / "runs" / "c-01"))
    assert events[-1]["status"] == "finished"


def test_train_without_kernels_writes_it_into_the_run(
    spec_file: str, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    assert cli.main(["train", spec_file, "--no-kernels", "--json"]) == 0
    assert cli.main(["train", spec_file, "--json"]) == 0
    kernels = [Run(home / "runs" / name).load_spec().hardware.kernels for name in ("c-01", "c-02")]
    assert kernels == [False, True]
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "exit_code", "words"),
    [
        pytest.param([["hello"], ["kill_self", 9]], 4, "error[engine-killed]: The engine", marks=with_signals),
        ([["hello"], ["event", "error", {"code": "dataset-empty", "kind": "UserError", "message": "none"}]], 2, "none"),
        ([["event", "error", {"code": "driver-too-old", "kind": "EnvironmentProblem"}]], 3, "error[driver-too-old]"),
        ([["hello"], ["result", "stopped"]], 5, "tunesmith resume c-01"),
    ],
)
def test_the_exit_code_says_how_it_ended(
    spec_file: str,
    fake_engine: Script,
    capsys: pytest.CaptureFixture[str],
    script: list[Any],
    exit_code: int,
    words: str,
) -> None:
    fake_engine({"*": script})
    assert cli.main(["train", spec_file]) == exit_code
    assert words in capsys.readouterr().err


def test_an_interrupted_run_ends_with_four(make_spec: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = create_run(make_spec("i"))
    assert cli.main(["follow", run.id]) == 4
    assert "ended without a result" in capsys.readouterr().err


def test_detach_stop_resume_and_delete(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    assert cli.main(["train", spec_file, "--detach"]) == 0
    assert capsys.readouterr().out == "c-01\n"
    assert cli.main(["resume", "c-01"]) == 2
    assert "error[run-busy]" in capsys.readouterr().err
    assert cli.main(["stop", "c-01"]) == 0
    assert cli.main(["follow", "c-01", "--json"]) == 5
    fake_engine({"*": [["hello", 1], ["result", "finished"]]})
    capsys.readouterr()
    assert cli.main(["resume", "c-01", "--detach", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": "c-01", "path": str(home / "runs" / "c-01")}
    assert cli.main(["follow", "c-01"]) == 0
    assert cli.main(["delete", "c-01"]) == 0
    told = capsys.readouterr()
    assert f"Moved to the trash: {home / 'runs' / 'c-01'} (" in told.out
    assert " KiB)\n" in told.out
    (deleted,) = trash.contents()
    assert f"tunesmith restore {deleted.id}" in told.err
    assert cli.main(["show", "c-01"]) == 2
    assert "error[run-not-found]" in capsys.readouterr().err


def test_the_trash_is_listed_restored_and_emptied(
    make_spec: Make, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    first, second = create_run(make_spec("t")), create_run(make_spec("t"))
    for run in (first, second):
        assert cli.main(["delete", run.id]) == 0
    capsys.readouterr()
    assert cli.main(["trash", "--json"]) == 0
    assert [row["path"] for row in json.loads(capsys.readouterr().out)] == [str(second.path), str(first.path)]
    assert cli.main(["restore", first.id]) == 0
    assert first.path.is_dir()
    assert cli.main(["trash", "--empty"]) == 0
    told = capsys.readouterr()
    assert second.id in told.out
    assert "Deleted for good: 1." in told.err
    assert cli.main(["trash"]) == 0
    assert capsys.readouterr().out == "The trash is empty.\n"
    assert cli.main(["restore", second.id]) == 2
    assert list((home / "trash").iterdir()) == []


def test_resume_follows_from_where_it_went_on(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine({"*": [["hello"], ["steps", 1], ["checkpoint"], ["result", "stopped"]]})
    assert cli.main(["train", spec_file]) == 5
    fake_engine({"*": [["hello", 1], ["result", "finished"]]})
    capsys.readouterr()
    assert cli.main(["resume", "c-01"]) == 0
    out = capsys.readouterr().out
    assert "resumed from step 1" in out
    assert "saved" not in out


def test_discard_is_passed_on(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    cli.main(["train", spec_file, "--detach"])
    assert cli.main(["stop", "c-01", "--discard"]) == 0
    launch.wait(Run(home / "runs" / "c-01"))
    assert '"mode":"discard"' in (home / "runs" / "c-01" / "events.jsonl").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C can only be sent to a whole console here")
def test_control_c_saves_and_the_second_leaves(spec_file: str, fake_engine: Script, home: Path) -> None:
    run = Run(home / "runs" / "c-01")
    fake_engine({"*": [["hello"], ["obey"]]})
    with start_process("train", spec_file) as process:
        wait_for(lambda: "step" in kinds(run))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 5
    assert "Stopping after this step" in err
    fake_engine({"*": [["hello", 1], ["steps", 50, 0.1], ["result", "finished"]]})
    with start_process("resume", "c-01") as process:
        wait_for(lambda: kinds(run)[-1] == "step")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Press Ctrl-C again" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "tunesmith follow c-01" in err
    assert run.is_supervised()
    kill(run.supervisor().pid)  # type: ignore[union-attr]
    wait_for(lambda: not run.is_supervised())


def test_control_c_in_this_process(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(home / "runs" / "c-01")
    fake_engine({"*": [["hello"], ["steps", 100, 0.05], ["result", "finished"]]})

    def interrupt() -> None:
        for _ in range(2):
            wait_for(lambda: "step" in kinds(run))
            press_control_c()
            threading.Event().wait(0.3)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert cli.main(["train", spec_file]) == 0
    thread.join()
    assert "Detached. The run continues" in capsys.readouterr().err
    kill(run.supervisor().pid)  # type: ignore[union-attr]
    wait_for(lambda: not run.is_supervised())


def test_control_c_of_a_run_that_has_just_ended(make_spec: Make, capsys: pytest.CaptureFixture[str]) -> None:
    with cli_runs._stopping_on_interrupt(create_run(make_spec("e"))):
        press_control_c()
    assert capsys.readouterr().err == ""


# Asking a going run


def test_asking_a_going_run(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    run = launch.start(RunSpec.load(Path(spec_file)))
    capsys.readouterr()
    assert cli.main(["sample", run.id, "Who are you?"]) == 0
    assert capsys.readouterr().out == "an answer\n"
    assert cli.main(["checkpoint", run.id]) == 0
    assert capsys.readouterr().out.startswith("saved step ")
    launch.stop(run)
    launch.wait(run)
    assert cli.main(["sample", run.id, "Who?"]) == 2
    assert "error[run-not-live]" in capsys.readouterr().err


def test_evaluate_tells_the_loss(
    make_spec: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(make_spec("e"))
    monkeypatch.setattr(cli_runs, "_ask", lambda *_: Event(1, 0.0, "eval", {"loss": 1.5, "step": 3}))
    monkeypatch.setattr(Run, "is_supervised", lambda _run: True)
    assert cli.main(["evaluate", run.id]) == 0
    assert capsys.readouterr().out == "loss 1.500 at step 3\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([["hello"], ["steps", 1], ["sleep", 0.5], ["result", "finished"]], "ended before it answered"),
        ([["hello"], ["refuse"]], "did not accept the command: not now"),
    ],
)
def test_a_question_without_an_answer(
    spec_file: str,
    fake_engine: Script,
    capsys: pytest.CaptureFixture[str],
    script: list[Any],
    words: str,
) -> None:
    fake_engine({"*": script})
    run = launch.start(RunSpec.load(Path(spec_file)))
    wait_for(lambda: "hello" in kinds(run))
    assert cli.main(["evaluate", run.id]) == 2
    assert words in capsys.readouterr().err
    launch.wait(run)


# Lists


def test_runs_and_show(
    spec_file: str,
    capsys: pytest.CaptureFixture[str],
    fake_engine: Script,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cli.main(["runs"]) == 0
    assert capsys.readouterr().err == "There are no runs yet.\n"
    fake_engine(
        {"*": [["hello"], ["event", "setup", {"total_steps": 9}], ["event", "result", {"status": "finished", "step": 9}
         | {"artifacts": {"adapter": "adapter"}}]]}
    )  # fmt: skip
    assert cli.main(["train", spec_file]) == 0
    assert f"adapter: {home / 'runs' / 'c-01' / 'adapter'}" in capsys.readouterr().out
    assert cli.main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["c-01", "finished", "9", "-", "model", "data.jsonl"]
    assert cli.main(["runs", "--json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert (entry["run"], entry["state"]) == ("c-01", "finished")
    assert cli.main(["show", "c-01"]) == 0
    shown = capsys.readouterr().out
    assert "state:           finished" in shown
    assert "9 / 9" in shown
    monkeypatch.setattr(settings, "language_in_force", lambda: "zh_CN")
    assert cli.main(["show", "c-01"]) == 0
    assert "适配器: " in capsys.readouterr().out
    assert cli.main(["show", "c-01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "finished"


def test_show_says_that_the_adapter_is_missing(
    spec_file: str, capsys: pytest.CaptureFixture[str], fake_engine: Script, home: Path
) -> None:
    artifacts = {"adapter": "adapter", "notes": "notes.txt"}
    fake_engine({"*": [["hello"], ["event", "result", {"status": "finished", "step": 9, "artifacts": artifacts}]]})
    assert cli.main(["train", spec_file]) == 0
    folder = home / "runs" / "c-01"
    make_adapter(folder / "adapter")
    capsys.readouterr()
    assert cli.main(["show", "c-01"]) == 0
    shown = capsys.readouterr()
    assert (f"{folder / 'adapter'}\n" in shown.out, shown.err) == (True, "")
    shutil.rmtree(folder / "adapter")
    assert cli.main(["show", "c-01"]) == 0
    shown = capsys.readouterr()
    assert f"{folder / 'adapter'} (missing)" in shown.out
    assert f"{folder / 'notes.txt'}\n" in f"{shown.out}\n"
    assert f"{folder / 'adapter' / 'adapter_model.safetensors'} is missing or empty.\nhint: Restore" in shown.err


def test_show_explains_a_failed_run(spec_file: str, capsys: pytest.CaptureFixture[str], fake_engine: Script) -> None:
    fake_engine({"*": [["hello"], ["exit", 3]]})
    assert cli.main(["train", spec_file]) == 4
    capsys.readouterr()
    assert cli.main(["show", "c-01"]) == 0
    assert "error[engine-crashed]" in capsys.readouterr().err


def test_the_spec_of_a_run_can_be_saved_and_started_again(
    make_spec: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = create_run(make_spec("s"))
    assert cli.main(["spec", run.id]) == 0
    (tmp_path / "again.json").write_text(capsys.readouterr().out)
    assert RunSpec.load(tmp_path / "again.json") == run.load_spec()


# Before a run


def plan_of(*_: object, **__: object) -> Plan:
    fix = Saving("shorter", {"data.context_length": 512}, 1 << 30)
    return Plan({"weights": 1 << 30}, 1 << 30, 1 << 29, 2 << 30, "tight", 10, None, 1 << 20, "low", (fix,))


def test_plan(spec_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_specs.planner, "plan", plan_of)
    assert cli.main(["plan", spec_file]) == 0
    out = capsys.readouterr().out
    assert "base model  1.00 GiB" in out
    assert "Minimum, row by row and with activation checkpointing: 0.50 GiB" in out
    assert "only just" in out
    assert "Saves 1.00 GiB: data.context_length = 512" in out
    frugal = dataclasses.replace(plan_of(), least_bytes=1 << 30)
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **__: frugal)
    assert cli.main(["plan", spec_file]) == 0
    out = capsys.readouterr().out
    assert "Minimum" not in out
    assert "Steps: about 10" in out, "nobody has looked at the rows"
    assert out.count("about") == 1
    counted = dataclasses.replace(plan_of(), parts={"adapter": 1 << 28}, adapter_is_exact=False)
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **__: counted)
    assert cli.main(["plan", spec_file]) == 0
    out = capsys.readouterr().out
    assert "about 0.25 GiB" in out
    assert "Disk: about 0.00 GiB" in out
    monkeypatch.setattr(cli_specs.planner, "plan", plan_of)
    assert cli.main(["plan", spec_file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "tight"


def test_the_planned_device_is_the_wanted_one(make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec()
    monkeypatch.setattr(cli_specs, "detect_hardware", lambda: [CPU])
    assert cli_specs.hardware_of(spec) is CPU
    spec.hardware.devices = ["cuda"]
    with pytest.raises(EnvironmentProblem):
        cli_specs.hardware_of(spec)
    monkeypatch.setattr(cli_specs.devices, "nvidia_present", lambda: True)
    spec.hardware.devices = ["auto"]
    assert cli_specs.hardware_of(spec) is CPU


def test_check_measures_a_step(spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str]) -> None:
    fake_engine({"check": {"device": "cpu", "step_s": 2.0, "peak_bytes": 1 << 30, "notes": ["9 rows are cut."]}})
    assert cli.main(["check", spec_file]) == 0
    shown = capsys.readouterr()
    assert shown.out == "One step on cpu took 2 s and 1.00 GiB of memory.\n"
    assert "9 rows are cut." in shown.err
    assert cli.main(["check", spec_file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["peak_bytes"] == 1 << 30


def test_an_error_of_a_task_is_its_error(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    fake_engine({"check": {"error": RunFailure("cuda-oom", "8 GiB wanted").to_dict()}})
    assert cli.main(["check", spec_file]) == 4
    assert "error[cuda-oom]" in capsys.readouterr().err
    fake_engine({})
    assert cli.main(["check", spec_file]) == 4
    assert "error[engine-crashed]" in capsys.readouterr().err
    assert not list((home / "tmp" / "operations").glob("*"))


def test_a_task_that_cannot_start(
    spec_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> list[str]:
        return [__file__]  # no program

    monkeypatch.setattr(environments, "engine_command", refuse)
    assert cli.main(["check", spec_file]) == 3
    code = "environment-missing" if sys.platform == "win32" else "permission-or-antivirus"
    assert f"error[{code}]" in capsys.readouterr().err


def test_preview_marks_what_is_learned(spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str]) -> None:
    segments = [{"text": "Q: ", "trained": False}, {"text": "A", "trained": True}]
    row = {"line": 1, "segments": segments, "num_tokens": 3, "num_trained_tokens": 1}
    fake_engine({"preview": {"rows": [row], "problems": [{"line": 2, "message": "bad"}], "notes": ["joined"]}})
    assert cli.main(["preview", spec_file, "--rows", "1"]) == 0
    out, err = capsys.readouterr()
    assert out == "--- line 1: 1 of 3 tokens are trained on\nQ: [[A]]\n"
    assert err == "joined\nline 2: bad\n"
    skipped = {**row, "line": 3, "num_trained_tokens": 0, "num_lost_tokens": 9, "is_skipped": True}
    fake_engine({"preview": {"rows": [skipped]}})
    assert cli.main(["preview", spec_file]) == 0
    assert "--- line 3: skipped, 9 tokens more than the context length\n" in capsys.readouterr().out
    fake_engine({"preview": {"rows": [row]}})
    assert cli.main(["preview", spec_file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [row]


def test_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets"]) == 0
    assert "(default)" in capsys.readouterr().out
    assert cli.main(["presets", "--json"]) == 0
    assert "balanced" in json.loads(capsys.readouterr().out)


# The window


def test_without_a_command_the_window_opens(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    codes = iter([0, 3, -11])
    monkeypatch.setattr(cli.subprocess, "call", lambda command: calls.append(command) or next(codes))
    monkeypatch.setattr(environments, "window_python", lambda: "python")
    monkeypatch.setenv("DISPLAY", ":0")
    assert [cli.main([]) for _ in range(3)] == [0, 3, 1]
    assert calls[0][0] == "python"
    assert calls[0][-1] == "tunesmith_gui"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows always has a screen")
def test_no_screen_and_no_environment_are_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(environments.importlib.util, "find_spec", lambda _name: object())
    assert environments.window_python() == sys.executable
    assert cli.main([]) == 3
    assert "error[display-missing]" in capsys.readouterr().err
    monkeypatch.setattr(environments.importlib.util, "find_spec", lambda _name: None)
    assert cli.main([]) == 3
    assert "error[environment-missing]" in capsys.readouterr().err
    python = environments.environment_python(home / "envs" / "launcher-1")
    python.parent.mkdir(parents=True)
    python.touch()
    (home / "envs" / "launcher.current").write_text("launcher-1")
    assert environments.window_python() == str(python)


# Errors


def test_a_missing_file_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "/not/there.json"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error[file-unreadable]: The file can't be read"
    assert str(Path("/not/there.json")) in lines[1]
    assert lines[2].startswith("hint: ")


def test_a_bug_names_its_report(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("hf_abcdefghijklmnop")

    monkeypatch.setattr(cli, "make_parser", broken)
    assert cli.main([]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    [report] = (home / "logs").iterdir()
    assert str(report) in err
    assert "Traceback" in report.read_text()
    assert "hf_abc" not in report.read_text()

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(files, "atomic_write_text", refuse)
    assert cli.main([]) == 1
    assert "could not be written" in capsys.readouterr().err


def test_an_interrupt_elsewhere_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "make_parser", interrupted)
    assert cli.main([]) == 5
    assert capsys.readouterr().err == "Interrupted.\n"


def test_a_reader_that_leaves_is_no_error(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with start_process("version") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""

    def broken() -> None:
        raise BrokenPipeError

    monkeypatch.setattr(cli, "make_parser", broken)
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        # A program without a console has no standard error.
        monkeypatch.setattr(sys, "stderr", None)
        assert cli.main([]) == 0


def test_the_module_runs_on_a_bare_python(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-S", "-E", "-m", "tunesmith_core", "version"]
    done = subprocess.run(command, cwd=ENGINE, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Tunesmith ")
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == done.stdout
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == done.stdout


def test_the_module_hands_on_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    monkeypatch.setattr(cli, "main", lambda: 5)
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("tunesmith_core", run_name="__main__")
    assert caught.value.code == 5


@pytest.mark.parametrize(("ended", "code"), [(3, 3), (-9, 1)])
def test_commands_of_the_installer_get_their_arguments_untouched(
    monkeypatch: pytest.MonkeyPatch, ended: int, code: int
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(cli.subprocess, "call", lambda command: called.append(command) or ended)
    assert cli.main(["install", "--profile", "cpu"]) == code
    assert called[0][-4:] == ["tunesmith_setup", "install", "--profile", "cpu"]
