"""End to end: real windows, supervisors and engines, on a data root that points at the real training environment."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.tiny_model import build_tiny_model


def training_environment() -> Path:
    """The environment that holds torch: the test environment only borrows its packages."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    levels = 3 if os.name == "nt" else 4  # Lib/site-packages/torch, lib/python3.N/site-packages/torch
    return Path(spec.origin).parents[levels]


@pytest.fixture
def training_home(home: Path) -> Path:
    """A data root on which runs can be started."""
    (home / "envs").mkdir()
    (home / "envs" / "train.current").write_text(f"{training_environment()}\n", encoding="utf-8")
    return home


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random model with a real tokenizer."""
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def example_model() -> Path:
    """The real example model, which the test runner fetches and converts."""
    folder = Path(os.environ["TUNESMITH_EXAMPLE_MODEL"])
    assert (folder / "config.json").is_file()
    return folder
