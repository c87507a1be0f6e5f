"""An export becomes a repository: private, whole, without sending anything twice or replacing anything of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from tests.hub.conftest import QUICK, Journal
from tests.hub.loopback import LARGE_BYTES, LoopbackHub, Repository, sha256
from tests.hub.loopback_uploads import TOKEN
from tests.real_runs import point_at_training_environment
from tests.run_adapter import make_adapter
from tunesmith_core import cli
from tunesmith_core.environments import MODELSCOPE_VARIABLE
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kinds.export import EXPORT
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.hub.upload import upload

BASE = "/home/somebody/models/Tiny"
CARD = f"---\nlicense: gemma\nbase_model: {BASE}\nbase_model_relation: finetune\n---\n# Mine\n\nBase model: {BASE}\n"


@pytest.fixture(autouse=True)
def token(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A folder as an export leaves it."""
    folder = tmp_path / "export"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"model-{number}.safetensors").write_bytes(bytes([number]) * (LARGE_BYTES + number))
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": BASE}), encoding="utf-8")
    (folder / ".hidden").write_text("no")
    return folder


def push(
    hub: LoopbackHub, folder: Path, hub_id: str = "me/bot", *, public: bool = False, **more: Any
) -> dict[str, Any]:
    scratch = folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    journal = more.pop("journal", Journal())
    return upload(journal, folder, hub_id, scratch, public=public, endpoint=hub.endpoint, retry=QUICK, **more)


def refused(hub: LoopbackHub, folder: Path, code: str, words: str, **more: Any) -> None:
    with pytest.raises(TunesmithError) as caught:
        push(hub, folder, **more)
    assert caught.value.code == code, caught.value.message
    assert words in caught.value.message


def test_an_export_becomes_a_private_repository(hub: LoopbackHub, exported: Path, journal: Journal) -> None:
    told = push(hub, exported, journal=journal)
    assert told == {"id": "me/bot", "url": f"{hub.endpoint}/me/bot", "private": True}
    repository = hub.repositories["me/bot"]
    assert repository.extra["private"] is True
    names = {"model-1.safetensors", "model-2.safetensors", "README.md", "adapter_config.json", ".gitattributes"}
    assert set(repository.files) == names
    for number in (1, 2):
        name = f"model-{number}.safetensors"
        assert repository.files[name] == (exported / name).read_bytes()
    (plan,) = journal.of("plan")
    last = journal.of("progress")[-1]
    assert journal.events[0][0] == "plan", "the size is told before anything is sent"
    assert last["done_bytes"] == last["total_bytes"] == plan["total_bytes"] > 2 * LARGE_BYTES
    assert len(journal.of("progress")) < 500


def test_the_card_goes_along_and_names_no_folder_of_this_computer(hub: LoopbackHub, exported: Path) -> None:
    push(hub, exported, public=True)
    files = hub.repositories["me/bot"].files
    assert hub.repositories["me/bot"].extra["private"] is False
    assert files["README.md"].decode() == "---\nlicense: gemma\n---\n# Mine\n\nBase model: Tiny\n"
    assert json.loads(files["adapter_config.json"]) == {"base_model_name_or_path": "Tiny"}
    assert (exported / "README.md").read_text(encoding="utf-8") == CARD, "the export itself stays as it is"
    (exported / "README.md").write_text(CARD.replace(BASE, "org/tiny"), encoding="utf-8")
    push(hub, exported, "me/other")
    assert b"base_model: org/tiny\n" in hub.repositories["me/other"].files["README.md"]


def test_a_cut_connection_is_taken_up_by_a_second_try(hub: LoopbackHub, exported: Path) -> None:
    hub.uploads.cuts = 1
    push(hub, exported)
    assert list(hub.uploads.puts.values()) == [1, 1]
    assert len(hub.repositories["me/bot"].files) == 5


def test_what_has_arrived_is_not_sent_again(hub: LoopbackHub, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sha256((exported / "model-1.safetensors").read_bytes())
    hub.uploads.stored[first] = (exported / "model-1.safetensors").read_bytes()
    hub.uploads.refused = 1
    refused(hub, exported, "hub-write-refused", "write to me/bot")
    assert set(hub.repositories["me/bot"].files) == {".gitattributes"}, "nothing is shown before all is there"
    assert push(hub, exported)["private"] is True
    assert push(hub, exported)["url"].endswith("/me/bot"), "the same once more changes nothing"
    assert first not in hub.uploads.puts
    assert list(hub.uploads.puts.values()) == [1]


def test_without_the_right_to_write_nothing_is_made(
    hub: LoopbackHub, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(hub, exported, "hub-write-refused", "write to others/bot", hub_id="others/bot")
    monkeypatch.setenv("HF_TOKEN", "hf_readreadreadreadreadreadrea")
    refused(hub, exported, "hub-write-refused", "write to me/bot")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN_PATH", str(exported / "none"))
    refused(hub, exported, "hub-write-refused", "there is no access token")
    assert "me/bot" not in hub.repositories


def test_a_name_that_is_taken_is_left_alone(hub: LoopbackHub, exported: Path) -> None:
    others = {"model-1.safetensors": b"other", "notes.txt": b"x"}
    hub.repositories["me/bot"] = Repository(others, extra={"private": True})
    refused(hub, exported, "hub-name-taken", "model-1.safetensors, notes.txt")
    assert hub.repositories["me/bot"].files["model-1.safetensors"] == b"other"
    hub.repositories["me/open"] = Repository({".gitattributes": b""})
    refused(hub, exported, "hub-name-taken", "is public", hub_id="me/open")
    assert push(hub, exported, "me/open", public=True)["private"] is False
    assert hub.uploads.puts


def test_nothing_goes_elsewhere_than_to_the_hub_that_is_chosen(
    hub: LoopbackHub, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MODELSCOPE_VARIABLE, "https://modelscope.example")
    refused(hub, exported, "hub-write-refused", "ModelScope")
    assert "me/bot" not in hub.repositories


def test_offline_is_told(hub: LoopbackHub, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused(hub, exported, "hub-offline", "offline switch")


def test_the_command_exports_and_uploads(
    hub: LoopbackHub, exported: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    point_at_training_environment(home)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    # A test before that has opened a model in this process has gone offline.
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    run = create_run(RunSpec(name="mine"))
    make_adapter(run.adapter_path)
    answer = {"path": str(exported), "bytes": 50_000, "existed": False, "licence": "unknown"}
    answer |= {"proof": None, "commands": []}

    def exporting(kind: Any, spec: Any, **more: Any) -> Outcome:
        return Outcome(OperationState.FINISHED, 0, answer) if kind is EXPORT else conduct(kind, spec, **more)

    monkeypatch.setattr("tunesmith_core.operations.command.conduct", exporting)
    assert cli.main(["export", run.id, "--push", "me/bot"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert "uploading 49 KiB to me/bot, private" in told
    assert told[-1] == f"On the hub, private: {hub.endpoint}/me/bot"
    assert len(hub.repositories["me/bot"].files) == 5
    assert cli.main(["export", run.id, "--push", "me"]) == 2
    assert "me is not a hub id" in capsys.readouterr().err
