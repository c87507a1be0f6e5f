"""Tabs over panes of which only the one in front takes room, so that a page around them scrolls as far as it must."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QTabBar, QVBoxLayout, QWidget

from tunesmith_gui.plain_text import without_shortcut
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.card import line


class TabPanes(QWidget):
    """Panes by key; the first one added is in front.

    Args:
        name: accessible name of the bar.

    Signals:
        changed: (key) another pane came to the front.
    """

    changed = Signal(str)

    def __init__(self, name: str, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._panes: dict[str, QWidget] = {}
        self._shown: dict[str, QWidget] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self.bar = QTabBar(self)
        self.bar.setDocumentMode(True)
        self.bar.setDrawBase(False)
        self.bar.setExpanding(False)
        self.bar.setUsesScrollButtons(True)
        self.bar.setAccessibleName(name)
        self.bar.currentChanged.connect(self._on_changed)
        self._column.addWidget(self.bar)
        self._column.addWidget(line(self))

    @property
    def key(self) -> str:
        """The pane in front."""
        return list(self._panes)[max(self.bar.currentIndex(), 0)]

    def add(self, key: str, title: str, widget: QWidget) -> None:
        """Append a pane."""
        holder = QWidget(self)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, SPACE * 2, 0, SPACE * 2)
        column.addWidget(widget)
        self._panes[key] = holder
        self._shown[key] = widget
        holder.setVisible(len(self._panes) == 1)
        self._column.addWidget(holder, 1)
        self.bar.addTab(without_shortcut(title))

    def set_shown(self, key: str, *, is_shown: bool) -> None:
        """Offer a pane or not; one that is in front gives way to the first."""
        index = list(self._panes).index(key)
        if not is_shown and self.bar.currentIndex() == index:
            self.bar.setCurrentIndex(0)
        if self.bar.isTabVisible(index) is not is_shown:
            self.bar.setTabVisible(index, is_shown)

    def show_pane(self, key: str) -> None:
        """Bring a pane to the front; KeyError when there is none with this key."""
        self.bar.setCurrentIndex(list(self._panes).index(key))

    def offer(self, key: str, is_offered: bool) -> None:
        """Show the tab of a pane, or hide it."""
        self.bar.setTabVisible(list(self._panes).index(key), is_offered)

    def replace(self, key: str, widget: QWidget) -> None:
        """Show another widget in a pane."""
        layout = self._panes[key].layout()
        assert layout is not None
        layout.replaceWidget(self._shown[key], widget)
        # Else it lies over the other until it is deleted.
        self._shown[key].hide()
        widget.show()
        self._shown[key].deleteLater()
        self._shown[key] = widget

    def _on_changed(self, _index: int) -> None:
        focused = self.window().focusWidget()
        if focused is not None and any(pane.isAncestorOf(focused) for pane in self._panes.values()):
            # It is about to be hidden; Qt would pass the keyboard on to some button outside.
            self.bar.setFocus(Qt.FocusReason.OtherFocusReason)
        for key, pane in self._panes.items():
            pane.setVisible(key == self.key)
        self.changed.emit(self.key)
