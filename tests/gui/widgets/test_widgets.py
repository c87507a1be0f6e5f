"""The building blocks of pages: named, labelled, literal, usable by keyboard."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QColor, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QLineEdit,
    QPushButton,
    QSpinBox,
    QStyleOptionButton,
    QVBoxLayout,
    QWidget,
)
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tunesmith_gui.shell.toast import Toast
from tunesmith_gui.theme import Scheme, theme, tokens
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.empty_state import EmptyState
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.path_combo import PathCombo
from tunesmith_gui.widgets.safe_label import ElidedLabel
from tunesmith_gui.widgets.segmented import Segmented
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.status_chip import StatusChip


def test_an_icon_keeps_its_distance_from_the_words(qtbot: QtBot) -> None:
    pressed = button("Save", icon_name="save")
    qtbot.addWidget(pressed)
    option = QStyleOptionButton()
    pressed.initStyleOption(option)
    gap = option.iconSize.width() - option.iconSize.height()  # type: ignore[attr-defined]
    assert gap > 0
    picture = pressed.icon().pixmap(option.iconSize).toImage()  # type: ignore[attr-defined]
    painted = [x for y in range(picture.height()) for x in range(picture.width()) if picture.pixelColor(x, y).alpha()]
    assert painted
    assert max(painted) < picture.width() - gap


def test_field_needs_a_label(qtbot: QtBot) -> None:
    control = QLineEdit()
    qtbot.addWidget(control)
    holder = QWidget()
    qtbot.addWidget(holder)
    with pytest.raises(ValueError, match="needs a label"):
        Field(" ", control, parent=holder)


def test_field_names_its_control_and_shows_its_error_in_words(qtbot: QtBot) -> None:
    field = Field("Context length", QSpinBox(), unit="tokens", help_text="Most tokens per example.")
    qtbot.addWidget(field)
    assert field.control.accessibleName() == "Context length (tokens)"
    assert field.control.accessibleDescription() == "Most tokens per example."
    field.set_error("Must be at least 8")
    assert field.message.text() == field.control.accessibleDescription() == "Must be at least 8"
    assert field.control.property("invalid") is True
    field.set_error("")
    assert field.message.text() == "Most tokens per example."
    assert field.control.property("invalid") is False


@pytest.mark.parametrize("kind", [QSpinBox, QComboBox])
def test_wheel_over_a_field_without_focus_changes_nothing(qtbot: QtBot, kind: type[QSpinBox] | type[QComboBox]) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    control, other = kind(), QLineEdit()
    if isinstance(control, QComboBox):
        control.addItems(["a", "b", "c"])
    column = QVBoxLayout(holder)
    column.addWidget(Field("Rank", control))
    column.addWidget(other)
    with qtbot.waitActive(holder):
        holder.show()
        holder.activateWindow()

    def place() -> int:
        return control.currentIndex() if isinstance(control, QComboBox) else control.value()

    other.setFocus()
    before = place()
    wheel(control)
    assert place() == before
    control.setFocus()
    wheel(control)
    assert place() == before, "the page went there, not the person"
    control.setFocus(Qt.FocusReason.TabFocusReason)
    other.setFocus()
    control.setFocus(Qt.FocusReason.TabFocusReason)
    wheel(control)
    assert place() != before


def wheel(widget: QWidget) -> None:
    centre = QPointF(widget.rect().center())
    step = QPoint(0, 120 if isinstance(widget, QSpinBox) else -120)
    event = QWheelEvent(
        centre,
        QPointF(widget.mapToGlobal(centre.toPoint())),
        QPoint(),
        step,
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(widget, event)


def test_icon_button_needs_a_name(qtbot: QtBot) -> None:
    with pytest.raises(ValueError, match="accessible name"):
        IconButton("close", "")
    named = IconButton("close", "Dismiss")
    qtbot.addWidget(named)
    assert named.accessibleName() == named.toolTip() == "Dismiss"


def test_ampersand_in_a_button_is_shown(qtbot: QtBot) -> None:
    named = button("Evaluate & Predict")
    qtbot.addWidget(named)
    assert (named.text(), named.accessibleName()) == ("Evaluate && Predict", "Evaluate & Predict")


def test_banner_shows_replaces_and_dismisses(qtbot: QtBot) -> None:
    done: list[str] = []
    banner = Banner("warn", "No GPU", "Because.", actions=(("Why?", lambda: done.append("why")),), dismissable=True)
    qtbot.addWidget(banner)
    banner.show()
    banner.buttons[0].click()
    assert done == ["why"]
    banner.set_message("error", "Broken")
    assert (banner.accessibleName(), banner.property("banner")) == ("Broken", "error")
    with qtbot.waitSignal(banner.dismissed):
        banner.findChild(IconButton).click()
    assert banner.isHidden()


def test_information_is_neutral_for_indigo_means_action(qtbot: QtBot) -> None:
    banner = Banner("neutral", "A run is still in progress")
    qtbot.addWidget(banner)
    banner.show()
    inside = banner.grab().toImage().pixelColor(banner.width() // 2, 4)
    assert inside == QColor(tokens().hover)
    assert 'banner="accent"' not in QApplication.instance().styleSheet()


def test_a_choice_is_of_radio_buttons_to_screen_readers(qtbot: QtBot) -> None:
    choice = Segmented("Preset", [("a", "Balanced"), ("b", "Fast try")])
    qtbot.addWidget(choice)
    for each in choice.findChildren(QPushButton):
        assert QAccessible.queryAccessibleInterface(each).role() == QAccessible.Role.RadioButton


def test_buttons_in_a_row_shrink_again_with_the_text(qtbot: QtBot) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    column = QVBoxLayout(holder)
    buttons = [button("Map columns", icon_name="folder"), button("Use the sample", kind="link")]
    column.addWidget(FlowRow(buttons, holder))
    column.addStretch(1)
    holder.resize(500, 300)
    holder.show()
    try:
        heights = []
        for scale in (1.0, 2.0, 1.0):
            theme().set_appearance(Scheme.LIGHT, scale)
            settle()
            heights.append([each.height() for each in buttons])
    finally:
        theme().set_appearance(Scheme.LIGHT, 1.0)
    assert heights[2] == heights[0]
    assert heights[1] > heights[0]


def test_empty_state_offers_its_two_steps(qtbot: QtBot) -> None:
    done: list[str] = []
    state = EmptyState(
        "runs", "No runs yet", primary=("Start", lambda: done.append("a")), secondary=("Try", lambda: done.append("b"))
    )
    qtbot.addWidget(state)
    assert state.primary is not None
    assert state.secondary is not None
    state.primary.click()
    state.secondary.click()
    assert done == ["a", "b"]


def test_segmented_moves_by_arrow_keys_and_has_one_tab_stop(qtbot: QtBot) -> None:
    choice = Segmented("Preset", [("a", "Balanced"), ("b", "Fast try"), ("c", "Best quality")])
    qtbot.addWidget(choice)
    seen: list[str] = []
    choice.changed.connect(seen.append)
    choice.show()
    QTest.keyClick(choice, Qt.Key.Key_Right)
    QTest.keyClick(choice, Qt.Key.Key_Right)
    QTest.keyClick(choice, Qt.Key.Key_Right)
    assert seen == ["b", "c", "a"]
    stops = [each for each in choice.findChildren(QWidget) if each.focusPolicy() == Qt.FocusPolicy.StrongFocus]
    assert len(stops) == 1
    with pytest.raises(KeyError):
        choice.set_value("z")
    with pytest.raises(ValueError, match="accessible name"):
        Segmented("", [("a", "A")])


def test_status_chip_says_its_state_in_words_and_grows_with_them(qtbot: QtBot) -> None:
    chip = StatusChip("Running", "accent")
    qtbot.addWidget(chip)
    width = chip.sizeHint().width()
    chip.set_state("Interrupted, can be resumed", "warn")
    assert chip.accessibleName() == "Interrupted, can be resumed"
    assert chip.sizeHint().width() > width


def test_elided_label_keeps_the_whole_text_as_tool_tip(qtbot: QtBot) -> None:
    label = ElidedLabel("a-very-long-model-name-that-does-not-fit")
    qtbot.addWidget(label)
    label.resize(60, 20)
    label.show()
    qtbot.waitUntil(lambda: label.toolTip() == label.text())
    label.resize(600, 20)
    qtbot.waitUntil(lambda: label.toolTip() == "")


def test_meter_says_its_share(qtbot: QtBot) -> None:
    meter = Meter("VRAM")
    qtbot.addWidget(meter)
    meter.set_share(7.0)
    assert (meter.accessibleName(), meter.accessibleDescription()) == ("VRAM", "100%")


def test_toast_shows_literal_text_and_goes_by_itself(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunesmith_gui.shell.toast.SHOWN_MS", 30)
    parent = QWidget()
    qtbot.addWidget(parent)
    parent.resize(400, 300)
    parent.show()
    toast = Toast(parent)
    toast.show_message("error", "<i>" + "long " * 40 + "</i>")
    assert toast.isVisible()
    assert parent.rect().contains(toast.geometry()), "it stays inside the window"
    parent.resize(300, 400)
    QApplication.sendPostedEvents(parent, QEvent.Type.Resize.value)
    assert parent.rect().contains(toast.geometry())
    qtbot.waitUntil(lambda: not toast.isVisible())


def test_a_toast_covers_no_control_where_there_is_room_and_goes_with_a_click(qtbot: QtBot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    parent.resize(1024, 640)
    controls = []
    for number in range(8):
        each = QPushButton(f"Undo {number}", parent)
        each.setGeometry(number * 128, 560, 120, 60)
        controls.append(each)
    parent.show()
    toast = Toast(parent)
    toast.show_message("ok", "Saved as row 3 of data.jsonl")
    assert not any(toast.geometry().intersects(each.geometry()) for each in controls)
    assert toast.geometry().center().y() > 320, "it is as low as it can be"
    below = QPushButton("Apply", parent)
    below.setGeometry(toast.geometry())
    below.show()
    qtbot.waitUntil(lambda: not toast.geometry().intersects(below.geometry()), timeout=5000)
    qtbot.mouseClick(toast, Qt.MouseButton.LeftButton)
    assert not toast.isVisible()


def test_buttons_of_a_banner_stand_below_words_that_they_would_squeeze(qtbot: QtBot) -> None:
    sentence = "训练后的模型更好：评估损失从 2.31 降到 1.13，保留数据的回答也更接近预期。"
    # More than three lines at their whole width, whatever font the computer has for Chinese.
    words = sentence * (4 * 1100 // QApplication.fontMetrics().horizontalAdvance(sentence) + 1)
    actions = tuple((f"按钮名称 {number}", lambda: None) for number in range(6))
    long, short = Banner("ok", "已完成", words, actions=actions), Banner("ok", "已完成", "很好。", actions=actions)
    for banner in (long, short):
        qtbot.addWidget(banner)
        banner.resize(1100, 200)
        banner.show()
    settle()
    assert [each.findChild(SideBySide).beside for each in (long, short)] == [False, True]


def test_a_path_that_is_too_long_ends_with_an_ellipsis(qtbot: QtBot) -> None:
    combo = PathCombo("Model", "", "models")
    qtbot.addWidget(combo)
    name = "org/a-model-with-quite-a-long-name"
    combo.show_path(name)
    combo.resize(2000, combo.sizeHint().height())
    combo.show()
    qtbot.waitExposed(combo)
    assert combo._edit.shown_text() == name
    combo.resize(combo.minimumSizeHint())
    settle()
    shown = combo._edit.shown_text()
    assert shown.endswith("…")
    assert name.startswith(shown[:-1])
    assert combo._edit.text() == name
    with qtbot.waitActive(combo):
        combo.activateWindow()
    combo.setFocus(Qt.FocusReason.OtherFocusReason)
    assert combo._edit.hasFocus()
    assert combo._edit.shown_text() == shown, "the focus stays where one has chosen"
    assert name in combo.toolTip()
    qtbot.keyClick(combo._edit, Qt.Key.Key_End)
    assert combo._edit.shown_text() == name, "whole while it is typed into"
