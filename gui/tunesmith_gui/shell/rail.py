"""The left rail: pages at the top, activity and hardware at the bottom, icons only when collapsed."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QTextLayout
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_gui.icons import app_icon, icon
from tunesmith_gui.plain_text import set_tip, without_shortcut
from tunesmith_gui.shell.gpu_strip import GpuStrip
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import translate
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.safe_label import SafeLabel, restyle

_WIDTH_LETTERS, _FEWER_LETTERS = 26, 6
_MOST_LINES = 3
_MOST_LINES_WITH_NAME = 5
_FEWEST_NAME_LETTERS = 4
_MARK_PX = SPACE * 3
_COLLAPSED_PX = SPACE * 8


class RailButton(QPushButton):
    """An entry with icon and words, or the icon alone; words that need it stand on more lines where `wraps` says so.

    A name in the words is shortened before anything else is: the end of the words may hold what matters.
    """

    def __init__(self, icon_name: str, words: str, keys: str, parent: QWidget, *, wraps: bool = False) -> None:
        super().__init__(parent)
        self.words = words
        self._wraps = wraps
        self._name = ""
        self._keys = keys
        self._collapsed = False
        self.setProperty("kind", "rail")
        self.setIcon(icon(icon_name, "muted", "accent"))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.set_words(words)

    def set_words(self, words: str, name: str = "") -> None:
        """Changes the words and the name in them; they stay as tool tip and accessible name when collapsed."""
        self.words, self._name = words, name
        self.setAccessibleName(words)
        set_tip(self, f"{words} ({self._keys})" if self._keys else words)
        self._show_words()

    def set_collapsed(self, collapsed: bool) -> None:
        """Shows or hides the words."""
        self._collapsed = collapsed
        self.setProperty("folded", collapsed)
        restyle(self)
        self._show_words()

    def resizeEvent(self, event: object) -> None:
        """Shortens the words to the new width."""
        super().resizeEvent(event)  # type: ignore[arg-type]
        self._show_words()

    def _show_words(self) -> None:
        # Padding and border on both sides, and the gap beside the icon; see the style sheet.
        room = self.width() - self.iconSize().width() - SPACE * 4
        lines = self._fitting_lines(max(room, 0)) if self._wraps else [self.words]
        mode = Qt.TextElideMode.ElideMiddle if self._wraps else Qt.TextElideMode.ElideRight
        shown = (self.fontMetrics().elidedText(f"  {each}", mode, max(room, 0)) for each in lines)
        self.setText("" if self._collapsed else without_shortcut("\n".join(shown)))

    def _fitting_lines(self, room_px: int) -> list[str]:
        """The words with as much of the name as lets them fit, on more lines where even a short name is too much."""
        name, words = self._name, self.words
        lines = self._lines(words, room_px, _MOST_LINES)
        if not name or name not in words:
            return lines
        for most in (_MOST_LINES, _MOST_LINES_WITH_NAME):
            for kept in range(len(name), _FEWEST_NAME_LETTERS - 1, -1):
                short = name if kept == len(name) else f"{name[:kept]}…"
                lines = self._lines(words.replace(name, short, 1), room_px, most)
                if self.fontMetrics().horizontalAdvance(f"  {lines[-1]}") <= room_px:
                    return lines
        return lines

    def _lines(self, words: str, room_px: int, most: int) -> list[str]:
        """The words in whole, as far as there are lines; what is left stands in the last one."""
        lines: list[str] = []
        rest = words
        while rest and len(lines) < most - 1:
            layout = QTextLayout(f"  {rest}", self.font())
            layout.beginLayout()
            line = layout.createLine()
            line.setLineWidth(room_px)
            layout.endLayout()
            end = max(line.textLength() - 2, 1)
            lines.append(rest[:end].strip())
            rest = rest[end:].strip()
        return [each for each in (*lines, rest) if each]


class Rail(QFrame):
    """Signals:
    page_chosen: (str key) a page entry was clicked.
    activity_clicked: the activity button was clicked.
    collapsed_changed: (bool) the person folded or unfolded the rail.
    """

    page_chosen = Signal(str)
    activity_clicked = Signal()
    collapsed_changed = Signal(bool)

    def __init__(self, entries: Iterable[tuple[str, str, str, str]], parent: QWidget | None = None) -> None:
        """Builds the entries, each (page key, words, icon name, shown key sequence)."""
        super().__init__(parent)
        self.setProperty("rail", True)
        self.setAccessibleName(self.tr("Pages"))
        self.collapsed = False
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE, SPACE * 2, SPACE, SPACE)
        column.setSpacing(SPACE // 2)
        column.addLayout(self._build_head())
        column.addSpacing(SPACE)
        self._group = QButtonGroup(self)
        self.buttons: dict[str, RailButton] = {}
        for key, words, icon_name, keys in entries:
            each = RailButton(icon_name, words, keys, self)
            each.setCheckable(True)
            each.setAutoExclusive(True)  # a radio button to screen readers, not a check box
            each.clicked.connect(lambda _checked=False, key=key: self.page_chosen.emit(key))
            self._group.addButton(each)
            self.buttons[key] = each
            column.addWidget(each)
        column.addStretch(1)
        self.strip = GpuStrip(self)
        column.addWidget(self.strip)
        self.activity = RailButton("activity", "", "", self, wraps=True)
        self.activity.clicked.connect(self.activity_clicked)
        column.addWidget(self.activity)
        theme().changed.connect(self._resize)
        self._resize()

    def _build_head(self) -> QHBoxLayout:
        row = self._head = QHBoxLayout()
        row.setSpacing(SPACE)
        self._mark = SafeLabel(parent=self)
        self._name = SafeLabel("Tunesmith", role="strong", parent=self)
        self._fold = IconButton("sidebar", self.tr("Collapse the side bar"), self.toggle, parent=self)
        row.addWidget(self._mark)
        row.addWidget(self._name, 1)
        row.addWidget(self._fold)
        return row

    def show_current(self, key: str) -> None:
        """Marks the entry of the page in front."""
        self.buttons[key].setChecked(True)

    def toggle(self) -> None:
        """Folds or unfolds the rail, as the person asked."""
        self.set_collapsed(not self.collapsed)
        self.collapsed_changed.emit(self.collapsed)

    def set_collapsed(self, collapsed: bool) -> None:
        """Shows icons only, or icons and words."""
        self.collapsed = collapsed
        self._head.setContentsMargins(0 if collapsed else SPACE, 0, 0, 0)
        self._name.setVisible(not collapsed)
        self._mark.setVisible(not collapsed)
        words = translate("Rail", "Expand the side bar") if collapsed else translate("Rail", "Collapse the side bar")
        self._fold.setAccessibleName(words)
        set_tip(self._fold, words)
        for each in (*self.buttons.values(), self.activity):
            each.set_collapsed(collapsed)
        self.strip.set_collapsed(collapsed)
        self._resize()

    def _resize(self) -> None:
        self._mark.setPixmap(app_icon().pixmap(QSize(_MARK_PX, _MARK_PX) * theme().font_scale, self.devicePixelRatio()))
        # Large text takes room from the page: the words of the entries still fit in fewer letters.
        num_letters = _WIDTH_LETTERS - round(_FEWER_LETTERS * max(theme().font_scale - 1, 0))
        letters_px = self.fontMetrics().averageCharWidth() * num_letters
        self.setFixedWidth(round(_COLLAPSED_PX * max(theme().font_scale, 1)) if self.collapsed else letters_px)
