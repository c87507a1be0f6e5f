"""The card that suggests words of the documents which the model writes in many pieces."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.words import WORDS
from tunesmith_core.spec_sections import FROZEN_EMBEDDINGS, NEW_EMBEDDINGS
from tunesmith_core.trained_parts import FULL
from tunesmith_gui.new_run.form import BY_READING, NewRunForm
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tr import core_text, fill, number, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import SafeLabel

NEW_WORDS, EMBEDDINGS = "model.new_tokens", "adapter.embeddings"
MOST_ADDED = 10


class WordsCard(Card):
    """Shown where documents are read."""

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("WordsCard", "New words"), parent=parent)
        self._form = form
        self._task: OperationTask | None = None
        self._asked: tuple[str, ...] = ()
        self._found: list[dict[str, Any]] = []  # Any: JSON values
        words = self.tr(
            "Words of a field often fall into many pieces. As one token each they are read faster, and learned where "
            "they occur often. Write them into the setting New words, or look for them in the data."
        )
        self.body.addWidget(SafeLabel(words, role="caption", tone="muted", wrap=True, parent=self))
        self.state = SafeLabel(wrap=True, parent=self)
        self.body.addWidget(self.state)
        self.state.hide()
        self.suggest = button(self.tr("Suggest new words"), self._ask, parent=self)
        self.add = button("", self._add, kind="link", parent=self)
        for each in (self.suggest, self.add):
            self.body.addWidget(each, 0, Qt.AlignmentFlag.AlignLeft)
        self.refresh()

    def refresh(self) -> None:
        """Shows what is found for the form's model and data, and which words it has."""
        spec = self._form.spec
        # An adapter to start from has its own words.
        self.setVisible(self._form.way == BY_READING and not spec.adapter.start_from)
        asked = (spec.model.path, *(source.path for source in spec.data.sources))
        if asked != self._asked:
            self._asked, self._found = asked, []
            if self._task is not None:
                self._task.cancel()
                self._task = None
            self._tell("")
        self.suggest.setEnabled(all(asked) and self._task is None)
        chosen = self._chosen
        self.add.setVisible(bool(chosen))
        if chosen:
            self.add.setText(self.tr("Add the first %Ln word(s)", "", len(chosen)))
            self.add.setAccessibleName(self.add.text())

    @property
    def _chosen(self) -> list[str]:
        present = set(self._form.spec.model.new_tokens)
        return [each["word"] for each in self._found if each["word"] not in present][:MOST_ADDED]

    def _ask(self) -> None:
        task = self._task = OperationTask(WORDS, self._form.spec, parent=self)
        task.succeeded.connect(self._take)
        task.failed.connect(self._fail)
        self._tell(self.tr("Reading the data…"))
        task.start()
        self.refresh()

    def _take(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        self._task, self._found = None, answer["words"]
        told = self.tr("%1 (%2 pieces, %3 times)")
        shown = [
            fill(told, each["word"], number(each["pieces"]), number(each["count"])) for each in self._found[:MOST_ADDED]
        ]
        nothing = self.tr("No word is both frequent and written in many pieces.")
        self._tell(", ".join(shown) or nothing)
        self.refresh()

    def _tell(self, words: str) -> None:
        self.state.setText(words)
        self.state.setVisible(bool(words))

    def _fail(self, error: TunesmithError) -> None:
        self._task = None
        self._tell(core_text(error.message))
        self.refresh()

    def _add(self) -> None:
        form = self._form
        form.set_value(NEW_WORDS, [*form.spec.model.new_tokens, *self._chosen])
        if form.value("adapter.kind") != FULL and form.value(EMBEDDINGS) == FROZEN_EMBEDDINGS:
            form.set_value(EMBEDDINGS, NEW_EMBEDDINGS)
