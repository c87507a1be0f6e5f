"""Shapes of rows beyond question and answer: pairs, labels, tokens, histories, JSON texts; and why they are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import datafmt
from tunesmith_core.datafmt import Chat, Layout, PromptCompletion, Tokens
from tunesmith_core.datafmt.formats import NO_ANSWER, ROLES
from tunesmith_core.datafmt.guessing import examples_of, guess_columns, guess_format
from tunesmith_core.datafmt.message_lists import TURN_NAMES
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import CHOICE_WORDS, SourceSpec

USER, GOOD, BAD = (
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "Me."},
    {"role": "assistant", "content": "You."},
)
SYSTEM = {"role": "system", "content": "Be kind."}


def read(row: dict[str, Any], **options: Any) -> tuple[str, datafmt.Conversation]:
    layout = datafmt.resolve_layout([row], **options)
    return layout.format, datafmt.to_messages(row, layout, "a.jsonl, line 1")


def refusal(row: dict[str, Any], **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(row, **options)
    return caught.value.message


def sharegpt(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": speaker, "value": text} for speaker, text in turns]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "Who?", "chosen": "Me.", "rejected": "You."}, PromptCompletion("Who?", "Me.")),
        (
            {"instruction": "Add.", "input": "1 1", "chosen": "2", "rejected": "3"},
            PromptCompletion("Add.\n\n1 1", "2"),
        ),
        (
            {"chosen": "It is red now.", "rejected": "It is read."},
            PromptCompletion("It is ", "red now."),
        ),
        ({"chosen": "Me.", "rejected": None}, PromptCompletion("", "Me.")),
        ({"chosen": "Me.", "rejected": "Me."}, PromptCompletion("", "Me.")),
        (
            {"prompt": "Who?", "chosen": "Me.", "rejected": "You.", "system": "Be kind."},
            Chat((SYSTEM, USER, GOOD)),
        ),
        ({"prompt": "Who?", "chosen": [GOOD], "rejected": [BAD]}, Chat((USER, GOOD), 1)),
        ({"prompt": [USER], "chosen": "Me.", "rejected": "You."}, Chat((USER, GOOD), 1)),
        (
            {"prompt": json.dumps([USER]), "chosen": [GOOD], "rejected": [BAD], "system": "Be kind."},
            Chat((SYSTEM, USER, GOOD), 2),
        ),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, Chat((USER, GOOD), 1)),
        ({"chosen": [USER, GOOD], "rejected": [USER, GOOD]}, Chat((USER, GOOD), 0)),
        ({"chosen": [USER, GOOD, USER, GOOD], "rejected": [USER, GOOD, USER, BAD]}, Chat((USER, GOOD) * 2, 3)),
        ({"chosen": [USER, GOOD], "rejected": "You."}, Chat((USER, GOOD), 0)),
        (
            {
                "conversations": sharegpt(("human", "Who?")),
                "chosen": {"from": "gpt", "value": "Me."},
                "rejected": {"from": "gpt", "value": "You."},
            },
            Chat((USER, GOOD), 1),
        ),
        (
            {
                "chosen": "\n\nHuman: Who?\n\nAssistant: Me.",
                "rejected": "\n\nHuman: Who?\n\nAssistant: You.",
            },
            Chat((USER, GOOD), 1),
        ),
    ],
)
def test_of_a_pair_the_better_answer_is_trained(row: dict[str, Any], expected: datafmt.Conversation) -> None:
    assert read(row) == ("preference", expected)


def test_a_pair_without_an_answer_is_a_bad_row() -> None:
    assert "has no assistant answer" in refusal({"chosen": [USER], "rejected": [USER]})
    assert "is empty" in refusal({"prompt": "Who?", "chosen": "", "rejected": "x"})


def test_a_label_of_truth_values_says_which_rows_are_trained(tmp_path: Path) -> None:
    rows = [
        {"prompt": "Who?", "completion": "Me.", "label": True},
        {"prompt": "Who?", "completion": "", "label": False},
    ]
    layout = datafmt.resolve_layout(rows)
    assert [datafmt.is_wanted(row, layout) for row in rows] == [True, False]
    assert datafmt.recognition(layout) == (
        'Prompt and response: the column "prompt" asks, and "completion" answers. '
        'Only rows whose column "label" is true are trained.'
    )
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert datafmt.check_head(SourceSpec(path=str(path))) == (2, 0)
    names = datafmt.resolve_layout([{"prompt": "a", "completion": "b", "label": "math"}])
    assert "label" not in names.columns
    chosen = datafmt.resolve_layout([{"messages": [USER, GOOD], "good": 0}], columns={"label": "good"})
    values = (0, 1, "False", "yes", "perhaps", None, [])
    wanted = [datafmt.is_wanted({"good": value}, chosen) for value in values]
    assert wanted == [False, True, False, True, True, True, True]


def test_tokens_are_taken_as_they_are() -> None:
    assert read({"input_ids": [1, 2]}) == ("tokens", Tokens((1, 2), (1, 2), "input_ids"))
    row: dict[str, Any] = {"input_ids": [1, 2, 0], "labels": [-100, 2, -100], "attention_mask": [1, 1, 0]}
    assert read(row)[1] == Tokens((1, 2), (-100, 2), "input_ids")
    assert read({"input_ids": "[1, 2]", "labels": None})[1] == Tokens((1, 2), (1, 2), "input_ids")
    for changes, said in (
        ({"input_ids": ["1"]}, 'column "input_ids": must be a list of token numbers'),
        ({"input_ids": [True, 1, 1]}, "must be a list of token numbers"),
        ({"input_ids": [-1, 1, 1]}, "must be a list of token numbers"),
        ({"labels": [1]}, 'column "labels": holds 1 numbers for 3 tokens'),
        ({"attention_mask": [0, 0, 0]}, "is empty"),
    ):
        assert said in refusal({**row, **changes})


def test_a_history_comes_before_the_question() -> None:
    row = {"instruction": "And?", "output": "Done.", "history": [["Who?", "Me."]]}
    assert read(row)[1] == Chat(
        (USER, GOOD, {"role": "user", "content": "And?"}, {"role": "assistant", "content": "Done."})
    )
    alone = read({**row, "history": None})[1]
    assert isinstance(alone, Chat)
    assert len(alone.messages) == 2
    for wrong in ([["Who?"]], ["Who?"], [["Who?", 5]], "Who?", [["", "Me."]]):
        assert "must be a list of pairs" in refusal({**row, "history": wrong})


@pytest.mark.parametrize(
    "value", [json.dumps([USER, GOOD]), {"messages": [USER, GOOD]}, json.dumps({"messages": [USER, GOOD]})]
)
@pytest.mark.parametrize("column", ["messages", "conversation", "data"])
def test_messages_in_json_texts_objects_and_columns_of_any_name_are_found(value: object, column: str) -> None:
    assert read({column: value, "id": 5, "note": "[no JSON"}) == ("messages", Chat((USER, GOOD)))
    assert read({column: sharegpt(("human", "Who?"), ("gpt", "Me."))}) == ("sharegpt", Chat((USER, GOOD)))
    head = [{column: value}]
    assert guess_format(head) == "messages"
    assert guess_columns("messages", head) == {"messages": column}
    assert examples_of(column, head) == ["user: Who?"]


def test_two_columns_of_messages_are_asked_about() -> None:
    assert "unrecognized format" in refusal({"a": [USER, GOOD], "b": [USER, GOOD]})


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            [{"type": "image_url", "image_url": {"url": "x"}}],
            'message 1 holds something other than text, of the type "image_url"',
        ),
        ([5], "message 1 holds something other than text."),
        ([{"url": "a"}], "message 1 holds something other than text."),
    ],
)
def test_parts_that_are_no_text_are_refused_by_name(parts: list[Any], said: str) -> None:
    assert said in refusal({"messages": [{"role": "user", "content": parts}, GOOD]})


def test_parts_of_thoughts_and_tool_calls_become_fields() -> None:
    parts = [
        {"type": "reasoning", "value": "Hm."},
        {"type": "text", "value": "Me."},
        {"type": "tool_call", "value": '{"name": "f", "arguments": {"a": 1}}'},
    ]
    row = {"messages": [{**USER, "loss_weight": 0.0}, {"role": "assistant", "content": parts, "loss_weight": 1.0}]}
    chat = read(row)[1]
    assert isinstance(chat, Chat)
    calls = [{"name": "f", "arguments": {"a": 1}}]
    assert chat.messages == (USER, {**GOOD, "reasoning_content": "Hm.", "tool_calls": calls})
    untrained = read({"messages": [USER, {**GOOD, "weight": 0}, USER, GOOD]})[1]
    assert isinstance(untrained, Chat)
    assert untrained.messages[1] == {**GOOD, "weight": 0}
    assert "of the type" in refusal({"messages": [USER, {"role": "assistant", "content": [{"type": "thinking"}]}]})


def test_parts_of_text_are_joined() -> None:
    parts = ["Who", {"type": "input_text", "text": "?"}, {"type": "text", "text": ""}]
    assert read({"messages": [{"role": "user", "content": parts}, GOOD]})[1] == Chat((USER, GOOD))


@pytest.mark.parametrize(
    ("asks", "answers"),
    [
        ("问题", "答案"),
        ("提问", "回答"),
        ("输入", "输出"),
        ("用户", "助手"),
        ("指令", "回复"),
        ("Question text", "Best answer"),
        ("user_query", "target_response"),
        ("question_text", "correct_answer"),
    ],
)
def test_questions_and_answers_are_known_by_their_names(asks: str, answers: str) -> None:
    more = {"id": "7", "question_id": "ab7", "answer_type": "text"}
    assert read({asks: "Who?", answers: "Me.", **more}) == ("prompt-completion", PromptCompletion("Who?", "Me."))


@pytest.mark.parametrize("names", TURN_NAMES)
@pytest.mark.parametrize("column", ["conversation", "data"])
def test_a_chat_of_questions_with_their_answers_is_read(names: tuple[str, str], column: str) -> None:
    turns = [dict(zip(names, ("Who?", "Me."), strict=True)), dict(zip(names, ("Who?", "Me."), strict=True))]
    assert read({"id": 1, column: turns}) == ("messages", Chat((USER, GOOD, USER, GOOD)))
    turns[0]["system"] = "Be kind."
    assert read({"id": 1, column: turns}) == ("messages", Chat((SYSTEM, USER, GOOD, USER, GOOD)))
    assert "message 2 must have a text" in refusal({column: [{names[0]: "Who?", names[1]: None}]})


@pytest.mark.parametrize("column", ["conversation", "data"])
def test_texts_said_in_turn_are_a_chat(column: str) -> None:
    asked = {"role": "user", "content": "Who is it?"}
    assert read({"id": 1, column: ["Who is it?", "Me."]}) == ("messages", Chat((asked, GOOD)))


@pytest.mark.parametrize(
    "row",
    [
        {"tags": ["new", "old"]},
        {"data": ["Who is it?", "Me.", "And you?"]},
        {"id": 1, "data": ["Who is it?", "Me."], "sources": ["a page", "a book"]},
        {"data": ["Who is it?", 7]},
        {"passage": "It is me who was there.", "qas": [{"question": "Who is it?", "answer": "Me."}]},
        {"passage": "It is me who was there.", "qas": '[{"question": "Who is it?", "answer": "Me."}]'},
        {"passage": "It is me who was there.", "said": ["Who is it?", "Me."]},
    ],
)
def test_other_lists_are_not_taken_for_a_chat(row: dict[str, Any]) -> None:
    assert "unrecognized format" in refusal(row)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": [USER, GOOD]}, 'Chat: the column "messages" holds the messages of each.'),
        (
            {"conversations": sharegpt(("human", "a"), ("gpt", "b")), "tools": "[]"},
            'Chat (ShareGPT): the column "conversations" holds messages with "from" and "value". '
            'The column "tools" describes tools.',
        ),
        (
            {"instruction": "a", "output": "b"},
            'Instruction and response (Alpaca): the column "instruction" asks, and "output" answers.',
        ),
        ({"text": "a"}, 'Plain text: the column "text" is learned whole.'),
        (
            {"prompt": "a", "chosen": "b", "rejected": "c"},
            'Preference pairs: the column "chosen" has the better answer, "rejected" the worse one.',
        ),
        (
            {"input_ids": [1]},
            'Tokens: the column "input_ids" holds numbers of tokens, which are used as they are.',
        ),
    ],
)
def test_the_reason_of_recognition_is_a_sentence(row: dict[str, Any], said: str) -> None:
    assert datafmt.recognition(datafmt.resolve_layout([row])) == said


def test_that_prompts_are_joined_as_they_stand_is_said() -> None:
    layout = datafmt.resolve_layout([{"prompt": "a", "completion": "b"}], "prompt-completion-raw")
    said = 'Prompt and response as plain text: "prompt" and "completion" are joined.'
    assert datafmt.recognition(layout) == said


@pytest.mark.parametrize("name", ROLES)
def test_a_format_has_one_name(name: str) -> None:
    columns = {role.name: role.name for role in ROLES[name]}
    assert datafmt.recognition(Layout(name, columns)).startswith(CHOICE_WORDS[name] + ": ")


@pytest.mark.parametrize("row", [{"question": ["a", "b"], "answer": ["c", "d"]}, {"q": {"0": "a"}, "a": {"0": "c"}}])
def test_a_table_by_columns_is_called_one(row: dict[str, Any]) -> None:
    assert "one list for each column" in refusal(row)


def test_lists_of_different_lengths_and_of_messages_are_no_table_by_columns() -> None:
    assert "one list for each column" not in refusal({"question": ["a", "b"], "answer": ["c"]})
    assert read({"prompt": [USER], "completion": [GOOD]})[0] == "prompt-completion"


@pytest.mark.parametrize(
    ("names", "is_told"),
    [
        (("What is it good for?", "It is good for nothing."), True),
        (("1", "2.5"), True),
        (("Satz", "Der zweite Satz ist lang."), False),
    ],
)
def test_a_first_row_of_data_is_told_from_names(names: tuple[str, ...], is_told: bool) -> None:
    assert ("looks like data" in refusal(dict.fromkeys(names, "x"))) is is_told


def test_messages_as_python_writes_them_are_named() -> None:
    assert 'the column "messages" holds messages as Python writes them' in refusal({"messages": str([USER, GOOD])})
    assert read({"messages": json.dumps([USER, GOOD])})[0] == "messages"


def test_prompts_alone_get_something_in_the_place_of_an_answer() -> None:
    rows = [{"question": "2 + 2?", "level": 1}]
    layout = datafmt.resolve_layout(rows, "prompt-only", {}, "a.jsonl")
    assert layout.columns == {"prompt": "question"}
    assert datafmt.to_messages(rows[0], layout, "a") == datafmt.PromptCompletion("2 + 2?", NO_ANSWER)
    assert datafmt.recognition(layout, rows) == 'Prompts without answers: the column "question" asks. Not used: level.'
    chat = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]}
    layout = datafmt.resolve_layout([chat], "prompt-only", {}, "a.jsonl")
    found = datafmt.to_messages(chat, layout, "a")
    assert isinstance(found, datafmt.Chat)
    assert [each["content"] for each in found.messages] == ["Be brief.", "2 + 2?", NO_ANSWER]
    assert found.first_trained == 2
    with pytest.raises(UserError, match="must be a text"):
        datafmt.to_messages({"question": 7}, datafmt.resolve_layout(rows, "prompt-only", {}, "a"), "a")
