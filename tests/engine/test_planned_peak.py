"""What a plan says of a small run on the CPU, beside what a step of it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine import causal_types
from tests.engine.test_causal_types import spec_of
from tunesmith_core import planner
from tunesmith_core.hardware import Hardware

GIB = 1024**3
CPU = Hardware("cpu", "CPU", 64 * GIB, 60 * GIB, 64 * GIB, 60 * GIB)
MEASURE = """
import json, sys
from tunesmith_core.spec import RunSpec
from tests.engine.prepared import checked
print(checked(RunSpec.from_dict(json.loads(sys.argv[1])))["peak_bytes"])
"""


@pytest.mark.long
@pytest.mark.parametrize("kernels", [True, False])
def test_more_tokens_take_what_the_plan_says(kernels: bool, tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model, vocab_size=49152)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"{number} " * 1000}) + "\n" for number in range(4)))
    planned, measured = [], []
    # The difference of two runs: what the process holds anyway is another on every computer.
    for length in (64, 576):
        data = {"path": str(rows), "context_length": length}
        spec = spec_of(folder, data=data, schedule={"micro_batch_size": 1}, hardware={"kernels": kernels})
        planned.append(planner.plan(spec, CPU, longest_tokens=length).total_bytes)
        command = [sys.executable, "-c", MEASURE, json.dumps(spec.to_dict())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
        measured.append(int(done.stdout.split()[-1]))
    assert 0.85 < (planned[1] - planned[0]) / (measured[1] - measured[0]) < 1.6, (planned, measured)
