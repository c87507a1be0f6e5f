"""Answers labeled good or bad: which column says so, what labels mean, and what is never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import datafmt
from tunesmith_core.datafmt import Chat, Layout, PromptCompletion, Unreadable
from tunesmith_core.datafmt.labels import BAD, GOOD, SCALE, has_label, meaning, one_sided, unbalanced
from tunesmith_core.errors import UserError
from tunesmith_core.preflight import class_notes
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec

Row = dict[str, Any]
ASKED = {"prompt": "Who?", "completion": "Me."}
TURNS = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]


def layout_of(rows: list[Row], columns: dict[str, str] | None = None) -> Layout:
    found = datafmt.resolve_layout(rows, "auto", columns or {}, "f.jsonl")
    return datafmt.with_labels(found, rows, columns or {}, "f.jsonl")


def labeled(*rows: Row, columns: dict[str, str] | None = None) -> list[tuple[Any, bool]]:
    layout = layout_of(list(rows), columns)
    return [each for row in rows for each in datafmt.to_labeled(row, layout, "f.jsonl, line 1")]


def fails(*rows: Row, columns: dict[str, str] | None = None) -> UserError:
    with pytest.raises(UserError) as raised:
        labeled(*rows, columns=columns)
    return raised.value


@pytest.mark.parametrize("good", [True, 1, 1.0, "1", "+1", "Good", "THUMBS_UP", "thumbs-up", "👍🏽", "👍\ufe0f", "好 "])
def test_what_says_good(good: object) -> None:
    assert meaning(good) is True


@pytest.mark.parametrize("bad", [False, 0, 0.0, "0", "Bad", "thumbs down", "👎", "差"])
def test_what_says_bad(bad: object) -> None:
    assert meaning(bad) is False


@pytest.mark.parametrize("unclear", [None, "", "perhaps", 2, -1, 0.5, "4", [], "A"])
def test_what_says_neither(unclear: object) -> None:
    assert meaning(unclear) is None


def test_no_word_says_both() -> None:
    assert not GOOD & BAD
    assert meaning(-1, bad_number=-1) is False
    assert meaning(0, bad_number=-1) is None


@pytest.mark.parametrize("name", ["label", "KTO_tag", "feedback", "is_good", "标签"])
def test_published_names_are_known(name: str) -> None:
    answer = PromptCompletion("Who?", "Me.")
    assert labeled(ASKED | {name: True}, ASKED | {name: False}) == [(answer, True), (answer, False)]


def test_chats_are_labeled_by_their_last_answer() -> None:
    ((chat, is_good),) = labeled({"messages": [*TURNS, *TURNS], "label": "bad"})
    assert (chat, is_good) == (Chat((*TURNS, *TURNS), first_trained=3), False)
    ((chat, is_good),) = labeled({"prompt": TURNS[:1], "completion": TURNS[1:], "label": 1})
    assert (chat, is_good) == (Chat(tuple(TURNS), first_trained=1), True)
    ((chat, _),) = labeled({"instruction": "Who?", "input": "", "output": "Me.", "kto_tag": False})
    assert chat.first_trained == 1


def test_pairs_are_taken_apart() -> None:
    found = labeled({"prompt": "Who?", "chosen": "Me.", "rejected": "It depends."})
    assert found == [(PromptCompletion("Who?", "Me."), True), (PromptCompletion("Who?", "It depends."), False)]
    layout = layout_of([{"prompt": "Who?", "chosen": "Me.", "rejected": "It depends."}])
    assert datafmt.recognition(layout).endswith("Each pair gives a good and a bad answer.")


def test_bad_answers_are_wanted_where_labels_are_learned_from() -> None:
    rows = [ASKED | {"label": True}, ASKED | {"label": False}]
    assert not datafmt.is_wanted(rows[1], datafmt.resolve_layout(rows))
    layout = layout_of(rows)
    assert datafmt.is_wanted(rows[1], layout)
    assert 'The column "label" says which answers are good.' in datafmt.recognition(layout)


def test_minus_one_is_bad_where_nothing_is_zero() -> None:
    assert [is_good for _, is_good in labeled(ASKED | {"label": -1}, ASKED | {"label": 1})] == [False, True]


@pytest.mark.parametrize("numbers", [(1, 2, 5), (0, 0.5, 1), (-1, 0, 1), ("1", "7", "3")])
def test_a_scale_is_never_guessed(numbers: tuple[object, ...]) -> None:
    error = fails(*(ASKED | {"label": number} for number in numbers))
    assert (error.code, 'the column "label" holds numbers from' in error.message) == (SCALE, True)


def test_a_number_of_a_scale_behind_the_first_rows_is_named() -> None:
    layout = layout_of([ASKED | {"label": 1}])
    with pytest.raises(UserError, match=r'^f, line 9, column "label": 5 is not a label') as raised:
        list(datafmt.to_labeled(ASKED | {"label": 5}, layout, lambda: "f, line 9"))
    assert raised.value.code == SCALE


def test_labels_that_are_missing_or_say_nothing_are_named() -> None:
    for value in (None, " "):
        assert fails(ASKED | {"label": value}).message == 'f.jsonl, line 1, column "label": the label is missing.'
    assert fails(ASKED | {"label": "hm"}).message.endswith("'hm' is not a label.")
    assert "bytes is not a label" in fails(ASKED | {"label": Unreadable("bytes")}).message


def test_a_column_of_another_name_is_asked_for_with_a_guess() -> None:
    error = fails(ASKED | {"nice": "yes"}, ASKED | {"nice": "no"})
    assert error.code == "dataset-column-missing"
    assert "no column is recognized as the label" in error.message
    guess = json.loads(str(error.message.values["guess"]))
    assert guess == {"prompt": "prompt", "completion": "completion", "label": "nice"}
    ((_, good), (_, bad)) = labeled(ASKED | {"nice": "yes"}, ASKED | {"nice": "no"}, columns={"label": "nice"})
    assert (good, bad) == (True, False)
    guess = json.loads(str(fails(ASKED | {"note": "free words"}).message.values["guess"]))
    assert "label" not in guess


def test_rows_without_answers_are_refused() -> None:
    error = fails({"text": "a story"})
    assert (error.code, "They are read as: Plain text" in error.message) == ("dataset-column-missing", True)
    assert has_label("messages")
    assert not has_label("auto")


def test_one_side_alone_is_refused_and_a_heavy_side_is_told() -> None:
    assert one_sided(3, 4) is None
    good, bad = one_sided(3, 0), one_sided(0, 1200)
    assert good is not None
    assert bad is not None
    assert good.message == "Every answer is labeled good (3). This objective needs bad answers too."
    assert bad.message == "Every answer is labeled bad (1,200). This objective needs good answers too."
    assert unbalanced(30, 10, 1.0, 1.0) is None
    words = unbalanced(10, 90, 1.0, 1.0)
    assert words is not None
    assert words.startswith("10 answers are labeled good and 90 bad")
    assert unbalanced(10, 90, 9.0, 1.0) is None


def test_the_head_of_a_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"

    def write(*labels: object) -> SourceSpec:
        path.write_text("".join(json.dumps(ASKED | {"label": label}) + "\n" for label in labels), encoding="utf-8")
        return SourceSpec(path=str(path))

    assert datafmt.check_head(write(True, False), in_labels=True) == (2, 0)
    assert datafmt.check_head(write(True, None, False), skip_bad_rows=True, in_labels=True) == (2, 1)
    with pytest.raises(UserError, match=r"line 2"):
        datafmt.check_head(write(True, None), in_labels=True)
    assert datafmt.count_labels(write(True, None, False, True)) == (2, 1), "the row without a label is neither"
    rows = [*[1] * 60, 4]
    with pytest.raises(UserError, match="line 61") as raised:
        # It would be wrong to leave that row out: what the others mean is as unclear.
        datafmt.check_head(write(*rows), skip_bad_rows=True, in_labels=True)
    assert raised.value.code == SCALE


def test_a_label_that_all_rows_have_is_found(tmp_path: Path) -> None:
    path = tmp_path / "classes.jsonl"

    def write(*labels: str) -> SourceSpec:
        path.write_text("".join(json.dumps({"text": "T", "label": each}) + "\n" for each in labels), encoding="utf-8")
        return SourceSpec(path=str(path), format="labeled")

    assert datafmt.only_label(write("a", "a")) == ("a", 2)
    assert datafmt.only_label(write("a", "b")) == ("", 0)


def test_labels_are_told_with_their_numbers_and_those_that_look_the_same(tmp_path: Path) -> None:
    path = tmp_path / "classes.jsonl"

    def told(*labels: str) -> list[str]:
        path.write_text("".join(json.dumps({"text": "T", "label": each}) + "\n" for each in labels), encoding="utf-8")
        return [str(each) for each in datafmt.label_notes(SourceSpec(path=str(path), format="labeled"))]

    assert told("so-so", "good", "good", "Good") == [
        "Labels and their rows: “good” 2, “so-so” 1, “Good” 1.",
        "“good”, “Good” differ in case or blanks only. They are learned as different classes.",
    ]
    assert told("a", "b") == ["Labels and their rows: “a” 1, “b” 1."]
    assert told("a", "a") == []
    assert told(*map(str, range(10)))[0].endswith("“9” 1."), "ten are told, and no others"
    (many,) = told(*map(str, range(12)))
    assert many.endswith("“9” 1, and 2 other labels.")
    spec = RunSpec()
    spec.data.sources = [SourceSpec(path=str(path), format="labeled")]
    assert class_notes(spec) == []
    spec.objective.kind = "classify"
    assert class_notes(spec) == [many]
    spec.objective.regression = True
    assert class_notes(spec) == []
