"""Labels that never interpret markup: file names, model names and log lines come from outside and may hold HTML.

Every text in the window is a `SafeLabel` (or `ElidedLabel` where the width is not ours to choose); plain QLabel is not
used. `role` picks the type size: caption, note (a caption on a soft ground), body, strong (body, semi-bold), heading,
title, hero (the one or two numbers a page is about). `tone` picks the colour: text, muted, accent, ok, warn, error.
"""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from tunesmith_core.messages import Message
from tunesmith_core.plain_text import shortened
from tunesmith_gui.plain_text import LONGEST_WORD, MAX_LETTERS, line, paragraphs, set_tip, without_breaks
from tunesmith_gui.tr import core_text

_LINE_COLUMNS = 100
"""Of a label that breaks no lines: a longer one would widen its page."""


def restyle(widget: QWidget) -> None:
    """Makes the style sheet look at a widget's properties again after one of them changed."""
    style = widget.style()
    style.unpolish(widget)
    style.polish(widget)
    widget.update()


class SafeLabel(QLabel):
    """A label that shows its text literally.

    Args:
        text: what to show, as it is.
        role: type size.
        tone: colour.
        wrap: break lines when the width does not suffice.
        selectable: the text can be selected and copied by mouse.
        most: how many letters are shown; the rest of a longer text is left out.
        longest_word: letters that stay in one line; a longer word is broken where lines are.
    """

    def __init__(
        self,
        text: str = "",
        *,
        role: str = "body",
        tone: str = "text",
        wrap: bool = False,
        selectable: bool = False,
        most: int = MAX_LETTERS,
        longest_word: int = LONGEST_WORD,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._most, self._longest_word = most, longest_word
        super().setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", role)
        self.setProperty("tone", tone)
        self.setWordWrap(wrap)
        if selectable:
            self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setText(text)

    def setText(self, text: str) -> None:
        """Shows a text; a message of the core in the language in force."""
        super().setText(self._plain(core_text(text) if isinstance(text, Message) else text))

    def text(self) -> str:
        """Return what is read, without the invisible places where lines may be broken."""
        return without_breaks(super().text())

    def _plain(self, text: str) -> str:
        if self.wordWrap():
            return paragraphs(text, self._most, self._longest_word)
        return "\n".join(shortened(each, _LINE_COLUMNS) for each in paragraphs(text, self._most).split("\n"))

    def setTextFormat(self, _format: Qt.TextFormat) -> None:
        """Refused: the format of a safe label is plain text.

        Raises:
            TypeError: always.
        """
        raise TypeError("a SafeLabel shows plain text only")

    def set_tone(self, tone: str) -> None:
        """Changes the colour."""
        if self.property("tone") != tone:
            self.setProperty("tone", tone)
            restyle(self)


class WrittenLabel(SafeLabel):
    """A label for what a model wrote or should have written, which makes no page wider, whatever it is.

    A model that trains badly writes without spaces, and letters that are wider than any that a person writes.
    """

    LONGEST_WORD = 24

    def __init__(
        self, text: str, *, role: str = "body", tone: str = "text", most: int = MAX_LETTERS, parent: QWidget
    ) -> None:
        super().__init__(
            text,
            role=role,
            tone=tone,
            wrap=True,
            selectable=True,
            most=most,
            longest_word=self.LONGEST_WORD,
            parent=parent,
        )

    def minimumSizeHint(self) -> QSize:
        """Wide enough for a word; wider pieces are cut off rather than the buttons of the page."""
        most_px = self.fontMetrics().averageCharWidth() * self.LONGEST_WORD
        return super().minimumSizeHint().boundedTo(QSize(most_px, 1 << 20))


class ElidedLabel(SafeLabel):
    """One line that is shortened with an ellipsis and shows the whole text as its tool tip when it was."""

    def __init__(
        self,
        text: str = "",
        *,
        role: str = "body",
        tone: str = "text",
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
        parent: QWidget | None = None,
    ) -> None:
        self._mode = mode
        self._whole = ""
        super().__init__(text, role=role, tone=tone, parent=parent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def _plain(self, text: str) -> str:
        self._whole = text
        return line(text)

    def minimumSizeHint(self) -> QSize:
        """Wide enough for a few letters and the ellipsis."""
        return QSize(self.fontMetrics().averageCharWidth() * 4, super().minimumSizeHint().height())

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draws the shortened text."""
        rect = self.contentsRect()
        shown = self.fontMetrics().elidedText(self.text(), self._mode, rect.width())
        set_tip(self, "" if shown == self._whole else self._whole)
        painter = QPainter(self)
        painter.setPen(self.palette().color(QPalette.ColorRole.WindowText))
        painter.drawText(rect, int(self.alignment() | Qt.AlignmentFlag.AlignVCenter), shown)
