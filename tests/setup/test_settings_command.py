"""Settings are shown and changed without a window; passwords are never shown."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tunesmith_core.cli import SETUP_COMMANDS
from tunesmith_core.settings import SettingsFile, iter_settings
from tunesmith_setup.__main__ import COMMANDS, main


def test_the_command_is_reachable_from_both_command_lines() -> None:
    assert "settings" in COMMANDS
    assert "settings" in SETUP_COMMANDS


def test_every_setting_is_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    shown = capsys.readouterr().out
    for name, _type, _default, declaration in iter_settings():
        assert f"{name}=" in shown
        assert declaration.meaning in shown
    assert "(changed)" not in shown
    assert not SettingsFile().path.exists()


def test_changes_last_and_show_no_password(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("http://me:hunter2@proxy.example:8080\n"))
    assert main(["settings", "proxy=-", "keep_awake=false", "font_scale_percent=120", "theme=dark"]) == 0
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    assert "proxy=http://<credentials>@proxy.example:8080  (changed)" in shown
    values = SettingsFile().values
    assert values.proxy == "http://me:hunter2@proxy.example:8080"
    assert (values.keep_awake, values.font_scale_percent, values.theme) == (False, 120, "dark")
    assert main(["settings", "proxy="]) == 0
    assert SettingsFile().values.proxy == ""


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("proxy", "'proxy' is not NAME=VALUE"),
        ("colour=red", "settings.colour is not a setting"),
        ("font_scale_percent=big", "must be a whole number"),
        ("keep_awake=1", "must be true or false"),
        ("package_index=ftp://me:hunter2@x", "must begin with https://"),
    ],
)
def test_wrong_changes_are_refused(home: Path, capsys: pytest.CaptureFixture[str], argument: str, words: str) -> None:
    assert main(["settings", "theme=dark", argument]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "hunter2" not in told
    assert not SettingsFile().path.exists()


def test_where_the_token_of_the_hub_is(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret-of-a-person")
    assert main(["settings"]) == 0
    shown = capsys.readouterr().out
    assert "Access token of the model hub: It is in the variable HF_TOKEN." in shown
    assert "secret" not in shown


@pytest.mark.parametrize(("language", "words"), [("zh_CN", "访问令牌"), ("en", "Access token of the model hub")])
def test_a_changed_language_is_spoken_at_once(home: Path, language: str, words: str) -> None:
    file = SettingsFile()
    file.change(language="en" if language == "zh_CN" else "zh_CN")
    file.save()
    command = [sys.executable, "-X", "utf8", "-m", "tunesmith_setup", "settings", f"language={language}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    assert words in done.stdout
