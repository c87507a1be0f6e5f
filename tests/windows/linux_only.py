"""Tests of other rooms that can't run on Windows, each with its reason; tests/conftest.py skips them there."""

from __future__ import annotations

BASH = "plays a program of Linux with a shell script"
LINUX = "is about a rule or a program of Linux"

REASONS = {
    "tests/core/test_placement.py::test_linux_has_no_such_rule": LINUX,
    "tests/core/test_wsl.py": BASH,
    "tests/core/test_wsl_relay.py": BASH,
    "tests/setup/test_system_libraries.py": LINUX,
    "tests/setup/test_test_runner.py": "the runner needs the developer tools, which are locked for Linux",
    "tests/setup/test_wsl_install.py": BASH,
}
"""A file or one of its tests by its id, and why it does not run on Windows."""


def reason(node_id: str) -> str | None:
    """Return why a test can't run on Windows, or None."""
    test = node_id.partition("[")[0]
    return REASONS.get(test) or REASONS.get(test.partition("::")[0])
