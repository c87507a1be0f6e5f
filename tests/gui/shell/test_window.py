"""The window as a whole: pages, rail, keyboard, banners, closing, dropping, names, room for words."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, QSize, Qt, QUrl
from PySide6.QtGui import QAccessible, QDragEnterEvent, QDropEvent, QFont, QGuiApplication, QKeySequence, QScreen
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QPlainTextEdit, QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.fake_runs import FakeRuns, training
from tests.gui.layout_checks import clipped, tab_stops, unnamed
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import RunState
from tunesmith_core.settings import SettingsFile
from tunesmith_gui.context import Context
from tunesmith_gui.models.run_row import RunRow
from tunesmith_gui.page import Page
from tunesmith_gui.pages import PAGES, PageEntry
from tunesmith_gui.services.hardware import Gpu, Reading
from tunesmith_gui.services.preferences import Preferences
from tunesmith_gui.shell import actions as shell_actions
from tunesmith_gui.shell.banners import ShellBanners
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.shell.palette import CommandPalette, matches
from tunesmith_gui.shortcuts import actions
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support grabbing the keyboard")  # offscreen pop-ups

RAIL_PAGES = [key for key, entry in PAGES.items() if entry.icon_name]
GPU = Gpu(0, "NVIDIA GeForce RTX 3060 Laptop GPU", 6 << 30, 5 << 30, 97, 71, 98.4)
WITH_GPU = Reading((GPU,), 12.0, 16 << 30, 4 << 30)
WITHOUT_GPU = Reading((), 12.0, 16 << 30, 4 << 30)


@pytest.fixture
def runs(context: Context) -> FakeRuns:
    """The run service of the window, steered by the test; ask for it before `window`."""
    fake = FakeRuns()
    context.__dict__["runs"] = fake
    return fake


class Toy(Page):
    """A page that nothing but its declaration knows of."""


class Recorder(Page):
    """A page that remembers what the window tells it."""

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.told: list[object] = []

    @property
    def title(self) -> str:
        return "Recorder"

    def on_shown(self, argument: object = None) -> None:
        self.told.append(("shown", argument))

    def on_hidden(self) -> None:
        self.told.append("hidden")

    def perform(self, action: str) -> bool:
        self.told.append(action)
        return action == "find"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the recording page in the place of Train; ask for it before `window`."""
    monkeypatch.setitem(PAGES, "train", PageEntry(__name__, "Recorder", "Train", "train", "Ctrl+1"))


class TestPages:
    @pytest.mark.parametrize("key", RAIL_PAGES)
    def test_page_opens_and_everything_on_it_has_a_name(self, runs: FakeRuns, window: MainWindow, key: str) -> None:
        window.show_page(key)
        settle()
        assert isinstance(window.pages.currentWidget(), Page)
        assert window.rail.buttons[key].isChecked()
        assert unnamed(window) == []

    def test_page_is_declared_in_one_place(
        self, monkeypatch: pytest.MonkeyPatch, runs: FakeRuns, request: pytest.FixtureRequest, qtbot: QtBot
    ) -> None:
        monkeypatch.setitem(PAGES, "toy", PageEntry(__name__, "Toy", "Toys", "plus", "Ctrl+7"))
        window = request.getfixturevalue("window")
        assert list(window.rail.buttons)[-1] == "toy"
        assert window.rail.buttons["toy"].words == "Toys"
        assert window.rail.buttons["toy"].toolTip() == "Toys (Ctrl+7)"
        with qtbot.waitActive(window):
            window.activateWindow()
        qtbot.keyClick(window, Qt.Key.Key_7, Qt.KeyboardModifier.ControlModifier)
        assert type(window.pages.currentWidget()) is Toy
        assert window.rail.buttons["toy"].isChecked()
        assert window.windowTitle() == "Toys – Tunesmith"
        (entry,) = [each for each in shell_actions.entries(window) if "Toys" in each.words]
        assert (entry.words, entry.keys, entry.icon_name) == ("Go to Toys", "Ctrl+7", "plus")
        window.show_page("settings")
        entry.run()
        assert type(window.pages.currentWidget()) is Toy

    @pytest.mark.parametrize("key", RAIL_PAGES)
    @pytest.mark.parametrize(("scale", "size"), [(1.0, QSize(1024, 640)), (2.0, QSize(1024, 640))])
    def test_no_words_are_cut_off(
        self, runs: FakeRuns, window: MainWindow, key: str, scale: float, size: QSize
    ) -> None:
        theme().set_appearance(Scheme.LIGHT, scale)
        try:
            window.resize(size)
            window.show_page(key)
            settle()
            assert window.size() == size, "the window may be this small"
            assert clipped(window) == []
        finally:
            theme().set_appearance(Scheme.LIGHT, 1.0)

    @pytest.mark.parametrize("key", RAIL_PAGES)
    def test_tab_reaches_the_page_and_comes_round(self, runs: FakeRuns, window: MainWindow, key: str) -> None:
        window.show_page(key)
        settle()
        stops = tab_stops(window)
        assert 0 < len(stops) < 200
        assert len(set(stops)) == len(stops)
        page = window.pages.currentWidget()
        assert page is not None
        assert any(page.isAncestorOf(stop) for stop in stops)
        assert any(window.rail.isAncestorOf(stop) for stop in stops)

    def test_settings_are_read_from_top_to_bottom(self, runs: FakeRuns, window: MainWindow) -> None:
        window.show_page("settings")
        settle()
        page = window.pages.currentWidget()
        assert page is not None
        stops = [stop for stop in tab_stops(window) if page.isAncestorOf(stop)]
        tops = [stop.mapTo(page, QPoint(0, 0)).y() for stop in stops]
        assert len(stops) == 16
        assert tops == sorted(tops)

    def test_page_is_told_when_it_comes_and_goes(self, runs: FakeRuns, recorder: None, window: MainWindow) -> None:
        page = window.pages.page("train")
        assert isinstance(page, Recorder)
        window.show_page("settings")
        window.show_page("train", [Path("/data")])
        assert page.told == [("shown", None), "hidden", ("shown", [Path("/data")])]
        assert window.windowTitle() == "Recorder – Tunesmith"

    def test_minimised_window_hides_its_page(self, runs: FakeRuns, recorder: None, window: MainWindow) -> None:
        page = window.pages.page("train")
        assert isinstance(page, Recorder)
        page.told.clear()
        window.showMinimized()
        settle()
        window.showNormal()
        settle()
        assert page.told == ["hidden", ("shown", None)]

    def test_broken_page_becomes_words_with_diagnostics(
        self, runs: FakeRuns, window: MainWindow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(PAGES, "runs", PageEntry("tunesmith_gui.no_such_page", "X", "Runs", "runs"))
        window.show_page("runs")
        page = window.pages.currentWidget()
        assert page is not None
        page.primary.click()  # type: ignore[attr-defined]
        dialog = window.findChild(DiagnosticsDialog)
        assert dialog is not None
        assert "no_such_page" in dialog.text.toPlainText()
        dialog.close()
        dialog.deleteLater()
        assert "no_such_page" in caplog.text


class TestKeyboard:
    def test_every_action_has_its_own_keys_and_they_are_valid(self) -> None:
        sequences = [QKeySequence(action.keys) for action in actions()]
        assert all(each.count() == 1 for each in sequences)
        assert len({each.toString() for each in sequences}) == len(sequences)

    def test_shortcut_goes_to_the_page_first_then_to_the_window(
        self, runs: FakeRuns, recorder: None, window: MainWindow, qtbot: QtBot
    ) -> None:
        page = window.pages.page("train")
        assert isinstance(page, Recorder)
        with qtbot.waitActive(window):
            window.activateWindow()
        qtbot.keyClick(window, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
        qtbot.keyClick(window, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
        assert page.told[-3:] == ["find", "page_settings", "hidden"]
        assert window.rail.buttons["settings"].isChecked()

    def test_palette_finds_and_runs(self, runs: FakeRuns, window: MainWindow, qtbot: QtBot) -> None:
        window.perform("palette")
        palette = window.findChild(CommandPalette)
        assert palette is not None
        assert palette.isVisible()
        QTest.keyClicks(palette.search, "go runs")
        assert palette.list.count() == 1
        QTest.keyClick(palette.search, Qt.Key.Key_Return)
        assert not palette.isVisible()
        assert window.rail.buttons["runs"].isChecked()

    def test_palette_moves_by_arrows_and_offers_live_runs(self, runs: FakeRuns, window: MainWindow) -> None:
        runs.show(training("support-01"))
        window.perform("palette")
        palette = window.findChild(CommandPalette)
        assert palette is not None
        QTest.keyClick(palette.search, Qt.Key.Key_Down)
        assert palette.list.currentRow() == 1
        QTest.keyClicks(palette.search, "SUPPORT")
        assert "support-01" in palette.list.currentItem().text()
        QTest.keyClicks(palette.search, "zzz")
        QTest.keyClick(palette.search, Qt.Key.Key_Return)
        assert palette.isVisible(), "nothing found runs nothing"
        assert palette.nothing.isVisible()
        palette.hide()

    def test_icons_of_the_palette_grow_with_the_text(self, runs: FakeRuns, window: MainWindow) -> None:
        try:
            theme().set_appearance(Scheme.LIGHT, 2.0)
            window.perform("palette")
            palette = window.findChild(CommandPalette)
            assert palette is not None
            assert palette.list.iconSize() == QSize(36, 36)
            palette.hide()
        finally:
            theme().set_appearance(Scheme.LIGHT, 1.0)

    def test_matching_takes_all_words_in_any_order(self) -> None:
        assert matches("run NEW", "New run")
        assert matches("", "New run")
        assert not matches("old run", "New run")

    def test_rail_folds_by_key_and_remembers(self, runs: FakeRuns, window: MainWindow, context: Context) -> None:
        window.resize(1400, 800)
        window.perform("toggle_rail")
        assert window.rail.collapsed
        assert window.rail.buttons["runs"].text() == ""
        assert window.rail.buttons["runs"].accessibleName() == "Runs"
        again = MainWindow(context)
        assert again.rail.collapsed
        again.close_without_asking()
        again.deleteLater()

    @pytest.mark.parametrize("points", [8.0, 10.0, 20.0])
    def test_rail_has_words_from_1100_px_on_whatever_the_typeface(
        self, runs: FakeRuns, window: MainWindow, points: float
    ) -> None:
        wide = QFont("DejaVu Sans")
        wide.setPointSizeF(points)
        wide.setStretch(150)
        window.setFont(wide)
        window.resize(1100, 800)
        assert not window.rail.collapsed
        assert window.rail.buttons["train"].text().strip() == "Train"
        window.resize(1099, 800)
        assert window.rail.collapsed

    def test_pages_are_radio_buttons_to_screen_readers(self, runs: FakeRuns, window: MainWindow) -> None:
        for each in window.rail.buttons.values():
            assert QAccessible.queryAccessibleInterface(each).role() == QAccessible.Role.RadioButton

    def test_first_size_fits_a_small_screen_with_its_frame(
        self, runs: FakeRuns, context: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(QScreen, "availableSize", lambda _: QSize(1280, 800))
        first = MainWindow(context)
        assert (first.width() + 16, first.height() + 48) == (1280, 800)
        assert not first.rail.collapsed
        first.close_without_asking()
        first.deleteLater()

    def test_diagnostics_are_shown_before_they_are_copied(self, runs: FakeRuns, window: MainWindow) -> None:
        QGuiApplication.clipboard().clear()
        window.perform("copy_diagnostics")
        dialog = window.findChild(DiagnosticsDialog)
        assert dialog is not None
        assert QGuiApplication.clipboard().text() == ""
        assert unnamed(dialog) == []
        dialog._copy()
        assert "Tunesmith" in QGuiApplication.clipboard().text()
        dialog.deleteLater()


class TestActivity:
    def test_live_runs_show_in_rail_and_panel(self, runs: FakeRuns, window: MainWindow) -> None:
        settle()
        assert window.rail.activity.words == "Idle"
        assert window.rail.activity.text().strip() == "Idle"
        runs.show(training())
        assert window.rail.activity.words == "45%, support-01"
        window.perform("activity")
        assert window.activity.isVisible()
        shape = window.activity.mask()
        assert not shape.contains(QPoint(0, 0)), "without a compositor the corners would be black"
        assert shape.contains(window.activity.rect().center())
        row = window.activity._rows["id-support-01"]
        assert row.words.text() == "step 210 of 465 · 19 min left"
        assert unnamed(window.activity) == []
        waiting = training("second", step=0)
        waiting.state = RunState.QUEUED
        runs.show(training(step=300), waiting)
        assert window.rail.activity.words == "2 active runs"
        assert window.activity._rows["id-second"].words.text() == ""
        runs.show(waiting)
        assert window.rail.activity.words == "Waiting: second"
        assert list(window.activity._rows) == ["id-second"]
        window.activity.hide()

    def test_panel_without_runs_offers_a_new_one(self, runs: FakeRuns, recorder: None, window: MainWindow) -> None:
        window.show_page("settings")
        window.perform("activity")
        window.activity._new.click()
        assert not window.activity.isVisible()
        assert window.rail.buttons["train"].isChecked()

    def test_esc_takes_a_toast_away(self, window: MainWindow) -> None:
        window.show()
        window.toast.show_message("error", "It failed.")
        QTest.keyClick(window.pages, Qt.Key.Key_Escape)
        assert not window.toast.isVisible()

    def test_end_of_a_run_is_told(
        self, runs: FakeRuns, window: MainWindow, context: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settle()
        told: list[tuple[str, str]] = []
        monkeypatch.setattr(context.desktop, "notify", lambda title, text, _window: told.append((title, text)))
        monkeypatch.setattr(window, "isActiveWindow", lambda: False)
        runs.run_ended.emit("id", "support-01", "failed")
        assert window.toast.label.text() == "Failed: support-01"
        assert told == [("Failed", "support-01")]
        context.preferences.change(notify_run_end=False)
        runs.run_ended.emit("id", "support-02", "finished")
        assert len(told) == 1

    def test_computer_stays_awake_while_a_run_is_live(
        self, runs: FakeRuns, window: MainWindow, context: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settle()
        asked: list[bool] = []
        monkeypatch.setattr(context.desktop, "keep_awake", lambda wanted, _reason: asked.append(wanted))
        runs.show(training())
        runs.show()
        context.preferences.change(keep_awake=False)
        runs.show(training())
        assert asked == [True, False, False]


class TestInterruptedRuns:
    def rows(self, *names: str) -> list[RunRow]:
        state = RunState.INTERRUPTED
        return [RunRow(id=f"id-{name}", path=Path(name), name=name, state=state, step=310) for name in names]

    def test_each_is_told_once(self, runs: FakeRuns, window: MainWindow, context: Context) -> None:
        finished = RunRow(id="x", path=Path("x"), name="x", state=RunState.FINISHED)
        window.banners.show_interrupted([finished])
        assert window.banners.isHidden()
        window.banners.show_interrupted([finished, *self.rows("a")])
        (banner,) = window.banners.findChildren(Banner)
        assert banner.accessibleName() == "The run a was interrupted at step 310"
        banner._dismiss()
        assert window.banners.isHidden()
        again = ShellBanners()
        again.show_interrupted(self.rows("a"))
        assert again.isHidden(), "also after a restart"
        again.show_interrupted(self.rows("a", "b"))
        assert not again.isHidden()
        again.deleteLater()

    def test_one_leads_to_its_page_and_several_to_the_list(self, window: MainWindow, qtbot: QtBot) -> None:
        window.banners.show_interrupted(self.rows("a"))
        with qtbot.waitSignal(window.banners.navigate) as blocker:
            window.banners.findChildren(Banner)[0].buttons[0].click()
        assert blocker.args == ["dashboard", "id-a"]
        assert window.banners.isHidden()
        settle()
        window.banners.show_interrupted(self.rows("a", "b", "c"))
        (banner,) = window.banners.findChildren(Banner)
        assert banner.accessibleName() == "2 runs were interrupted"
        with qtbot.waitSignal(window.banners.navigate) as blocker:
            banner.buttons[0].click()
        assert blocker.args == ["runs", None]

    def test_refused_request_says_why_and_what_next(self, runs: FakeRuns, window: MainWindow) -> None:
        settle()
        error = TunesmithError("permission-or-antivirus", "/runs/a: Permission denied.")
        runs.failed.emit("a", error)
        assert window.toast.label.text() == f"/runs/a: Permission denied.\n{error.hint}"

    @pytest.mark.parametrize("elsewhere", [False, True])
    def test_window_opens_on_a_run_in_progress(
        self, elsewhere: bool, runs: FakeRuns, window: MainWindow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entry = PAGES["dashboard"]
        monkeypatch.setitem(PAGES, "dashboard", PageEntry(__name__, "Recorder", "Run", part_of=entry.part_of))
        settle()
        if elsewhere:
            window.show_page("settings")
        runs.show(training())
        runs.run_started.emit("id-support-01")
        assert window.toast.label.text() == "support-01 is still running."
        page = window.pages.currentWidget()
        assert isinstance(page, Recorder) is not elsewhere
        assert elsewhere or page.told == [("shown", "id-support-01")]


class TestDamagedSettings:
    def test_damaged_settings_are_told(self, home: Path, qtbot: QtBot) -> None:
        (home / "config").mkdir()
        (home / "config" / "settings.json").write_text("{", encoding="utf-8")
        context = Context(Preferences(SettingsFile()))
        context.__dict__["runs"] = FakeRuns()
        window = MainWindow(context)
        window.show()
        words = [each.accessibleName() for each in window.findChildren(Banner) if each.isVisibleTo(window)]
        assert "The settings could not be read in full" in words
        window.close_without_asking()
        window.deleteLater()
        context.shutdown()


class TestHardwareStrip:
    def test_gpu_is_shown_with_all_its_numbers(self, runs: FakeRuns, window: MainWindow) -> None:
        window._on_reading(WITH_GPU)
        strip = window.rail.strip
        assert strip.title.text() == GPU.name
        assert strip._memory.value.text() == "5.0 / 6.0 GiB"
        assert strip._load.value.text() == "97%"
        assert strip._extra.text() == "71 °C · 98 W"
        assert "RTX 3060" in strip.toolTip()

    def test_without_gpu_processor_and_memory_are_shown(self, runs: FakeRuns, window: MainWindow) -> None:
        window._on_reading(WITHOUT_GPU)
        strip = window.rail.strip
        assert strip._memory.name.text() == "RAM"
        assert strip._memory.value.text() == "4.0 / 16.0 GiB"
        assert strip.accessibleDescription() == "RAM 4.0 / 16.0 GiB, processor 12%"


class TestDropping:
    def test_files_dropped_anywhere_go_to_train(
        self, runs: FakeRuns, recorder: None, window: MainWindow, tmp_path: Path
    ) -> None:
        window.show_page("settings")
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(tmp_path / "chats.jsonl")), QUrl("https://example.org/x")])
        enter = QDragEnterEvent(
            QPoint(50, 50), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        )
        QApplication.sendEvent(window, enter)
        assert enter.isAccepted()
        assert window._overlay.isVisible()
        drop = QDropEvent(
            QPointF(50, 50), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        )
        QApplication.sendEvent(window, drop)
        assert not window._overlay.isVisible()
        page = window.pages.currentWidget()
        assert isinstance(page, Recorder)
        assert page.told[-1] == ("shown", [tmp_path / "chats.jsonl"])

    @pytest.mark.parametrize("key", RAIL_PAGES)
    def test_fields_leave_files_to_the_window(self, runs: FakeRuns, window: MainWindow, key: str) -> None:
        assert not any(field.acceptDrops() for field in window.pages.page(key).findChildren(QLineEdit))

    def test_addresses_of_the_web_are_not_taken(self, runs: FakeRuns, window: MainWindow) -> None:
        data = QMimeData()
        data.setUrls([QUrl("https://example.org/x")])
        enter = QDragEnterEvent(
            QPoint(50, 50), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        )
        enter.ignore()
        QApplication.sendEvent(window, enter)
        assert not window._overlay.isVisible()


class TestSettingsPage:
    def test_choices_take_effect_and_are_saved(self, runs: FakeRuns, window: MainWindow, context: Context) -> None:
        window.show_page("settings")
        page = window.pages.currentWidget()
        combo = page._combos["theme"]  # type: ignore[union-attr]
        combo.setCurrentIndex(combo.findData("dark"))
        combo.activated.emit(combo.currentIndex())
        page._boxes["keep_awake"].click()  # type: ignore[union-attr]
        settle()
        saved = SettingsFile().values
        assert (saved.theme, saved.keep_awake) == ("dark", False)
        page._reset()  # type: ignore[union-attr]
        assert combo.currentData() == "system"
        settle()

    def test_a_choice_is_as_wide_with_the_focus(self, runs: FakeRuns, window: MainWindow, qtbot: QtBot) -> None:
        window.show_page("settings")
        combos = window.pages.currentWidget()._combos  # type: ignore[union-attr]
        with qtbot.waitActive(window):
            window.activateWindow()
        combos["theme"].setFocus()
        assert combos["theme"].hasFocus()
        # Another appearance has every control measured again.
        theme().set_appearance(Scheme.DARK, 1.0)
        try:
            settle()
            assert len({each.width() for each in combos.values()}) == 1
        finally:
            theme().set_appearance(Scheme.LIGHT, 1.0)

    def test_addresses_are_saved_and_wrong_ones_are_told(
        self, runs: FakeRuns, window: MainWindow, context: Context
    ) -> None:
        window.show_page("settings")
        page = window.pages.currentWidget()
        edit = page._texts["proxy"]  # type: ignore[union-attr]
        edit.setText(" http://proxy.example:8080 ")
        edit.editingFinished.emit()
        settle()
        assert SettingsFile().values.proxy == "http://proxy.example:8080"
        edit.setText("proxy.example")
        edit.editingFinished.emit()
        context.preferences.change(theme="dark")
        assert (edit.property("invalid"), edit.text()) == (True, "proxy.example"), "what was typed can be corrected"
        settle()
        assert SettingsFile().values.proxy == "http://proxy.example:8080"
        page._reset()  # type: ignore[union-attr]
        assert (edit.property("invalid"), edit.text()) == (False, "")
        settle()
        assert SettingsFile().values.proxy == ""

    def test_every_shortcut_is_listed(self, runs: FakeRuns, window: MainWindow) -> None:
        window.show_page("settings")
        page = window.pages.currentWidget()
        assert page is not None
        words = {each.text() for each in page.findChildren(QWidget) if hasattr(each, "text") and each.isVisible()}
        for action in actions():
            assert {action.words, action.shown_keys} <= words


def test_log_views_show_text_literally(runs: FakeRuns, window: MainWindow) -> None:
    for each in window.findChildren(QPlainTextEdit):
        assert not each.toPlainText().startswith("<html")


def test_a_page_that_leaves_hands_the_keyboard_to_no_button(window: MainWindow) -> None:
    window.show_page("runs")
    page = window.pages.currentWidget()
    page.filter.setFocus()
    window.show_page("settings")
    assert window.focusWidget() is window.pages
