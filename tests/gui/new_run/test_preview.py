"""The preview of the Train page: texts with what is learned of them, and where each row stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.gui.layout_checks import unnamed
from tests.gui.new_run.driving import ANSWER, fill_in, scripted_tasks
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.new_run.data_preview import DataPreviewDialog
from tunesmith_gui.new_run.page import NewRunPage


def test_the_preview_names_the_file_of_a_row_where_there_are_several(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_in(qtbot, page, model, data_file)
    page.form.add_source(SourceSpec(path=str(data_file)))
    tasks = scripted_tasks(monkeypatch)
    qtbot.mouseClick(page.data_picker.preview, Qt.MouseButton.LeftButton)
    (dialog,) = page.findChildren(DataPreviewDialog)
    tasks[0].succeeded(ANSWER | {"rows": [{**ANSWER["rows"][0], "place": "/d/b.jsonl, line 10"}]})
    assert "  ·  b.jsonl, line 10  ·  " in dialog.place.text()
    assert "/d/" not in dialog.place.text()


def test_the_preview_shows_text_and_what_is_learned(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_in(qtbot, page, model, data_file)
    tasks = scripted_tasks(monkeypatch)
    qtbot.mouseClick(page.data_picker.preview, Qt.MouseButton.LeftButton)
    (dialog,) = page.findChildren(DataPreviewDialog)
    tasks[0].succeeded(ANSWER)
    assert dialog.text.toPlainText() == "<b>user</b>Me."
    cursor = dialog.text.textCursor()
    cursor.setPosition(12)
    assert cursor.charFormat().fontUnderline()
    assert "2 skipped" in dialog.counts.text()
    assert dialog.place.text().startswith("Example 1 of the first 1  ·  ") == (ANSWER["num_rows"] > 1)
    tasks[0].succeeded(ANSWER | {"num_rows": 29})
    assert dialog.place.text().startswith("Example 1 of the first 1  ·  ")
    tasks[0].succeeded(ANSWER)
    assert "line 4" in dialog.problems.text()
    assert unnamed(dialog) == []
    dialog.grab()
    dialog.close()
    assert "2 skipped" in page.data_picker.facts.text()
    assert page.facts.longest_tokens == 9


def dialog_of(kind: str, qtbot: QtBot, page: NewRunPage) -> DataPreviewDialog:
    """Return the preview of a run with an objective."""
    run = RunSpec()
    run.objective.kind = kind
    dialog = DataPreviewDialog(run, parent=page)
    qtbot.addWidget(dialog)
    return dialog


def test_a_preview_of_labels_says_nothing_of_trained_tokens(
    qtbot: QtBot, page: NewRunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = scripted_tasks(monkeypatch)
    dialog = dialog_of("classify", qtbot, page)
    tasks[0].succeeded(ANSWER)
    assert dialog.place.text().endswith(" tokens")
    tasks[0].succeeded(ANSWER | {"num_rows": 29})
    assert dialog.place.text().startswith("Example 1 of the first 1  ·  ")
    assert dialog.place.text().endswith(" tokens")
    tasks[0].succeeded(ANSWER | {"rows": [{**ANSWER["rows"][0], "label": "billing"}]})
    assert dialog.text.toPlainText().startswith("Label: billing\n")


def test_a_preview_of_steps_says_which_are_right(
    qtbot: QtBot, page: NewRunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = scripted_tasks(monkeypatch)
    dialog = dialog_of("prm", qtbot, page)
    parts = [{"text": "1 + 1 = 2", "trained": False}, {"text": "\n", "trained": True, "is_right": True}]
    parts += [{"text": "So 3.", "trained": False}, {"text": "\n", "trained": True, "is_right": False}]
    tasks[0].succeeded(ANSWER | {"rows": [{**ANSWER["rows"][0], "segments": parts}]})
    assert dialog.text.toPlainText() == "1 + 1 = 2  [right]\nSo 3.  [wrong]\n"
    assert dialog.place.text().endswith(" tokens")



def test_closing_the_preview_early_ends_the_engine(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_in(qtbot, page, model, data_file)
    tasks = scripted_tasks(monkeypatch)
    page._open_preview()
    page.findChildren(DataPreviewDialog)[0].close()
    assert tasks[0].cancelled
