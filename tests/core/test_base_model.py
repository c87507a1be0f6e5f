"""A base model that changed between stop and resume is noticed, without reading gigabytes at every start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import write_safetensors
from tunesmith_core import base_model, files
from tunesmith_core.base_model import BaseModel, note
from tunesmith_core.errors import UserError
from tunesmith_core.model_folder import weight_files

SIZE = 300_000


@pytest.fixture
def large(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose weights count as a large file; returns their path."""
    monkeypatch.setattr(base_model, "WHOLE_BYTES", 10_000)
    monkeypatch.setattr(base_model, "HEAD_BYTES", 1_000)
    path = model_folder / "model.safetensors"
    write_safetensors(path, {"w": [SIZE // 4]})
    return path


def change(path: Path, place: int, *, keep_date: bool) -> None:
    """Flip a byte of a file."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + (0 if keep_date else 10**9)))


def hashed(folder: Path) -> BaseModel:
    """Note a model and read it whole."""
    model = BaseModel(folder, None)
    model.hash_in_background()
    if model._thread:
        assert model._thread.daemon, "a run may end meanwhile"
        model._thread.join()
    return model


def test_an_unchanged_model_is_read_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = hashed(large.parent)
    assert model.notes["model.safetensors"].sha256 == files.sha256_file(large)
    assert model.to_dict()["config.json"]["num_bytes"] == (large.parent / "config.json").stat().st_size
    read: list[Path] = []
    sha256_file = files.sha256_file
    monkeypatch.setattr(files, "sha256_file", lambda path: (read.append(path), sha256_file(path))[1])
    again = BaseModel(large.parent, model.notes)
    assert again.check() == []
    again.hash_in_background()
    assert large not in read
    assert again.notes == model.notes


def test_a_checkpoint_that_noted_nothing_is_not_compared(model_folder: Path) -> None:
    (told,) = BaseModel(model_folder, {}).check()
    assert "earlier version" in told
    assert BaseModel(model_folder, None).check() == []


def test_changed_samples_are_noticed_whatever_the_date(large: Path) -> None:
    model = BaseModel(large.parent, None)
    change(large, SIZE // 2, keep_date=True)
    change(large, 500, keep_date=True)
    with pytest.raises(UserError) as caught:
        BaseModel(large.parent, model.notes).check()
    assert caught.value.code == "base-model-differs"
    assert caught.value.message.endswith("Changed since: model.safetensors.")
    with pytest.raises(UserError) as before:
        BaseModel(large.parent, model.notes).check_samples()
    assert before.value.message == caught.value.message
    BaseModel(large.parent, {}).check_samples()


@pytest.mark.parametrize(
    ("place", "is_sampled"),
    [
        (0, True),
        (999, True),
        (1_000, False),
        (4_000, False),
        (5_000, True),
        (SIZE // 2, True),
        (-4_096, True),
        (-1, True),
    ],
)
def test_the_head_and_blocks_up_to_the_end_are_sampled(large: Path, place: int, is_sampled: bool) -> None:
    before = note(large).sampled
    change(large, place, keep_date=True)
    assert (note(large).sampled != before) == is_sampled


def test_a_note_of_an_earlier_version_still_fits(tmp_path: Path) -> None:
    """The samples of a file of 4 MiB and a byte; with others every checkpoint would be refused."""
    path = tmp_path / "model.safetensors"
    block = bytes(range(251))
    path.write_bytes((block * (4 * 2**20 // len(block) + 1))[: 4 * 2**20])
    assert note(path).sampled == note(path).sha256 == files.sha256_file(path)
    with path.open("ab") as file:
        file.write(b"!")
    assert note(path).sampled == "17e2117b507e8e692d66662903ad205345c32ff1ce30c7515d8c001f0dd86613"
    assert note(path).sha256 == ""


def test_small_files_are_read_whole_at_once(large: Path) -> None:
    for num_bytes, is_whole in ((10_000, True), (10_001, False)):
        large.write_bytes(bytes(num_bytes))
        assert bool(note(large).sha256) == is_whole
        assert note(large).num_bytes == num_bytes


def unsampled(path: Path) -> int:
    """Return a place of a large file that no sample covers."""
    before = note(path).sampled
    for place in range(2_000, SIZE, 997):
        change(path, place, keep_date=True)
        if note(path).sampled == before:
            change(path, place, keep_date=True)
            return place
        change(path, place, keep_date=True)
    raise AssertionError("every byte is sampled")


def test_a_byte_between_the_samples_is_noticed_by_its_date(large: Path) -> None:
    model, place = hashed(large.parent), unsampled(large)
    change(large, place, keep_date=False)
    with pytest.raises(UserError, match=r"model\.safetensors"):
        BaseModel(large.parent, model.notes).check()
    change(large, place, keep_date=False)
    same = BaseModel(large.parent, model.notes)
    assert same.check() == [], "a copy has another date, and the same bytes"
    assert same.notes["model.safetensors"].sha256


def test_where_only_samples_were_compared_it_is_said(large: Path) -> None:
    model = BaseModel(large.parent, None)
    os.utime(large, ns=(0, 0))
    (told,) = BaseModel(large.parent, model.notes).check()
    assert told.startswith("model.safetensors has another date")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "added_tokens.json", "model.safetensors"])
def test_what_an_adapter_belongs_to_is_refused(model_folder: Path, name: str) -> None:
    model = BaseModel(model_folder, None)
    with (model_folder / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(UserError, match=name):
        BaseModel(model_folder, model.notes).check()


@pytest.mark.parametrize("make", [lambda path: path.write_text("x"), lambda path: path.unlink()])
def test_what_may_change_is_told_with_its_effect(model_folder: Path, make: Callable[[Path], object]) -> None:
    path = model_folder / "generation_config.json"
    path.write_text("{}")
    model = BaseModel(model_folder, None)
    make(path)
    assert BaseModel(model_folder, model.notes).check() == [
        "generation_config.json changed. Samples can end elsewhere. Training is not affected."
    ]


def test_a_file_that_goes_or_changes_while_it_is_read_keeps_its_note(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = BaseModel(large.parent, None)
    content = large.read_bytes()
    large.unlink()
    gone._hash()
    assert not gone.notes["model.safetensors"].sha256
    large.write_bytes(content)
    changing = BaseModel(large.parent, None)
    sha256_file = files.sha256_file

    def change_meanwhile(path: Path) -> str:
        os.utime(path, ns=(0, 0))
        return sha256_file(path)

    monkeypatch.setattr(files, "sha256_file", change_meanwhile)
    changing._hash()
    assert not changing.notes["model.safetensors"].sha256


def test_the_shards_of_a_model_are_its_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "2.safetensors", "b": "1.safetensors"}}'
    )
    assert weight_files(tmp_path) == ["1.safetensors", "2.safetensors"]
