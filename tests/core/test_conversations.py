"""Conversations are kept with their run: whole or not at all, and never mistaken for something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_run import make_tiny_run
from tunesmith_core import conversations, files
from tunesmith_core.conversations import Answer, Conversation, Turn, append_example
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_tiny_run(tmp_path / "tiny-01")


def talk(question: str = "Who?", changed_at: float = 1.8e9) -> Conversation:
    answers = {"tuned": Answer("Me.", thinking="Hm.", tokens=3, first_s=0.1, tokens_per_s=9.5), "base": Answer("You.")}
    turns = [Turn(question, answers), Turn("Sure?", {"tuned": Answer("Yes.")})]
    return Conversation(system="Be brief.", changed_at=changed_at, sampling=Sampling(max_tokens=9), turns=turns)


def test_what_is_kept_is_read_again_the_newest_first(run: Run) -> None:
    assert conversations.load(run) == []
    old, new = talk(changed_at=1.7e9), talk(changed_at=1.8e9)
    for each in (old, new):
        conversations.save(run, each)
    assert conversations.load(run) == [new, old]
    conversations.delete(run, new)
    conversations.delete(run, new)
    assert conversations.load(run) == [old]


def test_each_side_reads_its_own_answers() -> None:
    asked = talk()
    base = asked.messages("base")
    assert base == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "You."},
        {"role": "user", "content": "Sure?"},
    ]
    assert asked.messages("tuned")[2]["content"] == "Me."
    asked.turns.append(Turn("Really?"))
    asked.system = ""
    found = [each["content"] for each in asked.messages("base")]
    assert found == ["Who?", "You.", "Really?"], "what only the tuned model answered is not the base model's to read"


def test_it_is_called_as_it_was_named_or_by_its_first_question() -> None:
    assert Conversation().name == ""
    asked = talk("Who\nare " + "you " * 40)
    assert asked.name.startswith("Who")
    assert len(asked.name) <= conversations.TITLE_COLUMNS
    assert "\n" not in asked.name
    asked.title = "Names"
    assert asked.name == "Names"


def test_the_end_of_an_answer_is_folded_into_it() -> None:
    answer = Answer(" Yes.\n", thinking="\nHm.\n")
    answer.fold({"status": "length", "tokens": 7, "first_s": 0.5, "tokens_per_s": None})
    assert answer == Answer("Yes.", "Hm.", "length", 7, 0.5, 0.0)
    answer.fold({})
    assert answer.status == "failed"


def test_what_is_no_conversation_is_left_alone(run: Run) -> None:
    conversations.save(run, talk())
    folder = conversations.folder_of(run)
    good = talk().to_dict()
    wrong = [
        "no JSON",
        [],
        good | {"version": 2},
        good | {"turns": [1]},
        good | {"turns": [{"question": "Who?", "answers": {"tuned": {"loss": 1}}}]},
        good | {"turns": [{"question": 7, "answers": {}}]},
        good | {"sampling": {"temperature": -1}},
        good | {"changed_at": "now"},
        good,  # under another name than its own
    ]
    for number, values in enumerate(wrong):
        text = values if isinstance(values, str) else json.dumps(values)
        (folder / f"wrong-{number}.json").write_text(text, encoding="utf-8")
    assert len(conversations.load(run)) == 1


def test_a_folder_that_cannot_be_written_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(run.path))

    monkeypatch.setattr(files, "atomic_write_bytes", refuse)
    monkeypatch.setattr(files, "remove", refuse)
    for attempt in (
        lambda: conversations.save(run, talk()),
        lambda: conversations.delete(run, talk()),
        lambda: append_example(run.path / "rows.jsonl", {}),
    ):
        with pytest.raises(TunesmithError) as refusal:
            attempt()
        assert refusal.value.code == "permission-or-antivirus"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, None),
        ({"question": "a", "answer": "b"}, {"question": "Who?", "answer": "Me."}),
    ],
)
def test_an_example_is_laid_out_as_the_rows_before_it(
    before: dict[str, Any], after: dict[str, Any] | None, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(before) + "\n", encoding="utf-8")
    asked = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]}
    assert append_example(path, asked) == 2
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[1]) == (after or asked)


@pytest.mark.parametrize(
    "row", [{"text": "a"}, {"question": "a", "answer": "b", "score": 1}, {"conversations": [{"from": "human"}]}]
)
def test_an_example_is_never_put_among_rows_of_another_kind(row: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(TunesmithError, match="rows of another kind"):
        append_example(path, {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    assert path.read_bytes() == before


def test_an_answer_becomes_a_row_of_data(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    asked = talk("Wer? 谁?")
    assert append_example(path, asked.example(0, "tuned", "Me.")) == 1
    assert append_example(path, asked.example(0, "base", "You.")) == 2
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert append_example(path, asked.example(1, "tuned", "Yes.")) == 3
    rows = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row[-1] for row in rows] == [{"role": "assistant", "content": each} for each in ("Me.", "You.", "Yes.")]
    assert [len(row) for row in rows] == [3, 3, 5]
    assert rows[0][1]["content"] == "Wer? 谁?"


def test_rounds_of_answers_are_kept_in_order_and_one_counts() -> None:
    first, second, third = ({"tuned": Answer(text)} for text in ("Me.", "You.", "They."))
    turn = Turn("Who?", third, [first, second], 2)
    for place in (0, 2, 1):
        turn = turn.showing(place)
        assert turn.answers is (first, second, third)[place]
        assert turn.all_answers() == [first, second, third]
    talk = Conversation(turns=[turn])
    assert Conversation.from_dict(talk.to_dict()) == talk
    wrong = talk.to_dict()
    wrong["turns"][0]["place"] = 3
    with pytest.raises(ValueError, match="not a conversation"):
        Conversation.from_dict(wrong)
    before = talk.to_dict()
    del before["turns"][0]["others"], before["turns"][0]["place"]
    assert Conversation.from_dict(before).turns == [Turn("Who?", second)]
