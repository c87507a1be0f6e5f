"""The texts a model wrote along the way, newest first: how a run sounds, beside how its loss falls."""

from __future__ import annotations

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui.dashboard.model import Sample
from tunesmith_gui.models.answer_words import answer_words
from tunesmith_gui.plain_text import paragraphs, set_tip
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill, number, translate
from tunesmith_gui.widgets.card import line
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel, WrittenLabel
from tunesmith_gui.widgets.status_chip import StatusChip

_EXCERPT_LINES = 7
_SAMPLE_LETTERS = 20_000


def marks(is_right: bool | None, cut_at: int, parent: QWidget, *, is_expected: bool = True) -> list[StatusChip]:
    """Chips beside an answer: right or wrong where anybody can tell, and after how many tokens it was cut.

    Args:
        is_right: whether it is the expected one.
        cut_at: tokens, 0 where the model ended it.
        parent: of the chips.
        is_expected: whether the data answers too; else the setting Sample length decides how long it may be.
    """
    chips = []
    if is_right is not None:
        words = translate("SamplesList", "Right") if is_right else translate("SamplesList", "Wrong")
        chips.append(StatusChip(words, "ok" if is_right else "warn", parent=parent))
    if cut_at:
        cut = fill(translate("SamplesList", "cut at %1 tokens"), number(cut_at))
        chip = StatusChip(cut, "warn", parent=parent)
        why = translate("SamplesList", "The setting Sample length decides how long it may be.")
        if is_expected:
            why = translate(
                "SamplesList", "An answer to a held-out row is cut somewhat behind the length of the expected one."
            )
        set_tip(chip, why)
        chip.setAccessibleDescription(why)
        chips.append(chip)
    return chips


class _Excerpt(WrittenLabel):
    """As much of a text as fits into a few lines."""

    def __init__(self, text: str, tone: str, parent: QWidget) -> None:
        super().__init__(text, tone=tone, parent=parent)
        self._whole = paragraphs(text, longest_word=self.LONGEST_WORD)

    @property
    def _most_px(self) -> int:
        return _EXCERPT_LINES * self.fontMetrics().height()

    def heightForWidth(self, width: int) -> int:
        """No more than the few lines, also before the text is cut."""
        return min(super().heightForWidth(width), self._most_px)

    def sizeHint(self) -> QSize:
        """No more than the few lines, also before the text is cut."""
        return super().sizeHint().boundedTo(QSize(1 << 20, self._most_px))

    def minimumSizeHint(self) -> QSize:
        """No more than the few lines, also before the text is cut."""
        return super().minimumSizeHint().boundedTo(QSize(1 << 20, self._most_px))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Cut the text to the new width."""
        super().resizeEvent(event)
        shown, metrics = self._whole, self.fontMetrics()
        room = QRect(0, 0, self.width(), 1 << 20)
        while metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, shown).height() > self._most_px:
            kept = shown.removesuffix("…")
            shown = kept[: len(kept) * 15 // 16].rstrip() + "…"
        self.setText(shown)


class SamplesList(QWidget):
    """The newest samples, at most `max_shown`; `short` takes the same room for a text of any length, or for none."""

    def __init__(self, *, max_shown: int, short: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._max_shown = max_shown
        self._short = short
        self._shown: list[Sample] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE)
        self._items = QWidget(self)
        self._empty = SafeLabel(tone="muted", wrap=True, parent=self)
        self._column.addWidget(self._empty)
        self._column.addWidget(self._items)
        self._column.addStretch(1)
        if short:
            theme().changed.connect(self._keep_height)
            self._keep_height()

    def _keep_height(self) -> None:
        chip = StatusChip("0", "neutral", icon_name="sample", parent=self)
        self.setMinimumHeight(
            chip.sizeHint().height() + SPACE * 3 // 2 + _EXCERPT_LINES * self._empty.fontMetrics().height()
        )
        chip.hide()  # it is only measured
        chip.deleteLater()

    def set_samples(self, samples: list[Sample], *, live: bool) -> None:
        """Show samples of a run that is live or has ended; nothing is rebuilt when they are the same."""
        self._empty.setText(self.tr("No samples yet.") if live else self.tr("This run has no samples."))
        newest = samples[-self._max_shown :][::-1]
        if newest == self._shown:
            return
        self._shown = newest
        self._empty.setVisible(not newest)
        fresh = QWidget(self)
        column = QVBoxLayout(fresh)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE + SPACE // 2)
        for place, sample in enumerate(newest):
            if place:
                column.addWidget(line(fresh))
            self._add(column, sample, fresh)
        self._column.replaceWidget(self._items, fresh)
        self._items.deleteLater()
        self._items = fresh

    def _add(self, column: QVBoxLayout, sample: Sample, parent: QWidget) -> None:
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        at = fill(self.tr("step %1"), sample.step) if sample.step else self.tr("before training")
        row.addWidget(StatusChip(at, "neutral", icon_name="sample", parent=parent))
        for chip in marks(sample.is_right, sample.cut_at, parent, is_expected=bool(sample.expected)):
            row.addWidget(chip)
        row.addWidget(ElidedLabel(sample.prompt, tone="muted", parent=parent), 1)
        column.addLayout(row)
        short, (text, tone) = self._short, answer_words(sample.text)
        column.addWidget(
            _Excerpt(text, tone, parent)
            if short
            else WrittenLabel(text, tone=tone, most=_SAMPLE_LETTERS, parent=parent)
        )
        if sample.expected and not short:
            expected = fill(self.tr("Expected: %1"), sample.expected)
            column.addWidget(WrittenLabel(expected, tone="muted", most=_SAMPLE_LETTERS, parent=parent))
