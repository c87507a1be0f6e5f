"""The engine where Triton is missing or broken: every kernel has a twin in plain PyTorch, and runs train with these."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.engine.kernels.conftest import INTERPRETED
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import triton_problem

REPOSITORY = Path(__file__).resolve().parents[2]
BLOCKED = "TUNESMITH_TEST_NO_TRITON"

in_usual_process = pytest.mark.skipif(INTERPRETED or BLOCKED in os.environ, reason="is about a child of its own")

BROKEN = """
from tunesmith_engine.kernels import registry
from tunesmith_engine.proof import prove as proof
from tunesmith_engine.proof.inputs import Sizes
import torch
sizes = Sizes("float32", 64, 96, 2, 1, 16, 16, 200)
assert proof.prove(sizes, torch.device("cpu")) == {}
import sys
sys.stderr.write(registry.reason_off("rope", torch.device("cuda")))
"""


def run_tests(*arguments: str, timeout_s: float) -> str:
    """Run tests in a process without Triton and return what pytest printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.engine.no_triton"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, BLOCKED: "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.skipif(BLOCKED not in os.environ, reason="is run by the other tests, without Triton")
def test_triton_is_not_there() -> None:
    assert triton_problem is not None
    assert not registry.runs("rope", torch.device("cuda"))


@in_usual_process
def test_twins_and_a_run() -> None:
    files = ["tests/engine/kernels", "tests/engine/test_run.py", "tests/engine/test_without_triton.py"]
    chosen = "kernels or test_run_learns_and_tells or test_triton_is_not_there"
    told = run_tests(*files, "-m", "not long", "-k", chosen, timeout_s=400)
    assert " passed" in told


@pytest.mark.long
@in_usual_process
def test_the_whole_engine() -> None:
    assert " passed" in run_tests("tests/engine", "-m", "not long", timeout_s=3000)


@in_usual_process
@pytest.mark.parametrize("error", ["ImportError('DLL load failed')", "RuntimeError('no driver')", "OSError(126)"])
def test_a_triton_that_raises_is_no_triton(tmp_path: Path, error: str) -> None:
    (tmp_path / "triton.py").write_text(f"raise {error}\n")
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY / "engine")])
    done = subprocess.run(
        [sys.executable, "-c", BROKEN],
        env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Triton can't be loaded" in done.stderr
