"""Preference pairs as both of their answers: what is asked in both, what differs, and pairs that prefer nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_datafmt_shapes import BAD, GOOD, SYSTEM, USER
from tunesmith_core import cli, datafmt, objectives
from tunesmith_core.datafmt import Chat, Preference, PromptCompletion
from tunesmith_core.datafmt.guessing import guess_columns
from tunesmith_core.errors import UserError
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec

PLACE = "a.jsonl, line 1"


def read(row: dict[str, Any]) -> Preference:
    return datafmt.to_preference(row, datafmt.resolve_layout([row]), PLACE)


@pytest.mark.parametrize(
    ("row", "chosen", "rejected"),
    [
        (
            {"prompt": "Who?", "chosen": "Me.", "rejected": "You."},
            PromptCompletion("Who?", "Me."),
            PromptCompletion("Who?", "You."),
        ),
        (
            {"prompt": "Who?", "chosen": "Me.", "rejected": "You.", "system": "Be kind."},
            Chat((SYSTEM, USER, GOOD)),
            Chat((SYSTEM, USER, BAD)),
        ),
        ({"prompt": "Who?", "chosen": [GOOD], "rejected": [BAD]}, Chat((USER, GOOD), 1), Chat((USER, BAD), 1)),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, Chat((USER, GOOD), 1), Chat((USER, BAD), 1)),
        (
            {"chosen": [USER, GOOD, USER, GOOD], "rejected": [USER, GOOD, USER, BAD]},
            Chat((USER, GOOD, USER, GOOD), 3),
            Chat((USER, GOOD, USER, BAD), 3),
        ),
        (
            {"chosen": "It is red now.", "rejected": "It is read."},
            PromptCompletion("It is ", "red now."),
            PromptCompletion("It is ", "read."),
        ),
    ],
)
def test_both_answers_have_the_question_and_what_differs_is_trained(
    row: dict[str, Any], chosen: datafmt.Conversation, rejected: datafmt.Conversation
) -> None:
    assert read(row) == Preference(chosen, rejected)


def test_a_pair_of_equal_answers_is_refused_by_its_columns() -> None:
    with pytest.raises(UserError) as caught:
        read({"prompt": "Who?", "chosen": "Me.", "rejected": "Me."})
    assert caught.value.code == "dataset-parse-error"
    assert caught.value.message.startswith(f'{PLACE}: the answers in the columns "chosen" and "rejected" are the same')


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": [USER, GOOD], "rejected": [{"role": "user", "content": "When?"}, BAD]},
        {"prompt": "Hm", "chosen": [USER, GOOD], "rejected": [{"role": "user", "content": "When?"}, BAD]},
    ],
)
def test_answers_to_different_questions_are_no_pair(row: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        read(row)
    assert caught.value.message.endswith("are to different questions.")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("question", "good_answer", "bad_answer"), ("good_answer", "bad_answer")),
        (("question", "bad answer", "good answer"), ("good answer", "bad answer")),
        (("prompt", "winner", "loser"), ("winner", "loser")),
        (("prompt", "worse", "better"), ("better", "worse")),
        (("prompt", "not preferred", "preferred"), ("preferred", "not preferred")),
        (("prompt", "alpha", "beta"), (None, None)),
    ],
)
def test_which_answer_is_better_is_known_by_its_name_or_not_at_all(
    names: tuple[str, str, str], expected: tuple[str | None, str | None]
) -> None:
    head = [dict(zip(names, ("What is 2 + 2?", "It is 4.", "It is 5, as everybody knows."), strict=True))] * 4
    found = guess_columns("preference", head)
    assert (found.get("chosen"), found.get("rejected")) == expected
    assert found["prompt"] == names[0]


def test_a_column_that_asks_is_the_prompt_of_pairs_whatever_its_name() -> None:
    rows = [{"ask": f"What is {n}?", "source": "me", "good": f"It is {n}.", "bad": "It is 99."} for n in range(4)]
    assert guess_columns("preference", rows) == {"chosen": "good", "rejected": "bad", "prompt": "ask"}
    plain = [{key: value for key, value in row.items() if key != "ask"} for row in rows]
    assert "prompt" not in guess_columns("preference", plain)


def test_a_worse_answer_is_not_guessed_as_the_response() -> None:
    rows = [{"prompt": f"What is {n}?", "worse": f"A long answer {n}", "better": f"It is {n}."} for n in range(4)]
    assert guess_columns("prompt-completion", rows)["completion"] == "better"


def test_the_head_of_a_file_is_checked_as_pairs_before_a_run_begins(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"prompt": f"Q{n}", "chosen": "yes", "rejected": "no"} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, [*rows, rows[0] | {"rejected": "yes"}])), encoding="utf-8")
    source = SourceSpec(path=str(path))
    assert datafmt.check_head(source) == (4, 0)
    assert datafmt.check_head(source, skip_bad_rows=True, in_pairs=True) == (3, 1)
    with pytest.raises(UserError, match="line 4: the answers in the columns"):
        datafmt.check_head(source, in_pairs=True)
    path.write_text(json.dumps(rows[0] | {"rejected": "yes"}) + "\n\n[]\n", encoding="utf-8")
    assert datafmt.count_bad(source, in_pairs=True) == (0, 2)
    path.write_text('{"prompt": "a", "completion": "b"}\n', encoding="utf-8")
    with pytest.raises(UserError, match="this objective learns from preference pairs"):
        datafmt.check_head(source, in_pairs=True)


def test_smoothing_is_refused_where_a_loss_ignores_it() -> None:
    values: dict[str, Any] = {
        "version": 2,
        "model": {"path": "m"},
        "data": {"sources": [{"path": "d"}]},
        "objective": {"kind": "dpo", "dpo_loss": "hinge", "label_smoothing": 0.1},
    }
    with pytest.raises(UserError, match="has no effect with the loss Hinge"):
        RunSpec.from_dict(values)


def test_a_setting_of_the_objective_is_used_by_those_that_it_is_for() -> None:
    assert objectives.uses("simpo", "objective.margin")
    assert not objectives.uses("dpo", "objective.margin")
    assert objectives.uses("sft", "adapter.rank")
    assert not objectives.uses("sft", "objective.beta")
    assert objectives.uses("sft", "data.train_on")
    assert not objectives.uses("reward", "data.train_on")
    assert objectives.uses("reward", "adapter.rank")
    assert [each for each in ("beta", "margin", "dpo_loss") if objectives.uses("reward", f"objective.{each}")] == []


def test_a_rate_that_nobody_gave_suits_the_objective() -> None:
    values: dict[str, Any] = {"version": 2, "model": {"path": "m"}, "data": {"sources": [{"path": "d"}]}}
    usual = RunSpec.from_dict(values).optimizer.learning_rate
    values["objective"] = {"kind": "dpo"}
    assert RunSpec.from_dict(values).optimizer.learning_rate == usual / 4
    values["optimizer"] = {"learning_rate": 3e-4}
    assert RunSpec.from_dict(values).optimizer.learning_rate == 3e-4


def test_a_pair_without_its_worse_answer_is_refused() -> None:
    good = {"prompt": "Who?", "chosen": "Me.", "rejected": "You."}
    layout = datafmt.resolve_layout([good])
    for worse in (None, ""):
        with pytest.raises(UserError) as caught:
            datafmt.to_preference(good | {"rejected": worse}, layout, PLACE)
        assert caught.value.message.startswith(f'{PLACE}, column "rejected"')


def test_exo_needs_labels_that_can_be_wrong() -> None:
    values = {
        "version": 2,
        "model": {"path": "m"},
        "data": {"sources": [{"path": "d"}]},
        "objective": {"kind": "dpo", "dpo_loss": "exo_pair"},
    }
    with pytest.raises(UserError, match=r"objective\.label_smoothing must be above 0"):
        RunSpec.from_dict(values)
    values["objective"]["label_smoothing"] = 0.1  # type: ignore[index]
    assert RunSpec.from_dict(values).objective.label_smoothing == 0.1


def test_pairs_that_contradict_each_other_are_counted(make_spec: Any, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "pairs.jsonl"
    row = {"prompt": "Who?", "chosen": "Me.", "rejected": "You."}
    other = {"prompt": "Why?", "chosen": "You.", "rejected": "Me."}
    source = SourceSpec(path=str(path))
    path.write_text("".join(json.dumps(each) + "\n" for each in (row, other, row)))
    assert datafmt.swapped_note(source) is None, "another question"
    exchanged = {"prompt": "Who?", "chosen": "You.", "rejected": "Me."}
    path.write_text("".join(json.dumps(each) + "\n" for each in (row, other, exchanged)))
    words = "Pairs that contradict another one: 2 of 3."
    assert words in (datafmt.swapped_note(source) or "")
    spec = make_spec()
    spec.objective.kind, spec.data.sources = "dpo", [source]
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(tmp_path / "spec.json")]) == 0
    assert words in capsys.readouterr().err
    workbook = tmp_path / "pairs.xlsx"
    workbook.write_bytes(b"PK\x03\x04")
    assert datafmt.swapped_note(SourceSpec(path=str(workbook))) is None
