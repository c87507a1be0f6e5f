"""A message in place: icon and words in a tone, up to a few actions, optionally dismissable; never a pop-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_gui.icons import pixmap
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel, restyle
from tunesmith_gui.widgets.side_by_side import SideBySide

Tone = Literal["neutral", "ok", "warn", "error"]
BannerAction = tuple[str, Callable[[], object]]
"""Words of a button and what it does."""

TONE_ICONS = {"neutral": "info", "accent": "info", "ok": "check-circle", "warn": "warning", "error": "error"}
_WORDS_LETTERS = 44
"""Where less than that is left for a line of the message, the buttons go below it."""
_MOST_LINES = 4
"""The title and three of the text: where the buttons would squeeze the message into more, they go below it, too."""
_DETAILS_LETTERS = 20_000


class Banner(QFrame):
    """One message with its next steps.

    Args:
        tone: neutral (plain information), ok, warn or error.
        title: the message, at most about 90 characters.
        text: cause and next step, optional.
        details: what a person rarely needs, shown on demand, optional.
        actions: button texts with what they do; the first is the recommended one.
        dismissable: a close button at the right.

    Signals:
        dismissed: the person closed it (it hides itself).
    """

    dismissed = Signal()

    def __init__(
        self,
        tone: Tone,
        title: str,
        text: str = "",
        *,
        details: str = "",
        actions: tuple[BannerAction, ...] = (),
        dismissable: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._tone: Tone = tone
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        row = QHBoxLayout(self)
        row.setContentsMargins(SPACE * 3 // 2, SPACE, SPACE, SPACE)
        row.setSpacing(SPACE * 3 // 2)
        self._icon = SafeLabel(parent=self)
        row.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignTop)
        message = QWidget(self)
        words = QVBoxLayout(message)
        words.setContentsMargins(0, 0, 0, 0)
        words.setSpacing(2)
        self._title = SafeLabel(role="strong", wrap=True, parent=self)
        self._text = SafeLabel(wrap=True, selectable=True, parent=self)
        words.addStretch(1)
        words.addWidget(self._title)
        words.addWidget(self._text)
        self.more = button(self.tr("Details"), self._show_details, kind="link", parent=self)
        self._details = SafeLabel(tone="muted", wrap=True, selectable=True, most=_DETAILS_LETTERS, parent=self)
        words.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        words.addWidget(self._details)
        words.addStretch(1)
        self.buttons = [button(words, run, parent=self) for words, run in actions]
        if self.buttons:
            row_of_buttons = FlowRow(self.buttons, self)
            parts = SideBySide(
                message, row_of_buttons, first_letters=_WORDS_LETTERS, most_lines=_MOST_LINES, parent=self
            )
            row.addWidget(parts, 1)
        else:
            row.addWidget(message, 1)
        if dismissable:
            close = IconButton("close", self.tr("Dismiss"), self._dismiss, parent=self)
            row.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        theme().changed.connect(self._draw_icon)
        self.set_message(tone, title, text, details)

    def sizeHint(self) -> QSize:
        """As high as its words and buttons need at its present width: a banner never grows beyond its hint."""
        hint = super().sizeHint()
        return QSize(hint.width(), max(hint.height(), self.heightForWidth(self.width())))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width may ask for another height."""
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.updateGeometry()

    def set_message(self, tone: Tone, title: str, text: str = "", details: str = "") -> None:
        """Shows another message in the same banner."""
        self._tone = tone
        self._title.setText(title)
        self._text.setText(text)
        self._text.setVisible(bool(text))
        self._details.setText(details)
        self._details.hide()
        self.more.setVisible(bool(details))
        self.setAccessibleName(title)
        self.setAccessibleDescription(text)
        self.setProperty("banner", tone)
        restyle(self)
        self._draw_icon()

    def _show_details(self) -> None:
        self._details.show()
        self.more.hide()

    def _draw_icon(self) -> None:
        role = "muted" if self._tone == "neutral" else self._tone
        self._icon.setPixmap(pixmap(TONE_ICONS[self._tone], role, round(20 * theme().font_scale)))

    def _dismiss(self) -> None:
        self.hide()
        self.dismissed.emit()
