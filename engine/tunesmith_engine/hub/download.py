"""A whole model from a hub: several files at a time, into a folder that gets its name when all are verified."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from tunesmith_core import downloads, files
from tunesmith_core.downloads import RECORD, Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import WEIGHTS, HubFile
from tunesmith_core.messages import Message
from tunesmith_core.model_config import check_config
from tunesmith_core.model_folder import hub_folder, open_model_folder
from tunesmith_core.model_json import read_object
from tunesmith_engine.hub.attempts import ASKING, Retry, Stopped
from tunesmith_engine.hub.client import Hub, chosen_hub
from tunesmith_engine.hub.transfer import fetch

NUM_AT_ONCE = 4
TELL_S = 0.5
RATE_S = 10.0
"""The rate is that of so many seconds."""

DOWNLOADING = Message("downloading")
WAITING = Message("waiting for the hub")

OF_THE_MODEL = frozenset({"model-kind-unsupported", "model-files-missing-or-corrupt", "model-pickle-refused"})
OF_THE_ACCESS = frozenset({"hub-gated-401", "hub-token-refused", "hub-not-found", "disk-full"})
"""Errors after which a download is not continued, the second ones where none of the weights has come."""


class Journal(Protocol):
    """Where events go."""

    def event(self, kind: str, /, **data: Any) -> None:  # Any: JSON values
        """Append an event."""


def download(
    journal: Journal,
    hub_id: str,
    revision: str = "",
    *,
    endpoint: str = "",
    retry: Retry | None = None,
    num_at_once: int = NUM_AT_ONCE,
) -> Path:
    """Download a model, or what is missing of it, and return its folder. One that is there already is not touched.

    Args:
        journal: told how it goes.
        hub_id: of the model.
        revision: of it; "" for the newest.
        endpoint: of the hub; "" for the one of the surroundings.
        retry: how long the network is waited for; None for a short while until it has begun, then for long.
        num_at_once: files at a time.

    Raises:
        TunesmithError: what the hub or the network did, what is wrong with the model, or `disk-full`.
        OSError: as the file system says. Unless the model was refused, what arrived stays, and the next call continues.
    """
    folder = hub_folder(hub_id, revision)
    with downloads.held(folder):
        if folder.is_dir():
            return folder
        place: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}  # Any: as Hub takes them
        place |= {"stop": threading.Event(), "on_wait": lambda error, pause_s: tell_wait(journal, error, pause_s)}
        has_begun = downloads.read_record(downloads.staging_of(folder)) is not None
        asking = chosen_hub(retry=retry or (Retry() if has_begun else ASKING), **place)
        wanted = Download(asking.facts(hub_id, revision), hub_id, revision)
        hub = chosen_hub(retry=retry or Retry(), **place)
        wanted.check_owner()
        journal.event("plan", id=wanted.model.id, total_bytes=wanted.total_bytes, num_files=len(wanted.files))
        staging = _prepare(wanted)
        try:
            wanted.check_space()
            return _bring(hub, wanted, staging, journal, num_at_once)
        except TunesmithError as error:
            if _is_refusal(error, wanted, staging):
                shutil.rmtree(staging, ignore_errors=True)
            raise


def _bring(hub: Hub, wanted: Download, staging: Path, journal: Journal, num_at_once: int) -> Path:
    work = _Work(hub, wanted, staging, journal)
    small = [file for file in wanted.files if not file.path.endswith(WEIGHTS)]
    work.run(small, num_at_once)
    # Gigabytes of a model that can't be trained would come for nothing.
    check_config(staging / "config.json", read_object(staging / "config.json"))
    work.run(list(wanted.files[len(small) :]), num_at_once)
    open_model_folder(staging)
    files.crashpoint("download.before-publish")
    files.publish_folder(staging, wanted.folder)
    return wanted.folder


def _is_refusal(error: TunesmithError, wanted: Download, staging: Path) -> bool:
    """Return whether there is nothing to continue: the model can't be used, or nothing of its weights may come."""
    if error.code in OF_THE_MODEL:
        return True
    weights = (file for file in wanted.files if file.path.endswith(WEIGHTS))
    return error.code in OF_THE_ACCESS and not any(downloads.held_bytes(staging, file) for file in weights)


def tell_wait(journal: Journal, error: TunesmithError, pause_s: float) -> None:
    """Say that the hub is waited for, and why."""
    journal.event("waiting", name=WAITING, code=error.code, message=error.message, seconds=pause_s)


def _prepare(wanted: Download) -> Path:
    """Make the staging folder, or keep of an earlier one what belongs to the same content."""
    staging = wanted.staging
    files.private_folder(staging)
    before = downloads.read_record(staging)
    held = set(before.files) if before else set[HubFile]()
    kept = {RECORD} | {name for file in held & set(wanted.files) for name in (file.path, f"{file.path}.part")}
    for path in staging.iterdir():
        if path.name not in kept:
            files.remove(path)
    wanted.save(staging)
    files.crashpoint("download.after-record")
    return staging


class _Work:
    """Downloads files in threads and tells how far it is."""

    def __init__(self, hub: Hub, wanted: Download, staging: Path, journal: Journal) -> None:
        self._hub, self._wanted, self._staging, self._journal = hub, wanted, staging, journal
        self._total_bytes = wanted.total_bytes
        self._done_bytes = wanted.done_bytes()
        self._turn = threading.Lock()
        self._marks = deque([(time.monotonic(), self._done_bytes)])

    def run(self, wanted: list[HubFile], num_at_once: int) -> None:
        """Bring files. Raises the first error of any, when no thread works any more."""
        waiting: queue.SimpleQueue[HubFile] = queue.SimpleQueue()
        for file in wanted:
            if not (self._staging / file.path).is_file():
                waiting.put(file)
        errors: list[Exception] = []
        threads = [
            threading.Thread(target=self._bring, args=(waiting, errors), name=f"download-{number}", daemon=True)
            for number in range(min(num_at_once, waiting.qsize()))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(TELL_S)
                    self._tell()
        finally:
            # Nobody appends to a file any more once the lock of the download is given back.
            self._hub.stop.set()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]
        self._hub.stop.clear()
        self._tell()

    def _bring(self, waiting: queue.SimpleQueue[HubFile], errors: list[Exception]) -> None:
        try:
            while not self._hub.stop.is_set():
                fetch(self._hub, self._wanted.model, waiting.get_nowait(), self._staging, self._arrived)
        except queue.Empty:
            return
        except Stopped:
            return
        except Exception as error:
            errors.append(error)
            self._hub.stop.set()

    def _arrived(self, num_bytes: int) -> None:
        with self._turn:
            self._done_bytes += num_bytes

    def _tell(self) -> None:
        now_s, done = time.monotonic(), self._done_bytes
        self._marks.append((now_s, done))
        while len(self._marks) > 2 and now_s - self._marks[0][0] > RATE_S:
            self._marks.popleft()
        since_s, since = self._marks[0]
        rate = max(0.0, (done - since) / max(now_s - since_s, 1e-3))
        remaining = {"remaining_s": (self._total_bytes - done) / rate} if rate else {}
        self._journal.event(
            "progress",
            name=DOWNLOADING,
            done_bytes=done,
            total_bytes=self._total_bytes,
            bytes_per_s=rate,
            **remaining,
        )
