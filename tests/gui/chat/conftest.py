"""A model that a test speaks for, and a finished run with a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gui.chat.spoken_for import SpokenFor
from tests.gui.run_folders import make_run
from tunesmith_core.runs import Run


@pytest.fixture
def service(context: Any) -> SpokenFor:
    result = SpokenFor()
    context.__dict__["chat"] = result
    return result


@pytest.fixture
def finished(home: Path) -> Run:
    assert home.is_dir()
    run = make_run("done", "happy")
    (run.checkpoints_path / "step-000020").mkdir(parents=True)
    return run
