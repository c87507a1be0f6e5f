"""The card of tasks to practice on: problems that the program makes, and that the task itself scores."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QSizePolicy, QSpinBox, QWidget

from tunesmith_core import paths, reward_tasks
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.problems import PROBLEMS, USUAL_NUM, ProblemsSpec
from tunesmith_core.operations.kinds.setup import SETUP, SetupSpec
from tunesmith_gui.new_run.form import BY_REWARD, NewRunForm
from tunesmith_gui.plain_text import add_choice
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.field import Field, guard_wheel
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel

MOST, STEP, LETTERS, NUMBER_LETTERS = 100_000, 100, 20, 12
HELD_OUT_SHARE = 5
"""One of so many problems is held out."""

INSTALL = ("rewards", "--yes")
MISSING = frozenset({"environment-missing", "environment-damaged"})


class TasksCard(Card):
    """Hidden while nothing is learned from rewards.

    Signals:
        made: (dict) the answer of PROBLEMS.
        installed: the packages for it are there.
    """

    made = Signal(object)
    installed = Signal()

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("TasksCard", "Practice tasks"), parent=parent)
        self._form = form
        self._task: OperationTask | None = None
        self._makes_next = False
        words = self.tr("No data of your own? The program makes problems of a task and scores the answers.")
        self.body.addWidget(SafeLabel(words, role="caption", tone="muted", wrap=True, parent=self))
        self.task = self._choice([(core_text(words), name) for name, words in reward_tasks.TASKS.items()])
        levels = (self.tr("Easy"), self.tr("Medium"), self.tr("Hard"))
        self.level = self._choice(list(zip(levels, reward_tasks.LEVELS, strict=True)))
        self.number = self._number(1, MOST, USUAL_NUM, STEP)
        self.seed = self._number(0, MOST, 0, 1)
        fields = [
            Field(self.tr("Task"), self.task, parent=self),
            Field(self.tr("Level"), self.level, parent=self),
            Field(self.tr("Problems"), self.number, parent=self),
            Field(self.tr("Seed"), self.seed, parent=self),
        ]
        self.body.addWidget(FlowRow(fields, self))
        self.make = button(self.tr("Make problems"), self._make, parent=self)
        self.install = button(self.tr("Install the packages for tasks and JSON schemas…"), self._install, parent=self)
        self.install.hide()
        for each in (self.make, self.install):
            self.body.addWidget(each, 0, Qt.AlignmentFlag.AlignLeft)
        self.state = SafeLabel(role="caption", wrap=True, parent=self)
        self.state.hide()
        self.body.addWidget(self.state)
        self.hide()

    def refresh(self) -> None:
        """Shows itself where the model learns from rewards."""
        self.setVisible(self._form.way == BY_REWARD)
        if self._task is None:
            self._offer_install()

    def _offer_install(self) -> None:
        self.install.setVisible(self._makes_next or self._form.surroundings.packages_missing)

    def _choice(self, choices: list[tuple[str, Any]]) -> QComboBox:  # Any: what a choice stands for
        combo = QComboBox(self)
        combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        combo.setMinimumContentsLength(min(LETTERS, max(len(words) for words, _ in choices)))
        combo.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        for words, value in choices:
            add_choice(combo, words, value)
        guard_wheel(combo)
        return combo

    def _number(self, least: int, most: int, usual: int, step: int) -> QSpinBox:
        box = QSpinBox(self)
        box.setRange(least, most)
        box.setSingleStep(step)
        box.setValue(usual)
        box.lineEdit().setTextMargins(SPACE - 2, 0, 0, 0)
        box.setFixedWidth(box.fontMetrics().averageCharWidth() * NUMBER_LETTERS)
        guard_wheel(box)
        return box

    def _spec(self) -> ProblemsSpec:
        name, level = str(self.task.currentData()), int(self.level.currentData())
        number, seed = self.number.value(), self.seed.value()
        held_out = max(1, number // HELD_OUT_SHARE)
        target = AbsolutePath(str(_target(name, level, number, seed)))
        return ProblemsSpec(name, target, number, held_out, level, seed, overwrite=True)

    def _make(self) -> None:
        spec = self._spec()
        task = OperationTask(PROBLEMS, spec, parent=self)
        self._begin(task, self.tr("Making problems"), lambda answer: self._take(spec, answer))

    def _install(self) -> None:
        words = self.tr(
            "This downloads the Python packages reasoning-gym, which makes practice tasks, and jsonschema, which "
            "checks JSON, with the few packages that they need. They get a folder of their own."
        )
        dialog = ConfirmDialog(
            self.tr("Install packages for tasks and JSON schemas?"),
            words,
            self.tr("What is installed already stays as it is."),
            self.tr("Install packages"),
            self.window(),
        )
        answer = dialog.exec()
        dialog.deleteLater()
        if answer != ConfirmDialog.DialogCode.Accepted:
            return
        task = OperationTask(SETUP, SetupSpec(INSTALL), parent=self)
        self._begin(task, self.tr("Installing reasoning-gym and jsonschema"), self._take_packages)

    def _take_packages(self, _answer: object) -> None:
        self.installed.emit()
        if self._makes_next:
            self._makes_next = False
            self._make()

    def _begin(self, task: OperationTask, words: str, take: Any) -> None:  # Any: takes an answer
        self._task = task
        for each in (self.make, self.install):
            each.setEnabled(False)
        self._say(words, "muted")
        task.succeeded.connect(self._end)
        task.failed.connect(self._end)
        task.succeeded.connect(take)
        task.failed.connect(self._fail)
        task.start()

    def _end(self, _news: object) -> None:
        self._task = None
        self.install.hide()
        for each in (self.make, self.install):
            each.setEnabled(True)
        self._say("", "muted")

    def _fail(self, error: TunesmithError) -> None:
        self._makes_next = self._makes_next or error.code in MISSING
        self._offer_install()
        self._say(core_text(error.message), "error")

    def _take(self, spec: ProblemsSpec, answer: dict[str, Any]) -> None:  # Any: JSON values
        if answer["num_train"] != spec.number:
            target = _target(spec.task, spec.level, answer["num_train"], spec.seed)
            with suppress(OSError):
                answer = reward_tasks.renamed(answer, target)
        self._say("\n".join(map(core_text, answer["notes"])), "warn")
        self.made.emit(answer)

    def _say(self, words: str, tone: str) -> None:
        self.state.set_tone(tone)
        self.state.setText(words)
        self.state.setVisible(bool(words))


def _target(task: str, level: int, number: int, seed: int) -> Path:
    """The file for so many problems to train on."""
    return paths.data_root() / "problems" / f"{task}-{level}-{number}-{seed}.jsonl"
