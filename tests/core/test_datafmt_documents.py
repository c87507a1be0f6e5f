"""Text and Markdown become pieces without a word lost, each with the line where it begins."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tunesmith_core.datafmt import file_kind, read_rows, sniff
from tunesmith_core.datafmt.documents import MAX_PIECE, pieces
from tunesmith_core.errors import TunesmithError

MARKDOWN = "# One\nText\n\n```\n# no heading\n\ncode\n```\n\nMore\n## Two\nEnd\n"


def cut(text: str, kind: str = "txt") -> list[tuple[int, str]]:
    return list(pieces(io.StringIO(text), kind))


def test_a_heading_begins_a_piece_and_code_holds_none() -> None:
    first, second = cut(MARKDOWN, "md")
    assert first == (1, "# One\nText\n\n```\n# no heading\n\ncode\n```\n\nMore")
    assert second == (11, "## Two\nEnd")
    assert len(cut(MARKDOWN)) == 1


def test_a_heading_without_a_text_stays_with_what_follows() -> None:
    found = cut("# Book\n\n## One\n\nText\n\n## Two\n## Three\nMore\n\n# End\n", "md")
    assert found == [(1, "# Book\n\n## One\n\nText"), (7, "## Two\n## Three\nMore"), (11, "# End")]


def test_a_long_document_is_cut_between_paragraphs() -> None:
    paragraphs = [f"Paragraph {number}. " + "word " * 100 for number in range(30)]
    found = cut("\n\n" + "\n\n".join(paragraphs))
    assert all(len(text) <= MAX_PIECE and text.startswith("Paragraph") for _, text in found)
    assert " ".join(text for _, text in found).split() == " ".join(paragraphs).split()
    assert [number for number, _ in found[:2]] == [3, 9]


@pytest.mark.parametrize("text", ["word " * 1500, "x" * 5000, "x\n" * 3000, "a " * 1000])
def test_a_long_line_is_cut_at_a_space_and_nothing_is_lost(text: str) -> None:
    found = cut(text)
    assert all(0 < len(piece) <= MAX_PIECE for _, piece in found)
    assert "".join("".join(piece for _, piece in found).split()) == "".join(text.split())
    assert {word for _, piece in found for word in piece.split()} == set(text.split()) or " " not in text


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.txt", "Hello", "txt"),
        ("a.txt", "[Music] hello", "txt"),
        ("a.txt", "{braces} here", "txt"),
        ("a.txt", '{"text": "a"}', "jsonl"),
        ("a.txt", '[{"text": "a"}]', "json"),
        ("a.md", "[link](x)", "md"),
    ],
)
def test_content_tells_text_from_rows(tmp_path: Path, name: str, text: str, kind: str) -> None:
    (tmp_path / name).write_text(text)
    assert file_kind(tmp_path / name) == kind
    if kind in ("txt", "md"):
        assert list(read_rows(tmp_path / name)) == [(1, {"text": text})]
        assert sniff(tmp_path / name).format == "text"


def test_a_damaged_piece_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# One\nfine\n# Two\nbad\nworse \0\n")
    problems: list[tuple[int, TunesmithError]] = []
    assert list(read_rows(path, lambda line, error: problems.append((line, error)))) == [(1, {"text": "# One\nfine"})]
    ((line, error),) = problems
    assert (line, error.code) == (3, "dataset-parse-error")
    assert "line 5: a NUL byte" in error.message


def test_a_document_of_blank_lines_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("\n \n")
    with pytest.raises(TunesmithError) as caught:
        list(read_rows(tmp_path / "a.md"))
    assert caught.value.code == "dataset-empty"
