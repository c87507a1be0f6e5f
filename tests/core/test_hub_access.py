"""Asking a hub: the token and who gets it, and the operations behind the functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import environments, hub, hub_token, paths, redact
from tunesmith_core.errors import UserError
from tunesmith_core.hub_repository import HubModel
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kinds.hub import DOWNLOAD, FACTS, SEARCH, HubSpec, SearchSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.spec_sections import ModelSpec

TOKEN = "secret-of-a-person"


@pytest.fixture(autouse=True)
def nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token of whoever runs the tests."""
    for name in ("HF_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setattr(hub_token, "_sources", [])


def test_a_token_of_the_surroundings_the_window_or_a_log_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (hub_token.token(), hub_token.variables()) == ("", {})
    (home / "hf").mkdir()
    (home / "hf" / "token").write_text(f"{TOKEN}\n")
    assert hub_token.token() == TOKEN
    assert str(hub_token.found().place).endswith(f"in {home / 'hf' / 'token'}.")  # type: ignore[union-attr]
    hub_token.add_source(lambda: "of the keyring", lambda: "Secret Service")
    found = hub_token.found()
    assert found is not None
    assert (found.token, str(found.place)) == ("of the keyring", "It is stored in Secret Service.")
    assert "of the keyring" not in repr(found)
    monkeypatch.setenv("HF_TOKEN", "of the shell")
    assert hub_token.variables() == {"HF_TOKEN": "of the shell"}
    assert str(hub_token.found().place) == "It is in the variable HF_TOKEN."  # type: ignore[union-attr]
    assert redact.redact(f"a {TOKEN} b of the keyring") == "a <secret> b <secret>"
    monkeypatch.setenv("HF_TOKEN_PATH", str(home / "nowhere"))
    monkeypatch.delenv("HF_TOKEN")
    hub_token._sources.clear()
    assert hub_token.token() == ""


def test_where_huggingface_keeps_things(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hub_token.hub_home() == tmp_path / "huggingface"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert hub_token.hub_home() == tmp_path / ".cache" / "huggingface"


def test_only_who_asks_a_hub_gets_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for kind in (SEARCH, FACTS, DOWNLOAD):
        assert kind.environment(HubSpec("org/name"))["HF_TOKEN"] == TOKEN
    assert "HF_TOKEN" not in environments.engine_environment(downloads=True)


class Conducted:
    """Stands for the runner: notes what it is asked for."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []

    def __call__(self, kind: Any, spec: Any, **_more: Any) -> Outcome:
        self.asked.append((kind.name, spec))
        return Outcome(OperationState.FINISHED, 0, self.answer)


def test_functions_are_operations(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    model = HubModel("org/name", "c" * 40, "page")
    monkeypatch.setattr(hub, "conduct", conducted := Conducted([model.to_dict()]))
    assert hub.search(SearchSpec("name")) == [model]
    conducted.answer = model.to_dict()
    assert hub.look_up("org/old", "v1").folder == paths.models_dir() / "org--old@v1"
    conducted.answer = str(home)
    assert hub.get("org/name") == home
    assert conducted.asked == [
        ("search-hub", SearchSpec("name")),
        ("hub-facts", HubSpec("org/old", "v1")),
        ("download", HubSpec("org/name")),
    ]
    for text in ("name", "org/..name", "https://x/y"):
        with pytest.raises(UserError, match="not a hub id"):
            hub.get(text)


def test_a_base_model_is_fetched_when_it_is_not_here(monkeypatch: pytest.MonkeyPatch, model_folder: Path) -> None:
    monkeypatch.setattr(hub, "conduct", conducted := Conducted(""))
    hub.fetch_base_model(ModelSpec(path=str(model_folder)), print)
    assert conducted.asked == []
    hub.fetch_base_model(ModelSpec(path="org/name", revision="v1"), print)
    assert conducted.asked == [("download", HubSpec("org/name", "v1"))]
