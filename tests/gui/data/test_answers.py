"""Answers of a bigger model in the window: offered for data with prompts, asked for, followed and reviewed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from tests.gui.data.test_questions import Scripted
from tests.gui.layout_checks import clipped, unnamed
from tunesmith_core.operations.kinds.answers import AnswersSpec
from tunesmith_core.operations.kinds.questions import note_path
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data import answer_dialog as module
from tunesmith_gui.data.answer_dialog import AnswerDialog
from tunesmith_gui.data.page import DataPage


@pytest.fixture
def dialog(qtbot: QtBot, data_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnswerDialog]:
    """About a file of rows with prompts."""
    monkeypatch.setattr(module, "OperationTask", Scripted)
    window = QWidget()
    qtbot.addWidget(window)
    models: Any = [SimpleNamespace(name="big", path=Path("/m/big"), has_chat_template=True)]
    made = AnswerDialog(SourceSpec(path=str(data_file)), models, "", window)
    made.open()
    yield made
    window.close()


def test_answers_are_asked_for_and_followed(dialog: AnswerDialog, data_file: Path) -> None:
    assert clipped(dialog) == unnamed(dialog) == []
    assert dialog.model.path == str(Path("/m/big"))
    assert not dialog.keeps.isChecked()
    dialog.keeps.setChecked(True)
    dialog.number.setValue(99)
    written, told = [], []
    dialog.written.connect(written.append)
    dialog.told.connect(told.append)
    dialog.start.click()
    task: Any = dialog.task
    assert isinstance(task.spec, AnswersSpec)
    target = data_file.with_name(f"{data_file.stem}-answers.jsonl")
    assert (task.spec.target, task.spec.most_tokens, task.spec.run.model.path) == (str(target), 99, str(Path("/m/big")))
    assert task.spec.keeps_logprobs
    task.tell("progress", done_bytes=2, total_bytes=8, answers_per_s=0.5, remaining_s=12.0)
    assert dialog.words.text().startswith("2 of 8 prompts  ·  30.0 answers per minute  ·  about")
    counts = {"rows": 6, "prompts": 8, "silent": 0, "unread": 1, "empty": 1, "left_out": 0}
    task.succeeded.emit({"path": str(target), **counts})
    assert written == [target]
    assert told == ["6 answers written. Prompts: 8. 2 left out."]


def test_what_was_stopped_is_offered_to_continue(
    qtbot: QtBot, data_file: Path, monkeypatch: pytest.MonkeyPatch, dialog: AnswerDialog
) -> None:
    del qtbot, monkeypatch
    target = data_file.with_name(f"{data_file.stem}-answers.jsonl")
    target.write_text("{}\n", encoding="utf-8")
    note_path(target).write_text('{"version": 1, "counts": {"rows": 2}, "next": 2, "total": 8}', encoding="utf-8")
    dialog._show_target()
    assert dialog.start.text() == "Continue"
    assert dialog.so_far.text() == "2 of 8 prompts so far"


def test_the_page_offers_what_suits_the_rows(
    qtbot: QtBot, page: DataPage, data_file: Path, tmp_path: Path
) -> None:
    def shown(path: Path) -> tuple[bool, bool]:
        page.open(str(path))
        qtbot.waitUntil(lambda: page.summary.train.isEnabled() and path.stem in page.summary.header.title.text())
        return not page.summary.questions.isHidden(), not page.summary.answers.isHidden()

    document = tmp_path / "garden.md"
    document.write_text("# Garden\n\nIt lies on a hill.\n", encoding="utf-8")
    assert shown(data_file) == (False, True)
    assert shown(document) == (True, False)
