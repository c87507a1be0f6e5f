"""Budget: from the engine's start to its first step at most 6 s more than importing the training libraries takes.

Both are measured in one run, the import first, so that the libraries lie in the page cache for both.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests import real_runs
from tests.bench.budget import report
from tunesmith_assets import samples
from tunesmith_core import environments, launch
from tunesmith_core.protocol import read_journal
from tunesmith_core.spec import RunSpec

IMPORTS = "import torch, transformers, peft; from transformers import AutoModelForCausalLM; from peft import LoraConfig"


def seconds_of_imports() -> float:
    """Time of a fresh interpreter that imports the training libraries."""
    python = environments.environment_python(real_runs.training_environment())
    started = time.monotonic()
    subprocess.run([str(python), "-I", "-c", IMPORTS], check=True, env=environments.engine_environment())
    return time.monotonic() - started


def start_once() -> tuple[float, float]:
    """Return the seconds from the engine's start to its first sign of life and to its first step."""
    spec = RunSpec.from_dict(samples.example_spec("en", str(real_runs.example_model())))
    spec.schedule.max_steps, spec.evaluation.path, spec.evaluation.percent = 1, "", 0
    spec.evaluation.sample_prompts = []
    run = launch.start(spec)
    beats: list[float] = []
    while run.is_supervised():
        if run.heartbeat_path.exists():
            beats.append(run.heartbeat_path.stat().st_mtime)
        time.sleep(0.1)
    events = read_journal(run.journal_path)
    began = next(event.t for event in events if event.type == "phase" and event.data["name"] == "starting")
    return min(beats) - began, next(event.t for event in events if event.type == "step") - began


def test_engine_start_to_first_step(home: Path) -> None:
    real_runs.point_at_training_environment(home)
    signs: list[float] = []

    def beyond_imports_s() -> float:
        importing_s = seconds_of_imports()
        sign_s, first_step_s = start_once()
        signs.append(sign_s)
        return first_step_s - importing_s

    seconds_of_imports()
    report("imports alone", seconds_of_imports, 60, "s")
    report("engine start to first step, beyond imports", beyond_imports_s, 6, "s")
    report("first sign of life", lambda: min(signs), 1, "s")
