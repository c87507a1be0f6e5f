"""What a check says of preference pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.desk.checking import check, problems_of, spec_of, write_lines

PAIRS = [{"prompt": f"Is {n} even or is it odd?", "chosen": "Even.", "rejected": "Odd."} for n in range(6)]


def test_a_run_of_pairs_does_not_take_those_without_a_difference(tmp_path: Path) -> None:
    """A run that learns from pairs stops at them or skips them; one that learns the better answers does not."""
    changes: list[dict[str, Any]] = [{"rejected": "Even."}, {"rejected": " "}, {"rejected": None}, {"chosen": ""}]
    rows = [pair | change for pair, change in zip(PAIRS, [{}, *changes, {}], strict=True)]
    spec = spec_of(write_lines(tmp_path / "pairs.jsonl", rows))
    answer = check(tmp_path, spec)
    assert problems_of(answer) == {
        "empty-answer": [(5, 49)], "equal-pair": [(2, 1)], "half-pair": [(3, 70), (4, 70)],
    }  # fmt: skip
    assert [each["severity"] for each in answer["problems"]] == ["error", "warning", "warning"]
    assert answer["num_good_rows"] == 5
    spec.objective.kind = "dpo"
    answer = check(tmp_path, spec)
    told = {each["rule"]: [(row["line"], row["message"]) for row in each["rows"]] for each in answer["problems"]}
    assert told["equal-pair"] == [(2, "the chosen and the rejected answer are equal.")]
    assert {rule: [line for line, _ in found] for rule, found in told.items()} == {
        "empty-answer": [3, 4, 5],
        "equal-pair": [2],
    }
    assert {each["severity"] for each in answer["problems"]} == {"error"}
    assert {each["action"] for each in answer["problems"]} == {"stop"}
    assert answer["num_good_rows"] == 2


def test_votes_are_checked_as_the_pairs_that_they_are(tmp_path: Path) -> None:
    winners = ("A", "b", "tie", "a", "b", "a")
    rows = [
        {"prompt": pair["prompt"], "answer_a": "Even.", "answer_b": "Odd.", "winner": winner}
        for pair, winner in zip(PAIRS, winners, strict=True)
    ]
    # The same pair as in line 2, once with the answers and the winner exchanged and once decided otherwise.
    rows += [rows[1] | {"answer_a": "Odd.", "answer_b": "Even.", "winner": "a"}, rows[1] | {"winner": "a"}]
    rows.append(PAIRS[0] | {"answer_a": "Even.", "answer_b": "Even.", "winner": "b", "chosen": "", "rejected": ""})
    path = write_lines(tmp_path / "votes.jsonl", [{name: row[name] for name in rows[0]} for row in rows])
    answer = check(tmp_path, spec_of(path))
    found = {each["rule"]: [row["line"] for row in each["rows"]] for each in answer["problems"]}
    assert found["equal-pair"] == [9]
    assert found["swapped-pair"] == [8]
    assert answer["num_left_out_rows"] == 1


@pytest.mark.parametrize("as_chats", [False, True])
def test_pairs_that_contradict_each_other_are_named(tmp_path: Path, *, as_chats: bool) -> None:
    def said(text: str) -> Any:
        return [{"role": "assistant", "content": text}] if as_chats else text

    pairs = [pair | {"chosen": said("Even."), "rejected": said("Odd.")} for pair in PAIRS[:4]]
    turned = {"prompt": pairs[1]["prompt"], "chosen": said("Odd."), "rejected": said("Even.")}
    path = write_lines(tmp_path / "pairs.jsonl", [*pairs, turned, pairs[1] | {"prompt": "Is 9 even?"}, pairs[1]])
    answer = check(tmp_path, spec_of(path))
    (problem,) = (each for each in answer["problems"] if each["rule"] == "swapped-pair")
    assert [(row["line"], row["message"]) for row in problem["rows"]] == [
        (5, "the same answers as pairs.jsonl, line 2, the other way round."),
        (7, "the same answers as pairs.jsonl, line 5, the other way round."),
    ]
    assert (problem["severity"], problem["actions"]) == ("warning", ["keep"])
    assert answer["num_problem_rows"] == 2
