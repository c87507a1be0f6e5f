"""Operations in the window: answer, error, crash, cancel, a closing window, and no child that outlives any of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QTimer
from pytestqt.qtbot import QtBot
from shiboken6 import delete

from tests.core.test_supervisor import gone
from tunesmith_core import paths
from tunesmith_core.operations.kinds.engine import PREVIEW, PreviewSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.spec import RunSpec
from tunesmith_gui.services.operation import DRAIN_BUDGET_S, OperationTask, operations

ENGINE = Path(paths.__file__).parents[1]
Scripted = Callable[[str], None]


@pytest.fixture
def scripted(home: Path) -> Scripted:
    """Installs a training environment whose engine runs a few lines of Python; they see `host`, `spec` and `answer`."""

    def install(lines: str) -> None:
        folder = home / "envs" / "train-x"
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        script = folder / "engine.py"
        script.write_text(
            f"import sys; sys.path.insert(0, {str(ENGINE)!r})\n"
            "import json, os, pathlib, signal, subprocess, time\n"
            "from tunesmith_core.operations.folder import Operation\n"
            "from tunesmith_core.operations.host import Host, die_with_owner\n"
            "operation = Operation(pathlib.Path(sys.argv[-1]))\n"
            "die_with_owner(operation)\n"
            "host = Host(operation)\n"
            "spec = json.loads(operation.spec_path.read_text())\n"
            "def answer(value):\n"
            "    host.event('result', status='finished', exit_code=0, answer=value)\n" + lines
        )
        python = folder / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
        python.chmod(0o755)
        (home / "envs" / "train.current").write_text("train-x")

    return install


@pytest.fixture
def owner(qapp: object) -> QObject:
    del qapp
    return QObject()


def preview(owner: QObject) -> OperationTask:
    return OperationTask(PREVIEW, PreviewSpec(RunSpec(name="mine"), 3), parent=owner)


def left_in_tmp() -> list[Path]:
    return list(paths.tmp_dir().glob("operations/*"))


def test_the_answer_arrives_and_nothing_is_left(qtbot: QtBot, scripted: Scripted, owner: QObject) -> None:
    scripted("host.phase('reading', 1, 4)\nanswer({'name': spec['run']['name'], 'rows': spec['num_rows']})")
    task = preview(owner)
    shares: list[float | None] = []
    task.happened.connect(lambda _event: shares.append(task.status.share))
    with qtbot.waitSignal(task.ended, timeout=10_000), qtbot.waitSignal(task.succeeded, timeout=10_000) as answer:
        task.start()
        assert operations().live == [task]
    assert answer.args == [{"name": "mine", "rows": 3}]
    assert shares[0] == 0.25
    assert operations().live == []
    assert left_in_tmp() == []


def test_an_error_of_the_child_arrives_as_one(qtbot: QtBot, scripted: Scripted, owner: QObject) -> None:
    error = {"code": "dataset-empty", "kind": "UserError", "message": "no rows", "hint": "add some"}
    words = json.dumps(json.dumps(error))
    scripted(f"host.event('error', **json.loads({words}))\nhost.event('result', status='failed')")
    task = preview(owner)
    with qtbot.waitSignal(task.failed, timeout=10_000) as answer:
        task.start()
    assert (answer.args[0].code, answer.args[0].message) == ("dataset-empty", "no rows")


def test_a_crash_is_explained_by_its_last_words(qtbot: QtBot, scripted: Scripted, owner: QObject) -> None:
    scripted("sys.stderr.write('OSError: [WinError 1455] The paging file is too small'); sys.exit(7)")
    task = preview(owner)
    with qtbot.waitSignal(task.failed, timeout=10_000) as answer:
        task.start()
    assert answer.args[0].code == "page-file-too-small"
    scripted("sys.stderr.write('boom'); sys.exit(7)")
    task = preview(owner)
    with qtbot.waitSignal(task.failed, timeout=10_000) as answer:
        task.start()
    assert answer.args[0].code == "engine-crashed"
    assert "exit code 7" in answer.args[0].message
    assert answer.args[0].context == "boom"
    assert answer.args[0].hint == "Start it again. If it ends once more, send us the report."


def test_without_an_environment_it_fails_by_that_name(qtbot: QtBot, home: Path, owner: QObject) -> None:
    del home
    task = preview(owner)
    with qtbot.waitSignal(task.failed, timeout=10_000) as answer:
        task.start()
    assert answer.args[0].code == "environment-missing"


GRANDCHILD = """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
pathlib.Path({path!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
@pytest.mark.parametrize("way", ["cancel", "abandon", "owner"])
def test_however_it_ends_no_child_is_left(
    qtbot: QtBot, scripted: Scripted, home: Path, owner: QObject, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunesmith_core.operations.runner.POLL_S", 0.01)
    began = home / "began"
    scripted(GRANDCHILD.format(path=str(began)))
    task = preview(owner)
    heard: list[object] = []
    ended: list[Outcome] = []
    task.succeeded.connect(heard.append)
    task.failed.connect(heard.append)
    task.ended.connect(ended.append)
    task.start()
    qtbot.waitUntil(lambda: began.exists() and bool(began.read_text()), timeout=10_000)
    if way == "cancel":
        task.cancel()
    elif way == "abandon":
        task.abandon()
    else:
        delete(owner)
    qtbot.waitUntil(lambda: not task._thread.is_alive() and not operations().live, timeout=10_000)
    assert all(gone(int(pid)) for pid in began.read_text().split())
    assert heard == []
    assert [outcome.state for outcome in ended] == (["stopped"] if way == "cancel" else [])
    assert left_in_tmp() == []


def test_a_flood_of_events_leaves_the_window_its_turns(qtbot: QtBot, scripted: Scripted, owner: QObject) -> None:
    scripted("for n in range(20_000): host.event('progress', name='x', done_bytes=n, total_bytes=20_000)\nanswer({})")
    task = preview(owner)
    counts: list[int] = []
    events: list[object] = []
    task.happened.connect(events.append)
    timer = QTimer(owner)
    timer.timeout.connect(lambda: counts.append(len(events)))
    timer.start(1)
    with qtbot.waitSignal(task.ended, timeout=30_000):
        task.start()
    timer.stop()
    assert len(events) == 20_001
    assert len({count for count in counts if 0 < count < len(events)}) > 3
    assert DRAIN_BUDGET_S < 0.05
