"""The first examples exactly as the model will see them, the learned tokens marked, and how long examples are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QColor, QTextCharFormat
from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.objectives import FROM_LABELS, FROM_PAIRS, FROM_STEPS, LABELS, REINFORCEMENT
from tunesmith_core.operations.kinds.engine import PREVIEW, PreviewSpec
from tunesmith_core.spec import RunSpec
from tunesmith_gui.plain_text import ColoredText, line
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.theme import font, theme, tokens
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number, translate
from tunesmith_gui.widgets.answer_heading import answer_heading
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.length_histogram import LengthHistogram
from tunesmith_gui.widgets.row_words import number_words
from tunesmith_gui.widgets.safe_label import SafeLabel

NUM_ROWS = 20
LOADING_AFTER_MS = 150
PROBLEM_LETTERS = 500
MAX_PROBLEMS_SHOWN = 5


class DataPreviewDialog(QDialog):
    """Asks the engine for a preview and shows it; open it with `show()`.

    Signals:
        measured: (dict) the engine's answer, for the plan and the count of skipped rows.
    """

    measured = Signal(object)

    def __init__(self, spec: RunSpec, kind: str = "", parent: QWidget | None = None) -> None:
        """Asks for a preview.

        Args:
            spec: the run.
            kind: of its data file, which tells how rows are counted.
            parent: the window asks over it.
        """
        super().__init__(parent)
        self._kind = kind
        # A label is learned from the whole text; answers that a model writes itself are in no data.
        self._counts_trained = spec.objective.kind not in {*FROM_LABELS, *FROM_STEPS, *REINFORCEMENT}
        self._has_several_files = len(spec.data.sources) > 1
        self._answer: dict[str, Any] = {}  # Any: JSON values
        self._examples: list[list[dict[str, Any]]] = []
        self._place = 0
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Preview of the data"))
        self.resize(SPACE * 95, SPACE * 78)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        self._column.setSpacing(SPACE + SPACE // 2)
        self._column.addWidget(SafeLabel(self.tr("As the model will see it"), role="heading", parent=self))
        legend = self.tr("The model learns the underlined text. The rest is context.")
        if spec.objective.kind in FROM_PAIRS:
            legend = self.tr("The model learns to prefer the better underlined text. The rest is context.")
        if spec.objective.kind in LABELS:
            legend = self.tr(
                "The model learns to write more like good answers and less like bad ones. The underlined text counts. "
                "The rest is context."
            )
        if spec.objective.kind in FROM_LABELS:
            legend = self.tr("The model reads the underlined text and learns its label.")
        if spec.objective.kind in FROM_STEPS:
            legend = self.tr("The model reads the solution and learns at the end of each step whether it is right.")
        if spec.objective.kind in REINFORCEMENT:
            legend = self.tr("The model answers each prompt itself. The underlined text is what its answers should be.")
        self._column.addWidget(SafeLabel(legend, tone="muted", wrap=True, parent=self))
        self.status = SafeLabel(self.tr("Reading the data with the model's own tokenizer…"), tone="muted", parent=self)
        self.status.hide()
        self._column.addWidget(self.status)
        self._content = QWidget(self)
        self._build_content()
        self._column.addWidget(self._content, 1)
        self._filler = QWidget(self)
        self._column.addWidget(self._filler, 1)
        self._content.hide()
        foot = QHBoxLayout()
        foot.addStretch(1)
        close = button(self.tr("Close"), self.close, parent=self)
        close.setDefault(True)
        foot.addWidget(close)
        self._column.addLayout(foot)
        QTimer.singleShot(LOADING_AFTER_MS, self, self._show_loading)
        theme().changed.connect(self._show_row)
        self.task = OperationTask(PREVIEW, PreviewSpec(spec, NUM_ROWS), parent=parent or self)
        self.task.succeeded.connect(self._succeed)
        self.task.failed.connect(self._fail)
        self._waiting = True
        self.task.start()

    def done(self, result: int) -> None:
        """Ends the engine's work when the dialog is closed early."""
        if self._waiting:
            self._waiting = False
            self.task.cancel()
        super().done(result)

    def _build_content(self) -> None:
        column = QVBoxLayout(self._content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        row = QHBoxLayout()
        self.place = SafeLabel(role="strong", parent=self._content)
        row.addWidget(self.place)
        row.addStretch(1)
        self.previous = IconButton("chevron-left", self.tr("Previous example"), lambda: self._move(-1), parent=self)
        self.next = IconButton("chevron-right", self.tr("Next example"), lambda: self._move(1), parent=self)
        row.addWidget(self.previous)
        row.addWidget(self.next)
        column.addLayout(row)
        self.text = ColoredText(self._content)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName(self.tr("Example as the model will see it"))
        column.addWidget(self.text, 1)
        self.counts = SafeLabel(tone="muted", wrap=True, parent=self._content)
        column.addWidget(self.counts)
        self.histogram = LengthHistogram(parent=self._content)
        column.addWidget(self.histogram)
        self.problems = SafeLabel(tone="warn", wrap=True, selectable=True, parent=self._content)
        column.addWidget(self.problems)

    def _show_loading(self) -> None:
        self.status.setVisible(self._waiting)

    def _fail(self, error: TunesmithError) -> None:
        self._waiting = False
        self.status.hide()
        self._column.insertWidget(2, error_banner(error, dismissable=False, parent=self))

    def _succeed(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        self._waiting = False
        self._answer = answer
        self._examples = _examples(answer["rows"])
        self.status.hide()
        self._filler.hide()
        self._content.show()
        num_rows = answer["num_rows"]
        parts = [
            self.tr("%Ln example(s)", "", num_rows)
            if answer["is_complete"]
            else self.tr("the first %Ln example(s)", "", num_rows),
            self.tr("longest %Ln token(s)", "", answer["longest_tokens"]),
            fill(self.tr("%1 cut at the context length"), number(answer["num_cut"])),
            fill(self.tr("%1 skipped"), number(answer["num_skipped"])),
        ]
        if answer["num_untrained"]:
            parts.append(fill(self.tr("%1 without trained tokens"), number(answer["num_untrained"])))
        if answer.get("pairs") == "chat":
            parts.append(self.tr("trained as a chat"))
        self.counts.setText("  ·  ".join(parts))
        self.histogram.set_bars(answer["histogram"], answer["context_length"], self.counts.text())
        said = [*answer.get("notes", []), *(each["message"] for each in answer["problems"])]
        problems = [line(core_text(each), PROBLEM_LETTERS) for each in said]
        more = len(problems) - MAX_PROBLEMS_SHOWN
        words = problems[:MAX_PROBLEMS_SHOWN] + ([fill(self.tr("and %1 more"), more)] if more > 0 else [])
        self.problems.setText("\n".join(words))
        self.problems.setVisible(bool(words))
        self._show_row()
        self.measured.emit(answer)

    def _move(self, step: int) -> None:
        self._place = min(max(self._place + step, 0), len(self._examples) - 1)
        self._show_row()

    def _show_row(self) -> None:
        if not self._examples:
            return
        rows, num_examples = self._examples[self._place], len(self._examples)
        words = self.tr("Example %1 of %2  ·  %3  ·  %4 tokens, %5 trained")
        counts = [number(sum(row[name] for row in rows)) for name in ("num_tokens", "num_trained_tokens")]
        # "folder/file, line 3" says too much beside a few files.
        several = self._has_several_files
        place = Path(core_text(rows[0]["place"])).name if several else number_words(self._kind, rows[0]["line"])
        if self._answer["num_rows"] > num_examples:
            words = self.tr("Example %1 of the first %2  ·  %3  ·  %4 tokens, %5 trained")
        if not self._counts_trained:
            words = self.tr("Example %1 of %2  ·  %3  ·  %4 tokens")
            if self._answer["num_rows"] > num_examples:
                words = self.tr("Example %1 of the first %2  ·  %3  ·  %4 tokens")
        self.place.setText(fill(words, self._place + 1, num_examples, place, *counts))
        if len(rows) > 1:
            # One number for both answers would tell nothing about either.
            self.place.setText(f"{self.place.text().rpartition('  ·  ')[0]}  ·  {_both_counts(rows)}")
        self.previous.setEnabled(self._place > 0)
        self.next.setEnabled(self._place < num_examples - 1)
        self.text.set_segments(_segments(rows))


def _both_counts(rows: list[dict[str, Any]]) -> str:  # Any: JSON values
    """How many tokens each answer of a pair has with its prompt, and how many of them are its own."""
    words = translate("DataPreviewDialog", "better %1 tokens, %2 trained, worse %3 tokens, %4 trained")
    return fill(words, *(number(row[name]) for row in rows for name in ("num_tokens", "num_trained_tokens")))


def _examples(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:  # Any: JSON values
    """The rows of each example: of a pair both answers, else one."""
    found: list[list[dict[str, Any]]] = []
    for row in rows:
        if row.get("answer") == "worse":
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _segments(rows: list[dict[str, Any]]) -> Iterator[tuple[str, QTextCharFormat]]:  # Any: JSON values
    for row in rows:
        if answer := row.get("answer"):
            yield answer_heading(answer)
        if label := row.get("label"):
            yield fill(translate("DataPreviewDialog", "Label: %1"), label) + "\n", _said_format()
        for each in row["segments"]:
            if "is_right" in each:
                # What is trained there is a line break, which shows nothing.
                right, wrong = translate("DataPreviewDialog", "right"), translate("DataPreviewDialog", "wrong")
                yield f"  [{right if each['is_right'] else wrong}]", _said_format(each["is_right"])
            yield each["text"], _segment_format(each["trained"])


def _said_format(is_good: bool = True) -> QTextCharFormat:
    """How what people say of a text looks."""
    result = QTextCharFormat()
    result.setFont(font("strong"))
    result.setForeground(QColor(tokens().accent_text if is_good else tokens().error))
    return result


def _segment_format(trained: bool) -> QTextCharFormat:
    result = QTextCharFormat()
    result.setFont(font("mono"))
    result.setForeground(QColor(tokens().text if trained else tokens().muted))
    if trained:
        result.setBackground(QColor(tokens().accent_soft))
        result.setFontUnderline(True)
        result.setUnderlineColor(QColor(tokens().accent_text))
    return result
