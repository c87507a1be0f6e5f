"""What is looked for in the rows, and which of them are shown."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from tunesmith_gui.data.finder import Finder
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide

TYPING_PAUSE_MS = 400
"""After which what was typed into the search box is looked for."""


class FindBar(QWidget):
    """Search box, steps from match to match, and filters.

    Signals:
        step_asked: (direction) the next match is wanted, 1, or the one before, -1.
        filter_changed: other rows are to be shown.
    """

    step_asked = Signal(int)
    filter_changed = Signal()

    def __init__(self, finder: Finder, parent: QWidget) -> None:
        super().__init__(parent)
        self.finder = finder
        box = QWidget(self)
        row = QHBoxLayout(box)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE)
        self.search = QLineEdit(box)
        self.search.setPlaceholderText(self.tr("Find in the rows"))
        self.search.setAccessibleName(self.tr("Find in the rows"))
        self.search.setClearButtonEnabled(True)
        self.search.returnPressed.connect(self._find_or_next)
        self.search.textChanged.connect(self._on_typed)
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(TYPING_PAUSE_MS)
        self._typing.timeout.connect(self._find_typed)
        back = self.tr("Previous match")
        self.previous = IconButton("chevron-up", back, lambda: self.step_asked.emit(-1), parent=box)
        self.next = IconButton("chevron-down", self.tr("Next match"), lambda: self.step_asked.emit(1), parent=box)
        self.stop = IconButton("stop", self.tr("Stop searching"), self.finder.cancel, parent=box)
        self.found = SafeLabel(tone="muted", parent=box)
        for each in (self.search, self.previous, self.next, self.found, self.stop):
            row.addWidget(each, 1 if each is self.search else 0)
        self.only_found = QCheckBox(self.tr("Only matches"), self)
        self.only_problems = QCheckBox(self.tr("Only rows with problems"), self)
        for check in (self.only_found, self.only_problems):
            check.setAccessibleName(check.text())
            check.toggled.connect(lambda _on: self.filter_changed.emit())
        checks = FlowRow((self.only_found, self.only_problems), self)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(SideBySide(box, checks, first_letters=44, parent=self))
        self.show_found()

    def focus_search(self) -> None:
        """Puts the cursor into the search box."""
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def _on_typed(self, text: str) -> None:
        if text.strip():
            self._typing.start()
        else:
            self._find_typed()

    def _find_typed(self) -> None:
        self._typing.stop()
        text = self.search.text().strip()
        if text != self.finder.text:
            self.finder.look_for(text)

    def _find_or_next(self) -> None:
        if self.search.text().strip() == self.finder.text:
            self.step_asked.emit(1)
        else:
            self._find_typed()

    def show_found(self) -> None:
        """Says how much was found."""
        finder, is_any = self.finder, bool(self.finder.places)
        words = self.tr("%Ln match(es)", "", len(finder.places)) if finder.text else ""
        if finder.is_looking:
            words = fill(self.tr("%1, %2% searched"), words, round(finder.share * 100))
        self.found.setText(words)
        self.found.setVisible(bool(words))
        self.stop.setVisible(finder.is_looking)
        self.previous.setEnabled(is_any)
        self.next.setEnabled(is_any)
        self.only_found.setEnabled(bool(finder.text) or self.only_found.isChecked())

    def offer_problems(self, *, may_be_any: bool) -> None:
        """Offers to see only rows with problems, unless it is known that there are none."""
        self.only_problems.setEnabled(may_be_any or self.only_problems.isChecked())

    def show_all(self) -> None:
        """Leaves no row out any more."""
        for check in (self.only_found, self.only_problems):
            check.setChecked(False)

    def wanted(self, problems: Iterable[int] | None) -> array[int] | None:
        """The places to show, those of rows with problems given, if they are known; None for all."""
        places: array[int] | None = None
        if self.only_problems.isChecked() and problems is not None:
            places = array("Q", sorted(problems))
        if self.only_found.isChecked() and self.finder.text:
            found = self.finder.places
            places = found if places is None else array("Q", np.intersect1d(places, found).tobytes())
        return array("Q", places) if places is not None else None
