"""The models on this computer, on the command line: list, verify, remove, search and get."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import cli, downloads, files, hub, hub_token, model_library, paths, trash
from tunesmith_core.base_model import BaseModel
from tunesmith_core.checkpoint_manifest import CONTENT, sealed
from tunesmith_core.cli_models import parameters
from tunesmith_core.downloads import Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware, detect_hardware
from tunesmith_core.hub_fits import usual_card
from tunesmith_core.hub_repository import HubFile, HubModel
from tunesmith_core.model_folder import base_folder, deleted_base, restore_base
from tunesmith_core.protocol import Event
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]


@pytest.fixture(autouse=True)
def person(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without models of other programs."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "person")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "person"


@pytest.fixture
def downloaded(home: Path, model_folder: Path) -> Path:
    """A whole model from a hub."""
    entries = tuple(
        HubFile(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(model_folder.iterdir())
    )
    record = Download(HubModel("org/name", "c" * 40, "page", entries, licence="mit"), "org/name")
    config = model_folder / "config.json"
    record.folder.parent.mkdir(exist_ok=True)
    model_folder.rename(record.folder)
    record.save(record.folder)
    assert config.name in {file.path for file in record.files}
    return record.folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """Return exit code and JSON answer of a command."""
    code = cli.main(["models", *words, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


def test_a_list_of_everything(downloaded: Path, person: Path, make_spec: Make, capsys: Any) -> None:
    (paths.models_dir() / "broken").mkdir()
    record = downloads.read_record(downloaded)
    assert record is not None
    begun = Download(record.model, "org/begun")
    begun.staging.mkdir()
    begun.save(begun.staging)
    spec = make_spec("a")
    spec.model.path = "org/name"
    used = create_run(spec)
    code, answer = run(capsys, "list")
    assert code == 0
    broken, whole = answer["models"]
    assert (broken["name"], broken["problem"]["code"]) == ("broken", "model-files-missing-or-corrupt")
    assert (whole["name"], whole["kept_by"], whole["runs"]) == ("org/name", "tunesmith", [used.id])
    assert "lora" in whole["fits"]
    assert [each["id"] for each in answer["unfinished"]] == ["org/begun"]
    assert cli.main(["models", "list"]) == 0
    captured = capsys.readouterr()
    assert "org/name" in captured.out
    assert "Not whole yet: org/begun, 0 B of" in captured.err
    assert "broken: " in captured.err


def test_another_owner_of_a_name(downloaded: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    model = downloads.read_record(downloaded).model  # type: ignore[union-attr]
    assert Download(model, "ORG/renamed").other_owner == ""
    monkeypatch.setattr(hub, "look_up", lambda *_words: Download(model, "earlier/name"))
    assert cli.main(["models", "get", "earlier/name", "--dry-run"]) == 2
    said = capsys.readouterr()
    assert "earlier/name now leads to org/name, which belongs to org." in said.err
    assert said.out == ""


def test_an_empty_list(capsys: Any) -> None:
    assert run(capsys, "list") == (0, {"models": [], "unfinished": []})
    assert cli.main(["models", "list"]) == 0
    assert "There are no models yet." in capsys.readouterr().err


def test_models_of_other_programs_are_seen(person: Path, tmp_path: Path, model_folder: Path) -> None:
    snapshot = tmp_path / "hf" / "hub" / "models--org--cached" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    model_folder.rename(snapshot)
    (tmp_path / "hf" / "hub" / "models--org--refs-only").mkdir()
    studio = person / ".lmstudio" / "models" / "org" / "name"
    studio.mkdir(parents=True)
    (studio / "a.gguf").write_bytes(b"GGUF")
    ollama = person / ".ollama" / "models"
    manifest = ollama / "manifests" / "registry" / "library" / "qwen" / "4b"
    manifest.parent.mkdir(parents=True)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:ab"}]
    manifest.write_text(json.dumps({"layers": layers}))
    manifest.with_name("bad").write_text("{")
    layers[0]["digest"] = "../manifests/registry/library/qwen/4b"
    manifest.with_name("climbing").write_text(json.dumps({"layers": layers}))
    (ollama / "blobs").mkdir()
    (ollama / "blobs" / "sha256-ab").write_bytes(b"GGUFGGUF")
    found = list(model_library.foreign_models())
    assert [(each.keeper, each.name) for each in found] == [
        ("huggingface", "org/cached"),
        ("lm-studio", "org/name/a.gguf"),
        ("ollama", "qwen:4b"),
    ]
    assert (found[0].card is not None, found[2].size_bytes) == (True, 8)


def test_other_programs_may_keep_their_models_elsewhere(
    person: Path, tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "cache" / "models--org--cached" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    model_folder.rename(snapshot)
    ollama = tmp_path / "ollama"
    manifest = ollama / "manifests" / "registry" / "library" / "qwen" / "4b"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:ab"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    (ollama / "blobs").mkdir()
    (ollama / "blobs" / "sha256-ab").write_bytes(b"GGUF")
    assert list(model_library.foreign_models()) == []
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OLLAMA_MODELS", str(ollama))
    assert [each.name for each in model_library.foreign_models()] == ["org/cached", "qwen:4b"]


def test_a_device_for_the_fit() -> None:
    found = detect_hardware()
    device = model_library.training_hardware(iter(found))
    assert device.name in [each.name for each in found]
    assert device.free_bytes == device.total_bytes, "a badge does not jump with what else is running"


def test_without_a_gpu_only_lora_is_shown() -> None:
    card = usual_card(135_000_000)
    processor = Hardware("cpu", "x86", 16 << 30, 16 << 30, 16 << 30, 16 << 30)
    assert model_library.fits(card, processor) == {"lora": "fits"}
    assert "16.0 GiB. QLoRA trains on a processor too, but slowly" in model_library.fits_note(processor)
    gpu = Hardware("cuda", "RTX 3060", 12 << 30, 12 << 30, 16 << 30, 16 << 30, 0, (8, 6))
    assert model_library.fits(card, gpu).keys() == {"qlora", "lora"}
    assert model_library.fits_note(gpu) == "“Fits” compares a model with the total memory of RTX 3060, 12.0 GiB."


def test_folders_of_earlier_runs_are_those_that_are_there(model_folder: Path, tmp_path: Path) -> None:
    named = {"c": str(model_folder), "b": str(tmp_path / "gone"), "a": "org/name", "0": str(model_folder)}
    assert model_library.folders_of_runs(named) == [str(model_folder)]


def test_verify_and_what_changed(downloaded: Path, capsys: Any) -> None:
    assert run(capsys, "verify", "org/name")[1]["changed"] == []
    assert cli.main(["models", "verify", str(downloaded)]) == 0
    assert "files are as the hub has them" in capsys.readouterr().out
    (downloaded / "config.json").write_text("{}")
    assert cli.main(["models", "verify", "org/name"]) == 2
    assert "config.json" in capsys.readouterr().err
    code, answer = run(capsys, "verify", "org/name")
    assert (code, answer["changed"]) == (2, ["config.json"])
    (downloaded / downloads.RECORD).unlink()
    assert cli.main(["models", "verify", downloaded.name]) == 2
    err = capsys.readouterr().err
    assert f"{downloaded.name} was not downloaded by Tunesmith, so its hashes are not known." in err
    assert ("command" in err, "can't be verified" in err) == (False, True)
    assert cli.main(["models", "verify", "other"]) == 2
    assert "There is no model named other" in capsys.readouterr().err


def test_a_model_that_runs_need_stays(downloaded: Path, make_spec: Make, capsys: Any) -> None:
    spec = make_spec("a")
    spec.model.path = str(downloaded)
    used = create_run(spec)
    other = make_spec("b")
    other.model.path = str(paths.models_dir() / "gone")
    create_run(other)
    assert cli.main(["models", "remove", "org/name"]) == 2
    assert f"is the base model of 1 run: {used.id}" in capsys.readouterr().err
    assert run(capsys, "remove", "org/name", "--force")[1]["runs"] == [used.id]
    assert not downloaded.exists()
    trash.restore(trash.find(downloaded.name))
    assert cli.main(["models", "remove", "org/name", "--force"]) == 0
    assert f"tunesmith restore {trash.find(downloaded.name).id}" in capsys.readouterr().err


def test_a_run_is_no_user_of_another_model_that_lies_in_its_models_place(downloaded: Path, make_spec: Make) -> None:
    spec = make_spec("a")
    spec.model.path = str(downloaded)
    used = create_run(spec)
    folder = used.checkpoints_path / "step-000002"
    folder.mkdir(parents=True)
    notes = BaseModel(downloaded, None).to_dict()
    manifest = {"version": 1, "step": 2, "files": {}, "fingerprint": {}, "spec": spec.to_dict(), "base_model": notes}
    manifest["files"] = {name: {"bytes": 0, "sha256": ""} for name in CONTENT}
    files.atomic_write_json(folder / "MANIFEST.json", sealed(manifest))
    named = {used.id: str(downloaded)}
    assert model_library.users(model_library.shelved(downloaded, "tunesmith"), named) == [used.id]
    config = downloaded / "config.json"
    config.write_text(config.read_text() + " ")
    assert model_library.users(model_library.shelved(downloaded, "tunesmith"), named) == []
    config.unlink()
    assert model_library.users(model_library.shelved(downloaded, "tunesmith"), named) == []


@pytest.mark.parametrize("by_id", [False, True])
def test_a_deleted_base_model_is_told_with_the_way_back(downloaded: Path, by_id: bool) -> None:
    text = "org/name" if by_id else str(downloaded)
    deleted = model_library.remove(model_library.find("org/name"))
    with pytest.raises(TunesmithError) as caught:
        base_folder(text)
    assert caught.value.code == "model-deleted"
    assert f"tunesmith restore {deleted.id}" in caught.value.hint
    trash.restore(deleted)
    assert base_folder(text) == downloaded


def test_a_run_brings_its_deleted_base_model_back(make_spec: Make, downloaded: Path) -> None:
    spec = make_spec("a")
    spec.model.path = str(downloaded)
    used = create_run(spec)
    assert deleted_base(used) is None
    restore_base(used)
    deleted = model_library.remove(model_library.find("org/name"))
    assert deleted_base(used) == deleted
    restore_base(used)
    assert base_folder(str(downloaded)) == downloaded
    assert deleted_base(used) is None


def test_a_model_that_can_not_be_compared_counts_as_the_one_of_its_runs(
    make_spec: Make, downloaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(model_library, "BaseModel", unreadable)
    used = create_run(make_spec("a"))
    named = {used.id: str(downloaded)}
    assert model_library.users(model_library.shelved(downloaded, "tunesmith"), named) == [used.id]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_is_not_whole_is_deleted(words: tuple[str, ...], downloaded: Path, capsys: Any) -> None:
    record = downloads.read_record(downloaded)
    assert record is not None
    begun = Download(record.model, "org/begun")
    begun.staging.mkdir()
    begun.save(begun.staging)
    assert cli.main(["models", "remove", "org/begun", *words]) == 0
    assert not begun.staging.exists()
    assert capsys.readouterr().out


def test_search(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    found = [
        HubModel("org/big", "c", "page", num_parameters=8_000_000_000, licence="mit", gated="auto"),
        HubModel("org/small", "c", "page", num_parameters=135_000_000),
        HubModel("org/unknown", "c", "page"),
    ]
    monkeypatch.setattr(hub, "search", lambda _wanted: found)
    assert [each["id"] for each in run(capsys, "search", "x")[1]] == ["org/big", "org/small", "org/unknown"]
    assert cli.main(["models", "search"]) == 0
    out, err = capsys.readouterr()
    assert "Asking the model hub" in err
    assert "8.0B" in out
    assert "135M" in out
    assert "on request" in out
    found.clear()
    assert cli.main(["models", "search", "--family", "x"]) == 0
    assert "no such model" in capsys.readouterr().err


def test_get_and_its_plan(monkeypatch: pytest.MonkeyPatch, downloaded: Path, capsys: Any) -> None:
    record = downloads.read_record(downloaded)
    assert record is not None
    monkeypatch.setattr(hub, "look_up", lambda _id, _revision: record)
    assert run(capsys, "get", "org/name", "--dry-run")[1]["total_bytes"] == record.total_bytes
    assert cli.main(["models", "get", "org/name", "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert "To download: 0 B of" in captured.out
    assert f"It is on this computer: {downloaded}" in captured.err
    downloaded.rename(downloaded.with_name("elsewhere"))
    assert run(capsys, "get", "org/name", "--dry-run")[1]["missing_bytes"] == record.total_bytes
    downloaded.with_name("elsewhere").rename(downloaded)
    rate = {"name": "downloading", "done_bytes": 1024, "total_bytes": 2048, "bytes_per_s": 512.0, "remaining_s": 2.0}

    def get(_id: str, _revision: str, on_event: Callable[[Event], None]) -> Path:
        on_event(Event(1, 1.0, "progress", rate | {"remaining_s": None}))
        on_event(Event(2, 100.0, "progress", rate))
        on_event(Event(3, 101.0, "waiting", {"message": "The hub is busy.", "seconds": 2.0}))
        return downloaded

    monkeypatch.setattr(hub, "get", get)
    assert cli.main(["models", "get", "org/name"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{downloaded}\n"
    assert "512 B/s" in captured.err
    assert "left" in captured.err
    assert "The hub is busy. Trying again in 2 s." in captured.err
    assert cli.main(["models", "get", "org/name", "--json"]) == 0


def test_a_folder_that_runs_name_may_be_unreadable(downloaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_text: str) -> Path:
        raise TunesmithError("path-too-long", "x")

    monkeypatch.setattr(model_library, "local_folder", refuse)
    assert not model_library._means("/some/folder", model_library.find("org/name"))


def test_a_person_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError

    monkeypatch.setattr(hub_token, "hub_home", nowhere)
    monkeypatch.setattr(model_library, "find_lm_studio", lambda: None)
    monkeypatch.setattr(Path, "home", nowhere)
    assert list(model_library.foreign_models()) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, ""), (300_416, "300K"), (134_515_008, "135M"), (999_885_952, "1.0B"), (4_022_000_000, "4.0B")],
)
def test_a_number_of_parameters_in_the_table(number: int, words: str) -> None:
    assert parameters(number) == words
