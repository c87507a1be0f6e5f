"""Row shapes: recognised by their columns, mapped by hand, turned into conversations, refused by name."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from tunesmith_core.datafmt import (
    Chat,
    Conversation,
    Layout,
    PromptCompletion,
    Text,
    Unreadable,
    resolve_layout,
    to_messages,
)
from tunesmith_core.errors import UserError
from tunesmith_core.messages import said

PLACE = "data.jsonl, line 3"
USER, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
THOUGHT = {**ANSWER, "reasoning_content": "r"}
OPENAI_CALL = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CALLING = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
}
BARE_CALLING = {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {}}]}
SYSTEM = {"role": "system", "content": "s"}


def convert(row: dict[str, Any], format_name: str = "auto", columns: dict[str, str] | None = None) -> Conversation:
    return to_messages(row, resolve_layout([row], format_name, columns), PLACE)


@pytest.mark.parametrize(
    ("row", "conversation"),
    [
        ({"messages": [USER, ANSWER]}, Chat((USER, ANSWER))),
        ({"conversations": [USER, ANSWER]}, Chat((USER, ANSWER))),
        ({"messages": [USER, ANSWER], "system": "s"}, Chat((SYSTEM, USER, ANSWER))),
        ({"messages": [SYSTEM, USER, ANSWER], "system": "x"}, Chat((SYSTEM, USER, ANSWER))),
        ({"messages": [USER, ANSWER], "system": None}, Chat((USER, ANSWER))),
        (
            {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
            Chat((USER, ANSWER)),
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, ANSWER]},
            Chat((USER, ANSWER)),
        ),
        ({"instruction": "q", "output": "a"}, Chat((USER, ANSWER))),
        ({"instruction": "q", "input": "", "output": "a", "text": "t"}, Chat((USER, ANSWER))),
        ({"Instruction": "q", "Input": "i", "Output": "a"}, Chat(({"role": "user", "content": "q\n\ni"}, ANSWER))),
        ({"instruction": "q", "output": "a", "system": "s"}, Chat((SYSTEM, USER, ANSWER))),
        ({"prompt": "q", "completion": "a"}, PromptCompletion("q", "a")),
        ({"prompt": None, "completion": "a"}, PromptCompletion("", "a")),
        ({"question": "q", "answer": "a", "id": 7}, PromptCompletion("q", "a")),
        ({"query": "q", "response": "a"}, PromptCompletion("q", "a")),
        ({"prompt": [USER], "completion": [ANSWER]}, Chat((USER, ANSWER), first_trained=1)),
        ({"prompt": [SYSTEM, USER], "completion": "a"}, Chat((SYSTEM, USER, ANSWER), first_trained=2)),
        ({"prompt": "q", "completion": [ANSWER]}, Chat((USER, ANSWER), first_trained=1)),
        ({"messages": [USER, {**ANSWER, "reasoning_content": "r", "name": None}]}, Chat((USER, THOUGHT))),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [OPENAI_CALL]}]}, Chat((USER, CALLING))),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [{"name": "f"}]}]}, Chat((USER, BARE_CALLING))),
        ({"messages": [USER, ANSWER], "tools": '[{"name": "f"}]'}, Chat((USER, ANSWER), tools=({"name": "f"},))),
        ({"messages": [USER, ANSWER], "tools": None}, Chat((USER, ANSWER))),
        ({"text": "t"}, Text("t")),
        ({"content": "t"}, Text("t")),
    ],
)
def test_known_shapes_become_conversations(row: dict[str, Any], conversation: Conversation) -> None:
    assert convert(row) == conversation


def test_plain_text_of_a_prompt_and_its_completion_is_chosen_and_never_guessed() -> None:
    row = {"prompt": "q", "completion": "a"}
    assert convert(row, "prompt-completion-raw") == PromptCompletion("q", "a", as_chat=False)
    assert resolve_layout([row]).format == "prompt-completion"
    assert resolve_layout([row], columns={"completion": "completion"}).format == "prompt-completion"


def test_columns_can_be_mapped() -> None:
    assert convert({"Frage": "q", "Antwort": "a"}, columns={"instruction": "Frage", "output": "Antwort"}) == Chat(
        (USER, ANSWER)
    )
    assert convert({"a": "q", "text": "t"}, columns={"text": "a"}) == Text("q")
    assert convert({"body": "t"}, "text", {"text": "body"}) == Text("t")


def test_an_optional_column_may_be_missing_in_a_row() -> None:
    layout = resolve_layout([{"instruction": "q", "input": "i", "output": "a"}])
    assert to_messages({"instruction": "q", "output": "a"}, layout, PLACE) == Chat((USER, ANSWER))


@pytest.mark.parametrize(
    ("row", "format_name", "columns", "said"),
    [
        ({"text": "t"}, "text", {"text": "body"}, 'no column "body" (text). Its columns are: text'),
        ({"text": "t"}, "auto", {"text": "body"}, 'no column "body" (text)'),
        ({"x": "t"}, "alpaca", {}, 'no column "instruction". Its'),
        ({}, "text", {}, "Its columns are: none"),
        ({"x": 1}, "auto", {}, "unrecognized format. The columns are x"),
        ({"messages": "hello"}, "auto", {}, "unrecognized format. The columns are messages"),
    ],
)
def test_a_missing_column_is_named(row: dict[str, Any], format_name: str, columns: dict[str, str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        convert(row, format_name, columns)
    assert caught.value.code == "dataset-column-missing"
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("columns", "format_name", "said", "guess"),
    [
        (
            {"prompt": "frage ", "completion": "Antwort"},
            "auto",
            'a.csv: there is no column "frage " (prompt). Its columns are: Frage, Antwort, Wahl. Did you mean "Frage"?',
            {"prompt": "Frage", "completion": "Antwort"},
        ),
        ({"question": "Fragen", "answer": "Antworten"}, "multiple-choice", 'Did you mean "Frage", "Antwort"?', None),
        ({"prompt": "Frag", "completion": "zzz"}, "auto", '"Frag" (prompt), "zzz" (completion). Its columns', {}),
        ({"question": "Frage", "answer": "Antwort", "choices": "xyz"}, "auto", 'no column "xyz" (choices).', {}),
        ({"prompt": "xyz", "completion": "Antwort"}, "auto", "Its columns are: Frage, Antwort, Wahl.", {}),
    ],
)
def test_a_column_that_was_named_and_is_nowhere_is_refused_with_the_nearest(
    columns: dict[str, str], format_name: str, said: str, guess: dict[str, str] | None
) -> None:
    rows = [{"Frage": "q", "Antwort": "a", "Wahl": "A"}] * 3
    with pytest.raises(UserError) as caught:
        resolve_layout(rows, format_name, columns, "a.csv")
    assert caught.value.code == "dataset-column-missing"
    assert said in caught.value.message
    if guess is not None:
        assert json.loads(caught.value.message.values.get("guess", "{}")) == guess


def test_columns_that_some_rows_may_leave_out_are_not_asked_of_the_first() -> None:
    rows = [{"Frage": "q", "Antwort": "a"}]
    named = {"instruction": "Frage", "output": "Antwort", "system": "System", "input": "Text"}
    assert resolve_layout(rows, "auto", named).columns == named
    # If other rows have the column, a row without it is a bad row.
    named = {"prompt": "Frage", "completion": "B"}
    assert resolve_layout([*rows, {"Frage": "q", "B": "a"}], "auto", named).columns == named


@pytest.mark.parametrize("columns", [{"nonsense": "x"}, {"prompt": "a", "text": "b"}])
def test_roles_that_do_not_exist_or_go_together_are_refused(columns: dict[str, str]) -> None:
    with pytest.raises(UserError) as caught:
        convert({"a": "1", "b": "2"}, "auto" if "nonsense" in columns else "text", columns)
    assert caught.value.code == "spec-invalid"


def test_a_named_column_says_which_format_is_meant() -> None:
    with pytest.raises(UserError, match='has no column "completion"'):
        convert({"a": "1", "b": "2"}, columns={"prompt": "a"})


def test_roles_of_different_formats_fit_none() -> None:
    with pytest.raises(UserError, match="unrecognized format"):
        convert({"a": "1", "b": "2"}, columns={"prompt": "a", "text": "b"})


@pytest.mark.parametrize(
    ("row", "format_name", "said"),
    [
        ({"text": 7}, "text", "must be a text, not a number"),
        ({"text": True}, "text", "must be a text, not true or false"),
        ({"text": [1]}, "text", "must be a text, not a list"),
        ({"text": b"x"}, "text", "must be a text, not binary data"),
        ({"text": datetime.date(2024, 5, 1)}, "text", "must be a text, not a date or time"),
        ({"text": Unreadable("text that is not UTF-8")}, "text", 'column "text": holds text that is not UTF-8'),
        ({"messages": Unreadable("x")}, "auto", 'column "messages": holds x'),
        ({"messages": [USER, ANSWER], "tools": "[" * 500}, "messages", "must be a list of objects"),
        ({"text": "  "}, "text", 'column "text": is empty'),
        ({"instruction": "q", "output": ""}, "auto", 'column "output": is empty'),
        ({"prompt": "q", "completion": None}, "auto", 'column "completion": is empty'),
        ({"prompt": [USER], "completion": [USER]}, "auto", "has no assistant answer"),
        ({"messages": "hello"}, "messages", "must be a list of messages, not a text"),
        ({"messages": {"a": 1}}, "messages", "must be a list of messages, not an object"),
        ({"messages": []}, "messages", "contains no messages"),
        ({"messages": [USER]}, "messages", "has no assistant answer"),
        ({"messages": [USER, 7]}, "messages", "message 2 must be an object, not a number"),
        ({"messages": [{"content": "q"}]}, "messages", "message 1 has no role"),
        ({"messages": [{"role": "narrator", "content": "q"}]}, "messages", "the unknown role 'narrator'"),
        ({"messages": [{"role": 5, "content": "q"}]}, "messages", "the unknown role 5"),
        ({"messages": [{"role": "user"}]}, "messages", "message 1 must have a text as its content, not nothing"),
        ({"messages": [USER, {"role": "assistant", "content": " "}]}, "messages", "message 2: the answer is empty"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [1]}]},
            "messages",
            "the tool calls must be a list of objects",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages", "a tool call has no function name"),
        ({"messages": [USER, ANSWER], "tools": "{"}, "messages", "must be a list of objects, each describing a tool"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
            "message 1 holds something other than text",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(row: dict[str, Any], format_name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        convert(row, format_name)
    assert caught.value.code == "dataset-parse-error"
    assert caught.value.message.startswith(PLACE)
    assert said in caught.value.message


def test_the_layout_is_found_although_the_first_row_is_odd() -> None:
    rows = [{"messages": None}, {"messages": [USER, ANSWER]}]
    assert resolve_layout(rows) == Layout("messages", {"messages": "messages"})


def test_what_is_wrong_with_a_row_is_said_in_chinese() -> None:
    layout = resolve_layout([{"text": 1}], "text", {}, "a.jsonl")
    with pytest.raises(UserError) as caught:
        to_messages({"text": 1}, layout, "a.jsonl")
    assert said(caught.value.message, "zh_CN").endswith("必须是文本，而不是数字。")


@pytest.mark.parametrize("message", [USER, {"from": "human", "value": "q"}])
def test_a_row_for_each_message_is_not_taken_for_plain_text(message: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r'single message.*: \{"messages": \[') as caught:
        resolve_layout([message, ANSWER])
    assert caught.value.code == "dataset-parse-error"
    assert resolve_layout([USER, ANSWER], "text", {"text": "content"}).columns == {"text": "content"}


@pytest.mark.parametrize(
    ("question", "answer"),
    [("Question text", "Best answer"), ("问题", "回答"), ("user_query", "model_reply"), ("FRAGE", "Antwort (kurz)")],
)
def test_columns_whose_names_leave_no_doubt_need_no_mapping(question: str, answer: str) -> None:
    rows = [{"id": "7", question: "Why?", answer: "So it is."}]
    assert resolve_layout(rows) == Layout("prompt-completion", {"prompt": question, "completion": answer})


def test_answers_may_be_numbers() -> None:
    rows = [{"Nr": "1", "Question text": "What is 1 + 1?", "best_answer": "2", "response_time": "230"}]
    assert resolve_layout(rows).columns == {"prompt": "Question text", "completion": "best_answer"}


@pytest.mark.parametrize(
    "row",
    [
        {"Question text": "Why?", "Best answer": "So.", "Worst answer": "Never."},
        {"user_id": "17", "response_time": "230"},
        {"Question text": "Why?", "notes": "So."},
        {"prompt answer": "Why?", "best reply": "So."},
        {"Question text": "Why?", "response_time": "230"},
    ],
)
def test_columns_in_doubt_are_asked_for(row: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="unrecognized format"):
        resolve_layout([row])


def test_many_columns_are_named_in_part() -> None:
    with pytest.raises(UserError) as caught:
        resolve_layout([{f"column-{number}": 1 for number in range(100_000)}])
    assert "column-49..." in caught.value.message
    assert len(caught.value.message) < 1000
