"""The one file layer: every durable write of core, setup and engine goes through here.

Write beside, fsync, rename, fsync the folder: after a crash a reader finds the old file or the new one, never half of
one. Named crash points let tests kill the process between any two of these steps.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import stat
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tunesmith_core import json_values
from tunesmith_core.messages import Message

CRASHPOINT_VARIABLE = "TUNESMITH_CRASHPOINT"

OTHERS_HOLD_FILES = os.name == "nt"
"""Whether a file that another program has open can't be renamed."""

DISK_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM})
"""What a disk says that is full, read-only, failing or held by another program: the same may succeed a little later."""

RENAME_RETRY_S = 10.0
"""How long a change is retried on Windows, where antivirus holds fresh files open (uv waits as long)."""


PRIVATE_UMASK = 0o077
"""For processes that write nothing but what one person owns: `os.umask(PRIVATE_UMASK)`."""


def crashpoint(name: str) -> None:
    """Kill this process without clean-up if a test named this point in TUNESMITH_CRASHPOINT."""
    if os.environ.get(CRASHPOINT_VARIABLE) == name:  # pragma: no cover - the process dies here
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable; Windows has no such call and needs none for NTFS metadata."""
    if os.name == "nt":  # pragma: no cover
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make the content of a file that another library wrote durable (Windows needs a write handle for it)."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Rename a file over another, retrying while another program holds it open."""
    _patiently(lambda: source.replace(target))


def remove(path: Path) -> None:
    """Remove a file that may be gone already, retrying while another program holds it open."""
    _patiently(lambda: path.unlink(missing_ok=True))


def _patiently(change: Callable[[], object]) -> None:
    deadline = time.monotonic() + RENAME_RETRY_S
    pause_s = 0.01
    while True:
        try:
            change()
        except PermissionError:
            if not OTHERS_HOLD_FILES or time.monotonic() > deadline:
                raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 1.0)
        else:
            return


def atomic_write_bytes(path: Path, content: bytes) -> None:
    """Replace a file's content so that a crash leaves the old content or the new.

    Raises:
        OSError: as the file system says; the temporary file is removed and the old content stands.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(temporary, "wb", opener=_create_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        crashpoint("file.before-rename")
        replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    crashpoint("file.after-rename")
    fsync_folder(path.parent)


def atomic_write_text(path: Path, text: str) -> None:
    """Replace a file's content with UTF-8 text; see `atomic_write_bytes`."""
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_json(path: Path, value: Any) -> None:  # Any: JSON values
    """Replace a file's content with readable JSON; see `atomic_write_bytes`."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Half a surrogate pair, as in the name of a file that is no UTF-8: only an escape can say it.
        text = json.dumps(value, indent=2, allow_nan=False)
    atomic_write_text(path, text + "\n")


def append_json_line(path: Path, value: Any) -> int:  # Any: JSON values
    """Append a row to a JSONL file, which is made where there is none, and return how many rows it has now.

    A crash leaves the old rows or the old rows and the new one. A last line without an end gets one first.

    Raises:
        OSError: as the file system says; the old rows stay.
    """
    before = b""
    if path.exists():
        with open_file(path) as file:
            before = file.read()
    if before and not before.endswith(b"\n"):
        before += b"\n"
    row = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    atomic_write_bytes(path, before + row)
    return sum(1 for line in (before + row).split(b"\n") if line.strip())


def _create_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def open_file(path: Path, mode: str = "rb", buffering: int = -1) -> IO[bytes]:
    """Open an ordinary file; a new one is its owner's alone.

    Raises:
        OSError: as the file system says, and for anything else: a pipe or a device would never end, or never begin.
    """
    return open(path, mode, buffering, opener=_open_ordinary)


def _open_ordinary(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "Not an ordinary file", path)


def read_json(path: Path) -> Any:  # Any: JSON values
    """Read a JSON file.

    Raises:
        OSError: when it can't be read. ValueError: when it is no JSON.
    """
    with open_file(path) as file:
        return json_values.parse(file.read())


def read_foreign_json(path: Path, most_bytes: int) -> Any:  # Any: JSON values
    """Read a JSON file that a person brings: of a limited size, and without two values of one name.

    Raises:
        OSError: when it can't be read. ValueError: when it is no such JSON, see `json_values.parse`.
    """
    with open_file(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(Message("the file is larger than {most} MiB", most=most_bytes >> 20))
    return json_values.parse(content, unique_names=True)


_FOLDER_MODE = 0o777 if os.name == "nt" else 0o700
# Windows folders inherit who may read them. Newer Pythons take 0o700 there for the owner alone, which is the group of
# administrators, and not the person, when the program was once started with an administrator's rights.


def private_folder(folder: Path) -> Path:
    """Create a folder and the missing ones above it for their owner alone, unless it is there; return it.

    Raises:
        OSError: as the file system says.
    """
    try:
        _make_folder(folder)
    except FileNotFoundError:
        # Another process may be making the same ones. Below /proc, nobody can.
        if folder.parent != folder and not folder.parent.is_dir():
            private_folder(folder.parent)
        _make_folder(folder)
    return folder


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(_FOLDER_MODE)
    except OSError:
        # Windows refuses the root of a drive in other words than that it exists.
        if not folder.is_dir():
            raise


def make_private(path: Path) -> None:
    """Leave one of our files or folders to its owner alone, which an earlier version did not do.

    Another person's, and those on a drive without permissions, stay as they are. On Windows folders inherit who may
    read them, and a person's profile is private.
    """
    if sys.platform != "win32":  # pragma: no branch
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_mode & PRIVATE_UMASK and status.st_uid == os.geteuid():
                path.chmod(stat.S_IMODE(status.st_mode) & ~PRIVATE_UMASK)


def publish_folder(staging: Path, final: Path) -> None:
    """Rename a complete staging folder to its final name; an existing final name is never replaced.

    Raises:
        FileExistsError: when the final name is taken.
    """
    fsync_folder(staging)
    crashpoint("folder.before-rename")
    if final.exists():
        raise FileExistsError(errno.EEXIST, "already exists", str(final))
    replace(staging, final)
    crashpoint("folder.after-rename")
    fsync_folder(final.parent)


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_tree(path: Path) -> str:
    """Return the digest of a file, or of the names and digests of all files in a folder."""
    if not path.is_dir():
        return sha256_file(path)
    digest = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        digest.update(f"{file.relative_to(path).as_posix()}\0{sha256_file(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def digest_text(digest: bytes) -> str:
    """Return a digest as a wheel's RECORD writes it: base64 with letters safe in addresses, without padding."""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def free_bytes(path: Path) -> int:
    """Return the free space of the volume that holds a path or would hold it."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def folder_bytes(folder: Path, *, linked: bool = False) -> int:
    """Return the size of all files below a folder: what people are told everywhere.

    A file with several names counts once, except on Windows, where a folder does not tell which files those are; files
    that vanish meanwhile count as nothing.

    Args:
        folder: where they are.
        linked: whether a link to a file counts as that file, as in a model whose files are kept elsewhere.
    """
    # Not os.walk and Path: this is asked for every other second while twenty thousand files are installed.
    total, pending = 0, [str(folder)]
    met: set[tuple[int, int]] = set()
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as items:
            for item in items:
                with contextlib.suppress(OSError):
                    if item.is_dir(follow_symlinks=False):
                        pending.append(item.path)
                        continue
                    found = item.stat(follow_symlinks=linked)
                    if stat.S_ISDIR(found.st_mode) or (found.st_dev, found.st_ino) in met:
                        continue
                    if found.st_nlink > 1:
                        met.add((found.st_dev, found.st_ino))
                    total += found.st_size
    return total


def probe_writable(folder: Path) -> None:
    """Create the folder if needed and write a test file into it.

    Raises:
        OSError: when the folder can't be created or written.
    """
    private_folder(folder)
    probe = folder / f".probe-{uuid.uuid4().hex[:8]}"
    try:
        probe.write_bytes(b"tunesmith")
    finally:
        probe.unlink(missing_ok=True)
