"""Where things live, which Python runs what, and with which variables."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tunesmith_core import environments, paths, start
from tunesmith_core.errors import EnvironmentProblem


def test_the_data_root_is_chosen_by_variable_then_by_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "x"))
    assert paths.data_root() == tmp_path / "x"
    monkeypatch.delenv("TUNESMITH_HOME")
    if sys.platform == "win32":
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


def test_everything_lies_below_the_data_root(home: Path) -> None:
    names = "runs models envs cache tmp logs config locks".split()
    assert [getattr(paths, f"{name}_dir")() for name in names] == [home / name for name in names]
    assert paths.library_path() == home / "library.sqlite"
    assert os.listdir(home) == []


def test_packages_are_found_by_name() -> None:
    assert (paths.package_folder("tunesmith_gui") / "__init__.py").is_file()
    with pytest.raises(FileNotFoundError, match="install Tunesmith again"):
        paths.package_folder("tunesmith_nothing")


def make_environment(folder: Path) -> Path:
    python = environments.environment_python(folder)
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def test_a_pointer_names_a_folder_or_a_path(home: Path, tmp_path: Path) -> None:
    inside, outside = make_environment(home / "envs" / "train-1"), make_environment(tmp_path / "elsewhere")
    (home / "envs" / "train.current").write_text("train-1\n")
    (home / "envs" / "launcher.current").write_text(str(tmp_path / "elsewhere"))
    assert environments.training_python() == inside
    assert environments.launcher_python() == outside
    assert environments.engine_command("run")[0] == str(inside)
    assert environments.engine_command("run")[-2:] == ["tunesmith_engine", "run"]


@pytest.mark.parametrize("content", [None, "", "gone"])
def test_a_pointer_to_nothing_says_what_to_do(home: Path, content: str | None) -> None:
    (home / "envs").mkdir()
    if content is not None:
        (home / "envs" / "train.current").write_text(content)
    with pytest.raises(EnvironmentProblem) as caught:
        environments.training_python()
    assert caught.value.code == "environment-missing"


def test_the_engine_sees_no_foreign_compilers_libraries_or_secrets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "LD_LIBRARY_PATH", "HF_TOKEN", "PYTHONPATH", "CONDA_PREFIX", "VIRTUAL_ENV", "cuda_path"):
        monkeypatch.setenv(name, "foreign")
    monkeypatch.setenv("LANG", "C.UTF-8")
    seen = environments.engine_environment()
    assert "foreign" not in seen.values()
    assert seen["LANG"] == "C.UTF-8"
    assert seen["TMPDIR"] == str(home / "tmp")
    assert seen["HF_HOME"] == str(home / "cache" / "hf")
    assert seen["TUNESMITH_HOME"] == str(home)
    assert (home / "tmp").is_dir()


def test_the_start_script_runs_our_modules_isolated_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "tunesmith_core.py").write_text("raise SystemExit('the wrong one')")
    result = subprocess.run(
        environments.own_command("tunesmith_core", "version"),
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("Tunesmith ")


def test_the_start_script_maps_our_names_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = start.ProgramFinder()
    assert finder.find_spec("numpy") is None
    found = finder.find_spec("tunesmith_gui")
    assert found is not None
    assert found.origin == str(paths.package_folder("tunesmith_gui") / "__init__.py")
    monkeypatch.setattr(start, "PACKAGES", ("tunesmith_nothing",))
    assert finder.find_spec("tunesmith_nothing") is None


def test_the_start_script_hands_on_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(runpy, "run_module", lambda name, **options: calls.append((name, sys.argv[:], options)))
    monkeypatch.setattr(sys, "argv", ["start.py", "tunesmith_core", "runs"])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    runpy.run_path(start.__file__, run_name="__main__")
    assert calls == [("tunesmith_core", ["tunesmith_core", "runs"], {"run_name": "__main__", "alter_sys": True})]


def test_the_windows_job_is_importable_and_absent_elsewhere() -> None:
    from tunesmith_core import windows_job

    assert hasattr(windows_job, "WindowsJob") == (sys.platform == "win32")
