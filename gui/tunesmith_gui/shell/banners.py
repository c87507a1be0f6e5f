"""The banners below the pages that are about the window as a whole: damaged settings, runs that were interrupted."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.models.run_row import RunRow
from tunesmith_gui.services.window_state import window_state
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.banner import Banner

_TOLD_KEY = "told_interrupted"


class ShellBanners(QWidget):
    """A column below the page, where it pushes nothing down; takes no room while it has nothing to say.

    Signals:
        navigate: (page, argument) as of a page.
    """

    navigate = Signal(str, object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = window_state()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(SPACE * 3, SPACE, SPACE * 3, SPACE * 2)
        self._column.setSpacing(SPACE)
        self.hide()

    def show_problem(self, problem: TunesmithError) -> None:
        """Tells what is wrong with the settings file or the data folder."""
        self._add(Banner("warn", core_text(problem.title), core_text(problem.message), dismissable=True, parent=self))

    def show_interrupted(self, rows: Sequence[RunRow]) -> None:
        """Tells, once for each run, that runs ended without a result while no window was looking."""
        told = set(str(self._state.value(_TOLD_KEY, "")).split("\n"))
        fresh = [row for row in rows if row.state is RunState.INTERRUPTED and row.id not in told]
        if not fresh:
            return
        self._state.setValue(_TOLD_KEY, "\n".join(row.id for row in rows if row.state is RunState.INTERRUPTED))
        target: tuple[str, str | None]
        if len(fresh) == 1:
            (row,) = fresh
            title = tr.fill(self.tr("The run %1 was interrupted at step %2"), row.name, tr.number(row.step))
            label, target = self.tr("Open"), ("dashboard", row.id)
        else:
            title = self.tr("%n run(s) were interrupted", "", len(fresh))
            label, target = self.tr("Show runs"), ("runs", None)
        words = self.tr("Open it to resume, or to see what happened.")
        go = (label, lambda: self.navigate.emit(*target))
        self._add(Banner("warn", title, words, actions=(go,), dismissable=True, parent=self))

    def _add(self, banner: Banner) -> None:
        banner.dismissed.connect(lambda: self._remove(banner))
        for each in banner.buttons:
            each.clicked.connect(lambda: self._remove(banner))
        self._column.addWidget(banner)
        self.show()

    def _remove(self, banner: Banner) -> None:
        self._column.removeWidget(banner)
        banner.hide()
        banner.deleteLater()
        self.setVisible(self._column.count() > 0)
