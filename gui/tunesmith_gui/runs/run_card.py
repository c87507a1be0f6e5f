"""What is worth knowing of the selected run beside the table, with its next steps."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QSizePolicy, QWidget

from tunesmith_core.run_queue import Place
from tunesmith_gui import tr
from tunesmith_gui.models.run_row import RunRow, when
from tunesmith_gui.models.run_words import best_words, state_look, state_word, waiting_words
from tunesmith_gui.runs.sparkline import paint_sparkline
from tunesmith_gui.theme import theme, tokens
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.stat_tile import UNKNOWN
from tunesmith_gui.widgets.status_chip import StatusChip


class _Curve(QWidget):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.values: tuple[float, ...] = ()
        # Where the card is low, the curve gives way and not the letters.
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        theme().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(SPACE * 20, SPACE * 9)

    def paintEvent(self, _event: QPaintEvent) -> None:
        edge = min(SPACE, self.height() // 6)  # a low card leaves little height, which is for the curve
        rect = QRectF(self.rect()).adjusted(2, edge, -4, -edge)
        if rect.height() > SPACE:
            paint_sparkline(QPainter(self), rect, self.values, tokens().chart[0])


class RunCard(Card):
    """The selected run.

    Signals:
        asked: open, take_out, resume, duplicate, open_folder or delete.
    """

    asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.name = ElidedLabel("", role="heading", parent=self)
        self.body.addWidget(self.name)
        row = QHBoxLayout()
        self.chip = StatusChip(parent=self)
        row.addWidget(self.chip)
        row.addStretch(1)
        self.body.addLayout(row)
        self.waits = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.waits)
        self._curve = _Curve(self)
        self._curve.setAccessibleName(self.tr("Loss curve"))
        self.body.addWidget(self._curve)
        self._grid = QGridLayout()
        self._grid.setColumnStretch(1, 1)
        self._grid.setHorizontalSpacing(SPACE * 2)
        self._grid.setVerticalSpacing(SPACE // 2)
        self._values: dict[str, ElidedLabel] = {}
        for place, (key, words) in enumerate(
            (
                ("step", self.tr("Step")),
                ("eval", self.tr("Evaluation loss")),
                # Below the newest one: side by side they are wider than the card.
                ("best", ""),
                ("model", self.tr("Model")),
                ("data", self.tr("Data")),
                ("duration", self.tr("Duration")),
                ("when", self.tr("When")),
                ("size", self.tr("Size")),
            )
        ):
            if words:
                name = SafeLabel(words, tone="muted", parent=self)
                self._grid.addWidget(name, place, 0)
            if key == "eval":
                self._measured = name
            self._values[key] = ElidedLabel("", parent=self)
            self._grid.addWidget(self._values[key], place, 1)
        self.body.addLayout(self._grid)
        self.body.addStretch(1)
        self.open = button(self.tr("Open"), lambda: self.asked.emit("open"), kind="primary", parent=self)
        self.resume = button(self.tr("Resume"), lambda: self.asked.emit("resume"), icon_name="resume", parent=self)
        self.duplicate = button(
            self.tr("Duplicate"), lambda: self.asked.emit("duplicate"), icon_name="duplicate", parent=self
        )
        self.take_out = button(self.tr("Export…"), lambda: self.asked.emit("take_out"), parent=self)
        self.body.addWidget(self.open)
        self.body.addWidget(self.take_out)
        self.body.addWidget(self.resume)
        self.body.addWidget(self.duplicate)

    def show_row(self, row: RunRow, place: Place | None) -> None:
        """Show another run; `place` says what it waits for."""
        self.waits.setText(waiting_words(place) if place is not None else "")
        self.waits.setVisible(place is not None)
        self.setAccessibleName(row.name)
        self.name.setText(row.name)
        look = state_look(row.state)
        self.chip.set_state(state_word(row.state, row.obstacle), look.tone, icon_name=look.icon_name)
        self._curve.values = row.sparkline
        self._curve.setVisible(len(row.sparkline) > 1)
        self._curve.update()
        total = f" / {tr.number(row.total_steps)}" if row.total_steps else ""
        final, best = row.eval_loss, row.best_eval_loss
        if row.is_rewarded:
            final, best = row.eval_reward, row.best_reward
        self._measured.setText(self.tr("Held-out reward") if row.is_rewarded else self.tr("Evaluation loss"))
        self._curve.setAccessibleName(self.tr("Reward curve") if row.is_rewarded else self.tr("Loss curve"))
        texts = {
            "step": tr.number(row.step) + total,
            "eval": UNKNOWN if final is None else tr.number(final, 3),
            "best": best_words(final, best, is_reward=row.is_rewarded),
            "model": row.model or UNKNOWN,
            "data": row.data or UNKNOWN,
            "duration": UNKNOWN if row.duration_s is None else tr.duration(row.duration_s),
            "when": when(row.created_at) or UNKNOWN,
            "size": tr.size(row.size_bytes),
        }
        for key, text in texts.items():
            self._values[key].setText(text)
        self._values["best"].setVisible(bool(texts["best"]))
        self.resume.setVisible(row.can_resume)
        self.take_out.setVisible(row.can_export)
