"""One engine subcommand as a child process: answer, error, crash, cancel."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from tunesmith_core import paths
from tunesmith_core.spec import RunSpec
from tunesmith_gui.services.engine_task import EngineTask

Scripted = Callable[[str], None]


@pytest.fixture
def scripted(home: Path) -> Scripted:
    """Installs a training environment whose engine runs a few lines of Python; they see `out` and `spec`."""

    def install(lines: str) -> None:
        folder = home / "envs" / "train-x"
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        script = folder / "engine.py"
        script.write_text(
            "import json, pathlib, sys, time\n"
            "argv = sys.argv\n"
            "out = pathlib.Path(argv[argv.index('--out') + 1])\n"
            "spec = json.loads(pathlib.Path(argv[argv.index('--spec') + 1]).read_text())\n" + lines
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


def left_in_tmp() -> list[Path]:
    return list(paths.tmp_dir().glob("engine-*"))


def test_the_answer_arrives_and_nothing_is_left(qtbot: QtBot, scripted: Scripted, owner: QObject) -> None:
    scripted("out.write_text(json.dumps({'name': spec['name'], 'rows': argv[argv.index('--rows') + 1]}))")
    task = EngineTask("preview", RunSpec(name="mine"), "--rows", "3", parent=owner)
    with qtbot.waitSignal(task.succeeded, timeout=10_000) as answer:
        task.start()
    assert answer.args == [{"name": "mine", "rows": "3"}]
    qtbot.waitUntil(lambda: not left_in_tmp())


def test_an_error_in_the_result_arrives_as_one(qtbot: QtBot, scripted: Scripted, owner: QObject) -> None:
    error = {"code": "dataset-empty", "kind": "UserError", "message": "no rows", "hint": "add some"}
    scripted(f"out.write_text(json.dumps({{'error': {json.dumps(error)}}})); sys.exit(2)")
    task = EngineTask("preview", RunSpec(), parent=owner)
    with qtbot.waitSignal(task.failed, timeout=10_000) as answer:
        task.start()
    assert (answer.args[0].code, answer.args[0].message) == ("dataset-empty", "no rows")


def test_a_crash_says_so_with_its_last_words(qtbot: QtBot, scripted: Scripted, owner: QObject) -> None:
    scripted("sys.stderr.write('boom'); sys.exit(7)")
    task = EngineTask("preview", RunSpec(), parent=owner)
    with qtbot.waitSignal(task.failed, timeout=10_000) as answer:
        task.start()
    assert answer.args[0].code == "engine-crashed"
    assert "exit code 7" in answer.args[0].message
    assert answer.args[0].context == "boom"


def test_without_an_environment_it_fails_by_that_name(qtbot: QtBot, home: Path, owner: QObject) -> None:
    del home
    task = EngineTask("preview", RunSpec(), parent=owner)
    with qtbot.waitSignal(task.failed, timeout=10_000) as answer:
        task.start()
    assert answer.args[0].code == "environment-missing"


def test_a_cancelled_task_stays_silent(qtbot: QtBot, scripted: Scripted, home: Path, owner: QObject) -> None:
    scripted(f"pathlib.Path({str(home / 'began')!r}).touch(); time.sleep(60)")
    task = EngineTask("preview", RunSpec(), parent=owner)
    heard: list[object] = []
    task.succeeded.connect(heard.append)
    task.failed.connect(heard.append)
    with qtbot.waitSignal(task.destroyed, timeout=10_000):
        task.start()
        qtbot.waitUntil(lambda: (home / "began").exists(), timeout=10_000)
        task.cancel()
    assert heard == []
    assert left_in_tmp() == []
