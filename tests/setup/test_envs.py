"""Environments are built beside the current one, checked, sealed and switched to; interruptions leave the old one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.setup.conftest import RecordedProgress, TinyIndex, wheel
from tunesmith_core import environments, files, paths
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup import envs
from tunesmith_setup.envs import Environment
from tunesmith_setup.interpreters import Interpreter
from tunesmith_setup.uvtool import Uv

POINTER = "tiny.current"


class FakeUv(Uv):
    """Makes folders that look like environments; `contents` are the installed files with their recorded sizes."""

    commands: list[list[str]]

    def __init__(self, contents: dict[str, tuple[str, int]] | None = None, python: str = "#!/bin/sh\nexit 0\n") -> None:
        object.__setattr__(self, "executable", Path("/nowhere/uv"))
        object.__setattr__(self, "commands", [])
        object.__setattr__(self, "contents", contents or {"tiny.py": ("x = 1\n", 6)})
        object.__setattr__(self, "python", python)

    def run(self, *arguments: str) -> None:
        self.commands.append(list(arguments))
        python = environments.environment_python(Path(arguments[-1]))
        python.parent.mkdir(parents=True)
        python.write_text(self.python)  # type: ignore[attr-defined]
        python.chmod(0o755)
        (Path(arguments[-1]) / "lib" / "python3.11" / "site-packages" / "tiny-1.0.dist-info").mkdir(parents=True)

    def run_offline_first(self, *arguments: str) -> None:
        self.commands.append(list(arguments))
        folder = Path(arguments[arguments.index("--python") + 1]).parents[1] / "lib" / "python3.11" / "site-packages"
        rows = []
        for name, (text, num_bytes) in self.contents.items():  # type: ignore[attr-defined]
            (folder / name).write_text(text)
            rows.append(f"{name},,{num_bytes}\n")
        (folder / "tiny-1.0.dist-info" / "RECORD").write_text("".join(rows))


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
    assert prefix == f"tiny-linux-{interpreter.tag}"
    assert len(digest) == 8
    tiny.locks[0].write_text("tiny==1.1 --hash=sha256:00\n")
    assert tiny.name != f"{prefix}-{digest}"
    assert envs.lock_path(Path("locks"), "cpu", interpreter) == Path(f"locks/cpu-linux-{interpreter.tag}.txt")


def test_the_packages_of_the_locks_are_known(tiny: Environment) -> None:
    assert tiny.packages() == ["tiny", "other-name"]


def test_a_build_is_sealed_and_pointed_to(tiny: Environment, progress: RecordedProgress) -> None:
    uv = FakeUv()
    assert tiny.required_bytes() == 2000
    envs.build(tiny, uv, progress)
    assert names_in_envs() == sorted([POINTER, tiny.name])
    assert pointer_text() == f"{tiny.name}\n"
    manifest = json.loads((tiny.folder / envs.MANIFEST).read_text())
    assert manifest["name"] == tiny.name
    assert manifest["locks"] == {tiny.locks[0].name: files.sha256_file(tiny.locks[0])}
    created, installed = uv.commands
    assert created[:4] == ["venv", "--quiet", "--relocatable", "--no-project"]
    assert installed[:2] == ["pip", "sync"]
    assert {"--require-hashes", "copy"} <= set(installed)
    assert installed[-1] == str(tiny.locks[0])
    assert tiny.required_bytes() == 0


def test_a_complete_environment_is_not_built_again(tiny: Environment, progress: RecordedProgress) -> None:
    envs.build(tiny, FakeUv(), progress)
    before = (paths.envs_dir() / POINTER).stat().st_mtime_ns
    uv = FakeUv()
    envs.build(tiny, uv, progress)
    assert uv.commands == []
    assert (paths.envs_dir() / POINTER).stat().st_mtime_ns == before
    assert "complete already" in progress.text


def test_a_pointer_elsewhere_is_switched_to_a_complete_environment(
    tiny: Environment, progress: RecordedProgress
) -> None:
    envs.build(tiny, FakeUv(), progress)
    (paths.envs_dir() / POINTER).write_text("another\n")
    envs.build(tiny, FakeUv(), progress)
    assert pointer_text() == f"{tiny.name}\n"


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
    with pytest.raises(EnvironmentProblem, match=r"1 installed files are damaged: tiny\.py has 6 bytes instead of 60"):
        envs.build(tiny, FakeUv({"tiny.py": ("x = 1\n", 60)}), progress)
    assert pointer_text() == "the-good-old-one\n"
    assert names_in_envs() == [POINTER]


def test_packages_that_can_not_be_imported_stop_the_build(tiny: Environment, progress: RecordedProgress) -> None:
    uv = FakeUv(python="#!/bin/sh\necho 'ImportError: no tiny' >&2\nexit 1\n")
    with pytest.raises(EnvironmentProblem, match="can't be imported") as caught:
        envs.build(tiny, uv, progress)
    assert caught.value.context == "ImportError: no tiny\n"
    assert names_in_envs() == []


def test_a_full_disk_is_told_before_anything_is_built(
    tiny: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _: 1999)
    with pytest.raises(EnvironmentProblem, match="tiny needs 0 MiB, 0 MiB are free") as caught:
        envs.build(tiny, FakeUv(), progress)
    assert caught.value.code == "disk-full"
    assert "TUNESMITH_HOME" in caught.value.hint


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
    (environment.folder / envs.MANIFEST).unlink()
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
