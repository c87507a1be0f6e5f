"""The first checks: each thing that would fail soon is said at once, with its code and its place."""

from __future__ import annotations

import json
import math
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import write_safetensors
from tests.parquet_files import parquet_of
from tunesmith_core import devices, files, paths, preflight
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import INDEX_NAME, ModelFolder, is_hub_id, open_model_folder
from tunesmith_core.safetensors_header import read_header
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec

Make = Callable[..., RunSpec]
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


@pytest.fixture
def spec(fake_engine: object, make_spec: Make) -> RunSpec:
    return make_spec("p")


COPIES = 3 * 3


def refused(spec: RunSpec, code: str, words: str = "") -> None:
    with pytest.raises(TunesmithError) as caught:
        preflight.check(spec)
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_good_spec_passes_and_nothing_is_left(spec: RunSpec, home: Path) -> None:
    preflight.check(spec)
    spec.evaluation.path = spec.data.sources[0].path
    preflight.check(spec)
    assert list((home / "runs").iterdir()) == []


def test_a_wrong_setting_comes_first(spec: RunSpec) -> None:
    spec.adapter.rank, spec.model.path = 0, "/not/there"
    refused(spec, "spec-invalid", "adapter.rank must be at least 1")


def test_what_the_model_certainly_does_not_have_is_refused(spec: RunSpec) -> None:
    """A name that may be another one in memory is left to the run."""
    spec.adapter.target_modules = ["no_such_layer"]
    preflight.check(spec)
    spec.adapter.layers = ["99"]
    with pytest.raises(TunesmithError, match="99"):
        preflight.check(spec)


def test_a_missing_environment(make_spec: Make) -> None:
    refused(make_spec(), "environment-missing")


def test_a_gpu_that_is_not_there(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_NVIDIA_SIGNS", ())
    spec.hardware.devices = ["cuda"]
    refused(spec, "driver-missing")


def test_a_hub_id_must_be_downloaded_before(spec: RunSpec, model_folder: Path) -> None:
    spec.model.path, folder = "org/some-model_1.5", model_folder
    refused(spec, "model-not-downloaded", "org/some-model_1.5 was not downloaded yet")
    spec.model.revision = "refs/pr/1"
    paths.models_dir().mkdir()
    folder.rename(paths.models_dir() / "org--some-model_1.5@refs%2Fpr%2F1")
    preflight.check(spec)
    assert not is_hub_id("/abs/olute")
    assert not is_hub_id("./here/x")
    assert not is_hub_id("one")
    spec.model.path = "/not/there"
    refused(spec, "model-files-missing-or-corrupt", f"{Path('/not/there')}: is not a folder")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", None, "the file is missing"),
        ("config.json", b"{", "line 1, column 2: not valid JSON: a name in double quotes is missing."),
        ("config.json", b'{"a": "\xe9"}', "not JSON text."),
        ("config.json", b"[]", "contains no JSON object"),
        ("config.json", b"{}", "names neither a model_type"),
        ("config.json", LFS_POINTER, "Git LFS pointer"),
        ("tokenizer.json", None, "the tokenizer is missing"),
        ("tokenizer.json", b"", "the file is empty"),
        ("tokenizer.json", LFS_POINTER, "Git LFS pointer"),
        ("model.safetensors", None, "the file is missing"),
        ("model.safetensors", b"", "no safetensors header"),
        ("model.safetensors", LFS_POINTER, "Git LFS pointer"),
        ("model.safetensors", b"x" * 100, "no safetensors header"),
        ("model.safetensors", struct.pack("<Q", 4) + b"oops", "not valid JSON"),
        ("model.safetensors", struct.pack("<Q", 2) + b"[]", "malformed"),
        ("model.safetensors", struct.pack("<Q", 8) + b'{"a":{}}', "malformed"),
    ],
)
def test_a_damaged_model_names_the_file(spec: RunSpec, name: str, content: bytes | None, words: str) -> None:
    path = Path(spec.model.path) / name
    path.unlink() if content is None else path.write_bytes(content)
    refused(spec, "model-files-missing-or-corrupt", words)
    refused(spec, "model-files-missing-or-corrupt", str(path))


@pytest.mark.skipif(sys.platform == "win32", reason="a link to itself counts as missing here")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_an_unreadable_file_is_named(spec: RunSpec, name: str) -> None:
    path = Path(spec.model.path) / name
    path.unlink()
    path.symlink_to(path)
    refused(spec, "model-files-missing-or-corrupt", "can't be read")


def test_every_cut_of_a_weight_file_is_noticed(spec: RunSpec) -> None:
    path = Path(spec.model.path) / "model.safetensors"
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        refused(spec, "model-files-missing-or-corrupt", str(path))
    path.write_bytes(whole[:-1])
    refused(spec, "model-files-missing-or-corrupt", "is cut short: 0.0 of 0.1 MiB.")


def test_a_weight_file_on_a_broken_disk_is_named(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: Path) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "open_file", fail)
    with pytest.raises(TunesmithError, match="Input/output error"):
        read_header(Path(spec.model.path) / "model.safetensors")


def test_pickles_are_refused(spec: RunSpec) -> None:
    folder = Path(spec.model.path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(spec, "model-pickle-refused", "pytorch_model.bin")


def test_an_adapter_is_no_model(spec: RunSpec) -> None:
    folder = Path(spec.model.path)
    (folder / "config.json").rename(folder / "adapter_config.json")
    refused(spec, "model-files-missing-or-corrupt", "contains an adapter")


def shard(folder: Path, weight_map: object) -> None:
    (folder / "model.safetensors").unlink(missing_ok=True)
    write_safetensors(folder / "model-1-of-2.safetensors", {"a": [2, 2]})
    write_safetensors(folder / "model-2-of-2.safetensors", {"b": [2, 2]})
    (folder / INDEX_NAME).write_text(json.dumps({"weight_map": weight_map}))


def test_an_encoder_decoder_is_called_what_it_is(spec: RunSpec) -> None:
    config = Path(spec.model.path) / "config.json"
    config.write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    refused(spec, "model-kind-unsupported", "type t5 is an encoder-decoder.")


def test_shards_are_checked_against_their_index(spec: RunSpec) -> None:
    folder = Path(spec.model.path)
    one, two = "model-1-of-2.safetensors", "model-2-of-2.safetensors"
    shard(folder, {"a": one, "b": two})
    preflight.check(spec)
    for weight_map, words in (
        ({"a": one, "c": two}, "is missing the tensor c"),
        ({"a": "other.safetensors"}, "other.safetensors: the file is missing"),
        ({"a": "../model.safetensors"}, "which is not a safetensors file in this folder"),
        ({"a": "model.bin"}, "which is not a safetensors file"),
        ({"a": "x" * 5000}, f"names '{'x' * 79}…', which is not a safetensors file in this folder"),
        ({"a": one, "x" * 5000: two}, f"is missing the tensor {'x' * 79}… that"),
        ({}, "contains no weight_map"),
        ({"a": 1}, "contains no weight_map"),
    ):
        shard(folder, weight_map)
        refused(spec, "model-files-missing-or-corrupt", words)
    (folder / INDEX_NAME).unlink()
    refused(spec, "model-files-missing-or-corrupt", "can't be placed")


def test_chats_need_a_template(spec: RunSpec, tmp_path: Path) -> None:
    folder = Path(spec.model.path)
    (folder / "tokenizer_config.json").write_text("{}")
    refused(spec, "dataset-chat-template-missing", "contains chats")
    (folder / "chat_template.jinja").write_text("")
    refused(spec, "dataset-chat-template-missing")
    spec.model.chat_template = "plain"
    preflight.check(spec)
    spec.model.chat_template = "own"
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    preflight.check(spec)
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").unlink()
    spec.data.sources[0].path = str(tmp_path / "plain.jsonl")
    Path(spec.data.sources[0].path).write_text('{"text": "plain"}\n')
    preflight.check(spec)


def test_a_bad_first_row_that_is_skipped_does_not_hide_the_chats(spec: RunSpec, tmp_path: Path) -> None:
    (Path(spec.model.path) / "tokenizer_config.json").unlink()
    good = Path(spec.data.sources[0].path).read_text()
    spec.data.sources[0].path, spec.data.skip_bad_rows = str(tmp_path / "mixed.jsonl"), True
    Path(spec.data.sources[0].path).write_text('oops\n{"messages": [{"role": "user"}]}\n' + good)
    refused(spec, "dataset-chat-template-missing")


def test_parquet_is_left_to_the_engine(spec: RunSpec, tmp_path: Path) -> None:
    spec.data.sources[0].path = str(tmp_path / "d.parquet")
    Path(spec.data.sources[0].path).write_bytes(parquet_of(3))
    preflight.check(spec)
    (Path(spec.model.path) / "tokenizer_config.json").unlink()
    spec.data.sources[0].format = "messages"
    refused(spec, "dataset-chat-template-missing")


def test_data_is_checked_with_its_line(spec: RunSpec) -> None:
    with Path(spec.data.sources[0].path).open("a") as file:
        file.write("{broken\n")
    refused(spec, "dataset-parse-error", "line 4")
    spec.data.sources[0].path += ".gone"
    refused(spec, "dataset-parse-error", spec.data.sources[0].path)


def test_a_group_column_that_no_row_has_is_told(spec: RunSpec, tmp_path: Path) -> None:
    spec.evaluation.group_column = "nosuch"
    refused(spec, "dataset-groups", f'{spec.data.sources[0].path}: there is no column "nosuch"')
    spec.evaluation.percent = 0.0
    preflight.check(spec)
    spec.evaluation.percent = 5.0
    both = tmp_path / "both.jsonl"
    both.write_text('{"text": "a", "customer": 1}\n')
    spec.data.sources[0].path, spec.evaluation.group_column = str(both), "customer"
    preflight.check(spec)
    spec.data.sources[0].path = str(tmp_path / "d.parquet")
    Path(spec.data.sources[0].path).write_bytes(parquet_of(3))
    preflight.check(spec)


def test_an_empty_chat_file_cannot_be_judged(spec: RunSpec, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"messages": [{"role": "user"}]}\n')
    spec.data.sources[0].path, spec.data.sources[0].format = str(path), "messages"
    assert not preflight._holds_chats(spec.data.sources[0])


def test_room_on_the_disk_is_reckoned(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    # 4 bytes x rank x (4 + 8) for the one linear layer; embeddings get no adapter.
    assert open_model_folder(Path(spec.model.path)).adapter_bytes(16) == 4 * 16 * 12
    monkeypatch.setattr(files, "free_bytes", lambda _path: preflight.MIN_FREE_BYTES - 1)
    refused(spec, "disk-full", "63 MiB are free. The checkpoints of this run need 64 MiB.")
    monkeypatch.setattr(files, "free_bytes", lambda _path: preflight.MIN_FREE_BYTES)
    preflight.check(spec)


def test_the_checkpoints_of_a_large_adapter_need_room(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint holds weights and two moments; three exist while one takes the place of another."""
    monkeypatch.setattr(ModelFolder, "adapter_bytes", lambda _self, rank: rank << 20)
    needed = COPIES * 16 << 20
    monkeypatch.setattr(files, "free_bytes", lambda _path: needed - 1)
    refused(spec, "disk-full", f"{COPIES * 16 - 1} MiB are free. The checkpoints of this run need {COPIES * 16} MiB.")
    monkeypatch.setattr(files, "free_bytes", lambda _path: needed)
    preflight.check(spec)


@pytest.mark.parametrize(("weights", "number_bytes"), [("float32", 4), ("bfloat16", 2)])
def test_the_checkpoints_of_a_whole_model_need_room(
    spec: RunSpec, weights: str, number_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.adapter.kind, spec.adapter.weights = "full", weights
    monkeypatch.setattr(preflight, "MIN_FREE_BYTES", 0)
    num_weights = sum(math.prod(shape) for shape in open_model_folder(Path(spec.model.path)).shapes.values())
    needed = 3 * num_weights * (number_bytes + 8)
    monkeypatch.setattr(files, "free_bytes", lambda _path: needed - 1)
    refused(spec, "disk-full", "The checkpoints of this run need")
    monkeypatch.setattr(files, "free_bytes", lambda _path: needed)
    preflight.check(spec)


def test_a_folder_that_cannot_be_written(spec: RunSpec, home: Path) -> None:
    (home / "runs").write_text("a file where the folder should be")
    refused(spec, "permission-or-antivirus", str(home / "runs"))


def test_a_read_only_folder_is_named(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(files, "probe_writable", refuse)
    refused(spec, "permission-or-antivirus", "Permission denied")


def test_the_device_is_chosen_by_the_spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = RunSpec()
    spec.hardware.devices = ["auto:2"]
    monkeypatch.setattr(devices, "_NVIDIA_SIGNS", ())
    assert devices.device_of(spec).name == "cpu"
    assert devices.device_of(spec).environment()["CUDA_VISIBLE_DEVICES"] == "-1"
    monkeypatch.setattr(devices, "_NVIDIA_SIGNS", (str(tmp_path),))
    assert devices.device_of(spec).name == "gpu-2"
    assert devices.device_of(spec).environment()["CUDA_VISIBLE_DEVICES"] == "2"
    spec.hardware.devices = ["cpu"]
    assert devices.device_of(spec).name == "cpu"
    assert paths.locks_dir().name == "locks"


def test_what_was_named_of_a_file_that_libraries_read_is_looked_for(
    fake_engine: Callable[[dict[str, object]], None], spec: RunSpec, tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "rows.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    source = spec.data.sources[0] = SourceSpec(path=str(path))
    problem = TunesmithError("dataset-parse-error", '{path}: there is no sheet "Nope".', path=path).to_dict()
    fake_engine({"workbook-head": {"problem": problem, "rows": []}})
    source.sheet = "Nope"
    refused(spec, "dataset-parse-error", f'{path}: there is no sheet "Nope".')
    fake_engine({"workbook-head": {"error": problem}})
    refused(spec, "dataset-parse-error")
    fake_engine({"workbook-head": {"problem": None, "rows": [{"Frage": "q", "Antwort": "a"}]}})
    source.columns = {"prompt": "Fragen", "completion": "Antwort"}
    refused(spec, "dataset-column-missing", 'there is no column "Fragen" (prompt)')
    source.columns = {"prompt": "Frage", "completion": "Antwort"}
    preflight.check(spec)
    (home / "envs" / "train.current").unlink()
    source.sheet, source.columns = "Nope", {}
    preflight.check_rows(spec)


@pytest.mark.parametrize(
    ("found", "is_refused"),
    [
        ({"first_bad": True, "num_good": 9, "num_bad": 1}, (True, False)),
        ({"first_bad": True, "num_good": 0, "num_bad": 9}, (True, True)),
        ({"refused": True, "num_good": 0, "num_bad": 0}, (True, True)),
        ({"num_good": 9, "num_bad": 0}, (False, False)),
    ],
    ids=["some", "all", "refused", "none"],
)
def test_bad_rows_of_a_file_that_libraries_read_are_told_before_a_run(
    fake_engine: Callable[[dict[str, object]], None],
    spec: RunSpec,
    tmp_path: Path,
    found: dict[str, object],
    is_refused: tuple[bool, bool],
) -> None:
    path = tmp_path / "rows.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    spec.data.sources[0] = SourceSpec(path=str(path))
    empty = TunesmithError("dataset-parse-error", '{path}, row 3, column "a": is empty.', path=path).to_dict()
    told = {name: empty if value is True else value for name, value in found.items()}
    fake_engine({"workbook-head": {"problem": None, "rows": [{"question": "Hi", "answer": "Ho"}]} | told})
    for spec.data.skip_bad_rows, refuses in zip((False, True), is_refused, strict=True):
        if refuses:
            refused(spec, "dataset-parse-error", 'row 3, column "a": is empty')
        else:
            preflight.check(spec)
