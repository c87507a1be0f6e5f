"""The answer to "why did this fail?": the cause in words, the line that gave it away, the fix, and its buttons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.actions import ACTIONS, doable
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import TunesmithError
from tunesmith_gui.theme import font, theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel, restyle
from tunesmith_gui.widgets.status_chip import StatusChip

if TYPE_CHECKING:
    from tunesmith_core.explain import Explanation


def confidence_words(confidence: str) -> tuple[str, str]:
    """Word and tone of how sure a diagnosis is."""
    return {
        "high": (translate("Diagnosis", "Certain"), "ok"),
        "medium": (translate("Diagnosis", "Likely"), "neutral"),
    }.get(confidence, (translate("Diagnosis", "Possible"), "warn"))


class DiagnosisView(QFrame):
    """Empty and one line high until there is something to say."""

    def __init__(self, do_action: Callable[[str], object], *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._do_action = do_action
        self._actions: FlowRow | None = None
        column = self._column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3 // 2, SPACE * 3 // 2, SPACE * 3 // 2, SPACE * 3 // 2)
        column.setSpacing(SPACE)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.title = SafeLabel(role="strong", wrap=True, parent=self)
        self.sure = StatusChip(parent=self)
        row.addWidget(self.title, 1)
        row.addWidget(self.sure)
        column.addLayout(row)
        self.cause = SafeLabel(wrap=True, selectable=True, parent=self)
        self.evidence = SafeLabel(tone="muted", wrap=True, selectable=True, parent=self)
        self.fix = SafeLabel(wrap=True, selectable=True, parent=self)
        self.code = SafeLabel(role="caption", tone="muted", wrap=True, selectable=True, parent=self)
        for label in (self.cause, self.evidence, self.fix, self.code):
            column.addWidget(label)
        theme().changed.connect(self._theme_changed)
        self._theme_changed()
        self.show_diagnosis(None)

    def show_diagnosis(self, found: Explanation | None) -> None:
        """Shows an answer; None says what the place is for."""
        if found is None:
            self._show("neutral", translate("Diagnosis", "The answer appears here."))
        elif found.code not in CODES:
            words = translate("Diagnosis", "Cause not recognized.")
            self._show("neutral", words, cause=core_text(found.fix))
        else:
            entry = CODES[found.code]
            self._show(
                "warn",
                core_text(entry.title),
                cause=core_text(entry.cause),
                evidence=found.evidence,
                fix=core_text(found.fix),
                code=found.code,
            )
            word, tone = confidence_words(found.confidence)
            self.sure.set_state(word, tone)
            self.sure.show()
        self._show_actions(found.actions if found is not None else ())

    def show_error(self, error: TunesmithError) -> None:
        """Shows that the text could not be read."""
        self._show("error", core_text(error.title), cause=core_text(error.message))
        self._show_actions(())

    def _show(
        self, tone: str, title: str, *, cause: str = "", evidence: str = "", fix: str = "", code: str = ""
    ) -> None:
        self.sure.hide()
        self.title.setText(title)
        for label, text in (
            (self.cause, cause),
            (self.evidence, evidence),
            (self.fix, fix),
            (self.code, fill(translate("Diagnosis", "Code: %1"), code) if code else ""),
        ):
            label.setText(text)
            label.setVisible(bool(text))
        self.setAccessibleName(title)
        self.setAccessibleDescription(" ".join(filter(None, (cause, fix))))
        self.setProperty("banner", tone)
        restyle(self)

    def _show_actions(self, names: tuple[str, ...]) -> None:
        if self._actions is not None:
            self._column.removeWidget(self._actions)
            self._actions.hide()
            self._actions.deleteLater()
            self._actions = None
        labels = {name: core_text(ACTIONS[name].label) for name in doable(names)}
        buttons = [button(label, partial(self._do_action, name), parent=self) for name, label in labels.items()]
        if buttons:
            self._actions = FlowRow(buttons, self)
            self._column.insertWidget(self._column.count() - 1, self._actions)

    def _theme_changed(self) -> None:
        self.evidence.setFont(font("mono"))
