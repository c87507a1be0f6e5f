"""How many rows a Parquet file holds, read from its footer without a library.

The footer is a struct in Thrift's compact protocol (parquet.thrift, FileMetaData); the number of rows is its field 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.datafmt.encoding import open_bytes, parse_error
from tunesmith_core.errors import TunesmithError

MAGIC = b"PAR1"
_TAIL_BYTES = 8
_NUM_ROWS_FIELD = 3
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)


def count_rows(path: Path) -> int:
    """Return the number of rows.

    Raises:
        UserError: `dataset-parse-error` when the footer is missing or damaged, `dataset-empty` when there is no row.
    """
    with open_bytes(path) as file:
        num_bytes = file.seek(0, 2)
        file.seek(max(0, num_bytes - _TAIL_BYTES))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length > num_bytes - _TAIL_BYTES:
            raise parse_error(path, "the Parquet file is cut short.")
        file.seek(num_bytes - _TAIL_BYTES - length)
        footer = file.read(length)
    try:
        num_rows = Thrift(footer).number_of_rows()
    except (IndexError, ValueError, RecursionError) as error:
        raise parse_error(path, "the Parquet file is damaged.") from error
    if num_rows <= 0:
        raise TunesmithError("dataset-empty", "{path}: the Parquet file has no rows.", path=path)
    return num_rows


@dataclass(slots=True)
class Thrift:
    """Reads a struct in Thrift's compact protocol.

    Attributes:
        data: bytes that begin with it.
        place: up to where they are read.
    """

    data: bytes
    place: int = 0

    def number_of_rows(self) -> int:
        field = 0
        while kind := self.byte():
            field = field + (kind >> 4) if kind >> 4 else self.number()
            if field == _NUM_ROWS_FIELD:
                return self.number()
            self.skip(kind & 15)
        raise ValueError("no number of rows")

    def integers(self) -> dict[int, int]:
        """Return the fields of the struct that are whole numbers.

        Raises:
            IndexError, ValueError: when the data is damaged or ends before the struct does.
        """
        field, found = 0, {}
        while kind := self.byte():
            field = field + (kind >> 4) if kind >> 4 else self.number()
            if kind & 15 in _INTEGERS:
                found[field] = self.number()
            else:
                self.skip(kind & 15)
        return found

    def byte(self) -> int:
        value = self.data[self.place]
        self.place += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, kind: int) -> None:
        if kind in _INTEGERS:
            self.varint()
        elif kind == _BYTE:
            self.place += 1
        elif kind == _DOUBLE:
            self.place += 8
        elif kind == _BINARY:
            num_bytes = self.varint()
            self.place += num_bytes
        elif kind in (_LIST, _SET):
            self.skip_items()
        elif kind == _STRUCT:
            while field := self.byte():
                if not field >> 4:
                    self.varint()
                self.skip(field & 15)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(f"unexpected type {kind}")

    def skip_items(self) -> None:
        head = self.byte()
        num_items, kind = head >> 4, head & 15
        if num_items == 15:
            num_items = self.varint()
        for _ in range(num_items):
            # A truth value is part of a field's head, but a byte of its own in a list.
            self.skip(_BYTE if kind in (_TRUE, _FALSE) else kind)
            if self.place > len(self.data):
                raise ValueError("a list longer than the footer")
