"""The hub in the settings: mirror, offline switch, and where the token is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tunesmith_core import hub_token as core
from tunesmith_core.errors import TunesmithError
from tunesmith_core.settings import SettingsFile
from tunesmith_gui.context import Context
from tunesmith_gui.services import hub_token
from tunesmith_gui.settings.page import SettingsPage
from tunesmith_gui.widgets.token_dialog import TokenDialog


@pytest.fixture
def ring(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A keyring that holds at most one token."""
    kept: list[str] = []

    def save(token: str) -> None:
        kept[:] = [token] if token else []

    def load() -> str:
        return kept[0] if kept else ""

    monkeypatch.setattr(hub_token, "save", save)
    monkeypatch.setattr(hub_token, "load", load)
    monkeypatch.setattr(core, "_sources", [(load, lambda: "Secret Service")])
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    return kept


@pytest.fixture
def page(qtbot: QtBot, context: Context, ring: list[str]) -> Iterator[SettingsPage]:
    result = SettingsPage(context)
    result.resize(1000, 800)
    result.show()
    result.on_shown()
    settle()
    yield result
    result.hide()
    result.deleteLater()
    settle()


def test_mirror_and_offline_switch_are_saved(page: SettingsPage) -> None:
    page._texts["hub_endpoint"].setText("https://mirror.example")
    page._texts["hub_endpoint"].editingFinished.emit()
    page._boxes["offline"].setChecked(True)
    settle()
    saved = SettingsFile().values
    assert (saved.hub_endpoint, saved.offline) == ("https://mirror.example", True)


def test_the_way_to_a_setting_ends_at_it(page: SettingsPage, qtbot: QtBot) -> None:
    page.on_shown("offline")
    settle()
    assert page.window().focusWidget() is page._boxes["offline"]
    assert not page._boxes["offline"].visibleRegion().isEmpty()


def test_a_token_is_entered_shown_by_its_place_and_removed(page: SettingsPage, ring: list[str], qtbot: QtBot) -> None:
    field = page.token
    assert field.state.text() == "None. Public models need no token."
    assert not field.remove.isVisible()
    field.enter.click()
    (dialog,) = [each for each in QApplication.topLevelWidgets() if isinstance(each, TokenDialog)]
    dialog.edit.setText("hf_secret")
    dialog.save.click()
    qtbot.waitUntil(lambda: field.state.text() == "It is stored in Secret Service.")
    assert ring == ["hf_secret"]
    field.remove.click()
    qtbot.waitUntil(lambda: field.state.text() == "None. Public models need no token.")
    assert ring == []


def test_a_token_of_the_surroundings_is_not_ours_to_remove(page: SettingsPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    page.on_shown()
    settle()
    assert page.token.state.text() == "It is in the variable HF_TOKEN."
    assert not page.token.remove.isVisible()


def test_a_keyring_that_refuses_is_told(page: SettingsPage, ring: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ring.append("hf_secret")
    page.on_shown()
    settle()
    said: list[tuple[str, str]] = []
    page.notify.connect(lambda *words: said.append(words))

    def refuse(_token: str) -> None:
        raise TunesmithError("keyring-missing", "The keyring refused the token.")

    monkeypatch.setattr(hub_token, "save", refuse)
    page.token.remove.click()
    settle()
    assert said == [("error", "The keyring refused the token.")]
