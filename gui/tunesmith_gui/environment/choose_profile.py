"""Chooses the build of PyTorch where the person knows better than the recommendation."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QHBoxLayout, QRadioButton, QVBoxLayout, QWidget

from tunesmith_gui.environment.model import profile_words
from tunesmith_gui.plain_text import window_title, without_shortcut
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.fitting import fitting_size
from tunesmith_gui.widgets.safe_label import SafeLabel

PROFILES = ("cu124", "cu128", "cpu")
_WIDTH_LETTERS = 68


class ChooseProfileDialog(QDialog):
    """One radio button for the recommendation and one for each build.

    Attributes:
        profile: the chosen build after the dialog was accepted, "" for the recommended one.
    """

    def __init__(self, recommended: str, sentence: str, chosen: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.profile = chosen
        title = self.tr("Choose a PyTorch version")
        self.setWindowTitle(window_title(title))
        self.setMinimumWidth(fitting_size(self, _WIDTH_LETTERS, 0).width())
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        column.setSpacing(SPACE)
        column.addWidget(SafeLabel(title, role="heading", wrap=True, parent=self))
        if sentence:
            column.addWidget(SafeLabel(sentence, tone="muted", wrap=True, parent=self))
        self.choices: dict[str, QRadioButton] = {}
        best = self.tr("Recommended for this computer")
        self._add("", fill(self.tr("%1: %2"), best, profile_words(recommended)) if recommended else best, "")
        self._add("cu124", profile_words("cu124"), self.tr("GTX 1000 to RTX 4000 and data center GPUs up to Hopper"))
        self._add("cu128", profile_words("cu128"), self.tr("RTX 5000 and other Blackwell GPUs, RTX 2000 and newer"))
        self._add(
            "cpu", profile_words("cpu"), self.tr("Works on every computer. Practical for very small models only.")
        )
        self.choices[chosen if chosen in self.choices else ""].setChecked(True)
        row = QHBoxLayout()
        row.setContentsMargins(0, SPACE, 0, 0)
        row.setSpacing(SPACE)
        row.addStretch(1)
        row.addWidget(button(self.tr("Cancel"), self.reject, parent=self))
        use = button(self.tr("Use this"), self._take, kind="primary", parent=self)
        use.setDefault(True)
        row.addWidget(use)
        column.addLayout(row)

    def _add(self, name: str, words: str, meaning: str) -> None:
        choice = self.choices[name] = QRadioButton(without_shortcut(words), self)
        choice.setAccessibleName(words)
        choice.setAccessibleDescription(meaning)
        layout = self.layout()
        assert isinstance(layout, QVBoxLayout)
        layout.addWidget(choice)
        if meaning:
            label = SafeLabel(meaning, role="caption", tone="muted", wrap=True, parent=self)
            label.setIndent(SPACE * 4)
            layout.addWidget(label)

    def _take(self) -> None:
        self.profile = next(name for name, choice in self.choices.items() if choice.isChecked())
        self.accept()
