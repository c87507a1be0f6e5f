"""Two folders change places: wherever the process dies, one of them is whole in its place."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import KILLED
from tunesmith_core import files, folder_switch

ENGINE = Path(files.__file__).parents[1]


def folder_of(path: Path, content: str) -> Path:
    path.mkdir(parents=True)
    (path / "content").write_text(content)
    return path


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_switched_folder_leaves_the_earlier_one_under_the_other_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(folder_switch.ctypes, "CDLL", lambda *_, **__: object())
    final = tmp_path / "adapter"
    folder_switch.switch_folder(folder_of(tmp_path / "tmp" / "a", "1"), final)
    assert not (tmp_path / "tmp" / "a").exists()
    staging = folder_of(tmp_path / "tmp" / "a", "2")
    folder_switch.switch_folder(staging, final)
    assert ((final / "content").read_text(), (staging / "content").read_text()) == ("2", "1")
    assert os.listdir(tmp_path / "tmp") == ["a"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_switch_is_on_the_disk_when_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    exchange, exchanged = folder_switch._exchange, []

    def try_it(first: Path, second: Path) -> bool:
        exchanged.append(can_exchange and exchange(first, second))
        return exchanged[-1]

    monkeypatch.setattr(folder_switch, "_exchange", try_it)
    staging, final = folder_of(tmp_path / "tmp" / "a", "new"), folder_of(tmp_path / "adapter", "old")
    left_over = folder_of(tmp_path / "tmp" / f"{folder_switch.EARLIER_PREFIX}adapter", "older")
    synced: list[tuple[Path, str]] = []
    monkeypatch.setattr(files, "fsync_folder", lambda path: synced.append((path, (final / "content").read_text())))
    folder_switch.switch_folder(staging, final)
    assert synced == [(staging, "old"), (tmp_path, "new"), (tmp_path / "tmp", "new")]
    assert left_over.exists() == exchanged[0], "it is in the way of renaming only"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two folders")
def test_two_folders_change_places_at_once(tmp_path: Path) -> None:
    first, second = folder_of(tmp_path / "1", "1"), folder_of(tmp_path / "2", "2")
    if folder_switch._exchange(first, second):
        assert [(path / "content").read_text() for path in (first, second)] == ["2", "1"]
    assert not folder_switch._exchange(first, tmp_path / "none")


KILLS = [
    (True, "folder.before-switch", "old"),
    (True, "folder.after-switch", "new"),
    (False, "folder.before-switch", "old"),
    (False, "folder.between-renames", "old"),
    (False, "folder.after-switch", "new"),
]


@pytest.mark.parametrize(("can_exchange", "point", "content"), KILLS)
def test_a_kill_during_a_switch_leaves_one_folder_whole(
    tmp_path: Path, can_exchange: bool, point: str, content: str
) -> None:
    staging, final = folder_of(tmp_path / "tmp" / "a", "new"), folder_of(tmp_path / "adapter", "old")
    code = "from pathlib import Path; from tunesmith_core import folder_switch; "
    code += "" if can_exchange else "folder_switch._exchange = lambda *_: False; "
    code += f"folder_switch.switch_folder(Path({str(staging)!r}), Path({str(final)!r}))"
    variables = {files.CRASHPOINT_VARIABLE: point, "PYTHONPATH": str(ENGINE)}
    result = subprocess.run([sys.executable, "-c", code], env=variables, check=False)
    assert result.returncode == KILLED
    folder_switch.sweep_switches(tmp_path / "tmp", final)
    assert (final / "content").read_text() == content
    assert os.listdir(tmp_path) == ["adapter"]


def test_a_folder_that_cannot_be_put_in_place_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging, final = folder_of(tmp_path / "tmp" / "a", "new"), folder_of(tmp_path / "adapter", "old")
    monkeypatch.setattr(folder_switch, "_exchange", lambda *_: False)
    replace = files.replace

    def fail(source: Path, target: Path) -> None:
        if source == staging:
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(files, "replace", fail)
    with pytest.raises(OSError, match="Input/output"):
        folder_switch.switch_folder(staging, final)
    assert (final / "content").read_text() == "old"
