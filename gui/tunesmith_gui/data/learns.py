"""What a model learns from the rows: totals, lengths, and each row token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.spec import RunSpec
from tunesmith_gui.data.learned_rows import LearnedRows
from tunesmith_gui.data.rows import Rows
from tunesmith_gui.data.token_view import TokenView
from tunesmith_gui.plain_text import line
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.empty_state import EmptyState
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.length_histogram import LengthHistogram
from tunesmith_gui.widgets.path_combo import PathChoice, PathCombo, short_name
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.segmented import Segmented
from tunesmith_gui.widgets.side_by_side import SideBySide

_MOST_LETTERS = 400


class LearnsPane(QWidget):
    """The third look at a file.

    Signals:
        model_chosen: (str) a folder or hub id.
        setup_asked: the training environment is to be installed.
        place_chosen: (int) another row is looked at.
    """

    model_chosen = Signal(str)
    setup_asked = Signal()
    place_chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.learned = LearnedRows(self)
        self._rows: Rows | None = None
        self._spec: RunSpec | None = None
        self._place = 0
        self._error: QWidget | None = None
        self._is_shown_now = False
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE)
        self._column.addWidget(self._build_choices())
        self._stack = QStackedWidget(self)
        self._waiting = SafeLabel(tone="muted", wrap=True, parent=self)
        self._stack.addWidget(self._waiting)
        self._stack.addWidget(self._build_content())
        self._column.addWidget(self._stack, 1)
        self._column.addStretch(0)  # below a message that stands alone
        self.learned.totals_known.connect(self._show_totals)
        self.learned.row_known.connect(self._on_row_known)
        self.learned.failed.connect(self._fail)

    def _build_choices(self) -> QWidget:
        self.model = PathCombo(
            self.tr("Model"), self.tr("Choose a model, or type a folder or hub id"), "models", parent=self
        )
        self.model.path_chosen.connect(self.model_chosen)
        box = QWidget(self)
        row = QHBoxLayout(box)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        label = SafeLabel(self.tr("Model"), parent=box)
        label.setBuddy(self.model)
        row.addWidget(label)
        row.addWidget(self.model, 1)
        parts = (("text", self.tr("Text")), ("list", self.tr("List of tokens")))
        self.part = Segmented(self.tr("Tokens as"), parts, parent=self)
        self.part.changed.connect(self._show_as)
        return SideBySide(box, self.part, first_letters=50, parent=self)

    def _build_content(self) -> QWidget:
        content = QWidget(self)
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        self.place = SafeLabel(role="strong", wrap=True, parent=content)
        self.previous = IconButton("chevron-left", self.tr("Previous row"), lambda: self.step(-1), parent=content)
        self.next = IconButton("chevron-right", self.tr("Next row"), lambda: self.step(1), parent=content)
        arrows = FlowRow((self.previous, self.next), content)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addWidget(self.place, 1)
        row.addWidget(arrows)
        column.addLayout(row)
        self.legend = SafeLabel(role="caption", tone="muted", wrap=True, parent=content)
        column.addWidget(self.legend)
        self.view = TokenView(content)
        column.addWidget(self.view, 1)
        self.totals = SafeLabel(wrap=True, parent=content)
        column.addWidget(self.totals)
        self.notes = SafeLabel(tone="warn", wrap=True, parent=content)
        column.addWidget(self.notes)
        self.histogram = LengthHistogram(parent=content)
        column.addWidget(self.histogram)
        self._show_as(self.part.value)
        return content

    def _show_as(self, part: str) -> None:
        words = self.tr("The model learns the underlined tokens. The rest is context. Control tokens are colored.")
        if part == "list":
            words = self.tr("The model learns the tokens marked “yes”. The rest is context.")
        self.legend.setText(words)
        self.view.show_as(part)

    def set_models(self, cards: Sequence[ModelCard], path: str) -> None:
        """Offers models, and shows the one that is used."""
        self.model.set_choices([PathChoice(short_name(str(card.path)), str(card.path)) for card in cards])
        self.model.show_path(path)

    def show_data(self, spec: RunSpec | None, rows: Rows | None) -> None:
        """Shows other data, or the same for another model; None where there is nothing to be learned yet."""
        if (spec, rows) == (self._spec, self._rows):
            return
        if rows is not self._rows:
            self._place = 0
            if rows is not None:
                rows.changed.connect(self._on_changed)
        self._spec, self._rows = spec, rows
        self.learned.end()
        if self._is_shown_now:
            self._begin()

    def set_shown(self, shown: bool) -> None:
        """Starts nothing before somebody looks."""
        self._is_shown_now = shown
        if shown and self.learned.totals is None:
            self._begin()
        elif shown:
            self._show_row()

    def go_to(self, place: int) -> None:
        """Shows another row."""
        self._place = place
        if self._is_shown_now:
            self._show_row()

    def step(self, step: int) -> None:
        """Shows the next row, or the one before."""
        if self._rows is not None:
            self.go_to(min(max(self._place + step, 0), len(self._rows) - 1))
            self.place_chosen.emit(self._place)

    def _begin(self) -> None:
        self._put_error(None)
        if self._spec is None or self._rows is None:
            self._wait(self.tr("Say first which column is which."))
        elif not self._spec.model.path:
            self._wait(self.tr("Choose a model. Its tokenizer makes the tokens."))
        elif self._rows.folder is not None:
            self._wait(self.tr("Reading the data with the model's own tokenizer…"))
            self.learned.begin(self._spec, self._rows)

    def _wait(self, words: str) -> None:
        self._waiting.setText(words)
        self._stack.setCurrentIndex(0)

    def _fail(self, error: TunesmithError) -> None:
        if error.code == "environment-missing":
            setup = (self.tr("Set up training"), self.setup_asked.emit)
            words = self.tr("The tokens come from the model's own tokenizer, which is part of it.")
            self._put_error(EmptyState("environment", self.tr("Training is not set up yet"), words, primary=setup))
        else:
            self._put_error(error_banner(error, dismissable=False, parent=self))

    def _put_error(self, widget: QWidget | None) -> None:
        if self._error is not None:
            self._error.hide()
            self._error.deleteLater()
        self._error = widget
        self._stack.setVisible(widget is None)
        if widget is not None:
            self._column.insertWidget(2, widget, 1 if isinstance(widget, EmptyState) else 0)

    # Showing

    def _show_totals(self) -> None:
        answer = self.learned.totals
        assert answer is not None
        whole = self.tr("%Ln row(s)", "", answer["num_rows"])
        if not answer["is_complete"]:
            whole = self.tr("The first %Ln row(s)", "", answer["num_rows"])
        all_tokens = answer["num_tokens"] + answer["num_lost_tokens"]
        lost = 100 * answer["num_lost_tokens"] / max(all_tokens, 1)
        context = answer["context_length"]
        parts = [
            whole,
            self.tr("%Ln token(s)", "", answer["num_tokens"]),
            fill(self.tr("%1 learned (%2%)"), number(answer["num_trained_tokens"]), number(_percent(answer), 1)),
            self.tr("longest %Ln token(s)", "", answer["longest_tokens"]),
        ]
        if lost:
            parts.append(fill(self.tr("%1% cut off at the context length of %2"), number(lost, 1), number(context)))
        if answer["num_skipped"]:
            parts.append(fill(self.tr("%1 skipped"), number(answer["num_skipped"])))
        if answer["num_untrained"]:
            parts.append(fill(self.tr("%1 without learned tokens"), number(answer["num_untrained"])))
        if answer["pairs"] == "chat":
            parts.append(self.tr("trained as a chat"))
        self.totals.setText("  ·  ".join(parts))
        notes = [line(core_text(note), _MOST_LETTERS) for note in answer["notes"]]
        self.notes.setText("\n".join(notes[:3]))
        self.notes.setVisible(bool(notes))
        self.histogram.set_bars(answer["histogram"], answer["context_length"], self.totals.text())
        self._stack.setCurrentIndex(1)
        self._show_row()

    def _on_row_known(self, place: int) -> None:
        if place == self._place and self._is_shown_now:
            self._show_row()

    def _on_changed(self, places: list[int]) -> None:
        self.learned.forget(places)
        if self._place in places and self._is_shown_now:
            self._show_row()

    def _show_row(self) -> None:
        rows = self._rows
        if rows is None or self.learned.totals is None or not len(rows):
            return
        place = min(self._place, len(rows) - 1)
        words = rows.words(place)
        row = self.learned.row(place)
        if row is None:
            self.view.show_words(self.tr("Reading the row…"))
            self.learned.want(place)
        elif isinstance(row, str):
            self.view.show_words(fill(self.tr("The run leaves this row out: %1"), row))
        else:
            counts = self.tr("%1  ·  %Ln token(s), %2 learned", "", row["num_tokens"])
            words = fill(counts, words, number(row["num_trained_tokens"]))
            self.view.show_row(row)
        if rows.is_edited(place):
            words = fill(self.tr("%1  ·  edited, not saved yet"), words)
        self.place.setText(words)
        self.previous.setEnabled(place > 0)
        self.next.setEnabled(place < len(rows) - 1)


def _percent(answer: dict[str, Any]) -> float:  # Any: JSON values
    return 100.0 * float(answer["num_trained_tokens"]) / max(answer["num_tokens"], 1)
