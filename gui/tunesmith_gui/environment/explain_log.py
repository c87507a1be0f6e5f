"""Names the cause of a failure from what any tool printed: paste it, drop a file, or open one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QObject, QSize, Qt, QTimer
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QPlainTextEdit,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from tunesmith_core.errors import TunesmithError
from tunesmith_core.explain import Explanation, decode, explain, read_file
from tunesmith_gui.background import Job
from tunesmith_gui.environment.diagnosis_view import DiagnosisView
from tunesmith_gui.theme import font
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.fitting import fitting_size
from tunesmith_gui.widgets.safe_label import SafeLabel

TYPING_PAUSE_MS = 300
_WIDTH_LETTERS, _HEIGHT_LINES = 110, 36
_LEAST_LINES = 3


class _LogEdit(QPlainTextEdit):
    """Gives dropped files to its dialog instead of pasting their addresses."""

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return not source.hasUrls() and super().canInsertFromMimeData(source)


class _Room(QScrollArea):
    """As high as the answer, and scrolling where the dialog has less room."""

    def __init__(self, content: QWidget, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self._content = content
        self.setWidget(content)
        content.installEventFilter(self)

    def sizeHint(self) -> QSize:
        return QSize(self._content.sizeHint().width(), max(self._content.heightForWidth(self.width()), 0))

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().lineSpacing() * _LEAST_LINES)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


class ExplainLogDialog(QDialog):
    """A text and the answer below it, renewed while the person types; does not block the window.

    The facts about this computer play no part: a log from elsewhere must not inherit them.

    Args:
        do_action: takes the name of an action whose button was pressed.
    """

    def __init__(self, do_action: Callable[[str], object], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Explain a log"))
        self._number = 0
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        column.setSpacing(SPACE + SPACE // 2)
        column.addWidget(SafeLabel(self.tr("Explain a log"), role="heading", parent=self))
        words = self.tr("Paste what a training tool printed, or drop its file here. Nothing leaves this computer.")
        column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        self.text = _LogEdit(self)
        self.text.setAccessibleName(self.tr("Text of the log"))
        self.text.setTabChangesFocus(True)
        self.text.setFont(font("mono"))
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.text.setMinimumHeight(self.text.fontMetrics().lineSpacing() * _LEAST_LINES)
        column.addWidget(self.text, 1)
        self.answer = DiagnosisView(do_action, parent=self)
        column.addWidget(_Room(self.answer, self))
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addWidget(button(self.tr("Open file…"), self._browse, icon_name="folder", parent=self))
        row.addStretch(1)
        close = button(self.tr("Close"), self.close, parent=self)
        row.addWidget(close)
        column.addLayout(row)
        self.resize(fitting_size(self, _WIDTH_LETTERS, _HEIGHT_LINES))
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(TYPING_PAUSE_MS)
        self._typing.timeout.connect(self._explain)
        self.text.textChanged.connect(self._typing.start)
        self.setAcceptDrops(True)
        self.text.setFocus()

    def open_file(self, path: Path) -> None:
        """Reads a log file in the background and explains it."""
        Job.start(self, lambda: decode(read_file(path)), self.text.setPlainText, self._show_error)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Takes files."""
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Opens the first file."""
        files = [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
        if files:
            event.acceptProposedAction()
            self.open_file(Path(files[0]))

    def _browse(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, self.tr("Open a log"))
        if path:
            self.open_file(Path(path))

    def _explain(self) -> None:
        self._typing.stop()
        text = self.text.toPlainText()
        self._number += 1
        number = self._number
        if not text.strip():
            self.answer.show_diagnosis(None)
            return

        def done(found: Explanation) -> None:
            if number == self._number:  # an older text's answer is of no use any more
                self.answer.show_diagnosis(found)

        Job.start(self, lambda: explain(text), done, self._show_error)

    def _show_error(self, error: TunesmithError) -> None:
        self.answer.show_error(error)
