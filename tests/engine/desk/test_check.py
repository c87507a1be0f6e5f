"""Each planted fault is found at its line and column, and sound data has none."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from rensa import RMinHash

from tests.engine.desk.checking import Row, as_line, chat, check, good, host_in, problems_of, spec_of, write_lines
from tests.workbooks import write_workbook
from tunesmith_core.datafmt import PromptCompletion, resolve_layout, to_messages
from tunesmith_core.errors import UserError
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.data import CheckDataSpec, ConvertDataSpec, MixDataSpec, SplitDataSpec
from tunesmith_core.protocol import read_journal
from tunesmith_engine.desk import check as check_module
from tunesmith_engine.desk.check import Check
from tunesmith_engine.desk.near import NearRows
from tunesmith_engine.desk.sieve import Sieve
from tunesmith_engine.desk.text_rules.personal import PERSONAL
from tunesmith_engine.desk.text_rules.secrets import SECRETS
from tunesmith_engine.operations import convert_data, mix_data, split_data

FAULTS: dict[str, tuple[Row | str | bytes, bytes]] = {
    "bad-json": ('{"messages": [{"role": "user" "content": "x"}]}', b'"content"'),
    "encoding": (b'{"messages": [{"role": "user", "content": "caf\xe9"}]}', b"\xe9"),
    "missing-column": ({"other": "x"}, b"{"),
    "mixed-schema": ({"messages": "just a text"}, b'"just'),
    "empty-answer": (chat("Why is that so?", " "), b'" "'),
    "unknown-role": ({"messages": [{"role": "robot", "content": "x"}]}, b'"robot"'),
    "role-order": (
        chat("Hi there", "Hello", {"role": "assistant", "content": "again"}),
        b'{"role": "assistant", "content": "again"',
    ),
    "secret": (chat("My key", 'it is \\"sk-abcdefGHIJ0123456789abcd'), b"sk-"),
    "personal-data": (chat("Who?", "Ask ann@mail.example.org about it"), b"ann@"),
    "mojibake": (chat("Où ça?", "Au café, not at the cafÃ© there"), "Ã©".encode()),
    "html": (chat("How?", "Press <b>start</b> now"), b"<b>"),
    "special-token-in-text": (chat("How so?", "Then write <|im_end|> there"), b"<|im_end|>"),
}


def column_of(line: bytes, part: bytes) -> int:
    return len(line[: line.index(part)].decode("utf-8", "surrogateescape")) + 1


@pytest.mark.parametrize("rule", FAULTS)
def test_a_planted_fault_is_found_at_its_line_and_column(tmp_path: Path, rule: str) -> None:
    fault, part = FAULTS[rule]
    line = fault if isinstance(fault, bytes) else fault.encode() if isinstance(fault, str) else as_line(fault)
    # One good line beyond ASCII tells that the file is UTF-8.
    rows = [*map(good, range(299)), chat("Où?", "Là")]
    path = write_lines(tmp_path / "rows.jsonl", [*rows[:277], line, *rows[277:]])
    answer = check(tmp_path, spec_of(path))
    assert problems_of(answer) == {rule: [(278, column_of(line, part))]}
    assert answer["num_rows"] == 301
    assert answer["formats"] == {str(path): "messages"}


def test_columns_are_counted_from_the_beginning_of_an_indented_line(tmp_path: Path) -> None:
    lines = ['  {"messages": ?}', b"\t  " + as_line(chat("Who?", "ann@mail.example.org"))]
    path = write_lines(tmp_path / "rows.jsonl", [good(1), *lines])
    column = column_of(as_line(chat("Who?", "ann@mail.example.org")), b"ann@")
    assert problems_of(check(tmp_path, spec_of(path))) == {"bad-json": [(2, 16)], "personal-data": [(3, column + 3)]}


def test_sound_rows_have_no_problem(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", map(good, range(1000)))
    answer = check(tmp_path, spec_of(path))
    assert (answer["problems"], answer["num_rows"], answer["num_good_rows"]) == ([], 1000, 1000)
    assert answer["num_problem_rows"] == 0
    assert answer["reasons"][str(path)] == 'Chat: the column "messages" holds the messages of each.'
    assert list(answer["languages"]) == ["en"]
    events = [event.data for event in read_journal(tmp_path / "operation" / "events.jsonl") if event.type == "progress"]
    assert events[-1]["done_bytes"] == events[-1]["total_bytes"] == path.stat().st_size
    assert (events[-1]["rows"], events[-1]["remaining_s"]) == (1000, 0)


def test_copies_are_found_within_and_between_files_and_the_evaluation_file_leaks(tmp_path: Path) -> None:
    first = write_lines(tmp_path / "a.jsonl", [*map(good, range(300)), good(7), good(7)])
    second = write_lines(tmp_path / "b.jsonl", [good(1000), good(8)])
    held_out = write_lines(tmp_path / "c.jsonl", [good(2000), good(9), good(2000)])
    answer = check(tmp_path, spec_of(first, second, evaluation=held_out))
    found = {each["rule"]: each for each in answer["problems"]}
    copies = [(Path(row["path"]).name, row["line"], row["message"]) for row in found["exact-duplicate"]["rows"]]
    assert copies == [
        ("a.jsonl", 301, "the same as a.jsonl, line 8."),
        ("a.jsonl", 302, "the same as a.jsonl, line 8."),
        ("b.jsonl", 2, "the same as a.jsonl, line 9."),
        ("c.jsonl", 3, "the same as c.jsonl, line 1."),
    ]
    assert [row["row"] for row in found["exact-duplicate"]["rows"]] == [good(7), good(7), good(8), good(2000)]
    assert [(row["line"], row["message"]) for row in found["leakage"]["rows"]] == [(10, "the same as c.jsonl, line 2.")]
    assert answer["num_problem_rows"] == 5


def test_what_is_not_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"train": [good(1), good(2)], "test": [good(3)]}))
    answer = check(tmp_path, spec_of(path))
    assert answer["notes"] == [f'{path} has lists of rows for evaluation, which are not read: "test".']
    assert answer["num_rows"] == 2


@pytest.mark.parametrize(
    "text",
    [
        "my card is 4111 1111-1111 1111 here",
        "call 212-555-0187 today",
        "call +1 (212) 555 0187",
        "id 078-05-1120",
        "pay to GB82 WEST 1234 5698 7654 32",
        'PassWord\u00a0 = "tr0ub4dor&3"',
        "SECRET-key: 'abcdefghij0123456789'",
        "auth token=abcdefghij0123456789",
        "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.x",
        "use AKIAABCDEFGHIJKLMNOP for it",
        "rk_live_abcdefghij0123456789",
    ],
)
def test_what_a_rule_finds_passes_the_sieve(text: str) -> None:
    for rule in (PERSONAL, SECRETS):
        if list(rule.find(text)):
            assert Sieve([b"none", text.encode(), b"none"]).rows_with(rule.marks, rule.groups) == [1]
            return
    pytest.fail("no rule finds anything")


def test_a_problem_behind_a_line_that_says_the_delimiter_has_its_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("sep=;\nquestion;answer\nWhy, so?;It is so.\nWhat else?;\n")
    assert problems_of(check(tmp_path, spec_of(path))) == {"empty-answer": [(4, 12)]}


def test_rows_behind_those_that_are_compared_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "MOST_ROWS", 300)
    german = chat("Wie geht es dir heute in dieser Stadt am Fluss?", "Mir geht es gut, und ich bleibe noch hier.")
    rows = [*map(good, range(1000)), good(5), *([german] * 300)]
    looked = Check(host_in(tmp_path / "o"), CheckDataSpec(spec_of(write_lines(tmp_path / "a.jsonl", rows))), None)
    looked.read(0, False)
    kept = [looked._hashes, looked._answers, looked._lines]
    assert [len(each) for each in kept] == [512] * 3  # whole batches
    looked.conclude()
    answer = looked.answer()
    assert answer["num_good_rows"] == len(rows)
    (note,) = [note for note in answer["notes"] if "duplicates" in note and "near" not in note]
    assert note == "Only the first 512 rows were searched for duplicates."
    (problem,) = [each for each in answer["problems"] if each["rule"] == "language-mix"]
    assert problem["rows"][0]["line"] > 1001


def test_near_copies_are_found(tmp_path: Path) -> None:
    words = "the quick brown fox jumps over a lazy dog while seven wizards mix quietly in this old blue house tonight"
    path = write_lines(
        tmp_path / "a.jsonl",
        [
            *map(good, range(30)),
            chat(words, "It is a pangram of many words."),
            chat(words.replace("seven", "eight"), "It is a pangram of many words."),
        ],
    )
    answer = check(tmp_path, spec_of(path))
    assert problems_of(answer).get("near-duplicate", [])[-1:] == [(32, 1)]


def test_a_row_is_compared_with_few_of_those_made_from_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    class Counting:
        def __init__(self, **options: int) -> None:
            self.minhash = RMinHash(**options)
            self.update, self.digest = self.minhash.update, self.minhash.digest

        def jaccard(self, other: Counting) -> float:
            nonlocal compared
            compared += 1
            return float(self.minhash.jaccard(other.minhash))

    monkeypatch.setattr("rensa.RMinHash", Counting)
    num_rows, near = 300, NearRows()

    def made(row: int) -> str:
        return (
            f"What comes after {row}, and why is that so among all whole numbers? After {row} comes {row + 1}, for "
            f"each one has one behind it that is {row * 7} larger by one than {row * 3}."
        )

    for row in range(num_rows):
        near.add(row, made(row))
    assert compared < num_rows * num_rows / 4
    near.add(num_rows, made(250) + " Yes.")
    assert (num_rows, 250) in near.pairs


@pytest.mark.parametrize("kind", ["table", "chats"])
def test_a_question_that_is_answered_differently_is_told(tmp_path: Path, kind: str) -> None:
    said = [("Who?", "Me."), ("Where?", "Here."), ("Who?", "You."), ("Who?", "Me."), ("Where?", "Here.")]
    rows = [chat(*pair) if kind == "chats" else {"question": pair[0], "answer": pair[1]} for pair in said]
    answer = check(tmp_path, spec_of(write_lines(tmp_path / "a.jsonl", rows)))
    problems = {each["rule"]: each for each in answer["problems"]}
    assert problems["other-answer"]["severity"] == "note"
    assert [row["line"] for row in problems["other-answer"]["rows"]] == [3]
    assert "line 1, with another answer" in problems["other-answer"]["rows"][0]["message"]


def test_chats_of_questions_with_answers_and_of_texts_in_turn_are_checked(tmp_path: Path) -> None:
    pairs = [{"conversation": [{"human": f"Who is {n}?", "assistant": f"It is {n}."}] * 2} for n in range(9)]
    texts = [{"id": n, "data": [f"Who is {n}?", "ask ann@mail.example.org"]} for n in range(9)]
    answer = check(tmp_path, spec_of(write_lines(tmp_path / "a.jsonl", pairs)))
    assert (answer["problems"], answer["num_good_rows"]) == ([], 9)
    answer = check(tmp_path, spec_of(write_lines(tmp_path / "b.jsonl", texts)))
    assert {each["rule"]: each["count"] for each in answer["problems"]} == {"personal-data": 9}
    assert answer["problems"][0]["rows"][0]["column"] == 38


@pytest.mark.parametrize(
    ("turns", "keys"),
    [
        ([{"human": "Who?", "assistant": "Me."}, {"human": "Why?", "assistant": " "}], b'" "'),
        ([{"human": None, "assistant": "Me."}], b"null"),
        ([{"human": "Why?", "assistant": " ", "system": "Be kind."}], b"[{"),
        ([{"human": "Who?", "assistant": "Me."}, {"human": "Why?"}], b"[{"),
        (["Who is it?", " "], b'" "'),
    ],
)
def test_a_fault_in_a_chat_of_turns_is_found_where_it_stands(tmp_path: Path, turns: list[Any], keys: bytes) -> None:
    sound = [{"conversation": [{"human": f"Who is {n}?", "assistant": f"It is {n}."}]} for n in range(9)]
    path = write_lines(tmp_path / "a.jsonl", [*sound, {"conversation": turns}])
    (places,) = problems_of(check(tmp_path, spec_of(path))).values()
    assert places == [(10, column_of(as_line({"conversation": turns}), keys))]


def test_instructions_with_other_inputs_are_other_questions(tmp_path: Path) -> None:
    inputs = ("1 1", "2 2", "", "3 3", "")
    rows = [{"instruction": "Add.", "input": text, "output": f"It is {text}."} for text in inputs]
    problems = {each["rule"] for each in check(tmp_path, spec_of(write_lines(tmp_path / "a.jsonl", rows)))["problems"]}
    assert "other-answer" not in problems


def test_answers_that_are_alike_and_rare_labels(tmp_path: Path) -> None:
    same = write_lines(
        tmp_path / "a.jsonl", [chat(f"Question {number} of many?", "I don't know.") for number in range(40)]
    )
    assert problems_of(check(tmp_path, spec_of(same)))["same-answers"][:2] == [(1, 1), (2, 1)]
    labels = ["yes"] * 90 + ["no"] * 5
    rare = write_lines(
        tmp_path / "b.jsonl", [{"question": f"Is it {n}?", "answer": label} for n, label in enumerate(labels)]
    )
    (problem,) = check(tmp_path, spec_of(rare))["problems"]
    assert (problem["rule"], problem["severity"], problem["count"]) == ("label-imbalance", "note", 5)
    assert problem["rows"][0]["line"] == 91


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Call +43 660 1234567 today", "a phone number"),
        ("Call +43/660/1234567 today", "a phone number"),
        ("Call 0043 660 1234567 today", "a phone number"),
        ("Write ann@mail.example.org or call +43 660 1234567", "an email address, a phone number"),
    ],
)
def test_every_kind_of_personal_data_is_told(tmp_path: Path, text: str, told: str) -> None:
    answer = check(tmp_path, spec_of(write_lines(tmp_path / "rows.jsonl", [chat("How do I reach Ann?", text)])))
    (problem,) = answer["problems"]
    assert problem["rows"][0]["message"] == f'column "messages": {told}.'


def test_a_second_language_is_noted(tmp_path: Path) -> None:
    german = [
        chat(
            f"Wie öffne ich die Datei {n} in diesem Programm?",
            f"Bitte wählen Sie Menüpunkt {n} und drücken Sie auf Öffnen.",
        )
        for n in range(20)
    ]
    path = write_lines(tmp_path / "a.jsonl", [*map(good, range(60)), *german])
    answer = check(tmp_path, spec_of(path))
    assert answer["languages"] == {"en": 60, "de": 20}
    assert len(problems_of(answer)["language-mix"]) == 20
    assert problems_of(answer)["language-mix"][0] == (61, 1)
    assert {row["message"] for each in answer["problems"] for row in each["rows"]} >= {"probably German."}


@pytest.mark.parametrize(
    ("row", "action"), [(chat("Tell me more", "word " * 100), "truncate"), ({"text": "word " * 100}, "split")]
)
def test_what_a_run_does_with_long_rows_is_told(
    tmp_path: Path, tiny_model: Path, row: dict[str, Any], action: str
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [row])
    run = spec_of(path, context_length=100)
    run.data.overlong = "split"
    (problem,) = check(tmp_path, run, str(tiny_model))["problems"]
    assert problem["action"] == action


def test_with_a_tokenizer_long_rows_are_found_and_lengths_told(tmp_path: Path, tiny_model: Path) -> None:
    rows = [*map(good, range(40)), chat("Tell me more", "word " * 100)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    answer = check(tmp_path, spec_of(path, context_length=300), str(tiny_model))
    assert problems_of(answer) == {"over-long": [(41, 1)]}
    (problem,) = answer["problems"]
    assert (problem["action"], problem["actions"]) == ("truncate", ["truncate", "split", "drop"])
    lengths = answer["lengths"]
    assert (sum(lengths["counts"]), lengths["context_length"]) == (41, 300)
    assert lengths["longest_tokens"] > 500


def test_more_rows_than_are_shown_are_counted(tmp_path: Path) -> None:
    rows = [chat(f"Where is {number}?", f"At <b>{number}</b> of the street") for number in range(250)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    (problem,) = [each for each in check(tmp_path, spec_of(path))["problems"] if each["rule"] == "html"]
    assert (problem["count"], len(problem["rows"])) == (250, 100)


def test_what_is_done_about_bad_rows_is_what_the_run_does(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [*map(good, range(3)), "{"])
    for skips, action in ((False, "stop"), (True, "skip")):
        (problem,) = check(tmp_path, spec_of(path, skip_bad_rows=skips))["problems"]
        assert (problem["rule"], problem["severity"], problem["action"]) == ("bad-json", "error", action)


def test_a_file_of_bad_rows_an_empty_one_and_a_missing_one_are_problems_not_failures(tmp_path: Path) -> None:
    bad = write_lines(tmp_path / "bad.jsonl", ["{", "[", "x{"])
    empty, missing = tmp_path / "empty.jsonl", tmp_path / "missing.jsonl"
    empty.write_bytes(b"")
    answer = check(tmp_path, spec_of(bad, empty, missing))
    told = {
        each["rule"]: [(Path(row["path"]).name, row["line"]) for row in each["rows"]] for each in answer["problems"]
    }
    assert told == {
        "bad-file": [("empty.jsonl", 0), ("missing.jsonl", 0)],
        "bad-json": [("bad.jsonl", 1), ("bad.jsonl", 2), ("bad.jsonl", 3)],
    }
    assert {each["action"] for each in answer["problems"]} == {"stop"}
    assert (answer["num_rows"], answer["num_good_rows"], answer["hash"]) == (3, 0, "")
    assert set(answer["reasons"]) == {str(bad), str(empty), str(missing)}


def test_a_format_that_is_not_recognized_is_said_once_and_its_texts_are_looked_at(tmp_path: Path) -> None:
    rows: list[Row] = [{"alpha": number, "beta": f"mail bob{number}@mail.example.org"} for number in range(5)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    answer = check(tmp_path, spec_of(path))
    found = problems_of(answer)
    assert found["missing-column"] == [(0, None)]
    # The sentence is said once, and all rows of the file are counted.
    assert next(each["count"] for each in answer["problems"] if each["rule"] == "missing-column") == 5
    assert len(found["personal-data"]) == 5
    assert "unrecognized format" in answer["reasons"][str(path)]


def test_rows_of_a_table_are_placed_in_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = [
        "question,answer",
        *(f"Is it {number}?,Yes it is {number}" for number in range(30)),
        '"Who, then?","Ask ann@mail.example.org"',
        "Why?,",
    ]
    path.write_text("\n".join(lines) + "\n")
    answer = check(tmp_path, spec_of(path))
    assert problems_of(answer) == {"empty-answer": [(33, 6)], "personal-data": [(32, 14)]}
    rows = {each["rule"]: each["rows"][0]["row"] for each in answer["problems"]}
    assert rows["personal-data"] == {"question": "Who, then?", "answer": "Ask ann@mail.example.org"}


@pytest.mark.parametrize("is_archive", [False, True])
def test_each_file_of_a_folder_or_an_archive_has_its_own_layout_and_lines(tmp_path: Path, is_archive: bool) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write_lines(folder / "a.jsonl", [*map(good, range(30)), "{", good(5)])
    pairs = [{"question": f"Is it {number}?", "answer": f"Yes, it is {number}"} for number in range(30)]
    write_lines(folder / "b.jsonl", [*pairs, {"question": "Who?", "answer": "ann@mail.example.org"}, pairs[3]])
    given = folder
    if is_archive:
        given = tmp_path / "set.zip"
        with zipfile.ZipFile(given, "w") as archive:
            for name in ("a.jsonl", "b.jsonl"):
                archive.write(folder / name, name)
    answer = check(tmp_path, spec_of(given))
    assert [(Path(path).name, name) for path, name in answer["formats"].items()] == [
        ("a.jsonl", "messages"),
        ("b.jsonl", "prompt-completion"),
    ]
    found = {
        each["rule"]: [(Path(row["path"]).name, row["line"]) for row in each["rows"]] for each in answer["problems"]
    }
    assert found == {
        "bad-json": [("a.jsonl", 31)],
        "personal-data": [("b.jsonl", 31)],
        "exact-duplicate": [("a.jsonl", 32), ("b.jsonl", 32)],
    }
    rows = {each["rule"]: [row["row"] for row in each["rows"]] for each in answer["problems"]}
    assert rows["exact-duplicate"] == [good(5), pairs[3]]
    told = [event.data for event in read_journal(tmp_path / "operation" / "events.jsonl") if event.type == "progress"]
    assert [each["rows"] for each in told] == [31, 63]
    assert all(each["done_bytes"] <= each["total_bytes"] for each in told)
    assert is_archive or told[-1]["remaining_s"] == 0
    assert answer["num_rows"] == 64


def test_rows_with_other_columns_than_most_are_noted(tmp_path: Path) -> None:
    pairs = [{"question": f"Is it {number}?", "answer": f"Yes, it is {number}", "id": number} for number in range(30)]
    odd = [{"question": "Who is it?", "answer": "It is me", "note": "x", "id": 1}, {"question": "Why?", "answer": "So"}]
    path = write_lines(tmp_path / "a.jsonl", [*pairs[:10], *odd, *pairs[10:], odd[1] | {"question": "How?"}])
    (problem,) = check(tmp_path, spec_of(path))["problems"]
    assert (problem["rule"], problem["severity"], problem["count"]) == ("mixed-schema", "note", 3)
    assert problem["action"] == "keep", "a run doesn't stop at a note"
    assert [(row["line"], row["column"], row["message"]) for row in problem["rows"]] == [
        (11, 1, "columns that other rows don't have: note."),
        (12, 1, "columns that other rows have are missing: id."),
        (33, 1, "columns that other rows have are missing: id."),
    ]
    assert [row["row"] for row in problem["rows"]][:2] == odd
    # A column that a format may leave out makes no difference.
    some = [{"system": "Be kind."} | good(number) if number % 3 else good(number) for number in range(30)]
    assert check(tmp_path, spec_of(write_lines(tmp_path / "b.jsonl", some)))["problems"] == []


def test_quick_and_close_looks_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = [json.loads(json.dumps(good(number))) for number in range(20)]
    rows += [chat("", "x"), chat("a b", "\u3000"), {"messages": []}, {"messages": [{"role": "user", "content": 1}]}]
    rows += [{"messages": [{"role": "user", "content": "a", "name": "b"}, {"role": "assistant", "content": "c"}]}]
    rows += [{"messages": [{"role": "system", "content": "s"}, *good(50)["messages"]]}, chat("x", "y"), chat("x", "y")]
    path = write_lines(tmp_path / "a.jsonl", rows)
    quick = check(tmp_path, spec_of(path))
    monkeypatch.setattr(check_module.Shape, "quick_texts", property(lambda _shape: lambda _row: None))
    assert check(tmp_path, spec_of(path)) == quick


def test_questions_with_options_are_compared_as_a_run_learns_them(tmp_path: Path) -> None:
    options = ["The first of them", "The second of them", "The third of them"]
    rows = [{"question": f"Which of {n} is it?", "choices": options, "answer": n % 3, "id": n} for n in range(30)]
    layout = resolve_layout(rows)
    quick_texts = check_module.Shape(layout).quick_texts
    for row in rows:
        pair = to_messages(row, layout, "")
        assert isinstance(pair, PromptCompletion)
        assert quick_texts(row) == [pair.prompt, pair.completion]
    wrong = [{**rows[4], "answer": 7}, {**rows[4], "answer": None}, {**rows[4], "choices": ["x"]}]
    path = write_lines(tmp_path / "rows.jsonl", [*rows, rows[4], {**rows[5], "answer": 0}, *wrong])
    answer = check(tmp_path / "operation", spec_of(path))
    lines = {rule: [line for line, _ in places] for rule, places in problems_of(answer).items()}
    # The same options make many rows alike.
    lines.pop("near-duplicate")
    assert lines == {
        "wrong-choice": [33],
        "empty-answer": [34],
        "mixed-schema": [35],
        "exact-duplicate": [31],
        "other-answer": [32],
    }
    assert answer["formats"] == {str(path): "multiple-choice"}
    assert answer["reasons"][str(path)].endswith('which of "choices" is right. Not used: id.')


def test_the_letter_that_is_right_too_often_is_told(tmp_path: Path) -> None:
    rows = [{"question": f"Is it {n}?", "A": f"Yes {n}", "B": "No", "answer": f"Yes {n}"} for n in range(30)]
    (problem,) = check(tmp_path / "operation", spec_of(write_lines(tmp_path / "rows.jsonl", rows)))["problems"]
    assert (problem["rule"], problem["count"]) == ("same-answers", 30)


def test_what_is_wrong_with_rows_that_are_left_out_is_no_problem(tmp_path: Path) -> None:
    answers = ["" if number % 3 else f"Yes, {number} is." for number in range(9)]
    rows = [{"prompt": f"Is {n} right?", "completion": said, "label": bool(said)} for n, said in enumerate(answers)]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    answer = check(tmp_path, spec_of(path))
    assert answer["problems"] == []
    assert (answer["num_rows"], answer["num_left_out_rows"], answer["num_good_rows"]) == (9, 6, 3)
    assert answer["num_problem_rows"] == 0
    assert "Rows whose label is false or whose vote is a tie are left out: 6." in answer["notes"]


def test_a_label_in_a_table_leaves_a_row_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("prompt,completion,label\nWho?,Me.,true\nWhy?,Because.,false\n")
    answer = check(tmp_path / "operation", spec_of(path))
    assert (answer["num_rows"], answer["num_left_out_rows"], answer["num_good_rows"]) == (2, 1, 1)


def test_a_quote_that_is_never_closed_is_named_and_the_rows_before_it_count(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('question,answer\nWho?,Me.\nWhy?,"Because it\nHow?,So.\n')
    answer = check(tmp_path / "operation", spec_of(path))
    assert (answer["num_rows"], answer["num_good_rows"]) == (2, 1)
    (problem,) = (each for each in answer["problems"] if each["severity"] == "error")
    (row,) = problem["rows"]
    assert (row["line"], row["column"]) == (3, 6)
    assert f"{path}: rows behind the error are not counted. Rows before it: 1." in answer["notes"]


def test_a_pair_of_equal_answers_is_named(tmp_path: Path) -> None:
    pairs = [{"prompt": f"Is {n} even or is it odd?", "chosen": "Even.", "rejected": "Odd."} for n in range(3)]
    pairs[1]["rejected"] = "Even."
    path = write_lines(tmp_path / "pairs.jsonl", pairs)
    answer = check(tmp_path, spec_of(path))
    assert problems_of(answer) == {"equal-pair": [(2, 1)]}
    assert (answer["num_good_rows"], answer["num_problem_rows"]) == (3, 1)


def test_languages_of_few_rows_are_not_told_of_all(tmp_path: Path) -> None:
    short = [chat(f"Sage {row}", "👍🏽 ok") for row in range(20)]
    rows = [*map(good, range(3)), *short]
    assert check(tmp_path, spec_of(write_lines(tmp_path / "few.jsonl", rows)))["languages"] == {}
    rows = [*map(good, range(20)), *short]
    assert check(tmp_path, spec_of(write_lines(tmp_path / "half.jsonl", rows)))["languages"] == {"en": 20}


def test_a_language_without_a_name_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "rows.jsonl", map(good, range(3)))
    assert check(tmp_path, spec_of(path))["languages"] == {"en": 3}
    monkeypatch.setattr("py3langid.classify", lambda _text: ("pcm", -1.0))
    assert check(tmp_path, spec_of(path))["languages"] == {}
    monkeypatch.undo()
    numbers = write_lines(tmp_path / "numbers.jsonl", [chat("12345678901234567890 + 1 = ?", "It is so.")])
    assert check(tmp_path, spec_of(numbers))["languages"] == {}


def test_calls_that_the_template_does_not_write_are_an_error(tmp_path: Path, tiny_model: Path) -> None:
    call = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    rows = [chat("Hello?", "Hi."), {"messages": [{"role": "user", "content": "Rain?"}, asks]}]
    path = write_lines(tmp_path / "tools.jsonl", rows)
    assert check(tmp_path, spec_of(path))["num_good_rows"] == 2
    answer = check(tmp_path, spec_of(path), str(tiny_model))
    assert problems_of(answer) == {"unwritable": [(2, 1)]}
    (problem,) = answer["problems"]
    assert (problem["severity"], problem["action"]) == ("error", "stop")
    assert "does not write the tool calls" in problem["rows"][0]["message"]
    assert (answer["num_rows"], answer["num_good_rows"], answer["num_problem_rows"]) == (2, 0, 2)


def test_a_workbook_of_which_no_sheet_is_recognized_names_the_others(tmp_path: Path) -> None:
    notes = [["Just", "notes"], ["a", "b"]]
    path = write_workbook(tmp_path / "one.xlsx", {"Notes": notes, "QA": [["question", "answer"], ["Why?", "So."]]})
    assert check(tmp_path, spec_of(path))["num_good_rows"] == 1
    sheets = {"Notes": notes, "QA": [["q1", "a1"], ["Why?", "So."]]}
    path = write_workbook(tmp_path / "two.xlsx", sheets)
    answer = check(tmp_path, spec_of(path))
    assert set(problems_of(answer)) == {"missing-column"}
    message = answer["problems"][0]["rows"][0]["message"]
    assert 'the sheet "Notes"' in message
    assert '--sheet names the one to read: "QA".' in message
    assert (answer["num_rows"], answer["num_good_rows"], answer["num_problem_rows"]) == (1, 0, 1)
    spec = spec_of(path)
    spec.data.sources[0].sheet, spec.data.sources[0].columns = "QA", {"prompt": "q1", "completion": "a1"}
    assert check(tmp_path, spec)["num_good_rows"] == 1


def test_rows_of_one_message_each_are_one_problem_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text('{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b"}\n', encoding="utf-8")
    answer = check(tmp_path, spec_of(path))
    assert [(each["rule"], each["count"]) for each in answer["problems"]] == [("bad-file", 2)]
    assert answer["num_good_rows"] == 0


@pytest.mark.parametrize("is_workbook", [False, True])
def test_a_mistyped_column_is_one_error_and_no_problem_of_every_row(tmp_path: Path, *, is_workbook: bool) -> None:
    rows = [["Frage", "Antwort"], *([f"Who is it {number}?", f"It is me {number}."] for number in range(30))]
    path = tmp_path / ("rows.xlsx" if is_workbook else "rows.csv")
    if is_workbook:
        write_workbook(path, {"First": rows, "Other": [["Name"], ["Ann"]]})
    else:
        path.write_text("\n".join(map(",".join, rows)), encoding="utf-8")
    spec = spec_of(path)
    spec.data.sources[0].columns = {"prompt": "Fragen", "completion": "Antwort"}
    words = 'there is no column "Fragen" \\(prompt\\). Its columns are: Frage, Antwort. Did you mean "Frage"\\?'
    with pytest.raises(UserError, match=words):
        check(tmp_path, spec)
    targets = [AbsolutePath(str(tmp_path / name)) for name in ("a.jsonl", "b.jsonl")]
    for work in (
        lambda host: convert_data(host, ConvertDataSpec(spec, targets[0])),
        lambda host: split_data(host, SplitDataSpec(spec, *targets, percent=50.0)),
        lambda host: mix_data(host, MixDataSpec(spec, targets[0])),
    ):
        with host_in(tmp_path / "other") as host, pytest.raises(UserError, match=words):
            work(host)
    assert not list(tmp_path.glob("*.jsonl"))


def test_marks_of_who_speaks_are_no_fault_of_a_chat_that_is_one_text(tmp_path: Path) -> None:
    said = "<|im_start|>user\nHow many in {place}?<|im_end|>\n<|im_start|>assistant\nIt was <b>{place}</b>.<|im_end|>\n"
    rows: list[Row | str] = [{"text": said.format(place=place)} for place in range(20)]
    rows[7] = {"text": said.format(place="ann@mail.example.org")}
    path = write_lines(tmp_path / "rows.jsonl", rows)
    assert list(problems_of(check(tmp_path, spec_of(path)))) == ["personal-data"]
    plain = spec_of(path)
    plain.data.sources[0].format = "text"
    assert "special-token-in-text" in problems_of(check(tmp_path, plain))
