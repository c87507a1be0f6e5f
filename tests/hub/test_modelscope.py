"""ModelScope as the hub: the same downloads from its addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub.conftest import QUICK, Journal
from tests.hub.loopback import COMMIT, Fault, LoopbackHub, repository_of
from tunesmith_core import downloads
from tunesmith_core.environments import MODELSCOPE_VARIABLE
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import hub_folder
from tunesmith_engine.hub.client import Hub, chosen_hub
from tunesmith_engine.hub.download import download
from tunesmith_engine.hub.modelscope import ModelScope

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def at_modelscope(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODELSCOPE_VARIABLE, hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def test_the_settings_choose_the_hub(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen_hub(retry=QUICK)
    assert (type(found), found.endpoint) == (ModelScope, hub.endpoint)
    monkeypatch.delenv(MODELSCOPE_VARIABLE)
    assert type(chosen_hub(retry=QUICK)) is Hub


def test_facts_and_card(hub: LoopbackHub) -> None:
    model = chosen_hub(retry=QUICK).facts("org/whole")
    assert (model.id, model.commit, model.page) == ("org/whole", COMMIT, f"{hub.endpoint}/models/org/whole")
    assert (model.licence, model.context_length, model.model_type, model.downloads) == ("apache-2.0", 512, "llama", 7)
    assert all(file.sha256 for file in model.files)
    assert "figures" not in {file.path for file in model.files}
    assert chosen_hub(retry=QUICK).card("org/whole").endswith("# Tiny\n")
    assert chosen_hub(retry=QUICK).card("org/sharded") == ""


def test_a_search(hub: LoopbackHub) -> None:
    found = chosen_hub(retry=QUICK)
    assert [each.id for each in found.search("shard")] == ["org/sharded"]
    assert len(found.search(licence="apache-2.0", limit=1)) == 1
    assert found.search(licence="mit") == found.search(smallest=1) == []
    hub.repositories = {}
    assert found.search() == []


def test_an_answer_of_something_else(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.hub.loopback.modelscope_json", lambda *_: {"name": "without an id"})
    with pytest.raises(TunesmithError) as caught:
        chosen_hub(retry=QUICK).search()
    assert caught.value.code == "hub-answer-wrong"


def test_a_download_goes_on_where_it_was_cut(hub: LoopbackHub, whole_model: Path, journal: Journal) -> None:
    faults = iter([Fault("cut", 30_000), Fault("cut", 50_000)])
    hub.fault = lambda name, _start: next(faults, None) if name == "model.safetensors" else None
    folder = download(journal, "org/whole", retry=QUICK)
    assert (folder / "model.safetensors").read_bytes() == (whole_model / "model.safetensors").read_bytes()
    starts = [start for name, start in hub.requests if name == "model.safetensors"]
    assert starts == [0, 30_000, 80_000], "its parts are called whole, and are taken as the parts that they are"
    assert list(downloads.changed_files(folder, downloads.read_record(folder))) == []  # type: ignore[arg-type]
    assert hub.tokens["127.0.0.1"] == {""}, "the token is of another hub"


@pytest.mark.parametrize(
    ("hub_id", "revision", "code"),
    [("org/nothing", "", "hub-not-found"), ("org/whole", "v9", "hub-not-found"), ("org/gated", "", "hub-gated-401")],
)
def test_what_is_refused(
    hub_id: str, revision: str, code: str, hub: LoopbackHub, whole_model: Path, journal: Journal
) -> None:
    hub.repositories["org/gated"] = repository_of(whole_model, gated="manual")
    with pytest.raises(TunesmithError) as caught:
        download(journal, hub_id, revision, retry=QUICK)
    assert caught.value.code == code
    assert list(downloads.unfinished()) == []


def test_a_wrong_hash_is_refused(hub: LoopbackHub, journal: Journal) -> None:
    hub.repositories["org/whole"].wrong_hash = "model.safetensors"
    with pytest.raises(TunesmithError) as caught:
        download(journal, "org/whole", retry=QUICK)
    assert caught.value.code == "download-damaged"
    assert not hub_folder("org/whole").exists()
