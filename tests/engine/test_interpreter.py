"""The tests of kernels once more, with every kernel run by Triton's interpreter, in a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.kernels.conftest import INTERPRETED
from tunesmith_engine.kernels.triton_import import triton_problem

REPOSITORY = Path(__file__).resolve().parents[2]
STARTS_CHILDREN = {"test_compile.py", "test_proof.py"}
FILES = sorted({path.name for path in (Path(__file__).parent / "kernels").glob("test_*.py")} - STARTS_CHILDREN)

pytestmark = pytest.mark.skipif(
    bool(triton_problem) or INTERPRETED, reason="needs Triton, and a process without its interpreter"
)


@pytest.mark.timeout(1800)
def test_kernels_in_interpreter() -> None:
    files = [f"tests/engine/kernels/{file}" for file in FILES]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=1700, check=False
    )
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
