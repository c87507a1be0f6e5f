"""What a hub says about a repository, what of it is downloaded, and the record of that."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from tunesmith_core import downloads, files, paths
from tunesmith_core.downloads import Download
from tunesmith_core.errors import EnvironmentProblem, TunesmithError, UserError
from tunesmith_core.hub_repository import HubFile, HubModel, chosen_files

SHA256, SHA1 = "a" * 64, "b" * 40


def file(name: str, size: int = 10) -> HubFile:
    return HubFile(name, size, sha256=SHA256) if name.endswith(".safetensors") else HubFile(name, size, git_sha1=SHA1)


def model(*names: str) -> HubModel:
    return HubModel("org/name", "c" * 40, "https://hub/org/name", tuple(map(file, names)))


def real(content: dict[str, bytes]) -> HubModel:
    """A repository with the right hashes of what it has."""
    entries = []
    for name, data in content.items():
        if name.endswith(".safetensors"):
            entries.append(HubFile(name, len(data), sha256=hashlib.sha256(data).hexdigest()))
        else:
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entries.append(HubFile(name, len(data), git_sha1=blob))
    return HubModel("org/name", "c" * 40, "", tuple(entries))


CONTENT = {"config.json": b"{}", "model.safetensors": b"weights" * 100}


@pytest.fixture
def begun(home: Path) -> Download:
    download = Download(real(CONTENT), "org/name")
    download.staging.mkdir(parents=True)
    download.save(download.staging)
    return download


def test_a_model_is_its_safetensors_and_what_a_library_reads() -> None:
    names = "config.json tokenizer.json chat_template.jinja merges.txt tokenizer.model README.md LICENSE".split()
    left = "model.bin img/a.json adapter_config.json.bak logo.png original/model.safetensors onnx/x.txt".split()
    assert {each.path for each in chosen_files(model("model.safetensors", *names, *left))} == {
        *names,
        "model.safetensors",
    }


def test_of_shards_the_largest_come_first_and_a_second_copy_does_not() -> None:
    shards = (file("model-00001-of-00002.safetensors", 5), file("model-00002-of-00002.safetensors", 7))
    rest = (file("consolidated.safetensors", 99), file("model.safetensors.index.json"))
    chosen = chosen_files(HubModel("org/name", "", "", (*shards, *rest)))
    assert [each.path for each in chosen] == [rest[1].path, shards[1].path, shards[0].path]
    single = chosen_files(HubModel("org/name", "", "", (*shards, *rest, file("model.safetensors"))))
    assert [each.path for each in single] == [rest[1].path, "model.safetensors"]


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["pytorch_model.bin"], "model-pickle-refused", "pytorch_model.bin"),
        (["a.gguf"], "hub-no-model", "GGUF"),
        (["adapter_config.json", "adapter_model.safetensors"], "hub-no-model", "adapter"),
        (["model-00001-of-00002.safetensors"], "hub-no-model", "no model.safetensors"),
        (["model.safetensors", "a.json", "A.JSON.json", "a.Json.json"], "hub-answer-wrong", "upper and lower"),
    ],
)
def test_what_is_no_model_is_told(names: list[str], code: str, words: str) -> None:
    with pytest.raises(TunesmithError, match=words) as caught:
        chosen_files(model(*names))
    assert caught.value.code == code


@pytest.mark.parametrize(
    "name",
    ["..json", "a..json", "nul.json", "COM1 .json", "a:b.json", "..\\a.json", "é.json", "x" * 151 + ".json", "-a.json"],
)
def test_names_that_no_system_takes_are_refused(name: str) -> None:
    with pytest.raises(EnvironmentProblem, match="not allowed"):
        chosen_files(model("model.safetensors", name))


def test_what_has_no_hash_is_refused() -> None:
    with pytest.raises(EnvironmentProblem, match="no hash"):
        chosen_files(HubModel("org/name", "", "", (HubFile("model.safetensors", 1, sha256="none"),)))


def test_a_record_survives_and_others_are_none(begun: Download) -> None:
    assert downloads.read_record(begun.staging) == begun
    assert [each.asked for each in downloads.unfinished()] == ["org/name"]
    for text in ("{", "[]", '{"version": 2}', '{"version": 1, "model": 3}'):
        (begun.staging / downloads.RECORD).write_text(text)
        assert downloads.read_record(begun.staging) is None
    assert list(downloads.unfinished()) == []


def test_a_record_in_another_place_is_no_download(begun: Download) -> None:
    begun.staging.rename(paths.models_dir() / ".other.download")
    assert list(downloads.unfinished()) == []


def test_bytes_count_as_far_as_they_came(begun: Download) -> None:
    assert begun.done_bytes() == 0
    (begun.staging / "config.json").write_bytes(CONTENT["config.json"])
    downloads.part_of(begun.staging, begun.files[-1]).write_bytes(b"w" * 50)
    assert (begun.done_bytes(), begun.total_bytes) == (52, 702)


def test_room_is_asked_for_first(begun: Download, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _path: downloads.SPARE_BYTES + 702)
    begun.check_space()
    monkeypatch.setattr(files, "free_bytes", lambda _path: downloads.SPARE_BYTES + 701)
    with pytest.raises(EnvironmentProblem, match="are needed"):
        begun.check_space()


def test_one_process_at_a_time(begun: Download) -> None:
    with downloads.held(begun.folder):
        assert downloads.is_going(begun)
        with pytest.raises(UserError, match="Another process"):
            downloads.discard(begun)
    assert not downloads.is_going(begun)
    downloads.discard(begun)
    downloads.discard(begun)
    assert not begun.staging.exists()


def test_what_can_not_be_deleted_is_told(begun: Download, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(13, "no", "x")

    monkeypatch.setattr(downloads.shutil, "rmtree", refuse)
    with pytest.raises(EnvironmentProblem):
        downloads.discard(begun)


def test_every_changed_byte_is_found(begun: Download) -> None:
    for name, data in CONTENT.items():
        (begun.staging / name).write_bytes(data)
    assert list(downloads.changed_files(begun.staging, begun)) == []
    (begun.staging / "config.json").write_bytes(b"[]")
    (begun.staging / "model.safetensors").write_bytes(b"Weights" * 100)
    seen: list[str] = []
    changed = list(downloads.changed_files(begun.staging, begun, seen.append))
    assert changed == seen == ["config.json", "model.safetensors"]
    (begun.staging / "config.json").unlink()
    (begun.staging / "model.safetensors").write_bytes(b"short")
    assert list(downloads.changed_files(begun.staging, begun)) == seen


def test_of_10000_hostile_names_none_leaves_the_folder(home: Path) -> None:
    draw = random.Random(3)
    parts = ["..", ".", "/", "\\", ":", "C:", "\\\\host\\", "CON", "a", "model", " ", "\0", "\n", "é", "\u202e", "~"]
    accepted = 0
    for _ in range(10_000):
        name = "".join(draw.choices(parts, k=draw.randrange(1, 6))) + draw.choice((".json", ".txt", ".jinja", ".json."))
        try:
            chosen = chosen_files(model("model.safetensors", name))
        except EnvironmentProblem:
            continue
        accepted += len(chosen) > 1
        for each in chosen:
            assert PureWindowsPath(each.path).name == PurePosixPath(each.path).name == each.path
            assert not each.path.startswith((".", "~"))
            assert not PureWindowsPath(each.path).is_reserved()
    assert accepted > 100
