"""From training to an answer by the real commands: train, ask, and chat on a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.tiny_model import write_chats
from tunesmith_core import launch
from tunesmith_core.conversations import load
from tunesmith_core.runs import Run, RunState
from tunesmith_core.spec import RunSpec

PATIENCE_S = 180


def trained(model: Path, folder: Path) -> Run:
    spec = RunSpec(name="tiny")
    spec.model.path, spec.data.sources[0].path = str(model), str(write_chats(folder / "chats.jsonl", 12))
    spec.schedule.max_steps, spec.hardware.devices = 2, ["cpu"]
    run = launch.start(spec)
    assert launch.wait(run).state is RunState.FINISHED
    return run


def tunesmith(*words: str, typed: str = "") -> list[str]:
    command = [sys.executable, "-m", "tunesmith_core", *words]
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_a_run_has_trained_answers(training_home: Path, tiny_model: Path, tmp_path: Path) -> None:
    assert training_home.is_dir()
    run = trained(tiny_model, tmp_path)
    options = ["--max-tokens", "8", "--device", "cpu", "--json"]
    asked = [json.loads(line) for line in tunesmith("ask", run.id, "Who?", "--both", *options)]
    assert asked[-1]["status"] == "finished"
    assert set(asked[-1]["answer"]["answers"]) == {"tuned", "base"}
    (ready,) = [event for event in asked if event["type"] == "ready"]
    assert ready["step"] == 2

    told = [json.loads(line) for line in tunesmith("chat", run.id, *options, typed="Who?\nAnd you?\n")]
    done = [event for event in told if event["type"] == "done"]
    assert [event["side"] for event in done] == ["tuned", "tuned"]
    assert done[1]["prompt_tokens"] > done[0]["prompt_tokens"]
    (kept,) = load(run)
    assert [turn.question for turn in kept.turns] == ["Who?", "And you?"]

    votes = ["vote", run.id, "--device", "cpu", "--pairs", str(tmp_path / "pairs.jsonl"), "--json"]
    result = json.loads("\n".join(tunesmith(*votes, typed="Who?\n1\nAnd you?\n4\n")))
    (count,) = result["counts"]
    assert (count["later"], count["earlier"], count["bad"]) == (2, 0, 1)
    # Two steps may have changed no word of the answer.
    assert count["better"] + count["worse"] + count["same"] == 1
    pairs = (tmp_path / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(pairs) == count["better"] + count["worse"]
