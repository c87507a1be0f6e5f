"""The list of every file of an environment, taken when it was built: what damage is found and repaired by.

Metadata of packages say "installed" when files are gone, cut or changed, so each file is compared with what it was: by
size and time within seconds, by SHA-256 on demand. The list begins with its own digest and holds the manifest's text,
so that damage of either is noticed and mended too. A change that keeps both size and time, such as a decaying disk,
shows only when the bytes are read. An environment of an older version has no list; the wheels' RECORDs serve then.
"""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from tunesmith_core import environments, files
from tunesmith_core.environments import MANIFEST, PROOF
from tunesmith_setup.packages import wheel_records

INVENTORY = environments.FILE_LIST
site_folders = environments.site_folders
NOT_LISTED = frozenset({INVENTORY, MANIFEST, PROOF})
LINK_MARK = "link:"
MAX_KEPT_BYTES = 512 * 1024
"""Files that no wheel brings (pyvenv.cfg, scripts that activate) are kept in the list itself up to this size."""
MAX_KEPT_SCRIPT_BYTES = 4096
"""So are start scripts, which the installer writes for a wheel."""
WRITTEN_BY_INSTALLER = frozenset({"RECORD", "INSTALLER", "REQUESTED"})
"""And what it writes among a wheel's metadata, whatever the size: the download cache does not have it."""
PYC_HEADER_BYTES = 16


class Kind(StrEnum):
    """What is wrong with a file."""

    MISSING = "missing"
    CHANGED = "changed"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it should be.

    Attributes:
        size: in bytes; None when it is not known.
        mtime_ns: time of its last change, None when it is not known: then the size decides, or the digest.
        digest: SHA-256 in the letters of a RECORD, "link:" and the target for a symbolic link, "" when not known.
        executable: whether it may be started as a program; None when it is not known or means nothing.
        kept: its content in base64 where no wheel brings the file.
    """

    size: int | None
    mtime_ns: int | None
    digest: str
    executable: bool | None = None
    kept: str = ""

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return self.digest.startswith(LINK_MARK)


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as it should be; `path` is relative to the environment, with slashes."""

    path: str
    kind: Kind
    entry: Entry | None = None

    def __str__(self) -> str:
        return f"{self.path} ({self.kind})"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every file of an environment.

    Attributes:
        entries: by path relative to the environment, with slashes.
        manifest: text of the environment's manifest; None when it was not recorded.
        complete: whether files that are not listed are strangers everywhere, or only among the packages.
    """

    entries: dict[str, Entry]
    manifest: str | None
    complete: bool = True


def scan(folder: Path) -> dict[str, Entry]:
    """Return what is there, without digests except those of symbolic links."""
    found: dict[str, Entry] = {}
    pending = [(str(folder), "")]
    while pending:
        parent, prefix = pending.pop()
        with os.scandir(parent) as items:
            for item in items:
                if item.is_symlink():
                    found[prefix + item.name] = Entry(None, None, LINK_MARK + str(Path(item.path).readlink()))
                elif item.is_dir():
                    pending.append((item.path, f"{prefix}{item.name}/"))
                else:
                    status = item.stat(follow_symlinks=False)
                    executable = None if os.name == "nt" else bool(status.st_mode & stat.S_IXUSR)
                    found[prefix + item.name] = Entry(status.st_size, status.st_mtime_ns, "", executable)
    return found


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of files, read by one thread a processor; "" for a file that can't be read."""

    def digest(name: str) -> tuple[str, str]:
        try:
            return name, wheel_records.digest_of(folder / name)
        except OSError:
            return name, ""

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(digest, names))


def take(folder: Path, manifest: str | None) -> Inventory:
    """Return the list of an environment that is known to be good; digests of wheels' files come from their RECORDs."""
    found = scan(folder)
    entries = {name: entry for name, entry in found.items() if name not in NOT_LISTED}
    recorded = from_records(folder).entries
    known = {name: entry.digest for name, entry in recorded.items() if entry.digest}
    known |= digests(folder, (name for name, entry in entries.items() if name not in known and not entry.is_link))
    for name, entry in entries.items():
        if entry.size is not None:
            keep = _is_kept(name, entry.size, recorded=name in recorded)
            kept = base64.b64encode((folder / name).read_bytes()).decode() if keep else ""
            entries[name] = replace(entry, digest=known[name], kept=kept)
    return Inventory(entries, manifest)


def _is_kept(name: str, num_bytes: int, *, recorded: bool) -> bool:
    """Whether the content of a file goes into the list; that of compiled Python, which Python makes again, never."""
    path = PurePosixPath(name)
    if path.suffix == ".pyc":
        return False
    if path.name in WRITTEN_BY_INSTALLER and path.parent.suffix == ".dist-info":
        return True
    if not recorded:
        return num_bytes <= MAX_KEPT_BYTES
    return "site-packages" not in path.parts and num_bytes <= MAX_KEPT_SCRIPT_BYTES


def write(folder: Path, inventory: Inventory) -> None:
    """Write the list of an environment into it."""
    rows = [(name, *astuple(entry)) for name, entry in sorted(inventory.entries.items())]
    lines = [json.dumps(inventory.manifest), *(json.dumps(row, ensure_ascii=False) for row in rows)]
    body = "\n".join(lines) + "\n"
    files.atomic_write_text(folder / INVENTORY, f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}")


def seal(folder: Path, manifest: dict[str, object]) -> None:
    """Write list and manifest of an environment that is complete: the manifest last, its presence says that all is."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    write(folder, take(folder, text))
    files.crashpoint("environment.listed")
    files.atomic_write_text(folder / MANIFEST, text)


def read(folder: Path) -> Inventory | None:
    """Return the list of an environment; None when it has none, or a damaged one."""
    try:
        digest, _, body = (folder / INVENTORY).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            return None
    except OSError:
        return None
    manifest, *rows = (json.loads(line) for line in body.decode("utf-8").splitlines())
    return Inventory({name: Entry(*values) for name, *values in rows}, manifest)


def from_records(folder: Path) -> Inventory:
    """Return what the wheels' RECORDs tell about an environment: packages and scripts only, and no times."""
    entries: dict[str, Entry] = {}
    for site in site_folders(folder):
        prefix = site.relative_to(folder).as_posix()
        for file in wheel_records.recorded_files(site):
            # Python compiles again what a wheel brings compiled, so such a file only has to be there.
            compiled = file.name.endswith(".pyc")
            entry = Entry(None, None, "") if compiled else Entry(file.size, None, file.digest)
            entries[path_below(f"{prefix}/", file.name)] = entry
    return Inventory(entries, None, complete=False)


def path_below(prefix: str, recorded: str) -> str:
    """Return the path in an environment of a file that a RECORD below `prefix` names, such as "../../../bin/tool"."""
    return os.path.normpath(prefix + recorded).replace(os.sep, "/")


def compare(folder: Path, inventory: Inventory, *, full: bool = False) -> list[Damage]:
    """Return every file of an environment that is not as its list says, in order of their paths.

    Args:
        folder: the environment.
        inventory: its list.
        full: whether every byte is read; otherwise only files of another time than listed are.
    """
    found = scan(folder)
    damages, doubtful = [], []
    for name, entry in inventory.entries.items():
        there = found.get(name)
        if there is None:
            damages.append(Damage(name, Kind.MISSING, entry))
        elif _differs(entry, there):
            damages.append(Damage(name, Kind.CHANGED, entry))
        elif entry.digest and not entry.is_link and (full or _touched(entry, there)):
            doubtful.append(name)
    doubtful.sort(key=lambda name: -(found[name].size or 0))  # long files first, so that no thread ends up alone
    for name, digest in digests(folder, doubtful).items():
        if digest != inventory.entries[name].digest:
            damages.append(Damage(name, Kind.CHANGED, inventory.entries[name]))
    damages += _strangers(folder, inventory, found)
    damages += _manifest_damage(folder, inventory)
    return sorted(damages, key=lambda damage: damage.path)


def _differs(entry: Entry, there: Entry) -> bool:
    if entry.is_link or there.is_link:
        return entry.digest != there.digest
    if entry.executable and there.executable is False:
        return True
    return entry.size is not None and entry.size != there.size


def _touched(entry: Entry, there: Entry) -> bool:
    return entry.mtime_ns is not None and entry.mtime_ns != there.mtime_ns


def _strangers(folder: Path, inventory: Inventory, found: dict[str, Entry]) -> Iterator[Damage]:
    """Yield files that nobody installed; compiled Python that fits its source is a cache and none of them."""
    for name in found:
        if name in inventory.entries or name in NOT_LISTED:
            continue
        path = PurePosixPath(name)
        if not inventory.complete and "site-packages" not in path.parts:
            continue
        if path.suffix == ".pyc" and path.parent.name == "__pycache__" and _fits_source(folder / name):
            continue
        yield Damage(name, Kind.UNEXPECTED)


def _fits_source(compiled: Path) -> bool:
    """Return whether a compiled file was made from the source beside it, as its header tells (PEP 552)."""
    source = compiled.parent.parent / f"{compiled.name.split('.')[0]}.py"
    try:
        with compiled.open("rb") as file:
            header = file.read(PYC_HEADER_BYTES)
        status = source.stat()
    except OSError:
        return False
    mtime_s, size = int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF
    return header[4:] == bytes(4) + mtime_s.to_bytes(4, "little") + size.to_bytes(4, "little")


def _manifest_damage(folder: Path, inventory: Inventory) -> Iterator[Damage]:
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError:
        yield Damage(MANIFEST, Kind.MISSING)
        return
    if inventory.manifest is not None and text != inventory.manifest.encode():
        yield Damage(MANIFEST, Kind.CHANGED)
