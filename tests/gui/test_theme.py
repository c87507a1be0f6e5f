"""Theme: switches while the window is open, follows the system, scales text, tints icons."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QFontInfo,
    QFontMetricsF,
    QGuiApplication,
    QIcon,
    QPainter,
    QPalette,
    QPixmap,
)
from PySide6.QtWidgets import QApplication, QComboBox, QFileDialog, QLabel, QToolButton
from pytestqt.qtbot import QtBot

from tunesmith_gui import stylesheet
from tunesmith_gui.assets import asset_folder
from tunesmith_gui.icons import icon, icon_names, pixmap
from tunesmith_gui.theme import Scheme, font, system_tokens, theme, tokens
from tunesmith_gui.tokens import DARK, HIGH_CONTRAST, LIGHT
from tunesmith_gui.widgets.safe_label import SafeLabel


@pytest.fixture(autouse=True)
def light_again() -> Iterator[None]:
    yield
    theme().set_appearance(Scheme.LIGHT, 1.0)


@pytest.mark.parametrize(
    ("scheme", "palette"),
    [(Scheme.LIGHT, LIGHT), (Scheme.DARK, DARK), (Scheme.HIGH_CONTRAST, HIGH_CONTRAST)],
)
def test_scheme_reaches_palette_and_style_sheet(scheme: Scheme, palette: object) -> None:
    theme().set_appearance(scheme, 1.0)
    assert tokens() is palette
    assert QApplication.palette().color(QPalette.ColorRole.Window) == QColor(tokens().surface)
    assert tokens().accent_soft in QApplication.instance().styleSheet()


def test_system_scheme_is_followed_while_the_window_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = QGuiApplication.styleHints().colorSchemeChanged
    theme().set_appearance(Scheme.SYSTEM, 1.0)
    monkeypatch.setattr("tunesmith_gui.theme.system_tokens", lambda: DARK)
    changed.emit(Qt.ColorScheme.Dark)
    assert tokens() is DARK
    theme().set_appearance(Scheme.LIGHT, 1.0)
    changed.emit(Qt.ColorScheme.Dark)
    assert tokens() is LIGHT, "a chosen scheme does not follow"


def test_a_desktop_that_says_nothing_is_light() -> None:
    assert system_tokens() is LIGHT


def test_same_appearance_again_repaints_nothing(qtbot: QtBot) -> None:
    with qtbot.assertNotEmitted(theme().changed):
        theme().set_appearance(Scheme.LIGHT, 1.0)


@pytest.mark.parametrize(("asked", "given"), [(0.1, 0.8), (1.5, 1.5), (9.0, 2.0)])
def test_font_scale_is_kept_within_80_and_200_percent(asked: float, given: float) -> None:
    theme().set_appearance(Scheme.LIGHT, asked)
    assert theme().font_scale == given
    assert QApplication.font().pointSizeF() == pytest.approx(10 * given)


def test_labels_grow_with_the_font_scale(qtbot: QtBot) -> None:
    label = SafeLabel("Loss", role="title")
    qtbot.addWidget(label)
    label.show()
    small = label.sizeHint().height()
    theme().set_appearance(Scheme.LIGHT, 2.0)
    assert label.sizeHint().height() > 1.7 * small


def test_numbers_stand_in_columns() -> None:
    assert font("body").featureValue(QFont.Tag("tnum")) == 1
    assert font("mono").families() != font("body").families()


@pytest.mark.parametrize(("role", "family"), [("body", "Tunesmith Inter"), ("mono", "Tunesmith JetBrains Mono")])
def test_the_bundled_typefaces_are_used_whatever_is_installed(role: str, family: str) -> None:
    assert QFontInfo(font(role)).family() == family


@pytest.mark.parametrize("role", ["body", "caption", "strong", "heading", "title"])
def test_digits_of_every_label_are_equally_wide(qtbot: QtBot, role: str) -> None:
    label = SafeLabel("1", role=role)
    qtbot.addWidget(label)
    label.show()
    assert QFontInfo(label.font()).family() == "Tunesmith Inter"
    assert QFontInfo(label.font()).weight() == (400 if role in ("body", "caption") else 600)
    metrics = QFontMetricsF(label.font())
    assert metrics.horizontalAdvance("1111") == pytest.approx(metrics.horizontalAdvance("8888"))


@pytest.mark.parametrize("scale", [0.8, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("num_items", [2, 3, 6])
def test_the_list_of_a_combo_box_shows_its_last_item(qtbot: QtBot, scale: float, num_items: int) -> None:
    theme().set_appearance(Scheme.LIGHT, scale)
    combo = QComboBox()
    qtbot.addWidget(combo)
    combo.addItems([f"简体中文 {number}" for number in range(num_items)])
    combo.show()
    combo.showPopup()
    view = combo.view()
    qtbot.waitUntil(view.isVisible)
    last = view.visualRect(combo.model().index(num_items - 1, 0))
    assert view.viewport().rect().contains(last)
    assert view.verticalScrollBar().maximum() == 0
    combo.hidePopup()


def test_a_typeface_that_cannot_be_loaded_stops_no_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(QFontDatabase, "addApplicationFont", lambda _file: -1)
    theme().install(Scheme.LIGHT, 1.0)
    assert "can't be loaded" in caplog.text


def test_icon_follows_a_theme_switch_by_itself() -> None:
    play = icon("play")
    before = darkest(play)
    theme().set_appearance(Scheme.DARK, 1.0)
    assert before == QColor(LIGHT.text)
    assert darkest(play) == QColor(DARK.text)


def test_checked_and_disabled_icons_have_their_own_colour() -> None:
    tinted = icon("train", "muted", "accent")
    assert darkest(tinted, state=QIcon.State.On) == QColor(LIGHT.accent_text)
    faint = darkest(tinted, mode=QIcon.Mode.Disabled)
    assert faint == QColor(stylesheet.mix(LIGHT.muted, LIGHT.surface, 0.62))


def test_icon_without_room_draws_nothing_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert icon("log").pixmap(QSize(0, 0)).isNull()
    canvas = QPixmap(8, 8)
    painter = QPainter(canvas)
    icon("log").paint(painter, QRect(0, 0, 0, 0))
    painter.end()
    assert "QPainter" not in capfd.readouterr().err


def test_unknown_icon_is_refused() -> None:
    with pytest.raises(KeyError, match="no icon named 'unicorn'"):
        icon("unicorn")


def test_every_icon_draws_something() -> None:
    for name in icon_names():
        assert opaque_colours(QIcon(pixmap(name, size_px=64))), name


def test_every_image_of_the_style_sheet_exists() -> None:
    for dark in (False, True):
        for palette in (LIGHT, DARK, HIGH_CONTRAST):
            for part in stylesheet.build(palette, 1.0, dark=dark).split("url(controls:")[1:]:
                assert (asset_folder("controls") / part.partition(")")[0]).is_file()


def test_plain_label_is_never_needed(qtbot: QtBot) -> None:
    label = SafeLabel("<b>not bold</b> &amp; https://example.org")
    qtbot.addWidget(label)
    assert label.textFormat() is Qt.TextFormat.PlainText
    plain = QLabel("<b>not bold</b> &amp; https://example.org")
    qtbot.addWidget(plain)
    assert label.sizeHint().width() > plain.sizeHint().width(), "the markup is shown, not obeyed"
    with pytest.raises(TypeError):
        label.setTextFormat(Qt.TextFormat.RichText)


def opaque_colours(
    tinted: QIcon, mode: QIcon.Mode = QIcon.Mode.Normal, state: QIcon.State = QIcon.State.Off
) -> set[str]:
    image = tinted.pixmap(QSize(64, 64), 1.0, mode, state).toImage()
    pixels = (image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height()))
    return {pixel.name() for pixel in pixels if pixel.alpha() == 255}


def darkest(tinted: QIcon, mode: QIcon.Mode = QIcon.Mode.Normal, state: QIcon.State = QIcon.State.Off) -> QColor:
    (name,) = opaque_colours(tinted, mode, state)
    return QColor(name)


def test_the_arrows_of_a_file_dialog_are_seen_on_dark(qtbot: QtBot) -> None:
    theme().set_appearance(Scheme.DARK, 1.0)
    dialog = QFileDialog()
    qtbot.addWidget(dialog)
    dialog.setOption(QFileDialog.Option.DontUseNativeDialog)
    for name in ("backButton", "forwardButton", "toParentButton"):
        arrow = dialog.findChild(QToolButton, name)
        assert arrow is not None
        image = arrow.icon().pixmap(16, 16).toImage()
        drawn = [image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height())]
        assert max(each.lightness() for each in drawn if each.alpha() > 200) > 128
