"""The head of a run's page: name, state, actions, the numbers that matter now, and how far it is."""

from __future__ import annotations

import math
import time

from PySide6.QtCore import QPoint, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QHBoxLayout, QMenu, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_core import preferences
from tunesmith_core.run_queue import Place
from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.dashboard.run_progress import RunProgress
from tunesmith_gui.models.run_words import best_words, state_look, state_word
from tunesmith_gui.plain_text import without_shortcut
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import ElidedLabel, restyle
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.stat_tile import UNKNOWN, StatTile
from tunesmith_gui.widgets.status_chip import StatusChip


class DashboardHeader(QWidget):
    """Shows a DashboardModel in a few lines.

    Signals:
        asked: the id of an action: back, try, export, stop, checkpoint, evaluate, sample, resume, copy_command,
            duplicate, open_folder, delete.
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
        self.loss = StatTile(self.tr("Loss"), role="hero", parent=card)
        self.time = StatTile(self.tr("Time left"), role="hero", parent=card)
        self.eval_loss = StatTile(self.tr("Evaluation loss"), parent=card)
        self.accuracy = StatTile(self.tr("Held-out accuracy"), parent=card)
        self.accuracy.hide()
        self.speed = StatTile(self.tr("Throughput"), parent=card)
        self.epoch = StatTile(self.tr("Epoch"), parent=card)
        heroes = _row((self.loss, self.time), card)
        others = _row((self.eval_loss, self.accuracy, self.speed, self.epoch), card)
        card.body.addWidget(SideBySide(heroes, others, parent=card))
        self.progress = RunProgress(card)
        card.body.addWidget(self.progress)
        column.addWidget(card)
        self._live, self._writes, self._made_adapter = False, True, False

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
        self.try_it = button(self.tr("Try it"), lambda: self.asked.emit("try"), kind="primary", parent=self)
        self.export = button(self.tr("Export…"), lambda: self.asked.emit("export"), parent=self)
        self.stop = button(self.tr("Stop…"), lambda: self.asked.emit("stop"), icon_name="stop", parent=self)
        self.more = IconButton("more", self.tr("More actions"), self._open_menu, parent=self)
        for each in (self.try_it, self.export, self.resume, self.stop, self.more):
            row.addWidget(each)
        for each in (self.try_it, self.export, self.resume, self.stop):
            each.hide()  # until it is known what the run allows
        return holder

    def show_model(self, name: str, model: DashboardModel, place: Place | None = None) -> None:
        """Bring everything up to date; `place` says what the run waits for."""
        status = model.status
        state = status.state
        self._live, self._writes = state.live, model.writes
        self._made_adapter = not state.live and status.artifacts.get("adapter") == "adapter"
        if name != self.name.text():
            self.name.setText(name)
        look, word = state_look(state), state_word(state, status.obstacle)
        if self.chip.text != word or self.chip.tone != look.tone:
            self.chip.set_state(word, look.tone, icon_name=look.icon_name)
        self.stop.setVisible(state.live)
        self.stop.setEnabled(state is not RunState.STOPPING)
        self.resume.setVisible(model.can_resume)
        self.try_it.setVisible(model.has_weights and model.writes)
        self.export.setVisible(model.has_weights and not state.live)
        kind = "primary" if state is RunState.FINISHED else "secondary"
        if self.try_it.property("kind") != kind:
            # Where a run can be resumed, that is the main action.
            self.try_it.setProperty("kind", kind)
            restyle(self.try_it)
        self._show_loss(model)
        epoch = model.steps.last("epoch") if len(model.steps) else math.nan
        self.epoch.set_value(UNKNOWN if math.isnan(epoch) else tr.number(epoch, 2))
        speed = status.tokens_per_s
        self.speed.set_value(tr.number(speed) if speed else UNKNOWN, self.tr("tokens/s") if speed else "")
        self._show_time(model)
        self.progress.show_model(model, place)

    def _show_loss(self, model: DashboardModel) -> None:
        is_rewarded = model.has_rewards
        self.loss.set_name(self.tr("Reward") if is_rewarded else self.tr("Loss"))
        self.eval_loss.set_name(self.tr("Held-out reward") if is_rewarded else self.tr("Evaluation loss"))
        if is_rewarded:
            self.accuracy.hide()
            self._show_reward(model)
            return
        status, change = model.status, model.loss_change()
        began = tr.fill(self.tr("from %1"), tr.number(change[0], 3)) if change and len(model.steps) > 1 else ""
        self.loss.set_value(UNKNOWN if status.loss is None else tr.number(status.loss, 3), began)
        evaluated, best = status.eval_loss, status.best_eval_loss
        now = UNKNOWN if evaluated is None else tr.number(evaluated, 3)
        lower = best_words(evaluated, best)
        if evaluated is not None and best is None:
            lower = self.tr("before training")
        self.eval_loss.set_value(now, lower)
        accuracy = model.evals.last("reward_accuracy") if len(model.evals) else math.nan
        numbers = {name: model.evals.last(name) for name in preferences.METRICS} if len(model.evals) else {}
        is_shown = not math.isnan(accuracy) and not preferences.are_untrained(numbers)
        self.accuracy.setVisible(is_shown)
        if is_shown:
            self.accuracy.set_value(f"{tr.number(accuracy * 100)}%")

    def _show_reward(self, model: DashboardModel) -> None:
        status, change, best = model.status, model.reward_change(), model.best_reward
        began = tr.fill(self.tr("from %1"), tr.number(change[0], 3)) if change and len(model.steps) > 1 else ""
        self.loss.set_value(UNKNOWN if status.reward is None else tr.number(status.reward, 3), began)
        now = status.eval_reward
        higher = best_words(now, best, is_reward=True)
        if now is not None and best is None:
            higher = self.tr("before training")
        self.eval_loss.set_value(UNKNOWN if now is None else tr.number(now, 3), higher)

    def _show_time(self, model: DashboardModel) -> None:
        status, now = model.status, time.time()
        if status.state.live:
            left = model.eta_s(now)
            self.time.set_name(self.tr("Time left"))
            end = "" if left is None else time.strftime("%H:%M", time.localtime(now + left))
            self.time.set_value(
                UNKNOWN if left is None else tr.duration(left), tr.fill(self.tr("ends %1"), end) if end else ""
            )
            return
        self.time.set_name(self.tr("Duration"))
        took = status.lasted_s(now)
        self.time.set_value(UNKNOWN if took is None else tr.duration(took))

    def _open_menu(self) -> None:
        self.menu().exec(self.more.mapToGlobal(QPoint(0, self.more.height())))

    def menu(self) -> QMenu:
        """The actions of the three dots; those that need a live run are disabled without one."""
        menu = QMenu(self)
        for action, words, needs in (
            ("checkpoint", self.tr("Save now"), "live"),
            ("evaluate", self.tr("Evaluate now"), "live"),
            ("sample", self.tr("Ask the model…"), "live"),
            ("", "", ""),
            ("copy_command", self.tr("Copy as command"), ""),
            ("duplicate", self.tr("Duplicate"), ""),
            ("continue", self.tr("Continue from this"), "adapter"),
            ("open_folder", self.tr("Open folder"), ""),
            ("copy_diagnostics", self.tr("Copy diagnostics"), ""),
            ("", "", ""),
            ("delete", self.tr("Delete…"), "ended"),
        ):
            if action in ("sample", "continue") and not self._writes:
                continue
            if not action:
                menu.addSeparator()
                continue
            entry = QAction(without_shortcut(words), menu)
            entry.triggered.connect(lambda _checked=False, chosen=action: self.asked.emit(chosen))
            if needs == "adapter":
                entry.setEnabled(self._made_adapter)
            else:
                entry.setEnabled(not needs or (needs == "live") == self._live)
            menu.addAction(entry)
        return menu


def _row(tiles: tuple[StatTile, ...], parent: QWidget) -> QWidget:
    holder = QWidget(parent)
    row = QHBoxLayout(holder)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(SPACE * 5)
    for tile in tiles:
        row.addWidget(tile)
    row.addStretch(1)
    return holder
