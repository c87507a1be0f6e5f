"""The access token of the model hub: where it is, and the ways to enter another one or to remove it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_core import hub_token as core
from tunesmith_gui.background import Job
from tunesmith_gui.services import hub_token
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.token_dialog import TokenDialog

_WORDS_LETTERS = 32


class TokenField(QWidget):
    """Shows the state, never the token.

    Signals:
        failed: (TunesmithError) the keyring refused something.
    """

    failed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        name = self.tr("Access token of the model hub")
        self.setAccessibleName(name)
        words = QWidget(self)
        lines = QVBoxLayout(words)
        lines.setContentsMargins(0, 0, 0, 0)
        lines.setSpacing(SPACE // 2)
        lines.addWidget(SafeLabel(name, role="strong", wrap=True, parent=words))
        self.state = SafeLabel(role="caption", tone="muted", wrap=True, parent=words)
        lines.addWidget(self.state)
        self.enter = button(self.tr("Enter a token…"), self._ask, parent=self)
        self.remove = button(self.tr("Remove"), self._remove, parent=self)
        self.remove.setAccessibleName(self.tr("Remove the access token"))
        self._buttons = FlowRow([self.enter, self.remove], self)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(SideBySide(words, self._buttons, first_letters=_WORDS_LETTERS, parent=self))
        self._show(None)

    def look(self) -> None:
        """Look for the token; the keyring may take its time."""
        Job.start(self, core.found, self._show, self.failed.emit)

    def _show(self, found: core.Found | None) -> None:
        if found is None:
            self.state.setText(self.tr("None. Public models need no token."))
        else:
            self.state.setText(core_text(found.place))
        is_ours = found is not None and found.source == hub_token.load
        self._buttons.show_only([self.enter, self.remove] if is_ours else [self.enter])

    def _ask(self) -> None:
        dialog = TokenDialog(self.window())
        dialog.saved.connect(self.look)
        dialog.open()

    def _remove(self) -> None:
        Job.start(self, lambda: hub_token.save(""), lambda _nothing: self.look(), self.failed.emit)
