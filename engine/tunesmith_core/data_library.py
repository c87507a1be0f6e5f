"""The data library: named sets of data files, each with the versions that were seen of it and the runs that used them.

Files are truth: a set names files that stay where they are, and a version is the hash of their bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt, files, json_values, paths
from tunesmith_core.checkpoint_manifest import newest_noted
from tunesmith_core.errors import TunesmithError
from tunesmith_core.locks import FileLock
from tunesmith_core.messages import Message
from tunesmith_core.runs import Run, iter_runs
from tunesmith_core.spec_sections import SourceSpec

VERSION = 1
LOCK_WAIT_S = 10.0
SYNTHETIC = "synthetic"
"""A column that is true in rows that a model wrote."""
REVIEWED = "reviewed"
"""A column that is true in those of them that a person has kept."""

SHORT = 16
"""Letters of a file's hash that a run notes, see `noted_hash`."""

RECENT_NS = 3_000_000_000
"""Some file systems keep times to two seconds only."""

MOST_CACHED = 1_000
"""Hashes of files that are remembered, the newest ones."""


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The bytes that a set had at some time.

    Attributes:
        hash: of all files, see `content_hash`.
        noted: the same as runs note it, see `noted_hash`.
        size_bytes: of all files.
        seen: seconds since 1970 when it was first seen.
    """

    hash: str
    noted: str
    size_bytes: int
    seen: float


@dataclass(frozen=True, slots=True)
class DataSet:
    """A named set of data files.

    Attributes:
        name: unique, for people.
        sources: the files and how they are laid out.
        created: seconds since 1970.
        format: of the first file, "auto" when it was not recognized.
        columns: of the first file.
        versions: oldest first; the last is that of the files now, or when they were last there.
    """

    name: str
    sources: tuple[SourceSpec, ...]
    created: float
    format: str = "auto"
    columns: tuple[str, ...] = ()
    versions: tuple[DataVersion, ...] = ()

    @property
    def is_synthetic(self) -> bool:
        """Whether a model wrote its rows, as the column says that questions about documents have."""
        return SYNTHETIC in self.columns

    @property
    def missing(self) -> list[str]:
        """The files that are not there."""
        return [source.path for source in self.sources if not Path(source.path).is_file()]


@dataclass(frozen=True, slots=True)
class DataUse:
    """A run that was made with the files of a set.

    Attributes:
        run: its id.
        version: hash of the version that it saw; "" when it noted none, or one that the set does not know.
    """

    run: str
    version: str


def sets() -> list[DataSet]:
    """Return all sets by name; a version that is new is noted."""
    with _registry() as known:
        for name, each in known.items():
            known[name] = _with_version(each)
        return sorted(known.values(), key=lambda each: each.name.casefold())


def find(name: str) -> DataSet:
    """Return a set by its name. Raises UserError `dataset-unknown`."""
    found = next((each for each in sets() if each.name == name), None)
    if found is None:
        raise TunesmithError("dataset-unknown", "There is no data set named {name} in the library.", name=name)
    return found


def add(name: str, sources: Sequence[SourceSpec], *, overwrite: bool = False) -> DataSet:
    """Keep files under a name; a set of the same files keeps its versions, and so does one whose files are replaced.

    Args:
        name: of the set.
        sources: the files.
        overwrite: whether they replace others that have this name.

    Raises:
        UserError: what is wrong with a file; `usage` without a name or files; `dataset-name-taken`, with the `path` of
            what has the name and a `free` one.
    """
    if not name.strip() or not sources:
        raise TunesmithError("usage", "A data set needs a name and at least one file.")
    if any(sign in name for sign in "/\\"):
        # Commands take files and names alike.
        raise TunesmithError("usage", "The name of a data set can't hold / or \\: {name}", name=name)
    sources = [dataclasses.replace(each, path=str(Path(each.path).expanduser().absolute())) for each in sources]
    head = datafmt.sniff(Path(sources[0].path), encoding=sources[0].encoding)
    with _registry() as known:
        before = known.get(name)
        if before and not overwrite and [each.path for each in before.sources] != [each.path for each in sources]:
            free = next(free for number in count(2) if (free := paths.numbered(name, number)) not in known)
            raise TunesmithError(
                "dataset-name-taken",
                "The library already keeps {path} as {name}.",
                hint=Message('Choose another name, such as "{free}", or add --overwrite to replace it.', free=free),
                name=name,
                path=", ".join(each.path for each in before.sources),
                free=free,
            )
        known[name] = _with_version(
            DataSet(
                name,
                tuple(sources),
                before.created if before else time.time(),
                head.format if sources[0].format == "auto" else sources[0].format,
                head.columns,
                before.versions if before else (),
            )
        )
        return known[name]


def remove(name: str) -> None:
    """Forget a set; its files stay where they are. Raises UserError `dataset-unknown`."""
    with _registry() as known:
        if known.pop(name, None) is None:
            raise TunesmithError("dataset-unknown", "There is no data set named {name} in the library.", name=name)


def users(data_set: DataSet, runs: Iterable[Run] | None = None) -> list[DataUse]:
    """Return the runs that were made with these files or with a version of them, newest first.

    Args:
        data_set: the set.
        runs: those that are looked at; all when None.
    """
    by_noted = {version.noted: version.hash for version in data_set.versions}
    wanted = [source.path for source in data_set.sources]
    uses = []
    for run in runs if runs is not None else iter_runs():
        manifest = newest_noted(run.checkpoints_path)
        noted = str(manifest.fingerprint.get("data", "")) if manifest else ""
        if noted in by_noted:
            uses.append(DataUse(run.id, by_noted[noted]))
            continue
        with contextlib.suppress(TunesmithError, OSError):
            if [source.path for source in run.load_spec().data.sources] == wanted:
                uses.append(DataUse(run.id, ""))
    return uses[::-1]


def content_hash(files_of_set: Sequence[Path]) -> str:
    """Return the hash of the bytes of files, "" when one can't be read: of a single one its SHA-256."""
    hashes = list(map(file_hash, files_of_set))
    if not all(hashes):
        return ""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def noted_hash(files_of_set: Sequence[Path]) -> str:
    """Return the hash of files as a run notes it."""
    return ", ".join(file_hash(path)[:SHORT] for path in files_of_set)


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file as hex, "" when it can't be read; one of the same size and times is read once."""
    try:
        # A pipe would wait for somebody who writes.
        if not path.is_file():
            return ""
        stat = path.stat()
        key, stamp = str(path.absolute()), [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        cached = _cached().get(key)
        if isinstance(cached, list) and cached[:-1] == stamp and json_values.is_text(cached[-1]):
            return str(cached[-1])
        digest = files.sha256_file(path)
        # One that changed so lately may change again without another time.
        is_settled = path.stat().st_mtime_ns == stat.st_mtime_ns < time.time_ns() - RECENT_NS
    except (OSError, ValueError):
        return ""
    if not is_settled:
        return digest
    with contextlib.suppress(OSError, TimeoutError), _lock():
        hashes = _cached()
        hashes.pop(key, None)
        hashes[key] = [*stamp, digest]
        files.private_folder(_cache_path().parent)
        files.atomic_write_json(_cache_path(), dict(list(hashes.items())[-MOST_CACHED:]))
    return digest


def _cache_path() -> Path:
    return paths.cache_dir() / "data-hashes.json"


def _library_path() -> Path:
    return paths.config_dir() / "data-sets.json"


def _cached() -> dict[str, Any]:  # Any: JSON values
    try:
        values = files.read_json(_cache_path())
    except (OSError, ValueError):
        return {}
    kept = values if isinstance(values, dict) else {}
    return {key: each for key, each in kept.items() if isinstance(each, list) and len(each) == 4}


@contextmanager
def _lock() -> Iterator[None]:
    with FileLock(paths.locks_dir() / "data-library.lock").waiting(LOCK_WAIT_S):
        yield


@contextmanager
def _registry() -> Iterator[dict[str, DataSet]]:
    """Give all sets by name, and write them when they were changed. A set that can't be read is left as it is."""
    with _lock():
        values = _read()
        known: dict[str, DataSet] = {}
        for name, each in values.items():
            with contextlib.suppress(TypeError, ValueError, AttributeError):
                known[name] = json_values.read(DataSet, each)
        before = dict(known)
    # Hashing takes its time and the lock of the hashes, so the sets are not held meanwhile.
    yield known
    if known == before:
        return
    with _lock():
        values = _read()
        for name in before.keys() - known.keys():
            values.pop(name, None)
        changed = {name: each for name, each in known.items() if before.get(name) != each}
        values |= {name: json.loads(json.dumps(dataclasses.asdict(each))) for name, each in changed.items()}
        files.private_folder(_library_path().parent)
        files.atomic_write_json(_library_path(), {"version": VERSION, "sets": values})


def _read() -> dict[str, Any]:  # Any: JSON values
    try:
        values = files.read_json(_library_path())
    except (OSError, ValueError):
        return {}
    found = values.get("sets") if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}


def _with_version(data_set: DataSet) -> DataSet:
    """Return a set with the version that its files have now, as the last one."""
    found = [Path(source.path) for source in data_set.sources]
    now = content_hash(found)
    if not now or (data_set.versions and data_set.versions[-1].hash == now):
        return data_set
    size = sum(path.stat().st_size for path in found)
    earlier = next((version for version in data_set.versions if version.hash == now), None)
    version = earlier or DataVersion(now, noted_hash(found), size, time.time())
    kept = (each for each in data_set.versions if each.hash != now)
    return dataclasses.replace(data_set, versions=(*kept, version))
