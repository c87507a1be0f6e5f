"""Parquet files of a few bytes: a footer that says how many rows there are, and no rows."""

from __future__ import annotations

ROOT = b"\x48\x04root\x15\x02\x00"
"""A schema element: name and number of children."""


def zigzag(number: int) -> bytes:
    value = number << 1 if number >= 0 else (-number << 1) - 1
    result = b""
    while value > 127:
        result, value = result + bytes([value & 127 | 128]), value >> 7
    return result + bytes([value])


def parquet_of(num_rows: int, *elements: bytes) -> bytes:
    """A file whose footer names a version, a schema and a number of rows."""
    schema = elements or (ROOT,)
    items = b"\x19" + (bytes([len(schema) << 4 | 12]) if len(schema) < 15 else b"\xfc" + bytes([len(schema)]))
    return with_footer(b"\x15\x04" + items + b"".join(schema) + b"\x16" + zigzag(num_rows) + b"\x00")


def with_footer(footer: bytes) -> bytes:
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
