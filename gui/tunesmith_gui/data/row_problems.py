"""What a check found in one row: the rule, what is wrong, where, and what is done about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from tunesmith_core.datafmt.json_rows import Row
from tunesmith_gui.data.hits import Span
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.safe_label import SafeLabel

MOST_SHOWN = 3
"""Of one row; the text below needs room too."""


@dataclass(frozen=True, slots=True)
class RowProblem:
    """Something wrong with a row.

    Attributes:
        rule: its name.
        title: of the rule.
        message: what is wrong.
        letter: of the row's line, from 1, where it is; 0 when unknown.
        keys: the way to the value that is wrong; () for the row as a whole.
        spans: the parts of that value, if it is a text.
    """

    rule: str
    title: str
    message: str
    letter: int = 0
    keys: tuple[str | int, ...] = ()
    spans: tuple[Span, ...] = ()

    @staticmethod
    def from_answer(rule: Mapping[str, Any], row: Mapping[str, Any]) -> RowProblem:  # Any: JSON values
        """Return what an answer of the check says of a row."""
        spans = tuple((int(begin), int(end)) for begin, end in row.get("spans") or ())
        keys = tuple(row.get("keys") or ())
        return RowProblem(rule["rule"], rule["title"], row["message"], row.get("column") or 0, keys, spans)

    @property
    def column(self) -> str:
        """The column that is wrong, "" for the row as a whole."""
        return str(self.keys[0]) if self.keys else ""

    def parts(self, row: Row) -> list[str]:
        """The words of a row that are wrong."""
        value: Any = row  # Any: JSON values
        try:
            for key in self.keys:
                value = value[key]
        except (KeyError, IndexError, TypeError):
            return []
        return [value[begin:end] for begin, end in self.spans] if isinstance(value, str) else []


class RowProblems(QFrame):
    """The problems of the row in front."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("banner", "warn")
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(SPACE * 3 // 2, SPACE, SPACE * 3 // 2, SPACE)
        self._column.setSpacing(2)
        self._labels: list[SafeLabel] = []
        self.hide()

    def show_problems(self, problems: Sequence[RowProblem], actions: Mapping[str, str]) -> None:
        """Shows them, with what is done about each rule in words."""
        for label in self._labels:
            self._column.removeWidget(label)
            label.hide()
            label.deleteLater()
        self._labels = []
        for problem in problems[:MOST_SHOWN]:
            self._add(core_text(problem.title), "strong")
            self._labels[-1].setContentsMargins(0, SPACE // 2 if len(self._labels) > 1 else 0, 0, 0)
            words = core_text(problem.message)
            words = words[:1].upper() + words[1:]
            if problem.rule in actions:
                words = fill(self.tr("%1 What is done: %2"), words, actions[problem.rule])
            self._add(words, "body")
        if len(problems) > MOST_SHOWN:
            self._add(fill(self.tr("and %1 more"), len(problems) - MOST_SHOWN), "body")
        self._keep_height()
        self.setVisible(bool(problems))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Stays high enough for all lines: a splitter asks only for the least height."""
        super().resizeEvent(event)
        self._keep_height()

    def _keep_height(self) -> None:
        self.setMinimumHeight(max(0, self._column.totalHeightForWidth(self.width())))

    def _add(self, words: str, role: str) -> None:
        label = SafeLabel(words, role=role, wrap=True, parent=self)
        self._column.addWidget(label)
        self._labels.append(label)

    def words(self) -> str:
        """What is shown, for who can't see it."""
        return "\n".join(label.text() for label in self._labels)
