"""The index of rows: any row of any file by its place, found, changed and saved, and the file stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import paths
from tunesmith_core.datafmt import row_index
from tunesmith_core.datafmt.row_index import RowIndex, index_lines, serves_as_it_is
from tunesmith_core.errors import UserError
from tunesmith_core.messages import said
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.rows import (
    FIND_ROWS,
    INDEX_ROWS,
    SAVE_ROWS,
    EditedRows,
    FindSpec,
    IndexSpec,
    SaveRowsSpec,
    find_rows,
    index_rows,
    new_folder,
    save_rows,
)
from tunesmith_core.operations.limits import Limits
from tunesmith_core.process_identity import ProcessIdentity, current
from tunesmith_core.protocol import read_journal
from tunesmith_core.spec_sections import SourceSpec

ROWS = [{"question": "Who?", "answer": "Me."}, {"question": "Wo?", "answer": "Über \"hier\"\n你好", "n": 3}]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    folder = tmp_path / "operation"
    folder.mkdir()
    with Host(Operation(folder), Limits()) as made:
        yield made


@pytest.fixture(autouse=True)
def tells_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_index, "TELL_EVERY_S", -1.0)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def jsonl(path: Path, rows: list[Any] = ROWS) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def indexed(path: Path, host: Host, encoding: str = "utf-8") -> RowIndex:
    folder = path.parent / "index"
    folder.mkdir(exist_ok=True)
    source = SourceSpec(path=str(path), encoding=encoding)
    found = index_rows(host, IndexSpec(source, AbsolutePath(str(folder))))
    index = RowIndex(folder)
    assert len(index) == found["num_rows"]
    return index


def all_rows(index: RowIndex) -> list[Any]:
    return [index.row(place) for place in range(len(index))]


class TestJsonLines:
    def test_every_row_is_read_by_its_place(self, tmp_path: Path, host: Host) -> None:
        index = indexed(jsonl(tmp_path / "a.jsonl"), host)

        assert all_rows(index) == ROWS
        assert [index.number(place) for place in (0, 1)] == [1, 2]
        assert not (tmp_path / "index" / "rows.jsonl").exists()
        index.close()

    def test_blank_lines_are_no_rows_and_count_as_lines(self, tmp_path: Path, host: Host) -> None:
        index = indexed(write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n{"a": 2}'), host)

        assert all_rows(index) == [{"a": 1}, {"a": 2}]
        assert [index.number(place) for place in (0, 1)] == [1, 4]
        name = str(tmp_path / "a.jsonl")
        assert [list(index.places_of(name, number)) for number in (1, 2, 4, 5)] == [[0], [], [1], []]
        assert list(index.positions()) == [(name, 1, 0), (name, 4, 0)]

    def test_a_line_longer_than_a_piece_is_one_row(
        self, tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(row_index, "PIECE_BYTES", 7)
        index = indexed(jsonl(tmp_path / "a.jsonl"), host)

        assert all_rows(index) == ROWS
        assert index.num_bytes(0) == len(json.dumps(ROWS[0])) + 1
        assert index.raw(0, 9) == b'{"questio'

    def test_blank_lines_at_the_end_are_no_rows(self, tmp_path: Path, host: Host) -> None:
        assert all_rows(indexed(write(tmp_path / "a.jsonl", '{"a": 1}\n   '), host)) == [{"a": 1}]

    @pytest.mark.parametrize("line", ['{"a": "broken', '{"a": 1} more', "[1]", '[{"reason": "a"}]', '{"a": NaN}'])
    def test_a_line_that_is_no_row_is_its_text(self, line: str, tmp_path: Path, host: Host) -> None:
        index = indexed(write(tmp_path / "a.jsonl", f'{{"a": 1}}\n{line}\n'), host)

        assert all_rows(index) == [{"a": 1}, line]

    def test_it_tells_how_far_it_is(self, tmp_path: Path) -> None:
        path, told = jsonl(tmp_path / "a.jsonl", ROWS * 600), list[tuple[int, int]]()
        index_lines(path, tmp_path, lambda *so_far: told.append(so_far))

        assert told[0][0] == 1024
        assert told[-1] == (1200, path.stat().st_size)

    @pytest.mark.parametrize(
        ("content", "encoding"),
        [
            (b'{"a": 1}\r{"a": 2}\r', "utf-8"),
            (b'{"a": "\xfc"}', "windows-1252"),
            ('{"a": 1}\n'.encode("utf-16"), "utf-8"),
        ],
    )
    def test_other_line_ends_and_encodings_are_copied(
        self, content: bytes, encoding: str, tmp_path: Path, host: Host
    ) -> None:
        path = write(tmp_path / "a.jsonl", content)
        assert not serves_as_it_is(path, "jsonl", encoding)
        index = indexed(path, host, encoding)

        assert [index.row(place)["a"] for place in range(len(index))] in ([1, 2], ["ü"], [1])  # type: ignore[index]
        assert (tmp_path / "index" / "rows.jsonl").exists()


class TestOtherFiles:
    def test_rows_of_a_table_are_those_of_its_reader(self, tmp_path: Path, host: Host) -> None:
        index = indexed(write(tmp_path / "a.csv", 'q,a\nWho?,"two\nlines"\nWo?,Hier\n'), host)

        assert all_rows(index) == [{"q": "Who?", "a": "two\nlines"}, {"q": "Wo?", "a": "Hier"}]
        assert [index.number(place) for place in (0, 1)] == [2, 4]

    def test_rows_that_cannot_be_read_are_told_in_their_place(self, tmp_path: Path, host: Host) -> None:
        index = indexed(write(tmp_path / "a.csv", "q,a\n1,2,3\nWho?,Me\n4,5,6\n"), host)

        first, second, third = all_rows(index)
        assert second == {"q": "Who?", "a": "Me"}
        assert "fields in this row: 3" in first
        assert "line 4" in third
        assert "第 4 行：此行有 3 个字段" in said(third, "zh_CN")

    def test_a_saved_copy_says_what_could_not_be_read(self, tmp_path: Path, host: Host) -> None:
        index = indexed(write(tmp_path / "a.csv", "q,a\n1,2,3\nWho?,Me\n"), host)
        row_index.save(index, tmp_path / "b.jsonl", {}, frozenset(), lambda *_so_far: None)

        bad, good = map(json.loads, (tmp_path / "b.jsonl").read_text().splitlines())
        assert good == {"q": "Who?", "a": "Me"}
        assert "fields in this row: 3" in bad

    def test_a_reader_that_gives_up_leaves_what_it_read(self, tmp_path: Path, host: Host) -> None:
        path = write(tmp_path / "a.json", '[{"a": 1}, {"a": 2}, {"a": ')
        with pytest.raises(UserError, match="not valid JSON"):
            indexed(path, host)

        index = RowIndex(tmp_path / "index")
        assert all_rows(index) == [{"a": 1}, {"a": 2}]

    def test_the_journal_tells_how_far_it_is(self, tmp_path: Path, host: Host) -> None:
        indexed(write(tmp_path / "a.csv", "q,a\n1,2\n"), host)

        told = [each.data for each in read_journal(host.folder / "events.jsonl") if each.type == "progress"]
        assert told[-1]["rows"] == 1

    def test_numbers_of_several_files_are_found_in_each(self, tmp_path: Path) -> None:
        # Those of the second go on where the first ends, and a page of the last has two rows.
        places = [("é", 1), ("b", 2), ("b", 4), ("c", 1), ("c", 2), ("c", 2)]
        source = write(tmp_path / "several.zip", b"")
        rows = ((file, number, {"a": place}) for place, (file, number) in enumerate(places))
        row_index.copy_rows(rows, source, tmp_path, lambda *_so_far: None)
        index = RowIndex(tmp_path)

        found = {(file, number): list(index.places_of(file, number)) for file in "ébcd" for number in range(5)}
        assert {key: each for key, each in found.items() if each} == {
            ("é", 1): [0], ("b", 2): [1], ("b", 4): [2], ("c", 1): [3], ("c", 2): [4, 5],
        }  # fmt: skip
        assert list(index.positions()) == [*((*place, 0) for place in places[:5]), ("c", 2, 1)]
        index.close()

    def test_files_that_begin_while_somebody_looks_are_found(self, tmp_path: Path) -> None:
        looks: list[tuple[list[int], list[int]]] = []
        source = write(tmp_path / "several.zip", b"")

        def look(*_so_far: int) -> None:
            index.refresh()
            looks.append((list(index.places_of("a", 1)), list(index.places_of("b", 1))))

        with row_index.IndexWriter(tmp_path, write(tmp_path / "rows.jsonl", b"{}\n" * 3), source, look) as writer:
            index = RowIndex(tmp_path)
            for place, (file, number) in enumerate((("a", 1), ("a", 2), ("b", 1))):
                writer.add(3 * place, 3 * place + 3, number, file)
                writer.tell(0)
        index.close()

        assert looks == [([0], []), ([0], []), ([0], [2])]

    def test_what_json_does_not_know_becomes_text(self) -> None:
        assert row_index.json_line({"a": Path("x"), "b": "\ud800"}) == b'{"a": "x", "b": "\\ud800"}\n'


    def test_it_tells_no_oftener_than_anybody_can_look(
        self, tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(row_index, "TELL_EVERY_S", 3600.0)
        indexed(write(tmp_path / "a.csv", "q,a\n1,2\n3,4\n"), host).close()
        folder, target = AbsolutePath(str(tmp_path / "index")), AbsolutePath(str(tmp_path / "b.jsonl"))
        find_rows(host, FindSpec(folder, "1", AbsolutePath(str(tmp_path / "found"))))
        save_rows(host, SaveRowsSpec(target, EditedRows(folder=folder)))

        told = [each.type for each in read_journal(host.folder / "events.jsonl")]
        assert told == ["progress"]


class TestFinding:
    @pytest.mark.parametrize(
        ("text", "places"),
        [("who", [0]), ("ÜBER", [1]), ("你好", [1]), ("question", []), ("3", [1]), ('"hier"', [1]), ("nothing", [])],
    )
    def test_texts_are_found_in_values_only(self, text: str, places: list[int], tmp_path: Path, host: Host) -> None:
        indexed(jsonl(tmp_path / "a.jsonl"), host).close()
        folder, target = tmp_path / "index", tmp_path / "found"
        found = find_rows(host, FindSpec(AbsolutePath(str(folder)), text, AbsolutePath(str(target))))

        assert found == {"num_found": len(places)}
        assert target.read_bytes() == b"".join(place.to_bytes(8, "little") for place in places)

    def test_lists_and_objects_are_searched(self, tmp_path: Path, host: Host) -> None:
        index = indexed(jsonl(tmp_path / "a.jsonl", [{"m": [{"content": "Deep"}], "x": None}]), host)

        assert list(row_index.find(index, "deep")) == [(0, True)]
        assert list(row_index.find(index, "none")) == [(0, False)]


class TestSaving:
    def spec(self, tmp_path: Path, **more: Any) -> SaveRowsSpec:
        edited = EditedRows(folder=AbsolutePath(str(tmp_path / "index")), **more)
        return SaveRowsSpec(AbsolutePath(str(tmp_path / "out.jsonl")), edited)

    def test_changes_are_in_the_copy_and_not_in_the_file(self, tmp_path: Path, host: Host) -> None:
        path = jsonl(tmp_path / "a.jsonl", [*ROWS, {"last": 1}])
        before = path.read_bytes()
        indexed(path, host).close()
        deleted = tmp_path / "index" / "deleted"
        deleted.write_bytes((0).to_bytes(8, "little"))
        changes = {"edits": {"1": {"new": "ü"}}, "deleted": AbsolutePath(str(deleted))}
        saved = save_rows(host, self.spec(tmp_path, **changes))

        assert saved == {"num_rows": 2}
        assert (tmp_path / "out.jsonl").read_text("utf-8") == '{"new": "ü"}\n{"last": 1}\n'
        assert path.read_bytes() == before
        assert sorted(each.name for each in tmp_path.iterdir()) == ["a.jsonl", "index", "operation", "out.jsonl"]

    def test_the_open_file_is_never_the_target(self, tmp_path: Path, host: Host) -> None:
        path = jsonl(tmp_path / "out.jsonl")
        before = path.read_bytes()
        indexed(path, host).close()
        with pytest.raises(UserError, match="is the file that you opened"):
            save_rows(host, self.spec(tmp_path))
        assert path.read_bytes() == before

    def test_a_file_that_changed_meanwhile_is_not_mixed(self, tmp_path: Path, host: Host) -> None:
        path = jsonl(tmp_path / "a.jsonl")
        indexed(path, host).close()
        jsonl(path, ROWS * 2)
        with pytest.raises(UserError, match="has changed since it was opened"):
            save_rows(host, self.spec(tmp_path))
        assert not (tmp_path / "out.jsonl").exists()

    def test_a_file_that_is_gone_has_changed(self, tmp_path: Path, host: Host) -> None:
        path = jsonl(tmp_path / "a.jsonl")
        index = indexed(path, host)
        assert not index.has_changed()
        index.close()
        path.unlink()
        assert index.has_changed()

    def test_a_write_that_fails_leaves_the_former_file(
        self, tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        indexed(jsonl(tmp_path / "a.jsonl"), host).close()
        write(tmp_path / "out.jsonl", "before")

        def fail(_path: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(row_index.files, "fsync_file", fail)
        with pytest.raises(OSError, match="No space"):
            save_rows(host, self.spec(tmp_path))
        assert (tmp_path / "out.jsonl").read_text() == "before"
        assert not list(tmp_path.glob(".*"))


def test_the_folders_of_dead_windows_are_removed(home: Path) -> None:
    assert home.exists()
    dead, alive = new_folder(), new_folder()
    Operation(dead).lease(owner=ProcessIdentity(2**22 - 1, 1, current().boot))
    unowned = paths.tmp_dir() / "rows" / "made-just-now"
    unowned.mkdir()
    newest = new_folder()

    assert not dead.exists()
    assert alive.exists()
    assert unowned.exists()
    assert newest.is_dir()


def test_specs_survive_their_journey() -> None:
    spec = IndexSpec(SourceSpec(path="/a", encoding="gb18030"), AbsolutePath("/b"))
    assert INDEX_ROWS.spec_from(INDEX_ROWS.spec_values(spec)) == spec
    edited = EditedRows({"1": {"a": 1}}, AbsolutePath("/a"), AbsolutePath("/c"))
    for kind, each in (
        (FIND_ROWS, FindSpec(AbsolutePath("/a"), "x", AbsolutePath("/b"))),
        (SAVE_ROWS, SaveRowsSpec(AbsolutePath("/b"), edited)),
    ):
        assert kind.spec_from(json.loads(json.dumps(kind.spec_values(each)))) == each
