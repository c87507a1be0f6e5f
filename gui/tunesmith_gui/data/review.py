"""Goes through rows that a model wrote: each is kept, edited or discarded, with the passage that it is about above."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QPlainTextEdit, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_core.data_library import REVIEWED
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.reviewed import Reviewed
from tunesmith_gui.data.rows import is_kept, is_made
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill, listed, number, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide

_PASSAGE_LINES = 5


class ReviewBar(QWidget):
    """Stands above the rows of a file with such rows.

    A row that is kept says so in a column of its own, which saving writes; one that is discarded is deleted.
    """

    def __init__(self, grid: Grid, reviewed: Reviewed, parent: QWidget) -> None:
        super().__init__(parent)
        self._grid, self._rows, self._reviewed = grid, grid.rows, reviewed
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        self.place = SafeLabel(role="strong", wrap=True, parent=self)
        self.keep = button(self.tr("Keep"), self._keep, icon_name="check", parent=self)
        self.discard = button(self.tr("Discard"), self._discard, icon_name="trash", parent=self)
        self.next = button(self.tr("Next"), self._go_on, icon_name="chevron-right", parent=self)
        set_tip(self.next, self.tr("The next row that nobody has reviewed: N in the list of rows"))
        set_tip(self.keep, self.tr("K in the list of rows"))
        set_tip(self.discard, self.tr("D in the list of rows"))
        actions = FlowRow((self.keep, self.discard, self.next), self)
        column.addWidget(SideBySide(self.place, actions, first_letters=40, parent=self))
        self.passage = QPlainTextEdit(self)
        self.passage.setReadOnly(True)
        self.passage.setTabChangesFocus(True)
        self.passage.setAccessibleName(self.tr("Passage that the row is about"))
        column.addWidget(self.passage)
        table = grid.table
        keys = ((Qt.Key.Key_K, self._keep), (Qt.Key.Key_D, self._discard), (Qt.Key.Key_N, self._go_on))
        for key, action in keys:
            QShortcut(QKeySequence(key), table, action, context=Qt.ShortcutContext.WidgetShortcut)
        grid.row_chosen.connect(lambda _place: self._show())
        grid.counted.connect(self._show)
        reviewed.counted.connect(self._show)
        theme().changed.connect(self._size, Qt.ConnectionType.QueuedConnection)
        self._size()
        self._show()

    def _size(self) -> None:
        lines = self.passage.fontMetrics().lineSpacing() * _PASSAGE_LINES
        self.passage.setFixedHeight(lines + 2 * round(self.passage.document().documentMargin()) + SPACE)

    def _values(self, place: int | None) -> Row | None:
        return None if place is None else self._rows.whole(place).values

    def _show(self) -> None:
        place = self._grid.current()
        values = self._values(place)
        self.setVisible(place is not None)
        asks = is_made(values)
        self.keep.setEnabled(asks)
        self.discard.setEnabled(asks and place not in self._rows.deleted)
        self.next.setEnabled(place is not None and self._reviewed.next_after(place) is not None)
        if place is None or values is None:
            self.place.setText("")
            self.passage.setPlainText("")
            return
        words = fill(self.tr("Row %1 of %2"), number(place + 1), number(len(self._rows)))
        parts = (words, self._state(place, values), _place_words(values), self._count_words())
        self.place.setText("  ·  ".join(filter(None, parts)))
        text = str(values.get("passage") or "")
        if text != self.passage.toPlainText():
            self.passage.setPlainText(text)

    def _state(self, place: int, values: Row) -> str:
        if place in self._rows.deleted:
            return self.tr("Discarded")
        if not is_made(values):
            return ""
        return self.tr("Kept") if is_kept(values) else self.tr("Not reviewed yet")

    def _count_words(self) -> str:
        num_made, num_waiting = len(self._reviewed), len(self._reviewed.waiting())
        if not num_made:
            return ""  # nobody has counted yet
        if not num_waiting and self._rows.has_changes:
            return self.tr("Every row is reviewed. Save a copy to train on it.")
        return fill(self.tr("%1 of %2 reviewed"), number(num_made - num_waiting), number(num_made))

    def _keep(self) -> None:
        if not self.keep.isEnabled() or not self._grid.pane.keep_typed():
            return
        place = self._grid.current()
        values = self._values(place)
        if place is not None and values is not None:
            self._rows.edit(place, values | {REVIEWED: True})
            self._go_on()

    def _discard(self) -> None:
        place = self._grid.current()
        if place is not None and self.discard.isEnabled():
            self._grid.pane.drop_typed()
            self._rows.delete([place])
            self._go_on()

    def _go_on(self) -> None:
        """Goes to the next row that nobody has looked at."""
        place = self._grid.current()
        waiting = None if place is None else self._reviewed.next_after(place)
        if waiting is not None:
            self._grid.go_to(waiting)


def _place_words(values: Row) -> str:
    """Which document a row is about, and where in it."""
    places = {
        "page": translate("ReviewBar", "page %1"),
        "part": translate("ReviewBar", "part %1"),
        "row": translate("ReviewBar", "row %1"),
        "line": translate("ReviewBar", "line %1"),
    }
    word, _, place = str(values.get("place") or "").partition(" ")
    where = fill(places[word], place) if word in places else ""
    return listed((str(values.get("document") or ""), where))
