"""The doctor as a person starts it: a bare Python, the real training environment, real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import real_runs
from tunesmith_core import paths
from tunesmith_core.environments import MANIFEST
from tunesmith_setup.packages import inventory

ROOTS = ("engine", "installers", "assets")


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the doctor without any third-party package; return its exit code and its answer."""
    repository = Path(paths.__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(repository / root) for root in ROOTS)}
    bare = [getattr(sys, "_base_executable", sys.executable), "-S", "-B", "-m", "tunesmith_setup"]
    command = [*bare, "doctor", "--json", *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)
    assert result.stdout, result.stderr.decode()
    return result.returncode, json.loads(result.stdout)


@pytest.mark.usefixtures("training_home")
def test_a_bare_python_examines_the_real_training_environment() -> None:
    code, answer = doctor()
    states = {finding["id"]: finding["state"] for finding in answer["findings"]}
    assert code == 3, "the launcher is not installed here"
    assert states["launcher-python"] == "failed"
    for check in ("folder", "python", "training-python", "torch", "triton", "bitsandbytes", "memory", "leftovers"):
        assert states[check] == "ok", check
    assert all(finding["fix"] for finding in answer["findings"] if finding["state"] == "failed")


@pytest.mark.usefixtures("training_home")
def test_every_file_of_the_real_environment_has_the_size_that_its_wheels_recorded() -> None:
    folder = real_runs.training_environment()
    recorded = inventory.from_records(folder)
    assert len(recorded.entries) > 10_000
    changed = [damage for damage in inventory.compare(folder, recorded) if damage.kind is not inventory.Kind.UNEXPECTED]
    assert [damage for damage in changed if damage.path != MANIFEST] == []
