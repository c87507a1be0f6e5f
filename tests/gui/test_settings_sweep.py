"""Settings, drafts, window state and index that went wrong: everything starts, with defaults and a note."""

from __future__ import annotations

import dataclasses
import logging
import time

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from pytestqt.exceptions import capture_exceptions
from pytestqt.qtbot import QtBot

from tests.gui.conftest import IdleTask, settle
from tests.settings_mutations import mutants, places
from tests.tiny_run import GOOD
from tunesmith_core import cli, files
from tunesmith_core.declared import read_section
from tunesmith_core.settings import Settings, SettingsFile
from tunesmith_gui.context import Context
from tunesmith_gui.environment.setup_service import SetupService
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.services.form_memory import FormMemory
from tunesmith_gui.services.preferences import Preferences
from tunesmith_gui.settings.page import SettingsPage
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_setup.__main__ import main as setup

LIMIT_S = 10.0

pytestmark = pytest.mark.qt_log_ignore("Trying to construct an instance of an invalid type", extend=True)
"""What Qt says of a value in the window's file that names a type Qt doesn't have. The value counts as missing."""


class Checker:
    """Reads the files as every part of the program does."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.form: NewRunPage | None = None

    def commands(self) -> None:
        """The command line: settings are shown, the good run is listed."""
        for run, words in ((setup, ["settings"]), (cli.main, ["runs"])):
            code = run(words)
            said = self._capsys.readouterr()
            assert code == 0, said.err[-300:]
            assert "Traceback" not in said.err
            assert GOOD in said.out or words == ["settings"]

    def core(self) -> None:
        """The values are sound, a damaged file is told, and it is kept beside what is written next."""
        file, path = SettingsFile(), places()[0]
        problems: list[object] = []
        read_section(Settings, dataclasses.asdict(file.values), "settings", problems)  # type: ignore[arg-type]
        assert problems == []
        try:
            readable = isinstance(files.read_json(path), dict)
        except (OSError, ValueError):
            readable = False
        assert readable or file.problem or not path.exists()
        before = path.read_bytes() if path.is_file() and file.problem else None
        file.change(confirm_close=False)
        try:
            file.save()
        except OSError:
            # A full folder in the place of the copy, for one: told, and the values hold until the window is closed.
            return
        again = SettingsFile()
        assert (again.values, again.problem) == (file.values, None)
        aside = path.with_name("settings.damaged.json")
        assert before is None or aside.read_bytes() == before

    def pages(self, context: Context) -> None:
        """The Settings page, and the draft in the form."""
        page = SettingsPage(context)
        page.grab()
        page.deleteLater()
        self.form = self.form or NewRunPage(context)
        self.form.actions_._touched = False
        self.form.actions_._take_memory(FormMemory().load())

    def window(self) -> None:
        """The whole window."""
        context = Context(Preferences(SettingsFile()))
        context.__dict__["setup"] = SetupService(IdleTask)
        window = MainWindow(context)
        assert window.width() >= window.minimumWidth()
        assert (context.preferences.problem is None) or not window.banners.isHidden()
        window.show()
        QCoreApplication.processEvents()
        window.close_without_asking()
        window.deleteLater()
        context.shutdown()
        settle()


def sweep(count: int, windows: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Try mutants everywhere but in the window, and every n-th there, too."""
    faults, checker = [], Checker(capsys)
    for number, what in enumerate(mutants(count)):
        began = time.monotonic()
        with capture_exceptions() as caught:
            try:
                if number % windows == 0:
                    checker.window()
                checker.commands()
                checker.pages(Context(Preferences(SettingsFile())))
                checker.core()
                QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
            except Exception as error:
                faults.append(f"{what}: {type(error).__name__}: {error!a:.300}")
        faults += [f"{what}: {kind.__name__}: {error}" for kind, error, _ in caught]
        if time.monotonic() - began > LIMIT_S:
            faults.append(f"{what}: takes {time.monotonic() - began:.1f} s")
    if checker.form is not None:
        checker.form.context.shutdown()
        checker.form.deleteLater()
    settle()
    return faults


@pytest.fixture
def quiet(home: object, themed: None, qtbot: QtBot, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def test_damaged_settings_stop_nothing(
    quiet: None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert sweep(60, 15, capsys) == []


@pytest.mark.long
def test_five_thousand_damaged_settings_stop_nothing(
    quiet: None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert sweep(5000, 25, capsys) == []
