"""The Log tab of a run: what the journal tells, and what the engine and its libraries wrote by themselves."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPlainTextEdit, QStackedWidget, QVBoxLayout, QWidget

from tunesmith_core.plain_text import visible
from tunesmith_gui.dashboard.report import EngineOutput
from tunesmith_gui.models.log_lines import MAX_LINES
from tunesmith_gui.theme import font, theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.log_console import LogConsole
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.segmented import Segmented


class LogPane(QWidget):
    """A switch between the run's log and the engine's output.

    Attributes:
        console: the log.

    Signals:
        output_wanted: the engine's output came to the front and should be read.
    """

    output_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        options = (("log", self.tr("Run log")), ("output", self.tr("Engine output")))
        self.source = Segmented(self.tr("What to show"), options, parent=self)
        column.addWidget(self.source)
        self._stack = QStackedWidget(self)
        self.console = LogConsole(self)
        self._stack.addWidget(self.console)
        self._stack.addWidget(self._build_output())
        column.addWidget(self._stack, 1)
        self.source.changed.connect(self._switch)
        theme().changed.connect(self._theme_changed)
        self._theme_changed()

    def _build_output(self) -> QWidget:
        holder = QWidget(self)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        self._note = SafeLabel("", tone="muted", wrap=True, parent=holder)
        column.addWidget(self._note)
        self.output = QPlainTextEdit(holder)
        self.output.setReadOnly(True)
        self.output.setUndoRedoEnabled(False)
        self.output.setMaximumBlockCount(MAX_LINES)
        self.output.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.output.setTabChangesFocus(True)
        self.output.setAccessibleName(self.tr("Engine output"))
        column.addWidget(self.output, 1)
        return holder

    def show_output(self, output: EngineOutput) -> None:
        """Show the engine's output; the view follows its end unless the person scrolled away."""
        notes = {"all": "", "end": self.tr("Only the end is shown."), "none": self.tr("No engine output yet.")}
        self._note.setText(notes[output.extent])
        self._note.setVisible(output.extent != "all")
        text = visible(output.text)
        if text == self.output.toPlainText():
            return
        bar = self.output.verticalScrollBar()
        place, at_end = bar.value(), bar.value() >= bar.maximum() - 2
        self.output.setPlainText(text)
        bar.setValue(bar.maximum() if at_end else place)

    def _switch(self, source: str) -> None:
        self._stack.setCurrentIndex(1 if source == "output" else 0)
        if source == "output":
            self.output_wanted.emit()

    def _theme_changed(self) -> None:
        self.output.setFont(font("mono"))
