"""What is done of a preparation, kept until all of it is: a start after a stop or a crash continues behind it.

Rows are read and rendered again, which is the quick part. A batch whose rows are the same as then takes the tokens that
stand in the file; with the first that does not, or whose bytes are not as they were written, the work begins.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from tunesmith_core import files, paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.locks import FileLock
from tunesmith_engine.data.example import Example
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.tokenising import Rendered, Tokenised, batches_of

NAME = "batches"
LEAST_FREE_BYTES = 4 << 30
"""With less free space nothing is kept."""

_HEAD = struct.Struct("<32s32sQ")
"""Of a batch: a hash of its rows, a hash of the bytes that follow, and how many those are."""


class Begun:
    """The batches of one preparation that are done, in a file; a context manager. A disk that fails only ends that.

    Args:
        folder: for the file; None keeps nothing. One process at a time uses it, another one does without.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._lock: FileLock | None = None
        self._is_read = False

    def __enter__(self) -> Self:
        if self._folder is not None:
            lock = FileLock(paths.locks_dir() / f"tokens-{self._folder.name.strip('.')[:2]}.lock")
            with contextlib.suppress(OSError):
                if lock.acquire():
                    self._lock = lock
                    files.private_folder(self._folder)
                    # It stays as long as it is used, see `token_cache`.
                    os.utime(self._folder)
                    self._file = (self._folder / NAME).open("a+b", buffering=0)
                    self._file.seek(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        # With the same data the next start would fail in the same way.
        if isinstance(error, TunesmithError):
            self.remove()
        if self._lock:
            self._lock.release()

    def remove(self) -> None:
        """Keep nothing any more: all is done."""
        self._end()
        if self._lock and self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def examples(self, rendered: Iterable[Rendered], renderer: Renderer) -> Generator[Tokenised, None, None]:
        """Yield the tokens of each row, not yet cut to the context length."""
        batches = batches_of(rendered)
        for batch in batches:
            kept = self._take(batch, renderer)
            if kept is None:
                batches = chain([batch], batches)
                break
            yield from kept
        for batch, tokenised in renderer.tokenise_batches(batches):
            self._add(batch, tokenised)
            yield from tokenised

    def _take(self, batch: list[Rendered], renderer: Renderer) -> list[Tokenised] | None:
        """Return the tokens of the next batch in the file; None when it is another one, or damaged, or there is none.
        """
        if self._file is None or self._is_read:
            return None
        with contextlib.suppress(OSError):
            start = self._file.tell()
            payload = self._read(batch)
            if payload is not None:
                return [renderer.again(item, *kept) for item, kept in zip(batch, _kept(payload, batch), strict=True)]
            self._is_read = True
            self._file.truncate(start)
        return None

    def _read(self, batch: list[Rendered]) -> bytes | None:
        assert self._file
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        rows, written, num_bytes = _HEAD.unpack(head)
        left_bytes = os.fstat(self._file.fileno()).st_size - self._file.tell()
        if rows != _digest(batch) or num_bytes > left_bytes:
            return None
        payload = self._file.read(num_bytes)
        return payload if hashlib.blake2b(payload, digest_size=32).digest() == written else None

    def _add(self, batch: list[Rendered], tokenised: list[Tokenised]) -> None:
        """Write a batch behind the others. Where that fails, the batches before it remain."""
        if self._file is None or self._folder is None:
            return
        lengths = np.array([len(each.example.input_ids) for each in tokenised], dtype="<i8")
        rows = [
            part.astype("<i4", copy=False)
            for each in tokenised
            for part in (each.example.input_ids, each.example.labels, each.ends)
        ]
        payload = lengths.tobytes() + np.concatenate(rows).tobytes()
        head = _HEAD.pack(_digest(batch), hashlib.blake2b(payload, digest_size=32).digest(), len(payload))
        try:
            if files.free_bytes(self._folder) < LEAST_FREE_BYTES + len(payload):
                self._end()
            else:
                self._file.write(head + payload)
        except OSError:
            self._end()

    def _end(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _kept(payload: bytes, batch: list[Rendered]) -> Iterator[tuple[Example, NDArray[np.int64]]]:
    """Yield ids and labels of each row, and the characters behind its tokens."""
    lengths = np.frombuffer(payload, "<i8", len(batch)).tolist()
    values = np.frombuffer(payload, "<i4", offset=8 * len(batch)).astype(np.int32)
    start = 0
    for length in lengths:
        ids, labels, ends = values[start : start + 3 * length].reshape(3, length)
        yield Example(ids, labels), ends.astype(np.int64)
        start += 3 * length


def _digest(batch: list[Rendered]) -> bytes:
    """Return a hash of all that decides the tokens of rows beside the tokenizer, by which the folder is named."""
    digest = hashlib.blake2b(digest_size=32)
    for item in batch:
        decides = (item.text, item.trained, item.starts_document, item.literals, item.tokens)
        digest.update(repr(decides).encode())
    return digest.digest()
