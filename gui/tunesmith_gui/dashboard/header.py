"""The head of a run's page: name, state, actions, the numbers that matter now, and the phases."""

from __future__ import annotations

import math
import time

from PySide6.QtCore import QPoint, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QHBoxLayout, QMenu, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.dashboard.progress_strip import ProgressStrip
from tunesmith_gui.models.run_words import state_look, state_word
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import ElidedLabel
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.stat_tile import UNKNOWN, StatTile, TileGrid
from tunesmith_gui.widgets.status_chip import StatusChip

_END_TONES = {RunState.FINISHED: "ok", RunState.FAILED: "error", RunState.INTERRUPTED: "warn"}


class DashboardHeader(QWidget):
    """Shows a DashboardModel in a few lines.

    Signals:
        asked: the id of an action: back, stop, checkpoint, evaluate, sample, resume, copy_command, duplicate,
            open_folder, delete.
    """

    asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE * 2)
        column.addWidget(SideBySide(self._build_name(), self._build_actions(), first_letters=32, parent=self))
        card = Card(parent=self)
        card.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.step = StatTile(self.tr("Step"), parent=card)
        self.loss = StatTile(self.tr("Loss"), parent=card)
        self.epoch = StatTile(self.tr("Epoch"), parent=card)
        self.speed = StatTile(self.tr("Throughput"), parent=card)
        self.time = StatTile(self.tr("Time left"), parent=card)
        card.body.addWidget(TileGrid((self.step, self.loss, self.epoch, self.speed, self.time), card))
        self.strip = ProgressStrip(card)
        card.body.addWidget(self.strip)
        column.addWidget(card)
        self._live = False

    def _build_name(self) -> QWidget:
        holder = QWidget(self)
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        row.addWidget(IconButton("chevron-left", self.tr("All runs"), lambda: self.asked.emit("back"), parent=holder))
        self.name = ElidedLabel("", role="title", parent=holder)
        row.addWidget(self.name, 1)
        self.chip = StatusChip(parent=holder)
        row.addWidget(self.chip)
        row.addSpacing(SPACE)
        return holder

    def _build_actions(self) -> QWidget:
        holder = QWidget(self)
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        self.resume = button(
            self.tr("Resume"), lambda: self.asked.emit("resume"), kind="primary", icon_name="resume", parent=self
        )
        self.stop = button(self.tr("Stop…"), lambda: self.asked.emit("stop"), icon_name="stop", parent=self)
        self.more = IconButton("more", self.tr("More actions"), self._open_menu, parent=self)
        for each in (self.resume, self.stop, self.more):
            row.addWidget(each)
        return holder

    def show_model(self, name: str, model: DashboardModel) -> None:
        """Bring everything up to date."""
        status = model.status
        state = status.state
        self._live = state.live
        if name != self.name.text():
            self.name.setText(name)
        look = state_look(state)
        if self.chip.text != state_word(state) or self.chip.tone != look.tone:
            self.chip.set_state(state_word(state), look.tone, icon_name=look.icon_name)
        self.stop.setVisible(state.live)
        self.stop.setEnabled(state is not RunState.STOPPING)
        self.resume.setVisible(model.can_resume)
        total = f"/ {tr.number(status.total_steps)}" if status.total_steps else ""
        self.step.set_value(tr.number(status.step), total)
        self._show_loss(model)
        epoch = model.steps.last("epoch") if len(model.steps) else math.nan
        self.epoch.set_value(UNKNOWN if math.isnan(epoch) else tr.number(epoch, 2))
        speed = status.tokens_per_s
        self.speed.set_value(tr.number(speed) if speed else UNKNOWN, self.tr("tokens/s") if speed else "")
        self._show_time(model)
        self._show_phase(model)

    def _show_loss(self, model: DashboardModel) -> None:
        status = model.status
        loss = UNKNOWN if status.loss is None else tr.number(status.loss, 3)
        evaluated = status.eval_loss
        self.loss.set_value(loss, "" if evaluated is None else tr.fill(self.tr("eval %1"), tr.number(evaluated, 3)))

    def _show_time(self, model: DashboardModel) -> None:
        status, now = model.status, time.time()
        if status.state.live:
            left = model.eta_s(now)
            self.time.name.setText(self.tr("Time left"))
            end = "" if left is None else time.strftime("%H:%M", time.localtime(now + left))
            self.time.set_value(
                UNKNOWN if left is None else tr.duration(left), tr.fill(self.tr("ends %1"), end) if end else ""
            )
            return
        self.time.name.setText(self.tr("Duration"))
        end_t = status.ended_at or status.last_event_at
        took = end_t - status.started_at if end_t and status.started_at else None
        self.time.set_value(UNKNOWN if took is None else tr.duration(took))

    def _show_phase(self, model: DashboardModel) -> None:
        state, progress = model.status.state, model.progress
        if state is RunState.FINISHED:
            self.strip.set_progress("saving", 1.0, over=True, tone="ok")
            return
        phase = progress.phase or "starting"
        fraction = progress.done / progress.total if progress.total else 0.0
        if phase == "training":
            fraction = model.fraction
        self.strip.set_progress(phase, fraction, tone=_END_TONES.get(state, "accent"))

    def _open_menu(self) -> None:
        self.menu().exec(self.more.mapToGlobal(QPoint(0, self.more.height())))

    def menu(self) -> QMenu:
        """The actions of the three dots; those that need a live run are disabled without one."""
        menu = QMenu(self)
        for action, words, needs in (
            ("checkpoint", self.tr("Save now"), "live"),
            ("evaluate", self.tr("Evaluate now"), "live"),
            ("sample", self.tr("Sample now…"), "live"),
            ("", "", ""),
            ("copy_command", self.tr("Copy as command"), ""),
            ("duplicate", self.tr("Duplicate"), ""),
            ("open_folder", self.tr("Open folder"), ""),
            ("copy_diagnostics", self.tr("Copy diagnostics"), ""),
            ("", "", ""),
            ("delete", self.tr("Delete…"), "ended"),
        ):
            if not action:
                menu.addSeparator()
                continue
            entry = QAction(words, menu)
            entry.triggered.connect(lambda _checked=False, chosen=action: self.asked.emit(chosen))
            entry.setEnabled(not needs or (needs == "live") == self._live)
            menu.addAction(entry)
        return menu
