"""The Environment page: every state in words, buttons that do what they say, names, room for words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QDialog, QFileDialog, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.environment import states
from tests.gui.fake_runs import FakeRuns
from tests.gui.layout_checks import clipped, tab_stops, unnamed
from tunesmith_core import paths
from tunesmith_core.machine import Machine, Wsl, WslDistribution
from tunesmith_core.setup_messages import Finding
from tunesmith_gui.context import Context
from tunesmith_gui.environment.choose_profile import ChooseProfileDialog
from tunesmith_gui.environment.page import EnvironmentPage
from tunesmith_gui.environment.setup_activity import Command
from tunesmith_gui.environment.wsl import wsl_words
from tunesmith_gui.models.run_spec import AtSetting
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip


@pytest.fixture
def page(quiet: Any, context: Context, window: MainWindow) -> Iterator[EnvironmentPage]:
    """The page in the real window, its model empty."""
    del quiet
    window.show_page("environment")
    result = window.pages.currentWidget()
    assert isinstance(result, EnvironmentPage)
    yield result
    for dialog in window.findChildren(QDialog):
        dialog.close()
        dialog.deleteLater()
    settle()


@pytest.fixture(autouse=True)
def runs(context: Context) -> FakeRuns:
    fake = FakeRuns()
    context.__dict__["runs"] = fake
    return fake


def show(quiet: Any) -> None:
    """Tells the page that the model is another one, and lets new widgets appear."""
    quiet.changed.emit()
    QCoreApplication.processEvents()


def words(widget: QWidget) -> str:
    """Everything that is shown, labels, chips and buttons."""
    shown = [each for each in widget.findChildren(QWidget) if each.isVisibleTo(widget.window())]
    labels = [each.text() for each in shown if isinstance(each, (SafeLabel, QPushButton))]
    return "\n".join([*labels, *(each.text for each in shown if isinstance(each, StatusChip))])


def press(widget: QWidget, text: str) -> None:
    """Presses the one shown button with these words."""
    buttons = [each for each in widget.findChildren(QPushButton) if each.isVisibleTo(widget.window())]
    (button,) = [each for each in buttons if each.text() == text]
    assert button.isEnabled()
    button.click()


def accept(window: QWidget, kind: type[QDialog]) -> QDialog:
    """Accepts the open dialog of a class."""
    dialog = next(each for each in window.findChildren(kind) if each.isVisible())
    dialog.accept()
    return dialog


def test_the_first_look_begins_by_itself_and_says_so(page: EnvironmentPage, quiet: Any) -> None:
    assert quiet.asked == ["probe", "doctor"]
    assert "Reading what is installed…" in words(page)
    assert "No checks have run yet." in words(page)
    page.on_shown()
    assert quiet.asked == ["probe", "doctor"], "coming back starts nothing"


def test_a_healthy_environment_is_described(page: EnvironmentPage, quiet: Any) -> None:
    states.fill(quiet.model)
    show(quiet)
    press(page, "Show all")
    settle()
    text = words(page)
    for part in ("Healthy", "PyTorch for CUDA 12.4", "torch 2.6.0+cu124", "Tested on", "RTX 3060", "Roll back…"):
        assert part in text
    assert "Repair…" not in text
    assert "Driver 560.94 supports CUDA 12.6." in text
    assert "chrome.exe (4412): 3.0 GiB" in text
    assert "Another program uses 3.0 GiB (chrome.exe)." in text
    assert "The driver does not report memory use." in text
    assert "models up to about 1B" in text


def test_faults_have_words_and_buttons(page: EnvironmentPage, quiet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    states.fill(quiet.model, checks=(states.OK, states.FULL, states.DAMAGED, states.RUNTIME))
    show(quiet)
    text = words(page)
    for part in ("Needs repair", "Warning", "Failed", "3 files differ", "2 failed  ·  1 with warnings  ·  1 passed"):
        assert part in text
    assert list(page.checks.list.rows) == ["training-files", "vc-runtime", "disk"], "the gravest first"
    press(page, "Show all")
    settle()
    assert list(page.checks.list.rows) == ["training-files", "vc-runtime", "disk", "driver"]
    quiet.asked.clear()
    press(page, "Repair 3 files (69 MiB)")
    press(page, "Install the Visual C++ runtime")
    assert quiet.asked == ["repair --yes --check training-files"]
    assert opened
    assert opened[0].startswith("https://learn.microsoft.com")
    quiet.model.offline = True
    show(quiet)
    row = page.checks.list.rows["training-files"]
    assert not row.fix.isEnabled()
    assert "Offline" in row.fix.toolTip()
    assert "Offline" in row.fix.accessibleDescription()
    assert page.checks.list.rows["disk"].fix.isEnabled()
    assert page.offline.isVisible()


def test_checks_that_all_passed_are_one_line(page: EnvironmentPage, quiet: Any) -> None:
    well = [dataclasses.replace(states.OK, id=f"check-{number}") for number in range(20)]
    states.fill(quiet.model, checks=well)
    show(quiet)
    settle()
    assert page.checks.counts.text() == "All 20 checks passed"
    assert not page.checks.list.rows
    assert page.checks.height() < 4 * page.checks.heading.height()
    press(page, "Show all")
    assert len(page.checks.list.rows) == 20
    press(page, "Show less")
    assert not page.checks.list.rows


def test_a_missing_environment_is_said_once(page: EnvironmentPage, quiet: Any) -> None:
    missing = [
        states.check("training-python", "Python", "failed", code="environment-missing", fix=states.Fix("Install")),
        states.check("torch", "PyTorch", "unknown", "The training environment is not there."),
    ]
    states.fill(quiet.model, installed=states.MISSING, checks=[states.OK, *missing])
    show(quiet)
    assert not page.checks.list.rows
    assert page.checks.counts.text() == "1 passed"
    assert "Not installed" in words(page)
    press(page, "Show all")
    assert len(page.checks.list.rows) == 3


@pytest.mark.parametrize("key", ["environment", "settings"])
def test_a_folder_that_cannot_be_shown_is_named(
    page: EnvironmentPage, window: MainWindow, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(window.context.desktop, "reveal", lambda _folder: False)
    shown = window.pages.page(key)
    words: list[str] = []
    shown.notify.connect(lambda _tone, text: words.append(text))  # type: ignore[attr-defined]
    if isinstance(shown, EnvironmentPage):
        shown.ask("folder")
    else:
        shown._open_folder()  # type: ignore[attr-defined]
    settle()
    assert words == [f"No file manager was found. The folder is {paths.data_root()}"]


def test_repair_and_roll_back_ask_first(page: EnvironmentPage, quiet: Any, window: MainWindow) -> None:
    states.fill(quiet.model, checks=(states.DAMAGED, states.RUNTIME))
    show(quiet)
    quiet.asked.clear()
    press(page, "Repair…")
    dialog = next(each for each in window.findChildren(ConfirmDialog) if each.isVisible())
    assert "Files of the training environment: Repair 3 files" in words(dialog)
    assert "Visual C++" not in words(dialog), "a step for the person is none for the installer"
    dialog.accept()
    press(page, "Roll back…")
    accept(window, ConfirmDialog)
    assert quiet.asked == ["repair --yes", "rollback"]


def test_progress_is_shown_and_can_be_cancelled(page: EnvironmentPage, quiet: Any) -> None:
    states.fill(quiet.model)
    states.work(quiet.model, Command.REPAIR)
    show(quiet)
    assert "61%  ·  torch 2.6.0  ·  12.4 MB/s  ·  3 min left" in words(page)
    assert not page.environment.check.isEnabled()
    progress = page.environment.progress
    progress.toggle.click()
    assert progress.console is not None
    assert "Downloading torch 2.6.0" in progress.console.view.toPlainText()
    page.perform("log")
    heard: list[str] = []
    page.environment.asked.connect(heard.append)
    progress.cancel.click()
    assert heard == ["cancel"]
    quiet.model.end(None)
    show(quiet)
    assert "Repaired and checked." in words(page)


def test_a_failure_is_a_banner_with_a_way_on(page: EnvironmentPage, quiet: Any) -> None:
    states.fill(quiet.model)
    states.work(quiet.model, Command.ROLL_BACK)
    quiet.model.end(states.PROBLEM)
    show(quiet)
    banner = page._problem
    assert isinstance(banner, Banner)
    assert "certificate verify failed" in words(banner)
    quiet.asked.clear()
    press(banner, "Try again")
    press(banner, "Show the log")
    assert quiet.asked == ["rollback"]
    assert page.environment.progress.console is not None
    assert page.environment.progress.console.isVisible()
    quiet.model.activity = None
    show(quiet)
    assert page._problem is None


def test_what_is_not_installed_leads_to_the_set_up(page: EnvironmentPage, quiet: Any) -> None:
    states.fill(quiet.model, installed=states.MISSING, machine=states.NO_GPU, checks=())
    show(quiet)
    asked: list[tuple[str, object]] = []
    page.navigate.disconnect()
    page.navigate.connect(lambda key, argument: asked.append((key, argument)))
    assert "Not installed" in words(page)
    assert page.gpus.isHidden()
    for action in ("install", "setup", "move", "runs", "repair"):
        page.ask(action)
    missing = states.check("training-python", "x", "failed", code="environment-missing", fix=states.Fix("Install"))
    page.fix(missing)
    page.do_action("set-proxy")
    page.do_action("use-cpu")
    page.do_action("choose-target-modules")
    page.do_action("no-such-action")
    opened = [key for key, _ in asked]
    assert opened == ["setup", "setup", "setup", "runs", "setup", "setup", "settings", "train", "train"]
    assert asked[-1][1] == AtSetting("adapter.target_modules")
    quiet.asked.clear()
    page.fix(states.check("gpu-memory", "x", "warning", fix=states.Fix("Close", "retry", automatic=False)))
    assert quiet.asked == ["probe", "doctor"]


def test_another_build_is_chosen_before_the_set_up(page: EnvironmentPage, quiet: Any, window: MainWindow) -> None:
    states.fill(quiet.model)
    asked: list[tuple[str, object]] = []
    page.navigate.disconnect()
    page.navigate.connect(lambda key, argument: asked.append((key, argument)))
    page.ask("profile")
    dialog = next(each for each in window.findChildren(ChooseProfileDialog) if each.isVisible())
    assert unnamed(dialog) == []
    dialog.choices["cpu"].setChecked(True)
    press(dialog, "Use this")
    assert quiet.profile == "cpu"
    assert asked == [("setup", "environment")]


def test_disk_and_subsystem_have_their_buttons(page: EnvironmentPage, quiet: Any, window: MainWindow) -> None:
    states.fill(quiet.model)
    show(quiet)
    quiet.asked.clear()
    press(page.disk, "Clear")
    assert "Setup needs administrator rights" in words(page.wsl)
    assert "several GPUs" in words(page.wsl)
    press(page.wsl, "Use WSL…")
    accept(window, ConfirmDialog)
    assert quiet.asked == ["repair --yes --check caches", "wsl install --yes"]
    for target in ("disk", "wsl"):
        page.on_shown(target)
        settle()
    page.wsl.show_machine(Machine(system="linux"))
    assert page.wsl.isHidden()


def test_every_state_of_the_subsystem_has_words() -> None:
    ready = Wsl(state="ready", distributions=(WslDistribution(name="Ubuntu", version=2),))
    found = [wsl_words(wsl) for wsl in (None, ready, *map(_wsl, ("no-distribution", "version-1", "not-installed")))]
    assert len({word for word, _tone, _sentence in found}) == len(found)
    assert wsl_words(Wsl(state="failed", detail="0x80370102"))[2] == "0x80370102"
    assert "Ubuntu" in found[1][2]


def _wsl(state: str) -> Wsl:
    return Wsl(state=state)


def test_reports_are_shown_or_saved(
    page: EnvironmentPage, quiet: Any, window: MainWindow, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    states.fill(quiet.model, checks=(states.DAMAGED,))
    assert page.perform("copy_diagnostics")
    qtbot.waitUntil(lambda: window.findChild(DiagnosticsDialog) is not None, timeout=15_000)
    dialog = window.findChild(DiagnosticsDialog)
    assert dialog is not None
    assert "training-files: 3 files differ" in dialog.text.toPlainText()
    target = tmp_path / "report.txt"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_words: (str(target), ""))
    page.ask("save_report")
    qtbot.waitUntil(target.exists, timeout=15_000)
    settle()
    assert "environment-damaged" in target.read_text(encoding="utf-8")
    assert not page.perform("start_run")


def test_names_words_and_tab_in_all_sizes(page: EnvironmentPage, quiet: Any, window: MainWindow) -> None:
    states.fill(quiet.model, checks=(states.OK, states.FULL, states.DAMAGED, states.RUNTIME))
    states.work(quiet.model, Command.REPAIR)
    page.environment.progress.set_open(True)
    quiet.model.offline = True
    try:
        for scale in (0.8, 1.0, 2.0):
            theme().set_appearance(Scheme.LIGHT, scale)
            window.resize(1024, 640)
            show(quiet)
            settle()
            assert clipped(page) == []
    finally:
        theme().set_appearance(Scheme.LIGHT, 1.0)
    assert unnamed(page) == []
    stops = tab_stops(window)
    assert len(set(stops)) == len(stops)
    assert page.disk.clear in stops or not page.disk.clear.isEnabled()  # type: ignore[union-attr]


def test_what_was_dismissed_stays_away_until_it_changes(
    quiet: Any, context: Context, window: MainWindow, qtbot: QtBot
) -> None:
    del window
    title = "The training environment needs repair"

    def seen(*checks: Finding) -> bool:
        """Whether a window that starts now tells it."""
        page = NewRunPage(context)
        qtbot.addWidget(page)
        settle()
        states.fill(quiet.model, checks=checks)
        show(quiet)
        shown = title in words(page)
        if shown:
            page._banner_slots["environment"].dismissed.emit()
        page.hide()
        return shown

    assert seen(states.DAMAGED)
    assert not seen(states.DAMAGED)
    assert seen(states.DAMAGED, states.check("torch", "PyTorch", "failed"))
    assert not seen(states.check("torch", "PyTorch", "ok"))
    assert seen(states.DAMAGED, states.check("torch", "PyTorch", "failed")), "it was well in between"


def test_train_says_what_the_checks_found(quiet: Any, context: Context, window: MainWindow) -> None:
    window.show_page("train")
    train = window.pages.currentWidget()
    assert train is not None
    states.fill(quiet.model, checks=(states.DAMAGED,))
    show(quiet)
    assert "The training environment needs repair" in words(train)
    window_files = states.check("launcher-files", "Files of the launcher environment", "failed")
    states.fill(quiet.model, checks=(window_files,))
    show(quiet)
    assert "The window's own libraries need repair" in words(train)
    assert "training environment" not in words(train)
    full = states.check("disk", "Free disk space", "failed")
    states.fill(quiet.model, checks=(window_files, full))
    show(quiet)
    assert "Files of the launcher environment\nFree disk space" in words(train)
    outdated = states.check("libraries", "Libraries", "warning", code="protocol-mismatch")
    states.fill(quiet.model, checks=(outdated,))
    show(quiet)
    assert "The training environment belongs to another version of Tunesmith" in words(train)
    press(train, "Open")
    assert window.rail.buttons["environment"].isChecked()
    states.fill(quiet.model)
    show(quiet)
    window.show_page("train")
    assert "another version" not in words(train)
