"""Environments are built beside the current one, checked, sealed and switched to; interruptions leave the old one."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.setup.conftest import RecordedProgress, TinyIndex, script, wheel
from tunesmith_core import environments, files, paths
from tunesmith_core.environments import MANIFEST, PROOF
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.locks import FileLock
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec
from tunesmith_setup.environments import envs, proof
from tunesmith_setup.environments.envs import Environment
from tunesmith_setup.packages import uvtool
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.packages.wheel_sizes import Weight
from tunesmith_setup.probe.interpreters import Interpreter
from tunesmith_setup.progress import size_text

SITE = Path("Lib/site-packages" if os.name == "nt" else "lib/python3.11/site-packages")
POINTER, PREVIOUS = "tiny.current", "tiny.previous"


class FakeUv(Uv):
    """Makes folders that look like environments; `contents` are the installed files with their recorded sizes."""

    commands: list[list[str]]

    def __init__(self, contents: dict[str, tuple[str, int]] | None = None, python: str = "") -> None:
        object.__setattr__(self, "executable", Path("/nowhere/uv"))
        object.__setattr__(self, "commands", [])
        object.__setattr__(self, "contents", contents or {"tiny.py": ("x = 1\n", 6)})
        object.__setattr__(self, "python", python)

    def run(self, *arguments: str) -> None:
        self.commands.append(list(arguments))
        script(environments.environment_python(Path(arguments[-1])), self.python)  # type: ignore[attr-defined]
        (Path(arguments[-1]) / SITE / "tiny-1.0.dist-info").mkdir(parents=True)

    def run_offline_first(self, *arguments: str) -> None:
        self.commands.append(list(arguments))
        folder = Path(arguments[arguments.index("--python") + 1]).parents[1] / SITE
        rows = []
        for name, (text, num_bytes) in self.contents.items():  # type: ignore[attr-defined]
            (folder / name).write_text(text, newline="\n")
            rows.append(f"{name},,{num_bytes}\n")
        (folder / "tiny-1.0.dist-info" / "RECORD").write_text("".join([*rows, "tiny-1.0.dist-info/RECORD,,\n"]))


@pytest.fixture
def tiny(home: Path, tmp_path: Path, interpreter: Interpreter) -> Environment:
    """An environment with one lock, checked by importing `tiny`."""
    lock = tmp_path / "tiny-linux-py311.txt"
    lock.write_text("# a comment\ntiny==1.0 \\\n    --hash=sha256:00\nother-name==2 --hash=sha256:11\n")
    return Environment("tiny", interpreter, (lock,), ("tiny",), 1000, POINTER)


def pointer_text() -> str:
    return (paths.envs_dir() / POINTER).read_text()


def names_in_envs() -> list[str]:
    return sorted(path.name for path in paths.envs_dir().iterdir())


def test_the_name_tells_kind_system_python_and_locks(tiny: Environment, interpreter: Interpreter) -> None:
    prefix, _, digest = tiny.name.rpartition("-")
    assert prefix == f"tiny-{envs.SYSTEM}-{interpreter.tag}"
    assert len(digest) == 8
    tiny.locks[0].write_text("tiny==1.1 --hash=sha256:00\n")
    assert tiny.name != f"{prefix}-{digest}"
    assert envs.lock_path(Path("locks"), "cpu", interpreter) == Path(f"locks/cpu-{envs.SYSTEM}-{interpreter.tag}.txt")


def test_the_packages_of_the_locks_are_known(tiny: Environment) -> None:
    assert tiny.packages() == ["tiny", "other-name"]


def test_a_build_is_sealed_and_pointed_to(tiny: Environment, progress: RecordedProgress) -> None:
    uv = FakeUv()
    assert (tiny.required_bytes(), tiny.missing()) == (2500, Weight(500, 1000))
    envs.build(tiny, uv, progress)
    assert names_in_envs() == sorted([POINTER, tiny.name])
    assert pointer_text() == f"{tiny.name}\n"
    manifest = json.loads((tiny.folder / MANIFEST).read_text())
    assert abs(time.time() - manifest.pop("built_at")) < 60
    assert manifest == {
        "version": 1,
        "name": tiny.name,
        "kind": "tiny",
        "python": str(tiny.interpreter.executable),
        "locks": {tiny.locks[0].name: files.sha256_file(tiny.locks[0])},
    }
    assert [line.strip() for line in progress.lines] == [
        "Checking every installed file",
        f"{tiny.name}: {size_text(files.folder_bytes(tiny.folder))}",
    ]
    created, installed = uv.commands
    assert created[:4] == ["venv", "--quiet", "--relocatable", "--no-project"]
    assert installed[:2] == ["pip", "sync"]
    assert {"--require-hashes", "copy"} <= set(installed)
    assert installed[-1] == str(tiny.locks[0])
    assert (tiny.required_bytes(), tiny.missing()) == (0, Weight(0, 0))


def test_a_complete_environment_is_not_built_again(tiny: Environment, progress: RecordedProgress) -> None:
    envs.build(tiny, FakeUv(), progress)
    before = (paths.envs_dir() / POINTER).stat().st_mtime_ns
    uv = FakeUv()
    envs.build(tiny, uv, progress)
    assert uv.commands == []
    assert (paths.envs_dir() / POINTER).stat().st_mtime_ns == before
    assert "already complete" in progress.text


def test_a_pointer_elsewhere_is_switched_to_a_complete_environment(
    tiny: Environment, progress: RecordedProgress
) -> None:
    envs.build(tiny, FakeUv(), progress)
    (paths.envs_dir() / POINTER).write_text("another\n")
    envs.build(tiny, FakeUv(), progress)
    assert pointer_text() == f"{tiny.name}\n"
    assert not (paths.envs_dir() / PREVIOUS).exists(), "what was pointed to was no environment"


def test_an_environment_without_a_pointer_switches_nothing(tiny: Environment, progress: RecordedProgress) -> None:
    unpointed = Environment("test", tiny.interpreter, tiny.locks, ("tiny",), 1000)
    envs.build(unpointed, FakeUv(), progress)
    assert names_in_envs() == [unpointed.name]


def test_leftovers_of_an_interrupted_build_are_removed(tiny: Environment, progress: RecordedProgress) -> None:
    (paths.envs_dir() / f"{tiny.name}.building-1" / "lib").mkdir(parents=True)
    (tiny.folder / "lib").mkdir(parents=True)
    envs.build(tiny, FakeUv(), progress)
    assert names_in_envs() == sorted([POINTER, tiny.name])
    assert tiny.is_complete()


def test_an_environment_that_lost_its_base_python_is_built_again(tiny: Environment, progress: RecordedProgress) -> None:
    envs.build(tiny, FakeUv(), progress)
    tiny.python.unlink()
    assert not tiny.is_complete()
    envs.build(tiny, FakeUv(), progress)
    assert tiny.is_complete()


def test_damaged_files_stop_the_build_and_leave_the_old_environment(
    tiny: Environment, progress: RecordedProgress
) -> None:
    paths.envs_dir().mkdir(parents=True)
    (paths.envs_dir() / POINTER).write_text("the-good-old-one\n")
    with pytest.raises(EnvironmentProblem, match=r"installed files are damaged \(1\): .*/tiny\.py \(changed\)"):
        envs.build(tiny, FakeUv({"tiny.py": ("x = 1\n", 60)}), progress)
    assert pointer_text() == "the-good-old-one\n"
    assert names_in_envs() == [POINTER]


def test_five_of_many_damaged_files_are_named(tiny: Environment, progress: RecordedProgress) -> None:
    contents = {f"tiny{number}.py": ("x = 1\n", 60) for number in range(7)}
    with pytest.raises(EnvironmentProblem) as caught:
        envs.build(tiny, FakeUv(contents), progress)
    site = f"{SITE.as_posix()}/tiny"
    assert (
        caught.value.message
        == "tiny: installed files are damaged (7): "
        + "; ".join(f"{site}{number}.py (changed)" for number in range(5))
        + "."
    )


def test_packages_that_can_not_be_imported_stop_the_build(tiny: Environment, progress: RecordedProgress) -> None:
    uv = FakeUv(python="sys.stderr.buffer.write(b'ImportError: no tiny\\n'); sys.exit(1)")
    with pytest.raises(EnvironmentProblem, match="can't be imported") as caught:
        envs.build(tiny, uv, progress)
    assert caught.value.context == "ImportError: no tiny\n"
    assert names_in_envs() == []
    uv = FakeUv(python="sys.stderr.write('x' * 5000 + 'ImportError'); sys.exit(1)")
    with pytest.raises(EnvironmentProblem) as caught:
        envs.build(tiny, uv, progress)
    assert caught.value.context == "x" * (4000 - len("ImportError")) + "ImportError", "the end says what was wrong"


def test_a_full_disk_is_told_before_anything_is_built(
    tiny: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _: 2499)
    with pytest.raises(EnvironmentProblem, match="tiny needs 0 MiB, 0 MiB are free") as caught:
        envs.build(tiny, FakeUv(), progress)
    assert caught.value.code == "disk-full"
    assert "TUNESMITH_HOME" in caught.value.hint
    monkeypatch.setattr(files, "free_bytes", lambda _: 2500)
    envs.build(tiny, FakeUv(), progress)
    assert tiny.is_complete(), "just enough is enough"


def test_what_was_written_is_on_the_disk_before_the_manifest_says_so(
    tiny: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []

    def sync() -> None:
        (staging,) = paths.envs_dir().glob(f"*{envs.STAGING_MARK}*")
        synced.append((staging / SITE / "tiny.py").exists() and not (staging / MANIFEST).exists())

    monkeypatch.setattr(os, "sync", sync, raising=False)
    envs.build(tiny, FakeUv(), progress)
    assert synced == ([] if sys.platform == "win32" else [True])


def test_leftovers_make_room_and_what_is_held_stops_no_build(
    tiny: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may hold a file of what is to go: it stays under a name that nothing is taken from."""
    unpointed = dataclasses.replace(tiny, pointer=None)
    leftover = paths.envs_dir() / f"{tiny.name}{envs.STAGING_MARK}1"
    for folder in (leftover, tiny.folder):
        (folder / "lib").mkdir(parents=True)

    def refuse(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(13, "in use", str(path))

    with monkeypatch.context() as context:
        context.setattr(shutil, "rmtree", refuse)
        envs.build(unpointed, FakeUv(), progress)
    assert tiny.is_complete()
    removing = f"{tiny.name}{envs.REMOVING_MARK}{os.getpid()}"
    assert names_in_envs() == sorted([tiny.name, leftover.name, removing])
    shutil.rmtree(paths.envs_dir() / removing)
    (tiny.folder / MANIFEST).unlink()
    envs.build(unpointed, FakeUv(), progress)
    assert names_in_envs() == [tiny.name]


def test_real_uv_installs_from_a_hashed_lock_and_offline_again(
    home: Path,
    tmp_path: Path,
    interpreter: Interpreter,
    progress: RecordedProgress,
    real_uv: Path,
    tiny_index: TinyIndex,
) -> None:
    locks = (tmp_path / "one.txt", tmp_path / "two.txt")
    locks[0].write_text(wheel(tiny_index.folder, "tiny-one", "1.0", {"tiny_one.py": "value = 1\n"}))
    locks[1].write_text(wheel(tiny_index.folder, "tiny-two", "2.0", {"tiny_two.py": "value = 2\n"}))
    environment = Environment("tiny", interpreter, locks, ("tiny_one", "tiny_two"), 1000, POINTER)
    envs.build(environment, Uv(real_uv), progress)
    answer = subprocess.run(
        [environment.python, "-I", "-c", "import tiny_one, tiny_two; print(tiny_one.value + tiny_two.value)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "3\n"
    copied = envs.site_packages(environment.folder) / "tiny_one.py"
    assert copied.stat().st_nlink == 1

    tiny_index.close()
    (environment.folder / MANIFEST).unlink()
    envs.build(environment, Uv(real_uv), progress)
    assert environment.is_complete()


def test_real_uv_refuses_a_wheel_of_another_hash(
    home: Path,
    tmp_path: Path,
    interpreter: Interpreter,
    progress: RecordedProgress,
    real_uv: Path,
    tiny_index: TinyIndex,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lock = tmp_path / "one.txt"
    lock.write_text(wheel(tiny_index.folder, "tiny-one", "1.0", {"tiny_one.py": "value = 1\n"}))
    wheel(tiny_index.folder, "tiny-one", "1.0", {"tiny_one.py": "value = 'foisted'\n"})
    environment = Environment("tiny", interpreter, (lock,), ("tiny_one",), 1000, POINTER)
    with pytest.raises(EnvironmentProblem, match="uv pip sync ended"):
        envs.build(environment, Uv(real_uv), progress)
    assert "Hash mismatch" in capfd.readouterr().err
    assert names_in_envs() == []


def test_a_damaged_download_cache_is_passed_by(
    home: Path,
    tmp_path: Path,
    interpreter: Interpreter,
    progress: RecordedProgress,
    real_uv: Path,
    tiny_index: TinyIndex,
) -> None:
    lock = tmp_path / "both.txt"
    lines = [
        wheel(tiny_index.folder, f"tiny-{name}", "1.0", {f"tiny_{name}.py": f"value = '{name}'\n"})
        for name in ("one", "two")
    ]
    lock.write_text("".join(lines))
    environment = Environment("tiny", interpreter, (lock,), ("tiny_one", "tiny_two"), 1000, POINTER)
    envs.build(environment, Uv(real_uv), progress)
    (environment.folder / MANIFEST).unlink()
    (poisoned,) = uvtool.own_cache().glob("archive-v*/*/tiny_one.py")
    poisoned.write_text("value = 'bad'\n")
    tiny_index.requests.clear()
    envs.build(environment, Uv(real_uv), progress)
    assert "Downloading damaged packages again: tiny-one" in progress.text
    assert [path for path in tiny_index.requests if path.endswith(".whl")] == ["/wheels/tiny_one-1.0-py3-none-any.whl"]
    assert (envs.site_packages(environment.folder) / "tiny_one.py").read_text() == "value = 'one'\n"


@pytest.mark.parametrize("name", ["litellm_init.pth", "sitecustomize.py", "usercustomize.py"])
def test_packages_that_run_at_every_start_are_refused(tiny: Environment, progress: RecordedProgress, name: str) -> None:
    with pytest.raises(EnvironmentProblem, match=f"run at every start: {name}"):
        envs.build(tiny, FakeUv({name: ("", 0)}), progress)
    assert names_in_envs() == []
    envs.build(tiny, FakeUv({"distutils-precedence.pth": ("", 0)}), progress)
    assert tiny.is_complete()


def changed(environment: Environment, version: str) -> Environment:
    """Return the same environment of another lock."""
    environment.locks[0].write_text(f"tiny=={version} --hash=sha256:00\n")
    return environment


def test_the_previous_environment_stays_and_older_ones_go(tiny: Environment, progress: RecordedProgress) -> None:
    names = []
    for version in ("1", "2", "3"):
        envs.build(changed(tiny, version), FakeUv(), progress)
        names.append(tiny.name)
    assert names_in_envs() == sorted([POINTER, PREVIOUS, *names[1:]])
    assert (paths.envs_dir() / PREVIOUS).read_text() == f"{names[1]}\n"
    assert f"Removed {names[0]}" in progress.text
    envs.build(changed(tiny, "2"), FakeUv(), progress)
    assert pointer_text() == f"{names[1]}\n"
    assert (paths.envs_dir() / PREVIOUS).read_text() == f"{names[2]}\n"


def test_nothing_is_removed_while_a_run_may_use_it(
    tiny: Environment, progress: RecordedProgress, make_spec: Callable[[], RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(make_spec())
    with FileLock(run.lock_path):
        for version in ("1", "2", "3"):
            envs.build(changed(tiny, version), FakeUv(), progress)
        assert len(names_in_envs()) == 5
    replace = Path.replace

    def held(path: Path, target: Path) -> Path:
        if envs.REMOVING_MARK in str(target):
            raise PermissionError(13, "in use", str(path))
        return replace(path, target)

    with monkeypatch.context() as context:
        context.setattr(Path, "replace", held)
        envs.build(tiny, FakeUv(), progress)
    assert len(names_in_envs()) == 5
    envs.build(tiny, FakeUv(), progress)
    assert len(names_in_envs()) == 4


def test_only_a_proven_environment_is_pointed_to(
    tiny: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven = dataclasses.replace(tiny, device="cpu", modules=("no_such_module",))
    asked: list[tuple[Path, str]] = []

    def fail(folder: Path, device: str, _: RecordedProgress) -> None:
        asked.append((folder, device))
        raise EnvironmentProblem("triton-not-installed", "no")

    def succeed(folder: Path, device: str, _: RecordedProgress) -> None:
        asked.append((folder, device))
        files.atomic_write_json(folder / PROOF, {"state": "ok"})

    monkeypatch.setattr(proof, "prove", fail)
    with pytest.raises(EnvironmentProblem):
        envs.build(proven, FakeUv(), progress)
    assert proven.is_complete(), "gigabytes are not thrown away for a driver that is missing"
    assert not (paths.envs_dir() / POINTER).exists()
    monkeypatch.setattr(proof, "prove", succeed)
    for _ in range(2):
        uv = FakeUv()
        envs.build(proven, uv, progress)
        assert uv.commands == []
    assert asked == [(proven.folder, "cpu")] * 2, "once proven, it is not proven again"
    assert pointer_text() == f"{proven.name}\n"


def test_files_that_disappear_meanwhile_are_told(
    tiny: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(*_: object) -> None:
        raise FileNotFoundError(2, "No such file", "/data/envs/tiny/lib")

    for name in ("_seal", "_switch"):
        with monkeypatch.context() as context:
            context.setattr(envs, name, vanish)
            with pytest.raises(EnvironmentProblem, match="/data/envs/tiny/lib disappeared") as caught:
                envs.build(tiny, FakeUv(), progress)
        assert caught.value.code == "environment-missing"
        assert caught.value.message.startswith("tiny: ")
        assert "brings back what is missing" in caught.value.hint
        assert not list(paths.envs_dir().glob(f"*{envs.STAGING_MARK}*"))


def test_without_a_name_the_folder_of_environments_is_what_disappeared(
    tiny: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(envs, "_seal", vanish)
    with pytest.raises(EnvironmentProblem) as caught:
        envs.build(tiny, FakeUv(), progress)
    assert caught.value.message == f"tiny: {paths.envs_dir()} disappeared in the meantime."


def test_only_what_is_missing_needs_room(tiny: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {tiny.locks[0].stem: {"tiny": [100, 300], "other-name": [1000, 2000], "not-locked": [9, 9]}}
    tiny.locks[0].with_name("wheel_sizes.json").write_text(json.dumps(sizes))
    assert (tiny.missing(), tiny.disk_bytes(), tiny.required_bytes()) == (Weight(1100, 2300), 2300, 5700)
    fetched = uvtool.own_cache() / "wheels-v7" / "pypi" / "other-name"
    fetched.mkdir(parents=True)
    (fetched / "2-py3-none-any.http").touch()
    (fetched / "3-py3-none-any.msgpack").touch()
    assert (tiny.missing(), tiny.required_bytes()) == (Weight(100, 300), 2700)


def test_a_half_environment_that_a_program_holds_is_named(
    tiny: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.folder.mkdir(parents=True)

    def held(path: Path, target: Path) -> Path:
        raise PermissionError(13, "in use", str(path))

    with monkeypatch.context() as context:
        context.setattr(Path, "replace", held)
        with pytest.raises(PermissionError, match="in use"):
            envs.build(tiny, FakeUv(), progress)
    envs.build(tiny, FakeUv(), progress)
    assert tiny.is_complete()
