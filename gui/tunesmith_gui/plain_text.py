"""Foreign text in the window: the one place where text becomes a tool tip, an item, a title or HTML.

Qt takes text for HTML where it looks like it (labels, tool tips, message boxes), reads `&` as a shortcut (buttons,
menus) and `[*]` as the mark of a changed document (window titles); desktops read markup in notifications. Names of
runs, models, files and columns, errors, samples, settings and log lines come from outside, and an image in one of them
would be loaded. tests/packaging/test_plain_text.py keeps these calls out of every other file.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QAction, QClipboard, QIcon, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import (
    QComboBox,
    QGraphicsTextItem,
    QLabel,
    QListWidgetItem,
    QMenu,
    QMessageBox,
    QPlainTextEdit,
    QTableWidgetItem,
    QTextEdit,
    QTreeWidgetItem,
    QWidget,
)

from tunesmith_core.plain_text import ELLIPSIS, num_columns, one_line, visible

MAX_LETTERS = 2000
"""Of a text in a label, a cell or a tool tip: more than a person reads there, less than what slows the window."""

MAX_LINES = 24
"""Of a text that is not asked for in full: a message as high as the window hides what can be done about it."""

LONGEST_WORD = 100
"""Letters of a word that stay in one line."""

_MOST_SIGNS = 24
"""Signs and digits behind each other that stay in one line: many are wider than letters, and nobody copies a rule."""

_PIECE_LETTERS = 8
_ZWJ = "\u200d"
_SKINS = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
"""Colors of the emoji before them."""
_TIP_COLUMNS = 100
_JOINER, _BREAK = "\u2060", "\u200b"
_IN_WINDOWS_PATH = re.compile(r"(?<=[^\s\\])\\(?=[^\s\\])")
_LOOKALIKES = {"<": "‹", ">": "›", "&": "＆"}


def paragraphs(text: str, most: int = MAX_LETTERS, longest_word: int = LONGEST_WORD) -> str:
    """Return text for several lines that can be broken everywhere a line may end, and within endless words."""
    lines = _cut(visible(_cut(text, most)), most).split("\n")
    if most <= MAX_LETTERS and len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [ELLIPSIS]
    # As behind a slash, where Qt breaks lines by itself: a path of Windows would make its page wider than the window.
    text = _IN_WINDOWS_PATH.sub(rf"\\{_BREAK}", "\n".join(lines))
    most_signs = min(longest_word, _MOST_SIGNS)
    sign = rf"(?:(?![\s/{_BREAK}])[\W\d_])"
    too_long = rf"[^\s/{_BREAK}]{{{longest_word + 1},}}|{sign}{{{most_signs + 1},}}"
    return re.sub(too_long, lambda found: _BREAK.join(_pieces(found[0])), text)


def _pieces(word: str) -> Iterable[str]:
    """Yield the pieces of a word that a line is filled with; a letter keeps its marks, a joined emoji its parts."""
    start = 0
    for place in range(1, len(word)):
        letter = word[place]
        is_joined = unicodedata.category(letter)[0] == "M" or letter in _SKINS or _ZWJ in word[place - 1 : place + 1]
        if place - start >= _PIECE_LETTERS and not is_joined:
            yield word[start:place]
            start = place
    yield word[start:]


def line(text: str, most: int = MAX_LETTERS) -> str:
    """Return text for one line."""
    return _cut(one_line(_cut(text, most)), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + ELLIPSIS


def tip(text: str) -> str:
    """Return text for a tool tip: never taken for HTML, and no wider than a screen."""
    folded = "\n".join(part for whole in without_breaks(paragraphs(text)).split("\n") for part in _folded(whole))
    # An invisible letter that no tag and no entity begins with.
    return folded.replace("<", f"<{_JOINER}").replace("&", f"&{_JOINER}")


def _folded(text: str) -> Iterable[str]:
    """Yield the lines of a line, broken at spaces, or anywhere in a longer word."""
    while num_columns(text) > _TIP_COLUMNS:
        end, width = 0, num_columns(text[0])
        while width <= _TIP_COLUMNS:
            end += 1
            width += num_columns(text[end])
        space = text.rfind(" ", 1, end + 1)
        end = space if space > end // 2 else end
        yield text[:end]
        text = text[end:].lstrip(" ")
    yield text


def without_breaks(text: str) -> str:
    """Return text of a label without the invisible places where its lines may be broken."""
    return text.replace(_BREAK, "")


def keep_breaks_out_of(clipboard: QClipboard) -> None:
    """Take the invisible places for line breaks out of what is copied from a label: no program opens such a path."""

    def clean() -> None:
        # Buttons that copy put text there as it is; a label's own copy is that of a document.
        if clipboard.ownsClipboard() and clipboard.mimeData().hasHtml() and _BREAK in clipboard.text():
            clipboard.setText(without_breaks(clipboard.text()))

    clipboard.dataChanged.connect(clean)


def set_tip(widget: QWidget, text: str) -> None:
    """Gives a widget a tool tip; an empty text takes it away."""
    widget.setToolTip(tip(text))


def set_entry_tip(menu: QMenu, entry: QAction, text: str) -> None:
    """Give an entry of a menu a tool tip, which menus show only when told to."""
    menu.setToolTipsVisible(True)
    entry.setToolTip(tip(text))


def without_shortcut(text: str) -> str:
    """Return text for a button, a menu entry or a tab, in which `&` is a letter."""
    return text.replace("&", "&&")


def window_title(text: str) -> str:
    """Return text for the title of a window."""
    return line(text).replace("[*]", "[*][*]")


def notification(text: str) -> str:
    """Return text for a notification of the desktop: some read markup there, others don't."""
    return "".join(_LOOKALIKES.get(letter, letter) for letter in line(text))


def for_html(text: str) -> str:
    """Return text for where a library takes HTML only, such as the legend of a chart."""
    return html.escape(line(text))


def show_values(item: QGraphicsTextItem, rows: Iterable[tuple[str, str, str]]) -> None:
    """Shows names with their values below each other: (color of a dot before the name or "", name, value)."""
    lines = []
    for ink, name, value in rows:
        dot = f"<span style='color:{ink}'>●</span> " if ink else ""
        value_cell = f"<td align='right'>&nbsp;&nbsp;<b>{for_html(value)}</b></td>"
        lines.append(f"<tr><td>{dot}{for_html(name)}</td>{value_cell}</tr>")
    item.setHtml(f"<table cellspacing='1'>{''.join(lines)}</table>")


def tree_item(texts: Sequence[str]) -> QTreeWidgetItem:
    """Return a row of a tree."""
    return QTreeWidgetItem([line(text) for text in texts])


def set_item_tip(item: QTreeWidgetItem, column: int, text: str) -> None:
    """Gives a cell of a tree a tool tip."""
    item.setToolTip(column, tip(text))


def list_item(text: str, icon: QIcon | None = None) -> QListWidgetItem:
    """Return an entry of a list."""
    return QListWidgetItem(icon or QIcon(), line(text))


def table_item(text: str) -> QTableWidgetItem:
    """Return a cell of a table."""
    return QTableWidgetItem(line(text))


_BESIDE_CHOICE_PX = 88
"""Margins, the space round a choice, an icon and a scroll bar."""
_WIDEST_LIST_PX = 560
"""Which the smallest window has room for."""


def add_choice(combo: QComboBox, text: str, value: Any, icon: QIcon | None = None) -> None:  # Any: whatever is chosen
    """Appends a choice to a list that opens, which is as wide as its longest one even where its box is narrow."""
    combo.addItem(icon or QIcon(), line(text), value)
    wanted = combo.fontMetrics().horizontalAdvance(line(text)) + _BESIDE_CHOICE_PX
    opened = combo.view()
    opened.setMinimumWidth(max(opened.minimumWidth(), min(wanted, _WIDEST_LIST_PX)))


def set_choice_tip(combo: QComboBox, place: int, text: str) -> None:
    """Gives a choice a tool tip."""
    combo.setItemData(place, tip(text), Qt.ItemDataRole.ToolTipRole)


class ColoredText(QTextEdit):
    """Text in several formats to read: letters only, nothing is ever loaded."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setAcceptRichText(False)

    def set_segments(self, segments: Iterable[tuple[str, QTextCharFormat]]) -> None:
        """Shows other text, piece by piece in its format, from its beginning."""
        self.clear()
        self.add_segments(segments)
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def add_segments(self, segments: Iterable[tuple[str, QTextCharFormat]]) -> None:
        """Shows more text behind what is shown."""
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        # Else everything is laid out again with each piece.
        cursor.beginEditBlock()
        for text, look in segments:
            cursor.insertText(visible(text), look)
        cursor.endEditBlock()

    def loadResource(self, _kind: int, _name: QUrl | str) -> None:
        """Loads nothing."""


def mark_letters(box: QPlainTextEdit, marks: Iterable[tuple[tuple[int, int], QTextCharFormat]]) -> None:
    """Marks parts of the text of a box, each from its first letter to the one behind its last, instead of others."""
    text, selections = box.toPlainText(), []
    for (begin, end), look in marks:
        each = QTextEdit.ExtraSelection()
        cursor = QTextCursor(box.document())
        cursor.setPosition(_place_in_qt(text, begin))
        cursor.setPosition(_place_in_qt(text, end), QTextCursor.MoveMode.KeepAnchor)
        each.cursor, each.format = cursor, look
        selections.append(each)
    box.setExtraSelections(selections)


def show_letter(box: QPlainTextEdit, letter: int) -> None:
    """Brings a letter of the text of a box into sight."""
    cursor = box.textCursor()
    cursor.setPosition(_place_in_qt(box.toPlainText(), letter))
    box.setTextCursor(cursor)
    box.ensureCursorVisible()


def _place_in_qt(text: str, letter: int) -> int:
    """Where Qt counts a letter: those beyond the first plane are two of its own."""
    return len(text[:letter].encode("utf-16-le", "surrogatepass")) // 2


def message_box(title: str, text: str) -> QMessageBox:
    """Return a box with an error, for when there is no window."""
    box = QMessageBox(QMessageBox.Icon.Critical, "Tunesmith", line(title))
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setInformativeText(paragraphs(text))
    for label in box.findChildren(QLabel):
        label.setTextFormat(Qt.TextFormat.PlainText)
    return box
