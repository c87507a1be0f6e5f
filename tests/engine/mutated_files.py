"""Files of every kind with one planted fault each, whose place is known; reads them and tells how each ended.

    python -m tests.engine.mutated_files SEED FIRST END FOLDER

writes a line of JSON before each file and after it, so that whoever started this knows which file ended the process.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import zstandard
from pyarrow import ipc, parquet

from tests.documents import write_docx, write_pdf
from tests.workbooks import write_workbook
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import Source

HANGS_S = 5
WORDS = ["plain", "ünï", "中文", "😀", "a b", "it's", "tab\there", "{x}", "[1]", "a;b", "a|b", "%", "\\", "ß", "5"]


@dataclass(frozen=True, slots=True)
class Case:
    """A file and the place of its fault, as an error must begin; "" where it only must name the file or be read.

    A fault that is no error is told in a note that ends as given.
    """

    name: str
    path: Path
    place: str
    note: str = ""


Made = tuple[str, bytes, str]
"""Name of the fault, content of the file, place behind the path."""


def texts(chance: random.Random, num: int) -> list[tuple[str, str]]:
    """Return questions and answers; the first has a letter beyond ASCII, which tells the encoding."""
    said = [(_text(chance), _text(chance)) for _ in range(num)]
    return [("ünï", "ok"), *said]


def _text(chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 6)))


JSON_FAULTS = tuple("colon comma value escape control open extra nan huge empty type answer".split())


def json_row(chance: random.Random, question: str, answer: str, fault: str = "") -> tuple[str, int, str]:
    """Return a row as JSON, where in it the fault is, and what stands behind the line for faults of meaning."""
    space = lambda: " " * chance.choice([0, 0, 1, 2])  # noqa: E731 - as short as what it makes
    quoted = [json.dumps(text, ensure_ascii=chance.random() < 0.5) for text in (question, answer)]
    asks = ["{", space(), '"question"', space(), ":", space(), quoted[0], space(), ",", space()]
    parts = [*asks, '"answer"', space(), ":", space(), quoted[1], space(), "}"]
    place, shift, column = {"colon": 12, "comma": 8, "extra": 16}.get(fault, 14), 0, ""
    if fault in ("colon", "comma"):
        parts[place] = "=" if fault == "colon" else ";"
    elif fault in ("value", "nan", "huge"):
        parts[place] = {"value": "nope", "nan": "NaN", "huge": "1e999"}[fault]
    elif fault in ("escape", "control"):
        parts[place] = '"ab' + ("\\q" if fault == "escape" else "\x01") + 'cd"'
        shift = 3
    elif fault == "open":
        parts[place:] = ['"never closed']
    elif fault == "extra":
        parts.append("x")
        shift = 1
    elif fault in ("empty", "type"):
        parts[place] = '""' if fault == "empty" else "5"
        column = ', column "answer"'
    elif fault == "answer":
        parts[10] = '"ansver"'
        column = ": the row has no column"
    return "".join(parts), sum(map(len, parts[:place])) + shift, column


def jsonl(chance: random.Random) -> Made:
    """Make JSON Lines."""
    rows, fault = texts(chance, chance.randint(2, 30)), chance.choice(JSON_FAULTS)
    bad = chance.randrange(1, len(rows))
    end = chance.choice(["\n", "\r\n"])
    lines: list[str] = []
    place = ""
    for number, (question, answer) in enumerate(rows):
        lines += [""] * (chance.random() < 0.1)
        text, column, behind = json_row(chance, question, answer, fault if number == bad else "")
        indent = " " * chance.choice([0, 0, 0, 3])
        if number == bad:
            place = f", line {len(lines) + 1}" + (behind or f", column {column + len(indent) + 1}")
        lines.append(indent + text)
    mark = chance.choice([b"", b"", b"\xef\xbb\xbf"])
    return fault, mark + end.join(lines).encode() + end.encode() * chance.randint(0, 2), place


def json_list(chance: random.Random, splits: bool = False) -> Made:
    """Make one JSON list, or an object with one for training."""
    rows, fault = texts(chance, chance.randint(2, 30)), chance.choice([name for name in JSON_FAULTS if name != "extra"])
    bad = chance.randrange(1, len(rows))
    text, place = chance.choice(["", "\n"]) + "[", ""
    if splits:
        before = f'"test": [{json_row(chance, "a", "b")[0]}], ' if chance.random() < 0.5 else ""
        text = "{" + before + '"train": ['
    for number, (question, answer) in enumerate(rows):
        text += ("," if number else "") + chance.choice(["", "\n", "\n  "])
        row, column, behind = json_row(chance, question, answer, fault if number == bad else "")
        if number == bad:
            at = len(text) + column
            line, begin = text.count("\n") + 1, text.rfind("\n") + 1
            place = f", row {number + 1}{behind}" if behind else f", line {line}, column {at - begin + 1}"
        text += row
        if fault == "open" and number == bad:
            break
    return fault, (text + ("]}" if splits else "]")).encode(), place


CSV_FAULTS = ("fields", "quote", "nul", "byte", "empty")


def table(chance: random.Random, delimiter: str = "") -> Made:
    """Make CSV or TSV, with line ends in fields."""
    rows, fault = texts(chance, chance.randint(2, 30)), chance.choice(CSV_FAULTS)
    bad, end = chance.randrange(1, len(rows)), chance.choice(["\n", "\r\n"])
    delimiter = delimiter or chance.choice(",;|")
    quoting = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])

    def line_of(fields: Sequence[str]) -> str:
        file = io.StringIO()
        csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting).writerow(fields)
        return file.getvalue()

    content, place = line_of(["question", "answer"]).encode(), ""
    for number, (question, answer) in enumerate(rows):
        if chance.random() < 0.1:
            question += "\nmore\n"
        row = line_of([question, answer])
        if number == bad:
            place = f", line {content.count(bytes([10])) + 1}" + (', column "answer"' if fault == "empty" else "")
            faulty = {
                "fields": line_of(["x", "y", "z"]),
                "quote": f'"a" b{delimiter}c{end}',
                "nul": line_of(["x\0y", "z"]),
                "empty": line_of(["x", " "]),
                "byte": line_of(["x", "y\udcff"]),
            }
            row = faulty[fault]
        content += row.encode("utf-8", "surrogateescape")
    return fault, content, place


def document(chance: random.Random) -> Made:
    """Make text with a character that no text has."""
    lines = ["ünï", *(_text(chance) if chance.random() < 0.8 else "" for _ in range(chance.randint(3, 60)))]
    fault, bad = chance.choice(["nul", "byte"]), chance.randrange(1, len(lines))
    lines[bad] = "ab\0cd" if fault == "nul" else "ab\udcff"
    return fault, "\n".join(lines).encode("utf-8", "surrogateescape"), f", line {bad + 1}"


def tables(chance: random.Random, kind: str) -> Made:
    """Make Parquet, Arrow or Excel."""
    rows: list[list[str | None]] = [list(row) for row in texts(chance, chance.randint(2, 40))]
    bad = chance.randrange(1, len(rows))
    rows[bad][1] = chance.choice([None, "", " "])
    place = f', row {bad + 1}, column "answer"'
    file = io.BytesIO()
    if kind == "xlsx":
        num_blank = chance.randint(0, 2)
        path = Path(file_name(chance, ".xlsx"))
        write_workbook(path, {"A": [*([[]] * num_blank), ["question", "answer"], *rows]})
        content = path.read_bytes()
        path.unlink()
        return "empty", content, f', row {bad + 2 + num_blank}, column "answer"'
    data = pyarrow.table({"question": [row[0] for row in rows], "answer": [row[1] for row in rows]})
    if kind == "parquet":
        compression = chance.choice(["none", "zstd"])
        parquet.write_table(data, file, row_group_size=chance.randint(1, 50), compression=compression)
    else:
        write = chance.choice([ipc.new_file, ipc.new_stream])
        with write(file, data.schema) as writer:
            writer.write_table(data, max_chunksize=chance.randint(1, 50))
    return "empty", file.getvalue(), place


def file_name(chance: random.Random, suffix: str) -> str:
    """Return a name for a file that is needed for a moment."""
    return str(FOLDER / f"part{chance.randrange(1 << 30)}{suffix}")


FOLDER = Path()


def damaged(chance: random.Random, name: str, whole: bytes) -> bytes:
    """Return a file with some bytes changed, lost or added."""
    content = bytearray(whole)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(content))
        way = chance.choice(["flip", "cut", "insert", "repeat"])
        if way == "flip":
            content[at] ^= 1 << chance.randrange(8)
        elif way == "cut":
            del content[at : at + chance.choice([1, 10, len(content)])]
        elif way == "insert":
            content[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
        else:
            content[at:at] = content[at : at + 50]
        if not content:
            return name.encode()
    return bytes(content)


TEXT_KINDS: dict[str, Callable[[random.Random], Made]] = {
    ".jsonl": jsonl,
    ".json": json_list,
    ".csv": table,
    ".tsv": lambda chance: table(chance, "\t"),
    ".md": document,
    ".txt": document,
    ".parquet": lambda chance: tables(chance, "parquet"),
    ".arrow": lambda chance: tables(chance, "arrow"),
    ".xlsx": lambda chance: tables(chance, "xlsx"),
}


def packed(chance: random.Random, number: int) -> Case:
    """Make a compressed file, an archive or a folder with the fault in one of its files."""
    suffix = chance.choice(list(TEXT_KINDS))
    fault, content, place = TEXT_KINDS[suffix](chance)
    way = chance.choice(["gz", "zst", "zip", "folder"])
    if way in ("gz", "zst"):
        path = FOLDER / f"{number}{suffix}.{way}"
        path.write_bytes((gzip.compress if way == "gz" else zstandard.ZstdCompressor().compress)(content))
        return Case(f"{suffix}.{way} {fault}", path, f"{path}{place}")
    path = FOLDER / (f"{number}.zip" if way == "zip" else str(number))
    good = "\n".join(json_row(chance, *pair)[0] for pair in texts(chance, 3))
    names = {"a/good.jsonl": good.encode(), f"b/bad{suffix}": content, "c/good.jsonl": good.encode(), "x.png": b"\x89"}
    if way == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in names.items():
                archive.writestr(name, data)
        return Case(f"zip {suffix} {fault}", path, f"{path}/b/bad{suffix}{place}")
    for name, data in names.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return Case(f"folder {suffix} {fault}", path, f"{path / 'b' / f'bad{suffix}'}{place}")


def pages(chance: random.Random, number: int) -> Case:
    """Make a PDF of which the text of one page can't be found."""
    num = chance.randint(2, 6)
    path = write_pdf(FOLDER / f"{number}.pdf", [f"Page {page}." for page in range(num)])
    bad = chance.randrange(num)
    wanted = f"/Contents {5 + 2 * bad} 0 R".encode()
    path.write_bytes(path.read_bytes().replace(wanted, b"/Contents 5".ljust(len(wanted))))
    return Case("pdf page", path, "", f"(1): {bad + 1}.")


def broken(chance: random.Random, number: int) -> Case:
    """Make a file of any kind with damage anywhere."""
    kind = chance.choice([*TEXT_KINDS, ".pdf", ".docx", ".html", ".zip", ".gz", ".zst"])
    path = FOLDER / f"{number}{kind}"
    if kind in TEXT_KINDS:
        content = TEXT_KINDS[kind](chance)[1]
    elif kind == ".pdf":
        content = write_pdf(path, ["One.", "Two."]).read_bytes()
    elif kind == ".docx":
        content = write_docx(path, [("Heading1", "One"), ("", "Two.")]).read_bytes()
    elif kind == ".html":
        content = b"<html><h1>One</h1><p>Two &amp; <b>three</b></p><table><tr><td>4</table></html>"
    else:
        inner = jsonl(chance)[1]
        if kind == ".zip":
            file = io.BytesIO()
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("a.jsonl", inner)
            content = file.getvalue()
        else:
            content = (gzip.compress if kind == ".gz" else zstandard.ZstdCompressor().compress)(inner)
    path.write_bytes(damaged(chance, "x", content))
    return Case(f"damaged {kind}", path, "")


def make(seed: int, number: int) -> Case:
    """Make one file; the same numbers make the same file."""
    chance = random.Random(f"{seed} {number}")
    way = chance.random()
    if way < 0.2:
        return packed(chance, number)
    if way < 0.4:
        return broken(chance, number)
    if way < 0.42:
        return pages(chance, number)
    if way < 0.5:
        fault, content, place = json_list(chance, splits=True)
        path = FOLDER / f"{number}.json"
        path.write_bytes(content)
        return Case(f"splits {fault}", path, f"{path}{place}")
    suffix = chance.choice(list(TEXT_KINDS))
    fault, content, place = TEXT_KINDS[suffix](chance)
    path = FOLDER / f"{number}{suffix}"
    path.write_bytes(content)
    return Case(f"{suffix} {fault}", path, f"{path}{place}")


class HangsError(Exception):
    """Reading took too long."""


def judge(case: Case) -> str:
    """Return "right", or what is wrong with how reading a file ended."""
    signal.alarm(HANGS_S)
    try:
        source = Source(SourceSpec(path=str(case.path)), skip_bad_rows=False)
        for _ in source.conversations():
            pass
        said, code = "".join(source.notes.values()), ""
    except HangsError:
        return "hangs"
    except TunesmithError as error:
        said, code = error.message, error.code
    except BaseException as error:
        return f"crashes: {error!r}"[:500]
    finally:
        signal.alarm(0)
    if case.place:
        # Of a folder a sentence before it may tell of the files that are not data.
        begin = r"(?:^|\. )" if case.path.is_dir() else "^"
        is_right = re.search(begin + re.escape(case.place) + r"(?!\d|, column \d)", said) is not None
        return "right" if is_right else f"wrong place: {case.place} is called {said}"
    if case.note:
        return "right" if said.endswith(case.note) else f"wrong place: {case.note} is told {said}"
    return "right" if not code or str(case.path) in said else f"wrong place: {said}"


def _hangs(*_arguments: Any) -> None:
    raise HangsError


def _say(value: list[Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Judge the files with the numbers FIRST to END."""
    global FOLDER
    seed, first, end = map(int, sys.argv[1:4])
    FOLDER = Path(sys.argv[4])
    signal.signal(signal.SIGALRM, _hangs)
    for number in range(first, end):
        _say([number, None])
        case = make(seed, number)
        before = time.monotonic()
        _say([number, judge(case), case.name, time.monotonic() - before])
        if case.path.is_file():
            case.path.unlink()


if __name__ == "__main__":
    main()
