"""uv is taken from the PATH, else fetched by pip and checked by hash, else the one command that helps is named."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.setup.conftest import RecordedProgress, script
from tunesmith_core import paths
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup.packages import system_libraries, uvtool
from tunesmith_setup.packages.uvtool import Uv

GOOD = "print('uv 0.13.8 (x86_64)')"


def recording_uv(tmp_path: Path, body: str = "") -> tuple[Uv, Path]:
    """A uv that writes its calls and variables down; returns it and that file."""
    calls = tmp_path / "uv-calls.jsonl"
    record = (
        f"import json; open({str(calls)!r}, 'a').write("
        "json.dumps([args, {k: v for k, v in os.environ.items() if k.startswith('UV_')}]) + '\\n')\n"
    )
    return Uv(script(tmp_path / "recording-uv", record + body)), calls


def read_calls(calls: Path) -> list[list[str]]:
    return [json.loads(line)[0] for line in calls.read_text().splitlines()]


def python_with(tmp_path: Path, *, pip: bool, venv: bool) -> Path:
    """A bare Python: its pip writes a wheel with a uv program, its venv makes a folder whose Python has pip."""
    wheel = tmp_path / "index" / "uv-0.13.8-py3-none-any.whl"
    wheel.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("uv-0.13.8.dist-info/METADATA", "")
        archive.writestr("uv-0.13.8.data/scripts/uv", f"#!{sys.executable}\n{GOOD}\n")
    body = f"""
import shutil
from pathlib import Path
from typing import Any
if args[1:3] == ['-m', 'pip'] and {pip}:
    assert '--require-hashes' in args and args[-1].endswith('uv.txt')
    shutil.copy({str(wheel)!r}, args[args.index('--dest') + 1])
elif args[1:3] == ['-m', 'venv'] and ({venv} or Path({str(tmp_path / "venv-installed")!r}).exists()):
    python = Path(args[3]) / 'bin' / 'python'
    python.parent.mkdir(parents=True)
    text = Path(__file__).read_text().replace('and {pip}:', 'and True:')
    python.write_text(text)
    python.chmod(0o755)
else:
    sys.exit('No module named ' + args[2])
"""
    return script(tmp_path / "bare-python", body)


@pytest.fixture
def bare(home: Path, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A computer without uv whose apt-get can do nothing; returns the folder for its Python."""
    monkeypatch.setattr(system_libraries, "apt_install", lambda *_: False)
    return tmp_path


@pytest.mark.parametrize("answer", [GOOD, "print('uv 0.8.0')"])
def test_uv_on_the_path_is_used(home: Path, programs: Path, progress: RecordedProgress, answer: str) -> None:
    program = script(programs / "uv", answer)
    assert uvtool.obtain(progress) == Uv(program)
    assert progress.lines == [f"    uv: {program}"]


def test_the_uv_that_came_with_the_program_is_preferred(
    home: Path, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, progress: RecordedProgress
) -> None:
    program_folder = paths.package_folder("tunesmith_setup").parents[1]
    assert program_folder / "tools" / ("uv.exe" if sys.platform == "win32" else "uv") == uvtool.BUNDLED
    bundled = script(tmp_path / "program" / "tools" / "uv", "print('uv 0.13.8')")
    script(programs / "uv", "print('uv 0.14.0')")
    monkeypatch.setattr(uvtool, "BUNDLED", bundled)
    assert uvtool.obtain(progress).executable == bundled


@pytest.mark.parametrize("answer", ["print('uv 0.7.99')", "print('something else')", "sys.exit(1)"])
def test_an_old_or_broken_uv_is_not_used(
    bare: Path, programs: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    script(programs / "uv", answer)
    monkeypatch.setattr(sys, "executable", str(python_with(bare, pip=True, venv=False)))
    assert uvtool.obtain(progress).executable == paths.data_root() / "tools" / "uv"


def test_pip_fetches_uv_into_the_data_root_once(
    bare: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(python_with(bare, pip=True, venv=False)))
    uv = uvtool.obtain(progress)
    assert progress.lines == [f"    uv: {uv.executable}, downloaded from the package index"]
    if sys.platform != "win32":
        assert uv.executable.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in uv.executable.parent.iterdir()] == [uv.executable.name]
    assert uvtool.version_of(uv.executable) == (0, 13, 8)
    assert list(paths.tmp_dir().iterdir()) == []
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert uvtool.obtain(progress) == uv


def test_a_temporary_environments_pip_fetches_uv(
    bare: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(python_with(bare, pip=False, venv=True)))
    assert uvtool.version_of(uvtool.obtain(progress).executable) == (0, 13, 8)
    assert capfd.readouterr() == ("", ""), "what was tried in vain worries nobody"


def test_the_package_with_venv_is_installed_where_that_is_allowed(
    bare: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(python_with(bare, pip=False, venv=False)))

    def install(packages: tuple[str, ...], _: RecordedProgress) -> bool:
        assert packages == ("python3-venv",)
        (bare / "venv-installed").touch()
        return True

    monkeypatch.setattr(system_libraries, "apt_install", install)
    assert uvtool.version_of(uvtool.obtain(progress).executable) == (0, 13, 8)


@pytest.mark.parametrize("apt_works", [False, True])
def test_without_pip_and_venv_the_command_that_helps_is_named(
    bare: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, apt_works: bool
) -> None:
    monkeypatch.setattr(sys, "executable", str(python_with(bare, pip=False, venv=False)))
    monkeypatch.setattr(system_libraries, "apt_install", lambda *_: apt_works)
    run, quiet = subprocess.run, []

    def counted(command: list[str], **options: Any) -> Any:
        if "venv" in command:
            quiet.append(options["capture_output"])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    with pytest.raises(EnvironmentProblem, match="uv is not installed") as caught:
        uvtool.obtain(progress)
    assert quiet == [True] * (2 if apt_works else 1), "once more where its package was installed"
    assert "-m pip install uv" in caught.value.hint
    assert not (paths.data_root() / "tools").exists()


def test_an_index_that_can_not_be_reached_is_told(
    bare: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(python_with(bare, pip=False, venv=True)))
    monkeypatch.setattr(uvtool, "_download", lambda *_: False)
    with pytest.raises(EnvironmentProblem, match="could not download it"):
        uvtool.obtain(progress)


def test_uv_runs_with_its_cache_in_the_data_root(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_CACHE_DIR", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_HTTP_TIMEOUT", "UV_NO_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    uv, calls = recording_uv(tmp_path)
    uv.run("pip", "sync", "lock.txt")
    arguments, variables = json.loads(calls.read_text())
    assert arguments == ["pip", "sync", "lock.txt"]
    assert variables["UV_CACHE_DIR"] == str(home / "cache" / "uv")
    assert variables["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert variables["UV_PYTHON_DOWNLOADS"] == "never"
    assert variables["UV_NO_PROGRESS"] == "1"
    assert variables["UV_HTTP_TIMEOUT"] == "180"


def test_what_the_person_set_for_uv_stands(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", "/their/cache")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "7")
    monkeypatch.setenv("UV_INDEX_URL", "https://theirs.example/simple")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.delenv("UV_NO_PROGRESS", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    uv, calls = recording_uv(tmp_path)
    uv.run("venv")
    variables = json.loads(calls.read_text())[1]
    assert (variables["UV_CACHE_DIR"], variables["UV_HTTP_TIMEOUT"]) == ("/their/cache", "7")
    assert "UV_DEFAULT_INDEX" not in variables
    assert "UV_NO_PROGRESS" not in variables


@pytest.mark.parametrize(("cafile", "setting"), [("/etc/ssl/certs.pem", "1"), (None, None)])
def test_the_systems_certificates_are_trusted_where_there_are_any(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cafile: str | None, setting: str | None
) -> None:
    monkeypatch.delenv("UV_SYSTEM_CERTS", raising=False)
    nothing = ssl.DefaultVerifyPaths(cafile, None, "", "", "", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    uv, calls = recording_uv(tmp_path)
    uv.run("venv")
    assert json.loads(calls.read_text())[1].get("UV_SYSTEM_CERTS") == setting


def test_a_failure_of_uv_is_an_environment_problem(home: Path, tmp_path: Path) -> None:
    uv, _ = recording_uv(tmp_path, "sys.exit(2)")
    with pytest.raises(EnvironmentProblem, match="uv pip sync ended with exit code 2") as caught:
        uv.run("pip", "sync", "lock.txt")
    assert caught.value.code == "environment-build-failed"
    assert caught.value.context is None


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("failed to extract archive: No space left on device (os error 28)", "disk-full"),
        ("error sending request for url: Connection refused (os error 111)", "environment-build-failed"),
    ],
)
def test_the_cause_of_a_failure_is_read_from_the_last_words_of_uv(
    home: Path, tmp_path: Path, words: str, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    uv, _ = recording_uv(tmp_path, f"sys.exit({words!r})")
    with pytest.raises(EnvironmentProblem) as caught:
        uv.run("pip", "sync", "lock.txt")
    assert (caught.value.code, caught.value.context) == (code, f"{words}\n")
    assert words in capfd.readouterr().err


def test_the_network_is_used_only_when_the_cache_lacks_something(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uv, calls = recording_uv(tmp_path)
    uv.run_offline_first("pip", "sync")
    assert read_calls(calls) == [["--offline", "--quiet", "pip", "sync"]]
    calls.unlink()
    uv, calls = recording_uv(tmp_path, "if '--offline' in args: sys.exit('nothing in the cache')")
    uv.run_offline_first("pip", "sync")
    assert read_calls(calls) == [["--offline", "--quiet", "pip", "sync"], ["pip", "sync"]]
    assert capfd.readouterr() == ("", "")


def test_downloads_are_forgotten_in_our_own_cache_only(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uv, calls = recording_uv(tmp_path, "sys.exit('another uv holds it')")
    uv.forget(["torch"])
    assert not calls.exists()
    uvtool.own_cache().mkdir(parents=True)
    uv.forget(["torch", "triton"])
    assert read_calls(calls) == [
        ["--quiet", "--cache-dir", str(home / "cache/uv"), "cache", "clean", "torch", "triton"]
    ]
    assert capfd.readouterr() == ("", "")
