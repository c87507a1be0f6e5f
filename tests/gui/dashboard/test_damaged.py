"""The page of a run whose folder is damaged: it says so, and shows nothing of the run that was open before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QTreeWidget

from tests.gui.run_folders import make_run, texts
from tunesmith_core.runs import Run, RunState
from tunesmith_gui.dashboard.page import DashboardPage

GARBAGE = "%%garbage"


def damaged_copy(run: Run) -> Run:
    copy = Run(run.path.with_name("copy"))
    shutil.copytree(run.path, copy.path)
    copy.spec_path.write_text(GARBAGE, encoding="utf-8")
    return copy


def open_another(page: DashboardPage, run: Run, qtbot: Any) -> None:
    page.on_shown(run.id)
    qtbot.waitUntil(lambda: page._follow is None or page._follow.caught_up, timeout=5000)
    qtbot.waitUntil(lambda: page.model.status.state is RunState.DAMAGED, timeout=10_000)
    page._repaint()


def cells(tree: QTreeWidget) -> str:
    groups = [tree.topLevelItem(place) for place in range(tree.topLevelItemCount())]
    rows = [row for group in groups for row in (group, *map(group.child, range(group.childCount())))]
    return "\n".join(row.text(column) for row in rows for column in range(tree.columnCount()))


def test_a_damaged_run_says_so_and_shows_no_settings_of_another(open_dashboard: Any, qtbot: Any) -> None:
    good = make_run("good", "happy", micro_batch_size=7)
    page = open_dashboard(good)
    assert "7 examples" in cells(page.settings_used)
    bad = damaged_copy(good)
    open_another(page, bad, qtbot)
    page.panes.show_pane("settings")
    page._repaint()
    reason = f"{bad.spec_path}, line 1, column 1: not valid JSON"
    assert page.header.chip.text == "Damaged"
    assert page._banner is not None
    assert "The run folder is damaged" in texts(page._banner)
    assert f"{reason}: a value is missing.\nRestore the folder from a backup, or delete the run." in texts(page._banner)
    assert "the adapter is ready" not in texts(page)
    assert cells(page.settings_used) == ""
    assert not page.settings_used.isVisible()
    assert f"The settings of this run can’t be read. {reason}" in texts(page.settings_pane)


def test_a_damaged_run_is_not_duplicated_without_a_word(open_dashboard: Any, qtbot: Any) -> None:
    good = make_run("good", "happy")
    page = open_dashboard(good)
    bad = damaged_copy(good)
    open_another(page, bad, qtbot)
    told: list[tuple[str, str]] = []
    page.notify.connect(lambda tone, text: told.append((tone, text)))
    page.navigate.connect(lambda *where: pytest.fail(f"went to {where}"))
    page.ask("duplicate")
    page.ask("copy_command")
    assert [tone for tone, _ in told] == ["error", "error"]
    assert all(str(bad.spec_path) in text for _, text in told)


def test_a_run_restored_from_a_backup_is_read_again(open_dashboard: Any, qtbot: Any) -> None:
    good = make_run("good", "happy")
    page = open_dashboard(good)
    bad = damaged_copy(good)
    open_another(page, bad, qtbot)
    shutil.copy(good.spec_path, bad.spec_path)
    page.on_shown()
    qtbot.waitUntil(lambda: page.model.status.state is RunState.FINISHED, timeout=10_000)
    qtbot.waitUntil(lambda: page.spec is not None, timeout=5000)
    page._repaint()
    assert page.settings_used.topLevelItemCount()


@pytest.mark.parametrize("is_all", [True, False])
def test_a_journal_that_somebody_changed_is_damage(is_all: bool, open_dashboard: Any, qtbot: Any) -> None:
    page = open_dashboard(make_run("good", "happy"))
    bad = make_run("bad", "happy")
    journal = bad.journal_path.read_bytes()
    changed = b"\x8f\x02\n" * 50 if is_all else journal.replace(b'"step":1,', b'"step":9,')
    bad.journal_path.write_bytes(changed)
    open_another(page, bad, qtbot)
    assert f"{bad.journal_path}: lines that are damaged: " in texts(page._banner)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
@pytest.mark.parametrize("name", ["spec_path", "journal_path"])
def test_a_pipe_in_place_of_a_file_is_damage(name: str, open_dashboard: Any, qtbot: Any) -> None:
    page = open_dashboard(make_run("good", "happy"))
    bad = make_run("bad", "happy")
    path: Path = getattr(bad, name)
    path.unlink()
    os.mkfifo(path)
    open_another(page, bad, qtbot)
    assert f"{path}: Not an ordinary file." in texts(page._banner)


def test_nothing_of_one_run_is_left_on_the_page_of_the_next(open_dashboard: Any, qtbot: Any) -> None:
    first = make_run("first", "happy")
    first.engine_log_path.write_text("printed by the first\n", encoding="utf-8")
    page = open_dashboard(first)
    for key in ("log", "files"):
        page.panes.show_pane(key)
    page.log_pane.source.set_value("output")
    qtbot.waitUntil(lambda: page.files.topLevelItemCount() > 0, timeout=5000)
    assert page.samples.list._shown
    assert page.checkpoints.topLevelItemCount()
    second = make_run("second")
    second.spec_path.write_text(GARBAGE, encoding="utf-8")
    open_another(page, second, qtbot)
    assert page.samples.list._shown == []
    assert page.samples.prompt.text() == ""
    assert page.checkpoints.topLevelItemCount() == 0
    assert page.files.topLevelItemCount() == 0
    assert cells(page.settings_used) == ""
    assert page.log.view.toPlainText() == ""
    assert page.log_pane.output.toPlainText() == ""
    assert page.charts.loss.plot.lines[0].y.shape == (0,)
