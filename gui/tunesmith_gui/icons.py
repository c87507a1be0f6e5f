"""Icons: one colour, drawn as SVG with `currentColor`, tinted from the palette in force each time they are painted.

`icon("play")` gives a QIcon that follows theme switches by itself; `role` names the colour: text, muted, accent (as
`accent_text`), on_accent, ok, warn, error. `pixmap()` is for painters and labels (which must ask again on
`theme().changed`). Names are the files of `tunesmith_assets/icons`; an unknown name raises KeyError.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from PySide6.QtCore import QByteArray, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QGuiApplication, QIcon, QIconEngine, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from tunesmith_gui.assets import asset_folder
from tunesmith_gui.stylesheet import mix
from tunesmith_gui.theme import tokens
from tunesmith_gui.tokens import ICON_PX


def icon(name: str, role: str = "text", checked_role: str | None = None) -> QIcon:
    """A palette-tinted icon.

    Args:
        name: file name in the icon folder without `.svg`.
        role: the colour's token name; `accent` means the accent as used for text.
        checked_role: another colour while its button is checked.

    Raises:
        KeyError: there is no such icon.
    """
    _source(name)
    return QIcon(_TintedEngine(name, role, checked_role or role))


def app_icon() -> QIcon:
    """The program's own icon, in its own colours."""
    return QIcon(str(asset_folder("icons") / "app.svg"))


def pixmap(name: str, role: str = "text", size_px: int = ICON_PX) -> QPixmap:
    """The icon as an image of `size_px` logical pixels, sharp on the densest screen."""
    application = QGuiApplication.instance()
    ratio = application.devicePixelRatio() if isinstance(application, QGuiApplication) else 1.0
    return _render(name, _colour(role), size_px, ratio)


@cache
def icon_names() -> tuple[str, ...]:
    """The names of all bundled icons."""
    return tuple(sorted(path.stem for path in asset_folder("icons").glob("*.svg")))


@cache
def _source(name: str) -> str:
    path: Path = asset_folder("icons") / f"{name}.svg"
    if not path.is_file():
        raise KeyError(f"no icon named {name!r}")
    return path.read_text(encoding="utf-8")


def _colour(role: str) -> str:
    return str(getattr(tokens(), "accent_text" if role == "accent" else role))


@lru_cache(maxsize=512)
def _widened(name: str, colour: str, width_px: int, height_px: int, ratio: float) -> QPixmap:
    """The icon at the left of an image that is wider than high."""
    image = QPixmap(round(width_px * ratio), round(height_px * ratio))
    image.setDevicePixelRatio(ratio)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.drawPixmap(0, 0, _render(name, colour, height_px, ratio))
    painter.end()
    return image


@lru_cache(maxsize=512)
def _render(name: str, colour: str, size_px: int, ratio: float) -> QPixmap:
    if size_px <= 0:
        return QPixmap()  # a button that was squeezed to nothing paints its icon too
    image = QPixmap(round(size_px * ratio), round(size_px * ratio))
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(QByteArray(_source(name).replace("currentColor", colour).encode())).render(
        painter, QRectF(0, 0, image.width(), image.height())
    )
    painter.end()
    image.setDevicePixelRatio(ratio)
    return image


class _TintedEngine(QIconEngine):
    """Looks the colour up when it paints, which is what makes a theme switch reach every button."""

    def __init__(self, name: str, role: str, checked_role: str) -> None:
        super().__init__()
        self._name = name
        self._role = role
        self._checked_role = checked_role

    def _pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State, ratio: float) -> QPixmap:
        colour = _colour(self._checked_role if state == QIcon.State.On else self._role)
        if mode == QIcon.Mode.Disabled:
            colour = mix(tokens().muted, tokens().surface, 0.62)
        if size.width() > size.height() > 0:
            return _widened(self._name, colour, size.width(), size.height(), ratio)
        return _render(self._name, colour, min(size.width(), size.height()), ratio)

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State) -> None:
        side = min(rect.width(), rect.height())
        image = self._pixmap(QSize(side, side), mode, state, painter.device().devicePixelRatio())
        left = rect.x() + (rect.width() - round(image.deviceIndependentSize().width())) // 2
        top = rect.y() + (rect.height() - round(image.deviceIndependentSize().height())) // 2
        painter.drawPixmap(left, top, image)

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        return self._pixmap(size, mode, state, 1.0)

    def scaledPixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State, scale: float) -> QPixmap:
        return self._pixmap(QSize(round(size.width() / scale), round(size.height() / scale)), mode, state, scale)

    def clone(self) -> QIconEngine:
        return _TintedEngine(self._name, self._role, self._checked_role)
