"""The first-run wizard: steps, states, ways, folder, installation, the check, names, room for words."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QDialog, QFileDialog, QPushButton
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.environment import states
from tests.gui.environment.test_page import press, words
from tests.gui.fake_runs import FakeRuns, training
from tests.gui.layout_checks import clipped, tab_stops, unnamed
from tunesmith_core import paths
from tunesmith_core.errors import UserError
from tunesmith_core.spec import RunSpec
from tunesmith_gui.context import Context
from tunesmith_gui.environment.setup_activity import Command
from tunesmith_gui.environment.setup_flow import COMPUTER, ENVIRONMENT, FOLDER, TRY, Place
from tunesmith_gui.environment.wizard import SetupWizard
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.tr import duration
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog


class Runs(FakeRuns):
    """Starts what the wizard asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[RunSpec] = []

    def start(self, spec: RunSpec, done: Any, _failed: Any) -> None:
        self.started.append(spec)
        done("id-example")


@pytest.fixture(autouse=True)
def runs(context: Context) -> Runs:
    fake = Runs()
    context.__dict__["runs"] = fake
    return fake


@pytest.fixture
def wizard(quiet: Any, window: MainWindow, qtbot: QtBot) -> Iterator[SetupWizard]:
    """The wizard over the real window, its model empty."""
    window.show_page("setup")
    (result,) = window.findChildren(SetupWizard)
    qtbot.waitUntil(lambda: result.flow.place is not None, timeout=15_000)
    yield result
    for dialog in window.findChildren(QDialog):
        dialog.close()
        dialog.deleteLater()
    settle()


def show(wizard: SetupWizard) -> None:
    """Draws the present state and lets new widgets appear."""
    wizard.refresh()
    QCoreApplication.processEvents()


def test_it_looks_at_everything_when_it_opens(wizard: SetupWizard, quiet: Any, window: MainWindow) -> None:
    assert quiet.asked == ["probe", "doctor", "install --plan --training-only"]
    assert "Looking at this computer…" in words(wizard)
    assert wizard.flow.place is not None
    assert wizard.flow.place.folder == paths.data_root()
    window.show_page("setup", TRY)
    assert window.findChildren(SetupWizard) == [wizard], "one wizard, opened again"
    assert wizard.flow.current == TRY


def test_the_window_offers_it_once(quiet: Any, window: MainWindow) -> None:
    window.offer_setup()
    wizard = window.findChild(SetupWizard)
    assert wizard is not None
    wizard.close()
    window.offer_setup()
    assert not wizard.isVisible()
    wizard.deleteLater()


def test_facts_choice_and_faults_of_the_computer(wizard: SetupWizard, quiet: Any) -> None:
    states.fill(quiet.model, installed=states.MISSING, checks=(states.OK, states.FULL, states.RUNTIME))
    quiet.model.choice_warnings = ("GTX 1650 trains without Triton kernels.",)
    show(wizard)
    text = words(wizard.computer)
    for part in (
        "NVIDIA GeForce RTX 3060 Laptop GPU  ·  6.0 GiB (2.0 GiB free)  ·  compute 8.6",
        "560.94  ·  supports CUDA 12.6",
        "RTX 3060, driver 560: CUDA 12.4",
        "GTX 1650 trains without Triton kernels.",
        "1 of 3 checks passed",
        "8.0 GiB free",
        "Failed",
    ):
        assert part in text
    assert "Driver 560.94 serves" not in text, "what is well is only counted"
    quiet.asked.clear()
    press(wizard.computer, "Clear")
    press(wizard.computer, "Check again")
    assert quiet.asked[:3] == ["repair --yes --check disk", "probe", "doctor"]


def test_buttons_lead_through_the_steps(wizard: SetupWizard, quiet: Any, window: MainWindow) -> None:
    assert not wizard.back.isEnabled()
    for step in (FOLDER, ENVIRONMENT, TRY):
        wizard.next.click()
        assert wizard.flow.current == step
    assert wizard.next.text() == "Finish"
    assert "Skipped" in words(wizard.environment)
    wizard.back.click()
    assert wizard.flow.current == ENVIRONMENT
    press(wizard.computer, "This computer")
    assert wizard.flow.current == COMPUTER
    assert wizard.computer.inside.isVisible()
    assert not wizard.environment.inside.isVisible()
    wizard.open_step(TRY)
    wizard.next.click()
    assert not wizard.isVisible()
    assert window.rail.buttons["train"].isChecked()
    settle()


def test_it_opens_again_where_something_is_left_to_do(wizard: SetupWizard, quiet: Any) -> None:
    wizard.open_step(TRY)
    assert not wizard.skip.isVisibleTo(wizard), "Finish does the same"
    wizard.close()
    wizard.open_at()
    assert wizard.flow.current == ENVIRONMENT
    wizard.open_step(FOLDER)
    wizard.close()
    wizard.open_at()
    assert wizard.flow.current == FOLDER


def test_a_refused_folder_says_why_and_another_one_helps(
    wizard: SetupWizard, quiet: Any, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    wizard.open_step(FOLDER)
    wizard.flow.place = Place(Path("/cloud"), 50 * states.GIB, "It lies in a cloud.")
    show(wizard)
    assert "It lies in a cloud." in words(wizard.folder)
    assert not wizard.next.isEnabled()
    assert wizard.next.accessibleDescription() == "It lies in a cloud."
    monkeypatch.delenv(paths.HOME_VARIABLE)
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_DATA_HOME", str(tmp_path / "local"))
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_words: str(tmp_path / "mine"))
    press(wizard.folder, "Browse…")
    qtbot.waitUntil(
        lambda: wizard.flow.place is not None and wizard.flow.place.folder == tmp_path / "mine", timeout=15_000
    )
    assert wizard.next.isEnabled()
    assert paths.data_root() == tmp_path / "mine", "and it lasts"
    wizard.context.preferences.change(font_scale_percent=110)
    settle()
    assert (tmp_path / "mine" / "config" / "settings.json").is_file()


def test_an_installation_from_plan_to_proof(wizard: SetupWizard, quiet: Any, qtbot: QtBot) -> None:
    model = quiet.model
    states.fill(model, installed=states.MISSING, checks=())
    wizard.open_step(ENVIRONMENT)
    assert wizard.flow.place is not None
    wizard.flow.place = Place(Path("/d"), 50 * states.GIB)
    show(wizard)
    assert "4.0 GiB to download  ·  9.0 GiB on the drive while installing  ·  about 9 min" in words(wizard)
    assert (wizard.next.property("kind"), wizard.environment.install.property("kind")) == ("secondary", "primary")
    quiet.asked.clear()
    press(wizard.environment, "Install")
    assert quiet.asked == ["install --training-only"]
    states.work(model, Command.INSTALL)
    show(wizard)
    assert "61%  ·  torch 2.6.0  ·  12.4 MB/s  ·  3 min left" in words(wizard.environment)
    assert not wizard.environment.install.isVisible()
    assert wizard.next.isEnabled(), "one may look around meanwhile"
    model.end(None)
    model.installed = states.THERE
    quiet.ended.emit(model.activity)
    assert wizard.flow.current == TRY
    show(wizard)
    assert "Import the libraries" in words(wizard.trial)
    assert "OK  ·  4.1 s" in words(wizard.trial)


def test_install_says_why_it_can_not(wizard: SetupWizard, quiet: Any) -> None:
    states.fill(quiet.model, installed=states.MISSING, checks=())
    wizard.open_step(ENVIRONMENT)
    cases = (
        ("Offline", Place(Path("/d"), 50 * states.GIB), True),
        ("Free 6.0 GiB", Place(Path("/d"), 3 * states.GIB), False),
        ("It lies in a cloud.", Place(Path("/d"), problem="It lies in a cloud."), False),
    )
    for reason, place, offline in cases:
        wizard.flow.place, quiet.model.offline = place, offline
        show(wizard)
        assert not wizard.environment.install.isEnabled()
        assert reason in wizard.environment.why_not.text()
        assert reason in wizard.environment.install.accessibleDescription()


def test_a_failed_installation_is_told_and_repeated(
    wizard: SetupWizard, quiet: Any, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    states.fill(quiet.model, installed=states.MISSING, checks=())
    wizard.open_step(ENVIRONMENT)
    states.work(quiet.model, Command.INSTALL)
    quiet.model.end(states.PROBLEM)
    show(wizard)
    assert "certificate verify failed" in words(wizard.environment)
    quiet.asked.clear()
    press(wizard.environment, "Try again")
    assert quiet.asked == ["install --training-only"]
    press(wizard.environment, "Copy diagnostics")
    dialog = next(each for each in wizard.findChildren(DiagnosticsDialog))
    assert "hub-ssl-or-proxy" in dialog.text.toPlainText()
    cancelled: list[None] = []
    monkeypatch.setattr(quiet, "cancel", lambda: cancelled.append(None))
    states.work(quiet.model, Command.INSTALL)
    show(wizard)
    wizard.environment.progress.cancel.click()
    assert cancelled == [None]


def test_buttons_of_checks_go_where_they_should(
    wizard: SetupWizard, quiet: Any, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    fixes = {
        "missing": states.check("x", "x", "failed", code="environment-missing", fix=states.Fix("Install")),
        "move": states.check("x", "x", "failed", fix=states.Fix("Move", "move-folders", automatic=False)),
        "retry": states.check("x", "x", "failed", fix=states.Fix("Close", "retry", automatic=False)),
        "none": states.check("x", "x", "failed"),
        "wsl": states.check("x", "x", "failed", fix=states.Fix("WSL", "install-wsl", automatic=False)),
    }
    wizard.fix(fixes["missing"])
    assert wizard.flow.current == ENVIRONMENT
    wizard.fix(fixes["move"])
    assert wizard.flow.current == FOLDER
    wizard.fix(states.RUNTIME)
    assert opened
    quiet.asked.clear()
    wizard.fix(fixes["retry"])
    wizard.fix(fixes["none"])
    assert quiet.asked[0] == "probe"
    wizard.fix(fixes["wsl"])
    assert not wizard.isVisible()
    assert window.rail.buttons["environment"].isChecked()
    settle()


def test_the_check_is_a_run_that_is_followed(
    wizard: SetupWizard, quiet: Any, runs: Runs, window: MainWindow, model_folder: Path, qtbot: QtBot
) -> None:
    states.fill(quiet.model)
    wizard.open_step(TRY)
    show(wizard)
    press(wizard.trial, "Train the sample")
    qtbot.waitUntil(lambda: wizard.trial_run.state == "failed", timeout=15_000)
    assert "holds no model" in words(wizard.trial)
    paths.models_dir().mkdir()
    model_folder.rename(paths.models_dir() / "tiny")
    sizes = {"num_attention_heads": 2, "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 16}
    (paths.models_dir() / "tiny" / "config.json").write_text(json.dumps({"model_type": "llama"} | sizes))
    wizard.trial_run.start()
    wizard.trial_run.start()
    qtbot.waitUntil(lambda: wizard.trial_run.run_id == "id-example", timeout=15_000)
    assert [Path(spec.model.path).name for spec in runs.started] == ["tiny"]
    runs.show(training("example", 30, 80))
    QCoreApplication.processEvents()
    assert "Step 30 of 80  ·  about 19 min left" in words(wizard.trial)
    assert wizard.trial.meter.isVisible()
    runs.run_ended.emit("id-example", "example", "finished")
    assert f"learned the facts in {duration(wizard.trial_run.seconds)}." in words(wizard.trial)
    assert wizard.flow.state(TRY) == "ok"
    wizard.trial_run._fail(UserError("run-busy", "no"))
    assert wizard.flow.state(TRY) == "failed"
    assert "Watch it" in [each.text() for each in wizard.trial.findChildren(QPushButton)]


def test_names_words_and_tab_in_all_sizes(wizard: SetupWizard, quiet: Any, window: MainWindow) -> None:
    states.fill(quiet.model, installed=states.MISSING, checks=(states.OK, states.FULL, states.DAMAGED, states.RUNTIME))
    try:
        for scale in (0.8, 1.0, 2.0):
            theme().set_appearance(Scheme.LIGHT, scale)
            window.resize(1024, 640)
            wizard._fit()
            for step in (COMPUTER, FOLDER, ENVIRONMENT, TRY):
                wizard.open_step(step)
                show(wizard)
                settle()
                assert clipped(wizard) == [], (scale, step)
                assert wizard.width() <= window.width()
                assert wizard.height() <= window.height()
    finally:
        theme().set_appearance(Scheme.LIGHT, 1.0)
    assert unnamed(wizard) == []
    stops = tab_stops(wizard)
    assert wizard.next in stops
    assert len(set(stops)) == len(stops)
