"""The phases of a run as a stepped bar: what is done, what goes on and how far it is."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from tunesmith_gui.models.run_words import PHASES, phase_word
from tunesmith_gui.theme import font, theme, tokens
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill

_BAR_PX = 6
_TRAINING_SHARE = 3.0
"""Training is drawn that much wider than the other phases, as it takes nearly all of the time."""


class ProgressStrip(QWidget):
    """One segment per phase with its word below it; where the words don't fit, only the present phase has one."""

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
        rects = self._segments()
        room_for_words = self._words_fit(rects)
        for place, (phase, rect) in enumerate(zip(PHASES, rects, strict=True)):
            done = 1.0 if self._over or place < current else self._fraction if place == current else 0.0
            self._paint_segment(painter, rect, done)
            if room_for_words:
                self._paint_word(painter, rect.left(), phase_word(phase), place == current and not self._over)
        if not room_for_words and current >= 0:
            words = fill(self.tr("%1 (phase %2 of %3)"), phase_word(self._phase), current + 1, len(PHASES))
            self._paint_word(painter, 0.0, words, not self._over)

    def _segments(self) -> list[QRectF]:
        shares = [_TRAINING_SHARE if phase == "training" else 1.0 for phase in PHASES]
        gap = SPACE / 2
        unit = (self.width() - gap * (len(PHASES) - 1)) / sum(shares)
        left, rects = 0.0, []
        for share in shares:
            rects.append(QRectF(left, 0, share * unit, _BAR_PX))
            left += share * unit + gap
        return rects

    def _words_fit(self, rects: list[QRectF]) -> bool:
        metrics = QFontMetricsF(self._words_font(strong=True))
        return all(
            metrics.horizontalAdvance(phase_word(phase)) <= rect.width()
            for phase, rect in zip(PHASES, rects, strict=True)
        )

    def _paint_segment(self, painter: QPainter, rect: QRectF, done: float) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(tokens().hover))
        painter.drawRoundedRect(rect, _BAR_PX / 2, _BAR_PX / 2)
        if done > 0:
            colour = tokens().accent if self._tone == "accent" else tokens().tone(self._tone)[0]
            painter.setBrush(QColor(colour))
            filled = QRectF(rect.left(), rect.top(), max(rect.width() * done, _BAR_PX), rect.height())
            painter.drawRoundedRect(filled, _BAR_PX / 2, _BAR_PX / 2)

    def _paint_word(self, painter: QPainter, left: float, words: str, strong: bool) -> None:
        painter.setFont(self._words_font(strong=strong))
        painter.setPen(QColor(tokens().text if strong else tokens().muted))
        painter.drawText(QPointF(left, _BAR_PX + SPACE / 2 + painter.fontMetrics().ascent()), words)

    def _words_font(self, *, strong: bool) -> QFont:
        result = QFont(self.font())
        result.setWeight(QFont.Weight.DemiBold if strong else QFont.Weight.Normal)
        return result

    def _theme_changed(self) -> None:
        self.setFont(font("caption"))
        self.updateGeometry()
        self.update()
