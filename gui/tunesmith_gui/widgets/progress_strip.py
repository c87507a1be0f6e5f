"""The phases of a run as a stepped bar: what is done, what goes on and how far it is."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from tunesmith_gui.run_words import PHASES, phase_word
from tunesmith_gui.theme import font, theme, tokens
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill

_BAR_PX = 6
_TRAINING_SHARE = 3.0
"""Training is drawn that much wider than the other phases, as it takes nearly all of the time."""


class ProgressStrip(QWidget):
    """One segment per phase, its word below it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._phase = ""
        self._fraction = 0.0
        self._over = False
        self._tone = "accent"
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Progress"))
        theme().changed.connect(self._theme_changed)
        self._theme_changed()

    def set_progress(self, phase: str, fraction: float, *, over: bool = False, tone: str = "accent") -> None:
        """Show a phase and its share of 0 to 1; `over` fills all segments that were reached."""
        state = (phase, round(fraction, 4), over, tone)
        if state == (self._phase, self._fraction, self._over, self._tone):
            return
        self._phase, self._fraction, self._over, self._tone = state
        percent = round(fraction * 100)
        self.setAccessibleDescription(fill(self.tr("%1, %2 percent"), phase_word(phase), percent))
        self.update()

    def sizeHint(self) -> QSize:
        """Bar and one line of words."""
        return QSize(320, _BAR_PX + SPACE + self.fontMetrics().height())

    minimumSizeHint = sizeHint

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draws segments and words."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        current = PHASES.index(self._phase) if self._phase in PHASES else -1
        shares = [_TRAINING_SHARE if phase == "training" else 1.0 for phase in PHASES]
        gap = SPACE / 2
        unit = (self.width() - gap * (len(PHASES) - 1)) / sum(shares)
        left = 0.0
        for place, (phase, share) in enumerate(zip(PHASES, shares, strict=True)):
            width = share * unit
            done = 1.0 if self._over or place < current else self._fraction if place == current else 0.0
            self._paint_segment(painter, QRectF(left, 0, width, _BAR_PX), done)
            self._paint_word(painter, QRectF(left, _BAR_PX + SPACE / 2, width, self.height()), phase, place - current)
            left += width + gap

    def _paint_segment(self, painter: QPainter, rect: QRectF, done: float) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(tokens().hover))
        painter.drawRoundedRect(rect, _BAR_PX / 2, _BAR_PX / 2)
        if done > 0:
            colour = tokens().accent if self._tone == "accent" else tokens().tone(self._tone)[0]
            painter.setBrush(QColor(colour))
            filled = QRectF(rect.left(), rect.top(), max(rect.width() * done, _BAR_PX), rect.height())
            painter.drawRoundedRect(filled, _BAR_PX / 2, _BAR_PX / 2)

    def _paint_word(self, painter: QPainter, rect: QRectF, phase: str, distance: int) -> None:
        now = distance == 0 and not self._over
        words = QFont(self.font())
        words.setWeight(QFont.Weight.DemiBold if now else QFont.Weight.Normal)
        painter.setFont(words)
        painter.setPen(QColor(tokens().text if now else tokens().muted))
        text = painter.fontMetrics().elidedText(phase_word(phase), Qt.TextElideMode.ElideRight, int(rect.width()))
        painter.drawText(rect, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop, text)

    def _theme_changed(self) -> None:
        self.setFont(font("caption"))
        self.updateGeometry()
        self.update()
