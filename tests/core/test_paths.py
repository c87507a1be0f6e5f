"""Where things live: chosen by variable, else by the system; named and never created."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunesmith_core import paths


def test_the_data_root_is_chosen_by_variable_then_by_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "x"))
    assert paths.data_root() == tmp_path / "x"
    monkeypatch.delenv("TUNESMITH_HOME")
    if os.name == "nt":
        monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
        assert paths.data_root() == tmp_path / "local" / "Tunesmith"
        monkeypatch.delenv("LOCALAPPDATA")
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        assert paths.data_root() == tmp_path / "AppData" / "Local" / "Tunesmith"
        return
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert paths.data_root() == tmp_path / "xdg" / "tunesmith"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.data_root() == tmp_path / ".local" / "share" / "tunesmith"


def test_a_recorded_root_is_used_as_far_as_it_makes_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNESMITH_HOME", raising=False)
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_DATA_HOME", str(tmp_path / "not" / "yet"))
    default = paths.default_root()
    assert (paths.data_root(), paths.root_before()) == (default, None)
    for name in ("elsewhere", "模型 here"):
        paths.record_root(tmp_path / name)
    assert (paths.data_root(), paths.root_before()) == (tmp_path / "模型 here", default)
    for nonsense in (b"", b"relative", b"\xff\xfe"):
        (default / paths.ROOT_RECORD).write_bytes(nonsense)
        assert paths.data_root() == default
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "x"))
    assert (paths.data_root(), paths.root_before()) == (tmp_path / "x", None)


def test_everything_lies_below_the_data_root(home: Path) -> None:
    names = "runs models envs cache tmp logs config locks".split()
    assert [getattr(paths, f"{name}_dir")() for name in names] == [home / name for name in names]
    assert paths.library_path() == home / "library.sqlite"
    assert os.listdir(home) == []


def test_environments_caches_and_temporary_files_lie_in_the_work_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_WORK", str(tmp_path / "w"))
    assert [paths.envs_dir(), paths.cache_dir(), paths.tmp_dir()] == [
        tmp_path / "w" / name for name in ("envs", "cache", "tmp")
    ]
    assert [paths.runs_dir(), paths.models_dir(), paths.config_dir()] == [
        home / name for name in ("runs", "models", "config")
    ]


def test_packages_are_found_by_name() -> None:
    assert (paths.package_folder("tunesmith_gui") / "__init__.py").is_file()
    with pytest.raises(FileNotFoundError, match="install Tunesmith again"):
        paths.package_folder("tunesmith_nothing")
