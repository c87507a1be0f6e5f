"""The file layer: a reader finds the old content or the new one, whatever fails and wherever the process dies."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import KILLED
from tunesmith_core import files
from tunesmith_core.errors import wrap

ENGINE = Path(files.__file__).parents[1]


def test_half_a_surrogate_pair_is_written_and_read_without_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.atomic_write_json(path, {"ä": "/data/caf\udce9.jsonl"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"ä": "/data/caf\udce9.jsonl"}
    assert files.read_json(path) == {"ä": "/data/caf?.jsonl"}


def test_content_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.atomic_write_json(path, {"ä": 1})
    files.atomic_write_json(path, {"b": [2]})
    assert files.read_json(path) == {"b": [2]}
    assert os.listdir(tmp_path) == ["a.json"]


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.atomic_write_json(tmp_path / "a.json", float("nan"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    path = tmp_path / "a.txt"
    files.atomic_write_text(path, "old")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        files.atomic_write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(("point", "content"), [("file.before-rename", "old"), ("file.after-rename", "new")])
def test_a_kill_leaves_one_content_or_the_other(tmp_path: Path, point: str, content: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    code = f"from tunesmith_core import files; files.atomic_write_text(files.Path({str(path)!r}), 'new')"
    result = subprocess.run(
        [sys.executable, "-c", code], env={files.CRASHPOINT_VARIABLE: point, "PYTHONPATH": str(ENGINE)}, check=False
    )
    assert result.returncode == KILLED
    assert path.read_text() == content


def test_a_folder_is_published_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    files.fsync_file(tmp_path / "one" / "file")
    files.publish_folder(tmp_path / "one", tmp_path / "final")
    with pytest.raises(FileExistsError):
        files.publish_folder(tmp_path / "two", tmp_path / "final")
    assert (tmp_path / "final" / "file").read_text() == "one"


def test_a_file_of_two_names_counts_once_and_a_link_counts_where_files_are_kept_elsewhere(tmp_path: Path) -> None:
    blobs, model = tmp_path / "blobs", tmp_path / "model"
    (model / "inner").mkdir(parents=True)
    blobs.mkdir()
    (blobs / "weights").write_bytes(b"x" * 9_998)
    (model / "config.json").write_bytes(b"{}")
    (model / "inner" / "again").hardlink_to(model / "config.json")
    (model / "weights").symlink_to(blobs / "weights")
    (model / "blobs").symlink_to(blobs, target_is_directory=True)
    assert files.folder_bytes(model, linked=True) == 10_000
    assert files.folder_bytes(blobs) == 9_998
    assert files.folder_bytes(model) < 5_000, "links themselves are as long as what they say"


def test_sizes_sums_and_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"abc")
    (tmp_path / "c").write_bytes(b"abc")
    assert files.folder_bytes(tmp_path) == 6
    assert files.sha256_file(tmp_path / "c").startswith("ba7816bf")
    assert files.free_bytes(tmp_path / "not" / "there") > 0

    class Gone:
        def is_dir(self, follow_symlinks: bool) -> bool:
            raise FileNotFoundError(follow_symlinks)

    monkeypatch.setattr(files.os, "scandir", lambda _: contextlib.nullcontext([Gone()]))
    assert files.folder_bytes(tmp_path) == 0


def test_a_folder_is_probed_by_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.probe_writable(tmp_path / "new" / "folder")
    assert os.listdir(tmp_path / "new" / "folder") == []

    def refuse(_self: Path, _content: bytes) -> int:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(PermissionError):
        files.probe_writable(tmp_path)


class Held:
    """Refuses to rename for a while, as Windows does while a virus scanner reads a fresh file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        replace = Path.replace

        def refuse(path: Path, target: Path) -> Path:
            self.left -= 1
            if self.left >= 0:
                raise PermissionError(errno.EACCES, "held", str(path))
            return replace(path, target)

        monkeypatch.setattr(Path, "replace", refuse)
        monkeypatch.setattr(files.time, "sleep", lambda _: None)


def test_a_rename_waits_for_who_holds_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fresh").write_text("new")
    monkeypatch.setattr(files, "OTHERS_HOLD_FILES", True)
    Held(monkeypatch, 5)
    files.replace(tmp_path / "fresh", tmp_path / "final")
    assert (tmp_path / "final").read_text() == "new"


def test_a_removal_waits_for_who_holds_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "command").write_text("stop")
    unlink, waited = Path.unlink, []

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if len(waited) < 3:
            raise PermissionError(errno.EACCES, "held", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(files, "OTHERS_HOLD_FILES", True)
    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(files.time, "sleep", waited.append)
    files.remove(tmp_path / "command")
    assert not (tmp_path / "command").exists()
    files.remove(tmp_path / "command")


def test_a_file_that_stays_held_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "OTHERS_HOLD_FILES", True)
    monkeypatch.setattr(files, "RENAME_RETRY_S", -1.0)
    Held(monkeypatch, 1)
    with pytest.raises(PermissionError) as caught:
        files.replace(tmp_path / "fresh", tmp_path / "final")
    failure = wrap(caught.value)
    assert failure.code == "permission-or-antivirus"
    assert "fresh" in failure.message


def test_making_content_durable_leaves_nothing_open(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"content")

    def next_descriptor() -> int:
        descriptor = os.open(file, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    free = next_descriptor()
    files.fsync_folder(tmp_path)
    files.fsync_file(file)
    assert next_descriptor() == free
