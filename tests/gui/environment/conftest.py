"""Fixtures for the tests of set-up and environment: a scripted installer, and models in a known state."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject

from tunesmith_core import environments
from tunesmith_gui import tr
from tunesmith_gui.context import Context
from tunesmith_gui.environment.setup_service import SetupService

SCRIPT = Path(__file__).with_name("setup_lines.py")


class Installer:
    """The scripted installer: what it says to each command, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "scripts.json"
        self._scripts: dict[str, Any] = {}

    def say(self, command: str, *events: dict[str, Any], **manner: Any) -> None:
        """Let a command ("" for any) tell events."""
        self._scripts[command] = {"events": events, **manner}
        self._path.write_text(json.dumps(self._scripts), encoding="utf-8")

    @property
    def asked(self) -> list[str]:
        """The arguments of every call so far."""
        path = self._path.with_name("asked.txt")
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def command(self, _module: str, *arguments: str) -> list[str]:
        return [sys.executable, str(SCRIPT), str(self._path), *arguments]


@pytest.fixture
def installer(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    """Puts the scripted installer in the place of the real one; it ends well and says nothing until told."""
    del home
    result = Installer(tmp_path)
    result.say("", {"type": "result", "status": "finished", "exit_code": 0})
    result.say("probe", {"type": "result", "status": "finished", "answer": {"system": "linux", "gpus": []}})
    monkeypatch.setattr(environments, "own_command", result.command)
    return result


@pytest.fixture
def owner(qapp: object) -> QObject:
    del qapp
    return QObject()


@pytest.fixture
def quiet(context: Context) -> SetupService:
    """The window's service without any process: tests fill its model by hand."""

    class Quiet(SetupService):
        asked: list[str]

        def __init__(self) -> None:
            super().__init__()
            self.asked = []

        def _order(self, command: Any, *arguments: str, detail: str = "") -> None:
            del command, detail
            self.asked.append(" ".join(arguments))

        def refresh_files(self) -> None:
            """Reads nothing."""

    service = Quiet()
    context.__dict__["setup"] = service
    return service


@pytest.fixture
def service(qapp: object, installer: Installer) -> Iterator[SetupService]:
    """A service that talks to the scripted installer."""
    del qapp, installer
    result = SetupService()
    yield result
    result.shutdown()


@pytest.fixture
def chinese(qapp: object) -> Iterator[None]:
    """The window in Chinese."""
    del qapp
    tr.install_language("zh_CN")
    yield
    tr.install_language("en")
