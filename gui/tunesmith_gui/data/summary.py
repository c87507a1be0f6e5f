"""The top of an open file: how it was recognized and why, the question where that is not certain, what is wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.actions import ACTIONS
from tunesmith_core.datafmt.formats import RAW
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.column_question import ColumnQuestion, asks_for_columns
from tunesmith_gui.widgets.data_words import facts_words, named_by_labels, notes_words, reason_words, unusable_words
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.page_header import PageHeader
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.sheet_choice import SheetChoice
from tunesmith_gui.widgets.side_by_side import SideBySide

WITH_PROMPTS = ("messages", "sharegpt", "alpaca", "prompt-completion", "preference")
"""Formats of rows whose prompts a model can answer."""


class FileSummary(QWidget):
    """Name, facts, reason, and one message at most.

    Signals:
        back_asked, train_asked, other_asked, keep_asked, mapping_asked, chat_asked, questions_asked,
        answers_asked: the person pressed
            that button.
        problems_asked: the rows with problems are to be seen.
        check_asked: the rows are to be checked as they are now.
        fix_asked: a repaired copy is to be saved.
        columns_chosen: (format, dict of role -> column).
    """

    back_asked = Signal()
    train_asked = Signal()
    other_asked = Signal()
    keep_asked = Signal()
    mapping_asked = Signal()
    chat_asked = Signal()
    questions_asked = Signal()
    answers_asked = Signal()
    problems_asked = Signal()
    check_asked = Signal()
    fix_asked = Signal()
    columns_chosen = Signal(str, object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message: QWidget | None = None
        self._shown: tuple[DataFacts, SourceSpec, bool] | None = None
        self._edited: str | None = None
        self._is_unchecked = False
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE)
        top = QWidget(self)
        row = QHBoxLayout(top)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        self.back = button(
            self.tr("All data"), self.back_asked.emit, kind="quiet", icon_name="chevron-left", parent=top
        )
        self.header = PageHeader(" ", parent=top)
        row.addWidget(self.back)
        row.addWidget(self.header, 1)
        self.other = button(self.tr("Other file…"), self.other_asked.emit, icon_name="folder", parent=self)
        self.train = button(
            self.tr("Train with it"), self.train_asked.emit, kind="primary", icon_name="train", parent=self
        )
        self.keep = button(self.tr("Add to library…"), self.keep_asked.emit, icon_name="data", parent=self)
        self.questions = button(
            self.tr("Write questions…"), self.questions_asked.emit, icon_name="chat", parent=self
        )
        self.questions.setAccessibleName(self.tr("Write questions from documents"))
        self.answers = button(self.tr("Write answers…"), self.answers_asked.emit, icon_name="chat", parent=self)
        self.answers.setAccessibleName(self.tr("Let a bigger model answer the prompts"))
        self._actions = FlowRow((self.other, self.questions, self.answers, self.keep, self.train), self)
        self._column.addWidget(SideBySide(top, self._actions, first_letters=36, parent=self))
        self.sheets = SheetChoice(self)
        self._column.addWidget(self.sheets)
        self.facts = SafeLabel(tone="text", wrap=True, parent=self)
        self.reason = SafeLabel(tone="muted", wrap=True, parent=self)
        self.map = button(self.tr("Map columns…"), self.mapping_asked.emit, kind="link", parent=self)
        words = QWidget(self)
        lines = QVBoxLayout(words)
        lines.setContentsMargins(0, 0, 0, 0)
        lines.setSpacing(2)
        lines.addWidget(self.facts)
        lines.addWidget(self.reason)
        self._column.addWidget(SideBySide(words, self.map, first_letters=40, parent=self))

    def show_reading(self, name: str) -> None:
        """Says that a file is being looked at."""
        self._shown = None
        self.header.title.setText(name)
        self.facts.setText(self.tr("Reading the first rows…"))
        self.reason.hide()
        self.map.hide()
        self._offer_writing("")
        self.train.setEnabled(False)
        self.keep.setEnabled(False)
        self._put(None)

    def show_data(self, data: DataFacts, source: SourceSpec, *, has_chat_template: bool) -> None:
        """Shows what is known of a file that is read as `source` says; a question that is asked stays as it is."""
        named = named_by_labels(data, source)
        self.facts.setText(facts_words(named, source, 0, has_chat_template) if data.sniffed else "")
        self.facts.setVisible(data.sniffed is not None)
        shown = (replace(data, num_rows=None), source, has_chat_template)
        if shown == self._shown:
            return
        self._shown = shown
        is_question = asks_for_columns(data)
        self.sheets.show_data(data)
        unread = data.error is not None and not data.head
        why = "" if is_question or unread else reason_words(named, source)
        why = "\n".join(filter(None, (why, notes_words(data))))
        self.reason.setText(why)
        self.reason.setVisible(bool(why))
        self.map.setVisible(bool(data.sniffed and data.sniffed.columns) and not is_question)
        words = self.tr("Change columns…") if source.columns else self.tr("Map columns…")
        self.map.setText(words)
        self.map.setAccessibleName(words)
        self.train.setEnabled(data.error is None or data.skipping_helps)
        self.keep.setEnabled(self.train.isEnabled())
        self._offer_writing(data.sniffed.format if data.error is None and data.sniffed is not None else "")
        self._put(self._message(data, source, has_chat_template))

    def _offer_writing(self, format_name: str) -> None:
        """Only documents are asked about, and only prompts answered."""
        shown = {self.questions: format_name == "text", self.answers: format_name in WITH_PROMPTS}
        actions = (self.other, self.questions, self.answers, self.keep, self.train)
        self._actions.show_only([each for each in actions if shown.get(each, True)])

    def _message(self, data: DataFacts, source: SourceSpec, has_chat_template: bool) -> QWidget | None:
        if asks_for_columns(data):
            question = ColumnQuestion(data.head, parent=self)
            question.chosen.connect(self.columns_chosen)
            question.others_asked.connect(self.mapping_asked)
            return question
        folder = Path(data.path).parent
        if data.error is not None and data.skipping_helps:
            words = core_text(data.error.message).replace(f"{folder}{os.sep}", "")
            if self._edited is None:
                return self._rows_banner(unusable_words(data), words)
            return self._rows_banner(unusable_words(replace(data, num_unusable=0)), self._edited)
        if data.error is not None:
            maps = data.error.code == "dataset-column-missing" and data.sniffed is not None
            fix = (core_text(ACTIONS["choose-data"].label), self.other_asked.emit)
            if maps and data.head:
                fix = (core_text(ACTIONS["map-columns"].label), self.mapping_asked.emit)
                self.map.hide()
            return error_banner(data.error, actions=(fix,), dismissable=False, folder=folder, parent=self)
        if source.format == RAW and has_chat_template:
            words = self.tr("This model has a chat template. Trained without it, it may answer wrongly in a chat.")
            fix = (core_text(ACTIONS["train-as-chat"].label), self.chat_asked.emit)
            return Banner("warn", self.tr("Trained as plain text"), words, actions=(fix,), parent=self)
        return None

    def _rows_banner(self, title: str, text: str) -> QWidget | None:
        """Always a title and two lines, so that the rows below stay where they are."""
        show = (self.tr("Show the problems"), self.problems_asked.emit)
        fix = (self.tr("Fix and save as…"), self.fix_asked.emit)
        if self._is_unchecked:
            title = self.tr("Your changes to the rows are not checked yet")
            lines = (
                self.tr("Some rows of the file itself can't be used as they are."),
                self.tr("Check again to see what is wrong with them now."),
            )
            again = (self.tr("Check again"), self.check_asked.emit)
            return Banner("warn", title, "\n".join(lines), actions=(again, show, fix), parent=self)
        if not text:
            title = self.tr("Every row can be used now")
            words = self.tr("Your file stays as it is.\nSave a copy to train with your changes.")
            return Banner("ok", title, words, actions=(fix,), parent=self)
        advice = self.tr("“Fix and save as…” writes a copy that can be used. Or correct the row below.")
        return Banner("warn", title, f"{text}\n{advice}", actions=(show, fix), parent=self)

    def show_edited(self, text: str | None, *, is_unchecked: bool = False) -> None:
        """Shows what is wrong with rows that a person has changed.

        Args:
            text: "" for nothing, None where it is what is wrong with the file.
            is_unchecked: whether only another check can tell.
        """
        if (text, is_unchecked) != (self._edited, self._is_unchecked):
            self._edited, self._is_unchecked = text, is_unchecked
            if self._shown is not None:
                data, source, has_chat_template = self._shown
                self._put(self._message(data, source, has_chat_template))

    def _put(self, message: QWidget | None) -> None:
        before, self.message = self.message, message
        if message is not None:
            self._column.addWidget(message)
        if before is not None:
            if before.isAncestorOf(self.focusWidget()):
                # Where the person was, not at the first button of the window.
                (message.buttons[0] if isinstance(message, Banner) else self.back).setFocus()
            before.hide()
            before.deleteLater()
