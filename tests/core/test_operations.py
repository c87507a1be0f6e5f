"""The contract of child processes: folder, journal, stop, lease, result; and a runner that leaves nobody behind."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.core.test_supervisor import gone, wait_for
from tunesmith_core import environments, files, paths, terminal
from tunesmith_core.command_line import Parser
from tunesmith_core.errors import EnvironmentProblem, RunFailure, TunesmithError, UserError
from tunesmith_core.messages import said
from tunesmith_core.operations import command, host, kind, kinds, runner
from tunesmith_core.operations.folder import Operation, OperationState, OperationStatus
from tunesmith_core.operations.host import Host, StopWatch, die_with_owner, serve
from tunesmith_core.operations.kind import Kind, all_kinds
from tunesmith_core.operations.kinds.chat import ASK
from tunesmith_core.operations.kinds.engine import (
    BENCH,
    PLAN_CHECK,
    PREVIEW,
    SELFTEST,
    BenchSpec,
    NoSpec,
    PreviewSpec,
    SelftestSpec,
)
from tunesmith_core.operations.kinds.evaluate import EVALUATE
from tunesmith_core.operations.kinds.export import EXPORT
from tunesmith_core.operations.kinds.setup import SETUP, SetupSpec
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.process_identity import ProcessIdentity, current
from tunesmith_core.protocol import Event, post_command, read_journal
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec

REPOSITORY = Path(__file__).resolve().parents[2]

TOY = '''"""A toy: counts to a number, a step at a time."""

import sys
import time
from dataclasses import dataclass

from tunesmith_core.errors import UserError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import Kind, Place


@dataclass(frozen=True, slots=True)
class CountSpec:
    """How far, and how long a step takes."""

    to: int
    pause_s: float = 0.0


def count(host: Host, spec: CountSpec) -> dict[str, int]:
    """Count to a number."""
    if spec.to == 13:
        raise UserError("usage", "It does not count to 13.")
    if spec.to == 99:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    for number in range(spec.to):
        host.phase("counting", number + 1, spec.to)
        time.sleep(spec.pause_s)
    return {"counted": spec.to}


COUNT = Kind(
    name="count",
    title="Counting",
    spec=CountSpec,
    function="tunesmith_core.operations.kinds.toy:count",
    place=Place.SAME,
    help="count to a number",
)
'''


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as it is, with one file more: the toy."""
    top = tmp_path_factory.mktemp("program")
    core = REPOSITORY / "engine" / "tunesmith_core"
    shutil.copytree(core, top / "engine" / "tunesmith_core", ignore=shutil.ignore_patterns("__pycache__"))
    (top / "engine" / "tunesmith_core" / "operations" / "kinds" / "toy.py").write_text(TOY)
    for name in ("gui", "installers", "assets"):
        (top / name).symlink_to(REPOSITORY / name, target_is_directory=True)
    assert len(TOY.splitlines()) <= 60
    return top


def tunesmith(program: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(program / "engine")}
    return subprocess.Popen(
        [sys.executable, "-m", "tunesmith_core", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("home")
def test_a_new_operation_is_one_file(program: Path) -> None:
    with tunesmith(program, "count", "3", "--json") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert [(event.get("done"), event.get("total")) for event in events if event["type"] == "phase"][1:] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]
    assert (events[-1]["status"], events[-1]["answer"]) == ("finished", {"counted": 3})
    with tunesmith(program, "count", "2") as process:
        assert process.communicate(timeout=60)[0].endswith('{\n  "counted": 2\n}\n')
    with tunesmith(program, "count", "13") as process:
        assert "error[usage]: " in process.communicate(timeout=60)[1]
    assert process.returncode == 2
    with tunesmith(program, "--help") as process:
        assert "count to a number" in process.communicate(timeout=60)[0]


@pytest.mark.skipif(sys.platform == "win32", reason="no process gets a signal there")
@pytest.mark.parametrize("number", [signal.SIGINT, getattr(signal, "SIGKILL", 9)])
def test_its_child_ends_with_the_command_line(program: Path, home: Path, number: int) -> None:
    process = tunesmith(program, "count", "1000", "--pause-s", "0.1", "--json")
    assert process.stdout is not None
    for line in process.stdout:
        if '"counting"' in line:
            break
    (folder,) = (home / "tmp" / "operations").iterdir()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == (5 if number == signal.SIGINT else -signal.SIGKILL)
    assert all(gone(int(pid)) for pid in children)
    assert folder.exists() == (number == signal.SIGKILL)
    with tunesmith(program, "count", "1") as process:
        process.communicate(timeout=60)
    assert not folder.exists(), "the next one clears up what a killed owner left"


# The runner, in this process


@pytest.fixture
def made(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Kind]:
    """Return a kind whose child runs a few lines of Python; they see `host` and `operation`."""
    del home
    monkeypatch.setattr(runner, "POLL_S", 0.01)

    def make(lines: str, **options: Any) -> Kind:
        engine = str(REPOSITORY / "engine")
        script = (
            f"import sys, time; sys.path.insert(0, {engine!r})\n"
            "from pathlib import Path\n"
            "from tunesmith_core.operations.folder import Operation\n"
            "from tunesmith_core.operations.host import Host, main\n"
            "operation = Operation(Path(sys.argv[-1]))\nhost = Host(operation)\n" + lines
        )
        monkeypatch.setattr(environments, "own_command", lambda *words: [sys.executable, "-c", script, words[-1]])
        values = {"grace_s": 0.3, "place": kind.Place.SAME, "spec": NoSpec, "function": "a:b"} | options
        return Kind(name="made", title="Trying", **values)

    return make


def left() -> list[Path]:
    return list((paths.tmp_dir() / "operations").glob("*"))


def test_events_and_the_answer_arrive(made: Callable[[str], Kind]) -> None:
    told: list[Event] = []
    what = made("host.phase('x', 1, 2)\nhost.event('result', status='finished', answer=[1])")
    outcome = conduct(what, NoSpec(), on_event=told.append)
    assert (outcome.state, outcome.exit_code, outcome.get()) == (OperationState.FINISHED, 0, [1])
    assert [event.type for event in told] == ["phase", "result"]
    assert left() == []


def test_an_end_without_a_result_is_explained(made: Callable[..., Kind]) -> None:
    outcome = conduct(made("sys.exit('boom')"), NoSpec())
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.context, outcome.exit_code) == ("bug", "boom", 1)
    words = "sys.exit('OSError: [WinError 1455] The paging file is too small')"
    what = made(words, place=kind.Place.TRAINING)
    outcome = conduct(what, NoSpec(), command=lambda operation: environments.own_command(str(operation.path)))
    with pytest.raises(TunesmithError) as caught:
        outcome.get()
    assert caught.value.code == "page-file-too-small"


def test_an_environment_that_is_gone_meanwhile_is_named(made: Callable[..., Kind], tmp_path: Path) -> None:
    gone = str(tmp_path / "envs" / "bin" / "python")
    with pytest.raises(EnvironmentProblem, match=r"bin.python is gone") as caught:
        conduct(made("pass"), NoSpec(), command=lambda _operation: [gone])
    assert caught.value.code == "environment-missing"


def test_one_that_is_silent_for_too_long_is_ended(made: Callable[[str], Kind]) -> None:
    outcome = conduct(made("time.sleep(60)"), NoSpec(), limit_s=0.3)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.in_time) == ("engine-hung", False)


@pytest.mark.parametrize(
    "lines",
    [
        "while not host.stop_requested(): time.sleep(0.01)\nhost.event('result', status='stopped')",
        "time.sleep(60)",
    ],
)
def test_a_canceled_one_stops_or_is_ended(made: Callable[[str], Kind], lines: str) -> None:
    cancel = threading.Event()
    cancel.set()
    outcome = conduct(made(lines), NoSpec(), cancel=cancel)
    assert (outcome.state, outcome.error) == (OperationState.STOPPED, None)
    with pytest.raises(KeyboardInterrupt):
        outcome.get()
    assert left() == []


ESCAPES = pytest.mark.skipif(sys.platform == "win32", reason="what is ended while it starts may escape its job in Wine")


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=ESCAPES)])
def test_control_c_cancels_and_the_second_ends_at_once(
    made: Callable[..., Kind], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    pressed: list[float] = []

    def sleep(_seconds: float) -> None:
        if len(pressed) < times:
            pressed.append(1.0)
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    with pytest.raises(KeyboardInterrupt):
        conduct(made("time.sleep(60)"), NoSpec())
    assert left() == []


def test_one_that_cannot_start_says_why(home: Path, made: Callable[[str], Kind]) -> None:
    with pytest.raises(EnvironmentProblem):
        conduct(made(""), NoSpec(), command=lambda _operation: [__file__])
    shutil.rmtree(home / "tmp")
    (home / "tmp").write_text("in the way")
    with pytest.raises(TunesmithError):
        conduct(made(""), NoSpec())


# The child, in this process


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Operation]:
    """Return a folder in which a function of ours is to be done."""

    def make(function: Callable[[Host, Any], Any]) -> Operation:
        monkeypatch.setattr(sys.modules[__name__], "asked", function, raising=False)
        made = Kind(name="asked", title="Asking", spec=SelftestSpec, function=f"{__name__}:asked")
        monkeypatch.setattr(kind, "all_kinds", lambda: {"asked": made})
        operation = Operation(tmp_path)
        files.atomic_write_json(operation.path / "operation.json", {"version": 1, "kind": "asked"})
        files.atomic_write_json(operation.spec_path, {"device": "cpu"})
        return operation

    return make


def status_of(operation: Operation) -> OperationStatus:
    status = OperationStatus()
    for event in read_journal(operation.journal_path):
        status.fold(event)
    return status


def test_the_child_answers_through_the_journal(in_folder: Callable[..., Operation]) -> None:
    operation = in_folder(lambda _host, spec: {"device": spec.device})
    assert serve(operation) == 0
    status = status_of(operation)
    assert (status.state, status.answer, status.error) == (OperationState.FINISHED, {"device": "cpu"}, None)


def fail(_host: Host, _spec: Any) -> None:
    raise UserError("dataset-empty", "no rows")


def test_its_error_is_the_error(in_folder: Callable[..., Operation]) -> None:
    operation = in_folder(fail)
    assert serve(operation) == 2
    status = status_of(operation)
    assert status.error is not None
    assert (status.state, status.error.code) == (OperationState.FAILED, "dataset-empty")


def test_an_answer_may_hold_the_error_of_its_last_step(in_folder: Callable[..., Operation]) -> None:
    operation = in_folder(lambda _host, _spec: {"steps": 2, "error": RunFailure("cuda-oom", "full").to_dict()})
    assert serve(operation) == 4
    status = status_of(operation)
    assert (status.state, status.answer["steps"]) == (OperationState.FAILED, 2)


def test_a_stop_interrupts_it(in_folder: Callable[..., Operation]) -> None:
    def work(_host: Host, _spec: Any) -> None:
        post_command(operation.control_path, "stop", mode="discard")
        for _ in range(600):  # on Windows no long sleep is interrupted
            time.sleep(0.05)

    operation = in_folder(work)
    assert serve(operation) == 5
    assert status_of(operation).state is OperationState.STOPPED


def test_an_interruption_outside_the_work_stops_it_too(
    in_folder: Callable[..., Operation], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "_perform", interrupt)
    assert serve(in_folder(fail)) == 5


def test_a_stop_that_comes_too_late_interrupts_nothing() -> None:
    with StopWatch(lambda: False) as watch:
        pass
    watch._over.clear()

    def too_late() -> bool:
        watch._over.set()
        return True

    watch._stop_requested = too_late
    watch._watch()


def test_who_has_lost_its_owner_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operation, ended, asked = Operation(tmp_path), [], []
    monkeypatch.setattr(host.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(prctl=lambda *asks: asked.append(asks)))
    monkeypatch.setattr(os, "_exit", ended.append)
    die_with_owner(operation)
    # PR_SET_PDEATHSIG of prctl(2) is 1.
    assert asked == ([(1, signal.SIGKILL, 0, 0, 0)] if sys.platform == "linux" else [])
    operation.lease(owner=current())
    die_with_owner(operation)
    operation.lease(owner=ProcessIdentity(1, 0, "a Windows beside us"))
    die_with_owner(operation)
    assert ended == []
    operation.lease(owner=ProcessIdentity(1, 0, current().boot))
    die_with_owner(operation)
    assert ended == [5]


def test_the_module_runs_a_folder(in_folder: Callable[..., Operation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "die_with_owner", lambda _operation: None)
    monkeypatch.setattr(host.faulthandler, "enable", lambda: None)
    assert host.main([str(in_folder(fail).path)]) == 2


# States and kinds


def test_progress_is_folded_from_the_journal() -> None:
    status = OperationStatus()
    for event_kind, data, share in (
        ("phase", {"name": "starting"}, None),
        ("phase", {"name": "reading", "done": 1, "total": 4}, 0.25),
        ("progress", {"name": "download", "done_bytes": 9, "total_bytes": 6}, 1.0),
        ("progress", {"done_bytes": 9, "total_bytes": 0}, None),
        ("log", {"text": "x"}, None),
    ):
        status.fold(Event(1, 0.0, event_kind, data))
        assert status.share == share
    assert (status.state, status.phase) == (OperationState.RUNNING, "download")
    status.fold(Event(2, 0.0, "stopping", {}))
    status.fold(Event(3, 0.0, "phase", {"name": "end"}))
    assert status.state is OperationState.STOPPING


def test_kinds_are_found_by_their_modules(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert {PLAN_CHECK, PREVIEW, SELFTEST, SETUP} <= set(all_kinds().values())
    assert all(name == found.name for name, found in all_kinds().items())
    assert kinds.__path__
    words = SETUP.command(Operation(Path("/o")), SetupSpec(("doctor", "--full")))
    assert words[-5:] == ["tunesmith_setup", "doctor", "--full", "--operation", str(Path("/o"))]
    spec = RunSpec(name="x")
    spec.model.path, spec.data.sources[0].path = "m", "d.jsonl"
    spec.hardware.devices = ["cuda:1"]
    assert PREVIEW.environment(PreviewSpec(spec))["CUDA_VISIBLE_DEVICES"] == "1"
    assert PLAN_CHECK.environment(spec)["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in SELFTEST.environment(SelftestSpec())
    monkeypatch.setenv("MINE", "kept")
    assert SETUP.environment(SetupSpec(())) == dict(os.environ) | {paths.HOME_VARIABLE: str(paths.data_root())}
    assert SELFTEST.command(Operation(Path("/o")), SelftestSpec(), Path("python"))[0] == "python"
    assert PREVIEW.spec_from(PREVIEW.spec_values(PreviewSpec(spec, 7))) == PreviewSpec(spec, 7)


def test_a_command_is_made_of_the_spec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from argparse import ArgumentParser

    parser = ArgumentParser()
    command.add_arguments(parser, SELFTEST)
    asked: list[Any] = []

    def answer(_kind: Kind, spec: Any, **_options: Any) -> Outcome:
        asked.append(spec)
        return Outcome(OperationState.FINISHED, 0, {"state": "ok"})

    monkeypatch.setattr(command, "conduct", answer)
    spec = command.spec_of(SELFTEST, parser.parse_args(["--device", "cpu"]))
    assert command.run(SELFTEST, spec, terminal.say_json, as_json=False) == 0
    assert json.loads(capsys.readouterr().out) == {"state": "ok"}
    spec = command.spec_of(SELFTEST, parser.parse_args([]))
    assert command.run(SELFTEST, spec, terminal.say_json, as_json=True) == 0
    assert capsys.readouterr().out == ""
    assert asked == [SelftestSpec("cpu"), SelftestSpec("auto")]
    parser = ArgumentParser()
    command.add_arguments(parser, BENCH)
    spec = command.spec_of(BENCH, parser.parse_args(["MODEL", "a:1:64 b:2:64", "--fp8", "--rank", "4"]))
    assert spec == BenchSpec("MODEL", "a:1:64 b:2:64", rank=4, fp8=True)


@pytest.mark.parametrize("kind", [ASK, EVALUATE], ids=lambda kind: kind.name)
def test_help_explains_every_option_in_both_languages(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    # However wide the terminal is, a text may not be broken.
    monkeypatch.setenv("COLUMNS", "500")
    parser = Parser(prog="tunesmith")
    command.add_arguments(parser, kind)
    names = {field.name for field in dataclasses.fields(kind.spec)}
    assert kind.options.keys() == names - {"run", "read_as"}, "how a file is read is told with its own options"
    shown = parser.format_help()
    assert "a run: its name, its id as `tunesmith runs` lists it, its folder, or `latest`" in shown
    for name, words in kind.options.items():
        assert words in shown
        assert said(words, "zh_CN") != words, f"{kind.name} --{name} has no Chinese"
    if kind is ASK:
        assert "most tokens of an answer (512)" in shown


def test_a_child_takes_its_time_to_end(made: Callable[..., Kind]) -> None:
    cancel = threading.Event()
    what = made(
        "while not host.stop_requested(): time.sleep(0.01)\n"
        "time.sleep(0.3)\nhost.event('result', status='finished', answer=1)",
        grace_s=20.0,
    )
    cancel.set()
    assert conduct(what, NoSpec(), cancel=cancel).answer == 1
    wait_for(lambda: left() == [])


def test_the_host_obeys_commands_and_signals_and_copies_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "POLL_INTERVAL_S", 0.0)
    operation = Operation(tmp_path)
    with Host(operation) as made:
        made._last_poll_s = -1.0
        for name, more in (("ping", {}), ("sample", {"prompt": "x"}), ("stop", {"mode": "maybe"})):
            post_command(operation.control_path, name, **more)
        (waiting,) = made.take_commands()
        assert made.stop_mode is None
        made.ack(waiting, False, "not now")
        made.warning("disk-full", "nearly")
        logging.getLogger("library").warning("old %s", "thing")
        logging.getLogger("py.warnings").warning("%s", "x.py:1: FutureWarning: it goes\n  warnings.warn(\n")
        made.on_signal()
        assert made.stop_requested()
        post_command(operation.control_path, "stop", mode="discard")
        post_command(operation.control_path, "stop", mode="save")
        monkeypatch.setattr(host, "POLL_INTERVAL_S", 60.0)
        made.stop_requested()
        assert made.stop_mode == "save", "it does not look that often"
        monkeypatch.setattr(host, "POLL_INTERVAL_S", 0.0)
        made.stop_requested()
        assert made.stop_mode == "discard"
    events = read_journal(operation.journal_path)
    acks = [(event.data["command"], event.data["ok"]) for event in events if event.type == "ack"]
    assert acks == [("ping", True), ("stop", False), ("sample", False), ("stop", True), ("stop", True)]
    assert [event.data["mode"] for event in events if event.type == "stopping"] == ["save", "discard"]
    assert [event.data["text"] for event in events if event.type == "log"] == [
        "old thing",
        "x.py:1: FutureWarning: it goes",
    ]
    assert [event.data["code"] for event in events if event.type == "warning"] == ["disk-full"]


def test_the_engine_is_asked_by_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "engine_command", lambda *words: list(words))
    assert SELFTEST.command(Operation(Path("/o")), SelftestSpec()) == ["operation", str(Path("/o"))]


def test_only_what_a_dead_owner_left_is_removed(made: Callable[[str], Kind]) -> None:
    parent = paths.tmp_dir() / "operations"
    for name, owner in (("dead", ProcessIdentity(1, 0, "x")), ("mine", current())):
        (parent / name).mkdir(parents=True)
        Operation(parent / name).lease(owner=owner)
    (parent / "busy").mkdir()
    Operation(parent / "busy").lease_path.write_text("{")
    # Killed before it said whose it is: who begins one holds the lock until then.
    (parent / "just-begun" / "control").mkdir(parents=True)
    conduct(made("host.event('result', status='finished')"), NoSpec())
    assert {path.name for path in left()} == {"mine", "busy"}


def test_the_watch_looks_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "POLL_INTERVAL_S", 0.01)
    looks: list[float] = []
    with StopWatch(lambda: bool(looks.append(0.0))):
        wait_for(lambda: len(looks) > 1)


@pytest.mark.usefixtures("home")
def test_a_child_that_does_not_know_its_kind_says_so() -> None:
    outcome = conduct(Kind(name="newer", title="Trying", spec=NoSpec, place=kind.Place.SAME), NoSpec())
    assert outcome.error is not None
    assert (outcome.error.code, outcome.exit_code) == ("bug", 1)
    assert "newer" in outcome.error.message


@pytest.mark.usefixtures("home")
def test_the_command_line_reads_runs_and_paths_for_a_child_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(RunSpec(name="mine"))
    parser = Parser(prog="tunesmith export")
    command.add_arguments(parser, EXPORT)
    monkeypatch.chdir(tmp_path)
    read = vars(parser.parse_args(["mine-01", "--to", "out", "--checkpoint", "3", "--lm-studio"]))
    assert (read["run"], read["checkpoint"], read["format"]) == (str(run.path), 3, "merged")
    assert (read["lm_studio"], read["ollama"]) == (True, "")
    assert read["to"] == str(tmp_path / "out")
    monkeypatch.chdir(run.path.parent)
    assert vars(parser.parse_args([f"..{os.sep}runs{os.sep}mine-01"]))["run"].endswith(run.id)
    with pytest.raises(TunesmithError) as unknown:
        parser.parse_args(["other"])
    assert unknown.value.code == "run-not-found"
    with pytest.raises(TunesmithError, match="not valid text"):
        parser.parse_args(["mine-01", "--ollama", "a\udcff"])
    with pytest.raises(TunesmithError, match="zip"):
        parser.parse_args(["mine-01", "--format", "zip"])
