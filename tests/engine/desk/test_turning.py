"""Split, mix and convert: every row lands where it should, the same for the same seed, and in every kind of file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.desk.checking import Row, chat, good, host_in, spec_of, write_lines
from tunesmith_core.errors import UserError
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.data import ConvertDataSpec, MixDataSpec, SplitDataSpec
from tunesmith_core.protocol import read_journal
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import Source
from tunesmith_engine.operations import convert_data, mix_data, split_data


def rows_of(path: Path) -> list[Row]:
    return [row for _, row in Source(SourceSpec(path=str(path)), False).rows()]


def split(folder: Path, *paths: Path, suffix: str = ".jsonl", **options: Any) -> tuple[list[Row], list[Row]]:
    train, held_out = folder / f"train{suffix}", folder / f"held{suffix}"
    spec = SplitDataSpec(
        spec_of(*paths), AbsolutePath(str(train)), AbsolutePath(str(held_out)), overwrite=True, **options
    )
    with host_in(folder / "operation") as host:
        answer = split_data(host, spec)
    both = rows_of(train), rows_of(held_out)
    assert answer["files"] == {str(train): len(both[0]), str(held_out): len(both[1])}
    return both


def key(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def test_a_split_holds_out_a_share_and_leaves_copies_on_one_side(tmp_path: Path) -> None:
    rows = [good(number % 80) for number in range(200)]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    train, held_out = split(tmp_path, path, percent=10.0, seed=1)
    assert 15 <= len(held_out) <= 20
    assert sorted(map(key, train + held_out)) == sorted(map(key, rows))
    assert not set(map(key, train)) & set(map(key, held_out))
    told = [event.data for event in read_journal(tmp_path / "operation" / "events.jsonl") if event.type == "progress"]
    assert [each["rows"] for each in told] == [200, 200]
    assert [each["done_bytes"] / each["total_bytes"] for each in told] == [0.5, 1.0]
    assert split(tmp_path, path, percent=10.0, seed=1) == (train, held_out)
    assert split(tmp_path, path, percent=10.0, seed=2) != (train, held_out)
    assert len(split(tmp_path, path, count=40, seed=1)[1]) in range(35, 41)


def test_a_split_by_a_column_leaves_groups_and_copies_whole(tmp_path: Path) -> None:
    rows = [{"question": f"q{number}", "answer": "a", "group": f"g{number % 20}"} for number in range(100)]
    # The same row in two groups makes one of them, so that there are ten.
    rows += [{"question": f"q{group}", "answer": "a", "group": f"g{group + 10}"} for group in range(10)]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    train, held_out = split(tmp_path, path, percent=30.0, column="group")
    assert not {row["group"] for row in train} & {row["group"] for row in held_out}
    assert not {row["question"] for row in train} & {row["question"] for row in held_out}
    assert (len(train), len(held_out)) == (77, 33)
    with pytest.raises(UserError, match='Not every row has the column "nothing"'):
        split(tmp_path, path, percent=30.0, column="nothing")


def test_a_split_with_nothing_to_hold_out_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [good(1), good(1), good(1)])
    with pytest.raises(UserError, match="None can be held out, because all rows stay together"):
        split(tmp_path, path, percent=40.0)
    more = write_lines(tmp_path / "more.jsonl", [good(1), good(2)])
    with pytest.raises(UserError, match=r"2 of 2 rows can't be held out\. There are 2 groups"):
        split(tmp_path, more, count=2)
    more.unlink()
    assert {each.name for each in tmp_path.iterdir()} == {"rows.jsonl", "operation"}


@pytest.mark.parametrize(
    ("chosen", "words", "option"),
    [
        ({"percent": 150.0}, "--percent must be above 0 and below 100, not 150.", "--percent 10"),
        ({"percent": -5.0}, "--percent must be above 0 and below 100, not -5.", "--percent 10"),
        ({"percent": 5.0, "count": -2}, "--count must be at least 1, not -2.", "--count 100"),
    ],
)
def test_a_share_that_no_file_has_is_told_with_its_range(
    tmp_path: Path, chosen: dict[str, Any], words: str, option: str
) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [good(1), good(2)])
    with pytest.raises(UserError) as wrong:
        split(tmp_path, path, **chosen)
    assert (wrong.value.message, wrong.value.hint) == (words, f"For example: {option}")


def test_a_split_leaves_documents_whole(tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    for letter in "abcde":
        pieces = "\n\n".join(f"# {letter}{number}\nText." for number in range(4))
        (folder / f"{letter}.md").write_text(pieces)
    train, held_out = split(tmp_path, folder, percent=20.0)
    assert len({row["text"][2] for row in held_out}) == 1
    assert (len(held_out), len({row["text"][2] for row in train})) == (4, 4)


def mix(folder: Path, *paths: Path, **options: Any) -> tuple[dict[str, Any], list[Row]]:
    target = folder / "mixed.jsonl"
    with host_in(folder / "operation") as host:
        answer = mix_data(host, MixDataSpec(spec_of(*paths), AbsolutePath(str(target)), overwrite=True, **options))
    return answer, rows_of(target)


def test_a_mixture_has_the_weights_caps_and_the_order_of_its_seed(tmp_path: Path) -> None:
    one = write_lines(tmp_path / "a.jsonl", [{"text": f"a{number}"} for number in range(100)])
    two = write_lines(tmp_path / "b.jsonl", [{"text": f"b{number}"} for number in range(30)])
    answer, rows = mix(tmp_path, one, two, weights=[3.0, 1.0], seed=3)
    assert [each["num_rows"] for each in answer["sources"]] == [90, 30]
    assert len({row["text"] for row in rows}) == 120
    assert any(row["text"][0] == "b" for row in rows[:40])
    assert mix(tmp_path, one, two, weights=[3.0, 1.0], seed=3)[1] == rows
    assert mix(tmp_path, one, two, weights=[3.0, 1.0], seed=4)[1] != rows
    answer, _ = mix(tmp_path, one, two, weights=[1.0, 1.0], caps=[0, 10], count=0)
    assert [each["num_rows"] for each in answer["sources"]] == [10, 10]
    with pytest.raises(UserError, match=r"for each file. Files: 2. Numbers: 1."):
        mix(tmp_path, one, two, weights=[1.0])
    with pytest.raises(UserError, match=r"at least 0 for each file. Files: 2. Numbers: 1 -3.") as wrong:
        mix(tmp_path, one, two, weights=[1.0, -3.0])
    assert wrong.value.hint == "For example: --weights 1 1"
    with pytest.raises(UserError, match=r"The sum of --weights must be above 0") as wrong:
        mix(tmp_path, one, two, weights=[0.0, 0.0])
    assert wrong.value.hint == "For example: --weights 1 1"


def convert(folder: Path, path: Path, target: str, as_messages: bool = False) -> dict[str, Any]:
    with host_in(folder / "operation") as host:
        spec = ConvertDataSpec(spec_of(path), AbsolutePath(str(folder / target)), as_messages, True)
        return convert_data(host, spec)


def test_rows_keep_their_values_from_kind_to_kind(tmp_path: Path) -> None:
    rows: list[Row] = [{"question": f"Q{number}, ü?", "answer": 'so "it"\nis'} for number in range(5)]
    write_lines(tmp_path / "rows.jsonl", rows)
    for before, after in (("rows.jsonl", "a.csv"), ("a.csv", "b.parquet"), ("b.parquet", "c.jsonl")):
        assert convert(tmp_path, tmp_path / before, after)["files"] == {str(tmp_path / after): 5}
    assert rows_of(tmp_path / "c.jsonl") == rows
    assert list(csv.DictReader((tmp_path / "a.csv").open(encoding="utf-8", newline=""))) == rows


def test_rows_become_chats(tmp_path: Path) -> None:
    rows: list[Row | str] = [{"question": "Why?", "answer": "So."}, "{", {"question": "No answer", "answer": ""}]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    answer = convert(tmp_path, path, "out.jsonl", as_messages=True)
    assert rows_of(tmp_path / "out.jsonl") == [chat("Why?", "So.")]
    assert (answer["num_skipped_rows"], answer["num_unanswered_left_out"]) == (1, 1)
    convert(tmp_path, path, "out.parquet", as_messages=True)
    assert rows_of(tmp_path / "out.parquet") == [chat("Why?", "So.")]


def test_rows_that_are_no_table_are_refused_in_words(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [{"text": "a"}, {"text": ["b"]}, {"text": {"c": 1}}])
    with pytest.raises(UserError, match="don't fit into one table"):
        convert(tmp_path, path, "out.parquet")
    assert not list(tmp_path.glob("*out*"))
    with pytest.raises(UserError, match="must end in"):
        convert(tmp_path, path, "out.xlsx")


def test_a_file_that_is_there_is_never_lost(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", map(good, range(20)))
    kept = write_lines(tmp_path / "kept.jsonl", [good(1)])
    (tmp_path / "more").mkdir()
    (tmp_path / "link.jsonl").symlink_to(kept)

    def cut(train: str, held_out: str, overwrite: bool = False) -> None:
        targets = (AbsolutePath(str(tmp_path / each)) for each in (train, held_out))
        with host_in(tmp_path / "operation") as host:
            split_data(host, SplitDataSpec(spec_of(path), *targets, percent=10.0, overwrite=overwrite))

    for train, held_out, words, overwrite in (
        ("a.jsonl", "a.jsonl", "named twice", True),
        ("a.jsonl", "more/../a.jsonl", "named twice", True),
        ("kept.jsonl", "link.jsonl", "named twice", True),
        ("a.jsonl", "rows.jsonl", "never changed", True),
        ("kept.jsonl", "b.jsonl", "kept.jsonl already exists", False),
        ("a.jsonl", "missing/b.jsonl", "The folder .*missing is missing", False),
    ):
        with pytest.raises(UserError, match=words):
            cut(train, held_out, overwrite)
    with host_in(tmp_path / "operation") as host, pytest.raises(UserError, match="already exists"):
        mix_data(host, MixDataSpec(spec_of(path), AbsolutePath(str(kept))))
    with host_in(tmp_path / "operation") as host, pytest.raises(UserError, match="already exists"):
        convert_data(host, ConvertDataSpec(spec_of(path), AbsolutePath(str(kept))))
    assert rows_of(kept) == [good(1)]
    assert not (tmp_path / "a.jsonl").exists()
    cut("kept.jsonl", "b.jsonl", overwrite=True)
    assert len(rows_of(kept)) == 18


def test_nothing_is_written_into_a_folder_that_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    write_lines(folder / "a.jsonl", [good(1)])
    for target in (folder / "a.jsonl", folder / "new.jsonl"):
        with host_in(tmp_path / "operation") as host, pytest.raises(UserError, match="never changed"):
            convert_data(host, ConvertDataSpec(spec_of(folder), AbsolutePath(str(target)), overwrite=True))
    assert rows_of(folder / "a.jsonl") == [good(1)]


def test_files_of_different_layouts_are_mixed_as_chats(tmp_path: Path) -> None:
    one = write_lines(tmp_path / "a.jsonl", [{"question": "Why?", "answer": "So."}] * 2)
    two = write_lines(tmp_path / "b.jsonl", [{"Question text": f"Who is {n}?", "Best answer": f"It is {n}, as I said."}
                                             for n in range(3)])
    three = write_lines(tmp_path / "c.jsonl", [good(1), chat("Empty?", "")])
    labels = [{"prompt": "Is it?", "completion": "Yes.", "label": label} for label in (True, False)]
    four = write_lines(tmp_path / "d.jsonl", labels)
    answer, rows = mix(tmp_path, one, two, three, four)
    assert (answer["are_chats"], answer["num_skipped_rows"], answer["num_left_out_rows"]) == (True, 0, 1)
    assert answer["num_unanswered_left_out"] == 1
    assert [each["num_rows"] for each in answer["sources"]] == [2, 3, 1, 1]
    assert {tuple(row) for row in rows} == {("messages",)}
    for row in (chat("Why?", "So."), chat("Who is 1?", "It is 1, as I said."), good(1), chat("Is it?", "Yes.")):
        assert row in rows
    answer, rows = mix(tmp_path, one)
    assert (answer["are_chats"], rows[0]) == (False, {"question": "Why?", "answer": "So."})


def test_columns_that_chats_have_no_place_for_are_told(tmp_path: Path) -> None:
    pairs = [{"prompt": f"Is {n} even?", "chosen": "Yes.", "rejected": "No.", "note": ""} for n in range(3)]
    one = write_lines(tmp_path / "pairs.jsonl", pairs)
    two = write_lines(tmp_path / "qa.jsonl", [{"prompt": "Why?", "completion": "So.", "source": "book"}] * 2)
    answer, rows = mix(tmp_path, one, two)
    assert (answer["are_chats"], answer["lost_columns"]) == (True, {"rejected": 3, "source": 2})
    assert chat("Is 1 even?", "Yes.") in rows
    # Files of one layout keep every column.
    answer, rows = mix(tmp_path, one)
    assert (answer["are_chats"], answer["lost_columns"], pairs[0] in rows) == (False, {}, True)
    assert convert(tmp_path, one, "out.csv", as_messages=True)["lost_columns"] == {"rejected": 3}
    assert convert(tmp_path, write_lines(tmp_path / "chats.jsonl", [good(1)]), "o.jsonl", as_messages=True)[
        "lost_columns"
    ] == {}


def test_texts_and_chats_are_not_mixed(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.jsonl", [{"text": "A text of its own."}])
    unknown = write_lines(tmp_path / "unknown.jsonl", [{"a": 1, "b": 2}])
    chats = write_lines(tmp_path / "chats.jsonl", [good(1)])
    with pytest.raises(UserError, match="holds no questions and answers"):
        mix(tmp_path, chats, text)
    with pytest.raises(UserError, match="unrecognized format"):
        mix(tmp_path, chats, unknown)


def test_rows_labelled_false_become_no_chats(tmp_path: Path) -> None:
    rows = [{"prompt": "Is it?", "completion": f"Yes, {n}.", "label": n < 3} for n in range(5)]
    answer = convert(tmp_path, write_lines(tmp_path / "rows.jsonl", rows), "out.parquet", as_messages=True)
    assert (answer["num_left_out_rows"], answer["num_skipped_rows"]) == (2, 0)
    assert rows_of(tmp_path / "out.parquet") == [chat("Is it?", f"Yes, {n}.") for n in range(3)]


@pytest.mark.parametrize("is_chat", [False, True])
def test_rows_without_an_answer_are_kept_where_rows_stay_as_they_are_and_told_everywhere(
    tmp_path: Path, *, is_chat: bool
) -> None:
    rows = [good(number) if is_chat else {"question": f"q{number}", "answer": f"a{number}"} for number in range(40)]
    rows[3] = chat("Why?", "") if is_chat else {"question": "Why?", "answer": " "}
    rows[7] = {"messages": []} if is_chat else {"question": "How?", "answer": None}
    # What is no conversation at all has no answer that could be missing.
    rows[9] = {"messages": 3} if is_chat else {"question": "How?"}
    path = write_lines(tmp_path / "rows.jsonl", rows)
    targets = [AbsolutePath(str(tmp_path / name)) for name in ("a.jsonl", "b.jsonl")]
    with host_in(tmp_path / "operation") as host:
        told = split_data(host, SplitDataSpec(spec_of(path), *targets, percent=20.0))
    assert (told["num_unanswered_kept"], sum(told["files"].values())) == (2, 40)
    told, mixed = mix(tmp_path, path)
    assert (told["num_unanswered_kept"], told["num_skipped_rows"], len(mixed)) == (2, 0, 40)
    told = convert(tmp_path, path, "c.jsonl")
    assert (told["num_unanswered_kept"], "num_unanswered_left_out" in told) == (2, False)
    assert len(rows_of(tmp_path / "c.jsonl")) == 40
    told = convert(tmp_path, path, "c.jsonl", as_messages=True)
    assert (told["num_unanswered_left_out"], told["num_skipped_rows"]) == (2, 1)
    assert len(rows_of(tmp_path / "c.jsonl")) == 37
