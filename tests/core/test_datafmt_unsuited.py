"""Rows that are read in one way only: which columns of any name are proposed, and what is said where none would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import datafmt
from tunesmith_core.datafmt import Labeled, Stepped, Text
from tunesmith_core.datafmt.guessing import guess_columns
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.spec_sections import SourceSpec

Rows = list[dict[str, Any]]  # Any: JSON values

DEPARTMENTS = ("Sales", "Customer care", "Repairs")
TICKETS: Rows = [{"Complaint": f"No parcel {number}", "Department": DEPARTMENTS[number % 3]} for number in range(30)]
PAIRS: Rows = [{"chosen": f"{number}, which is right. " * 4, "rejected": "I do not know. " * 6} for number in range(12)]


def turned(rows: Rows) -> Rows:
    return [dict(reversed(row.items())) for row in rows]


def error_of(rows: Rows, format_name: str, columns: dict[str, str] | None = None) -> TunesmithError:
    with pytest.raises(UserError) as caught:
        datafmt.resolve_layout(rows, format_name, columns, "a.csv")
    return caught.value


@pytest.mark.parametrize("rows", [TICKETS, turned(TICKETS)], ids=["text first", "label first"])
def test_few_different_values_are_the_label_wherever_they_stand(rows: Rows) -> None:
    error = error_of(rows, "labeled")
    assert error.code == "dataset-column-missing"
    assert error.message.startswith("a.csv: the names of the columns don't tell which one is the text and which the")
    assert error.message.endswith(f"The columns are {', '.join(rows[0])}.")
    assert json.loads(error.message.values["guess"]) == {"text": "Complaint", "class": "Department"}
    layout = datafmt.resolve_layout(rows, "labeled", {"text": "Complaint", "class": "Department"}, "a.csv")
    assert datafmt.to_messages(rows[1], layout, "a.csv, line 3") == Labeled(Text("No parcel 1"), "Customer care")


@pytest.mark.parametrize(
    ("rows", "label"),
    [
        ([{"Nr": number, "Ware": f"Chair {number}", "Preis": number * 1.5 + 0.25} for number in range(20)], "Preis"),
        ([{"Preis": f"{number}.5", "Ware": f"A chair of wood, {number}"} for number in range(20)], "Preis"),
        ([{"aa": "It broke at once.", "bb": word} for word in ("angry", "sad", "happy")], "bb"),
        ([{"aa": f"Text {number}", "bb": number < 5, "cc": "same"} for number in range(12)], "bb"),
        ([{"question": f"Is {number} odd?", "answer": ("no", "yes")[number % 2]} for number in range(12)], "answer"),
        ([{"response": f"It is {number}.", "stars": number % 5} for number in range(12)], "stars"),
    ],
    ids=["numbers behind the row's own", "numbers first", "few rows", "truth values", "short answers", "answers alone"],
)
def test_other_labels_are_proposed(rows: Rows, label: str) -> None:
    guess = guess_columns("labeled", rows)
    text = max((name for name in rows[0] if name != label), key=lambda name: len(str(rows[0][name])))
    assert guess == {"text": text, "class": label}


def test_an_answer_stays_beside_its_question_where_something_else_is_the_label() -> None:
    rows = [{"question": "Why?", "answer": "So.", "verdict": number % 2} for number in range(4)]
    assert guess_columns("labeled", rows) == {"text": "question", "answer": "answer", "class": "verdict"}


@pytest.mark.parametrize(
    "rows",
    [
        PAIRS,
        [{"messages": [{"role": "user", "content": "Hi"}]}],
        [{"name": f"a{number}", "note": f"b{number}"} for number in range(12)],
        [{"text": "a", "mood": ""}, {"text": "b", "mood": "good"}],
    ],
    ids=["pairs", "chats", "all different", "empty"],
)
def test_data_without_labels_is_not_asked_for_them(rows: Rows) -> None:
    error = error_of(rows, "labeled")
    assert error.code == "dataset-unsuited"
    found = ", ".join(rows[0])
    assert error.message == (
        "a.csv: this objective learns from texts with labels, and no two columns look like a text and its label. The "
        f"columns are {found}."
    )
    assert error.hint.startswith("Choose data with a text and its label in each row")


@pytest.mark.parametrize(
    ("given", "guess"),
    [
        ({"class": "Shop"}, {"text": "Complaint", "class": "Shop"}),
        ({"text": "Department"}, {"text": "Department", "class": "Shop"}),
        ({"text": "Shop"}, {"text": "Shop", "class": "Department"}),
    ],
)
def test_a_column_that_was_named_stays_and_the_other_is_proposed(given: dict[str, str], guess: dict[str, str]) -> None:
    rows = [row | {"Shop": f"Shop {number % 4}"} for number, row in enumerate(TICKETS)]
    assert json.loads(error_of(rows, "labeled", given).message.values["guess"]) == guess


def test_steps_of_any_name_are_found_by_what_they_hold() -> None:
    row = {"marks": "[true, false]", "task": "What is 2 + 2?", "way": ["It is 4.", "Or 5."]}
    error = error_of([{"task": "?"}, row], "steps")
    assert error.code == "dataset-column-missing"
    assert json.loads(error.message.values["guess"]) == {"prompt": "task", "steps": "way", "step_labels": "marks"}
    layout = datafmt.resolve_layout([row], "steps", json.loads(error.message.values["guess"]), "a.csv")
    assert datafmt.to_messages(row, layout, "a.csv, line 2") == Stepped(
        "What is 2 + 2?", ("It is 4.", "Or 5."), (True, False)
    )


@pytest.mark.parametrize(
    "rows",
    [PAIRS, TICKETS, [{"problem": "2 + 2?", "solution": "It is 4.", "label": "easy"}]],
    ids=["pairs", "texts with labels", "names of steps without any"],
)
def test_data_without_steps_is_not_asked_for_them(rows: Rows) -> None:
    error = error_of(rows, "steps")
    assert error.code == "dataset-unsuited"
    assert error.message == (
        "a.csv: this objective learns from solutions in steps with labels, and no two columns hold steps and their "
        f"labels. The columns are {', '.join(rows[0])}."
    )


def test_columns_that_were_named_by_mistake_are_proposed_again() -> None:
    row = {"task": "What is 2 + 2?", "note": "easy", "way": ["4"], "marks": [True]}
    error = error_of([row], "steps", {"prompt": "way", "steps": "task", "step_labels": "note"})
    assert error.code == "dataset-column-missing"
    assert json.loads(error.message.values["guess"]) == {"prompt": "task", "steps": "way", "step_labels": "marks"}


def test_a_run_is_refused_with_the_same_words(tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text("Complaint,Department\n" + "".join(f"{row['Complaint']},{row['Department']}\n" for row in TICKETS))
    with pytest.raises(UserError, match=r"tickets\.csv: the names of the columns don't tell"):
        datafmt.check_head(SourceSpec(path=str(path), format="labeled"))
    named = SourceSpec(path=str(path), format="labeled", columns={"text": "Complaint", "class": "Department"})
    assert datafmt.check_head(named) == (30, 0)
