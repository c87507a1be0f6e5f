"""The card that chooses the bigger model to learn from; it proposes one of the library that suits the base model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_cards import ModelCard, read_model_card
from tunesmith_core.model_folder import local_folder
from tunesmith_core.spec import RunSpec
from tunesmith_core.teachers import check_teacher, size_note, vocabulary_difference
from tunesmith_gui.background import Latest
from tunesmith_gui.new_run.form import BY_TEACHER, FROM_STORED, NewRunForm
from tunesmith_gui.new_run.model_picker import card_words
from tunesmith_gui.new_run.setting_paths import OBJECTIVE, TEACHER
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, translate
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.path_combo import PathChoice, PathCombo
from tunesmith_gui.widgets.safe_label import SafeLabel


@dataclass(frozen=True, slots=True)
class TeacherLook:
    """What was found out about a teacher.

    Attributes:
        card: of the chosen one.
        error: why it can't be one.
        note: what to know of it, "" for nothing.
        proposed: a folder of the library that could be one where none is chosen, "" where none could.
    """

    card: ModelCard | None = None
    error: TunesmithError | None = None
    note: str = ""
    proposed: str = ""


def look_at_teacher(spec: RunSpec, models: Sequence[ModelCard]) -> TeacherLook:
    """Reads the files of both models. Called on worker threads."""
    try:
        student = local_folder(spec.model.path, spec.model.revision) if spec.model.path.strip() else None
        if not spec.teacher.path.strip():
            return TeacherLook(proposed=_proposed(read_model_card(student), models) if student else "")
        if student is None:
            # Which tokens it has is known once it is here.
            folder = local_folder(spec.teacher.path)
            return TeacherLook(read_model_card(folder) if folder else None)
        card = read_model_card(check_teacher(spec))
        return TeacherLook(card, note=size_note(read_model_card(student), card) or "")
    except TunesmithError as error:
        return TeacherLook(error=error)


def _proposed(student: ModelCard, models: Sequence[ModelCard]) -> str:
    """The biggest model of the library that means the same by its tokens."""
    for card in sorted(models, key=lambda card: -card.num_parameters):
        if card.num_parameters > student.num_parameters and not vocabulary_difference(student.path, card.path):
            return str(card.path)
    return ""


class TeacherCard(Card):
    """Hidden while nothing is learned from a bigger model.

    Signals:
        library_asked: the person wants to see which models there are to download.
    """

    library_asked = Signal()

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("TeacherCard", "Bigger model"), parent=parent)
        self._form = form
        self._models: Sequence[ModelCard] = ()
        self._choices: list[PathChoice] = []
        self._looks = Latest(self)
        self._asked: tuple[object, ...] = ()
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        name = self.tr("Bigger model")
        self.combo = PathCombo(name, self.tr("Choose a bigger model of the same family"), "models", parent=self)
        self.combo.path_chosen.connect(lambda path: form.set_value(TEACHER, path.strip()))
        browse = self.tr("Browse for the folder of a bigger model")
        self.browse = IconButton("folder", browse, self._browse, parent=self)
        row.addWidget(self.combo, 1)
        row.addWidget(self.browse)
        self.body.addLayout(row)
        self.facts = SafeLabel(tone="muted", wrap=True, parent=self)
        self.problem = SafeLabel(role="caption", tone="error", wrap=True, parent=self)
        self.body.addWidget(self.facts)
        self.body.addWidget(self.problem)
        self.library = button(self.tr("Get a bigger model"), self.library_asked.emit, kind="link", parent=self)
        self.body.addWidget(self.library, 0, Qt.AlignmentFlag.AlignLeft)
        self._show(TeacherLook())
        self.hide()

    def set_models(self, models: Sequence[ModelCard]) -> None:
        """Takes the models of the library."""
        self._models = models
        self.refresh()

    def refresh(self) -> None:
        """Shows the teacher of the form, and looks at it when it or the base model is another one."""
        is_shown = self._form.way == BY_TEACHER
        self.setVisible(is_shown)
        if not is_shown:
            return
        spec = self._form.spec
        is_stored = spec.objective.kind == FROM_STORED
        for widget in (self.combo, self.browse):
            widget.setVisible(not is_stored)
        if is_stored:
            self._asked = ()
            self._show(TeacherLook())
            return
        # The base model can't teach itself.
        others = [card for card in self._models if str(card.path) != spec.model.path.strip()]
        choices = [PathChoice(card.name, str(card.path)) for card in others]
        if choices != self._choices:
            self._choices = choices
            self.combo.set_choices(choices)
        self.combo.show_path(spec.teacher.path)
        asked = (spec.model.path, spec.model.revision, spec.teacher.path, len(self._models))
        if asked != self._asked:
            self._asked = asked
            models = tuple(self._models)
            self._looks.ask(lambda: look_at_teacher(spec, models), self._take)

    def reveal(self, path: str) -> QWidget | None:
        """Puts the focus on the choice where a setting is made here; None for other settings."""
        if path != TEACHER:
            return None
        self.combo.setFocus()
        return self.combo

    def _take(self, look: TeacherLook) -> None:
        if self._form.value(OBJECTIVE) == FROM_STORED:
            return
        if look.proposed and not self._form.value(TEACHER):
            self._form.set_value(TEACHER, look.proposed)
            return
        self._show(look)
        self._form.know_teacher(look.error)

    def _show(self, look: TeacherLook) -> None:
        if self._form.value(OBJECTIVE) == FROM_STORED:
            words = self.tr(
                "The data already holds what a bigger model found likely at each word, so none has to be loaded."
            )
            self.library.hide()
            self.problem.hide()
            self.facts.setText(words)
            return
        words = self.tr("It must be of the same family as the base model, so that both have the same tokens.")
        is_missing = look.card is None and look.error is None and not self._form.value(TEACHER)
        if is_missing and self._form.value("model.path").strip():
            words += " " + self.tr("There is no bigger one of it on this computer yet. The Models page has some.")
        self.library.setVisible(is_missing)
        self.facts.setText(card_words(look.card) if look.card else words)
        words = core_text(look.error.message if look.error else look.note)
        self.problem.set_tone("error" if look.error else "warn")
        self.problem.setText(words)
        self.problem.setVisible(bool(words))

    def _browse(self) -> None:
        title = translate("TeacherCard", "Choose the folder of a bigger model")
        folder = QFileDialog.getExistingDirectory(self, title, self.combo.path)
        if folder:
            self._form.set_value(TEACHER, folder)
