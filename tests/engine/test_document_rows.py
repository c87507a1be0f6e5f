"""Web pages, Word documents and PDF files become pieces of text with their headings; each row names its place."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypdf
import pytest
from transformers import AutoTokenizer

from tests.documents import write_docx, write_pdf
from tests.engine.prepared import prepare
from tests.engine.test_given_files import read, refusal_of
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data import document_rows
from tunesmith_engine.data.example import Example
from tunesmith_engine.data.read import Source

PAGE = """<html><head><title>Not read</title><style>p {}</style></head><body><nav>Home</nav>
<h1>First</h1><p>Some <b>bold</b> <a href="#w">words</a>, 5 * 3 &amp; caf\u00e9.</p><script>alert(1)</script>
<h2>Second</h2><ul><li>one</li><li>two</li></ul><img src="x.png" alt="picture"></body></html>"""


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252"])
def test_a_web_page_becomes_sections(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.html"
    path.write_bytes(PAGE.replace("<head>", f'<head><meta charset="{encoding}">').encode(encoding))
    places, said, source = read(path)
    assert places == [f"{path}, part 1", f"{path}, part 2"]
    assert said == ["# First\n\nSome **bold** words, 5 * 3 & caf\u00e9.", "## Second\n\n- one\n- two"]
    assert source.row_format == "text"


def test_a_web_page_without_text_one_too_deep_and_one_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.htm"
    path.write_text("<html><script>1</script></html>")
    assert refusal_of(path).code == "dataset-empty"
    path.write_text("<div>" * 20_000 + "deep")
    assert "nested too deeply" in refusal_of(path).message
    monkeypatch.setattr(document_rows, "MAX_DOCUMENT_BYTES", 1000)
    assert "the document is larger than" in refusal_of(path).message


def test_a_word_document_becomes_sections(tmp_path: Path) -> None:
    paragraphs = [("Heading1", "First"), ("", "Some words & more."), ("Heading2", "Second"), ("", "The end.")]
    path = write_docx(tmp_path / "a.docx", paragraphs)
    places, said, _ = read(path)
    assert places == [f"{path}, part 1", f"{path}, part 2"]
    assert said == ["# First\n\nSome words & more.", "## Second\n\nThe end."]


def test_a_damaged_word_document_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_docx(tmp_path / "a.docx", [("", "words " * 100)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "the Word document is damaged" in refusal_of(path).message
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.xml", "<a/>")
    assert "the Word document is damaged" in refusal_of(path).message
    path.write_bytes(whole)
    monkeypatch.setattr(document_rows, "MAX_DOCUMENT_BYTES", 100)
    assert "the document is larger than" in refusal_of(path).message


def test_the_text_of_a_pdf_is_read_page_by_page(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["One (1).", "", "Three."])
    places, said, source = read(path)
    assert places == [f"{path}, page 1", f"{path}, page 3"]
    assert said == ["One (1).", "Three."]
    assert source.notes["dataset-parts-unread"].endswith("which are pictures or empty (1): 2.")


def test_lines_of_a_paragraph_in_a_pdf_are_joined(tmp_path: Path) -> None:
    lines = ["The balm smells of", "pine, and the exam-", "ple of Mr. New-", "Man from 2020-", "2021 ends."]
    items = ["it is so.", "Take:", "water", "a) one", "b) two"]
    path = write_pdf(tmp_path / "a.pdf", ["\n".join(["A Heading", *lines, *items])])
    _, (said,), _ = read(path)
    first = "A Heading\nThe balm smells of pine, and the example of Mr. New-Man from 2020-2021 ends."
    assert said == f"{first}\nit is so.\nTake:\nwater\na) one\nb) two"


def test_pictures_of_pages_passwords_and_damage_have_errors_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["", ""])
    refusal = refusal_of(path)
    assert "the pages are pictures without text (2)" in refusal.message
    assert "OCR" in refusal.hint

    writer = pypdf.PdfWriter(clone_from=write_pdf(tmp_path / "b.pdf", ["One."]))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(path)
    refusal = refusal_of(path)
    assert "the PDF is encrypted" in refusal.message
    assert "without a password" in refusal.hint

    path.write_bytes(b"%PDF-1.4\nnothing more")
    assert "the PDF is damaged" in refusal_of(path).message

    def fail(*_: object, **__: object) -> None:
        raise pypdf.errors.PdfReadError("so " * 100 + "\nand more")

    with monkeypatch.context() as patch:
        patch.setattr(pypdf, "PdfReader", fail)
        assert refusal_of(path).message == f"{path}: the PDF is damaged: {('so ' * 100)[:200]}."
    pypdf.PdfWriter().write(path)
    assert refusal_of(path).code in ("dataset-empty", "dataset-parse-error")


def test_a_pdf_that_only_forbids_changes_is_read(tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(clone_from=write_pdf(tmp_path / "b.pdf", ["One."]))
    writer.encrypt("", "owner", algorithm="RC4-128")
    writer.write(tmp_path / "a.pdf")
    assert read(tmp_path / "a.pdf")[1] == ["One."]


def test_a_page_that_cannot_be_read_is_a_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["One.", "Two.", "Three."])
    extract = pypdf.PageObject.extract_text

    def failing(page: Any) -> str:
        text = str(extract(page))
        if text.startswith("Two"):
            raise KeyError("/Font")
        return text

    monkeypatch.setattr(pypdf.PageObject, "extract_text", failing)
    assert f"{path}, page 2: the page can't be read" in refusal_of(path).message
    source = Source(SourceSpec(path=str(path)), skip_bad_rows=True)
    assert [number for number, _ in source.conversations()] == [1, 3]
    assert source.num_skipped_rows == 1


Sides = tuple[Counter[str], Counter[str], dict[str, str]]


def document(path: Path, letter: str, num_pieces: int) -> str:
    """Write a document whose pieces say of which document they are, and return its path."""
    path.write_text("\n\n".join(f"# {letter}{number}\n\n{letter} text" for number in range(num_pieces)))
    return str(path)


def sides(tiny_spec: Callable[..., RunSpec], tokenizer: Any, path: Path) -> Sides:
    """Return how many pieces of which document are trained and held out, and what is said of them."""
    data = prepare(tiny_spec(data={"path": str(path)}, evaluation={"percent": 10.0}), tokenizer)

    def letters(rows: list[Example]) -> Counter[str]:
        return Counter(tokenizer.decode(row.input_ids).partition("# ")[2][0] for row in rows)

    return letters(data.train), letters(data.eval), data.notes


@pytest.fixture
def tokenizer(tiny_model: Path) -> Any:  # Any: a transformers tokenizer
    return AutoTokenizer.from_pretrained(tiny_model)


def test_the_pieces_of_a_document_are_on_one_side(
    tiny_spec: Callable[..., RunSpec], tokenizer: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    for letter in "abcdefghij":
        document(folder / f"{letter}.md", letter, 6)
    train, held_out, _notes = sides(tiny_spec, tokenizer, folder)
    assert (set(train.values()), set(held_out.values()), len(held_out)) == ({6}, {6}, 1)
    assert not train.keys() & held_out.keys()


def test_where_documents_make_another_share_that_is_said(
    tiny_spec: Callable[..., RunSpec], tokenizer: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    for letter in "abc":
        document(folder / f"{letter}.md", letter, 10)
    _train, held_out, notes = sides(tiny_spec, tokenizer, folder)
    assert sum(held_out.values()) == 10
    assert notes["dataset-groups"] == "Held out: 10 of 30 rows, because documents stay whole."


def test_of_one_document_some_pieces_are_held_out(
    tiny_spec: Callable[..., RunSpec], tokenizer: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.md"
    document(path, "a", 20)
    train, held_out, _notes = sides(tiny_spec, tokenizer, path)
    assert (train["a"], held_out["a"]) == (18, 2)
