"""The supervisor in this process, with a scripted engine: every way a run can end."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processes import KILLED
from tunesmith_core import engine_process, supervisor
from tunesmith_core.capped_log import CappedLog
from tunesmith_core.engine_process import EngineProcess
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_core.forced_stop import Limits
from tunesmith_core.locks import FileLock
from tunesmith_core.process_identity import ProcessIdentity, identify
from tunesmith_core.protocol import JournalWriter, post_command, read_journal
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.supervisor import Supervisor, engine_error

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]

with_signals = pytest.mark.skipif(sys.platform == "win32", reason="no process is ended by a signal here")
QUICK = Limits(stop_s=0.4, terminate_s=0.4, save_s=0.4, result_s=0.4)


@pytest.fixture(autouse=True)
def fast_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "POLL_S", 0.02)


def gone(pid: int, limit_s: float = 30.0) -> bool:
    """Wait until a process has ended."""
    deadline = time.monotonic() + limit_s
    while identify(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return identify(pid) is None


def sleeping_process() -> subprocess.Popen[bytes]:
    """Start a process group that ends by itself only after a minute."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)


def wait_for(condition: Callable[[], object], limit_s: float = 240.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def kinds(run: Run) -> list[str]:
    return [event.type for event in read_journal(run.journal_path)]


@pytest.fixture
def supervise(fake_engine: Script, make_spec: Make) -> Callable[..., tuple[Run, Supervisor]]:
    """Run a script to its end under quick limits and return the run."""

    def play(*actions: list[Any], limits: Limits = QUICK, **options: Any) -> tuple[Run, Supervisor]:
        fake_engine({"*": list(actions)})
        run = create_run(make_spec("s"))
        made = Supervisor(run, limits, **options)
        made.supervise()
        return run, made

    return play


def test_a_good_run_is_left_as_the_engine_ended_it(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    run, _ = supervise(["hello"], ["say", "hello world"], ["steps", 2], ["show_environment"], ["result", "finished"])
    assert run.status().state is RunState.FINISHED
    assert kinds(run) == ["phase", "hello", "phase", "step", "step", "result"]
    assert run.engine_log_path.read_text() == "hello world\n"
    assert not run.is_supervised()
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert not run.lease_path.exists()
    assert (run.path.parents[1] / "library.sqlite").exists()


@pytest.mark.parametrize(
    ("action", "code", "words"),
    [
        pytest.param(["kill_self", 9], "engine-killed", "SIGKILL", marks=with_signals),
        pytest.param(["kill_self", 11], "engine-crashed", "SIGSEGV", marks=with_signals),
        pytest.param(["kill_self", 15], "engine-crashed", "SIGTERM", marks=with_signals),
        (["exit", 0], "engine-crashed", "exit code 0"),
        (["exit", 7], "engine-crashed", "exit code 7"),
    ],
)
def test_an_engine_without_a_result_gets_one(
    supervise: Callable[..., tuple[Run, Supervisor]], action: list[Any], code: str, words: str
) -> None:
    run, _ = supervise(["hello"], ["steps", 2], ["say", "last words hf_abcdefghijklmnop"], action)
    status = run.status()
    assert status.state is RunState.FAILED
    assert status.error is not None
    assert status.error["code"] == code
    assert words in status.error["message"]
    assert "last words <token>" in status.error["context"]
    assert read_journal(run.journal_path)[-1].data["code"] == code


def test_the_engines_last_words_name_the_cause(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    words = "OSError: [WinError 1455] Die Auslagerungsdatei ist zu klein"
    run, _ = supervise(["hello"], ["say", words], ["exit", 1])
    error = run.status().error
    assert error is not None
    assert error["code"] == "page-file-too-small"
    assert words in error["message"]
    assert "page file" in error["hint"]
    assert words in error["context"]
    assert read_journal(run.journal_path)[-1].data["code"] == "page-file-too-small"


def test_a_cause_far_from_the_end_of_the_output_is_found(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    words = "OSError: [WinError 1455] The paging file is too small"
    run, _ = supervise(
        ["hello"], ["say", words], *([["say", f"worker {number} left"] for number in range(60)]), ["exit", 1]
    )
    error = run.status().error
    assert error is not None
    assert (error["code"], error["actions"]) == ("page-file-too-small", ["open-page-file-settings", "retry"])
    assert words not in error["context"]


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("short", [True, False])
def test_a_lost_engine_leaves_true_advice(
    supervise: Callable[..., tuple[Run, Supervisor]], saved: bool, short: bool
) -> None:
    reading = {"host_used_bytes": 15 if short else 4, "host_total_bytes": 16}
    run, _ = supervise(
        ["hello"], ["steps", 2], *([["checkpoint"]] if saved else []), ["event", "gpu", reading], ["exit", 9]
    )
    error = run.status().error
    assert error is not None
    assert ("Resume from step 2" in error["hint"] or "resume from step 2" in error["hint"]) is saved
    assert ("start the run again" in error["hint"].lower()) is not saved
    assert ("Close other programs" in error["hint"]) is short


def test_an_engine_that_got_no_memory_says_so(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    run, _ = supervise(
        ["hello"], ["say", "terminate called after throwing an instance of 'std::bad_alloc'"], ["exit", 9]
    )
    error = run.status().error
    assert error is not None
    assert error["code"] == "memory-full"
    assert "std::bad_alloc" in error["context"]


@with_signals
def test_an_engine_that_its_control_group_ended_says_so(
    supervise: Callable[..., tuple[Run, Supervisor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter([3, 4])
    monkeypatch.setattr(supervisor.memory_limits, "num_kills", lambda: next(kills))
    run, _ = supervise(["hello"], ["kill_self", 9])
    error = run.status().error
    assert error is not None
    assert error["code"] == "memory-full"
    assert "memory ran out" in error["message"]


def test_an_adapter_whose_switch_was_cut_short_is_put_back_before_the_engine_looks(
    supervise: Callable[..., tuple[Run, Supervisor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made = supervise(["hello"], ["result", "stopped"])
    (run.tmp_path / "earlier-adapter").mkdir(parents=True)
    (run.tmp_path / "adapter-1234").mkdir()
    found: list[tuple[bool, bool]] = []
    monkeypatch.setattr(made, "_run_engine", lambda _: found.append((run.adapter_path.is_dir(), run.tmp_path.exists())))
    made.supervise()
    assert found == [(True, False)]


def test_what_a_killed_engine_left_of_a_switch_is_swept(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    run, made = supervise(["hello"], ["result", "stopped"])
    start = made._start_engine

    def start_and_leave(*arguments: Any) -> Any:
        engine = start(*arguments)
        (run.tmp_path / "earlier-adapter").mkdir(parents=True)
        return engine

    made._start_engine = start_and_leave  # type: ignore[method-assign]
    made.supervise()
    assert run.adapter_path.is_dir()
    assert not run.tmp_path.exists()


def test_odd_exit_codes_have_words() -> None:
    assert "signal 63" in engine_error(-63).message
    assert "0xc0000005" in engine_error(0xC0000005).message


def test_the_engines_own_error_stands(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    run, _ = supervise(["hello"], ["event", "error", {"code": "cuda-oom", "kind": "RunFailure"}], ["exit", 4])
    status = run.status()
    assert (status.state, status.error) == (RunState.FAILED, {"code": "cuda-oom", "kind": "RunFailure"})
    assert read_journal(run.journal_path)[-1].data["code"] == "cuda-oom"


def test_a_torn_journal_of_a_killed_engine_gets_a_readable_end(
    supervise: Callable[..., tuple[Run, Supervisor]], fake_engine: Script, make_spec: Make
) -> None:
    fake_engine({"*": [["hello"], ["kill_self", 9]]})
    run = create_run(make_spec("t"))
    run.journal_path.write_bytes(b'{"v":1,"seq":1,"t":0,"type":"st')
    Supervisor(run, QUICK).supervise()
    assert run.status().state is RunState.FAILED
    assert kinds(run)[-2:] == ["error", "result"]


def test_an_engine_that_cannot_start(
    make_spec: Make, fake_engine: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = create_run(make_spec("n"))
    monkeypatch.setattr(supervisor.environments, "engine_command", lambda *_: [str(run.path / "not-there")])
    Supervisor(run, QUICK).supervise()
    assert run.status().state is RunState.FAILED

    def missing(*_: str) -> list[str]:
        raise EnvironmentProblem("environment-missing", "gone")

    monkeypatch.setattr(supervisor.environments, "engine_command", missing)
    Supervisor(run, QUICK).supervise()
    assert read_journal(run.journal_path)[-1].data["code"] == "environment-missing"


def test_an_end_that_cannot_be_written_leaves_the_run_interrupted(
    make_spec: Make, fake_engine: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = create_run(make_spec("n"))

    def full(self: JournalWriter, kind: str, /, **data: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(JournalWriter, "write", full)
    Supervisor(run, QUICK).supervise()
    monkeypatch.undo()
    assert "the end could not be written" in caplog.text
    assert run.journal_path.read_bytes() == b""


@pytest.mark.parametrize("fault", ["no file", "own mistake"])
def test_a_broken_index_does_not_spoil_the_end(
    supervise: Callable[..., tuple[Run, Supervisor]],
    home: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    if fault == "no file":
        (home / "library.sqlite").mkdir()
    else:
        monkeypatch.setattr(supervisor.Library, "refresh", lambda *_: 1 // 0)
    run, _ = supervise(["hello"], ["result", "finished"])
    assert run.status().state is RunState.FINISHED
    words = {"no file": "index can't be written", "own mistake": "index could not be updated"}
    assert words[fault] in caplog.text


def test_a_second_supervisor_is_refused(make_spec: Make, fake_engine: Script) -> None:
    run = create_run(make_spec("b"))
    with FileLock(run.lock_path), pytest.raises(UserError) as caught:
        Supervisor(run).supervise()
    assert caught.value.code == "run-busy"
    assert not run.journal_path.exists()


# Stopping


def test_a_stop_is_left_to_the_engine(supervise: Callable[..., tuple[Run, Supervisor]], home: Path) -> None:
    run_path = home / "runs" / "s-01"

    def stop() -> None:
        wait_for(lambda: "step" in kinds(Run(run_path)))
        post_command(run_path / "control", "stop", mode="save")

    thread = threading.Thread(target=stop)
    thread.start()
    run, _ = supervise(["hello"], ["obey"], limits=Limits())
    thread.join()
    assert run.status().state is RunState.STOPPED
    assert "ack" in kinds(run)


@pytest.mark.parametrize(
    ("script", "mode", "state", "code"),
    [
        ([["hello"], ["steps", 2]], "save", RunState.FAILED, "engine-hung"),
        ([["hello"], ["steps", 2], ["checkpoint"]], "save", RunState.STOPPED, None),
        ([["hello"], ["steps", 2]], "discard", RunState.STOPPED, None),
        ([], "save", RunState.STOPPED, None),
    ],
)
def test_an_engine_that_ignores_a_stop_is_killed_with_its_grandchildren(
    supervise: Callable[..., tuple[Run, Supervisor]],
    home: Path,
    script: list[Any],
    mode: str,
    state: RunState,
    code: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pids = home / "runs" / "s-01" / "grandchild.pid"

    def stop() -> None:
        wait_for(pids.exists)
        post_command(pids.parent / "control", "stop", mode=mode)

    thread = threading.Thread(target=stop)
    thread.start()
    run, _ = supervise(["ignore_terminate"], *script, ["grandchild"], ["sleep", 60])
    thread.join()
    status = run.status()
    assert status.state is state
    assert (status.error or {}).get("code") == code
    assert gone(int(pids.read_text()))
    assert "terminate" in caplog.text
    assert "kill" in caplog.text or sys.platform == "win32"  # terminating asks nobody there


def test_an_engine_that_hangs_after_its_result_is_killed(
    supervise: Callable[..., tuple[Run, Supervisor]], caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = supervise(["ignore_terminate"], ["hello"], ["grandchild"], ["result", "finished"], ["sleep", 60])
    assert run.status().state is RunState.FINISHED
    assert gone(int((run.path / "grandchild.pid").read_text()))


def test_a_signal_to_the_supervisor_is_a_stop_that_saves(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    run = create_run(make_spec("s"))
    made = Supervisor(run)
    thread = threading.Thread(
        target=lambda: (wait_for(lambda: "step" in kinds(run)), setattr(made, "signalled", "save"))
    )
    thread.start()
    made.supervise()
    thread.join()
    assert run.status().state is RunState.STOPPED
    assert [event.data["mode"] for event in read_journal(run.journal_path) if event.type == "stopping"] == ["save"]


# Output and leftovers


def test_a_flood_of_output_is_capped(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    run, _ = supervise(["hello"], ["flood", 3_000_000], ["say", "end"], ["result", "finished"], log_cap_bytes=100_000)
    assert run.status().state is RunState.FINISHED
    assert run.engine_log_path.stat().st_size < 200_000
    text = run.engine_log_path.read_text()
    assert "bytes left out" in text
    assert text.endswith("end\n")


def test_a_grandchild_that_outlives_a_good_run_is_ended(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    run, _ = supervise(["hello"], ["grandchild"], ["result", "finished"])
    assert gone(int((run.path / "grandchild.pid").read_text()))


def test_only_who_adopts_ends_the_adopted(tmp_path: Path) -> None:
    """In a window, a new child may be the supervisor of a run."""
    engine = EngineProcess(["true"], folder=tmp_path, environment={}, log_path=tmp_path / "log", binds_itself=True)
    other = sleeping_process()
    try:
        wait_for(engine.ended)
        assert engine.close() == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="a job holds all descendants here, so none is adopted")
def test_an_adopted_process_is_ended_and_older_children_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "_is_subreaper", True)
    mine = subprocess.Popen(["sleep", "60"])
    try:
        engine = EngineProcess(["true"], folder=tmp_path, environment={}, log_path=tmp_path / "log")
        wait_for(engine.ended)
        adopted = subprocess.Popen(["sleep", "60"])
        assert engine.close() == 0
        assert gone(adopted.pid)
        adopted.wait()
        assert mine.poll() is None
        assert engine.ended()
        engine.terminate()
    finally:
        mine.kill()
        mine.wait()


def test_a_log_that_fails_does_not_fail_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: CappedLog, lines: bytes) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(CappedLog, "_append", full)
    script = [sys.executable, "-c", "import os; os.write(1, b'one\\ntwo')"]
    engine = EngineProcess(script, folder=tmp_path, environment={**os.environ}, log_path=tmp_path / "log")
    wait_for(engine.ended)
    assert engine.close() == 0
    assert "log can't be written" in caplog.text


def test_a_log_that_fails_at_its_end_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: CappedLog) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(CappedLog, "close", full)
    command = [sys.executable, "-c", ""]
    engine = EngineProcess(command, folder=tmp_path, environment={**os.environ}, log_path=tmp_path / "log")
    wait_for(engine.ended)
    assert engine.close() == 0
    assert "log can't be written" in caplog.text


def test_a_leftover_engine_is_ended_by_the_next_supervisor(
    fake_engine: Script, make_spec: Make, caplog: pytest.LogCaptureFixture
) -> None:
    orphan = sleeping_process()
    identity = identify(orphan.pid)
    assert identity is not None
    run = create_run(make_spec("l"))
    run.lease(supervisor=ProcessIdentity(1, 0, "x"), engine=identity)
    Supervisor(run, QUICK).supervise()
    assert orphan.wait(5) == KILLED
    assert "lost its supervisor" in caplog.text
    assert run.status().state is RunState.FINISHED


def test_a_reused_pid_is_left_alone() -> None:
    stranger = sleeping_process()
    try:
        identity = identify(stranger.pid)
        assert identity is not None
        assert not engine_process.kill_leftover(ProcessIdentity(stranger.pid, identity.start - 1, identity.boot))
        assert not engine_process.kill_leftover(ProcessIdentity(1, 0, ""))
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# As a process


def start_process(run: Run, **variables: str) -> subprocess.Popen[bytes]:
    engine_folder = str(Path(supervisor.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "tunesmith_core.supervisor", str(run.path)],
        env={**os.environ, **variables, "PYTHONPATH": engine_folder},
        stderr=subprocess.PIPE,
    )


def engine_pid(run: Run) -> int:
    wait_for(lambda: run.leased("engine"))
    leased = run.leased("engine")
    assert leased is not None
    return leased.pid


def test_the_engine_dies_with_its_supervisor(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["ignore_terminate"], ["hello"], ["sleep", 60]]})
    run = create_run(make_spec("k"))
    with start_process(run) as process:
        pid = engine_pid(run)
        process.kill()
    assert gone(pid)
    assert run.status().state is RunState.INTERRUPTED


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without asking")
def test_a_terminated_supervisor_saves_and_ends_a_detached_grandchild(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["grandchild", True], ["obey"]]})
    run = create_run(make_spec("k"))
    with start_process(run) as process:
        wait_for(lambda: "step" in kinds(run))
        process.send_signal(signal.SIGHUP)
        process.terminate()
        assert process.wait(30) == 0
    assert run.status().state is RunState.STOPPED
    assert gone(int((run.path / "grandchild.pid").read_text()))


@pytest.mark.parametrize("point", ["supervisor.after-lease", "supervisor.after-engine-start", "supervisor.before-end"])
def test_a_kill_anywhere_leaves_nothing_running_and_the_run_can_go_on(
    fake_engine: Script,
    make_spec: Make,
    point: str,
    caplog: pytest.LogCaptureFixture,  # beside other work the end may take longer than the short grace of a test
) -> None:
    fake_engine({"*": [["hello"], ["exit", 3]]})
    run = create_run(make_spec("k"))
    with start_process(run, TUNESMITH_CRASHPOINT=point) as process:
        assert process.wait(30) == KILLED
    leased = run.leased("engine")
    assert leased is None or gone(leased.pid)
    assert run.status().state is RunState.INTERRUPTED
    fake_engine({})
    Supervisor(run, QUICK).supervise()
    assert run.status().state is RunState.FINISHED


def test_the_process_reports_what_it_could_not_do(home: Path, make_spec: Make, fake_engine: Script) -> None:
    run = create_run(make_spec("k"))
    with FileLock(run.lock_path), start_process(run) as process:
        assert process.wait(30) == 2
        assert process.stderr is not None
        assert b"run-busy" in process.stderr.read()


def test_main_restores_nothing_but_supervises(
    fake_engine: Script, make_spec: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = {}
    monkeypatch.setattr(supervisor.signal, "signal", lambda number, handler: handlers.__setitem__(number, handler))
    monkeypatch.setattr(supervisor, "become_subreaper", lambda: None)
    monkeypatch.setattr(supervisor.os, "umask", lambda mask: mask)
    monkeypatch.setattr(supervisor, "enter", lambda run: run)
    # A run that does not answer at once leaves the commands lying where the supervisor sees them.
    fake_engine({"*": [["hello"], ["sleep", 0.3], ["obey"]]})
    run = create_run(make_spec("m"))
    post_command(run.control_path, "ping")
    made: list[Supervisor] = []
    monkeypatch.setattr(supervisor, "Supervisor", lambda run: made.append(Supervisor(run)) or made[0])

    def terminate() -> None:
        wait_for(lambda: "step" in kinds(run))
        handlers[signal.SIGTERM](signal.SIGTERM, None)

    thread = threading.Thread(target=terminate)
    thread.start()
    assert supervisor.main([str(run.path)]) == 0
    thread.join()
    assert run.status().state is RunState.STOPPED
    made.clear()
    with FileLock(run.lock_path):
        assert supervisor.main([str(run.path)]) == 2
    assert "run-busy" in caplog.text
