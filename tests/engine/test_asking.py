"""Questions of held-out rows: which are asked, what is expected, and that a run tells the answers before and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.engine.conftest import events, train
from tunesmith_core.report.facts import read
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.data.asked import candidates, choose, question_in
from tunesmith_engine.train import asking
from tunesmith_engine.train.asking import Asking
from tunesmith_engine.train.evaluate import Written

Make = Callable[..., RunSpec]
New = Callable[[RunSpec], Run]


def row(*spans: tuple[int, bool], first: int = 1) -> Example:
    """Make a row of stretches of tokens that are trained or not."""
    trained = np.concatenate([np.full(length, is_trained) for length, is_trained in spans])
    ids = np.arange(first, first + len(trained), dtype=np.int32)
    return Example(ids, np.where(trained, ids, IGNORED_LABEL).astype(np.int32))


def test_a_row_asks_for_its_last_answer() -> None:
    asked = question_in(row((3, False), (2, True), (2, False), (3, True), (1, False)), "What?")
    assert asked is not None
    assert (asked.question, asked.prompt, asked.expected) == ("What?", tuple(range(1, 8)), (8, 9, 10))
    whole = question_in(row((10, True)), "Not asked")
    assert whole is not None
    assert (whole.question, whole.prompt, whole.expected) == ("", tuple(range(1, 6)), tuple(range(6, 11)))
    assert question_in(row((4, False))) is None
    assert question_in(row((1, True))) is None


def test_what_is_asked_is_spread_over_rows_and_lengths() -> None:
    assert candidates(3) == [0, 1, 2]
    assert candidates(0) == []
    assert (len(candidates(1000)), candidates(1000)[-1]) == (64, 984)
    rows = [row((2, False), (length, True), first=100 * length) for length in range(1, 40)]
    questions = {place: f"{place}?" for place in range(len(rows))}
    chosen = choose(rows, questions)
    assert [len(asked.expected) for asked in chosen] == [1, 6, 11, 17, 22, 28, 33, 39]
    assert choose(rows, dict(reversed(questions.items()))) == chosen
    long = [row((2, False), (400, True), first=1000 * place) for place in range(9)]
    assert len(choose(long, dict.fromkeys(range(9), "?"))) == 3
    assert choose([row((2000, False), (2, True))], {0: "too long a prompt"}) == []
    assert len(choose([rows[3]] * 5, dict.fromkeys(range(5), "?"))) == 1


def test_a_run_tells_its_answers_before_on_the_way_and_at_the_end(
    tiny_spec: Make, new_run: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "SHARE", 100.0)
    run = new_run(tiny_spec(evaluation={"percent": 25, "every_steps": 3}, schedule={"max_steps": 7}))
    assert train(run) == 0
    told = events(run, "answers")
    assert [event.data["step"] for event in told] == [0, 3, 6, 7]
    first = told[0].data["answers"]
    assert len(first) == 4
    for event in told:
        assert [(each["prompt"], each["expected"]) for each in event.data["answers"]] == [
            (each["prompt"], each["expected"]) for each in first
        ]
    rows = [json.loads(line) for line in Path(run.load_spec().data.sources[0].path).read_text().splitlines()]
    pairs = {each["messages"][0]["content"]: each["messages"][1]["content"] for each in rows}
    for each in first:
        assert pairs[each["prompt"]] == each["expected"]
    answered = read(run).answers
    assert len(answered) == 4
    assert all(set(each.texts) == {0, 3, 6, 7} for each in answered)


def test_without_held_out_rows_nothing_is_asked(tiny_spec: Make, new_run: New) -> None:
    run = new_run(tiny_spec())
    assert train(run) == 0
    assert events(run, "answers") == []


class Host:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.stops = False

    def event(self, kind: str, /, **data: Any) -> None:
        assert data["cuts"] == [7] * len(data["answers"])
        self.told.append((kind, data["step"], [each["answer"] for each in data["answers"]]))

    def warning(self, code: str, message: str) -> None:
        self.told.append((code, str(message)))

    def progress(self) -> None: ...

    def stop_requested(self) -> bool:
        return self.stops


def made(host: Host, answer: Callable[..., str | None]) -> Asking:
    rows = [row((2, False), (length, True), first=10 * length) for length in range(1, 5)]
    data = SimpleNamespace(eval=rows, questions=dict.fromkeys(range(4), "?"))
    tokenizer = SimpleNamespace(decode=lambda tokens, skip_special_tokens: f" {tokens} {skip_special_tokens}")

    def written(*asked: object) -> Written | None:
        text = answer(*asked)
        return None if text is None else Written(text, 7)

    parts = SimpleNamespace(data=data, tokenizer=tokenizer, method=SimpleNamespace(writes=True))
    return Asking(host, parts, written)  # type: ignore[arg-type]


def test_what_can_not_be_answered_ends_a_round() -> None:
    host = Host()
    answers = iter(["one", None, "never"])
    made(host, lambda *_: next(answers)).ask(3)
    assert host.told == [
        ("cuda-oom", "There was not enough memory for an answer. It was skipped."),
        ("answers", 3, ["one"]),
    ]

    def refuse(*_: object) -> str:
        raise ValueError("y" * 100_000)

    host = Host()
    asked = made(host, refuse)
    asked.ask(2)
    [(code, message)] = host.told
    assert (code, message[:12]) == ("sample-failed", "Step 2: yyyy")
    assert len(message) < 10_000
    assert not asked.has_questions, "it is not tried again"


def test_a_stop_and_a_long_wait_leave_the_rest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()

    def stop(*_: object) -> str:
        host.stops = True
        return "cut sh"

    made(host, stop).ask(1)
    assert host.told == []
    now = [0.0]
    monkeypatch.setattr(asking.time, "monotonic", lambda: now[0])
    host = Host()

    def slow(_ids: list[int], _most: int, is_over: Callable[[], bool]) -> str:
        now[0] += 25.0
        return "cut" if is_over() else "whole"

    asked = made(host, slow)
    assert asked.is_affordable(), "the first on the way is free"
    asked.ask(1)
    assert host.told == [("answers", 1, ["whole", "whole"])]
    assert not asked.is_affordable()
    now[0] = 1600.0
    assert asked.is_affordable()
