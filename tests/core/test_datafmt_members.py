"""Files inside of others are read as files are, and what only libraries read is recognized by its content."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tunesmith_core import datafmt, files
from tunesmith_core.datafmt.encoding import Member, row_place
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import SourceSpec


def member(name: str, content: bytes) -> Member:
    return Member(f"a.zip/{name}", name, lambda: io.BytesIO(content))


def test_a_member_is_read_as_a_file_and_named_with_its_archive() -> None:
    whole = member("in/a.csv", b"question,answer\nWho?,Me.\n")
    assert (str(whole), whole.suffix) == ("a.zip/in/a.csv", ".csv")
    assert datafmt.file_kind(whole) == "csv"
    assert list(datafmt.read_rows(whole)) == [(2, {"question": "Who?", "answer": "Me."})]
    with pytest.raises(UserError, match=r"^a\.zip/a\.jsonl, line 2, column 2"):
        list(datafmt.read_rows(member("a.jsonl", b'{"text": "a"}\n{x}\n')))


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.bin", b"ARROW1\0\0", "arrow"),
        ("a.arrow", b"\xff\xff\xff\xff\x10", "arrow"),
        ("a", b"%PDF-1.7", "pdf"),
        ("a.docx", b"PK\x03\x04", "docx"),
        ("a.zip", b"PK\x03\x04", "zip"),
        ("a.zip", b"PK\x05\x06", "zip"),
        ("a.jsonl", b"\x1f\x8b\x08", "gz"),
        ("a.zst", b"(\xb5/\xfd", "zst"),
        ("a.htm", b"<p>", "html"),
    ],
)
def test_kinds_that_libraries_read_are_recognized(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert datafmt.file_kind(path) == kind
    assert datafmt.file_kind(member(name, content)) == kind
    assert datafmt.sniff(path).kind == kind
    source = SourceSpec(path=str(path))
    assert datafmt.check_head(source) == datafmt.count_bad(source) == datafmt.count_labels(source) == (0, 0)
    assert datafmt.only_label(source) == ("", 0)
    assert datafmt.label_notes(source) == []


def test_a_folder_is_a_kind(tmp_path: Path) -> None:
    assert datafmt.sniff(tmp_path).kind == "folder"
    with pytest.raises(UserError, match="folder files are read by the engine only"):
        list(datafmt.read_rows(tmp_path))


def test_places_in_documents_are_pages_and_parts() -> None:
    assert [row_place(Path("a"), kind, 3) for kind in ("pdf", "docx", "html", "arrow", "md")] == [
        "a, page 3",
        "a, part 3",
        "a, part 3",
        "a, row 3",
        "a, line 3",
    ]


def test_lists_for_evaluation_are_told_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    values = {"n": 1, "test": [{"text": "a"}], "train": [{"text": "b"}], "dev": [{"text": "c"}], "names": ["x"]}
    path.write_text(json.dumps(values))
    notes: dict[str, str] = {}
    assert list(datafmt.read_rows(path, notes=notes)) == [(1, {"text": "b"})]
    assert list(datafmt.read_rows(path)) == [(1, {"text": "b"})]
    assert notes["dataset-parts-unread"].endswith('which are not read: "test", "dev".')
    path.write_text('{"test": [{"text": "a"}], "validation": [{"text": "b"}]}')
    with pytest.raises(UserError, match='the lists of rows are "test", "validation", and none is named "train"'):
        list(datafmt.read_rows(path))


def test_the_digest_of_a_folder_is_of_its_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "c.txt").write_text("one")
    first = files.sha256_tree(folder)
    assert first == files.sha256_tree(folder)
    assert files.sha256_tree(folder / "b" / "c.txt") == files.sha256_file(folder / "b" / "c.txt")
    (folder / "b" / "c.txt").write_text("two")
    second = files.sha256_tree(folder)
    (folder / "b" / "c.txt").rename(folder / "c.txt")
    assert len({first, second, files.sha256_tree(folder)}) == 3
