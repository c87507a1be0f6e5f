"""Questions with options: the model sees all of them, and learns the letter of the right one."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import datafmt
from tunesmith_core.datafmt import PromptCompletion, Row
from tunesmith_core.datafmt.guessing import guess_columns, guess_format, option_columns, speaking_columns
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import SourceSpec

CITIES = ["Oslo", "Paris", "Rome", "Bern"]
ASKED = "Where is it?\nA. Oslo\nB. Paris\nC. Rome\nD. Bern"


def learned(*rows: Row, **options: Any) -> list[tuple[str, str]]:
    """Return what is asked and what is answered."""
    layout = datafmt.resolve_layout(rows, **options)
    assert layout.format == "multiple-choice"
    found = []
    for row in rows:
        pair = datafmt.to_messages(row, layout, "a.csv, line 2")
        assert isinstance(pair, PromptCompletion)
        assert (pair.as_chat, pair.between) == (True, "\n")
        found.append((pair.prompt, pair.completion))
    return found


def refusal(*rows: Row, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        learned(*rows, **options)
    return caught.value.message


def of_list(answer: object, texts: object = CITIES) -> Row:
    return {"question": "Where is it?", "choices": texts, "answer": answer}


@pytest.mark.parametrize(
    "names",
    [
        ("question", "A", "B", "C", "D", "answer"),
        ("Question", "a", "b", "c", "d", "Label"),
        ("question", "option_a", "option_b", "option_c", "option_d", "correct"),
        ("question", "Option A", "Option B", "Option C", "Option D", "correct_answer"),
        ("question", "opa", "opb", "opc", "opd", "cop"),
        ("prompt", "choice_a", "choice_b", "choice_c", "choice_d", "answerKey"),
        ("question", "choice1", "choice2", "choice3", "choice4", "solution"),
        ("question", "option1", "option2", "option3", "option4", "answer"),
        ("instruction", "optionA", "optionB", "optionC", "optionD", "answer"),
        ("Frage", "Antwort A", "Antwort B", "Antwort C", "Antwort D", "Lösung"),
        ("问题", "选项A", "选项B", "选项C", "选项D", "正确答案"),
    ],
)
def test_options_in_columns_are_part_of_the_question(names: tuple[str, ...]) -> None:
    row = dict(zip(names, ("Where is it?", *CITIES, "B"), strict=True))
    assert learned(row) == [(ASKED, "B")]


@pytest.mark.parametrize(
    ("choices", "asked"),
    [
        (CITIES, ASKED),
        (json.dumps(CITIES), ASKED),
        ({"text": CITIES, "label": list("ABCD")}, ASKED),
        (dict(zip("ABCD", CITIES, strict=True)), ASKED),
        ([1, 2.5], "Where is it?\nA. 1\nB. 2.5"),
    ],
)
@pytest.mark.parametrize("name", ["choices", "options"])
def test_options_in_one_column_are_part_of_the_question(choices: object, asked: str, name: str) -> None:
    assert learned({"question": "Where is it?\n", name: choices, "answer": "B"}) == [(asked, "B")]


def test_labels_of_the_row_are_kept() -> None:
    row = of_list("3", {"text": CITIES, "label": ["1", "2", "3", "4"]})
    assert learned(row) == [("Where is it?\n1. Oslo\n2. Paris\n3. Rome\n4. Bern", "3")]


@pytest.mark.parametrize("answer", ["C", " c ", "C.", "(C)", "Rome", " Rome", "C. Rome", "c) Rome", "(C) Rome"])
def test_the_answer_is_learned_as_a_letter(answer: str) -> None:
    assert learned(of_list(answer)) == [(ASKED, "C")]


@pytest.mark.parametrize(
    ("answers", "letters"),
    [
        ([1, 0, 3], "BAD"),
        (["1", "0", "3"], "BAD"),
        ([1, 4, 2.0], "ADB"),
        ([2, 1, "B", 4], "BABD"),
    ],
)
def test_numbers_are_counted_from_where_the_file_does(answers: list[object], letters: str) -> None:
    assert [letter for _, letter in learned(*map(of_list, answers))] == list(letters)


@pytest.mark.parametrize("answers", [[1, 2, 3], ["1", "2"], [0, 4], ["Rome", "1", "0"]])
def test_numbers_that_may_be_counted_either_way_are_refused(answers: list[object]) -> None:
    layout = datafmt.resolve_layout([*map(of_list, answers)])
    with pytest.raises(UserError) as caught:
        datafmt.to_messages(of_list(1), layout, "a.csv, line 2")
    assert caught.value.code == "dataset-parse-error"
    words = 'a.csv, line 2, column "answer": 1 may be counted from 0 or from 1. Write letters, such as B.'
    assert caught.value.message == words


def test_numbers_that_are_options_are_told_from_numbers_of_options() -> None:
    sums = [["2", "3", "4", "5"], ["7", "8", "9", "4"]]
    assert [letter for _, letter in learned(of_list("4", sums[0]), of_list("8", sums[1]))] == ["C", "B"]
    # All answers are options, so none is a number of one.
    assert [letter for _, letter in learned(of_list("3", sums[0]), of_list("4", sums[0]))] == ["B", "C"]
    assert [letter for _, letter in learned(of_list("3", sums[0]), of_list("0", sums[0]))] == ["D", "A"]
    # A number is no text.
    assert [letter for _, letter in learned(of_list(3, sums[0]), of_list(0, sums[0]))] == ["D", "A"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (of_list("E"), "column \"answer\": 'E' is none of the options A, B, C, D."),
        (of_list("Berlin"), "column \"answer\": 'Berlin' is none of the options A, B, C, D."),
        (of_list("A. Paris"), "'A. Paris' is none of the options"),
        (of_list(["B"]), "is none of the options"),
        (of_list(None), 'column "answer": is empty.'),
        (of_list(" "), 'column "answer": is empty.'),
        (of_list("A", "A) Oslo B) Paris"), 'column "choices": must be a list of options, at most 26, each a text.'),
        (of_list("A", [["Oslo"], "Paris"]), 'column "choices": must be a list of options'),
        (of_list("A", ["x"] * 27), 'column "choices": must be a list of options'),
        ({"question": "", "A": "x", "B": "y", "answer": "A"}, 'column "question": is empty.'),
        ({"question": "Who?", "A": "x", "B": None, "answer": "A"}, 'column "A": has fewer than two options.'),
    ],
)
def test_a_row_that_is_no_question_with_options_is_refused(row: Row, said: str) -> None:
    message = refusal(row)
    assert message.startswith("a.csv, line 2, column ")
    assert said in message


def test_a_row_of_one_option_is_refused() -> None:
    layout = datafmt.resolve_layout([of_list("A")])
    with pytest.raises(UserError, match='column "choices": has fewer than two options'):
        datafmt.to_messages(of_list("A", ["Oslo"]), layout, "a.csv, line 2")


def test_a_number_behind_the_last_option_is_refused() -> None:
    layout = datafmt.resolve_layout([of_list(0), of_list(3)])
    with pytest.raises(UserError, match="4 is none of the options A, B, C, D"):
        datafmt.to_messages(of_list(4), layout, "a.csv, line 2")


def test_an_option_that_a_row_leaves_out_keeps_the_letters_of_the_others() -> None:
    rows = [{"question": "Who?", "A": "x", "B": "", "C": "z", "D": None, "answer": answer} for answer in ("C", "z")]
    assert learned(*rows) == [("Who?\nA. x\nC. z", "C")] * 2
    assert "'B' is none of the options A, C" in refusal({**rows[0], "answer": "B"})


def test_one_option_or_settings_make_no_choice() -> None:
    for row in (
        {"question": "Who?", "A": "x", "answer": "Me."},
        {"question": "Who?", "options": {"speed": 3}, "answer": "Me."},
        {"question": "Who?", "options": None, "answer": "Me."},
    ):
        assert datafmt.resolve_layout([row]).format == "prompt-completion"


@pytest.mark.parametrize("options", [{"t": 0.1}, ["only"], "[]", {}])
def test_a_column_of_fewer_than_two_options_makes_no_choice(options: object) -> None:
    rows = [{"question": "Where is it?", "answer": "In Paris.", "options": options}] * 3
    assert datafmt.resolve_layout(rows).format == "prompt-completion"


def test_columns_can_be_mapped() -> None:
    row = {"Aufgabe": "Who?", "links": "Me", "rechts": "You", "stimmt": "rechts"}
    columns = {"question": "Aufgabe", "option_a": "links", "option_b": "rechts", "answer": "stimmt"}
    assert learned({**row, "stimmt": "You"}, columns=columns) == [("Who?\nA. Me\nB. You", "B")]
    wanted = 'column "Aufgabe": has fewer than two options'
    assert wanted in refusal(row, columns={"question": "Aufgabe", "answer": "stimmt"})


def test_a_person_may_choose_to_leave_the_options_out() -> None:
    layout = datafmt.resolve_layout([of_list("Rome")], "prompt-completion")
    assert datafmt.to_messages(of_list("Rome"), layout, "") == PromptCompletion("Where is it?", "Rome")
    assert datafmt.recognition(layout, [of_list("Rome")]).endswith("Not used: choices.")


def test_the_reason_names_the_options() -> None:
    row = {"id": 7, "question": "Who?", "A": "x", "B": "y", "answer": "A", "topic": "z"}
    said = 'Multiple choice: the column "question" asks, and "answer" says which of "A", "B" is right.'
    layout = datafmt.resolve_layout([row])
    assert datafmt.recognition(layout) == said
    assert datafmt.recognition(layout, [row]) == said + " Not used: id, topic."


HEADS = [
    {"Fragetext": "Wer?", "Antwort A": "Ich", "Antwort B": "Du", "Lösung der Frage": "B"},
    {"Fragetext": "Wer?", "Antwort A": "Ich", "Antwort B": "Du", "Antwort": "B"},
    {"user_query": "Who?", "options": ["Me", "You"], "is correct": "B"},
]


@pytest.mark.parametrize("row", HEADS)
def test_an_option_is_never_proposed_as_the_answer(row: Row) -> None:
    with pytest.raises(UserError) as caught:
        datafmt.resolve_layout([row])
    guess = json.loads(caught.value.message.values["guess"])
    names = list(row)
    assert (guess.pop("question"), guess.pop("answer")) == (names[0], names[-1])
    assert list(guess.values()) == names[1:-1] == option_columns([row])
    assert guess_format([row]) == "multiple-choice"
    assert speaking_columns([row]) == {}
    for name in ("prompt-completion", "alpaca"):
        assert not set(names[1:-1]) & set(guess_columns(name, [row]).values())


def test_columns_of_letters_are_no_options_where_nobody_asks() -> None:
    assert option_columns([{"id": 1, "a": "Why?", "b": "Because it is so."}]) == []


def test_a_table_is_checked_from_its_head(tmp_path: Path) -> None:
    path = tmp_path / "quiz.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("question", "A", "B", "C", "D", "answer"))
        writer.writerows(("Where is it?", *CITIES, letter) for letter in "ABCDE")
    assert datafmt.sniff(path).format == "multiple-choice"
    assert datafmt.check_head(SourceSpec(path=str(path)), skip_bad_rows=True) == (4, 1)
    with pytest.raises(UserError, match=r"quiz\.csv, line 6, column \"answer\": 'E' is none"):
        datafmt.check_head(SourceSpec(path=str(path)))
