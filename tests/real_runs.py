"""What end-to-end tests and benchmarks share: the real training environment and the real example model."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def training_environment() -> Path:
    """The environment that holds torch: the test environment only borrows its packages."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    levels = 3 if os.name == "nt" else 4  # Lib/site-packages/torch, lib/python3.N/site-packages/torch
    return Path(spec.origin).parents[levels]


def point_at_training_environment(home: Path) -> None:
    """Make a data root one on which runs can be started."""
    (home / "envs").mkdir()
    (home / "envs" / "train.current").write_text(f"{training_environment()}\n", encoding="utf-8")


def example_model() -> Path:
    """The folder of the real example model, which the test runner fetches and converts."""
    folder = Path(os.environ["TUNESMITH_EXAMPLE_MODEL"])
    assert (folder / "config.json").is_file()
    return folder
