"""Whole runs that learn from rewards: what they learn and say, that they resume to the bit, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.conftest import events, result_of, train
from tests.engine.exact_resume import goes_on_to_the_bit
from tunesmith_core.rewards import OF_ROUNDS, OF_UPDATES
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_rollouts import RewardSpec
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.reinforcement.watch import Watch

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
KINDS = ["grpo", "rloo"]

MANY_E = "def reward(prompt, answer, expected):\n    return sum(letter in 'aeiou' for letter in answer)\n"
"""A reward that even a model of random weights can earn."""


@pytest.fixture
def reward_spec(tiny_spec: MakeSpec, tmp_path: Path) -> MakeSpec:
    """Make a spec of 12 prompts in steps of 4, with four answers to each."""

    def make(kind: str, reward: str = MANY_E, **sections: dict[str, Any]) -> RunSpec:
        data, own = tmp_path / "asked.jsonl", tmp_path / "own.py"
        rows = [{"prompt": f"Add {n} and {n + 1}.", "completion": str(2 * n + 1)} for n in range(12)]
        data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        own.write_text(reward, encoding="utf-8")
        spec = tiny_spec(**{"data": {"path": str(data)}, **sections})
        spec.objective.kind = kind
        spec.rollouts.group_size, spec.rollouts.max_tokens = 4, 12
        spec.rollouts.rewards = [RewardSpec(kind="python", path=str(own))]
        return spec

    return make


@pytest.mark.parametrize("kernels", [True, pytest.param(False, marks=pytest.mark.long)], ids=["fused", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_goes_on_to_the_bit(
    kind: str, kernels: bool, reward_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = reward_spec(kind, hardware={"kernels": kernels}, evaluation={"percent": 25.0, "every_steps": 2})
    spec.objective.beta, spec.rollouts.updates = 0.05, 2
    whole, halves = new_run(spec), new_run(spec)
    goes_on_to_the_bit(whole, halves)
    assert [event.data for event in events(whole, "eval")][-1]["loss"] == result_of(halves)["eval_loss_after"]
    step = events(whole, "step")[-1].data
    assert set(OF_ROUNDS) | set(OF_UPDATES) <= step.keys()
    capsys.readouterr()


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_rise_and_are_compared_with_the_base_model(kind: str, reward_spec: MakeSpec, new_run: NewRun) -> None:
    spec = reward_spec(
        kind,
        optimizer={"learning_rate": 1e-2},
        schedule={"max_steps": 25, "micro_batch_size": 4, "gradient_accumulation_steps": 1, "warmup_steps": 0},
        evaluation={"percent": 50.0, "every_steps": 25},
    )
    run = new_run(spec)
    assert train(run) == 0
    steps = [event.data for event in events(run, "step")]
    first, last = (sum(step["reward"] for step in some) / 5 for some in (steps[:5], steps[-5:]))
    assert last > 1.2 * first
    before, after = (event.data for event in (events(run, "eval")[0], events(run, "eval")[-1]))
    assert before["loss"] == -before["reward"]
    gain = events(run, "comparison")[-1].data["improvement"]
    assert gain["mean"] == pytest.approx(after["reward"] - before["reward"])
    assert gain["rows"] == 6
    shown = events(run, "rollouts")[-1].data
    assert shown["prompt"].startswith("Add ")
    assert len(shown["group"]) == 4
    texts = [(answer["text"], answer["reward"]) for answer in shown["group"]]
    assert all(reward == sum(letter in "aeiou" for letter in text) for text, reward in texts)


def test_cut_answers_are_left_out_where_a_run_wants_that(reward_spec: MakeSpec, new_run: NewRun) -> None:
    spec = reward_spec("grpo")
    spec.rollouts.max_tokens, spec.rollouts.skip_cut = 1, True
    run = new_run(spec)
    assert train(run) == 0
    assert all(event.data["cut_answers"] > 0.9 for event in events(run, "step"))
    assert abs(events(run, "step")[-1].data["loss"]) < 1e-3


FAULTS = {
    "raises": ("def reward(prompt, answer, expected):\n    return 1 / len(answer and [])\n", "own.py, line 2: ZeroDiv"),
    "returns a text": ("def reward(prompt, answer, expected):\n    return 'good'\n", "must return a number, but"),
    "is missing": ("def score(answer):\n    return 1\n", "there is no function reward(prompt, answer, expected)"),
    "is no Python": ("def reward(\n", "own.py, line 1: SyntaxError"),
    "ends the process": ("import os\ndef reward(prompt, answer, expected):\n    os._exit(3)\n", "ended its process"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reward_that_is_wrong_is_named_before_the_first_step(
    fault: str, reward_spec: MakeSpec, new_run: NewRun
) -> None:
    program, words = FAULTS[fault]
    run = new_run(reward_spec("grpo", program))
    assert train(run) == 2
    assert words in str(events(run, "error")[-1].data["message"])
    assert not events(run, "step")


LATER = """
import pathlib, time
count = pathlib.Path(__file__).with_name("count")
def reward(prompt, answer, expected):
    num = int(count.read_text()) if count.exists() else 0
    count.write_text(str(num + 1))
    # Two answers are tried before the first step; a step has 16.
    return len(answer) if num < 2 + 16 * 3 else {fault}
"""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("float('nan')", "the reward of an answer is not a finite number. The answer begins: "),
        ("[][0]", "own.py, line 8: IndexError"),
        ("sum(0 for _ in iter(int, 1))", "your reward took longer than 2 s"),
    ],
    ids=["NaN", "raises", "hangs"],
)
def test_a_reward_that_fails_later_loses_nothing(
    fault: str, words: str, reward_spec: MakeSpec, new_run: NewRun
) -> None:
    spec = reward_spec("grpo", LATER.replace("{fault}", fault))
    run = new_run(spec)
    assert train(run) == 2
    assert words in str(events(run, "error")[-1].data["message"])
    assert [event.data["step"] for event in events(run, "step")] == [1, 2, 3]
    assert events(run, "checkpoint")[-1].data["step"] == 3
    Path(spec.rollouts.rewards[0].path).write_text(MANY_E, encoding="utf-8")
    assert train(run) == 0
    assert [event.data["step"] for event in events(run, "step")] == [1, 2, 3, 4, 5, 6]


def test_data_without_prompts_or_without_answers_that_can_be_right_is_refused(
    reward_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "once upon a time there was a model"}\n' * 4, encoding="utf-8")
    run = new_run(reward_spec("grpo", data={"path": str(texts)}))
    assert train(run) == 2
    assert "Learning from rewards needs prompts with answers." in str(events(run, "error")[-1].data["message"])
    long = tmp_path / "long.jsonl"
    rows = [{"prompt": f"Tell {n}", "completion": f"This is story {'and so on ' * 6} of {n}."} for n in range(6)]
    long.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    spec = reward_spec("grpo", data={"path": str(long)})
    spec.rollouts.rewards = [RewardSpec(kind="right")]
    run = new_run(spec)
    assert train(run) == 2
    assert "is a matter of wording in this data" in str(events(run, "error")[-1].data["message"])


def test_answers_are_written_in_smaller_portions_where_memory_lacks(
    reward_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = new_run(reward_spec("grpo", schedule={"max_steps": 2}))
    assert train(whole) == 0
    generate, sizes = FusedDecoder.generate, []

    def short(decoder: FusedDecoder, prompts: Any, *arguments: Any, **named: Any) -> list[list[int]]:
        sizes.append(len(prompts))
        if len(prompts) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return generate(decoder, prompts, *arguments, **named)

    monkeypatch.setattr(FusedDecoder, "generate", short)
    run = new_run(reward_spec("grpo", schedule={"max_steps": 2}))
    assert train(run) == 0
    assert sizes == [16, 8, 4, 4, 4, 4, 4, 4, 4, 4]
    warnings = [str(event.data["message"]) for event in events(run, "warning")]
    assert warnings[:2] == [
        f"There was not enough memory for the answers. {num} are written at once." for num in (8, 4)
    ]
    monkeypatch.setattr(FusedDecoder, "generate", lambda *_a, **_n: (_ for _ in ()).throw(torch.OutOfMemoryError("x")))
    run = new_run(reward_spec("grpo"))
    assert train(run) == 4
    assert "no room for a single answer of 12 tokens" in str(events(run, "error")[-1].data["message"])


def test_what_goes_wrong_with_rewards_is_named_once() -> None:
    watch = Watch()
    usual = {"reward": 0.0, "equal_groups": 1.0, "answer_tokens": 10.0, "cut_answers": 0.0, "kl": 0.0}
    found = [(step, words) for step in range(1, 10) for words in watch.look(usual)]
    assert [step for step, _words in found] == [3], "soon enough to stop a run whose reward is wrong"
    assert "got the same reward for 3 steps, 0 on average" in found[0][1]
    watch = Watch()
    grown = [usual | {"equal_groups": 0.1, "answer_tokens": 10.0 * (1 + n), "cut_answers": 0.2 * n} for n in range(12)]
    found = [words for numbers in grown for words in watch.look(numbers)]
    assert len(found) == 1
    assert found[0].startswith("Answers grow longer and longer")
    watch = Watch()
    far = [usual | {"equal_groups": 0.1, "kl": 0.2 * n} for n in range(9)]
    words = next(words for each in far for words in watch.look(each))
    assert "far away from where it began: 0.60 nats per token" in words
