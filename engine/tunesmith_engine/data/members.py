"""Files inside of others: what a gz or zst file holds, and the members of a ZIP archive, as streams.

Nothing is written under a name that an archive says, and what unpacks to far more than it takes is refused.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import re
import stat
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from tunesmith_core.datafmt.encoding import GZ, MAX_NAME, DataFile, Member, open_bytes, parse_error
from tunesmith_core.datafmt.reading import KIND_OF_SUFFIX
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, phrase

MAX_RATIO, FREE_BYTES = 100, 16 * 1024**2
"""What is compressed may unpack to so many times its size, and to so many bytes in any case."""

MAX_ENTRIES = 100_000
MAX_WINDOW_BYTES = 128 * 1024**2
"""Memory that a zst file may ask for."""

PACKED_BYTES = 1024
"""Of a zst file that are unpacked at once: each can become 32 KiB."""

DEVICE = re.compile(r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9¹²³])", re.IGNORECASE)
NO_NAME = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]|[. ]$')
MAX_PART_BYTES, MAX_NAME_BYTES = 255, 1024

ENCRYPTED = 1
"""Flag of a member that needs a password."""

DAMAGED = (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile)
"""What the libraries raise for damaged data."""


class Unpacked(io.RawIOBase):
    """The bytes of something compressed; it can be read from the beginning again.

    Args:
        place: named in errors.
        start: begins to unpack.
        most_bytes: that it may unpack to.
        has_lines: whether the place of damage is a line.
    """

    def __init__(self, place: str, start: Callable[[], BinaryIO], most_bytes: int, *, has_lines: bool) -> None:
        super().__init__()
        self._place, self._start, self._most, self._has_lines = place, start, most_bytes, has_lines
        self._stream: BinaryIO | None = None
        self._num_bytes = self._num_lines = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: the beginning can be sought."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to the beginning, or tell where it is."""
        if offset or whence == io.SEEK_END:
            raise io.UnsupportedOperation("only the beginning can be sought")
        if whence == io.SEEK_SET:
            self._restart()
        return self._num_bytes

    def readinto(self, buffer: Any) -> int:  # Any: a writable buffer
        """Read the next bytes, as many as come at once.

        Raises:
            UserError: `dataset-parse-error` when the data is damaged or unpacks to too much.
        """
        try:
            if self._stream is None:
                self._stream = self._start()
            data = cast(Any, self._stream).read1(len(buffer))
        except TunesmithError:
            raise
        except DAMAGED as error:
            raise self._damaged(error) from error
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            raise self._damaged(error) from error
        buffer[: len(data)] = data
        self._num_bytes += len(data)
        self._num_lines += data.count(b"\n") if self._has_lines else 0
        if self._num_bytes > self._most:
            raise _too_much(self._place)
        return len(data)

    def close(self) -> None:
        """Close what is unpacked."""
        self._restart()
        super().close()

    def _restart(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._num_bytes, self._num_lines = None, 0, 0

    def _damaged(self, error: Exception) -> TunesmithError:
        words = phrase(str(error).partition("\n")[0][:200] or type(error).__name__)
        line = Message("{path}, line {line}", path=self._place, line=self._num_lines + 1)
        return TunesmithError(
            "dataset-parse-error",
            "{place}: the compressed data is damaged: {error}.",
            hint="Copy or download the file again.",
            place=line if self._has_lines else self._place,
            error=words,
        )


def compressed(file: DataFile, kind: str) -> Member:
    """Return what a gz or zst file holds, which may be one of a ZIP archive."""
    num_bytes = file.stat().st_size if isinstance(file, Path) else file.num_bytes
    start = partial(_gunzip if kind == GZ else _unzstd, file)
    return _member(str(file), PurePosixPath(file.name).stem, start, FREE_BYTES + MAX_RATIO * num_bytes)


def _gunzip(file: DataFile) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(file) if isinstance(file, Path) else gzip.GzipFile(fileobj=file.opener()))


def _unzstd(file: DataFile) -> BinaryIO:
    # Imported here, because older environments lack the library and only such files need it.
    import zstandard

    def begin() -> Any:  # Any: zstandard has no types here
        return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()

    return cast(BinaryIO, _Frames(open_bytes(file), begin))


class _Frames:
    """The frames of a zst file behind each other; the library's own stream takes a cut file for a whole one."""

    def __init__(self, file: BinaryIO, begin: Callable[[], Any]) -> None:  # Any: zstandard has no types here
        self._file, self._begin = file, begin
        self._frame: Any = None
        self._packed = self._unpacked = b""

    def read1(self, num_bytes: int) -> bytes:
        """Return the next bytes; b"" at the end.

        Raises:
            EOFError: in the middle of a frame.
        """
        while not self._unpacked:
            self._packed = self._packed or self._file.read(PACKED_BYTES)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("the file is cut short")
                return b""
            self._frame = self._frame or self._begin()
            self._unpacked, self._packed = self._frame.decompress(self._packed), b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        data, self._unpacked = self._unpacked[:num_bytes], self._unpacked[num_bytes:]
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def zip_members(path: Path) -> list[Member]:
    """Return the files of a ZIP archive in the order of their names.

    Raises:
        UserError: `dataset-parse-error` when the archive is damaged, or holds what no archive of data does: links,
            names that lead elsewhere, the same name twice, a password, or far more than it takes.
    """
    try:
        with zipfile.ZipFile(cast(Any, open_bytes(path))) as archive:
            infos = archive.infolist()
    except DAMAGED as error:
        raise parse_error(path, "the ZIP archive is damaged: {error}.", error=phrase(str(error)[:200])) from error
    names = [info.filename for info in infos]
    if "[Content_Types].xml" in names or "mimetype" in names:
        words = Message("this is a workbook or a document. Give its name the right ending, such as .xlsx or .docx.")
        raise parse_error(path, words)
    if len(infos) > MAX_ENTRIES:
        raise parse_error(path, "the archive holds more than {most:,} files.", most=MAX_ENTRIES)
    for info in infos:
        if problem := _problem(info):
            named = repr(info.filename)[:MAX_NAME]
            raise parse_error(path, "the archive is not read: {name} {what}.", name=named, what=problem)
    if len({name.casefold() for name in names}) < len(names):
        raise parse_error(path, "the archive holds two files of the same name.")
    if sum(info.file_size for info in infos) > FREE_BYTES + MAX_RATIO * path.stat().st_size:
        raise _too_much(str(path))
    files = [info for info in infos if not info.is_dir()]
    return [
        dataclasses.replace(
            _member(f"{path}/{info.filename}", info.filename, _opener(path, info.filename), info.file_size),
            num_bytes=info.compress_size,
        )
        for info in sorted(files, key=lambda info: info.filename)
    ]


def _opener(path: Path, name: str) -> Callable[[], BinaryIO]:
    def start() -> BinaryIO:
        # The member keeps the file open that the archive lets go.
        with zipfile.ZipFile(path) as archive:
            return cast(BinaryIO, archive.open(name))

    return start


def _member(place: str, name: str, start: Callable[[], BinaryIO], most_bytes: int) -> Member:
    has_lines = Path(name).suffix.lower() in KIND_OF_SUFFIX

    def opener() -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(Unpacked(place, start, most_bytes, has_lines=has_lines), 128 * 1024))

    return Member(place, name, opener)


def _problem(info: zipfile.ZipInfo) -> Message | None:
    """Return why a member is not read, to stand behind its name; None for one that is."""
    mode = info.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return Message("is a link or a device, not a file")
    if not is_plain_name(info.filename.removesuffix("/")):
        return Message("is no file name that every system takes")
    if info.flag_bits & ENCRYPTED:
        return Message("is locked by a password")
    if info.file_size > FREE_BYTES + MAX_RATIO * info.compress_size:
        return Message("unpacks to more than {ratio} times its size", ratio=MAX_RATIO)
    return None


def is_plain_name(name: str) -> bool:
    """Return whether a relative name stays below its folder on Linux and on Windows alike."""
    parts = name.split("/")
    return len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES and all(map(_is_plain_part, parts))


def _is_plain_part(part: str) -> bool:
    return (
        part not in ("", ".", "..")
        and not NO_NAME.search(part)
        and not DEVICE.fullmatch(part.partition(".")[0].rstrip())
        and len(part.encode("utf-8", "replace")) <= MAX_PART_BYTES
    )


def _too_much(place: str) -> TunesmithError:
    return TunesmithError(
        "dataset-parse-error",
        "{place}: the file unpacks to more than {ratio} times its size, which no data does.",
        hint="Choose another file.",
        place=place,
        ratio=MAX_RATIO,
    )


def unpacked_into(folder: Path, file: DataFile) -> DataFile:
    """Return a file that lies on the disk: itself, or what an archive holds, unpacked into a folder."""
    if isinstance(file, Path):
        return file
    path = folder / f"member{file.suffix}"
    with file.opener() as stream, path.open("wb") as target:
        while chunk := stream.read(1024**2):
            target.write(chunk)
    return Member(file.place, file.name, lambda: open_bytes(path), path)


def path_of(file: DataFile) -> Path:
    """Return where a file lies that `unpacked_into` returned."""
    return file if isinstance(file, Path) else cast(Path, file.path)
