"""The tests of the core and the installer, run by a Windows Python."""

from __future__ import annotations

import pytest

from tests.windows.conftest import RunTests


@pytest.mark.timeout(1600)
@pytest.mark.parametrize("room", ["tests/core", "tests/setup"])
def test_the_rooms_tests_pass_on_windows(run_tests: RunTests, room: str) -> None:
    run_tests(room, "-p", "no:pytest-qt", "-m", "not long", timeout_s=1500)
