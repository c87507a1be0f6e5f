"""Services of the shell: settings that save themselves, hardware readings, staying awake, diagnostics."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from PySide6.QtWidgets import QSystemTrayIcon, QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tunesmith_core import paths
from tunesmith_core.errors import RunFailure, UserError
from tunesmith_core.settings import Settings, SettingsFile
from tunesmith_gui.services import desktop as desktop_module
from tunesmith_gui.services import diagnostics
from tunesmith_gui.services.desktop import Desktop
from tunesmith_gui.services.hardware import Gpu, HardwareService, Probe, Reading
from tunesmith_gui.services.preferences import Preferences
from tunesmith_gui.shell.main_window import MainWindow

READING = Reading((), 12.0, 16 << 30, 4 << 30)
GPU = Gpu(0, "RTX 3060", 6 << 30, 5 << 30, 97, 71, 98.4)


class TestPreferences:
    def test_change_is_at_once_and_saved_in_the_background(self, home: Path, qtbot: QtBot) -> None:
        preferences = Preferences(SettingsFile())
        with qtbot.waitSignal(preferences.changed):
            preferences.change(theme="dark")
        assert preferences.values.theme == "dark"
        settle()
        assert SettingsFile().values.theme == "dark"

    def test_what_another_process_changed_is_announced(self, home: Path, qtbot: QtBot) -> None:
        preferences = Preferences(SettingsFile())
        other = SettingsFile()
        other.change(language="zh_CN")
        other.save()
        preferences.change(theme="dark")
        with qtbot.waitSignal(preferences.changed):
            settle()
        assert (preferences.values.language, preferences.values.theme) == ("zh_CN", "dark")

    @pytest.mark.parametrize("has_file", [True, False])
    def test_what_the_command_line_changes_takes_effect_at_once(
        self, home: Path, qtbot: QtBot, has_file: bool
    ) -> None:
        if has_file:
            SettingsFile().save()
        preferences = Preferences(SettingsFile())
        for language in ("zh_CN", "en"):
            other = SettingsFile()
            other.change(language=language)
            with qtbot.waitSignal(preferences.changed):
                other.save()
            assert preferences.values.language == language
        preferences.change(theme="dark")
        settle()
        there = SettingsFile().values
        assert (there.language, there.theme) == ("en", "dark")

    def test_same_value_again_is_silent(self, home: Path, qtbot: QtBot) -> None:
        preferences = Preferences(SettingsFile())
        with qtbot.assertNotEmitted(preferences.changed):
            preferences.change(theme="system")
        assert not (home / "config").exists()

    def test_wrong_value_is_refused(self, home: Path) -> None:
        with pytest.raises(UserError):
            Preferences(SettingsFile()).change(theme="pink")

    def test_failure_to_save_is_told_and_the_value_holds(self, home: Path, qtbot: QtBot) -> None:
        (home / "config").write_text("a file where the folder should be", encoding="utf-8")
        preferences = Preferences(SettingsFile(home / "config" / "settings.json"))
        with qtbot.waitSignal(preferences.save_failed) as blocker:
            preferences.change(theme="dark")
        assert blocker.args is not None
        assert preferences.values.theme == "dark"


class TestHardware:
    def test_readings_come_while_watched_and_from_another_thread(self, qtbot: QtBot) -> None:
        threads: list[int] = []

        def read() -> Reading:
            threads.append(threading.get_ident())
            return READING

        hardware = HardwareService(read)
        with qtbot.waitSignal(hardware.changed):
            hardware.watch(True)
        qtbot.waitUntil(lambda: hardware.latest is READING)
        hardware.watch(False)
        hardware.shutdown()
        assert threading.get_ident() not in threads

    def test_unwatched_reads_nothing(self) -> None:
        calls: list[int] = []
        hardware = HardwareService(lambda: calls.append(1) or READING)
        hardware.shutdown()
        assert calls == []

    def test_probe_reads_this_computer(self) -> None:
        reading = Probe().read()
        assert 0 < reading.memory_used_bytes <= reading.memory_total_bytes
        assert 0 <= reading.cpu_percent <= 100

    def test_gpu_that_does_not_tell_everything_is_still_shown(self) -> None:
        class Refused(Exception):
            pass

        def refuse(*_arguments: object) -> None:
            raise Refused

        probe = Probe()
        probe._nvml = SimpleNamespace(
            NVMLError=Refused,
            NVML_TEMPERATURE_GPU=0,
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetMemoryInfo=lambda _handle: SimpleNamespace(total=6 << 30, used=1 << 30),
            nvmlDeviceGetName=lambda _handle: b"RTX 3060",
            nvmlDeviceGetPowerUsage=refuse,
            nvmlDeviceGetUtilizationRates=lambda _handle: SimpleNamespace(gpu=55),
            nvmlDeviceGetTemperature=refuse,
        )
        assert probe.read().gpus == (Gpu(0, "RTX 3060", 6 << 30, 1 << 30, 55, None, None),)
        probe._nvml.nvmlDeviceGetCount = refuse
        assert probe.read().gpus == ()


class TestDesktop:
    def test_sleep_lock_is_taken_once_and_given_back(self, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> None:
        taken: list[int] = []

        def take(_reason: str) -> int:
            taken.append(os.open(os.devnull, os.O_RDONLY))
            return taken[-1]

        monkeypatch.setattr(desktop_module, "_sleep_lock", take)
        desktop = Desktop()
        desktop.keep_awake(True, "a run")
        desktop.keep_awake(True, "a run")
        settle()
        assert len(taken) == 1
        os.fstat(taken[0])
        desktop.shutdown()
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(taken[0])

    def test_lock_that_comes_too_late_is_given_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        go = threading.Event()
        taken: list[int] = []

        def take(_reason: str) -> int:
            go.wait(5)
            taken.append(os.open(os.devnull, os.O_RDONLY))
            return taken[-1]

        monkeypatch.setattr(desktop_module, "_sleep_lock", take)
        desktop = Desktop()
        desktop.keep_awake(True, "a run")
        desktop.keep_awake(False, "")
        go.set()
        settle()
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(taken[0])

    def test_no_bus_is_no_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent")
        desktop = Desktop()
        desktop.keep_awake(True, "a run")
        settle()
        desktop.shutdown()

    def test_notify_without_a_tray_is_no_error(self, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", staticmethod(lambda: False))
        window = QWidget()
        qtbot.addWidget(window)
        Desktop().notify("Finished", "support-01", window)


class TestDiagnostics:
    def test_report_names_what_helps_and_hides_what_is_private(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        person = home / "annabel"
        monkeypatch.setenv("USERPROFILE" if os.name == "nt" else "HOME", str(person))
        paths.logs_dir().mkdir(parents=True)
        lines = [f"line {number}" for number in range(500)] + [f"read {person}/secret.txt for ann@example.org"]
        (paths.logs_dir() / "window.log").write_text("\n".join(lines), encoding="utf-8")
        error = RunFailure("cuda-oom", "full at step 7").with_context("Traceback: boom")
        reading = Reading((GPU,), 1.0, 16 << 30, 4 << 30)
        text = diagnostics.report(Settings(theme="dark"), reading, error=error, details="spec: {}")
        for part in ("cuda-oom", "full at step 7", "boom", "RTX 3060, 5.0 / 6.0 GiB", '"theme": "dark"', "spec: {}"):
            assert part in text
        assert "ann@example.org" not in text
        assert "annabel" not in text
        assert "line 499" in text
        assert "line 250" not in text, "the log's end is enough"

    def test_report_without_anything_is_short(self, home: Path) -> None:
        text = diagnostics.report(Settings(), None)
        assert "settings: {}" in text
        assert "not read yet" in text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows always has a file manager")
class TestReveal:
    @pytest.fixture
    def launch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], bool]:
        monkeypatch.setattr(desktop_module, "_LAUNCH_S", 0.5)

        def launch_by(script: str) -> bool:
            launcher = tmp_path / "xdg-open"
            launcher.write_text(f"#!/bin/sh\n{script}\n")
            launcher.chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
            desktop = Desktop()
            opened = desktop.reveal(tmp_path)
            for process in desktop._launched:
                process.kill()
                process.wait()
            return opened

        return launch_by

    def test_launcher_is_given_the_folder(self, launch: Callable[[str], bool], tmp_path: Path) -> None:
        assert launch('echo "$1" > "$0.said"')
        assert (tmp_path / "xdg-open.said").read_text() == f"{tmp_path}\n"

    def test_launcher_that_fails_is_noticed(self, launch: Callable[[str], bool]) -> None:
        assert not launch("exit 3")

    def test_launcher_that_stays_has_worked(self, launch: Callable[[str], bool]) -> None:
        assert launch("exec sleep 60")

    def test_desktop_without_a_launcher(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert not Desktop().reveal(tmp_path)


def test_a_setting_that_is_not_saved_says_so(window: MainWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: SettingsFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "settings.json")

    monkeypatch.setattr(SettingsFile, "save", full)
    window.context.preferences.change(keep_awake=False)
    settle()
    assert window.toast.label.text() == (
        "The setting was not saved. It holds until you close Tunesmith.\nsettings.json: no space is left on the disk."
    )
