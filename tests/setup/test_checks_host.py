"""The checks of the computer judge recorded facts: each fault has words, a code and a next step."""

from __future__ import annotations

import dataclasses
import platform
import shutil
from collections import namedtuple
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest

from tests.setup.conftest import RecordedProgress
from tunesmith_core import files, paths, placement
from tunesmith_core.errors import UserError
from tunesmith_core.machine import Disk, Machine, PythonCandidate, Wsl
from tunesmith_core.setup_messages import Finding, State
from tunesmith_setup.checks import base, disk, host
from tunesmith_setup.checks.base import Check
from tunesmith_setup.progress import GIB, Progress

WINDOWS = Machine(
    system="windows",
    ram_total_bytes=32 * GIB,
    ram_free_bytes=20 * GIB,
    commit_limit_bytes=40 * GIB,
    commit_used_bytes=12 * GIB,
    vc_runtime=(14, 44),
    long_paths=True,
    security=(),
    wsl=Wsl(state="ready"),
    leaks={},
    pythons=(PythonCandidate(executable="python", version=(3, 12, 1)),),
)
LINUX = Machine(system="linux", ram_total_bytes=32 * GIB, leaks={}, pythons=())
Usage = namedtuple("Usage", "total used free")
NO_RUNTIME = "PyTorch can't be loaded without the Visual C++ runtime:"
OLD_PYTHON = PythonCandidate(executable="old", version=(3, 10, 2), problem="only 3.11, 3.12 and 3.13 are supported")
NAMELESS_PYTHON = PythonCandidate(executable="nameless")


def verify(check: Check, machine: Machine, progress: Progress) -> Finding:
    return check.verify(machine, progress)


def having(machine: Machine, **facts: Any) -> Machine:
    return dataclasses.replace(machine, **facts)


@pytest.mark.parametrize(
    ("check", "machine", "state", "code", "words"),
    [
        (host.Memory(), WINDOWS, "ok", None, "32.0 GiB of main memory, 20.0 GiB free."),
        (host.Memory(), having(WINDOWS, ram_free_bytes=None), "ok", None, "32.0 GiB of main memory."),
        (host.Memory(), having(WINDOWS, ram_total_bytes=None), "unknown", None, "Reading the memory took too long."),
        (
            host.Memory(),
            having(LINUX, ram_total_bytes=4 * GIB),
            "warning",
            "memory-full",
            "4.0 GiB of main memory. Models above 0.5 B parameters won't load.",
        ),
        (
            host.Memory(),
            having(WINDOWS, commit_used_bytes=38 * GIB),
            "failed",
            "page-file-too-small",
            "Windows has only 2.0 GiB left for programs. PyTorch needs 8 GiB to start.",
        ),
        (host.VcRuntime(), WINDOWS, "ok", None, "Version 14.44."),
        (host.VcRuntime(), having(WINDOWS, vc_runtime=None), "unknown", None, "Looking up the runtime took too long."),
        *(
            (host.VcRuntime(), having(WINDOWS, vc_runtime=version), state, "dll-load-failed-vcredist", words)
            for version, state, words in (
                ((0, 0), "failed", f"{NO_RUNTIME} it is missing."),
                ((0, 1), "failed", f"{NO_RUNTIME} version 0.1 is too old."),
                ((14, 19), "failed", f"{NO_RUNTIME} version 14.19 is too old."),
                ((14, 20), "warning", "Version 14.20. Triton needs 14.42 or newer."),
                ((14, 41), "warning", "Version 14.41. Triton needs 14.42 or newer."),
            )
        ),
        (host.VcRuntime(), having(WINDOWS, vc_runtime=(14, 42)), "ok", None, "Version 14.42."),
        (host.LongPaths(), WINDOWS, "ok", None, "Windows allows long paths."),
        (host.LongPaths(), having(WINDOWS, long_paths=None), "unknown", None, "Reading the setting took too long."),
        (
            host.LongPaths(),
            having(WINDOWS, long_paths=False),
            "ok",
            None,
            "Windows allows 260 characters. Tunesmith's folders are short enough.",
        ),
        (host.Leaks(), WINDOWS, "ok", None, "None that misleads compilers or libraries."),
        (
            host.Leaks(),
            having(LINUX, leaks={"CUDA_PATH": "C:\\old", "CC": "gcc"}),
            "ok",
            None,
            "Hidden from runs, because they mislead compilers or libraries: CUDA_PATH, CC.",
        ),
        (
            host.Security(),
            having(WINDOWS, security=None),
            "unknown",
            None,
            "Looking up security software took too long.",
        ),
        (host.Security(), WINDOWS, "ok", None, "None found that could block compiled kernels."),
        (
            host.Security(),
            having(WINDOWS, security=("Avast", "ESET")),
            "ok",
            None,
            "Avast, ESET: if kernels fail to compile, allow the folder {root} there.",
        ),
        (host.WslState(), having(WINDOWS, wsl=None), "unknown", None, "WSL did not answer in time."),
        (host.WslState(), WINDOWS, "ok", None, "Ready as a fallback."),
        (
            host.WslState(),
            having(WINDOWS, wsl=Wsl(state="failed", detail="0x80070002")),
            "warning",
            "wsl-not-usable",
            "WSL is installed but does not work.",
        ),
        (
            host.ProgramPython(),
            having(LINUX, pythons=(OLD_PYTHON, *(WINDOWS.pythons or ()), NAMELESS_PYTHON)),
            "ok",
            None,
            "{runs} Environments can be built with 3.12.1.",
        ),
        (
            host.ProgramPython(),
            having(LINUX, pythons=None),
            "unknown",
            None,
            "{runs} Looking for others took too long.",
        ),
        *(
            (
                host.ProgramPython(),
                having(LINUX, pythons=pythons),
                "warning",
                "python-unsupported",
                "{runs} Building environments needs Python 3.11 to 3.13, and none was found.",
            )
            for pythons in ((), (OLD_PYTHON,), (NAMELESS_PYTHON,))
        ),
    ],
)
def test_facts_are_judged(
    check: Check, machine: Machine, state: str, code: str | None, words: str, progress: RecordedProgress
) -> None:
    finding = verify(check, machine, progress)
    runs = f"Tunesmith runs on Python {platform.python_version()}."
    assert (finding.state, finding.code) == (state, code)
    assert finding.message == words.format(root=paths.data_root(), runs=runs)
    assert finding.fix is not None or code in (None, "memory-full")
    if isinstance(check, host.Leaks):
        assert finding.evidence == "\n".join(f"{name}={value}" for name, value in (machine.leaks or {}).items())
    elif isinstance(check, host.WslState):
        assert finding.evidence == ((machine.wsl.detail or "") if machine.wsl else "")


@pytest.mark.parametrize(
    ("check", "machine", "action", "automatic", "needs_network"),
    [
        (host.Memory(), having(WINDOWS, commit_used_bytes=38 * GIB), "open-page-file-settings", False, False),
        (host.VcRuntime(), having(WINDOWS, vc_runtime=(14, 16)), "install-vc-runtime", False, True),
        (host.WslState(), having(WINDOWS, wsl=Wsl(state="failed")), "install-wsl", False, True),
        (host.ProgramPython(), LINUX, "retry", False, True),
    ],
)
def test_a_fix_says_whether_it_needs_the_person_and_the_network(
    check: Check, machine: Machine, action: str, automatic: bool, needs_network: bool, progress: RecordedProgress
) -> None:
    fix = verify(check, machine, progress).fix
    assert fix is not None
    assert (fix.action, fix.automatic, fix.needs_network) == (action, automatic, needs_network)


def test_main_memory_is_judged_at_7_gib(progress: RecordedProgress) -> None:
    for num_bytes, state in ((7 * GIB, "ok"), (7 * GIB - 1, "warning")):
        assert verify(host.Memory(), having(LINUX, ram_total_bytes=num_bytes), progress).state == state


def test_what_windows_has_left_is_judged_at_8_gib(progress: RecordedProgress) -> None:
    for left_bytes, state in ((8 * GIB, "ok"), (8 * GIB - 1, "failed")):
        machine = having(WINDOWS, commit_limit_bytes=30 * GIB, commit_used_bytes=30 * GIB - left_bytes)
        assert verify(host.Memory(), machine, progress).state == state
    assert verify(host.Memory(), having(WINDOWS, commit_limit_bytes=0, commit_used_bytes=0), progress).state == "failed"


@pytest.mark.parametrize(
    ("root", "machine", "state", "code"),
    [
        ("C:\\Tunesmith", WINDOWS, "ok", None),
        ("C:\\My Tunesmith", WINDOWS, "failed", "path-non-ascii"),
        ("C:\\训练", WINDOWS, "failed", "path-non-ascii"),
        ("C:\\OneDrive\\T", WINDOWS, "warning", "folder-unsuitable"),
        ("C:\\Somewhere\\far\\below", WINDOWS, "ok", None),
        ("C:\\Somewhere\\far\\below", having(WINDOWS, long_paths=False), "warning", "path-too-long"),
        ("E:\\T", having(WINDOWS, disks=(Disk(path="E:\\", kind="removable"),)), "warning", "folder-unsuitable"),
        ("/home/李/my data", LINUX, "ok", None),
        ("/mnt/x", having(LINUX, disks=(Disk(path="/mnt", kind="network"),)), "warning", "folder-unsuitable"),
    ],
)
def test_the_data_folder_is_judged_by_the_rules_of_the_system(
    root: str,
    machine: Machine,
    state: str,
    code: str | None,
    progress: RecordedProgress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = PureWindowsPath(root) if machine.system == "windows" else PurePosixPath(root)
    monkeypatch.setattr(placement, "writing_problem", lambda root: None)
    monkeypatch.setattr(paths, "data_root", lambda: folder)
    monkeypatch.setattr(paths, "work_root", lambda: folder)
    finding = verify(host.DataFolder(), machine, progress)
    assert (finding.state, finding.code) == (state, code)
    assert finding.fix == (host.MOVE if code else None)
    assert not host.MOVE.automatic, "where the data lies, the person decides"


def test_a_folder_that_can_not_be_written_is_named(
    tmp_path: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "file"))
    finding = verify(host.DataFolder(), LINUX, progress)
    assert (finding.state, finding.code) == ("failed", "permission-or-antivirus")


@pytest.mark.parametrize(
    ("free_gib", "cache_gib", "state", "label"),
    [
        (100, 0, "ok", None),
        (6, 0, "warning", "Free some space"),
        (1, 0, "failed", "Free some"),
        (6, 3, "warning", "Clear"),
    ],
)
def test_free_space_is_compared_with_what_a_run_needs(
    home: Path,
    progress: RecordedProgress,
    monkeypatch: pytest.MonkeyPatch,
    free_gib: int,
    cache_gib: int,
    state: str,
    label: str | None,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free_gib * GIB))
    sparse_cache(cache_gib * GIB)
    finding = verify(disk.FreeSpace(), LINUX, progress)
    assert finding.state == state
    assert (finding.fix is None) if label is None else (finding.fix is not None and label in finding.fix.label)


@pytest.mark.parametrize(
    ("free_bytes", "state"),
    [(10 * GIB, "ok"), (10 * GIB - 1, "warning"), (2 * GIB, "warning"), (2 * GIB - 1, "failed")],
)
def test_free_space_is_judged_at_2_and_10_gib(
    home: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, free_bytes: int, state: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free_bytes))
    finding = verify(disk.FreeSpace(), LINUX, progress)
    assert finding.state == state
    assert f" free at {home}" in finding.message
    if finding.fix:
        assert (finding.fix.action, finding.fix.automatic) == ("free-disk", False)


@pytest.mark.parametrize(("cache_bytes", "is_offered"), [(GIB // 4, False), (GIB // 4 + 1, True)])
def test_caches_are_worth_clearing_from_a_quarter_of_a_gib(
    home: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, cache_bytes: int, is_offered: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, GIB))
    sparse_cache(cache_bytes)
    fix = verify(disk.FreeSpace(), LINUX, progress).fix
    assert fix is not None
    assert (fix.action == "clear-compile-caches") == fix.automatic == is_offered


def test_several_full_drives_give_the_worst_verdict(
    home: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    drives = {1: (home, 2 * GIB), 2: (home / "tmp", GIB), 3: (home / "runs", 2 * GIB)}
    frees = iter([GIB, 5 * GIB, 50 * GIB])
    monkeypatch.setattr(disk, "_drives", lambda: drives)
    monkeypatch.setattr(files, "free_bytes", lambda path: next(frees))
    finding = verify(disk.FreeSpace(), LINUX, progress)
    assert (finding.state, finding.code) == ("failed", "disk-full")


def sparse_cache(num_bytes: int) -> Path:
    """Make a compile cache that seems to have a size."""
    folder = paths.cache_dir() / "tc" / "kernels"
    folder.mkdir(parents=True)
    with (folder / "big.cubin").open("wb") as file:
        file.truncate(num_bytes)
    return folder


def test_large_compile_caches_are_offered_and_cleared(home: Path, progress: RecordedProgress) -> None:
    check = disk.CompileCaches()
    assert verify(check, LINUX, progress).state == "ok"
    folder = sparse_cache(GIB - 1)
    assert verify(check, LINUX, progress).state == "ok"
    with (folder / "big.cubin").open("wb") as file:
        file.truncate(GIB)
    assert verify(check, LINUX, progress).state == "warning"
    shutil.rmtree(folder)
    folder = sparse_cache(4 * GIB)
    finding = verify(check, LINUX, progress)
    assert finding.state == "warning"
    assert finding.fix is not None
    assert finding.fix.label == "Clear 4.0 GiB"
    disk.FreeSpace().fix(progress)
    assert not folder.exists()
    assert "Removed the compile caches (4.0 GiB)" in progress.text
    sparse_cache(2 * GIB)
    check.fix(progress)
    assert "Removed the compile caches (2.0 GiB)" in progress.text
    assert verify(check, LINUX, progress).state == "ok"


class Stumbling(Check):
    """A check with a mistake."""

    id = "stumbling"
    title = "Stumbling"
    systems = ("linux",)

    def verify(self, machine: Machine, progress: Progress) -> Finding:
        raise PermissionError(13, "Permission denied", "/somewhere")


def test_a_check_that_stumbles_is_unknown_and_stops_no_other(
    progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = base.verify_all([Stumbling(), host.Memory(), host.LongPaths()], LINUX, progress)
    assert [result.state for result in results] == ["unknown", "ok"]
    assert "/somewhere" in results[0].message
    assert not any(result.state is State.FAILED for result in results)
    assert results[0].id == "stumbling"
    monkeypatch.setattr(Stumbling, "verify", lambda *_: (_ for _ in ()).throw(UserError("usage", "x", context="why")))
    assert base.verify(Stumbling(), LINUX, progress).evidence == "why"
    with pytest.raises(Exception, match="has no repair"):
        Stumbling().fix(progress)


def test_the_state_of_a_finding_is_a_plain_word() -> None:
    assert f"{State.OK}" == "ok"
