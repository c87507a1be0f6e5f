"""Rows laid out as published data sets lay theirs out, each with what a person would make of them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tunesmith_core import datafmt
from tunesmith_core.datafmt.conversion import to_messages
from tunesmith_core.datafmt.formats import Chat, PromptCompletion
from tunesmith_core.datafmt.layouts import recognition
from tunesmith_core.datafmt.transcripts import turns
from tunesmith_core.errors import UserError

ASKED, SAID, OTHER = "Who keeps the light of Ostra?", "Marta keeps the light.", "Nobody keeps any light."
ABOUT = "Marta has kept the light of Ostra since her father left."
USER, BOT = {"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}
PAIR = [("user", ASKED), ("assistant", SAID)]
WITH_ABOUT = [("user", f"{ASKED}\n\n{ABOUT}"), ("assistant", SAID)]
WITH_SYSTEM = [("system", "Be brief."), *PAIR]
OPTIONS = "\nA. Nobody\nB. Marta"

PUBLISHED: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "a question about a passage": ({"question": ASKED, "context": ABOUT, "answer": SAID}, WITH_ABOUT),
    "an answer in SQuAD": (
        {"id": "1", "context": ABOUT, "question": ASKED, "answers": {"text": [SAID], "answer_start": [0]}},
        WITH_ABOUT,
    ),
    "an answer of BoolQ": (
        {"question": ASKED, "answer": True, "passage": ABOUT},
        [("user", f"{ASKED}\n\n{ABOUT}"), ("assistant", "true")],
    ),
    "answers of Natural Questions": ({"question": ASKED, "answer": [SAID, "She does."]}, PAIR),
    "an answer of TriviaQA": ({"question": ASKED, "answer": {"value": SAID, "aliases": ["x"]}}, PAIR),
    "a number": ({"question": ASKED, "answer": 42}, [("user", ASKED), ("assistant", "42")]),
    "a system prompt of OpenOrca": ({"system_prompt": "Be brief.", "question": ASKED, "response": SAID}, WITH_SYSTEM),
    "an article and its summary": (
        {"document": ABOUT, "summary": SAID, "id": "1"},
        [("user", ABOUT), ("assistant", SAID)],
    ),
    "an article and its highlights": ({"article": ABOUT, "highlights": SAID}, [("user", ABOUT), ("assistant", SAID)]),
    "a text and its code": ({"text": ASKED, "code": SAID, "task_id": 1}, PAIR),
    "inputs and targets": ({"inputs": ASKED, "targets": SAID, "language": "English"}, PAIR),
    "input and target": ({"kind": "x", "input": ASKED, "target": SAID}, PAIR),
    "problem and solution": ({"problem": ASKED, "solution": SAID}, PAIR),
    "user and bot": ({"user": ASKED, "bot": SAID}, PAIR),
    "Portuguese": ({"Pergunta": ASKED, "Resposta": SAID}, PAIR),
    "Russian": ({"Вопрос": ASKED, "Ответ": SAID}, PAIR),
    "a reading test": (
        {"article": ABOUT, "question": ASKED, "options": ["Nobody", "Marta"], "answer": "B"},
        [("user", f"{ABOUT}\n\n{ASKED}{OPTIONS}"), ("assistant", "B")],
    ),
    "a goal and two ways": (
        {"goal": ASKED, "sol1": "Nobody", "sol2": "Marta", "label": 1},
        [("user", f"{ASKED}{OPTIONS}"), ("assistant", "B")],
    ),
    "endings": (
        {"ctx": ASKED, "endings": ["Nobody", "Marta"], "label": "1"},
        [("user", f"{ASKED}{OPTIONS}"), ("assistant", "B")],
    ),
    "Gemini's contents": (
        {
            "systemInstruction": {"role": "system", "parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": ASKED}]},
                {"role": "model", "parts": [{"text": SAID}]},
            ],
        },
        WITH_SYSTEM,
    ),
    "Bedrock's messages": (
        {
            "system": [{"text": "Be brief."}],
            "messages": [
                {"role": "user", "content": [{"text": ASKED}]},
                {"role": "assistant", "content": [{"text": SAID}]},
            ],
        },
        WITH_SYSTEM,
    ),
    "Cohere's roles": (
        {"messages": [{"role": "User", "content": ASKED}, {"role": "Chatbot", "content": SAID}]},
        PAIR,
    ),
    "OpenAI's pairs": (
        {
            "input": {"messages": [USER], "tools": []},
            "preferred_output": [BOT],
            "non_preferred_output": [{"role": "assistant", "content": OTHER}],
        },
        PAIR,
    ),
    "pairs that are whole chats beside their prompt": (
        {"prompt": ASKED, "chosen": [USER, BOT], "rejected": [USER, {"role": "assistant", "content": OTHER}]},
        PAIR,
    ),
    "pairs with an input": ({"input": ASKED, "chosen": SAID, "rejected": OTHER}, PAIR),
    "Guanaco": ({"text": f"### Human: {ASKED}### Assistant: {SAID}"}, PAIR),
    "ChatML": (
        {"text": f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{ASKED}<|im_end|>\n"
         f"<|im_start|>assistant\n{SAID}<|im_end|>\n"},
        WITH_SYSTEM,
    ),
    "Llama 3": (
        {"text": f"<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{ASKED}<|eot_id|>"
         f"<|start_header_id|>assistant<|end_header_id|>\n\n{SAID}<|eot_id|>"},
        PAIR,
    ),
    "Gemma": (
        {"text": f"<bos><start_of_turn>user\n{ASKED}<end_of_turn>\n<start_of_turn>model\n{SAID}<end_of_turn>\n"},
        PAIR,
    ),
    "Zephyr": ({"text": f"<|system|>\nBe brief.</s>\n<|user|>\n{ASKED}</s>\n<|assistant|>\n{SAID}</s>"}, WITH_SYSTEM),
    "Llama 2": ({"text": f"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n{ASKED} [/INST] {SAID} </s>"}, WITH_SYSTEM),
    "Mistral, two questions": (
        {"text": f"<s>[INST] {ASKED} [/INST] {SAID}</s>[INST] And then? [/INST] Nobody.</s>"},
        [*PAIR, ("user", "And then?"), ("assistant", "Nobody.")],
    ),
    "Alpaca's form": (
        {"text": f"Below is an order.\n\n### Instruction:\n{ASKED}\n\n### Input:\n{ABOUT}\n\n### Response:\n{SAID}"},
        [("system", "Below is an order."), *WITH_ABOUT],
    ),
    "Glaive": ({"system": "Be brief.", "chat": f"USER: {ASKED}\n\n\nASSISTANT: {SAID} <|endoftext|>"}, WITH_SYSTEM),
    "Baize": ({"input": f"[|Human|] {ASKED} [|AI|] {SAID}"}, PAIR),
}  # fmt: skip


def read(rows: list[dict[str, Any]]) -> tuple[datafmt.Layout, list[tuple[str, str]]]:
    layout = datafmt.resolve_layout(rows)
    made = to_messages(rows[0], layout, "a.jsonl, line 1")
    if isinstance(made, PromptCompletion):
        return layout, [("user", made.prompt), ("assistant", made.completion)]
    assert isinstance(made, Chat)
    return layout, [(message["role"], message["content"]) for message in made.messages]


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_as_they_are_published_are_read_as_they_are_meant(name: str) -> None:
    row, turns = PUBLISHED[name]
    # Options that are numbered tell from where only by a row with the first.
    rows = [row, {**row, "label": type(row["label"])(0)}] if "label" in row else [row] * 3
    assert read(rows)[1] == turns


def test_the_answer_alone_is_trained_in_a_pair_of_whole_chats() -> None:
    row, _ = PUBLISHED["pairs that are whole chats beside their prompt"]
    made = to_messages(row, datafmt.resolve_layout([row]), "")
    assert isinstance(made, Chat)
    assert made.first_trained == 1


def test_all_that_differs_is_trained_in_a_pair_of_whole_chats() -> None:
    more = [{"role": "user", "content": "And then?"}, {"role": "assistant", "content": "Nobody."}]
    other = {"role": "assistant", "content": OTHER}
    row = {"prompt": ASKED, "chosen": [USER, BOT, *more], "rejected": [USER, other, *more]}
    made = to_messages(row, datafmt.resolve_layout([row]), "")
    assert isinstance(made, Chat)
    assert (len(made.messages), made.first_trained) == (4, 1)
    row = {"prompt": ASKED, "chosen": [USER, BOT], "rejected": OTHER}
    made = to_messages(row, datafmt.resolve_layout([row]), "")
    assert isinstance(made, Chat)
    assert (len(made.messages), made.first_trained) == (2, 1)


def test_tools_of_another_kind_are_left_out_and_said() -> None:
    rows = [{"question": ASKED, "answer": SAID, "tools": "hammer, saw"}]
    layout, turns = read(rows)
    assert turns == PAIR
    assert "Not used: tools." in str(recognition(layout, rows))
    assert "tools" in datafmt.resolve_layout([{"question": ASKED, "answer": SAID, "tools": None}]).columns


def test_what_stands_beside_a_question_is_said() -> None:
    rows = [{"question": ASKED, "context": ABOUT, "answer": SAID, "system": "Be brief."}]
    said = str(recognition(datafmt.resolve_layout(rows), rows))
    assert 'The column "context" stands beside the question.' in said
    assert 'The column "system" holds the system prompt.' in said
    assert "Not used" not in said


@pytest.mark.parametrize(
    "row",
    [
        {"inputs": [1, 2], "targets": [3], "note": ASKED},
        {"question": ASKED, "answers": [{"answer_id": 1, "pm_score": 3}], "note": SAID},
        {"question": ASKED, "generated_solution": SAID, "expected_answer": "42"},
        {"premise": ABOUT, "hypothesis": SAID, "label": 1},
    ],
)
def test_what_is_not_certain_is_asked(row: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        datafmt.resolve_layout([row] * 3)
    assert caught.value.code == "dataset-column-missing"


def test_a_tree_of_messages_is_no_text() -> None:
    rows = [{"message_id": "2", "parent_id": "1", "role": "assistant", "text": SAID}]
    with pytest.raises(UserError, match="each row is a single message"):
        datafmt.resolve_layout(rows)


@pytest.mark.parametrize(
    "text",
    [
        ABOUT,
        f"Dear Human: {ABOUT}\nAssistant: none",
        f"Assistant: {SAID}",
        f"User: {ASKED}",
        "### Instruction:\nDo it.",
        "<|im_start|>user\nOnly a question<|im_end|>",
        "[INST] a [/INST]",
    ],
)
def test_a_text_that_is_no_chat_stays_one(text: str) -> None:
    assert datafmt.resolve_layout([{"text": text}] * 3).format == "text"


@pytest.mark.parametrize(
    "text",
    [
        "Human: " + "\n" * 200_000 + "x",
        "Human: " + "\n\n " * 70_000 + "x",
        "[INST] a [/INST] b" + "[INST]" * 50_000,
        "<|im_start|>user\n" * 20_000,
        "<|im_start|>" + "a" * 200_000,
        "### Instruction:\n" * 20_000 + "### Response:\n",
        "###" + " " * 200_000,
    ],
    ids=["lines", "gaps", "brackets", "marks", "a name", "forms", "spaces"],
)
def test_a_hostile_text_takes_no_long_look(text: str) -> None:
    start_s = time.process_time()
    turns(text)
    datafmt.resolve_layout([{"chosen": text, "rejected": text}])
    assert time.process_time() - start_s < 5


def test_a_chat_among_texts_stays_a_text_as_they_do() -> None:
    chat = f"### Human: {ASKED}### Assistant: {SAID}"
    assert datafmt.resolve_layout([{"text": chat}, {"text": ABOUT}]).format == "text"
    assert datafmt.resolve_layout([{"text": chat}], "text").format == "text"


def test_an_answer_of_another_kind_than_the_others_is_refused() -> None:
    rows: list[dict[str, Any]] = [{"question": ASKED, "answer": SAID}, {"question": ASKED, "answer": 42}]
    layout = datafmt.resolve_layout(rows)
    with pytest.raises(UserError, match="must be a text, not a number"):
        to_messages(rows[1], layout, "a.jsonl, line 2")


def test_answers_of_which_some_are_missing_are_held_all_the_same() -> None:
    answers = ({"text": [SAID]}, {"text": []})
    rows: list[dict[str, Any]] = [{"question": ASKED, "context": ABOUT, "answers": answer} for answer in answers]
    layout = datafmt.resolve_layout(rows)
    assert read(rows)[1] == WITH_ABOUT
    with pytest.raises(UserError, match="is empty"):
        to_messages(rows[1], layout, "a.jsonl, line 2")


def test_a_context_that_is_no_text_is_left_out_and_said() -> None:
    rows = [{"question": ASKED, "context": {"contexts": [ABOUT]}, "answer": SAID}]
    layout, turns = read(rows)
    assert turns == PAIR
    assert "Not used: context." in str(recognition(layout, rows))


def test_tools_of_a_question_reach_the_template() -> None:
    tools = [{"name": "light", "parameters": {}}]
    made = to_messages(
        row := {"query": ASKED, "answers": '[{"name": "light"}]', "tools": json.dumps(tools)},
        datafmt.resolve_layout([row]),
        "",
    )
    assert isinstance(made, Chat)
    assert list(made.tools) == tools
