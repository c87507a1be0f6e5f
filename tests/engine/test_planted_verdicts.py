"""Runs whose outcome was planted: each gets its own sentence and a next step."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine.conftest import train
from tunesmith_core.outcome import Outcome, Verdict
from tunesmith_core.report.facts import read, verdict_on
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]
New = Callable[[RunSpec], Run]
Rows = list[tuple[str, str]]

SOUNDS = {"cat": "meow meow", "dog": "woof woof", "cow": "moo moo moo", "owl": "hoot", "bee": "buzz buzz"}


def good_rows(num: int, seed: int = 3) -> Rows:
    """Make questions whose answers follow from one word of them."""
    draw = random.Random(seed)
    rows = []
    for _ in range(num):
        animal = draw.choice(list(SOUNDS))
        rows.append((f"{draw.randrange(10**6)} {animal} {draw.randrange(10**6)}?", SOUNDS[animal]))
    return rows


def shuffled(rows: Rows, seed: int = 5) -> Rows:
    """Give each question the answer of another row."""
    answers = [answer for _, answer in rows]
    random.Random(seed).shuffle(answers)
    return [(question, answer) for (question, _), answer in zip(rows, answers, strict=True)]


def random_rows(num: int) -> Rows:
    """Make answers that nobody can know."""
    draw = random.Random(7)
    return [(f"What is {number}?", "".join(draw.choices("abcdefgh", k=12))) for number in range(num)]


@pytest.fixture
def outcome(tiny_spec: Make, new_run: New, tmp_path: Path) -> Callable[..., Verdict]:
    """Train on rows and say what came of it."""

    def write(rows: Sequence[tuple[str, str]], name: str) -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps({"prompt": a, "completion": b}) + "\n" for a, b in rows), encoding="utf-8")
        return str(path)

    def told(rows: Rows, held_out: Rows | None = None, steps: int = 60, rate: float = 1e-2, **more: Any) -> Verdict:
        evaluation = {"percent": 25.0, "every_steps": max(1, steps // 5)} | more.pop("evaluation", {})
        if held_out is not None:
            evaluation["path"] = write(held_out, "held-out.jsonl")
        run = new_run(
            tiny_spec(
                data={"path": write(rows, "rows.jsonl"), "context_length": 128},
                method={"rank": 16, "alpha": 32.0},
                optimizer={"learning_rate": rate},
                schedule={"max_steps": steps, "micro_batch_size": 8, "gradient_accumulation_steps": 1},
                evaluation=evaluation,
                **more,
            )
        )
        assert train(run) == 0
        return verdict_on(read(run))

    return told


@pytest.fixture
def able_model(tiny_model: Path, tmp_path: Path) -> Path:
    """Train every weight of a copy of the tiny model until it knows the sounds of animals."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = good_rows(64)
    for step in range(60):
        chosen = rows[step % 4 * 16 :][:16]
        texts = [f"<|im_start|>user\n{a}<|im_end|>\n<|im_start|>assistant\n{b}<|im_end|>\n" for a, b in chosen]
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(tmp_path / "able")
    tokenizer.save_pretrained(tmp_path / "able")
    return tmp_path / "able"


Told = Callable[..., Verdict]


def steps_of(verdict: Verdict) -> list[str]:
    return [step.name for step in verdict.next_steps]


@pytest.mark.long
def test_right_rows_improve(outcome: Told) -> None:
    # After 60 steps at a higher rate the loss has fallen, and it answers "moo" to everything.
    verdict = outcome(good_rows(160), steps=150, rate=5e-3)
    assert verdict.outcome is Outcome.MUCH
    assert "Over 40 held-out rows the loss fell by" in verdict.evidence


def test_shuffled_labels_are_no_improvement(outcome: Told) -> None:
    verdict = outcome(shuffled(good_rows(160)))
    assert verdict.outcome is Outcome.INDEPENDENT
    assert "No improvement that depends on the question" in verdict.sentence
    assert steps_of(verdict) == ["look-at-rows", "lower-rate", "more-steps"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_right_and_shuffled_labels_are_told_apart_whatever_the_shuffle(outcome: Told, seed: int) -> None:
    # From random weights, which answers there are is learned first; at a high rate, nothing else ever is.
    assert outcome(good_rows(160, seed), steps=150, rate=5e-3).outcome is Outcome.MUCH
    assert outcome(shuffled(good_rows(160, seed), seed)).outcome is Outcome.INDEPENDENT


@pytest.mark.parametrize("num_different", [1, 4])
def test_memorized_rows(outcome: Told, num_different: int) -> None:
    verdict = outcome(random_rows(num_different) * (40 // num_different), good_rows(20), steps=30)
    assert (verdict.outcome, steps_of(verdict)) == (Outcome.REPEATED, ["look-at-rows"])
    assert f"the 40 training rows hold only {num_different} different ones" in verdict.sentence


@pytest.mark.parametrize("change", [lambda answer: answer, lambda answer: answer[:-1] + "!"])
def test_leaked_rows(outcome: Told, change: Callable[[str], str]) -> None:
    rows = random_rows(60)
    held_out = [(question, change(answer)) for question, answer in rows[:8]] + good_rows(12)
    verdict = outcome(rows, held_out, steps=10)
    assert (verdict.outcome, steps_of(verdict)) == (Outcome.LEAKED, ["look-at-rows"])
    assert "8 of 20 held-out rows are training rows too" in verdict.sentence


def test_too_high_a_rate(outcome: Told, able_model: Path) -> None:
    verdict = outcome(good_rows(80), rate=0.9, steps=40, model={"path": str(able_model)})
    assert (verdict.outcome, steps_of(verdict)) == (Outcome.DIVERGED, ["lower-rate"])
    assert "The learning rate is too high" in verdict.advice


def test_too_few_steps(outcome: Told) -> None:
    verdict = outcome(good_rows(80), rate=1e-4, steps=3)
    assert (verdict.outcome, steps_of(verdict)[1]) == (Outcome.NOTHING, "more-steps")
    assert "Train for more steps" in verdict.advice


def test_a_lower_loss_with_wrong_answers_only_is_no_success(outcome: Told) -> None:
    # Which letter an answer begins with is soon learned, the rest is anybody's guess.
    draw = random.Random(9)
    rows = []
    for _ in range(160):
        first = draw.choice("abcd")
        rows.append((f"{draw.randrange(10**6)} {first}?", first * 6 + "".join(draw.choices("efgh", k=6))))
    verdict = outcome(rows)
    assert (verdict.outcome, steps_of(verdict)) == (Outcome.STILL_WRONG, ["more-steps", "look-at-rows"])
    assert "No answer is right yet" in verdict.sentence
    assert "Right answers to 8 held-out questions: 0 before, 0 after." in verdict.evidence


@pytest.mark.long
def test_rows_known_by_heart(outcome: Told) -> None:
    # The lowest loss is met within a few steps: seldom measured, it is missed by more than the rise that tells.
    verdict = outcome(random_rows(8), random_rows(40)[20:], steps=400, evaluation={"every_steps": 5})
    assert (verdict.outcome, steps_of(verdict)[0]) == (Outcome.OVERFITTED, "until-step")
    assert f"Overfitting since step {verdict.best_step}" in verdict.sentence


def test_ten_epochs_over_fifty_rows_without_a_measurement(outcome: Told) -> None:
    verdict = outcome(random_rows(50), steps=70, evaluation={"percent": 0.0})
    assert (verdict.outcome, steps_of(verdict)) == (Outcome.UNMEASURED, ["hold-out"])
    assert "has probably memorized its rows: it saw 50 rows 10 times" in verdict.sentence
