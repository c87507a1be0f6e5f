"""The rig as fixtures. Where Wine or its compiler is missing, every test here is skipped, loudly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.windows import rig as rigs
from tests.windows.rig import Rig
from tunesmith_setup.packages.uvtool import Uv

PATIENCE_S = 1500
"""How long a program may take under Wine: only one that hangs takes so long, however busy the computer is."""

summaries: list[str] = []
"""What the test runs under Wine said at their end; told once more at the end of this one."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many tests ran inside."""
    for summary in summaries:
        terminalreporter.write_line(summary)


@pytest.fixture(scope="session")
def uv() -> Uv:
    """The uv that the test runner puts on the PATH."""
    found = shutil.which("uv")
    assert found, "run the tests with: python3 installers/bootstrap.py test"
    return Uv(Path(found))


@pytest.fixture(scope="session")
def rig(uv: Uv) -> Iterator[Rig]:
    """The rig; its processes are gone at the end."""
    missing = rigs.missing_programs()
    if missing:
        pytest.skip(f"NOT TESTED ON WINDOWS: {', '.join(missing)} missing on this computer")
    built = rigs.obtain(uv, rigs.standard_library())
    yield built
    built.kill_all()


@pytest.fixture
def windows_tmp(rig: Rig) -> Iterator[Path]:
    """An empty folder C:\\t\\PID of the rig, with a name as short as Windows needs it."""
    folder = rig.drive_c / "t" / str(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


RunTests = Callable[..., None]


@pytest.fixture
def run_tests(rig: Rig, windows_tmp: Path) -> RunTests:
    """Return a function that runs pytest inside and fails with its report unless all passed."""

    def run(*arguments: str, python: str = rigs.PYTHON) -> None:
        base = rig.windows_path(windows_tmp / "p")
        options = ["-q", "--tb=short", "--no-header", "-p", "no:cacheprovider", "--basetemp", base, "--timeout", "900"]
        code, output = rig.python("-m", "pytest", *options, *arguments, timeout_s=PATIENCE_S, python=python)
        assert code == 0, output[-30000:]
        summaries.append(f"Windows under Wine, {' '.join(arguments)}: {output.strip().splitlines()[-1]}")

    return run
