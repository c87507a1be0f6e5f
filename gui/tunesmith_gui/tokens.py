"""The numbers and colours of the visual system: one grid, five type sizes, two surfaces and one accent.

Everything a page draws comes from here, so that no page invents a colour or a distance. Lengths are logical pixels on
a grid of 8 (`SPACE`; half a step is allowed inside a control). Text pairs keep a contrast of at least 4.5 to 1 and the
focus ring 3 to 1 in every palette; `tests/gui/test_tokens.py` computes it.
"""

from __future__ import annotations

from dataclasses import dataclass

SPACE = 8
RADIUS = 8
RADIUS_SMALL = 6
ICON_PX = 18
BODY_WIDTH_PX = 1120
"""Reading pages stop growing here and are centred."""

TYPE_SCALE_PT = {"caption": 9.0, "body": 10.0, "heading": 12.0, "title": 18.0, "hero": 26.0}
"""The five type sizes at a font scale of 100 %."""

CHART_DASHES: tuple[tuple[float, ...], ...] = ((), (6.0, 3.0), (2.0, 2.0), (8.0, 3.0, 2.0, 3.0))
"""Dash patterns that go with the chart colours, so that colour is never the only sign; () is a solid line."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One palette. Every value is a `#rrggbb` string.

    Attributes:
        surface: page and rail background.
        raised: cards, inputs, menus.
        text: words and numbers.
        muted: secondary words.
        border: hairlines between areas.
        outline: the edge of an input or a secondary button.
        track: the empty part of a progress bar.
        hover: background of a row or quiet button under the pointer.
        accent: fill of the one primary action, of progress and of a checked control; information is neutral.
        accent_hover: the same fill under the pointer.
        on_accent: text and icons on `accent`.
        accent_text: links, selected icons and words on a surface.
        accent_soft: background of a selected row or rail entry.
        ok, warn, error: state colours for icons and words.
        ok_soft, warn_soft, error_soft: backgrounds behind a state word or a banner.
        focus: focus ring.
        chart: curve colours in order of use, chosen to stay apart for colour-blind readers.
        grid: grid lines of a chart.
    """

    surface: str
    raised: str
    text: str
    muted: str
    border: str
    outline: str
    track: str
    hover: str
    accent: str
    accent_hover: str
    on_accent: str
    accent_text: str
    accent_soft: str
    ok: str
    warn: str
    error: str
    ok_soft: str
    warn_soft: str
    error_soft: str
    focus: str
    chart: tuple[str, ...]
    grid: str

    def tone(self, name: str) -> tuple[str, str]:
        """Foreground and soft background of a tone: ok, warn, error, accent or neutral."""
        if name == "neutral":
            return self.muted, self.hover
        if name == "accent":
            return self.accent_text, self.accent_soft
        return getattr(self, name), getattr(self, f"{name}_soft")


LIGHT = Tokens(
    surface="#f5f6f8",
    raised="#ffffff",
    text="#1a1c22",
    muted="#585e6b",
    border="#e1e4ea",
    outline="#c9ced8",
    track="#d3d7e0",
    hover="#eceef2",
    accent="#4f46e5",
    accent_hover="#4338ca",
    on_accent="#ffffff",
    accent_text="#4338ca",
    accent_soft="#e9e8fc",
    ok="#126b34",
    warn="#86500a",
    error="#b3202a",
    ok_soft="#e3f4e9",
    warn_soft="#fbf0da",
    error_soft="#fce8e8",
    focus="#4f46e5",
    chart=("#4f46e5", "#c2410c", "#00785a", "#a8347f", "#8a6100", "#0072b2"),
    grid="#e8eaef",
)

DARK = Tokens(
    surface="#131419",
    raised="#1b1d24",
    text="#ecedf2",
    muted="#a0a6b4",
    border="#2a2d37",
    outline="#3d424f",
    track="#22252e",
    hover="#262933",
    accent="#5f5cf0",
    accent_hover="#514eea",
    on_accent="#ffffff",
    accent_text="#aba9ff",
    accent_soft="#2a2a4d",
    ok="#5fd38a",
    warn="#f2b84b",
    error="#ff8c8c",
    ok_soft="#1b3326",
    warn_soft="#37301c",
    error_soft="#3d2226",
    focus="#8f8dff",
    chart=("#8f8dff", "#f08c4a", "#33c9a0", "#e58cc4", "#e8c547", "#56b4e9"),
    grid="#272a34",
)

HIGH_CONTRAST = Tokens(
    surface="#000000",
    raised="#000000",
    text="#ffffff",
    muted="#e8e8e8",
    border="#ffffff",
    outline="#ffffff",
    track="#4d4d4d",
    hover="#2e2e2e",
    accent="#ffd60a",
    accent_hover="#ffe666",
    on_accent="#000000",
    accent_text="#ffd60a",
    accent_soft="#3a3200",
    ok="#6dff9c",
    warn="#ffd60a",
    error="#ff9c9c",
    ok_soft="#002b10",
    warn_soft="#2e2600",
    error_soft="#3a0000",
    focus="#00e5ff",
    chart=("#ffd60a", "#00e5ff", "#6dff9c", "#ff9cf5", "#ffffff", "#ffa94d"),
    grid="#4d4d4d",
)


def contrast_ratio(foreground: str, background: str) -> float:
    """The WCAG contrast of two `#rrggbb` colours, from 1 to 21."""
    lighter, darker = sorted((_luminance(foreground), _luminance(background)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
