"""A repaired copy holds what the person chose, and no source is ever changed."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.desk.checking import Row, chat, check, good, host_in, problems_of, spec_of, write_lines
from tests.engine.desk.test_check import FAULTS
from tunesmith_core.datafmt.row_index import index_lines
from tunesmith_core.datafmt.sniffing import head_rows
from tunesmith_core.errors import UserError
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.data import SaveDataSpec
from tunesmith_core.operations.kinds.rows import EditedRows, IndexSpec
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.operations import copy_rows, save_data


def save(
    folder: Path,
    run: RunSpec,
    actions: dict[str, str] | None = None,
    edited: EditedRows | None = None,
    model: str = "",
    target: Path | None = None,
) -> tuple[dict[str, Any], list[Row]]:
    target = target or folder / "copy.jsonl"
    spec = SaveDataSpec(run, model, AbsolutePath(str(target)), actions or {}, edited or EditedRows())
    with host_in(folder / "operation") as host:
        answer = save_data(host, SaveDataSpec.from_dict(json.loads(json.dumps(spec.to_dict()))))
    return answer, [json.loads(line) for line in target.read_text("utf-8").splitlines()]


def test_by_default_a_copy_leaves_out_what_cannot_be_trained_on_and_repairs_the_rest(tmp_path: Path) -> None:
    faults = [fault for fault, _ in FAULTS.values()]
    path = write_lines(tmp_path / "rows.jsonl", [*map(good, range(20)), *faults, good(3), chat("Où?", "Là")])
    before = path.read_bytes()
    answer, rows = save(tmp_path, spec_of(path))
    assert path.read_bytes() == before
    assert rows[:20] == [good(number) for number in range(20)]
    texts = [message["content"] for row in rows for message in row["messages"]]
    assert 'it is \\"[SECRET]' in texts
    assert "Au café, not at the café there" in texts
    assert {name: each["count"] for name, each in answer["actions"].items()} == {
        "bad-json": 1,
        "encoding": 1,
        "missing-column": 1,
        "mixed-schema": 1,
        "empty-answer": 1,
        "unknown-role": 1,
        "secret": 1,
        "mojibake": 1,
        "exact-duplicate": 1,
    }
    assert (answer["num_rows"], answer["num_read_rows"]) == (len(rows), 34)
    assert answer["num_left_out_rows"] == 34 - len(rows)
    found = problems_of(check(tmp_path, spec_of(tmp_path / "copy.jsonl")))
    assert set(found) == {"role-order", "personal-data", "html", "special-token-in-text"}


def test_each_action_does_what_it_says(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "rows.jsonl", [good(1), chat("How?", "Press <b>start</b>"), chat("Who?", "ann@mail.example.org")]
    )
    answer, rows = save(tmp_path, spec_of(path), {"html": "repair", "personal-data": "skip"})
    assert (answer["num_read_rows"], answer["num_repaired_rows"], answer["num_left_out_rows"]) == (3, 1, 1)
    assert rows == [good(1), chat("How?", "Press start")]
    _, rows = save(tmp_path, spec_of(path), {"html": "keep", "personal-data": "repair"})
    assert rows == [good(1), chat("How?", "Press <b>start</b>"), chat("Who?", "[EMAIL]")]


@pytest.mark.parametrize("fault", [fault for fault, _ in FAULTS.values()][:6])
def test_stop_ends_at_the_first_one_and_leaves_no_file(tmp_path: Path, fault: Row | str | bytes) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [good(1), fault, chat("Où?", "Là")])
    (rule,) = problems_of(check(tmp_path, spec_of(path)))
    with pytest.raises(UserError, match="line 2"):
        save(tmp_path, spec_of(path), {rule: "stop"})
    assert {each.name for each in tmp_path.iterdir()} == {"rows.jsonl", "operation"}


def test_edits_replace_and_delete_rows_also_those_that_could_not_be_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [good(1), "{", good(2), good(3)])
    index = tmp_path / "index"
    index.mkdir()
    index_lines(path, index, lambda *_: None)
    edited = changes(index, {1: chat("Now?", "Yes."), 2: chat("b", "c"), 3: chat("a?", "b.")}, [2])
    answer, rows = save(tmp_path, spec_of(path), edited=edited)
    assert rows == [good(1), chat("Now?", "Yes."), chat("a?", "b.")]
    assert (answer["num_edited_rows"], answer["num_deleted_rows"], answer["actions"]) == (2, 1, {})
    write_lines(path, [good(1)])
    with pytest.raises(UserError, match="has changed since it was opened"):
        save(tmp_path, spec_of(path), edited=edited)


def test_edits_are_checked_in_place_of_what_the_files_hold(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    write_lines(folder / "a.jsonl", ["{", good(1), chat("b", ""), "["])
    write_lines(folder / "b.jsonl", ["{", good(2), chat("c", "<b>"), "["])
    found = check(tmp_path, spec_of(folder))
    assert problems_of(found).keys() == {"bad-json", "empty-answer", "html"}
    index = opened(tmp_path, folder)
    edits = {0: good(3), 2: chat("b", "full"), 3: good(4), 5: chat("d", ""), 7: good(5)}
    found = check(tmp_path, spec_of(folder), edited=changes(index, edits, [4, 6]))
    (rule,) = found["problems"]
    assert (rule["rule"], [row["line"] for row in rule["rows"]]) == ("empty-answer", [2])
    assert found["num_rows"] == 6
    found = check(tmp_path, spec_of(folder), edited=changes(index, {}, [0, 2, 3]))
    assert problems_of(found)["bad-json"] == [(1, 2), (4, 2)]


def test_a_row_counts_once(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [good(number) for number in range(5)])
    edited = changes(opened(tmp_path, path), {1: chat("b", "<b>c</b>"), 2: chat("b", ""), 3: chat("d", "e")}, [4])
    answer, rows = save(tmp_path, spec_of(path), {"html": "repair"}, edited=edited, target=tmp_path / "copy.jsonl")
    assert rows == [good(0), chat("b", "c"), chat("d", "e")]
    told = ("read", "edited", "repaired", "left_out", "deleted")
    assert [answer[f"num_{name}_rows"] for name in told] == [5, 1, 1, 2, 1]


def changes(index: Path, edits: dict[int, Row], deleted: list[int]) -> EditedRows:
    """Say what was changed, by places in an index."""
    (index / "deleted").write_bytes(b"".join(place.to_bytes(8, "little") for place in deleted))
    by_place = {str(place): row for place, row in edits.items()}
    return EditedRows(by_place, AbsolutePath(str(index)), AbsolutePath(str(index / "deleted")))


def opened(folder: Path, path: Path) -> Path:
    """Read rows as the window does; return their index."""
    index = folder / "index"
    index.mkdir()
    with host_in(folder / "operation") as host:
        copy_rows(host, IndexSpec(SourceSpec(path=str(path)), AbsolutePath(str(index))))
    return index


@pytest.mark.parametrize("is_archive", [True, False])
def test_edits_reach_the_file_of_an_archive_or_folder_that_they_were_made_in(tmp_path: Path, is_archive: bool) -> None:
    folder = tmp_path / "数据"
    (folder / "more").mkdir(parents=True)
    write_lines(folder / "a.jsonl", [good(1), "{", good(2), "["])
    write_lines(folder / "b.jsonl", ["", good(3), "{", good(4)])
    write_lines(folder / "more" / "c é.jsonl", [good(5), good(6)])
    path = folder
    if is_archive:
        path = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", folder))
    # Places count through: 0 to 3 are those of a, 4 to 6 of b, 7 and 8 of c.
    edits = {3: chat("a", "4"), 4: chat("b", "2"), 8: chat("c", "2")}
    edited = changes(opened(tmp_path, path), edits, [0, 5])
    answer, rows = save(tmp_path, spec_of(path), edited=edited, target=tmp_path / "copy.jsonl")
    assert rows == [good(2), chat("a", "4"), chat("b", "2"), good(4), good(5), chat("c", "2")]
    assert (answer["num_edited_rows"], answer["num_deleted_rows"]) == (3, 2)
    assert {name: each["count"] for name, each in answer["actions"].items()} == {"bad-json": 1}


def test_an_edit_changes_one_of_the_pieces_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text(" ".join(f"word{number}" for number in range(1000)), encoding="utf-8")
    index = opened(tmp_path, path)
    _, before = save(tmp_path, spec_of(path))
    assert len(before) > 3
    _, rows = save(tmp_path, spec_of(path), edited=changes(index, {1: {"text": "Another."}}, [2]))
    assert rows == [before[0], {"text": "Another."}, *before[3:]]


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_table_stays_the_table_that_excel_opens(tmp_path: Path, delimiter: str) -> None:
    path, target = tmp_path / "table.csv", tmp_path / "copy.csv"
    rows = [["question", "answer", "id"], ["Où?", "Là.", "1"], ["Why?", "", "2"], ['A "b"', "x;y,z", "3"]]
    with path.open("w", encoding="cp1252", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    spec = spec_of(path)
    spec.data.sources[0].encoding = "windows-1252"
    with host_in(tmp_path / "operation") as host:
        save_data(host, SaveDataSpec(spec, "", AbsolutePath(str(target))))
    assert target.read_bytes().startswith(b"\xef\xbb\xbf")
    with target.open(encoding="utf-8-sig", newline="") as file:
        assert list(csv.reader(file, delimiter=delimiter)) == [rows[0], rows[1], rows[3]]
    assert head_rows(target, 9) == [dict(zip(rows[0], row, strict=True)) for row in (rows[1], rows[3])]


def test_rows_of_the_evaluation_file_are_left_out(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", map(good, range(5)))
    held_out = write_lines(tmp_path / "held.jsonl", [good(2)])
    answer, rows = save(tmp_path, spec_of(path, evaluation=held_out))
    assert rows == [good(number) for number in (0, 1, 3, 4)]
    assert answer["actions"] == {"leakage": {"action": "skip", "count": 1}}


def test_a_source_is_no_target(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [good(1)])
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    for target in (path, link):
        with pytest.raises(UserError, match="never changed"):
            save(tmp_path, spec_of(path), target=target)
    assert path.read_bytes().count(b"\n") == 1


def test_an_action_that_a_rule_does_not_have_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", [good(1)])
    with pytest.raises(UserError, match="no action repair"):
        save(tmp_path, spec_of(path), {"bad-json": "repair"})


def test_long_rows_are_split_or_dropped(tmp_path: Path, tiny_model: Path) -> None:
    turns = [message for number in range(4) for message in good(number)["messages"]]
    system = {"role": "system", "content": "Be kind."}
    path = write_lines(tmp_path / "rows.jsonl", [{"messages": [system, *turns]}, chat("Hi", "Hello")])
    run = spec_of(path, context_length=380)
    _, rows = save(tmp_path, run, {"over-long": "drop"}, model=str(tiny_model))
    assert rows == [chat("Hi", "Hello")]
    answer, rows = save(tmp_path, run, {"over-long": "split"}, model=str(tiny_model))
    assert rows.pop() == chat("Hi", "Hello")
    assert [row["messages"][0] for row in rows] == [system] * len(rows)
    assert [message for row in rows for message in row["messages"][1:]] == turns
    assert problems_of(check(tmp_path, spec_of(tmp_path / "copy.jsonl", context_length=380), str(tiny_model))) == {}
    assert answer["actions"] == {"over-long": {"action": "split", "count": 1}}
    text = "\n\n".join(f"Paragraph {number} of a text that goes on." for number in range(30))
    path = write_lines(tmp_path / "text.jsonl", [{"text": text}])
    _, rows = save(tmp_path, spec_of(path, context_length=200), {"over-long": "split"}, model=str(tiny_model))
    assert len(rows) > 5
    assert "".join(row["text"] for row in rows) == text
    assert problems_of(check(tmp_path, spec_of(tmp_path / "copy.jsonl", context_length=200), str(tiny_model))) == {}


def test_long_chats_of_turns_are_split_between_them(tmp_path: Path, tiny_model: Path) -> None:
    texts = [message["content"] for number in range(4) for message in good(number)["messages"]]
    pairs = [{"human": texts[place], "assistant": texts[place + 1]} for place in range(0, len(texts), 2)]
    for name, turns in (("pairs", pairs), ("texts", texts)):
        path = write_lines(tmp_path / f"{name}.jsonl", [{"conversation": turns}])
        run = spec_of(path, context_length=380)
        _, rows = save(tmp_path, run, {"over-long": "split"}, model=str(tiny_model))
        assert len(rows) > 1
        assert [turn for row in rows for turn in row["conversation"]] == turns
        copy = spec_of(tmp_path / "copy.jsonl", context_length=380)
        assert "over-long" not in problems_of(check(tmp_path, copy, str(tiny_model)))


def test_a_pair_of_equal_answers_is_left_out(tmp_path: Path) -> None:
    pairs = [{"prompt": f"Is {n} even or is it odd?", "chosen": "Even.", "rejected": "Odd."} for n in range(3)]
    pairs[1]["rejected"] = "Even."
    path = write_lines(tmp_path / "pairs.jsonl", pairs)
    answer, rows = save(tmp_path, spec_of(path))
    assert rows == [pairs[0], pairs[2]]
    assert answer["actions"] == {"equal-pair": {"action": "skip", "count": 1}}
    assert save(tmp_path, spec_of(path), {"equal-pair": "keep"})[1] == pairs


def test_pairs_without_a_worse_answer_are_left_out_where_a_run_needs_one(tmp_path: Path) -> None:
    pairs = [{"prompt": f"Is {n} even or is it odd?", "chosen": "Even.", "rejected": "Odd."} for n in range(4)]
    pairs[1]["rejected"], pairs[2]["rejected"] = "Even.", ""
    spec = spec_of(write_lines(tmp_path / "pairs.jsonl", pairs))
    assert save(tmp_path, spec)[1] == [pairs[0], pairs[2], pairs[3]]
    assert save(tmp_path, spec, {"half-pair": "skip"})[1] == [pairs[0], pairs[3]]
    spec.objective.kind = "orpo"
    assert save(tmp_path, spec)[1] == [pairs[0], pairs[3]]
