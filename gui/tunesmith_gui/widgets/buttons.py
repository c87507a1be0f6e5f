"""The four kinds of button, and the button that is only an icon.

`primary` is the one main action of a page, `secondary` the default, `quiet` has no frame, `danger` destroys something,
`link` reads like a word. `button()` builds them all; `IconButton` cannot be built without an accessible name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QPushButton, QStyleOptionButton, QToolButton, QWidget

from tunesmith_gui.icons import icon
from tunesmith_gui.plain_text import set_tip, without_shortcut
from tunesmith_gui.tokens import SPACE

Kind = Literal["primary", "secondary", "quiet", "danger", "link", "segment"]
_ICON_GAP_PX = SPACE // 2
"""Between an icon and the words behind it, beside the little that Qt leaves."""
_ICON_ROLES = {"primary": "on_accent", "danger": "error", "link": "accent"}


def button(
    text: str,
    on_click: Callable[[], object] | None = None,
    *,
    kind: Kind = "secondary",
    icon_name: str | None = None,
    parent: QWidget | None = None,
) -> QPushButton:
    """A push button of one of the four kinds, with an optional icon before its words."""
    result = _WordsButton(without_shortcut(text), parent)
    result.setProperty("kind", kind)
    result.setCursor(Qt.CursorShape.PointingHandCursor)
    result.setAccessibleName(text)
    if icon_name is not None:
        result.setIcon(icon(icon_name, _ICON_ROLES.get(kind, "text")))
    if on_click is not None:
        result.clicked.connect(lambda _checked=False: on_click())
    return result


class _WordsButton(QPushButton):
    """A push button whose icon keeps its distance from the words."""

    def initStyleOption(self, option: QStyleOptionButton) -> None:
        """Asks for a wider icon; its picture stays at the left."""
        super().initStyleOption(option)
        if self.text():
            option.iconSize = option.iconSize + QSize(_ICON_GAP_PX, 0)


class IconButton(QToolButton):
    """A square button with an icon only; its name is its tool tip and what a screen reader says.

    Raises:
        ValueError: the name is empty.
    """

    def __init__(
        self,
        icon_name: str,
        name: str,
        on_click: Callable[[], object] | None = None,
        *,
        role: str = "muted",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        if not name.strip():
            raise ValueError("an icon button needs an accessible name")
        self.setIcon(icon(icon_name, role))
        self.setAccessibleName(name)
        set_tip(self, name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        if on_click is not None:
            self.clicked.connect(lambda _checked=False: on_click())
