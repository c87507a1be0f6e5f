"""A setting whose 0 stands for something says so in words until somebody comes to change it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from tunesmith_assets import samples
from tunesmith_core.spec import RunSpec
from tunesmith_gui.new_run.form import NewRunForm
from tunesmith_gui.new_run.number_box import NumberBox
from tunesmith_gui.new_run.setting_paths import LISTED, SETTINGS
from tunesmith_gui.new_run.settings_list import SettingRow


def test_words_stand_in_place_of_zero(qtbot: QtBot) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    form = NewRunForm(holder)
    row = SettingRow(SETTINGS["schedule.max_steps"], form, parent=holder)
    form.changed.connect(lambda _path: row.refresh())
    other = QLineEdit(holder)
    column = QVBoxLayout(holder)
    column.addWidget(other)
    column.addWidget(row)
    holder.show()
    holder.activateWindow()
    other.setFocus()
    box = row.control
    assert isinstance(box, NumberBox)
    assert (box.text(), row.note.text()) == ("by epochs", "default")
    box.setFocus()
    qtbot.waitUntil(box.hasFocus)
    assert box.text() == "0"
    qtbot.keyClick(box, Qt.Key.Key_Up)
    assert (box.text(), form.value("schedule.max_steps")) == ("1", 1)
    assert row.note.text() == "steps  ·  changed, was by epochs"
    qtbot.keyClick(box, Qt.Key.Key_Down)
    assert box.text() == "0", "what is typed stays as it is"
    other.setFocus()
    qtbot.waitUntil(other.hasFocus)
    assert (box.text(), form.value("schedule.max_steps")) == ("by epochs", 0)


def test_an_amount_of_zero_stays_a_number(qtbot: QtBot) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    row = SettingRow(SETTINGS["schedule.warmup_steps"], NewRunForm(holder), parent=holder)
    assert isinstance(row.control, NumberBox)
    row.control.set_text("0")
    assert row.control.text() == "0"


def test_zeros_before_a_number_go_when_nobody_types_any_more(qtbot: QtBot) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    form, other = NewRunForm(holder), QLineEdit(holder)
    row = SettingRow(SETTINGS["adapter.dropout"], form, parent=holder)
    column = QVBoxLayout(holder)
    column.addWidget(other)
    column.addWidget(row)
    holder.show()
    holder.activateWindow()
    box = row.control
    assert isinstance(box, NumberBox)
    box.setFocus()
    qtbot.waitUntil(box.hasFocus)
    box.lineEdit().setText("")
    qtbot.keyClicks(box, "00.1")
    assert box.text() == "00.1", "what is typed stays as it is"
    other.setFocus()
    qtbot.waitUntil(other.hasFocus)
    assert (box.text(), form.value("adapter.dropout")) == ("0.1", 0.1)


def test_a_number_that_is_not_set_says_what_is_taken(qtbot: QtBot) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    form = NewRunForm(holder)
    row = SettingRow(SETTINGS["schedule.warmup_steps"], form, parent=holder)
    box = row.control
    assert isinstance(box, NumberBox)
    assert (box.text(), box.lineEdit().placeholderText()) == ("", "5, fewer in short runs")
    assert row.note.text() == "default"
    qtbot.keyClicks(box, "7")
    row.refresh()
    assert form.value("schedule.warmup_steps") == 7
    assert row.note.text() == "steps  ·  changed, was 5, fewer in short runs"
    box.clear()
    box.text_changed.emit("")
    assert form.value("schedule.warmup_steps") is None


def test_what_comes_with_the_sample_is_no_change_of_the_person(qtbot: QtBot) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    form = NewRunForm(holder)
    form.load_spec(RunSpec.from_dict(samples.preference_spec("en", "/models/a")))
    paths = [path for path in LISTED if form.is_changed(path)]
    notes = [SettingRow(SETTINGS[path], form, parent=holder).note.text() for path in paths]
    assert notes
    assert all("comes with the data, was " in note for note in notes)
    form.set_value("adapter.rank", 5)
    row = SettingRow(SETTINGS["adapter.rank"], form, parent=holder)
    assert (row.note.text(), form.changed_paths()) == ("changed, was 16", ["adapter.rank"])
