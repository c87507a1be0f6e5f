"""What the budgets of the window share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def own_garbage() -> Iterator[None]:
    """Spare Python from looking through what tests before have loaded, such as PyTorch: the window never holds it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
