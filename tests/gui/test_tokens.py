"""Colours: words can be read and the focus can be seen in every palette."""

from __future__ import annotations

import pytest

from tunesmith_gui.tokens import DARK, HIGH_CONTRAST, LIGHT, Tokens, contrast_ratio

PALETTES = pytest.mark.parametrize("palette", [LIGHT, DARK, HIGH_CONTRAST], ids=["light", "dark", "high_contrast"])
TONES = ("ok", "warn", "error", "accent", "neutral")


def text_pairs(palette: Tokens) -> list[tuple[str, str, str]]:
    """(what, foreground, background) of every combination of words that the window draws."""
    pairs = [
        (f"{words} on {area}", getattr(palette, words), getattr(palette, area))
        for words in ("text", "muted", "accent_text", "ok", "warn", "error")
        for area in ("surface", "raised")
    ]
    pairs += [("muted on hover", palette.muted, palette.hover), ("text on hover", palette.text, palette.hover)]
    pairs += [(f"{tone} chip", *palette.tone(tone)) for tone in TONES]
    pairs += [(f"text on {tone} banner", palette.text, palette.tone(tone)[1]) for tone in TONES]
    pairs += [
        ("primary button", palette.on_accent, palette.accent),
        ("primary button under the pointer", palette.on_accent, palette.accent_hover),
        ("toast", palette.surface, palette.text),
    ]
    return pairs


@PALETTES
def test_words_have_a_contrast_of_at_least_4_5(palette: Tokens) -> None:
    low = {what: contrast_ratio(front, back) for what, front, back in text_pairs(palette)}
    assert {what: round(ratio, 2) for what, ratio in low.items() if ratio < 4.5} == {}


@PALETTES
def test_focus_ring_and_curves_have_a_contrast_of_at_least_3(palette: Tokens) -> None:
    for area in (palette.surface, palette.raised):
        for colour in (palette.focus, *palette.chart):
            assert contrast_ratio(colour, area) >= 3, (colour, area)


@PALETTES
def test_how_full_a_bar_is_can_be_seen(palette: Tokens) -> None:
    fills = {name: palette.tone(name)[0] for name in ("ok", "warn", "error", "neutral")} | {"accent": palette.accent}
    low = {name: contrast_ratio(fill, palette.track) for name, fill in fills.items()}
    assert {name: round(ratio, 2) for name, ratio in low.items() if ratio < 3} == {}


def test_high_contrast_words_reach_7() -> None:
    assert min(contrast_ratio(front, back) for _what, front, back in text_pairs(HIGH_CONTRAST)) >= 7


def test_contrast_of_black_and_white_is_21() -> None:
    assert contrast_ratio("#000000", "#ffffff") == pytest.approx(21)
    assert contrast_ratio("#777777", "#777777") == pytest.approx(1)
