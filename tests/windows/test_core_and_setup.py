"""The tests of the core and the installer, run by a Windows Python."""

from __future__ import annotations

import pytest

from tests.windows.conftest import RunTests

CORE_MEETING_WINDOWS = """
    claims files folder_switch launch locks_and_identity paths private start supervisor trash
""".split()
"""Files of tests/core about what another system can change: files, names, locks, processes."""
SETUP_MEETING_WINDOWS = """
    envs first_start install interruption program scratch uninstall
""".split()
"""Files of tests/setup that make, move and remove files and start programs."""


def run_room(run_tests: RunTests, *rooms: str) -> None:
    run_tests(*rooms, "-p", "no:pytest-qt", "-m", "not long")


def test_the_core_meets_windows(run_tests: RunTests) -> None:
    run_room(run_tests, *(f"tests/core/test_{name}.py" for name in CORE_MEETING_WINDOWS))


@pytest.mark.long
def test_the_whole_core_passes_on_windows(run_tests: RunTests) -> None:
    run_room(run_tests, "tests/core")


def test_the_installer_meets_windows(run_tests: RunTests) -> None:
    run_room(run_tests, *(f"tests/setup/test_{name}.py" for name in SETUP_MEETING_WINDOWS))


@pytest.mark.long
def test_the_installer_passes_on_windows(run_tests: RunTests) -> None:
    run_room(run_tests, "tests/setup")
