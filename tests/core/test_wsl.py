"""Training inside the Windows Subsystem for Linux, against a stub of wsl.exe that behaves as the real one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wsl_stub import add_distribution, install_stub, read_state, write_state
from tunesmith_core import launch, preflight
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_core.forced_stop import Limits
from tunesmith_core.process_identity import identify
from tunesmith_core.protocol import post_command
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.supervisor import Supervisor
from tunesmith_core.wsl import client, guest, relay

Script = Callable[[dict[str, Any]], None]
NAME = "Ubuntu-24.04"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "system32"
    install_stub(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def root(stub: Path) -> Path:
    return add_distribution(stub, NAME)


@pytest.fixture
def prepared(root: Path, home: Path, fake_engine: Script) -> Path:
    """A distribution with our environment inside, and its data root there."""
    inside = root / "home" / "user" / ".local" / "share" / "tunesmith"
    (inside / "envs").mkdir(parents=True)
    (home / "envs" / "train.current").replace(inside / "envs" / "train.current")
    (inside / "fake-engine.json").symlink_to(home / "fake-engine.json")
    guest.Guest(NAME, "python3").save()
    return inside


@pytest.fixture
def wsl_spec(make_spec: Callable[..., RunSpec]) -> Callable[..., RunSpec]:
    def make(name: str) -> RunSpec:
        spec = make_spec(name)
        spec.hardware.system = "wsl"
        return spec

    return make


def test_texts_of_wsl_and_of_linux_are_both_read() -> None:
    assert client.decode("* 状态\r\n".encode("utf-16-le")) == "* 状态\n"
    assert client.decode("\ufeffName\r\n".encode("utf-16-le")) == "Name\n"
    assert client.decode("Ä\n".encode()) == "Ä\n"


def test_a_computer_without_wsl_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem) as caught:
        client.call("--status")
    assert caught.value.code == "wsl-not-usable"
    assert "no wsl.exe" in caught.value.message


def test_an_error_code_is_explained_in_any_language(stub: Path) -> None:
    write_state(stub, read_state(stub) | {"fails": "0x80370102"})
    with pytest.raises(EnvironmentProblem) as caught:
        client.checked("-l", "-v")
    assert "Virtualization" in caught.value.message
    assert "firmware" in caught.value.hint
    assert "BIOS" in (caught.value.context or "")


def test_an_unknown_failure_keeps_the_text() -> None:
    problem = client.problem_of(client.Answer(3, "Etwas ging schief.\n"))
    assert "exit code 3" in problem.message
    assert problem.context == "Etwas ging schief."


def test_a_hanging_wsl_is_given_up(stub: Path) -> None:
    write_state(stub, read_state(stub) | {"hangs": True})
    with pytest.raises(EnvironmentProblem) as caught:
        client.call("--status", timeout_s=0.5)
    assert "did not answer" in caught.value.message
    assert "--shutdown" in caught.value.hint


def test_a_wsl_that_does_not_start_is_named(stub: Path) -> None:
    (stub / "wsl.exe").write_text("")
    with pytest.raises(EnvironmentProblem) as caught:
        client.call("--status")
    assert "can't be started" in caught.value.message


def test_a_missing_distribution_is_named(stub: Path) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        client.checked("-d", "Nowhere", "--exec", "true")
    assert "no Linux distribution of that name" in caught.value.message


def test_what_works_gives_its_text(root: Path) -> None:
    assert client.checked("-d", NAME, "--exec", "echo", "Ä b") == "Ä b\n"


def test_paths_are_translated_by_the_distribution(root: Path) -> None:
    one = guest.Guest(NAME, "python3")
    assert one.path_of(r"C:\Users\Änne B\x.jsonl") == f"{root}/mnt/c/Users/Änne B/x.jsonl"
    with pytest.raises(EnvironmentProblem) as caught:
        one.path_of(r"Q:\x")
    assert "can't be reached" in caught.value.message


def test_nothing_was_set_up_yet(home: Path) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        guest.Guest.load()
    assert "not set up" in caught.value.message


def test_the_prepared_distribution_is_remembered(home: Path) -> None:
    guest.Guest(NAME, "/usr/bin/python3.12").save()
    assert guest.Guest.load() == guest.Guest(NAME, "/usr/bin/python3.12")


def test_a_python_inside_is_found_or_not(root: Path) -> None:
    found = guest.find_python(NAME)
    assert found is not None
    assert Path(found).name.startswith("python")
    for version in ("3.11", "3.12", "3.13"):
        (root / "bin" / f"python{version}").write_text("#!/bin/sh\necho /usr/bin/python3.9 3 9\n")
        (root / "bin" / f"python{version}").chmod(0o755)
    (root / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    assert guest.find_python(NAME) is None


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ("0", "wsl-libcuda-missing", "/dev/dxg"),
        ("device 0", "wsl-libcuda-missing", "libcuda.so.1 is missing"),
        ("device library", "driver-missing", "lists no GPU"),
        ("device library 0", "driver-missing", "lists no GPU"),
    ],
)
def test_why_no_gpu_is_seen_inside(root: Path, answer: str, code: str, words: str) -> None:
    (root / "bin" / "sh").write_text(f"#!/bin/bash\necho {answer}\n")
    (root / "bin" / "sh").chmod(0o755)
    problem = guest.Guest(NAME, "python3").gpu_problem()
    assert problem is not None
    assert problem.code == code
    assert words in problem.message


def test_a_gpu_inside_is_seen(root: Path) -> None:
    (root / "bin" / "sh").write_text("#!/bin/bash\necho device; echo library; echo 2\n")
    (root / "bin" / "sh").chmod(0o755)
    assert guest.Guest(NAME, "python3").gpu_problem() is None


def test_a_run_needs_wsl_to_be_set_up(wsl_spec: Callable[..., RunSpec]) -> None:
    with pytest.raises(EnvironmentProblem, match="not set up"):
        preflight.check(wsl_spec("a"))


def test_a_run_inside_looks_like_any_other(
    prepared: Path, wsl_spec: Callable[..., RunSpec], fake_engine: Script
) -> None:
    fake_engine({"*": [["hello"], ["steps", 3], ["checkpoint"], ["steps", 2], ["checkpoint"], ["result", "finished"]]})
    run = launch.start(wsl_spec("inside"))
    status = launch.wait(run)
    assert status.state is RunState.FINISHED, run.supervisor_log_path.read_text() + run.engine_log_path.read_text()
    assert status.step == 5
    assert sorted(path.name for path in run.checkpoints_path.iterdir()) == ["step-000003", "step-000005"]
    numbers = [json.loads(line)["seq"] for line in run.journal_path.read_bytes().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert list((prepared / "tmp" / "twins").iterdir()) == []
    assert not (run.path / "linux.pid").exists()


def test_a_stop_reaches_the_engine_inside_and_resume_goes_on(
    prepared: Path, wsl_spec: Callable[..., RunSpec], fake_engine: Script
) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["checkpoint"], ["obey"]]})
    run = launch.start(wsl_spec("inside"))
    wait_for(lambda: run.status().step >= 3)
    launch.stop(run)
    assert launch.wait(run).state is RunState.STOPPED
    assert launch.has_checkpoint(run)
    fake_engine({"*": [["hello", 2], ["steps", 1], ["result", "finished"]]})
    launch.resume(run)
    status = launch.wait(run)
    assert status.state is RunState.FINISHED
    assert (run.checkpoints_path / "step-000002" / "MANIFEST.json").exists()


def wait_for(condition: Callable[[], object], limit_s: float = 240.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def engine_pid(run: Run) -> int:
    for line in run.journal_path.read_bytes().splitlines():
        event = json.loads(line)
        if event["type"] == "hello":
            return int(event["pid"])
    return 0


def test_ending_the_supervisor_ends_the_engine_inside(
    prepared: Path, wsl_spec: Callable[..., RunSpec], fake_engine: Script
) -> None:
    fake_engine({"*": [["hello"], ["steps", 100000, 0.05]]})
    run = launch.start(wsl_spec("inside"))
    wait_for(lambda: run.journal_path.exists() and engine_pid(run))
    pid = engine_pid(run)
    supervisor = run.supervisor()
    assert supervisor is not None
    os.kill(supervisor.pid, 9)
    wait_for(lambda: identify(pid) is None)
    assert launch.wait(run).state is RunState.INTERRUPTED


def test_an_engine_inside_that_ignores_a_stop_is_made_to_end(
    prepared: Path, wsl_spec: Callable[..., RunSpec], fake_engine: Script, caplog: pytest.LogCaptureFixture
) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["checkpoint"], ["ignore_terminate"], ["steps", 100000, 0.05]]})
    run = create_run(wsl_spec("inside"))
    supervisor = Supervisor(run, Limits(stop_s=0.5, terminate_s=0.5))
    thread = threading.Thread(target=stop_later, args=(run,))
    thread.start()
    status = supervisor.supervise()
    thread.join()
    assert status.state is RunState.FAILED
    assert status.error
    assert status.error["code"] == "engine-hung"
    wait_for(lambda: identify(engine_pid(run)) is None)
    assert "made to end: kill" in caplog.text


def stop_later(run: Run) -> None:
    wait_for(lambda: run.journal_path.exists() and run.status().step > 2)
    post_command(run.control_path, "stop", mode="save")


def test_a_program_can_be_run_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "program", lambda: "wsl.exe")
    command = guest.Guest(NAME, "python3").command("id", user="root")
    assert command == ["wsl.exe", "-d", NAME, "-u", "root", "--cd", "~", "--exec", "id"]


def test_a_hub_id_and_a_drive_out_of_reach(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert relay.guest_path("org/model") == "org/model"
    assert relay.guest_path("C:/a") == f"{root}/mnt/c/a"
    with pytest.raises(UserError, match="can't be reached"):
        relay.guest_path(r"Q:\a")
