"""What a keyboard and a screen reader find on the pages of runs, and what their dialogs answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QComboBox, QLineEdit, QPlainTextEdit, QSlider, QWidget

from tests.gui.run_folders import EVENTS, texts
from tunesmith_core import trash
from tunesmith_core.runs import RunState, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard.chart_views import ChartTableDialog, lines_csv
from tunesmith_gui.dashboard.page import DashboardPage
from tunesmith_gui.dashboard.stop_run import StopRunDialog
from tunesmith_gui.models.run_row import RunContents, RunRow, contents_of
from tunesmith_gui.runs.page import RunsPage
from tunesmith_gui.widgets.delete_run import DeleteRunDialog, erase, move_to_trash
from tunesmith_gui.widgets.safe_label import SafeLabel

INTERACTIVE = (QAbstractButton, QAbstractItemView, QComboBox, QLineEdit, QPlainTextEdit, QSlider)


def unnamed(page: QWidget) -> list[str]:
    found = [each for kind in INTERACTIVE for each in page.findChildren(kind)]
    named = [each for each in found if each.objectName() not in ("qt_spinbox_lineedit", "ScrollLeftButton")]
    return [
        f"{type(each).__name__} in {type(each.parent()).__name__}"
        for each in named
        if not each.accessibleName()
        and each.focusPolicy() != Qt.FocusPolicy.NoFocus
        and not type(each.parent()).__name__.startswith(("QLineEdit", "QHeaderView"))
    ]


def focus_chain(page: QWidget) -> list[QWidget]:
    chain, widget = [], page.nextInFocusChain()
    while widget is not page:
        if page.isAncestorOf(widget) and widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            chain.append(widget)
        widget = widget.nextInFocusChain()
    return chain


def test_dashboard_has_names_and_keeps_plots_out_of_the_tab_chain(context: Any, qtbot: Any) -> None:
    page = DashboardPage(context)
    qtbot.addWidget(page)
    qtbot.waitUntil(lambda: page.charts is not None, timeout=20_000)
    assert unnamed(page) == []
    plots = (page.charts.loss.plot, page.charts.rate.plot, page.charts.norm.plot, page.charts.memory.plot)
    assert all(plot.accessibleName() for plot in plots)
    assert not [each for each in focus_chain(page) if any(plot.isAncestorOf(each) for plot in plots)]


def test_runs_page_has_names(context: Any, qtbot: Any) -> None:
    page = RunsPage(context)
    qtbot.addWidget(page)
    assert unnamed(page) == []


@pytest.mark.parametrize(("choice", "mode"), [("save", "save"), ("discard", "discard"), ("keep", "")])
def test_stop_dialog(choice: str, mode: str, qtbot: Any) -> None:
    dialog = StopRunDialog("my-run", 210, 200)
    qtbot.addWidget(dialog)
    assert dialog.save.isDefault()
    getattr(dialog, choice).click()
    assert dialog.mode == mode
    assert bool(dialog.result()) == bool(mode)


def test_a_stop_of_a_paused_run_promises_no_save(qtbot: Any) -> None:
    def words(paused: bool) -> str:
        dialog = StopRunDialog("my-run", 319, 270, paused=paused)
        qtbot.addWidget(dialog)
        return " ".join(label.text() for label in dialog.findChildren(SafeLabel))

    assert "you can resume it from there" in words(False)
    assert "you can resume it from there" not in words(True)
    assert "the steps after 270 are lost" in words(True)


def test_a_stop_dialog_follows_the_run(qtbot: Any) -> None:
    dialog = StopRunDialog("my-run", 0, 0)
    qtbot.addWidget(dialog)
    dialog.show_progress(12, 10)
    words = " ".join(label.text() for label in dialog.findChildren(SafeLabel))
    assert "my-run is at step 12" in words
    assert "what came after the checkpoint of step 10 is lost" in words
    assert dialog.save.text() == "Stop and save"
    assert not dialog.discard.isHidden()


def test_a_stop_before_the_first_step_promises_no_save(qtbot: Any) -> None:
    dialog = StopRunDialog("my-run", 0, 0)
    qtbot.addWidget(dialog)
    words = " ".join(label.text() for label in dialog.findChildren(SafeLabel))
    assert "resume" not in words
    assert "nothing to save yet" in words
    assert dialog.save.text() == "Stop the run"
    assert dialog.discard.isHidden()
    dialog.save.click()
    assert dialog.mode == "save"


def test_delete_dialog_keeps_by_default_and_asks_about_the_files(qtbot: Any) -> None:
    row = RunRow("a", Path("/r/a"), "a", RunState.FINISHED, size_bytes=2**20)
    dialog = DeleteRunDialog([row], RunContents(0, 0, 2**20))
    qtbot.addWidget(dialog)
    assert dialog.keep.isDefault()
    dialog.delete.click()
    assert dialog.remove is move_to_trash
    dialog.erase.setChecked(True)
    dialog.delete.click()
    assert dialog.remove is erase


def test_delete_dialog_says_what_goes_and_what_stays(tmp_path: Path, qtbot: Any) -> None:
    for step in (10, 20):
        (tmp_path / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    (tmp_path / "adapter").mkdir()
    row = RunRow(
        "a", tmp_path, "a", RunState.FINISHED, size_bytes=3 * 2**20, model="Tiny", data="chats.jsonl", created_at=9e8
    )
    contents = contents_of([row])
    assert contents == RunContents(2, 1, 3 * 2**20)
    dialog = DeleteRunDialog([row], contents)
    qtbot.addWidget(dialog)
    shown = "\n".join(label.text() for label in dialog.findChildren(SafeLabel))
    assert "Deleted: 2 checkpoints, 1 trained adapter, settings, curves and logs (3 MiB in all)" in shown
    assert f"{tmp_path}, started 1998-07" in shown
    assert "Kept: base models, training data and copies you made (Tiny, chats.jsonl)" in shown


def test_deleting_a_link_promises_to_delete_the_link_only(tmp_path: Path, qtbot: Any) -> None:
    target = tmp_path / "target"
    (target / "checkpoints" / "step-000010").mkdir(parents=True)
    (target / "adapter").mkdir()
    link = tmp_path / "link"
    link.symlink_to(target, target_is_directory=True)
    rows = [RunRow(path.name, path, path.name, RunState.FINISHED, size_bytes=2**20) for path in (link, target)]

    def taken(chosen: list[RunRow]) -> str:
        dialog = DeleteRunDialog(chosen, contents_of(chosen))
        qtbot.addWidget(dialog)
        return "\n".join(label.text() for label in dialog.findChildren(SafeLabel))

    alone, both = taken(rows[:1]), taken(rows)
    promise = "1 run is a link. Only the link is deleted, not the run it points to."
    assert promise in alone
    assert "Deleted:" not in alone
    assert f"1 checkpoint, 1 trained adapter, settings, curves and logs (1 MiB in all)\n{promise}" in both


def test_chart_as_table_and_csv(qtbot: Any) -> None:
    import numpy as np

    from tunesmith_gui.widgets.metric_plot import Line

    lines = [Line("loss", np.arange(2000.0), np.arange(2000.0) / 2, "raw")]
    dialog = ChartTableDialog("Loss", lines, "step")
    qtbot.addWidget(dialog)
    assert dialog.table.rowCount() == 500
    assert [dialog.table.item(499, place).text() for place in range(3)] == ["loss", "1999", "999.5"]
    assert lines_csv(lines, "step").splitlines()[2] == "loss,1,0.5"


def test_a_run_whose_base_model_is_in_the_trash_offers_to_restore_it(
    make_spec: Callable[..., RunSpec], open_dashboard: Any, qtbot: Any
) -> None:
    run = create_run(make_spec("support"))
    run.journal_path.write_bytes((EVENTS / "happy.jsonl").read_bytes())
    base = Path(run.load_spec().model.path)
    page = open_dashboard(run)
    assert page._notice is None
    trash.delete_folder(base)
    page.on_hidden()
    page.on_shown(run.id)
    qtbot.waitUntil(lambda: page._notice is not None, timeout=5000)
    assert f"The base model {base.name} is in the trash" in texts(page)
    (restore,) = page._notice.buttons
    assert restore.text() == "Restore it"
    restore.click()
    qtbot.waitUntil(lambda: page._notice is None, timeout=5000)
    assert base.is_dir()
