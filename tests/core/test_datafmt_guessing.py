"""Columns of any name are guessed by their names, then by what is in them."""

from __future__ import annotations

from typing import Any

import pytest

from tunesmith_core.datafmt.formats import ROLES
from tunesmith_core.datafmt.guessing import examples_of, guess_columns, guess_format, speaking_columns, speaks

GERMAN = [{"thema": "Konto", "frage": "Wer?", "antwort": "Ich bin es."}]
NAMELESS = [{"id": 1, "a": "Why?", "b": "Because it is so.", "c": None}]
CHATS = [{"id": 7, "turns": [{"from": "human", "value": "Hi\nthere"}, {"from": "gpt", "value": "Hello"}]}]


@pytest.mark.parametrize(
    ("head", "format_name", "columns"),
    [
        (GERMAN, "prompt-completion", {"prompt": "frage", "completion": "antwort"}),
        ([{"问题": "谁？", "回答": "我。"}], "prompt-completion", {"prompt": "问题", "completion": "回答"}),
        (
            [{"user_query": "?", "best_reply": "!"}],
            "prompt-completion",
            {"prompt": "user_query", "completion": "best_reply"},
        ),
        (NAMELESS, "prompt-completion", {"prompt": "a", "completion": "b"}),
        (
            [{"column 1": "0", "a": "What colour is item 0, and why?", "b": "Red."}],
            "prompt-completion",
            {"prompt": "a", "completion": "b"},
        ),
        ([{"x": "Red.", "y": "What colour is it?"}], "prompt-completion", {"prompt": "y", "completion": "x"}),
        (
            [{"Nr": "1", "Task": "Add 1 and 1.", "Result": "2"}],
            "prompt-completion",
            {"prompt": "Task", "completion": "Result"},
        ),
        ([{"x": "Red is a warm colour.", "y": "Colours"}], "prompt-completion", {"prompt": "y", "completion": "x"}),
        (
            [{"a": "soil", "b": "Roses", "c": "Roses like sun and water."}],
            "prompt-completion",
            {"prompt": "b", "completion": "c"},
        ),
        (
            [{"a": "soil", "b": "What do roses like? Say it.", "c": "Sun and a lot of water."}],
            "prompt-completion",
            {"prompt": "b", "completion": "c"},
        ),
        ([{"a": "12", "b": "13"}], "prompt-completion", {"prompt": "b", "completion": "a"}),
        (CHATS, "sharegpt", {"conversations": "turns"}),
        ([{"log": [{"role": "user", "content": "Hi"}]}], "messages", {"messages": "log"}),
        ([{"id": 3, "story": "Once"}], "text", {"text": "story"}),
        ([{"id": 3}], "text", {}),
    ],
)
def test_what_can_be_told_is_guessed(head: list[dict[str, Any]], format_name: str, columns: dict[str, str]) -> None:
    assert guess_format(head) == format_name
    assert guess_columns(format_name, head) == columns


LEAST: dict[str, dict[str, Any]] = {
    "preference": {"chosen": "It is so.", "rejected": "It is not so."},
    "messages": {"messages": CHATS[0]["turns"]},
    "sharegpt": {"conversations": CHATS[0]["turns"]},
    "multiple-choice": {"question": "Is it so?", "answer": "Yes, it is."},
    "alpaca": {"instruction": "Say it.", "output": "It is so."},
    "prompt-completion": {"prompt": "Is it so?", "completion": "It is so."},
    "text": {"text": "It is so."},
    "tokens": {"input_ids": [1, 2]},
    "labeled": {"text": "It is so.", "class": "good"},
    "steps": {"prompt": "Is it so?", "steps": ["It is so."], "step_labels": [True]},
    "prompt-completion-raw": {"prompt": "Is it so?", "completion": "It is so."},
    "prompt-only": {"prompt": "Is it so?"},
}
"""What a row of each format can't do without, by role."""


@pytest.mark.parametrize("format_name", ROLES)
def test_a_column_of_any_name_is_taken_only_for_what_rows_can_not_do_without(format_name: str) -> None:
    usual = {role.name: role.usual_names for role in ROLES[format_name]}
    known = {usual[role][0]: value for role, value in LEAST[format_name].items()}
    found = guess_columns(format_name, [known | {"zzz": "More words, as they stand."}] * 2)
    assert found == {role: usual[role][0] for role in LEAST[format_name]}


def test_instruction_data_of_odd_names_is_guessed_too() -> None:
    head = [{"Instruction": "Sum up", "context": "Long", "model_output": "Short", "system_text": "Be brief"}]
    wanted = {"instruction": "Instruction", "input": "context", "output": "model_output", "system": "system_text"}
    assert guess_columns("alpaca", head) == wanted


def test_examples_are_different_and_one_line_each() -> None:
    assert examples_of("turns", CHATS) == ["human: Hi there"]
    assert examples_of("c", NAMELESS) == []
    assert examples_of("id", NAMELESS) == ["1"]
    assert examples_of("a", [{"a": value} for value in ("x\ny", "x y", "", "z", None, 1, 2)]) == ["x y", "z", "1"]


def test_names_that_speak_for_a_question_or_an_answer() -> None:
    assert [speaks(name) for name in ("Question text", "best_reply", "问题", "id", "notes")] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("name", ["prompt", "Question", "hint"])
def test_a_column_that_says_the_same_in_each_row_is_neither_asked_nor_answered(name: str) -> None:
    texts = ("Berlin lies on the Spree", "Rome lies on the Tiber", "Paris lies on the Seine")
    head = [{name: "Which river? Answer in full.", "left": f"River {n}", "right": text} for n, text in enumerate(texts)]
    assert guess_columns("prompt-completion", head) == {"prompt": "left", "completion": "right"}
    only = [{name: row[name], "right": row["right"]} for row in head]
    assert set(guess_columns("prompt-completion", only).values()) == {name, "right"}
    assert guess_columns("prompt-completion", head[:2])["prompt"] == name, "two rows may be alike by chance"


def test_an_instruction_may_be_the_same_in_each_row() -> None:
    head = [{"instruction": "Translate.", "input": word, "output": word.upper()} for word in ("one", "two", "three")]
    assert guess_columns("alpaca", head)["instruction"] == "instruction"


def test_a_question_by_its_name_that_is_always_the_same_is_in_doubt_beside_another_column() -> None:
    head = [{"Frage Art": "Offene Frage", "left": f"River {n}", "Antwort": f"It is {n}"} for n in "abc"]
    assert not speaking_columns(head)
    alone = [{"Frage Art": row["Frage Art"], "Antwort": row["Antwort"]} for row in head]
    assert speaking_columns(alone) == {"prompt": "Frage Art", "completion": "Antwort"}


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"Item question": "How much is 1?", "Price": "€ 12.50", "Since": "2026-01-01", "Share": "12 %"}, "Price"),
        ({"Since": "01.02.2026", "No": "7", "What is it?": "How much is 1?", "Amount": "12"}, "Amount"),
        ({"Amount": "12", "Since": "2026-01-01", "Item question": "How much is 1?"}, "Amount"),
    ],
)
def test_a_number_beside_the_question_is_the_answer_sooner_than_a_date(row: dict[str, str], answer: str) -> None:
    head = [{name: value.replace("1", str(number)) for name, value in row.items()} for number in range(1, 5)]
    assert guess_columns("prompt-completion", head)["completion"] == answer
