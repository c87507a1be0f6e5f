"""Starting, resuming, stopping, following and deleting runs with real supervisors and a scripted engine."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_supervisor import gone, kinds, wait_for, with_signals
from tests.processes import KILLED
from tunesmith_core import files, launch, paths, runs, trash
from tunesmith_core.base_model import BaseModel
from tunesmith_core.checkpoint_manifest import CONTENT, sealed
from tunesmith_core.errors import BugError, EnvironmentProblem, TunesmithError, UserError
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event, JournalWriter, pending_commands, post_command, read_journal
from tunesmith_core.runs import Run, RunState, create_run, iter_runs
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]


def test_a_run_starts_is_followed_and_lands_in_the_index(fake_engine: Script, make_spec: Make) -> None:
    run = launch.start(make_spec("good"))
    seen: list[str] = []
    status = launch.wait(run, lambda event: seen.append(event.type))
    assert status.state is RunState.FINISHED
    assert seen == kinds(run)
    assert not run.is_supervised()
    with closing(Library(paths.library_path())) as library:
        assert [entry.run.id for entry in library.list_runs()] == [run.id]
        assert len(library.series(run.id, "loss")) == 3
    assert run.supervisor_log_path.read_text() == ""


def test_a_bad_spec_creates_nothing(fake_engine: Script, make_spec: Make) -> None:
    spec = make_spec("bad")
    spec.data.sources[0].path += ".gone"
    with pytest.raises(UserError):
        launch.start(spec)
    assert list(iter_runs()) == []


def test_five_started_at_once_run_one_after_another_in_order(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["steps", 2, 0.05], ["result", "finished"]]})
    runs: list[Run] = []
    threads = [threading.Thread(target=lambda: runs.append(launch.start(make_spec("five")))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run.id for run in runs) == [f"five-0{number}" for number in range(1, 6)]
    spans = []
    for run in runs:
        assert launch.wait(run).state is RunState.FINISHED
        events = {event.type: event.t for event in read_journal(run.journal_path)}
        spans.append((events["hello"], events["result"]))
    spans.sort()
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))


def test_waiting_runs_get_the_device_in_the_order_of_creation(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"first": [["hello"], ["obey"]]})
    first = launch.start(make_spec("first"))
    wait_for(lambda: "step" in kinds(first))
    waiting = [launch.start(make_spec(name)) for name in ("b", "a", "c")]
    assert {run.status().state for run in waiting} == {RunState.QUEUED}
    launch.stop(first)
    assert launch.wait(first).state is RunState.STOPPED
    hellos = []
    for run in waiting:
        assert launch.wait(run).state is RunState.FINISHED
        hellos.append(next(event.t for event in read_journal(run.journal_path) if event.type == "hello"))
    assert hellos == sorted(hellos)


def test_stop_and_resume(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    run = launch.start(make_spec("r"))
    with pytest.raises(UserError) as caught:
        launch.resume(run)
    assert caught.value.code == "run-busy"
    with pytest.raises(UserError) as caught:
        trash.delete(run)
    assert caught.value.code == "run-busy"
    with pytest.raises(ValueError, match="unknown stop mode"):
        launch.stop(run, "maybe")
    launch.stop(run)
    assert launch.wait(run).state is RunState.STOPPED
    fake_engine({"*": [["hello", 1], ["steps", 1], ["result", "finished"]]})
    offset = run.journal_path.stat().st_size
    post_command(run.control_path, "stop", mode="discard")
    launch.resume(run)
    assert pending_commands(run.control_path) == []
    seen: list[str] = []
    status = launch.wait(run, lambda event: seen.append(event.type), offset)
    assert (status.state, seen) == (RunState.FINISHED, ["phase", "hello", "phase", "step", "result"])
    with pytest.raises(UserError) as caught:
        launch.resume(run)
    assert caught.value.code == "run-nothing-to-resume"
    for ask, words, hint in (
        (lambda: launch.stop(run), "There is nothing to stop.", "list of runs"),
        (lambda: launch.send(run, "sample", prompt="x"), "is finished.", "Duplicate"),
    ):
        with pytest.raises(UserError) as caught:
            ask()
        assert caught.value.code == "run-not-live"
        assert words in caught.value.message
        assert hint in caught.value.hint


def test_a_run_that_was_edited_is_refused_before_anything_starts(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["exit", 1]]})
    run = launch.start(make_spec("r"))
    launch.wait(run)
    saved = run.load_spec()
    saved.adapter.rank = 3
    (run.checkpoints_path / "step-000002").mkdir(parents=True)
    listed = {name: {"bytes": 0, "sha256": ""} for name in CONTENT}
    manifest = {"version": 1, "step": 2, "files": listed, "fingerprint": {}, "spec": saved.to_dict()}
    files.atomic_write_json(run.checkpoints_path / "step-000002" / "MANIFEST.json", manifest)
    with pytest.raises(UserError) as caught:
        launch.resume(run)
    assert caught.value.code == "resume-refused"
    assert "adapter.rank: 3 -> " in caught.value.message


def test_a_resume_with_another_base_model_leaves_the_run_as_it_was(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["result", "stopped"]]})
    run = launch.start(make_spec("r"))
    launch.wait(run)
    spec, listed = run.load_spec(), {name: {"bytes": 0, "sha256": ""} for name in CONTENT}
    notes = BaseModel(Path(spec.model.path), None).to_dict()
    manifest = {"version": 1, "step": 2, "files": listed, "fingerprint": {}, "spec": spec.to_dict()}
    (run.checkpoints_path / "step-000002").mkdir(parents=True)
    path = run.checkpoints_path / "step-000002" / "MANIFEST.json"
    files.atomic_write_json(path, sealed(manifest | {"base_model": notes}))
    weights = Path(spec.model.path) / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + b"\x01")
    with pytest.raises(UserError, match=r"Changed since: model\.safetensors\.") as caught:
        launch.resume(run)
    assert caught.value.code == "base-model-differs"
    assert run.status().state is RunState.STOPPED
    weights.write_bytes(content)
    launch.resume(run)
    assert launch.wait(run).state is RunState.STOPPED


def test_a_run_that_lost_its_checkpoints_cannot_go_on_and_one_that_did_nothing_can(
    fake_engine: Script, make_spec: Make
) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["exit", 1]]})
    run = launch.start(make_spec("r"))
    launch.wait(run)
    with pytest.raises(UserError) as caught:
        launch.resume(run)
    assert caught.value.code == "run-nothing-to-resume"
    assert "step 2" in caught.value.message
    fresh = create_run(make_spec("fresh"))
    fake_engine({})
    launch.resume(fresh)
    assert launch.wait(fresh).state is RunState.FINISHED


def test_a_command_that_cannot_be_written(make_spec: Make, home: Path) -> None:
    run = create_run(make_spec("r"))
    run.control_path.rmdir()
    run.control_path.write_text("a file in the way")
    with FileLock(run.lock_path), pytest.raises(TunesmithError):
        launch.send(run, "ping")


@with_signals
@pytest.mark.parametrize("mode", ["save", "discard"])
def test_a_stop_reaches_a_run_whose_disk_takes_no_command(
    fake_engine: Script, make_spec: Make, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def full(*_: object, **_named: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fake_engine({"*": [["hello"], ["obey"]]})
    run = launch.start(make_spec("r"))
    wait_for(lambda: "step" in kinds(run))
    monkeypatch.setattr(launch, "post_command", full)
    assert launch.stop(run, mode) == ""
    assert launch.wait(run).state is RunState.STOPPED
    assert [event.data["mode"] for event in read_journal(run.journal_path) if event.type == "stopping"] == [mode]
    with FileLock(run.lock_path), pytest.raises(EnvironmentProblem):
        launch.stop(run)


def test_who_follows_a_run_hears_that_its_disk_silences_it(make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(make_spec("r"))
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("phase", name="training")
    monkeypatch.setattr(runs, "SILENT_S", 0.0)
    monkeypatch.setattr(files, "free_bytes", lambda _: 1000)
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    told: list[object] = []

    def hear(event: Event) -> None:
        told.append(event.data["name"])
        if len(told) == 2:
            lock.release()

    assert launch.wait(run, hear).state is RunState.INTERRUPTED
    assert told == ["training", "paused"]


def test_a_run_that_was_killed_before_its_first_save_begins_again(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["steps", 1], ["exit", 1]]})
    run = launch.start(make_spec("r"))
    assert launch.wait(run).state is RunState.FAILED
    fake_engine({})
    launch.resume(run)
    assert launch.wait(run).state is RunState.FINISHED


def test_a_full_disk_is_named(make_spec: Make, fake_engine: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_spec: RunSpec) -> Run:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launch, "create_run", full)
    with pytest.raises(EnvironmentProblem) as caught:
        launch.start(make_spec("r"))
    assert caught.value.code == "disk-full"


# Supervisors that do not come up


def replace_supervisor(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(launch.environments, "own_command", lambda *_: [sys.executable, "-c", code])


def test_a_supervisor_that_breaks_at_once_is_a_bug_with_its_last_words(
    fake_engine: Script, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_supervisor(monkeypatch, "raise SystemExit('broken to pieces')")
    with pytest.raises(BugError) as caught:
        launch.start(make_spec("b"))
    assert "broken to pieces" in str(caught.value.context)


def test_a_supervisor_that_found_another_says_busy(
    fake_engine: Script, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_supervisor(monkeypatch, "raise SystemExit(2)")
    with pytest.raises(UserError) as caught:
        launch.start(make_spec("b"))
    assert caught.value.code == "run-busy"


def test_a_supervisor_that_hangs_is_ended(
    fake_engine: Script, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_supervisor(monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(launch, "LEASE_WAIT_S", 0.3)
    with pytest.raises(EnvironmentProblem):
        launch.start(make_spec("b"))
    assert gone(launch._supervisors[-1].pid)
    launch._supervisors[-1].wait()


def test_a_python_that_is_gone(fake_engine: Script, make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.environments, "own_command", lambda *_: ["/not/there"])
    with pytest.raises(TunesmithError):
        launch.start(make_spec("b"))


def test_wait_sees_an_interrupted_run(make_spec: Make) -> None:
    run = create_run(make_spec("i"))
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("hello")
    assert launch.wait(run).state is RunState.INTERRUPTED


def test_the_run_outlives_who_started_it(fake_engine: Script, make_spec: Make, tmp_path: Path) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    spec = tmp_path / "spec.json"
    files.atomic_write_json(spec, make_spec("o").to_dict())
    engine_folder = str(Path(launch.__file__).parents[1])
    code = (
        "import os, sys; from pathlib import Path; from tests.processes import kill;"
        "from tunesmith_core import launch; from tunesmith_core.spec import RunSpec;"
        "launch.start(RunSpec.load(Path(sys.argv[1]))); kill(os.getpid())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([engine_folder, str(Path(__file__).parents[2])])}
    assert subprocess.run([sys.executable, "-c", code, str(spec)], env=environment, check=False).returncode == KILLED
    [run] = iter_runs()
    wait_for(lambda: "step" in kinds(run))
    assert run.leased("engine") is not None
    launch.stop(run)
    assert launch.wait(run).state is RunState.STOPPED


def killed_at(point: str, statement: str) -> None:
    """Run a statement in a process that dies at a crash point."""
    root = str(Path(launch.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {root!r}); from tunesmith_core import launch, runs, spec; {statement}"
    environment = {**os.environ, files.CRASHPOINT_VARIABLE: point}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == KILLED


def test_a_start_that_is_killed_leaves_a_run_that_can_go_on(
    fake_engine: Script, make_spec: Make, tmp_path: Path
) -> None:
    path = tmp_path / "spec.json"
    files.atomic_write_json(path, make_spec("k").to_dict())
    killed_at("launch.after-create", f"launch.start(spec.RunSpec.load(__import__('pathlib').Path({str(path)!r})))")
    (run,) = iter_runs()
    assert run.status().state is RunState.INTERRUPTED
    launch.resume(run)
    assert launch.wait(run).state is RunState.FINISHED


def test_a_resume_waits_for_a_supervisor_that_is_about_to_end(
    home: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(make_spec("s"))
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("result", status="finished", step=1)
    looks = iter([True, True, False])
    monkeypatch.setattr(Run, "is_supervised", lambda _: next(looks, False))
    with pytest.raises(TunesmithError, match="is finished"):
        launch.resume(run)
    assert next(looks, None) is None
