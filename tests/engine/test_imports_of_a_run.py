"""What the process of a run loads: nothing of what other operations need."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec

REPOSITORY = Path(__file__).resolve().parents[2]
NOT_OF_A_RUN = ("bench", "selftest", "plan_check", "probe", "operations", "gguf_import", "proof", "fused", "attention")
"""Rooms and modules of the engine, for a plain run on a CPU."""


def test_a_plain_run_loads_nothing_of_other_operations(
    tiny_spec: Callable[..., RunSpec], new_run: Callable[[RunSpec], Run]
) -> None:
    run = new_run(tiny_spec(hardware={"kernels": False}))
    start = REPOSITORY / "engine" / "tunesmith_core" / "start.py"
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-P",
        str(start),
        "tunesmith_engine",
        "run",
        "--run-dir",
        str(run.path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = set(re.findall(r"\| +(tunesmith_[\w.]+)$", done.stderr, re.MULTILINE))
    assert "tunesmith_engine.train.loop" in loaded
    unwanted = (*tuple(f"tunesmith_engine.{name}" for name in NOT_OF_A_RUN), "tunesmith_setup", "tunesmith_gui")
    assert [name for name in sorted(loaded) if f"{name}.".startswith(tuple(f"{bad}." for bad in unwanted))] == []
