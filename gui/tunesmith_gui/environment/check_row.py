"""One check as a row: name, what was found, its state as icon and word, and the button that repairs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_core.setup_messages import Finding
from tunesmith_gui.environment.model import check_words, fix_words, state_words
from tunesmith_gui.plain_text import set_tip, without_shortcut
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, size, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import line
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.status_chip import StatusChip

_WORDS_LETTERS = 34
"""Where less is left for the words, state and button go below them."""

FixAsked = Callable[[Finding], object]


class CheckRow(QWidget):
    """Shows a Finding and follows it.

    Args:
        on_fix: called with the check when its button is pressed.
    """

    def __init__(self, check: Finding, on_fix: FixAsked, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.check = check
        self._offline = self._busy = False
        words = QWidget(self)
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        self.title = SafeLabel(role="strong", wrap=True, parent=words)
        self.message = SafeLabel(tone="muted", wrap=True, selectable=True, parent=words)
        column.addWidget(self.title)
        column.addWidget(self.message)
        self.chip = StatusChip(parent=self)
        self.fix = button("", lambda: on_fix(self.check), parent=self)
        end = QWidget(self)
        ends = QHBoxLayout(end)
        ends.setContentsMargins(0, 0, 0, 0)
        ends.setSpacing(SPACE)
        ends.addWidget(self.chip)
        ends.addWidget(self.fix)
        ends.addStretch(1)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(SideBySide(words, end, first_letters=_WORDS_LETTERS, parent=self))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.show_check(check)

    def show_check(self, check: Finding, *, offline: bool = False, busy: bool = False) -> None:
        """Shows another state; the button says why when it can't be used."""
        if (check, offline, busy) == (self.check, self._offline, self._busy) and self.title.text():
            return
        self.check, self._offline, self._busy = check, offline, busy
        word, tone, icon_name = state_words(check.state)
        self.title.setText(core_text(check.title))
        message = check_words(check)
        self.message.setText(message)
        self.message.setVisible(bool(message))
        self.chip.set_state(word, tone, icon_name=icon_name)
        self.setAccessibleName(fill(translate("CheckRow", "%1: %2"), core_text(check.title), word))
        self.setAccessibleDescription(message)
        self._show_fix(offline=offline, busy=busy)

    def _show_fix(self, *, offline: bool, busy: bool) -> None:
        fix = self.check.fix
        self.fix.setVisible(fix is not None)
        if fix is None:
            return
        label = fix_words(fix)
        if fix.bytes:
            label = fill(translate("CheckRow", "%1 (%2)"), label, size(fix.bytes))
        self.fix.setText(without_shortcut(label))
        self.fix.setAccessibleName(fill(translate("CheckRow", "%1: %2"), core_text(self.check.title), label))
        reason = ""
        if offline and fix.needs_network:
            reason = translate("CheckRow", "Offline. This fix needs a download.")
        elif busy:
            reason = translate("CheckRow", "Wait until the current task is done.")
        self.fix.setEnabled(not reason)
        set_tip(self.fix, reason)
        self.fix.setAccessibleDescription(reason)


class CheckList(QWidget):
    """Rows for checks, with hairlines between them; rows stay in place while their states change."""

    def __init__(self, on_fix: FixAsked, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._on_fix = on_fix
        self.rows: dict[str, CheckRow] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE + SPACE // 2)

    def show_checks(self, checks: Sequence[Finding], *, offline: bool = False, busy: bool = False) -> None:
        """Shows these checks in this order."""
        if [check.id for check in checks] != list(self.rows):
            self._rebuild(checks)
        for check in checks:
            self.rows[check.id].show_check(check, offline=offline, busy=busy)

    def _rebuild(self, checks: Sequence[Finding]) -> None:
        while (item := self._column.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        self.rows = {}
        for check in checks:
            if self.rows:
                self._column.addWidget(line(self))
            row = self.rows[check.id] = CheckRow(check, self._on_fix, parent=self)
            self._column.addWidget(row)
