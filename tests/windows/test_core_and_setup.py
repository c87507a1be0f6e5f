"""The tests of the core and the installer, run by a Windows Python."""

from __future__ import annotations

import pytest

from tests.windows.conftest import RunTests

CORE_MEETING_WINDOWS = """
    bounded claims cli data_roots datafmt_reading environments exports files folder_switch launch limits
    locks_and_identity memory_limits paths private row_index runs settings start stop_under_way supervisor
    supervisor_disk trash
""".split()
"""Files of tests/core about what another system can change: files, names, locks, processes, memory, encodings."""
SETUP_MEETING_WINDOWS = """
    attached downloads envs example_model first_start install interpreters interruption inventory program repair
    rollback scratch snapshots uninstall uvtool
""".split()
"""Files of tests/setup that make, move and remove files and start programs."""


def run_room(run_tests: RunTests, *rooms: str) -> None:
    run_tests(*rooms, "-p", "no:pytest-qt", "-m", "not long", timeout_s=1500)


@pytest.mark.timeout(1600)
def test_the_core_meets_windows(run_tests: RunTests) -> None:
    run_room(run_tests, *(f"tests/core/test_{name}.py" for name in CORE_MEETING_WINDOWS))


@pytest.mark.long
@pytest.mark.timeout(1600)
def test_the_whole_core_passes_on_windows(run_tests: RunTests) -> None:
    run_room(run_tests, "tests/core")


@pytest.mark.timeout(1600)
def test_the_installer_meets_windows(run_tests: RunTests) -> None:
    run_room(run_tests, *(f"tests/setup/test_{name}.py" for name in SETUP_MEETING_WINDOWS))


@pytest.mark.long
@pytest.mark.timeout(1600)
def test_the_installer_passes_on_windows(run_tests: RunTests) -> None:
    run_room(run_tests, "tests/setup")
