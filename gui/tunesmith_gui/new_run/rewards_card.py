"""The card of what is rewarded: each reward with its kind, what its kind needs, and its weight."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from tunesmith_core import environments, files, reward_files
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.language_names import LANGUAGES
from tunesmith_core.preflight import check_reward
from tunesmith_core.rewards import repeated, round_words
from tunesmith_core.spec_rollouts import MODEL, MOST_REWARDS, NEED_PACKAGES, OF_KINDS, PYTHON, REWARDS, RewardSpec
from tunesmith_core.spec_training import WSL
from tunesmith_core.start_choices import StartChoice, reward_models_of_runs
from tunesmith_gui.background import Job, Latest
from tunesmith_gui.new_run.form import BY_REWARD, NewRunForm
from tunesmith_gui.new_run.number_box import NumberBox
from tunesmith_gui.new_run.setting_paths import REWARDS as OF_ALL
from tunesmith_gui.new_run.setting_paths import reward_path, setting_of
from tunesmith_gui.new_run.setting_text import choice_text, help_text
from tunesmith_gui.plain_text import add_choice, set_tip, without_shortcut
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.field import guard_wheel
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.path_combo import PathChoice, PathCombo
from tunesmith_gui.widgets.safe_label import SafeLabel, restyle
from tunesmith_gui.widgets.save_file import ask_where_to_save

KIND, WEIGHT = "kind", "weight"
BROWSED = frozenset({"path", "schema", "model"})
BOX_LETTERS = 10


class _RewardRow:
    """The widgets of one reward, which stand in the grid of the card."""

    def __init__(self, card: RewardsCard, form: NewRunForm, place: int, num_rewards: int) -> None:
        self._card, self._form, self._place = card, form, place
        self._typing = ""
        self.inputs: dict[str, QWidget] = {KIND: self._choice(KIND, [(choice_text(each), each) for each in REWARDS])}
        self.details = QWidget(card)
        column = QVBoxLayout(self.details)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        column.addLayout(row)
        kind = form.value(reward_path(place, KIND))
        names = [name for name, of_kind in OF_KINDS.items() if of_kind == kind]
        details = [widget for name in names for widget in self._details(name)]
        if len(names) > 1:
            row.addWidget(FlowRow(details, self.details))
        elif names:
            row.addWidget(details[0], 1)
            for widget in details[1:]:
                row.addWidget(widget)
        else:
            row.addWidget(SafeLabel(_needs(kind), role="caption", tone="muted", wrap=True, parent=self.details))
        if kind == PYTHON:
            column.addWidget(SafeLabel(_needs(kind), role="caption", tone="muted", wrap=True, parent=self.details))
            words = translate("RewardsCard", "Write an example…")
            self.example = button(words, self._write_example, kind="link", parent=self.details)
            column.addWidget(self.example, 0, Qt.AlignmentFlag.AlignLeft)
        self.inputs[WEIGHT] = self._number(WEIGHT)
        self.remove: IconButton | None = None
        if num_rewards > 1:
            words = fill(translate("RewardsCard", "Remove %1"), choice_text(kind))
            self.remove = IconButton("close", words, functools.partial(form.remove_reward, place), parent=card)

    @property
    def widgets(self) -> tuple[QWidget | None, ...]:
        """What stands in the columns of the grid."""
        return self.inputs[KIND], self.details, self.inputs[WEIGHT], self.remove

    def _path(self, name: str) -> str:
        return reward_path(self._place, name)

    def _details(self, name: str) -> list[QWidget]:
        """The widgets of a setting that is for this kind of reward."""
        setting = setting_of(self._path(name))
        if setting.type is int:
            holder = QWidget(self.details)
            column = QVBoxLayout(holder)
            column.setContentsMargins(0, 0, 0, 0)
            column.setSpacing(SPACE // 2)
            words = core_text(setting.declaration.label)
            column.addWidget(SafeLabel(words, role="caption", tone="muted", parent=holder))
            self.inputs[name] = self._number(name)
            column.addWidget(self.inputs[name])
            return [holder]
        if setting.type is bool:
            box = QCheckBox(without_shortcut(core_text(setting.declaration.label)), self.details)
            box.clicked.connect(lambda is_on: self._form.set_value(self._path(name), is_on))
            self._named(box, name)
            self.inputs[name] = box
            return [box]
        if name == "language":
            choices = sorted((core_text(words), code) for code, words in LANGUAGES.items())
            self.inputs[name] = self._choice(name, choices)
        elif name == "model":
            self.inputs[name] = self._model(name)
        else:
            self.inputs[name] = self._text(name)
        if name not in BROWSED:
            return [self.inputs[name]]
        browse = IconButton("folder", _title(name), functools.partial(self._browse, name), parent=self.details)
        return [self.inputs[name], browse]

    def _named(self, widget: QWidget, name: str) -> None:
        setting = setting_of(self._path(name))
        words = translate("RewardsCard", "Reward %1: %2")
        widget.setAccessibleName(fill(words, self._place + 1, core_text(setting.declaration.label)))
        widget.setAccessibleDescription(help_text(setting))
        set_tip(widget, help_text(setting))
        guard_wheel(widget)

    def _choice(self, name: str, choices: list[tuple[str, str]]) -> QComboBox:
        combo = QComboBox(self._card)
        combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        combo.setMinimumContentsLength(BOX_LETTERS)
        combo.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        for words, value in choices:
            add_choice(combo, words, value)
        combo.setPlaceholderText(core_text(setting_of(self._path(name)).declaration.label))
        combo.activated.connect(lambda index: self._form.set_value(self._path(name), combo.itemData(index)))
        self._named(combo, name)
        return combo

    def _number(self, name: str) -> NumberBox:
        box = NumberBox(whole=setting_of(self._path(name)).type is int, parent=self._card)
        box.setFixedWidth(box.fontMetrics().averageCharWidth() * BOX_LETTERS)
        box.text_changed.connect(functools.partial(self._take, name))
        self._named(box, name)
        return box

    def _model(self, name: str) -> PathCombo:
        label = core_text(setting_of(self._path(name)).declaration.label)
        combo = PathCombo(label, label, "models", parent=self.details)
        combo.set_choices(self._card.models)
        combo.path_chosen.connect(lambda path: self._form.set_value(self._path(name), path))
        self._named(combo, name)
        return combo

    def _text(self, name: str) -> QLineEdit:
        edit = QLineEdit(self.details)
        edit.setPlaceholderText(core_text(setting_of(self._path(name)).declaration.label))
        edit.textEdited.connect(functools.partial(self._take, name))
        self._named(edit, name)
        return edit

    def _take(self, name: str, text: str) -> None:
        self._typing = name
        self._form.set_text(self._path(name), text)
        self._typing = ""

    def _browse(self, name: str) -> None:
        title, before = _title(name), self._form.value(self._path(name))
        if name == "model":
            path = QFileDialog.getExistingDirectory(self._card, title, before)
        else:
            kinds = {
                "path": translate("RewardsCard", "Python (*.py)"),
                "schema": translate("RewardsCard", "JSON schema (*.json)"),
            }
            path, _ = QFileDialog.getOpenFileName(self._card, title, before, kinds[name])
        if path:
            self._form.set_value(self._path(name), path)

    def _write_example(self) -> None:
        title = translate("RewardsCard", "Write an example of a reward")
        kind = translate("RewardsCard", "Python (*.py)")
        path = ask_where_to_save(self._card, title, "reward.py", kind)
        if path is not None:
            Job.start(
                self._card,
                lambda: files.atomic_write_text(path, reward_files.EXAMPLE),
                lambda _nothing: self._form.set_value(self._path("path"), str(path)),
                lambda error: self._card.show_problems([core_text(error.message)]),
            )

    def refresh(self) -> list[str]:
        """Shows the form's values and marks wrong ones; returns what is wrong, for the person."""
        problems = []
        of_files = self._form.reward_problems()
        for name, widget in self.inputs.items():
            path = self._path(name)
            problem = self._form.problem(path)
            if isinstance(widget, QCheckBox):
                widget.setChecked(bool(self._form.value(path)))
            elif isinstance(widget, PathCombo):
                if widget.path != self._form.value(path):
                    widget.show_path(self._form.value(path))
            elif isinstance(widget, QComboBox):
                widget.setCurrentIndex(widget.findData(self._form.value(path)))
            elif name != self._typing and isinstance(widget, NumberBox):
                widget.set_text(self._form.text(path))
            elif name != self._typing and isinstance(widget, QLineEdit):
                widget.setText(self._form.text(path))
            if bool(widget.property("invalid")) != bool(problem):
                widget.setProperty("invalid", bool(problem))
                restyle(widget)
            if problem:
                label = core_text(setting_of(path).declaration.label)
                if problem == of_files.get(path):
                    problems.append(fill(translate("RewardsCard", "Reward %1: %2"), self._place + 1, problem))
                    continue
                problems.append(fill(translate("RewardsCard", "Reward %1, %2: %3"), self._place + 1, label, problem))
        return problems


@dataclass(frozen=True, slots=True)
class RewardsLook:
    """What was found out about rewards: what is wrong, by kind and path, and whether packages for it are missing."""

    problems: Mapping[tuple[str, str], str]
    packages_missing: bool


def look_at_rewards(rewards: Sequence[RewardSpec], *, is_here: bool) -> RewardsLook:
    """Looks at files, models and packages that rewards need. Called on worker threads.

    Args:
        rewards: to look at.
        is_here: whether the run has its packages on this system.
    """
    found: dict[tuple[str, str], str] = {}
    packages_missing = False
    for reward in rewards:
        try:
            if reward.read[1]:
                check_reward(reward)
            if is_here and reward.kind in NEED_PACKAGES:
                environments.check_rewards()
        except EnvironmentProblem as error:
            packages_missing = True
            advice = translate("RewardsCard", "Install them under Practice tasks.")
            found[reward.read] = f"{core_text(error.message)} {advice}"
        except TunesmithError as error:
            folder = f"{Path(reward.read[1]).parent}{os.sep}"
            found[reward.read] = core_text(error.message).replace(folder, "")
    return RewardsLook(found, packages_missing)


class RewardsCard(Card):
    """Hidden while nothing is learned from rewards."""

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("RewardsCard", "Rewards"), parent=parent)
        self._form = form
        self.rows: list[_RewardRow] = []
        self._kinds: list[str] = []
        self.models: list[PathChoice] = []
        """Reward models that runs have made, as far as somebody has looked."""
        self._looks, self._models = Latest(self), Latest(self)
        self._asked: tuple[tuple[RewardSpec, ...], bool] = ((), True)
        self.add = button(self.tr("Add a reward"), form.add_reward, icon_name="plus", parent=self)
        self.add_action(self.add)
        words = self.tr("Every answer gets these rewards, times their weight. Their sum is what the model raises.")
        self.body.addWidget(SafeLabel(words, role="caption", tone="muted", wrap=True, parent=self))
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(SPACE + SPACE // 2)
        self._grid.setVerticalSpacing(SPACE)
        self._grid.setColumnStretch(0, 2)
        self._grid.setColumnStretch(1, 4)
        self.body.addLayout(self._grid)
        for column, text in ((0, self.tr("Reward")), (2, self.tr("Weight"))):
            self._grid.addWidget(SafeLabel(text, role="caption", tone="muted", parent=self), 0, column)
        self.round = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.round)
        self.twice = SafeLabel(role="caption", tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.twice)
        self.problems = SafeLabel(role="caption", tone="error", wrap=True, parent=self)
        self.body.addWidget(self.problems)
        self.hide()

    def refresh(self) -> None:
        """Shows the rewards of the form."""
        is_shown = self._form.way == BY_REWARD
        self.setVisible(is_shown)
        if not is_shown:
            return
        kinds = [reward.kind for reward in self._form.spec.rollouts.rewards]
        if kinds != self._kinds:
            self._build(kinds)
        self.round.setText(core_text(round_words(self._form.spec)))
        self.add.setVisible(len(kinds) < MOST_REWARDS)
        self.show_problems([problem for row in self.rows for problem in row.refresh()])
        rewards = self._form.spec.rollouts.rewards
        twice = repeated(rewards)
        self.twice.setText(core_text(twice) if twice else "")
        self.twice.setVisible(twice is not None)
        is_here = self._form.value("hardware.system") != WSL
        asked = tuple(each for each in rewards if each.read[1] or (each.kind in NEED_PACKAGES and is_here)), is_here
        if [each.read for each in asked[0]] != [each.read for each in self._asked[0]] or is_here != self._asked[1]:
            self._asked = asked
            self.look()

    def look_for_models(self) -> None:
        """Looks which runs have made a reward model, where one is asked for."""
        if MODEL in self._kinds:
            self._models.ask(reward_models_of_runs, self._take_models)

    def _take_models(self, runs: Sequence[StartChoice]) -> None:
        self.models = [PathChoice(each.name, each.path) for each in runs]
        for row in self.rows:
            for widget in row.inputs.values():
                if isinstance(widget, PathCombo):
                    widget.set_choices(self.models)

    def show_problems(self, words: Sequence[str]) -> None:
        """Shows what is wrong, for the person."""
        self.problems.setText("\n".join(words))
        self.problems.setVisible(bool(words))

    def changeEvent(self, event: QEvent) -> None:
        """Looks again at files that may have been corrected in another window."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ActivationChange and self.isActiveWindow() and self._asked[0]:
            self.look()

    def look(self) -> None:
        """Looks at what rewards read and need."""
        rewards, is_here = self._asked
        self._looks.ask(lambda: look_at_rewards(rewards, is_here=is_here), self._take)

    def _take(self, look: RewardsLook) -> None:
        self._form.know_rewards(look.problems, packages_missing=look.packages_missing)

    def _build(self, kinds: list[str]) -> None:
        """Makes the rows again; one that was added or whose kind was chosen gets the focus back."""
        changed = [place for place, kind in enumerate(kinds) if self._kinds[place : place + 1] != [kind]]
        had_focus = any(widget and widget.hasFocus() for row in self.rows for widget in row.widgets)
        had_focus = had_focus or self.add.hasFocus()
        for row in self.rows:
            for widget in filter(None, row.widgets):
                widget.hide()
                self._grid.removeWidget(widget)
                widget.deleteLater()
        self._kinds = kinds
        self.rows = [_RewardRow(self, self._form, place, len(kinds)) for place in range(len(kinds))]
        for place, row in enumerate(self.rows):
            for column, each in enumerate(row.widgets):
                if each is not None:
                    self._grid.addWidget(each, 1 + place, column)
        self.look_for_models()
        if had_focus:
            row = self.rows[changed[-1] if changed else len(kinds) - 1]
            row.inputs[KIND].setFocus(Qt.FocusReason.OtherFocusReason)

    def reveal(self, path: str) -> QWidget | None:
        """Puts the focus on the input of a setting; None when it has none here."""
        inputs = {
            reward_path(place, name): widget
            for place, row in enumerate(self.rows)
            for name, widget in row.inputs.items()
        }
        found = inputs.get(path) or (self.add if path == OF_ALL else None)
        if found is not None:
            found.setFocus(Qt.FocusReason.OtherFocusReason)
        return found


def _title(name: str) -> str:
    """What is chosen by the button beside a setting."""
    return {
        "path": translate("RewardsCard", "Choose a Python file"),
        "schema": translate("RewardsCard", "Choose a JSON schema"),
        "model": translate("RewardsCard", "Choose the folder of a reward model"),
    }[name]


def _needs(kind: str) -> str:
    """What a kind of reward without settings of its own does."""
    return {
        "right": translate("RewardsCard", "compared with the answer in the data, as suits it"),
        "task": translate("RewardsCard", "what the task itself says of an answer to its problem"),
        "exact": translate("RewardsCard", "the same text as the answer in the data"),
        "number": translate("RewardsCard", "the same number as in the answer in the data"),
        PYTHON: translate(
            "RewardsCard",
            "The file holds a function reward(prompt, answer, expected) that returns a number. More parameters get the "
            "columns of the row by their names.",
        ),
        "json": translate("RewardsCard", "the answer can be read as JSON"),
        "tool-call": translate("RewardsCard", "every call has a name and arguments"),
    }[kind]
