"""How a run is exported, as the person chooses it: format, number format, weights, folder, other programs."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.export import ExportFormat
from tunesmith_core.other_programs import ollama_name
from tunesmith_gui.background import Job
from tunesmith_gui.export.model import (
    TYPES,
    Draft,
    Facts,
    format_help,
    format_words,
    room_words,
    saved_words,
    type_words,
)
from tunesmith_gui.plain_text import add_choice, without_shortcut
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.segmented import Segmented

_COMBO_LETTERS = 20


class ExportForm(QWidget):
    """The choices; `draft` holds them.

    Attributes:
        draft: what is chosen.
        room: size and free space in words.
        can_start: whether there is room.

    Signals:
        changed: `room` and `can_start` are those of the choice.
        restore_asked: the person wants the base model back from the trash.
    """

    changed = Signal()
    restore_asked = Signal()

    def __init__(
        self, facts: Facts, refused: frozenset[ExportFormat] = frozenset(), parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.draft = Draft.of(facts, refused)
        self.room, self.can_start = "", False
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE * 2)
        formats_there = [(each, format_words(each, is_full=facts.is_full)) for each in facts.formats]
        self.format = Segmented(self.tr("Format"), formats_there, parent=self)
        self.format.set_value(self.draft.format)
        self._format_help = SafeLabel(role="caption", tone="muted", wrap=True, parent=self)
        self.type = self._combo([(type_words(each, facts), each) for each in TYPES])
        self.type.setCurrentIndex(TYPES.index(self.draft.type))
        self._type_field = Field(self.tr("Number format"), self.type, parent=self)
        self.saved = self._combo([(saved_words(each), each) for each in facts.saved])
        formats = self._named(self.tr("Format"))
        formats.addWidget(self.format)
        formats.addWidget(self._format_help)
        without = fill(
            self.tr("GGUF is missing here: Tunesmith can't write it for models of type %1."), facts.without_gguf
        )
        self.missing = SafeLabel(without, role="caption", tone="muted", wrap=True, parent=self)
        self.missing.setVisible(bool(facts.without_gguf))
        formats.addWidget(self.missing)
        shared = self.tr(
            "A merged model is missing here: in models of type %1 layers share weights, and the adapter changes them "
            "differently in each layer."
        )
        self.unmerged = SafeLabel(
            fill(shared, facts.without_merged), role="caption", tone="muted", wrap=True, parent=self
        )
        self.unmerged.setVisible(bool(facts.without_merged))
        formats.addWidget(self.unmerged)
        self.restore = button(self.tr("Restore the base model"), self.restore_asked.emit, parent=self)
        formats.addWidget(self.restore, 0, Qt.AlignmentFlag.AlignLeft)
        column.addLayout(formats)
        column.addWidget(self._type_field)
        column.addWidget(Field(self.tr("Trained weights"), self.saved, parent=self))
        column.addLayout(self._build_folder())
        self._programs = self._build_programs(facts)
        column.addWidget(self._programs)
        column.addWidget(self._build_hub())
        column.addStretch(1)
        self.format.changed.connect(lambda _value: self._choose())
        self._was_chosen = False
        self.format.changed.connect(self._note_choice)
        for combo in (self.type, self.saved):
            combo.currentIndexChanged.connect(lambda _place: self._choose())
        self._choose()

    def _combo(self, choices: list[tuple[str, object]]) -> QComboBox:
        combo = QComboBox(self)
        # Long words must not make the sheet wider than a small window.
        combo.setMinimumContentsLength(_COMBO_LETTERS)
        combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        combo.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        for words, value in choices:
            add_choice(combo, words, value)
        return combo

    def _named(self, name: str) -> QVBoxLayout:
        column = QVBoxLayout()
        column.setSpacing(SPACE // 2)
        column.addWidget(SafeLabel(name, role="strong", parent=self))
        return column

    def _build_folder(self) -> QVBoxLayout:
        column = self._named(self.tr("Folder"))
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.folder = ElidedLabel("", mode=Qt.TextElideMode.ElideMiddle, parent=self)
        row.addWidget(self.folder, 1)
        self.change = button(self.tr("Change…"), self._browse, icon_name="folder", parent=self)
        self.change.setAccessibleName(self.tr("Change the folder"))
        row.addWidget(self.change)
        column.addLayout(row)
        return column

    def _build_programs(self, facts: Facts) -> QWidget:
        holder = QWidget(self)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        self.ollama = QCheckBox(holder)
        self.lm_studio = QCheckBox(self.tr("Also into LM Studio"), holder)
        for box, found in ((self.ollama, facts.has_ollama), (self.lm_studio, facts.has_lm_studio)):
            box.setVisible(found)
            box.toggled.connect(lambda _on: self._choose())
            column.addWidget(box)
        return holder

    def _build_hub(self) -> QWidget:
        holder = QWidget(self)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        self.hub = QCheckBox(self.tr("Also upload it to the model hub, with its card"), holder)
        column.addWidget(self.hub)
        self.hub_id = QLineEdit(holder)
        self.hub_id.setPlaceholderText("OWNER/NAME")
        self._hub_field = Field(self.tr("Repository, as OWNER/NAME"), self.hub_id, parent=holder)
        column.addWidget(self._hub_field)
        self.public = QCheckBox(self.tr("Everybody may see it"), holder)
        column.addWidget(self.public)
        for each in (self._hub_field, self.public):
            each.hide()
            self.hub.toggled.connect(each.setVisible)
        for box in (self.hub, self.public):
            box.toggled.connect(lambda _on: self._choose())
        self.hub_id.textChanged.connect(lambda _text: self._choose())
        return holder

    def _note_choice(self, _value: str) -> None:
        self._was_chosen = True

    def refuse_gguf(self, error: TunesmithError) -> None:
        """Tell why the model can't become a GGUF file, and propose another format unless the person chose one."""
        self.missing.setText(core_text(error.message))
        self.missing.show()
        others = [each for each in self.draft.facts.formats if "gguf" not in each]
        if others and not self._was_chosen:
            self.format.set_value(others[0])

    def set_parent_folder(self, folder: Path) -> None:
        """Make the folder of the export in another one."""
        self.draft.parent = folder
        self._choose()

    def _browse(self) -> None:
        before = self.draft.folder().parent
        start = before if before.is_dir() else self.draft.facts.run.path
        folder = QFileDialog.getExistingDirectory(self, self.tr("Where to export to"), str(start))
        if folder:
            self.set_parent_folder(Path(folder))

    def _choose(self) -> None:
        draft = self.draft
        draft.format, draft.type = self.format.value, self.type.currentData()  # type: ignore[assignment]
        draft.saved = self.saved.currentData()
        draft.ollama, draft.lm_studio = self.ollama.isChecked(), self.lm_studio.isChecked()
        draft.hub, draft.hub_id, draft.public = (
            self.hub.isChecked(),
            self.hub_id.text().strip(),
            self.public.isChecked(),
        )
        is_gguf = draft.format == "gguf"
        self._format_help.setText(format_help(draft.format, is_full=draft.facts.is_full))
        self._type_field.setVisible(is_gguf)
        facts = draft.facts
        self._programs.setVisible(is_gguf and (facts.has_ollama or facts.has_lm_studio))
        name = ollama_name(facts.run, draft.type)
        self.ollama.setText(without_shortcut(fill(self.tr("Also into Ollama, as %1"), name)))
        folder = draft.folder()
        self.folder.setText(str(folder))
        self.restore.setVisible(draft.problem is not None and draft.problem.code == "model-deleted")
        if draft.problem is not None:
            self._show_problem(draft.problem)
            return
        Job.start(self, lambda: (folder, files.free_bytes(folder.parent)), self._take_room, self._show_problem)

    def _take_room(self, found: tuple[Path, int]) -> None:
        folder, free_bytes = found
        if folder != self.draft.folder() or self.draft.problem is not None:
            return
        words, short = room_words(self.draft.size(), free_bytes)
        if self.draft.names_no_repository and not short:
            self._say(self.tr("Name the repository to upload to, such as me/my-model."), False)
        else:
            self._say(words, not short)

    def _show_problem(self, error: TunesmithError) -> None:
        self._say(f"{core_text(error.message)}\n{core_text(error.hint)}", False)

    def _say(self, words: str, can_start: bool) -> None:
        self.room, self.can_start = words, can_start
        self.changed.emit()
