"""The page of a finished run says whether its adapter is still there."""

from __future__ import annotations

import shutil
from typing import Any

from PySide6.QtCore import QThreadPool

from tests.gui.run_folders import make_run, texts
from tests.run_adapter import make_adapter
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.runs import RunState, RunStatus
from tunesmith_gui.dashboard.examined import examine
from tunesmith_gui.dashboard.model import pack
from tunesmith_gui.dashboard.page import DashboardPage

MISSING = "Finished, but the adapter is missing"
READY = "Finished: the adapter is ready"


def wait_for_banner(page: DashboardPage, words: str, qtbot: Any) -> None:
    def shown() -> bool:
        page._repaint()
        return page._banner is not None and words in texts(page._banner)

    qtbot.waitUntil(shown, timeout=5000)


def test_a_finished_run_without_its_adapter_says_what_can_be_done(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("lost", "happy")
    weights = run.adapter_path / "adapter_model.safetensors"
    weights.write_bytes(b"")
    page = open_dashboard(run)
    wait_for_banner(page, MISSING, qtbot)
    shown = texts(page._banner)
    assert f"{weights} is missing or empty.\nRestore the folder from a backup" in shown
    assert "Duplicate" in shown
    # A look that began before the journal was read arrives late.
    page._take_examined(examine(page.run, RunStatus()), RunState.QUEUED)
    page._repaint()
    assert MISSING in texts(page._banner)
    assert READY not in texts(page)


def test_the_newest_checkpoint_is_named(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("lost", "happy")
    shutil.rmtree(run.adapter_path)
    folder = run.checkpoints_path / "step-000030"
    folder.mkdir(parents=True)
    (folder / "MANIFEST.json").touch()
    page = open_dashboard(run)
    wait_for_banner(page, f"Its newest checkpoint is {folder}.", qtbot)


def test_an_adapter_that_goes_and_comes_back_is_noticed(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("away", "happy")
    page = open_dashboard(run)
    wait_for_banner(page, READY, qtbot)
    run.adapter_path.rename(run.path / "elsewhere")
    page.on_shown()
    wait_for_banner(page, MISSING, qtbot)
    (run.path / "elsewhere").rename(run.adapter_path)
    page.on_shown()
    wait_for_banner(page, READY, qtbot)


def test_an_adapter_that_is_made_while_the_page_is_open_is_ready(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("live", "crash")
    shutil.rmtree(run.adapter_path)
    with FileLock(run.lock_path):
        page = open_dashboard(run)
        make_adapter(run.adapter_path)
        last = read_journal(run.journal_path)[-1]
        page._receive(pack([Event(last.seq + 1, last.t, "result", {"status": "finished"})]))
        assert page.model.status.state is RunState.FINISHED
        QThreadPool.globalInstance().waitForDone(5000)
        wait_for_banner(page, READY, qtbot)
