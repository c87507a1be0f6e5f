"""The Models page with its real operations, against a hub on the loopback interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.fake_runs import FakeRuns
from tests.gui.library.driving import banners
from tests.hub.loopback import Fault, LoopbackHub, repository_of, serving
from tests.real_runs import point_at_training_environment
from tests.tiny_model import build_tiny_model
from tunesmith_core import downloads, hub_token
from tunesmith_core.model_folder import hub_folder
from tunesmith_gui.context import Context
from tunesmith_gui.library.download_row import DownloadRow
from tunesmith_gui.library.model_row import ModelRow
from tunesmith_gui.library.page import LibraryPage
from tunesmith_gui.services.downloads import DownloadState

PATIENCE_MS = 60_000
"""Each operation starts a process that loads libraries."""

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"

Wait = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="is not among the launcher's packages")
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Tiny\nFor <b>tests</b>.\n")
    return folder


@pytest.fixture
def hub(tiny: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    point_at_training_environment(home)
    with serving(tiny=repository_of(tiny)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("HF_HOME", str(home / "hf"))
        monkeypatch.setattr(Path, "home", lambda: home / "person")
        yield hub


@pytest.fixture
def wait(qtbot: QtBot) -> Wait:
    return lambda until: qtbot.waitUntil(lambda: bool(until()), timeout=PATIENCE_MS)


@pytest.fixture
def page(qtbot: QtBot, context: Context, hub: LoopbackHub, wait: Wait) -> Iterator[LibraryPage]:
    context.__dict__["runs"] = FakeRuns()
    result = LibraryPage(context)
    result.resize(1080, 800)
    result.show()
    result.on_shown()
    wait(lambda: result.here.shelf is not None)
    yield result
    result.hide()
    context.downloads.shutdown()
    settle()
    result.deleteLater()
    settle()


def test_search_look_download_pause_and_continue(page: LibraryPage, hub: LoopbackHub, wait: Wait) -> None:
    page.tabs.set_value("more")
    page.more.text.setText("tiny")
    page.more.search()
    wait(lambda: page.more.results.rows)
    assert list(page.more.results.rows) == ["org/tiny"]
    sheet = page.look_at("org/tiny")
    wait(lambda: sheet.card.isVisible() and sheet.download.isEnabled())
    assert "For <b>tests</b>." in sheet.card.toPlainText()
    assert "context of 512 tokens" in sheet.facts.text()
    hub.fault = lambda name, _start: Fault("stall", 100_000) if name == "model.safetensors" else None
    sheet.download.click()
    wait(lambda: page.findChildren(DownloadRow))
    row = page.findChildren(DownloadRow)[0]
    wait(lambda: row.download.done_bytes > 100_000)
    row.pause.click()
    wait(lambda: row.download.state is DownloadState.PAUSED)
    (begun,) = downloads.unfinished()
    assert begun.done_bytes() > 100_000
    hub.fault = lambda _name, _start: None
    hub.requests.clear()
    row.resume.click()
    wait(lambda: page.findChildren(ModelRow))
    assert ("model.safetensors", 0) not in hub.requests, "it begins where it was paused"
    assert hub_folder("org/tiny").is_dir()
    page.tabs.set_value("here")
    settle()
    (model,) = page.findChildren(ModelRow)
    assert model.placed.model.name == "org/tiny"
    next(each for each in model.menu.actions() if each.text() == "Verify the files").trigger()
    wait(lambda: banners(page))
    assert "org/tiny is what the hub has" in banners(page)


def test_the_token_opens_a_gated_model(
    page: LibraryPage, hub: LoopbackHub, tiny: Path, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    monkeypatch.setattr(hub_token, "_sources", [(lambda: "".join(kept), lambda: "a keyring")])
    hub.repositories["org/gated"] = repository_of(tiny, gated="manual", token=TOKEN)
    sheet = page.look_at("org/gated")
    wait(lambda: sheet._problem is not None)
    said: Any = sheet._problem
    assert said.accessibleName() == "Access on request"
    wait(lambda: sheet.download.isEnabled())
    sheet.download.click()
    wait(lambda: [row for row in page.findChildren(DownloadRow) if row.look.isVisible()])
    kept.append(TOKEN)
    sheet = page.look_at("org/gated")
    wait(lambda: sheet.download.isEnabled())
    sheet.download.click()
    wait(lambda: page.findChildren(ModelRow))
    assert hub.tokens["localhost"] == {""}, "large files come from another host"
