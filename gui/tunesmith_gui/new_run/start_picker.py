"""Where training starts: from the model as it is, or from an adapter that is trained further."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core import presets
from tunesmith_core.adapter_folders import check_adapters, other_base, read_adapter
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_core.start_choices import StartChoice, adapters_of_runs
from tunesmith_gui.background import Latest
from tunesmith_gui.new_run.form import NewRunForm
from tunesmith_gui.new_run.looks import ModelFacts
from tunesmith_gui.new_run.setting_paths import setting_of
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.path_combo import PathChoice, PathCombo
from tunesmith_gui.widgets.safe_label import SafeLabel

START = "adapter.start_from"
HELD = (
    *(
        f"adapter.{name}"
        for name in (
            *("rank", "alpha", "target_modules", "layers", "rank_pattern", "alpha_pattern", "rslora", "dora", "bias"),
            *("initial_values", "embeddings", "modules_to_save"),
        )
    ),
    "model.new_tokens",
)
"""What the adapter to start from decides."""


@dataclass(frozen=True, slots=True)
class StartFacts:
    """What is known of the adapter to start from.

    Attributes:
        settings: what it decides, by dotted path; nothing where it can't be used.
        words: what a person should know of it.
        is_wrong: whether it can't be used.
    """

    path: str
    settings: Mapping[str, Any]  # Any: values of settings
    words: str
    is_wrong: bool = False


def look_at_start(spec: RunSpec, shapes: Mapping[str, tuple[int, ...]] | None) -> StartFacts:
    """Reads the adapter to start from and compares it with the base model, where that is known."""
    path = spec.adapter.start_from
    try:
        adapter = read_adapter(Path(path))
        settings = adapter.settings
        for name, value in settings.items():
            setattr(spec.adapter, name, value)
        spec.model.new_tokens = adapter.words
        if shapes is not None:
            check_adapters(spec, shapes)
    except TunesmithError as error:
        return StartFacts(path, {}, core_text(error.message), is_wrong=True)
    rank = fill(translate("StartPicker", "Rank %1 and its other settings come from the adapter."), adapter.rank)
    warning = other_base(spec)
    words = core_text(warning) if warning else rank
    decided = {f"adapter.{name}": value for name, value in settings.items()}
    return StartFacts(path, decided | {"model.new_tokens": adapter.words}, words)


class StartFrom(QObject):
    """Keeps the settings of a form those of the adapter that it starts from.

    Signals:
        changed: what is known of the adapter is other than before.
    """

    changed = Signal()

    def __init__(self, form: NewRunForm) -> None:
        super().__init__(form)
        self._form = form
        self._shapes: Mapping[str, tuple[int, ...]] | None = None
        self._model = form.value("model.path")
        self._latest = Latest(self)
        self._is_putting = False
        self.facts: StartFacts | None = None
        form.changed.connect(self._on_changed)

    def know_model(self, model: ModelFacts | None) -> None:
        """The base model was looked at: the adapter can be compared with it."""
        self._shapes = model.card.shapes if model and model.card else None
        self.facts = None
        self._look()

    def _on_changed(self, path: str) -> None:
        chosen, form = self._form.value(START), self._form
        if self._is_putting:
            return
        if path == "model.path" and chosen and form.value("model.path") != self._model:
            # An adapter belongs to its base model.
            form.set_value(START, "")
        elif chosen and not form.uses(START):
            form.set_value(START, "")
        else:
            self._look()
        self._model = form.value("model.path")

    def _look(self) -> None:
        chosen = self._form.value(START)
        if self.facts is not None and self.facts.path == chosen:
            self._take_settings()
            return
        if chosen:
            spec, shapes = copy.deepcopy(self._form.spec), self._shapes
            self._latest.ask(lambda: look_at_start(spec, shapes), self._take)
        elif self.facts is not None:
            self._latest.forget()
            self.facts = None
            usual = presets.apply(RunSpec(), self._form.preset)
            self._put({path: setting_of(path).get(usual) for path in HELD})
            self.changed.emit()

    def _take(self, facts: StartFacts) -> None:
        if facts.path != self._form.value(START):
            return
        self.facts = facts
        self._take_settings()
        self.changed.emit()

    def _take_settings(self) -> None:
        settings = self.facts.settings if self.facts else {}
        if any(self._form.value(path) != value for path, value in settings.items()):
            self._put(settings)

    def _put(self, settings: Mapping[str, Any]) -> None:  # Any: values of settings
        self._is_putting = True
        for path in settings:
            # What a person chose before gives way, and comes back by no reset.
            self._form.reset(path)
        self._form.suggest_memory_settings(dict(settings))
        self._is_putting = False


class StartPicker(QWidget):
    """The row "Start from": the model as it is, the adapters of earlier runs on it, or any folder."""

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._form = form
        self.start = StartFrom(form)
        self._runs: list[StartChoice] = []
        self._latest = Latest(self)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        label = SafeLabel(self.tr("Start from"), parent=self)
        self.combo = PathCombo(self.tr("Start from"), self.tr("The model as it is"), "models", parent=self)
        label.setBuddy(self.combo)
        self.combo.path_chosen.connect(lambda path: form.set_value(START, path))
        self.browse = IconButton("folder", self.tr("Browse for an adapter folder"), self._browse, parent=self)
        column.addWidget(label)
        row.addWidget(self.combo, 1)
        row.addWidget(self.browse)
        column.addLayout(row)
        self.words = SafeLabel(tone="muted", wrap=True, parent=self)
        column.addWidget(self.words)
        form.changed.connect(self._on_changed)
        self.start.changed.connect(self._show)
        self._on_changed("")

    def refresh(self) -> None:
        """Looks for adapters of earlier runs again."""
        self._latest.ask(adapters_of_runs, self._take_runs)

    def know_model(self, model: ModelFacts | None) -> None:
        """Offers what was trained on a base model that was looked at."""
        self.start.know_model(model)
        self._offer()

    def _take_runs(self, runs: Sequence[StartChoice]) -> None:
        self._runs = list(runs)
        self._offer()

    def _offer(self) -> None:
        model = self._form.value("model.path")
        fitting = [PathChoice(each.name, each.path) for each in self._runs if model and each.is_on(model)]
        self.combo.set_choices([PathChoice(self.tr("The model as it is"), ""), *fitting] if fitting else [])
        self._show()

    def _on_changed(self, path: str) -> None:
        if path in ("", "model.path"):
            self._offer()
        if path in ("", START, "model.path"):
            self._show()

    def _show(self) -> None:
        chosen, facts = self._form.value(START), self.start.facts
        # Without a model there is nothing to continue, and most runs begin with one as it is.
        self.setVisible(self._form.uses(START) and bool(self._form.value("model.path") or chosen))
        if self.combo.path != chosen:
            self.combo.show_path(chosen)
        self.words.setText(facts.words if facts and chosen else "")
        self.words.set_tone("error" if facts and facts.is_wrong else "muted")
        self.words.setVisible(bool(self.words.text()))

    def _browse(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("Choose an adapter folder"), self.combo.path)
        if folder:
            self._form.set_value(START, folder)
