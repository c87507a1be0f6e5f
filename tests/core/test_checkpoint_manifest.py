"""The manifest of a checkpoint: every field is checked on reading, and no change of it goes unnoticed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import files
from tunesmith_core.checkpoint_manifest import CONTENT, damage, newest_noted, read_manifest, sealed, step_of
from tunesmith_core.messages import MessageError
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes

NOTE = {"num_bytes": 1, "modified_ns": 2, "sampled": "s", "sha256": ""}


def save(parent: Path, step: int = 2, /, **changes: Any) -> Path:
    """Write a checkpoint whose files hold their own names; changes are made before it is sealed."""
    folder = parent / f"step-{step:06d}"
    folder.mkdir()
    for name in CONTENT:
        (folder / name).write_text(name)
    listed = {name: {"bytes": len(name), "sha256": files.sha256_file(folder / name)} for name in CONTENT}
    values = {"version": 1, "step": step, "run": 5.0, "spec": RunSpec().to_dict(), "fingerprint": {"torch": "2"}}
    values |= {"files": listed, "base_model": {"config.json": NOTE}}
    files.atomic_write_json(folder / "MANIFEST.json", sealed(values | changes))
    return folder


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "MANIFEST.json"
    path.write_text(json.dumps(files.read_json(path) | changes))


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = save(tmp_path)
    assert damage(folder) == ""
    manifest = read_manifest(folder)
    assert (manifest.step, manifest.run, manifest.fingerprint) == (2, 5.0, {"torch": "2"})
    assert manifest.base_model["config.json"].modified_ns == 2
    assert manifest.spec == RunSpec()


def test_the_seal_does_not_go_by_the_order_and_takes_only_numbers_of_json() -> None:
    values = {"a": 1, "b": {"c": 2, "d": [3.5]}}
    assert sealed({"b": {"d": [3.5], "c": 2}, "a": 1})["sha256"] == sealed(values)["sha256"]
    assert sealed(sealed(values)) == sealed(values)
    with pytest.raises(ValueError, match="JSON"):
        sealed({"a": float("nan")})


KEYS = ("step", "run", "spec", "fingerprint", "files", "base_model", "sha256")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [None, {}, [], "x", -1, 1e300])
def test_a_field_that_was_changed_is_damage(tmp_path: Path, key: str, value: object) -> None:
    folder = save(tmp_path)
    rewrite(folder, **{key: value})
    assert damage(folder) == "MANIFEST.json was changed after it was saved"


@pytest.mark.parametrize("key", KEYS)
def test_a_field_that_is_gone_is_damage(tmp_path: Path, key: str) -> None:
    folder = save(tmp_path)
    path = folder / "MANIFEST.json"
    path.write_text(json.dumps({name: value for name, value in files.read_json(path).items() if name != key}))
    assert "MANIFEST.json" in damage(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": "2"}, "can't be read"),
        ({"step": True}, "can't be read"),
        ({"step": 3}, "of step 3"),
        ({"run": "x"}, "can't be read"),
        ({"run": None}, "can't be read"),
        ({"fingerprint": 5}, "can't be read"),
        ({"files": None}, "can't be read"),
        ({"files": {}}, "adapter.safetensors is missing"),
        ({"files": dict.fromkeys(CONTENT)}, "adapter.safetensors is missing"),
        ({"files": {name: {"bytes": "1", "sha256": ""} for name in CONTENT}}, "can't be read"),
        ({"files": {name: {"bytes": 1, "sha256": ""} for name in CONTENT}}, "adapter.safetensors was changed"),
        ({"base_model": {"config.json": 7}}, "can't be read"),
        ({"spec": {"version": 99}}, "can't be read"),
        ({"version": 2}, "version 2 is not supported"),
    ],
)
def test_a_sealed_field_of_a_wrong_type_is_damage(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert words in damage(save(tmp_path, **changes))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000, '{"version": 1, "step": NaN}'])
def test_a_manifest_that_is_none_is_damage(tmp_path: Path, text: str) -> None:
    folder = save(tmp_path)
    (folder / "MANIFEST.json").write_text(text)
    assert damage(folder)


def test_files_that_are_none_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path)
    (folder / "state.json").unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "state.json")
    assert damage(folder) == "state.json is missing"

    def fail(_: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "sha256_file", fail)
    assert "adapter.safetensors can't be read" in damage(folder)
    (folder / "MANIFEST.json").unlink()
    assert damage(folder) == "MANIFEST.json is missing"


def test_a_manifest_of_an_earlier_release_needs_no_seal(tmp_path: Path) -> None:
    folder = save(tmp_path)
    path = folder / "MANIFEST.json"
    kept = {name: value for name, value in files.read_json(path).items() if name in ("version", "step", "files")}
    files.atomic_write_json(path, kept | {"fingerprint": {}, "config_hash": "0" * 64})
    assert damage(folder) == ""
    manifest = read_manifest(folder)
    assert (manifest.spec, manifest.base_model, manifest.run) == (None, {}, 0.0)


def test_a_folder_of_another_name_has_no_step(tmp_path: Path) -> None:
    assert [step_of(tmp_path / name) for name in ("step-000012", "step-", "step-x", "other")] == [12, -1, -1, -1]


def test_the_newest_readable_checkpoint_tells(tmp_path: Path) -> None:
    assert newest_noted(tmp_path) is None
    save(tmp_path, 1)
    save(tmp_path, 2, spec=with_changes(RunSpec(), {"adapter.rank": 3}).to_dict())
    earlier = save(tmp_path, 3)
    path = earlier / "MANIFEST.json"
    kept = {name: value for name, value in files.read_json(path).items() if name in ("version", "step", "files")}
    files.atomic_write_json(path, kept | {"fingerprint": {}})
    (save(tmp_path, 4) / "MANIFEST.json").write_text("[]")
    found = newest_noted(tmp_path)
    assert found is not None
    assert found.spec is not None
    assert found.spec.adapter.rank == 3


def test_what_is_wrong_is_said_in_any_language(tmp_path: Path) -> None:
    with pytest.raises(MessageError) as caught:
        read_manifest(tmp_path)
    assert caught.value.message.template == "{name} is missing"
