"""The log of a run: bounded, filtered by level and words, following its end unless the person scrolled away."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPlainTextEdit, QVBoxLayout, QWidget

from tunesmith_core.plain_text import visible
from tunesmith_gui.models.log_lines import MAX_LINES, LogLine, LogLines, filter_lines
from tunesmith_gui.theme import font, theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.segmented import Segmented

_TYPING_PAUSE_MS = 150
_LEAST_LINES = 10


class LogConsole(QWidget):
    """Shows a LogLines; `refresh` appends what came since the last call."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._lines = LogLines()
        self._num_seen = 0
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.search = QLineEdit(self)
        self.search.setPlaceholderText(self.tr("Find in the log"))
        self.search.setAccessibleName(self.tr("Find in the log"))
        self.search.setClearButtonEnabled(True)
        levels = (("debug", self.tr("All")), ("warning", self.tr("Warnings")), ("error", self.tr("Errors")))
        self.level = Segmented(self.tr("Level"), levels, parent=self)
        row.addWidget(self.search, 1)
        row.addWidget(self.level)
        row.addWidget(button(self.tr("Copy"), self._copy, kind="quiet", icon_name="copy", parent=self))
        column.addLayout(row)
        self.view = QPlainTextEdit(self)
        self.view.setReadOnly(True)
        self.view.setUndoRedoEnabled(False)
        self.view.setMaximumBlockCount(MAX_LINES)
        self.view.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.view.setTabChangesFocus(True)
        self.view.setAccessibleName(self.tr("Log"))
        column.addWidget(self.view, 1)
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(_TYPING_PAUSE_MS)
        self._typing.timeout.connect(self._show_all)
        self.search.textChanged.connect(lambda _text: self._typing.start())
        self.level.changed.connect(lambda _level: self._show_all())
        QShortcut(QKeySequence.StandardKey.Find, self.view, self.search.setFocus)
        theme().changed.connect(self._theme_changed)
        self._theme_changed()

    def set_lines(self, lines: LogLines) -> None:
        """Show another log."""
        self._lines = lines
        self._show_all()

    def refresh(self) -> None:
        """Append what came since the last call."""
        fresh = self._lines.since(self._num_seen)
        self._num_seen = self._lines.num_added
        self._append(list(filter_lines(fresh, self.level.value, self.search.text())))

    def _append(self, lines: list[LogLine]) -> None:
        if not lines:
            return
        bar = self.view.verticalScrollBar()
        at_end = bar.value() >= bar.maximum() - 2
        self.view.appendPlainText(visible("\n".join(line.format() for line in lines)))
        if at_end:
            bar.setValue(bar.maximum())

    def _show_all(self) -> None:
        self.view.clear()
        self._num_seen = self._lines.num_added
        self._append(list(self._lines.matching(self.level.value, self.search.text())))

    def _copy(self) -> None:
        cursor = self.view.textCursor()
        if not cursor.hasSelection():
            self.view.selectAll()
        self.view.copy()
        self.view.setTextCursor(cursor)

    def _theme_changed(self) -> None:
        self.view.setFont(font("mono"))
        self.view.setMinimumHeight(self.view.fontMetrics().lineSpacing() * _LEAST_LINES)
