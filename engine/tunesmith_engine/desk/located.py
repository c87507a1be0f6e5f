"""Where in its line something stands, and the rows that were not at hand when a rule named them."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tunesmith_core import datafmt, json_values
from tunesmith_core.datafmt.encoding import MAX_ROW_CHARACTERS, UTF_8, open_text, read_head, text_encoding
from tunesmith_core.datafmt.reading import header_names, table_head
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import BYTES_PER_S
from tunesmith_engine.desk.places import column_in_json, column_in_table
from tunesmith_engine.desk.problems import Found
from tunesmith_engine.desk.reading import TolerantSource

TABLES = frozenset({"csv", "tsv"})

ByLine = dict[int, list[Found]]


def locate(found: Iterable[Found], sources: Mapping[str, SourceSpec], portions: Portions) -> None:
    """Fill in the column of each place, and its row where that is missing and can be read.

    Args:
        found: places, by their files.
        sources: what each of the files belongs to.
        portions: told what is being read.
    """
    by_path: dict[str, ByLine] = defaultdict(lambda: defaultdict(list))
    for each in found:
        if each.line:
            by_path[each.path][each.line].append(each)
    for name, by_line in by_path.items():
        # A file that changed in the meantime leaves places without a column.
        with contextlib.suppress(UserError, OSError, UnicodeError):
            path = Path(name)
            if path.is_file():
                kind = datafmt.file_kind(path)
                portions.about(path, kind)
                portions.begin("reader", 0, more_cpu_s=path.stat().st_size / BYTES_PER_S)
                if kind == "jsonl" or kind in TABLES:
                    _locate_lines(path, kind, sources[name].encoding, by_line)
            _fetch_rows(sources[name], name, by_line, portions)


def _lines(path: Path, encoding: str, newline: str | None, last: int) -> Iterator[tuple[int, str]]:
    by_mark = text_encoding(path, read_head(path))
    with open_text(path, encoding if by_mark == "utf-8-sig" and encoding != UTF_8 else by_mark, newline) as file:
        for number in range(1, last + 1):
            line = file.readline(MAX_ROW_CHARACTERS + 1)
            if not line:
                return
            while len(line) > MAX_ROW_CHARACTERS and not line.endswith("\n"):
                line = "\n" if not (more := file.readline(MAX_ROW_CHARACTERS)) else more
            yield number, line


def _locate_lines(path: Path, kind: str, encoding: str, by_line: ByLine) -> None:
    header: list[str] = []
    delimiter, num_above = table_head(path, kind, encoding) if kind in TABLES else ("", 0)
    for number, line in _lines(path, encoding, "" if kind in TABLES else None, max(by_line)):
        if kind in TABLES and not header and line.strip():
            if not num_above:
                header = header_names(line.rstrip("\r\n").replace('"', "").split(delimiter))
            num_above -= 1
        for each in by_line.get(number, ()):
            if kind in TABLES:
                if each.keys:
                    each.column = column_in_table(line, header, delimiter, str(each.keys[0]))
                continue
            each.column = each.column or column_in_json(line, each.keys or (), each.offset)
            if each.row is None:
                with contextlib.suppress(ValueError):
                    value = json_values.loads(line)
                    each.row = value if isinstance(value, dict) else None


def _fetch_rows(source: SourceSpec, path: str, by_line: ByLine, portions: Portions) -> None:
    missing = {line for line, found in by_line.items() if any(each.row is None and each.is_readable for each in found)}
    if not missing:
        return

    def bad(_path: str, _line: int, _error: TunesmithError) -> None:
        """Leave out what was told before."""

    last = max(missing)
    tolerant = TolerantSource(source, portions, bad)
    for rows in tolerant.files():
        if tolerant.shown_path != path:
            continue
        for number, row in rows:
            for each in by_line.get(number, ()) if number in missing else ():
                each.row = row
            if number >= last:
                return
