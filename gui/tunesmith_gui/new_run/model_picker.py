"""The card that chooses the base model and says what it is."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QWidget

from tunesmith_core.model_cards import ModelCard
from tunesmith_gui.models.model_words import license_text, parameters_text, parts_text, template_text, verdict_words
from tunesmith_gui.new_run.looks import ModelFacts, PlanFacts
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import size, translate
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.error_banner import Action, error_banner
from tunesmith_gui.widgets.path_combo import PathChoice, PathCombo, short_name
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip


def card_words(card: ModelCard) -> str:
    """Size, licence and chat template of a model in one line."""
    template = template_text(card.has_chat_template)
    return parts_text(parameters_text(card.num_parameters), license_text(card.licence), template, size(card.size_bytes))


class ModelPicker(Card):
    """A searchable list of models, a folder dialog, and the facts below.

    Signals:
        path_chosen: a folder or a hub id.
        library_asked: the person wants to see the chosen model of a hub on the Models page.
        again_asked: what could not be found out is to be asked again.
    """

    path_chosen = Signal(str)
    library_asked = Signal()
    again_asked = Signal()

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("ModelPicker", "Model"), parent=parent)
        self._problem: QWidget | None = None
        self.chip = StatusChip("", parent=self)
        self.chip.hide()
        self.add_action(self.chip)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.combo = PathCombo(
            self.tr("Model"), self.tr("Choose a model"), "models", parent=self
        )
        self.combo.path_chosen.connect(self.path_chosen)
        self.browse = IconButton("folder", self.tr("Browse for a model folder"), self._browse, parent=self)
        row.addWidget(self.combo, 1)
        row.addWidget(self.browse)
        self.body.addLayout(row)
        self.facts = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.facts)
        self.body.addStretch(1)
        self.show_model(None)

    def hold(self, row: QWidget) -> None:
        """Takes a row in, below what is known of the model."""
        self.body.insertWidget(self.body.count() - 1, row)

    def set_choices(self, models: Sequence[ModelCard], recent: Sequence[str]) -> None:
        """Fills the list: models of the models folder, then those used lately or by earlier runs."""
        known = [PathChoice(card.name, str(card.path)) for card in models]
        paths = {choice.path for choice in known}
        known += [PathChoice(short_name(path), path) for path in recent if path not in paths]
        self.combo.set_choices(known)

    def show_model(self, model: ModelFacts | None) -> None:
        """Shows what is known about the chosen model."""
        if self._problem is not None:
            self._problem.hide()
            self._problem.deleteLater()
            self._problem = None
        self.chip.hide()
        if model is None:
            self.facts.setText(self.tr("A Hugging Face model folder on this computer, or a hub id such as org/name."))
        elif model.error is not None:
            actions: tuple[Action, ...] = ((self.tr("Choose another folder…"), self._browse),)
            if model.is_hub_id:
                again = (self.tr("Try again"), self.again_asked.emit)
                actions = ((self.tr("Open in Models"), self.library_asked.emit), again)
            self._problem = error_banner(model.error, actions=actions, dismissable=False, parent=self)
            self.body.insertWidget(self.body.indexOf(self.facts) + 1, self._problem)
        elif model.card is not None:
            self.facts.setText(card_words(model.card))
        elif model.offered is not None:
            self.facts.setText(model.offered.words)
        else:
            self.facts.setText(self.tr("Downloaded from the hub when the run starts. The plan follows after that."))
        self.facts.setVisible(model is None or model.error is None)

    def show_loading(self) -> None:
        """Says that the model is being looked at."""
        self.show_model(None)
        self.facts.setText(self.tr("Looking at the model…"))

    def show_fit(self, plan: PlanFacts | None) -> None:
        """Shows whether the chosen model fits."""
        says_so = plan is not None and plan.verdict != "nothing"  # which the data and the context length decide
        self.chip.setVisible(says_so)
        if plan is not None and says_so:
            self.chip.set_state(*verdict_words(plan.verdict))

    def _browse(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("Choose a model folder"), self.combo.path)
        if folder:
            self.combo.show_path(folder)
            self.path_chosen.emit(folder)
