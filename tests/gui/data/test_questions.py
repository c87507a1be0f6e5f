"""Questions about documents in the window: asked for, followed, stopped, and reviewed row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS
from tests.gui.layout_checks import clipped, unnamed
from tunesmith_core.data_library import DataSet
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.questions import QuestionsSpec, note_path
from tunesmith_core.protocol import Event
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data import question_dialog as module
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.library_card import LibraryCard
from tunesmith_gui.data.page import DataPage
from tunesmith_gui.data.question_dialog import QuestionDialog
from tunesmith_gui.data.review import ReviewBar
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.confirm import ConfirmDialog

Open = Callable[[Path], DataPage]


class Scripted(QObject):
    """An operation that a test ends."""

    happened, succeeded, failed, ended = Signal(object), Signal(object), Signal(object), Signal(object)

    def __init__(self, _kind: object, spec: QuestionsSpec, parent: QObject) -> None:
        super().__init__(parent)
        self.spec, self.cancelled = spec, False

    def start(self) -> None:
        """Begins nothing."""

    def cancel(self) -> None:
        self.cancelled = True

    def tell(self, kind: str, **data: Any) -> None:
        self.happened.emit(Event(1, 0.0, kind, data))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "garden.md"
    path.write_text("# Garden\n\nIt lies on a hill.\n", encoding="utf-8")
    return path


@pytest.fixture
def dialog(qtbot: QtBot, document: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QuestionDialog]:
    """About a document, with one model that can do it and one that can't."""
    monkeypatch.setattr(module, "OperationTask", Scripted)
    window = QWidget()
    qtbot.addWidget(window)
    models: Any = [
        SimpleNamespace(name="base", path=Path("/m/base"), has_chat_template=False),
        SimpleNamespace(name="instruct", path=Path("/m/instruct"), has_chat_template=True),
    ]
    made = QuestionDialog(SourceSpec(path=str(document)), models, "/m/base", window)
    made.open()
    yield made
    window.close()


class TestAsking:
    def test_only_documents_offer_it(self, opened: Open, document: Path, table: Path) -> None:
        page = opened(document)
        assert page.summary.questions.isVisible()
        page.summary.questions.click()
        (dialog,) = page.window().findChildren(QuestionDialog)
        dialog.reject()
        assert not opened(table).summary.questions.isVisible()

    def test_what_is_chosen_is_asked_for(self, dialog: QuestionDialog, document: Path) -> None:
        assert clipped(dialog) == []
        assert unnamed(dialog) == []
        assert dialog.model.path == str(Path("/m/instruct")), "a base model can't follow the request"
        assert [dialog.model.itemText(place) for place in range(dialog.model.count())] == ["instruct"]
        assert dialog.number.lineEdit().textMargins().left() > 0
        dialog.number.setValue(5)
        dialog.start.click()
        assert isinstance(dialog.task, Scripted)
        spec = dialog.task.spec
        assert (spec.run.model.path, spec.number, spec.overwrite) == (str(Path("/m/instruct")), 5, False)
        assert [each.path for each in spec.run.data.sources] == [str(document)]
        assert spec.target == str(document.with_name("garden-questions.jsonl"))
        assert not dialog.choices.isVisible()

    def test_how_far_it_is_and_what_comes_of_it(self, qtbot: QtBot, dialog: QuestionDialog) -> None:
        dialog.start.click()
        task: Any = dialog.task
        task.tell("phase", name="model")
        assert dialog.words.text() == "Loading the model…"
        counts = {"done_bytes": 3, "total_bytes": 12, "questions": 8, "passages_per_s": 0.05, "remaining_s": 180.0}
        task.tell("progress", **counts)
        assert dialog.words.text() == (
            "3 of 12 passages  ·  8 questions  ·  3.0 passages per minute  ·  about 3 min left"
        )
        assert dialog.meter.share == 0.25
        said: list[str] = []
        dialog.told.connect(said.append)
        with qtbot.waitSignal(dialog.written) as told:
            task.succeeded.emit({"path": "/a/q.jsonl", "rows": 30, "passages": 12, "silent": 2})
        assert told.args == [Path("/a/q.jsonl")]
        assert said == ["30 questions written. Passages: 12. 2 of them gave none."]
        assert not dialog.isVisible()

    def test_large_text_has_room(self, qtbot: QtBot, document: Path, dialog: QuestionDialog) -> None:
        dialog.reject()
        theme().set_appearance(Scheme.LIGHT, 2.0)
        try:
            window = QWidget()
            qtbot.addWidget(window)
            window.resize(1280, 800)
            large = QuestionDialog(SourceSpec(path=str(document)), [], "", window)
            large.open()
            settle()
            for control in (large.model, large.number):
                assert control.height() >= control.sizeHint().height()
            assert clipped(large) == []
            large.reject()
            settle()
        finally:
            theme().set_appearance(Scheme.LIGHT, 1.0)

    def test_the_dialog_grows_with_what_it_says(self, dialog: QuestionDialog) -> None:
        dialog.start.click()
        settle()
        height = dialog.height()
        dialog._say("some words " * 60)
        settle()
        assert dialog.height() > height
        assert clipped(dialog) == []

    def test_what_is_stopped_can_be_continued_or_reviewed(
        self, qtbot: QtBot, dialog: QuestionDialog, document: Path
    ) -> None:
        dialog.start.click()
        task: Any = dialog.task
        dialog.stop.click()
        assert task.cancelled
        assert not dialog.start.isVisible(), "the model may still write"
        target = document.with_name("garden-questions.jsonl")
        target.write_text("{}\n")
        note_path(target).write_text('{"next": 4, "total": 10, "counts": {"rows": 9}}')
        task.ended.emit(None)
        assert dialog.start.text() == "Continue"
        assert dialog.so_far.isVisible()
        assert dialog.so_far.text() == "9 questions so far, from 4 of 10 passages"
        dialog.start.click()
        assert dialog.meter.share == 0.4
        task = dialog.task
        task.ended.emit(None)
        assert clipped(dialog) == []
        with qtbot.waitSignal(dialog.written) as told:
            dialog.see.click()
        assert told.args == [target]

    def test_a_failure_says_why_and_can_be_tried_again(self, dialog: QuestionDialog) -> None:
        for _ in range(2):
            dialog.start.click()
            task: Any = dialog.task
            task.failed.emit(TunesmithError("questions-none", "tiny wrote nothing."))
            task.ended.emit(None)
            assert dialog._error is not None
            settle()
            assert dialog._error.isVisible()
            assert dialog.start.text() == "Write questions"

    def test_closing_stops_it(self, dialog: QuestionDialog) -> None:
        dialog.start.click()
        task: Any = dialog.task
        dialog.reject()
        assert task.cancelled

    @pytest.mark.parametrize(("is_begun", "replaces"), [(False, True), (True, False)])
    def test_a_chosen_file_is_replaced_or_continued(
        self, dialog: QuestionDialog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool, replaces: bool
    ) -> None:
        target = tmp_path / "mine.jsonl"
        target.write_text("{}\n")
        if is_begun:
            note_path(target).write_text("{}")
        monkeypatch.setattr(module, "ask_for_copy", lambda *_arguments: target)
        dialog.change.click()
        dialog.start.click()
        task: Any = dialog.task
        assert (task.spec.target, task.spec.overwrite) == (str(target), replaces)

    def test_a_file_that_is_whole_is_not_proposed(self, qtbot: QtBot, document: Path) -> None:
        document.with_name("garden-questions.jsonl").write_text("{}\n")
        window = QWidget()
        qtbot.addWidget(window)
        dialog = QuestionDialog(SourceSpec(path=str(document)), [], "", window)
        assert dialog.target.text().endswith("garden-questions-02.jsonl")
        assert not dialog.start.isEnabled(), "there is no model"


def written(path: Path, count: int) -> Path:
    rows = [
        {"question": f"Why {number}?", "answer": "So.", "passage": f"Passage {number}.", "document": "garden.md",
         "place": "line 5", "synthetic": True, "model": "tiny"}
        for number in range(count)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def answer(monkeypatch: pytest.MonkeyPatch, code: int) -> list[ConfirmDialog]:
    """Answers every question alike; returns those that were asked."""
    asked: list[ConfirmDialog] = []
    monkeypatch.setattr(ConfirmDialog, "exec", lambda dialog: asked.append(dialog) or code)
    return asked


class TestReview:
    @pytest.fixture
    def reviewed(self, qtbot: QtBot, opened: Open, tmp_path: Path) -> tuple[DataPage, ReviewBar]:
        page = opened(written(tmp_path / "q.jsonl", 3))
        (bar,) = page.file.findChildren(ReviewBar)
        qtbot.waitUntil(bar.keep.isEnabled, timeout=PATIENCE_MS)
        return page, bar

    def test_only_rows_of_a_model_are_reviewed(self, opened: Open, table: Path) -> None:
        assert not opened(table).file.findChildren(ReviewBar)

    def test_a_row_is_shown_with_its_passage(self, reviewed: tuple[DataPage, ReviewBar]) -> None:
        page, bar = reviewed
        assert bar.place.text() == "Row 1 of 3  ·  Not reviewed yet  ·  garden.md, line 5  ·  0 of 3 reviewed"
        assert bar.passage.toPlainText() == "Passage 0."
        assert clipped(bar) == []
        assert unnamed(bar) == []
        assert page.grid is not None
        page.grid.go_to(2)
        assert bar.place.text().startswith("Row 3 of 3")
        assert bar.passage.toPlainText() == "Passage 2."

    def test_a_kept_row_says_so_and_is_no_edited_one(
        self, qtbot: QtBot, reviewed: tuple[DataPage, ReviewBar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page, bar = reviewed
        assert page.rows is not None
        assert page.grid is not None
        bar.keep.click()
        page.grid.pane.text.setPlainText("Why really?")
        page.grid.pane.apply.click()
        assert page.grid.count.text() == "3 rows  ·  1 kept  ·  1 edited"
        model = page.grid.model
        assert [model._state(place) for place in range(3)] == ["kept", "edited", ""]
        copy = tmp_path / "copy.jsonl"
        answer(monkeypatch, ConfirmDialog.OTHER)
        page.saving.save_rows(copy, page.saving.copy_asked.emit)
        qtbot.waitUntil(lambda: page.source.path == str(copy) and page.rows is not None, timeout=PATIENCE_MS)
        (bar,) = [each for each in page.file.findChildren(ReviewBar) if each is not bar]
        qtbot.waitUntil(lambda: "1 of 3 reviewed" in bar.place.text(), timeout=PATIENCE_MS)
        assert page.grid is not None
        assert page.grid.model._state(0) == "kept"
        bar.next.click()
        assert page.grid.current() == 1
        bar.next.click()
        assert page.grid.current() == 2
        bar.next.click()
        assert page.grid.current() == 1
        bar.keep.click()
        assert page.grid.current() == 2
        bar.next.click()
        assert page.grid.current() == 2, "no other row waits"

    @pytest.mark.parametrize(("code", "num_saved"), [(0, None), (1, 1), (ConfirmDialog.OTHER, 3)])
    def test_saving_asks_about_rows_that_nobody_has_reviewed(
        self,
        qtbot: QtBot,
        reviewed: tuple[DataPage, ReviewBar],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        code: int,
        num_saved: int | None,
    ) -> None:
        page, bar = reviewed
        assert page.grid is not None
        bar.keep.click()
        copy = tmp_path / "copy.jsonl"
        monkeypatch.setattr(Grid, "ask_where", lambda _grid: copy)
        asked = answer(monkeypatch, code)
        page.grid.save.click()
        (dialog,) = asked
        assert (dialog.go.text(), dialog.other.text()) == ("Only reviewed rows", "All rows")
        qtbot.waitUntil(lambda: not page.saving.is_busy, timeout=PATIENCE_MS)
        rows = [json.loads(line) for line in copy.read_text().splitlines()] if copy.exists() else None
        assert (None if rows is None else len(rows)) == num_saved
        assert rows is None or rows[0]["reviewed"] is True

    def test_where_nobody_has_reviewed_anything_all_rows_or_none_are_saved(
        self, reviewed: tuple[DataPage, ReviewBar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page, _bar = reviewed
        asked = answer(monkeypatch, 0)
        page.saving.save_rows(tmp_path / "copy.jsonl", page.saving.copy_asked.emit)
        assert (asked[0].go.text(), asked[0].other.text(), page.saving.is_busy) == ("All rows", "", False)

    def test_training_is_asked_about_at_start_and_not_here(
        self, reviewed: tuple[DataPage, ReviewBar], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page, _bar = reviewed
        gone: list[object] = []
        page.navigate.connect(lambda *target: gone.append(target))
        asked = answer(monkeypatch, 0)
        page.summary.train.click()
        assert (len(asked), len(gone)) == (0, 1)

    def test_rows_are_kept_edited_and_discarded_by_keys(
        self, qtbot: QtBot, reviewed: tuple[DataPage, ReviewBar]
    ) -> None:
        page, bar = reviewed
        rows, grid = page.rows, page.grid
        assert rows is not None
        assert grid is not None
        grid.table.setFocus()
        qtbot.keyClick(grid.table, Qt.Key.Key_K)
        assert rows.edits[0]["reviewed"] is True
        assert grid.current() == 1
        qtbot.keyClick(grid.table, Qt.Key.Key_D)
        assert rows.deleted == {1}
        assert grid.current() == 2
        grid.pane.text.setPlainText("Why really?")
        bar.keep.click()
        assert rows.edits[2] | {"passage": ""} == {
            "question": "Why really?", "answer": "So.", "passage": "", "document": "garden.md", "place": "line 5",
            "synthetic": True, "model": "tiny", "reviewed": True,
        }  # fmt: skip
        assert bar.place.text().endswith("Every row is reviewed. Save a copy to train on it.")
        grid.go_to(1)
        assert "Discarded" in bar.place.text()
        assert not bar.discard.isEnabled()
        bar.keep.click()
        assert rows.deleted == set()
        grid.undo_change()
        assert rows.deleted == {1}


def test_the_library_marks_what_a_model_wrote(qtbot: QtBot, tmp_path: Path) -> None:
    source = SourceSpec(path=str(written(tmp_path / "q.jsonl", 1)))
    card = LibraryCard()
    qtbot.addWidget(card)
    own = DataSet("own", (source,), 1.0, "prompt-completion", ("question",))
    made = DataSet("made", (source,), 1.0, "prompt-completion", ("question", "synthetic"))
    card.show_sets([(own, []), (made, [])])
    assert "Synthetic" not in card.facts["own"].text()
    assert "Synthetic" in card.facts["made"].text()
