"""All checks, in the order of the repair playbook: what comes later can only be right when what comes first is."""

from __future__ import annotations

from tunesmith_setup.checks.base import Check
from tunesmith_setup.checks.disk import CompileCaches, FreeSpace


def all_checks(*, full: bool = False) -> list[Check]:
    """Return every check in order.

    Args:
        full: whether every installed byte is read and hashed, instead of sizes and times.
    """
    del full
    return [FreeSpace(), CompileCaches()]
