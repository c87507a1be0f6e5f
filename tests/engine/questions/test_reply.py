"""What a model writes as questions and answers: in any of the forms that models have, and in none."""

from __future__ import annotations

import pytest

from tunesmith_engine.questions.reply import Pair, pairs_of

TWO = [Pair("Who came?", "Clara."), Pair("When?", "In 1874.")]


@pytest.mark.parametrize(
    "reply",
    [
        "Q: Who came?\nA: Clara.\nQ: When?\nA: In 1874.",
        "Q1: Who came?\nA1: Clara.\n\nQ2: When?\nA2: In 1874.\n\nI hope this helps!",
        "1. **Question:** Who came?\n   **Answer:** Clara.\n2. **Question:** When?\n   **Answer:** In 1874.",
        "- **Q**: Who came?\n- **A**: Clara.\n- **Q**: When?\n- **A**: In 1874.",
        "### Question 1: Who came?\n### Answer 1: Clara.\n### Question 2: When?\n### Answer 2: In 1874.",
        "Q: Who came? A: Clara.\nQ: When? A: In 1874.",
        "Sure, here they are:\n\nQ:\nWho came?\nA:\nClara.\n\nQ:\n\nWhen?\nA:\n\nIn 1874.",
        'Q: "Who came?"\nA: “Clara.”\nQ: When?\nA: In 1874.\nA: Another one.\nmore of it',
        "Frage: Who came?\nAntwort: Clara.\nPregunta: When?\nRespuesta: In 1874.",
        "q：Who came?\r\na：Clara.\r\n问题2：When?\r\n答案：In 1874.",
    ],
)
def test_any_usual_form_is_read(reply: str) -> None:
    assert pairs_of(reply) == TWO


def test_chinese_is_read() -> None:
    assert pairs_of("问：龙井产于哪里？\n答：杭州。\n问题2：何时采摘？答案：清明前。") == [
        Pair("龙井产于哪里？", "杭州。"),
        Pair("何时采摘？", "清明前。"),
    ]


def test_lines_behind_a_mark_belong_to_it_until_an_empty_one() -> None:
    (pair,) = pairs_of("Q: Which\nthree?\nA: One,\ntwo,\nthree.\n\nThat was all.")
    assert pair == Pair("Which\nthree?", "One,\ntwo,\nthree.")


@pytest.mark.parametrize("reply", ["", "No idea.", "A: an answer alone", "Quite so: yes", "QA: what?", "\n\n:"])
def test_what_has_no_form_is_none(reply: str) -> None:
    assert pairs_of(reply) == []


def test_a_reply_that_was_stopped_loses_its_last_pair() -> None:
    assert pairs_of("Q: Who came?\nA: Clara.\nQ: When?\nA: In 18", is_whole=False) == TWO[:1]
    assert pairs_of("Q: Who c", is_whole=False) == []


def test_empty_and_alike_pairs_are_told() -> None:
    assert [pair.is_empty for pair in (*TWO, Pair("?!", "a"), Pair("Who?", "..."), Pair("", ""))] == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert Pair("Who  came ?", "a").key == Pair("WHO CAME", "b").key
    assert Pair("谁来了？", "a").key != Pair("谁走了？", "a").key
