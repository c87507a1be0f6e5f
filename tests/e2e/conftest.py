"""End to end: real windows, supervisors and engines, on a data root that points at the real training environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import real_runs
from tests.tiny_model import build_tiny_model


@pytest.fixture
def training_home(home: Path) -> Path:
    """A data root on which runs can be started."""
    real_runs.point_at_training_environment(home)
    return home


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random model with a real tokenizer."""
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def example_model() -> Path:
    """The folder of the real example model."""
    return real_runs.example_model()
