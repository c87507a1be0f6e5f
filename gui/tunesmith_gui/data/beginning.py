"""The beginning of a file of which no row can be read, as it stands there, with the line that is wrong marked."""

from __future__ import annotations

from PySide6.QtGui import QTextCharFormat
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_gui.data.hits import wrong_format
from tunesmith_gui.plain_text import ColoredText
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.theme import font, theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.safe_label import SafeLabel


class Beginning(QWidget):
    """Hidden where there are rows to be seen."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._data: DataFacts | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        label = SafeLabel(self.tr("The beginning of the file"), role="strong", parent=self)
        self.text = ColoredText(self)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName(label.text())
        for each in (label, self.text):
            column.addWidget(each)
        theme().changed.connect(self._show)
        self.hide()

    def show_data(self, data: DataFacts | None) -> None:
        """Shows that of another file; None for none."""
        self._data = data
        self._show()

    def _show(self) -> None:
        beginning = self._data.beginning if self._data is not None else ""
        self.setVisible(bool(beginning))
        self.text.setFont(font("mono"))
        lines = beginning.splitlines(keepends=True)
        wrong = _line(self._data.error) if self._data is not None else 0
        plain, look = QTextCharFormat(), wrong_format()
        self.text.set_segments((line, look if number == wrong else plain) for number, line in enumerate(lines, 1))


def _line(error: TunesmithError | None) -> int:
    """The line that an error names, 0 for none."""
    place = error.message.values.get("place") if error is not None and isinstance(error.message, Message) else None
    line = place.values.get("line") if isinstance(place, Message) else None
    return line if isinstance(line, int) else 0
