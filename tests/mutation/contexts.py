"""A plugin of pytest: a line counts for the test that ran it, in its body or in one of its fixtures."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from coverage import Coverage


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Name the test to coverage while it is set up, runs and is torn down."""
    measuring = Coverage.current()
    if measuring is None or not isinstance(item, pytest.Function):
        return (yield)
    measuring.switch_context(f"{item.module.__name__}.{item.function.__qualname__}")
    try:
        return (yield)
    finally:
        measuring.switch_context("")
