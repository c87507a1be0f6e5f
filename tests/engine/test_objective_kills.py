"""Kills at random moments of every objective: no checkpoint that was told of is lost, and the end is the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import events, result_of, train
from tests.engine.heads.test_class_runs import write_labels as write_classes
from tests.engine.preference.test_trl_runs import write_labels, write_pairs
from tests.tiny_model import write_chats
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_rollouts import RewardSpec
from tunesmith_engine.train.conductor import Conductor

NUM_KILLS = 6
WAIT_S = 120.0
STEP_S = 0.1
"""What a step of a run that is to be killed takes at least: all kills together come to fewer steps than the run has."""
SCHEDULE = {"max_steps": 40, "micro_batch_size": 2, "gradient_accumulation_steps": 1, "warmup_steps": 2}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="makes processes by fork"),
]


def write_documents(path: Path) -> None:
    path.write_text("\n\n".join(f"Paragraph {number} of a town with {number + 3} bridges." for number in range(60)))


def write_sums(path: Path) -> None:
    rows = [{"prompt": f"Add {n} and {n + 1}.", "completion": str(2 * n + 1)} for n in range(12)]
    path.write_text("\n".join(map(json.dumps, rows)))


DATA: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "sft": ("rows.jsonl", lambda path: write_chats(path, 16)),
    "documents": ("town.txt", write_documents),
    "full": ("rows.jsonl", lambda path: write_chats(path, 16)),
    **dict.fromkeys(("dpo", "cpo", "orpo", "simpo", "reward"), ("pairs.jsonl", write_pairs)),
    "kto": ("labels.jsonl", write_labels),
    "classify": ("classes.jsonl", lambda path: write_classes(path, 24)),
    **dict.fromkeys(("grpo", "rloo"), ("sums.jsonl", write_sums)),
}
"""The data of each objective by its name in `methods`; of two more ways to teach, too."""


def spec_of(kind: str, make: Callable[..., RunSpec], folder: Path) -> RunSpec:
    name, write = DATA[kind]
    write(folder / name)
    spec = make(
        data={"path": str(folder / name)},
        schedule=SCHEDULE,
        saving={"every_steps": 2},
        evaluation={"percent": 25.0, "every_steps": 11},
    )
    if kind == "full":
        spec.adapter.kind, spec.optimizer.learning_rate = "full", 1e-3
    elif kind != "documents":
        spec.objective.kind = kind
        spec.adapter.dropout = 0.1
    if kind in ("grpo", "rloo"):
        spec.rollouts.group_size, spec.rollouts.max_tokens = 2, 6
        spec.rollouts.rewards = [RewardSpec(kind="length")]
    return spec


def begin(run: Run) -> int:
    """Train or resume a run in a process of its own and return its id."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            _take_time_for_steps()
            code = train(run)
        finally:
            os._exit(code)
    return pid


def _take_time_for_steps() -> None:
    """Let no step of this process be so fast that the run ends before it is killed."""
    usual = Conductor.wants_step

    def wants_step(conductor: Conductor) -> bool:
        time.sleep(STEP_S)
        return usual(conductor)

    Conductor.wants_step = wants_step  # type: ignore[method-assign]


def killed_at_random(run: Run, chance: random.Random) -> str:
    """Start a run, kill it up to three steps later, and return what it was about to do."""
    pid, before = begin(run), len(events(run))
    num_steps, deadline = chance.randrange(4), time.monotonic() + WAIT_S
    while sum(event.type == "step" for event in events(run)[before:]) < num_steps:
        assert time.monotonic() < deadline, "no step came"
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the run ended by itself"
        time.sleep(0.002)
    time.sleep(chance.random() * (0.6 if num_steps == 0 else 0.1))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the run ended by itself"
    return events(run)[-1].type if len(events(run)) > before else "start"


def weights_of(run: Run) -> bytes:
    adapter = run.adapter_path / "adapter_model.safetensors"
    return (adapter if adapter.exists() else run.model_path / "model.safetensors").read_bytes()


def last_losses(run: Run) -> dict[int, float]:
    return {event.data["step"]: event.data["loss"] for event in events(run, "step")}


@pytest.mark.parametrize("kind", DATA)
def test_kills_lose_nothing(
    kind: str,
    tiny_spec: Callable[..., RunSpec],
    new_run: Callable[[RunSpec], Run],
    tmp_path: Path,
) -> None:
    spec = spec_of(kind, tiny_spec, tmp_path)
    whole, run, chance, moments = new_run(spec), new_run(spec), random.Random(kind), []
    assert train(whole) == 0
    for _ in range(NUM_KILLS):
        moments.append(killed_at_random(run, chance))
    assert train(run) == 0
    told = 0
    for event in events(run):
        if event.type == "hello":
            resumed = event.data["resumed_from_step"] or 0
            # A checkpoint can be there that a kill kept from being told.
            assert resumed >= told, f"went back from {told} to {resumed}"
        elif event.type == "checkpoint":
            told = max(told, event.data["step"])
    assert {event.data["code"] for event in events(run, "warning")} <= {
        event.data["code"] for event in events(whole, "warning")
    }
    assert last_losses(run) == last_losses(whole)
    assert weights_of(run) == weights_of(whole)
    assert result_of(run)["eval_loss_after"] == result_of(whole)["eval_loss_after"]
    sys.stderr.write(f"{kind}: {len(moments)} kills, after {', '.join(moments)}\n")
