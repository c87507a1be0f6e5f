"""Repair goes step by step: files from what is at hand, another Python, a new environment; killed, it is resumed."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import KILLED
from tests.setup import breaking
from tests.setup.conftest import LARGE, RecordedProgress, TinyIndex
from tunesmith_core import files, paths, runs
from tunesmith_core.environments import LAUNCHER_POINTER, MANIFEST, PROOF, TRAINING_POINTER, environment_python
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.runs import Run
from tunesmith_setup.environments import envs, file_repair, repair, snapshots
from tunesmith_setup.environments.envs import Environment
from tunesmith_setup.installation import uninstall
from tunesmith_setup.packages import inventory, scratch, stores
from tunesmith_setup.packages.inventory import Entry
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.interpreters import Interpreter

DATA = "tiny_data/rows.txt"


def site(folder: Path) -> Path:
    return inventory.site_folders(folder)[0]


def mend(progress: RecordedProgress) -> None:
    repair.mend(TRAINING_POINTER, progress)


# Stores


def test_an_intact_file_is_taken_from_another_environment(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress
) -> None:
    tiny_index.close()
    shutil.copytree(built_training, paths.envs_dir() / "train-other", symlinks=True)
    shutil.rmtree(paths.cache_dir())
    (site(built_training) / DATA).write_text("short")
    mend(progress)
    assert (site(built_training) / DATA).read_text() == LARGE
    assert "Files: 1. Copied from envs/train-other/lib/python3" in progress.text


def test_an_intact_file_is_taken_from_the_folder_of_wheels(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_index.close()
    shutil.rmtree(paths.cache_dir())
    (tiny_index.folder / "broken-1.0-py3-none-any.whl").write_text("no zip")
    monkeypatch.setattr(scratch, "wheel_folder", lambda: tiny_index.folder)
    breaking.flip(site(built_training) / DATA, random.Random(3))
    mend(progress)
    assert (site(built_training) / DATA).read_text() == LARGE
    assert "Files: 1. Copied from tiny_data-3.1-py3-none-any.whl" in progress.text


def test_the_folder_of_wheels_is_a_setting(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scratch.wheel_folder() is None

    class Chosen:
        values = argparse.Namespace(wheel_folder="/wheels")

    monkeypatch.setattr(scratch, "SettingsFile", Chosen)
    assert scratch.wheel_folder() == Path("/wheels")


def test_a_store_with_other_bytes_gives_nothing(built_training: Path, tmp_path: Path) -> None:
    listed = inventory.read(built_training)
    assert listed is not None
    name = f"{site(built_training).relative_to(built_training).as_posix()}/{DATA}"
    other = paths.envs_dir() / "train-other" / name
    other.parent.mkdir(parents=True)
    other.write_text("y" * len(LARGE))
    shutil.rmtree(paths.cache_dir())
    assert stores.intact_copy(built_training, name, listed.entries[name], tmp_path / "copy") is None
    wheels = tmp_path / "others"
    wheels.mkdir()
    (wheels / "other-1.0-py3-none-any.whl").write_text("no zip")
    assert stores.intact_copy(built_training, name, listed.entries[name], tmp_path / "copy", wheels) is None
    assert stores.intact_copy(built_training, "share/x", Entry(9, None, "x"), tmp_path / "copy", wheels) is None
    (tmp_path / "target").mkdir()
    assert not stores.from_folder(built_training, name, listed.entries[name], tmp_path / "target" / "no" / "folder")
    assert not stores.from_folder(other.parents[5], name, Entry(None, None, "x"), tmp_path / "copy")
    assert not stores.from_folder(tmp_path, "target", Entry(None, None, "x"), tmp_path / "copy")
    assert not stores.from_folder(wheels, "other-1.0-py3-none-any.whl", Entry(7, None, "x"), tmp_path / "copy")
    assert not (tmp_path / "copy").exists(), "no damaged copy is left for the next attempt to stumble over"


# Files


def test_a_whole_package_that_is_gone_comes_back(built_training: Path, progress: RecordedProgress) -> None:
    shutil.rmtree(site(built_training))
    mend(progress)
    assert repair.is_sound(built_training)
    assert "reinstalling" not in progress.text, "list and download cache had everything"


def test_what_the_installer_wrote_comes_from_the_list(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress
) -> None:
    """Even where the download cache is gone, or has a wheel under another address."""
    tiny_index.close()
    shutil.rmtree(paths.cache_dir())
    info = next(site(built_training).glob("tiny_tools-*.dist-info"))
    for path in (info / "RECORD", info / "INSTALLER", info / "REQUESTED", built_training / "bin" / "tiny-tool"):
        path.unlink(missing_ok=True)
    (built_training / "pyvenv.cfg").write_text("")
    mend(progress)
    assert repair.is_sound(built_training)
    assert "the list of the environment" in progress.text


def test_each_file_is_as_it_was_and_a_person_reads_where_it_came_from(
    built_training: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, real_uv: Path
) -> None:
    def mend_files() -> list[str]:
        progress.lines.clear()
        repairing = file_repair.FileRepair(built_training, progress, lambda: Uv(real_uv))
        assert repairing.run() == []
        assert not list(paths.envs_dir().glob(f"{file_repair.STAGING_MARK}*"))
        return [line.strip().replace(str(paths.data_root()), "HOME") for line in progress.lines]

    (built_training / "bin" / "dangling").symlink_to("/nowhere")
    inventory.seal(built_training, json.loads((built_training / MANIFEST).read_text()))
    listed = inventory.read(built_training)
    assert listed is not None
    synced: list[str] = []
    sync = files.fsync_file
    monkeypatch.setattr(files, "fsync_file", lambda path: (synced.append(path.name), sync(path)))
    for damage in (breaking.flip, breaking.truncate):
        damage(site(built_training) / DATA, random.Random(3))
    (site(built_training) / "tiny_data" / "__init__.py").unlink()
    stray = breaking.stray_path_file(built_training)
    (site(built_training) / "__pycache__").mkdir(exist_ok=True)
    for name in ("nobody", "none"):
        (site(built_training) / "__pycache__" / f"{name}.cpython-311.pyc").write_bytes(b"no header")
    (built_training / MANIFEST).write_text("{}")
    for name in ("python", "dangling"):
        (built_training / "bin" / name).unlink()
    told = mend_files()
    places = r"HOME/quarantine/train-tiny-\w+-py\d+-\w+-\d{8}-\d{6}", "cache/uv/archive-v0/[^/]+/tiny_data/rows.txt"
    assert re.fullmatch(rf"Files: 1\. Of unknown origin, moved to {places[0]}\.", told[0])
    assert told[1] == "Files: 2. Removed, Python compiles them again."
    assert told[2] == "Files: 4. Restored from the list of the environment."
    assert re.fullmatch(rf"Files: 1\. Copied from {places[1]}\.", told[3])
    assert len(told) == 4
    assert "copy" in synced, "a copy is on the disk before it takes the place"
    assert not list(built_training.rglob(Path(stray).name))
    assert inventory.compare(built_training, listed, full=True) == []
    assert inventory.scan(built_training).keys() - {PROOF} == {*listed.entries, MANIFEST, inventory.INVENTORY}
    now, then = inventory.scan(built_training), listed.entries
    assert [name for name in then if now[name].mtime_ns != then[name].mtime_ns] == [], "its time too"
    shutil.rmtree(paths.cache_dir())
    (site(built_training) / DATA).unlink()
    assert mend_files() == ["Reinstalling tiny-data", "Files: 1. From reinstalled packages."]


def test_a_download_cache_that_is_damaged_too_is_passed_by(
    built_training: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[list[tuple[str, str]], bool]] = []
    (tmp_path / "again").mkdir()

    @contextmanager
    def installed(folder: Path, packages: list[tuple[str, str]], uv: Uv, *, fresh: bool) -> Iterator[Path | None]:
        asked.append((packages, fresh))
        copy = (tmp_path / "again" if fresh else tmp_path) / site(built_training).relative_to(built_training) / DATA
        copy.parent.mkdir(parents=True)
        copy.write_text(LARGE if fresh else "y" * len(LARGE))
        yield tmp_path / "again" if fresh else tmp_path

    monkeypatch.setattr(scratch, "installed", installed)
    shutil.rmtree(paths.cache_dir())
    (site(built_training) / DATA).unlink()
    assert file_repair.FileRepair(built_training, progress, lambda: Uv(Path("uv"))).run() == []
    assert asked == [([("tiny-data", "3.1")], False), ([("tiny-data", "3.1")], True)]
    assert repair.is_sound(built_training)


def test_strangers_are_moved_away_and_not_deleted(built_training: Path, progress: RecordedProgress) -> None:
    name = breaking.stray_path_file(built_training)
    (site(built_training) / "__pycache__").mkdir(exist_ok=True)
    (site(built_training) / "__pycache__" / "nobody.cpython-311.pyc").write_bytes(b"no header")
    mend(progress)
    moved = list((paths.data_root() / file_repair.QUARANTINE).glob(f"*/{name}"))
    assert len(moved) == 1
    assert repair.is_sound(built_training)
    assert not (site(built_training) / "__pycache__" / "nobody.cpython-311.pyc").exists()
    assert "Removed, Python compiles them again" in progress.text


def test_of_a_foreign_build_nothing_is_left(built_training: Path, progress: RecordedProgress) -> None:
    breaking.foreign_torch(built_training)
    mend(progress)
    assert sorted(path.name for path in site(built_training).glob("torch*")) == ["torch", "torch-2.6.0.dist-info"]


def test_a_lost_list_is_made_again_when_all_files_are_right(built_training: Path, progress: RecordedProgress) -> None:
    (built_training / inventory.INVENTORY).unlink()
    (site(built_training) / DATA).unlink()
    (site(built_training) / "__pycache__").mkdir()
    (site(built_training) / "__pycache__" / "nobody.cpython-311.pyc").write_bytes(b"no header")
    mend(progress)
    assert repair.is_sound(built_training)
    assert "Renewed the list of the environment's files" in progress.text


def test_list_and_manifest_lost_together_mean_building_again(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress
) -> None:
    (built_training / inventory.INVENTORY).unlink()
    (built_training / MANIFEST).unlink()
    mend(progress)
    assert repair.is_sound(built_training)
    assert not list(paths.envs_dir().glob(f"*{repair.BROKEN_MARK}*"))


def test_a_folder_in_the_place_of_a_file_means_building_again(built_training: Path, progress: RecordedProgress) -> None:
    (site(built_training) / DATA).unlink()
    (site(built_training) / DATA / "inside").mkdir(parents=True)
    mend(progress)
    assert repair.is_sound(built_training)


def test_a_file_in_the_place_of_a_folder_means_building_again(built_training: Path, progress: RecordedProgress) -> None:
    shutil.rmtree(built_training / "bin")
    (built_training / "bin").write_text("in the way")
    (built_training / inventory.INVENTORY).unlink()
    mend(progress)
    assert repair.is_sound(built_training)


def test_a_stranger_in_the_place_of_a_package_makes_room(built_training: Path, progress: RecordedProgress) -> None:
    info = next(site(built_training).glob("tiny_data-*.dist-info"))
    shutil.rmtree(info)
    info.write_text("in the way")
    mend(progress)
    assert repair.is_sound(built_training)
    assert (paths.data_root() / file_repair.QUARANTINE).is_dir()


def test_a_file_that_a_virus_scanner_holds_is_named(
    built_training: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied", str(source), None, str(target))

    (site(built_training) / DATA).write_text("damaged")
    monkeypatch.setattr(files, "replace", refuse)
    with pytest.raises(EnvironmentProblem, match=DATA) as failure:
        mend(progress)
    assert failure.value.code == "permission-or-antivirus"
    assert not list(paths.envs_dir().glob(f"{file_repair.STAGING_MARK}*"))


def test_a_full_disk_is_no_missing_store(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(shutil, "copy", full)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    (site(built_training) / DATA).write_text("damaged")
    with pytest.raises(OSError, match="No space left"):
        mend(progress)
    shutil.rmtree(paths.cache_dir())
    monkeypatch.setattr(scratch, "wheel_folder", lambda: tiny_index.folder)
    with pytest.raises(OSError, match="No space left"):
        mend(progress)


def test_a_package_that_the_locks_do_not_pin_is_not_fetched(
    built_training: Path, tiny_index: TinyIndex, tiny_training: Environment, progress: RecordedProgress
) -> None:
    tiny_index.close()
    shutil.rmtree(paths.cache_dir())
    (site(built_training) / DATA).unlink()
    with pytest.raises(EnvironmentProblem):
        mend(progress)
    assert built_training.is_dir(), "the broken environment came back"
    assert not list(paths.envs_dir().glob(f"*{repair.BROKEN_MARK}*"))


# Interpreter


def test_another_python_of_the_version_takes_over(
    built_training: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, interpreter: Interpreter
) -> None:
    """The base Python was removed; the list names a dangling link, as it was right when the list was made."""
    (built_training / "pyvenv.cfg").write_text("home = /nowhere/bin\n")
    breaking.dangle_interpreter(built_training)
    manifest = json.loads((built_training / MANIFEST).read_text()) | {"python": "/nowhere/bin/python3"}
    inventory.seal(built_training, manifest)
    assert repair.starts(built_training) is False
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(interpreters, "find", lambda version: (asked.append(version), interpreter)[1])
    mend(progress)
    assert asked[0] == interpreter.version
    assert repair.is_sound(built_training)
    assert json.loads((built_training / MANIFEST).read_text())["python"] == str(interpreter.executable)
    assert (site(built_training) / DATA).read_text() == LARGE, "the packages stayed"


def test_damage_is_never_blessed_by_a_new_list(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress, interpreter: Interpreter
) -> None:
    (built_training / "pyvenv.cfg").write_text("home = /nowhere/bin\n")
    breaking.dangle_interpreter(built_training)
    inventory.seal(built_training, json.loads((built_training / MANIFEST).read_text()))
    tiny_index.close()
    shutil.rmtree(paths.cache_dir())
    (site(built_training) / DATA).write_text("damaged")
    with pytest.raises(EnvironmentProblem):
        mend(progress)
    listed = inventory.read(built_training)
    assert listed is not None
    assert inventory.compare(built_training, listed)


def test_the_interpreter_is_the_recorded_one_or_one_of_the_version(
    home: Path, monkeypatch: pytest.MonkeyPatch, interpreter: Interpreter
) -> None:
    monkeypatch.setattr(interpreters, "find", lambda version: Interpreter(Path("/found"), version))
    assert scratch.interpreter_for(home / "train-cpu-linux-py311-1") == Interpreter(Path("/found"), (3, 11))
    assert scratch.interpreter_for(home / "odd") is None
    (home / "odd").mkdir()
    (home / "odd" / MANIFEST).write_text(json.dumps({"python": str(interpreter.executable)}))
    assert scratch.interpreter_for(home / "odd") == interpreter
    (home / "odd" / MANIFEST).write_text("[]")
    assert scratch.manifest_of(home / "odd") == {}
    assert scratch.locks_of(home / "odd") == []


# Pointer and building again


def test_a_lost_pointer_finds_the_newest_good_environment(built_training: Path, progress: RecordedProgress) -> None:
    broken = paths.envs_dir() / "train-broken"
    broken.mkdir()
    (broken / MANIFEST).write_text("{}")
    (paths.envs_dir() / TRAINING_POINTER).write_text("\0garbage")
    mend(progress)
    assert repair.pointed_folder(TRAINING_POINTER) == built_training
    assert f"Using {built_training.name} again" in progress.text
    other = paths.envs_dir() / "train-other"
    shutil.copytree(built_training, other, symlinks=True)
    for newest, older in ((other, built_training), (built_training, other)):
        os.utime(older, (1, 1))
        os.utime(newest, (2, 2))
        (paths.envs_dir() / TRAINING_POINTER).unlink()
        mend(progress)
        assert repair.pointed_folder(TRAINING_POINTER) == newest


def test_nothing_to_mend_is_said(home: Path, progress: RecordedProgress) -> None:
    (home / "envs").mkdir()
    for text in ("", " \n", "a\0b"):
        (home / "envs" / TRAINING_POINTER).write_text(text)
        assert repair.pointed_folder(TRAINING_POINTER) is None
    with pytest.raises(EnvironmentProblem, match="does not exist"):
        mend(progress)
    (home / "envs" / TRAINING_POINTER).write_text("somebody-elses")
    with pytest.raises(EnvironmentProblem, match="is not an environment of this program"):
        mend(progress)


def test_what_a_killed_repair_set_aside_is_taken_back(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress
) -> None:
    tiny_index.close()
    shutil.rmtree(paths.cache_dir())
    built_training.rename(built_training.with_name(f"{built_training.name}{repair.BROKEN_MARK}77"))
    mend(progress)
    assert repair.is_sound(built_training)


def test_a_vanished_environment_is_built_again(built_training: Path, progress: RecordedProgress) -> None:
    shutil.rmtree(built_training)
    mend(progress)
    assert repair.is_sound(built_training)


def test_without_network_and_store_a_vanished_environment_stays_away(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress
) -> None:
    tiny_index.close()
    shutil.rmtree(paths.cache_dir())
    shutil.rmtree(built_training)
    with pytest.raises(EnvironmentProblem):
        mend(progress)
    assert not built_training.exists()


def test_pins_are_read_with_their_hashes(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    torch, tools = "torch==2.6.0+cu124 \\\n    --hash=sha256:1\n", "Tiny_Tools==1.0 --hash=sha256:2\n"
    lock.write_text(f"# a comment\n{torch}# more\n{tools}")
    assert scratch.pins([lock]) == {("torch", "2.6.0+cu124"): torch, ("tiny-tools", "1.0"): tools}


def test_a_lost_permission_comes_back(built_training: Path, progress: RecordedProgress) -> None:
    (built_training / "bin" / "tiny-tool").chmod(0o644)
    mend(progress)
    assert os.access(built_training / "bin" / "tiny-tool", os.X_OK)


def test_a_running_run_keeps_its_environment(
    built_training: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(built_training)
    monkeypatch.setattr(runs, "iter_runs", lambda: iter([Run(Path("x"))]))
    monkeypatch.setattr(Run, "is_supervised", lambda run: True)
    with pytest.raises(EnvironmentProblem, match="a run is using it"):
        mend(progress)


def test_building_again_that_does_not_help_is_said(
    built_training: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envs, "build", lambda environment, uv, progress: None)
    shutil.rmtree(built_training)
    with pytest.raises(EnvironmentProblem, match="did not help"):
        mend(progress)


def test_environments_of_this_program_are_known_by_name(interpreter: Interpreter) -> None:
    launcher = repair.environment_of("launcher-linux-py311-1", interpreter)
    training = repair.environment_of("train-cpu-linux-py311-1", interpreter)
    assert launcher is not None
    assert training is not None
    assert (launcher.kind, training.kind) == ("launcher", "train-cpu")
    assert repair.environment_of("train-odd-linux-py311-1", interpreter) is None
    assert repair.environment_of("cpu-linux-py311-1", interpreter) is None


# Kills

POINTS = (
    "repair.quarantined",
    "repair.before-replace",
    "repair.after-replace",
    "repair.interpreter",
    "repair.set-aside",
    "repair.rebuilt",
)

REPAIR = """
import sys
from pathlib import Path
from tunesmith_setup.environments import repair
from tunesmith_setup.packages import scratch, uvtool
from tunesmith_setup.environments.envs import Environment
from tunesmith_setup.probe.interpreters import Interpreter
from tunesmith_setup.packages.inventory import Entry
from tunesmith_setup.progress import Progress
lock, python, uv = (Path(argument) for argument in sys.argv[1:])
interpreter = Interpreter(python, sys.version_info[:2])
environment = Environment("train-tiny", interpreter, (lock,), ("torch",), 1000, "train.current")
scratch.LOCKS = lock.parent
repair.environment_of = lambda name, python: environment
uvtool.obtain = lambda progress: uvtool.Uv(uv)
repair.mend("train.current", Progress())
"""


def test_every_crash_point_is_known() -> None:
    sources = [Path(module.__file__ or "") for module in (repair, file_repair, snapshots, uninstall)]
    named = {name for path in sources for name in re.findall(r'crashpoint\("([a-z.-]+)"\)', path.read_text())}
    assert named == {*POINTS, "rollback.switched", "uninstall.unpointed", "uninstall.removed"}


@pytest.mark.parametrize("point", POINTS)
def test_a_repair_killed_anywhere_is_finished_by_the_next(
    point: str,
    built_training: Path,
    tiny_training: Environment,
    real_uv: Path,
    progress: RecordedProgress,
) -> None:
    if point == "repair.interpreter":
        (built_training / "pyvenv.cfg").write_text("home = /nowhere/bin\n")
        breaking.dangle_interpreter(built_training)
        inventory.seal(built_training, json.loads((built_training / MANIFEST).read_text()))
    elif point in ("repair.set-aside", "repair.rebuilt"):
        (built_training / inventory.INVENTORY).unlink()
        (built_training / MANIFEST).unlink()
    else:
        breaking.stray_path_file(built_training)
        breaking.damage_files(built_training, 4, random.Random(5))
    arguments = [str(tiny_training.locks[0]), str(tiny_training.interpreter.executable), str(real_uv)]
    environment = os.environ | {
        files.CRASHPOINT_VARIABLE: point,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    killed = subprocess.run(
        [sys.executable, "-c", REPAIR, *arguments], env=environment, capture_output=True, timeout=120, check=False
    )
    assert killed.returncode == KILLED, killed.stderr.decode()[-2000:]
    mend(progress)
    folder = repair.pointed_folder(TRAINING_POINTER)
    assert folder is not None
    assert repair.is_sound(folder)


def test_the_launcher_may_be_built_again_during_a_run(
    built_training: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envs, "has_live_run", lambda: True)
    (paths.envs_dir() / LAUNCHER_POINTER).write_text("launcher-gone")
    repair.mend(LAUNCHER_POINTER, progress)
    assert environment_python(built_training).exists()
