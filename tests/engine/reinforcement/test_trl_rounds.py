"""TRL's trainers as oracles of whole runs: given the same answers, the same rewards, advantages, losses and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.conftest import events, train
from tests.engine.prepared import prepare
from tests.engine.reinforcement.test_reward_runs import reward_spec
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.asked import question_in
from tunesmith_engine.data.example import IGNORED_LABEL
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter
from tunesmith_engine.reinforcement.rollouts import Rollouts, Round
from tunesmith_engine.train.schedule import StepPlan

__all__ = ["reward_spec"]

NUM_STEPS, NUM_PROMPTS, GROUP = 30, 3, 4
SAME_NAMES = {
    "reward": "reward",
    "reward_std": "reward_spread",
    "frac_reward_zero_std": "equal_groups",
    "completions/mean_length": "answer_tokens",
    "completions/clipped_ratio": "cut_answers",
}


class _Repeated(torch.utils.data.Sampler[int]):
    """Our order of rows, each as many times as it is answered, and each step as many times as it is trained on."""

    def __init__(self, plan: StepPlan, updates: int) -> None:
        steps = [[row for row in plan.rows(step) for _ in range(GROUP)] for step in range(NUM_STEPS)]
        self._rows = [row for step in steps for _ in range(updates) for row in step]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _trainer(spec: RunSpec, out: Path) -> tuple[type[Any], Any]:
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    updates, objective = spec.rollouts.updates, spec.objective
    usual: dict[str, Any] = {
        "output_dir": str(out),
        "max_steps": NUM_STEPS * updates,
        "per_device_train_batch_size": NUM_PROMPTS * GROUP,
        "num_generations": GROUP,
        "max_completion_length": spec.rollouts.max_tokens,
        "num_iterations": updates,
        "temperature": spec.rollouts.temperature,
        "steps_per_generation": 1,
        "beta": objective.beta,
        "epsilon": objective.clip,
        "learning_rate": spec.optimizer.learning_rate,
        "lr_scheduler_type": "constant",
        "weight_decay": spec.optimizer.weight_decay,
        "max_grad_norm": spec.optimizer.max_grad_norm,
        "adam_beta2": spec.optimizer.beta2,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "seed": spec.schedule.seed,
        "disable_tqdm": True,
        "optim": "adamw_torch",
    }
    if spec.objective.kind == "rloo":
        return RLOOTrainer, RLOOConfig(**usual)
    level = {"token": "token", "answer": "sequence"}[objective.ratio_of]
    return GRPOTrainer, GRPOConfig(**usual, loss_type=objective.policy_loss, importance_sampling_level=level)


def _oracle_log(spec: RunSpec, folder: Path, out: Path, rounds: list[Round]) -> list[dict[str, float]]:
    """Train by TRL from the same start on the same answers and return its log of the updates."""
    from datasets import Dataset
    from transformers import PrinterCallback

    tokenizer = load_tokenizer(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    examples = prepare(spec, tokenizer).train
    asked = [question_in(example) for example in examples]
    model = attach_adapter(load_model(folder, choose_compute(spec), False), spec)
    trainer_class, config = _trainer(spec, out)
    waiting = iter(rounds)

    def answers_of(found: Round) -> list[list[int]]:
        return [example.input_ids[example.labels != IGNORED_LABEL].tolist() for example in found.examples]

    class Oracle(trainer_class):  # type: ignore[misc]
        def _get_train_sampler(self, *_: object) -> _Repeated:
            return _Repeated(StepPlan(spec.schedule, len(examples)), spec.rollouts.updates)

        def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, object]]:
            rows = [asked[int(prompt)] for prompt in prompts]
            return [list(row.prompt) for row in rows if row], None, {}

        def _generate_single_turn(self, *_: object, **__: object) -> Any:
            answers = answers_of(next(waiting))
            return answers if spec.objective.kind == "rloo" else (answers, None)

    def reward(completions: list[str], **_: object) -> list[float]:
        return [float(sum(letter in "aeiou" for letter in text.strip())) for text in completions]

    trainer = Oracle(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": str(number)} for number in range(len(examples))]),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "loss", "ratio_of", "beta", "updates", "temperature"),
    [
        ("grpo", "dapo", "token", 0.05, 1, 0.7),
        pytest.param("grpo", "grpo", "answer", 0.05, 2, 1.0, marks=pytest.mark.long),
        pytest.param("grpo", "dapo", "token", 0.0, 1, 1.0, marks=pytest.mark.long),
        pytest.param("grpo", "dr_grpo", "token", 0.05, 2, 1.5, marks=pytest.mark.long),
        pytest.param("grpo", "vespo", "token", 0.0, 2, 1.0, marks=pytest.mark.long),
        pytest.param("rloo", "", "token", 0.05, 1, 0.7, marks=pytest.mark.long),
        pytest.param("rloo", "", "token", 0.05, 2, 1.0, marks=pytest.mark.long),
    ],
)
def test_thirty_rounds_are_those_of_trl(
    kind: str,
    loss: str,
    ratio_of: str,
    beta: float,
    updates: int,
    temperature: float,
    reward_spec: Callable[..., RunSpec],
    new_run: Callable[[RunSpec], Run],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = reward_spec(
        kind,
        optimizer={"learning_rate": 2e-3, "weight_decay": 0.1, "max_grad_norm": 1.0},
        schedule={
            "max_steps": NUM_STEPS,
            "micro_batch_size": NUM_PROMPTS,
            "gradient_accumulation_steps": 1,
            "seed": 5,
            "scheduler": "constant",
            "warmup_steps": 0,
        },
    )
    spec.objective.policy_loss, spec.objective.ratio_of, spec.objective.beta = loss or "dapo", ratio_of, beta
    spec.rollouts.updates, spec.rollouts.temperature = updates, temperature
    rounds: list[Round] = []
    write = Rollouts.round

    def recorded(rollouts: Rollouts, *arguments: Any) -> Round | None:
        found = write(rollouts, *arguments)
        if found:
            rounds.append(found)
        return found

    monkeypatch.setattr(Rollouts, "round", recorded)
    run = new_run(spec)
    assert train(run) == 0
    ours = [event.data for event in events(run, "step")]
    log = _oracle_log(spec, tiny_model, tmp_path / "oracle", rounds)
    assert len(ours) == NUM_STEPS
    assert len(log) == NUM_STEPS * updates
    theirs = [log[number * updates : (number + 1) * updates] for number in range(NUM_STEPS)]
    losses = [sum(entry["loss"] for entry in entries) / updates for entries in theirs]
    assert [step["loss"] for step in ours] == pytest.approx(losses, rel=2e-3, abs=2e-5)
    norms = [entries[-1]["grad_norm"] for entries in theirs]
    assert [step["grad_norm"] for step in ours] == pytest.approx(norms, rel=1e-2, abs=1e-3)
    for their_name, name in SAME_NAMES.items():
        if name == "equal_groups" and kind == "rloo":
            # TRL counts what the divergence costs as a part of the reward there.
            continue
        expected = [entries[0][their_name] for entries in theirs]
        assert [step[name] for step in ours] == pytest.approx(expected, rel=1e-4, abs=1e-5), name
    if beta and kind == "grpo":
        distances = [sum(entry["kl"] for entry in entries) / updates for entries in theirs]
        assert [step["kl"] for step in ours] == pytest.approx(distances, rel=1e-2, abs=1e-5)
    first, last = (sum(step["reward"] for step in steps) for steps in (ours[:8], ours[-8:]))
    assert last > first, "it learns"
