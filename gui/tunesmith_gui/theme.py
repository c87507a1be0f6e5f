"""The visual system at work: Fusion, one palette and one generated style sheet, switchable while the window is open.

Contract for pages and widgets:

- `SPACE`, `RADIUS` and the rest of `tokens` are the only lengths; `tokens()` is the palette in force.
- Ordinary widgets need no code of their own: they ask for a look by property (see `stylesheet`).
- A widget that paints itself reads `tokens()` in `paintEvent` and connects `theme().changed` to `update`
  (or rebuilds its pens there).
- `font("mono")` and `font("heading")` give fonts for painters and editors; labels use `SafeLabel(role=...)`.
"""

from __future__ import annotations

import logging
from enum import StrEnum

from PySide6.QtCore import QDir, QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

from tunesmith_gui import stylesheet
from tunesmith_gui.assets import asset_folder
from tunesmith_gui.tokens import DARK, HIGH_CONTRAST, LIGHT, SPACE, TYPE_SCALE_PT, Tokens

__all__ = ["MAX_FONT_SCALE", "MIN_FONT_SCALE", "SPACE", "Scheme", "Theme", "font", "theme", "tokens"]

log = logging.getLogger(__name__)
MIN_FONT_SCALE, MAX_FONT_SCALE = 0.8, 2.0
_SANS, _MONO = "Tunesmith Inter", "Tunesmith JetBrains Mono"
"""The bundled typefaces. Their names are their own, so that an installed Inter can't mix with them."""
_CJK = ("Microsoft YaHei UI", "Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Micro Hei")


class Scheme(StrEnum):
    """Which palette to show; `SYSTEM` follows the desktop, also when it changes later."""

    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"
    HIGH_CONTRAST = "high_contrast"


class Theme(QObject):
    """Holds the chosen scheme and font scale and applies them to the application.

    Signals:
        changed: the palette or the font scale is another one now; repaint what is painted by hand.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.scheme = Scheme.SYSTEM
        self.font_scale = 1.0
        self.tokens = LIGHT
        self._applied: tuple[Tokens, float] | None = None

    def install(self, scheme: Scheme, font_scale: float) -> None:
        """Sets style, bundled typefaces and colors once at start and follows the system from then on."""
        QApplication.setStyle("Fusion")
        for file in sorted(asset_folder("fonts").glob("*.ttf")):
            if QFontDatabase.addApplicationFont(str(file)) < 0:
                log.warning("%s: this typeface can't be loaded; one of the system serves", file)
        QDir.setSearchPaths("controls", [str(asset_folder("controls"))])
        hints = QGuiApplication.styleHints()
        hints.colorSchemeChanged.connect(self._follow_system)
        hints.accessibility().contrastPreferenceChanged.connect(self._follow_system)
        self.set_appearance(scheme, font_scale)

    def set_appearance(self, scheme: Scheme, font_scale: float) -> None:
        """Applies a scheme and a font scale (clamped to 0.8 to 2.0) to the whole application."""
        self.scheme = scheme
        self.font_scale = min(max(font_scale, MIN_FONT_SCALE), MAX_FONT_SCALE)
        self._apply()

    @property
    def is_dark(self) -> bool:
        """Whether the palette in force has a dark background."""
        return self.tokens is not LIGHT

    def _follow_system(self) -> None:
        if self.scheme is Scheme.SYSTEM:
            self._apply()

    def _apply(self) -> None:
        self.tokens = self._resolve()
        if self._applied == (self.tokens, self.font_scale):
            return
        self._applied = (self.tokens, self.font_scale)
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.setFont(font("body"))
        application.setPalette(_palette(self.tokens))
        application.setStyleSheet(stylesheet.build(self.tokens, self.font_scale, dark=self.is_dark))
        self.changed.emit()

    def _resolve(self) -> Tokens:
        if self.scheme is Scheme.LIGHT:
            return LIGHT
        if self.scheme is Scheme.DARK:
            return DARK
        if self.scheme is Scheme.HIGH_CONTRAST:
            return HIGH_CONTRAST
        return system_tokens()


def system_tokens() -> Tokens:
    """The palette that the desktop asks for."""
    hints = QGuiApplication.styleHints()
    if hints.accessibility().contrastPreference() == Qt.ContrastPreference.HighContrast:
        return HIGH_CONTRAST
    return DARK if hints.colorScheme() == Qt.ColorScheme.Dark else LIGHT


_theme: Theme | None = None


def theme() -> Theme:
    """The one theme of this process, made on first use."""
    global _theme
    if _theme is None:
        _theme = Theme()
    return _theme


def tokens() -> Tokens:
    """The palette in force."""
    return theme().tokens


def font(role: str = "body") -> QFont:
    """A font of the type scale at the current font scale.

    Args:
        role: caption, body, heading, title, or mono (body size, fixed width).
    """
    families = (_MONO if role == "mono" else _SANS, *_CJK)
    result = QFont([name for name in families if QFontDatabase.hasFamily(name)] or [_system_family(role)])
    result.setPointSizeF(TYPE_SCALE_PT.get(role, TYPE_SCALE_PT["body"]) * theme().font_scale)
    if role in ("heading", "title"):
        result.setWeight(QFont.Weight.DemiBold)
    result.setFeature(QFont.Tag("tnum"), 1)  # numbers stand in columns
    return result


def _system_family(role: str) -> str:
    kind = QFontDatabase.SystemFont.FixedFont if role == "mono" else QFontDatabase.SystemFont.GeneralFont
    return QFontDatabase.systemFont(kind).family()


def _palette(colours: Tokens) -> QPalette:
    roles = {
        QPalette.ColorRole.Window: colours.surface,
        QPalette.ColorRole.WindowText: colours.text,
        QPalette.ColorRole.Base: colours.raised,
        QPalette.ColorRole.AlternateBase: colours.surface,
        QPalette.ColorRole.Text: colours.text,
        QPalette.ColorRole.Button: colours.raised,
        QPalette.ColorRole.ButtonText: colours.text,
        QPalette.ColorRole.BrightText: colours.error,
        QPalette.ColorRole.Highlight: colours.accent,
        QPalette.ColorRole.HighlightedText: colours.on_accent,
        QPalette.ColorRole.Link: colours.accent_text,
        QPalette.ColorRole.LinkVisited: colours.accent_text,
        QPalette.ColorRole.PlaceholderText: colours.muted,
        QPalette.ColorRole.ToolTipBase: colours.text,
        QPalette.ColorRole.ToolTipText: colours.surface,
        QPalette.ColorRole.Accent: colours.accent,
        QPalette.ColorRole.Light: colours.border,
        QPalette.ColorRole.Midlight: colours.border,
        QPalette.ColorRole.Mid: colours.outline,
        QPalette.ColorRole.Dark: colours.outline,
        QPalette.ColorRole.Shadow: colours.outline,
    }
    palette = QPalette()
    for role, colour in roles.items():
        palette.setColor(role, QColor(colour))
    disabled = QColor(stylesheet.mix(colours.muted, colours.surface, 0.62))
    for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, disabled)
    return palette
