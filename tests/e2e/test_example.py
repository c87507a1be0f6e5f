"""The bundled example on the real model: held-out loss falls far, plain transformers + PEFT use the adapter."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tunesmith_assets import samples
from tunesmith_core import environments, launch
from tunesmith_core.runs import Run, RunState
from tunesmith_core.spec import RunSpec

PLAIN_USE = """
import json, sys
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base, adapter, questions = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapter).eval()
tokenizer = AutoTokenizer.from_pretrained(adapter)
answers = []
for question in questions:
    chat = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    out = model.generate(**ids, max_new_tokens=48, do_sample=False)
    answers.append(tokenizer.decode(out[0, ids["input_ids"].shape[1]:], skip_special_tokens=True))
with open(sys.argv[4], "w", encoding="utf-8") as file:
    json.dump(answers, file)
"""


def train_example(model: Path, seed: int) -> Run:
    """Train the bundled example to its end without samples on the way."""
    spec = RunSpec.from_dict(samples.example_spec("en", str(model)))
    spec.schedule.seed, spec.evaluation.every_steps, spec.evaluation.sample_prompts = seed, 60, []
    run = launch.start(spec)
    status = launch.wait(run)
    assert status.state is RunState.FINISHED, status.error
    assert status.first_eval_loss is not None
    assert status.eval_loss is not None
    # The model can know nothing of an invented product (2.8 nats per token); a fall by nine tenths is knowledge.
    assert status.first_eval_loss > 2.0
    assert status.eval_loss < 0.1 * status.first_eval_loss
    return run


def plain_answers(model: Path, adapter: Path, questions: list[str], out: Path) -> list[str]:
    """Ask the adapter in the training environment, with none of our code on the path."""
    command = [str(environments.training_python()), "-I", "-c", PLAIN_USE]
    command += [str(model), str(adapter), json.dumps(questions), str(out)]
    # Threads that wait should sleep: they would take the cores from whatever else runs.
    environment = environments.engine_environment() | {"OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    answers: list[str] = json.loads(out.read_text(encoding="utf-8"))
    return answers


@pytest.mark.timeout(1800)
def test_example_is_learned_and_plain_peft_answers(training_home: Path, example_model: Path, tmp_path: Path) -> None:
    assert training_home.is_dir()
    run = train_example(example_model, seed=42)
    facts = samples.facts("en")
    answers = plain_answers(
        example_model, run.adapter_path, [fact.question for fact in facts], tmp_path / "answers.json"
    )
    known = [fact.is_answered_by(answer) for fact, answer in zip(facts, answers, strict=True)]
    assert sum(known) >= 12, answers
    assert "SmolLM2" in (run.adapter_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_three_seeds_learn_the_example(training_home: Path, example_model: Path, seed: int) -> None:
    assert training_home.is_dir()
    run = train_example(example_model, seed)
    status = run.status()
    report = os.environ.get("TUNESMITH_REPORT")
    if report:
        with Path(report).open("a", encoding="utf-8") as file:
            file.write(f"seed {seed}: evaluation loss {status.first_eval_loss:.4f} -> {status.eval_loss:.4f}\n")
