"""Rows as tokens, kept for the next start with the same data: tokenizing large data takes minutes.

An entry is a folder named by a hash of everything that decides its content: the bytes of the data files, the settings
that make rows tokens, the files of the tokenizer and the versions of what reads them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import tunesmith_core
from tunesmith_core import data_library, files, paths
from tunesmith_core.locks import FileLock
from tunesmith_core.messages import packed, restored
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.rows_file import FILES

VERSION = 8
"""Of what is kept; another one keeps nothing of before."""

MOST_BYTES = 8 << 30
"""Of all entries; those that were not used for longest are removed first."""

LEAST_FREE_BYTES = 4 << 30
"""With less free space nothing is kept."""

ANSWER = "prepared.json"
BEGUN = ".begun"
"""Ends the name of the folder of a part."""

WEIGHTS = frozenset({".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".onnx", ".msgpack"})
LIBRARIES = ("tokenizers", "transformers")
DATE = "strftime_now"
"""By this name a chat template writes the date of today."""


def key_of(spec: RunSpec, folder: Path, chat_template: object) -> str:
    """Return the name of the entry of a run's data, "" when it can't be known by its files.

    Args:
        spec: the run.
        folder: of the model.
        chat_template: of the tokenizer.
    """
    data = [data_library.file_hash(Path(source.path)) for source in spec.all_sources()]
    tokenizer = {
        path.name: data_library.file_hash(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix not in WEIGHTS
    }
    if not all(data) or not all(tokenizer.values()):
        return ""
    decides = [
        VERSION,
        tunesmith_core.__version__,
        [importlib.metadata.version(name) for name in LIBRARIES],
        data,
        tokenizer,
        spec.model.chat_template,
        spec.model.new_tokens,
        dataclasses.asdict(spec.data),
        dataclasses.asdict(spec.objective),
        [spec.evaluation.path, spec.evaluation.percent, spec.evaluation.groups_by, spec.schedule.seed],
        datetime.datetime.now().astimezone().date().isoformat() if DATE in str(chat_template) else "",
    ]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def begun_folder(key: str) -> Path | None:
    """Return where the part of an entry stands that is done, None where there can be no entry."""
    return _folder() / f".{key}{BEGUN}" if key else None


def fetch(key: str, folder: Path) -> dict[str, Any] | None:  # Any: JSON values
    """Put the rows of an entry into a folder; return what was kept with them, None when there is no whole entry."""
    entry = _folder() / key
    try:
        kept = files.read_json(entry / ANSWER)
        for name in FILES:
            if (entry / name).stat().st_size != kept["sizes"][name]:
                return None
            _link(entry / name, folder / name)
        # The least recently used ones go first.
        os.utime(entry / ANSWER)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    answer: dict[str, Any] = restored(kept["answer"])
    return answer


def keep(key: str, folder: Path, answer: dict[str, Any]) -> None:  # Any: JSON values
    """Keep the rows of a folder, and what is known of them; where that is impossible, nothing happens."""
    if not key:
        return
    with contextlib.suppress(OSError, TimeoutError):
        sizes = {name: (folder / name).stat().st_size for name in FILES}
        size = sum(sizes.values())
        if size > MOST_BYTES or files.free_bytes(paths.cache_dir()) < size + LEAST_FREE_BYTES:
            return
        staging = _folder() / f".{uuid.uuid4().hex}"
        files.private_folder(staging)
        try:
            for name in sizes:
                _link(folder / name, staging / name)
                files.fsync_file(staging / name)
            files.atomic_write_json(staging / ANSWER, {"sizes": sizes, "answer": packed(answer)})
            with FileLock(paths.locks_dir() / "token-cache.lock").waiting(1.0):
                _make_room()
                shutil.rmtree(_folder() / key, ignore_errors=True)
                files.publish_folder(staging, _folder() / key)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _folder() -> Path:
    return paths.cache_dir() / "tokens"


def _link(source: Path, target: Path) -> None:
    """Give a file a second place without a copy, where the file system can; nobody changes it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _make_room() -> None:
    """Remove the entries that were not used for longest until the others fit, and what a crash left."""
    entries = []
    for folder in _folder().iterdir():
        if folder.suffix == BEGUN and not _is_old(folder):
            continue
        try:
            used = (folder / ANSWER).stat().st_mtime
        except OSError:
            # One that is being written, or was when its run was stopped, has no answer yet, and is young.
            used = 0.0 if _is_old(folder) else float("inf")
        entries.append((used, folder))
    total = sum(files.folder_bytes(folder) for _, folder in entries)
    for used, folder in sorted(entries):
        if total > MOST_BYTES or not used:
            total -= files.folder_bytes(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _is_old(folder: Path) -> bool:
    week_s = 7 * 86_400.0
    with contextlib.suppress(OSError):
        return folder.stat().st_mtime < datetime.datetime.now().timestamp() - week_s
    return True
