"""A row as the trainer sees it: every token, whether it is learned, control tokens by name, and where it is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt, QTimer
from PySide6.QtGui import QColor, QTextCharFormat
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QStackedWidget, QTableView, QVBoxLayout, QWidget

from tunesmith_gui.plain_text import ColoredText, line
from tunesmith_gui.theme import font, theme, tokens
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill, number, translate
from tunesmith_gui.widgets.answer_heading import answer_heading

MOST_IN_TEXT = 4000
"""Tokens that are shown as text; the list holds them all."""
AT_ONCE = 300
"""Tokens that are added to the text before the window looks at its other events."""

Token = dict[str, Any]  # Any: JSON values
Index = QModelIndex | QPersistentModelIndex


def token_words(token: Token) -> str:
    """A token as it is read: control tokens by name, line ends and tabs as signs."""
    if token["special"]:
        return str(token["special"])
    return str(token["text"]).replace("\n", "↵").replace("\t", "⇥")


class TokenTable(QAbstractTableModel):
    """Every token of a row in a line of its own."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens: Sequence[Token] = ()
        self._num_better: int | None = None

    def set_answers(self, shown: Sequence[Token], worse: Sequence[Token] = ()) -> None:
        """Shows the tokens of another row, of a pair those of its better answer and behind them those of its worse one.
        """
        self.beginResetModel()
        self._tokens = [*shown, *worse]
        self._num_better = len(shown) if worse else None
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """The number of tokens."""
        return 0 if parent.isValid() else len(self._tokens)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Text, number, whether it is learned, and whether it is a control token; of a pair also which answer."""
        return 0 if parent.isValid() else 4 + (self._num_better is not None)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> object:
        """What a column holds, or the place of a token."""
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        if orientation == Qt.Orientation.Vertical:
            return number(section + 1)
        names = (self.tr("Token"), self.tr("ID"), self.tr("Learned"), self.tr("Control token"), self.tr("Answer"))
        return names[section]

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Text of a cell; learned tokens stand on the ground that they have in the text."""
        token = self._tokens[index.row()]
        if role == Qt.ItemDataRole.BackgroundRole and token["trained"]:
            return QColor(tokens().accent_soft)
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        yes = translate("TokenView", "yes")
        better, worse = translate("TokenView", "better"), translate("TokenView", "worse")
        cells = (
            line(token_words(token)),
            str(token["id"]),
            yes if token["trained"] else translate("TokenView", "no"),
            yes if token["special"] else "",
            better if index.row() < (self._num_better or 0) else worse,
        )
        return cells[index.column()]


class TokenView(QWidget):
    """The tokens of one row as text, or as a list."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._row: dict[str, Any] | None = None  # Any: JSON values
        self._rest: Iterator[tuple[str, QTextCharFormat]] = iter(())
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.timeout.connect(self._show_more)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        self._stack = QStackedWidget(self)
        self.text = ColoredText(self)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName(self.tr("Row as the model sees it"))
        self.text.setMinimumHeight(SPACE * 12)
        self._table = TokenTable(self)
        self.list = QTableView(self)
        self.list.setAccessibleName(self.tr("Tokens of the row"))
        self.list.setModel(self._table)
        self.list.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.list.setTabKeyNavigation(False)
        self.list.setCornerButtonEnabled(False)
        self.list.setShowGrid(False)
        self.list.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.list.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self.list.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for widget in (self.text, self.list):
            self._stack.addWidget(widget)
        column.addWidget(self._stack)
        theme().changed.connect(self._show, Qt.ConnectionType.QueuedConnection)

    def show_as(self, part: str) -> None:
        """Shows "text" or "list"."""
        self._stack.setCurrentWidget(self.list if part == "list" else self.text)

    def show_row(self, row: dict[str, Any] | None) -> None:  # Any: JSON values
        """Shows a row of a preview with its tokens; None shows nothing."""
        self._row = row
        self._show()

    def show_words(self, words: str) -> None:
        """Shows a sentence instead of a row."""
        self._row = None
        self._later.stop()
        self._table.set_answers(())
        self.text.set_segments([(words, QTextCharFormat())])

    def _show(self) -> None:
        if self._row is None:
            return
        worse = self._row.get("worse")
        self._table.set_answers(self._row["tokens"], worse["tokens"] if worse else ())
        self._rest = self._pair(self._row, worse) if worse else self._segments(self._row)
        self.text.set_segments(islice(self._rest, AT_ONCE))
        self._later.start(0)

    def _show_more(self) -> None:
        more = list(islice(self._rest, AT_ONCE))
        if more:
            self.text.add_segments(more)
            self._later.start(0)

    def _pair(
        self, better: dict[str, Any], worse: dict[str, Any]  # Any: JSON values
    ) -> Iterator[tuple[str, QTextCharFormat]]:
        yield answer_heading("better")
        yield from self._segments(better)
        yield answer_heading("worse")
        yield from self._segments(worse)

    def _segments(self, row: dict[str, Any]) -> Iterator[tuple[str, QTextCharFormat]]:  # Any: JSON values
        looks: dict[tuple[bool, bool, bool], QTextCharFormat] = {}
        ending = QTextCharFormat()
        ending.setFont(font("strong"))
        ending.setForeground(QColor(tokens().warn))
        splits = set(row["splits"])
        for place, token in enumerate(row["tokens"][:MOST_IN_TEXT]):
            look = (bool(token["trained"]), bool(token["special"]), bool(place % 2))
            if look not in looks:
                looks[look] = token_format(*look)
            if place in splits:
                yield "\n" + self.tr("Split here: the next example begins.") + "\n", ending
            words = token["special"] or str(token["text"]).replace("\n", "↵\n").replace("\t", "⇥\t")
            yield words, looks[look]
        if len(row["tokens"]) > MOST_IN_TEXT:
            words = self.tr("The list shows all %1 tokens.")
            yield "\n" + fill(words, number(len(row["tokens"]))), ending
        elif row.get("is_skipped"):
            words = self.tr("A run skips this row. It is longer than the context by this many tokens: %1")
            yield "\n" + fill(words, number(row["num_lost_tokens"])), ending
        elif row["is_cut"]:
            words = self.tr("Cut here: the context ends. Lost tokens: %1")
            yield "\n" + fill(words, number(row["num_lost_tokens"])), ending


def token_format(is_trained: bool, is_special: bool, is_odd: bool) -> QTextCharFormat:
    """How a token looks: underlined when learned, colored when a control token; neighbors differ in their ground."""
    result, colors = QTextCharFormat(), tokens()
    result.setFont(font("mono"))
    quiet = colors.text if is_trained else colors.muted
    result.setForeground(QColor(colors.accent_text if is_special else quiet))
    if is_trained:
        result.setBackground(QColor(colors.accent_soft if is_odd else colors.hover))
        result.setFontUnderline(True)
        result.setUnderlineColor(QColor(colors.accent_text))
    elif is_odd:
        result.setBackground(QColor(colors.surface))
    return result
