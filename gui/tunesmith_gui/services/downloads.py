"""Downloads from a hub: those of this window, and those that were begun earlier and are not whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from tunesmith_core import downloads, files, paths
from tunesmith_core.downloads import Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.hub import DOWNLOAD, HubSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.settings import SettingsFile
from tunesmith_gui.background import Job
from tunesmith_gui.services.operation import OperationTask

GOING_NAME = "downloads.json"
"""In the folder of settings: what this window downloads, for the next one to continue."""

MakeTask = Callable[[Kind, HubSpec, QObject], OperationTask]


class DownloadState(StrEnum):
    """What a download is doing."""

    GOING = "going"
    STOPPING = "stopping"
    PAUSED = "paused"
    FAILED = "failed"
    ELSEWHERE = "elsewhere"
    """Another process downloads it."""
    DONE = "done"


class HubDownload(QObject):
    """A model on its way to this computer.

    Attributes:
        id, revision: what is asked for.
        done_bytes, total_bytes: how far it is; 0 while that is not known.
        bytes_per_s, remaining_s: of the last seconds; None when unknown.
        waits: what the hub did that is waited for, else None.
        error: why it failed.

    Signals:
        changed: one of these is another.
        ended: it is done, failed or paused.
    """

    changed = Signal()
    ended = Signal()

    def __init__(self, hub_id: str, revision: str, parent: QObject) -> None:
        super().__init__(parent)
        self.id, self.revision = hub_id, revision
        self.state = DownloadState.PAUSED
        self.done_bytes = self.total_bytes = 0
        self.bytes_per_s = 0.0
        self.remaining_s: float | None = None
        self.waits: TunesmithError | None = None
        self.error: TunesmithError | None = None
        self.task: OperationTask | None = None
        self.discards = False

    @property
    def live(self) -> bool:
        """Whether this window downloads it now."""
        return self.state in (DownloadState.GOING, DownloadState.STOPPING)

    def begin(self, make_task: MakeTask) -> None:
        """Download, or continue."""
        self.error, self.waits, self.discards = None, None, False
        self.state = DownloadState.GOING
        self.task = make_task(DOWNLOAD, HubSpec(self.id, self.revision), self)
        self.task.happened.connect(self._on_event)
        self.task.ended.connect(self._on_end)
        self.task.start()
        self.changed.emit()

    def stop(self) -> None:
        """End it; what arrived stays."""
        if self.state is DownloadState.GOING and self.task is not None:
            self.state = DownloadState.STOPPING
            self.task.cancel()
            self.changed.emit()

    def _on_event(self, event: Event) -> None:
        data = event.data
        if event.type == "plan":
            self.total_bytes = data["total_bytes"]
        elif event.type == "waiting":
            self.waits = TunesmithError(data["code"], data["message"])
        elif event.type == "progress":
            if data["done_bytes"] != self.done_bytes:
                self.waits = None
            self.done_bytes, self.total_bytes = data["done_bytes"], data["total_bytes"]
            self.bytes_per_s, self.remaining_s = data.get("bytes_per_s", 0.0), data.get("remaining_s")
        self.changed.emit()

    def _on_end(self, outcome: Outcome) -> None:
        cancelled = self.task is not None and self.task.cancelled
        self.bytes_per_s, self.remaining_s, self.waits = 0.0, None, None
        # It may have come to its end before the stop arrived.
        if outcome.state is OperationState.FINISHED:
            self.state = DownloadState.DONE
        elif cancelled or outcome.error is None:
            self.state = DownloadState.PAUSED
        else:
            self.state, self.error = DownloadState.FAILED, outcome.error
        self.changed.emit()
        self.ended.emit()


class DownloadService(QObject):
    """Every download that is not whole.

    Attributes:
        downloads: in the order in which they were begun.

    Signals:
        changed: `downloads` has other ones, or one is in another state.
        finished: (HubDownload) a model is on this computer now.
        failed: (TunesmithError) what was asked for could not be done.
    """

    changed = Signal()
    finished = Signal(object)
    failed = Signal(object)

    def __init__(self, make_task: MakeTask = OperationTask) -> None:
        super().__init__()
        self._make_task = make_task
        self.downloads: list[HubDownload] = []
        self._going: list[list[str]] = []
        self._writing = threading.Lock()

    def start(self, hub_id: str, revision: str = "") -> HubDownload:
        """Download a model, or continue; return the one that is going already where there is one."""
        download = self._of(hub_id, revision) or self._add(hub_id, revision)
        if not download.live:
            download.begin(self._make_task)
            self.changed.emit()
        return download

    def give_up(self, download: HubDownload) -> None:
        """End a download and delete what arrived of it."""
        download.discards = True
        if download.live:
            download.stop()
        else:
            self._discard(download)

    def refresh(self) -> None:
        """Look for downloads that were begun elsewhere or earlier."""
        Job.start(self, _begun, self._take, self.failed.emit)

    def resume(self) -> None:
        """Continue what an earlier window was downloading when it was closed or killed; what was paused stays so."""

        def take(found: list[tuple[str, str]]) -> None:
            for hub_id, revision in found:
                self.start(hub_id, revision)

        Job.start(self, _left_going, take, self.failed.emit)

    def shutdown(self) -> None:
        """End those that are going: the program is closing, and its next start continues them."""
        for download in self.downloads:
            if download.live and download.task is not None:
                download.task.abandon()

    def _of(self, hub_id: str, revision: str) -> HubDownload | None:
        return next((each for each in self.downloads if (each.id, each.revision) == (hub_id, revision)), None)

    def _add(self, hub_id: str, revision: str) -> HubDownload:
        download = HubDownload(hub_id, revision, self)
        download.ended.connect(lambda: self._on_end(download))
        download.changed.connect(self._note_going)
        self.downloads.append(download)
        return download

    def _note_going(self) -> None:
        going = [[each.id, each.revision] for each in self.downloads if each.state is DownloadState.GOING]
        if going != self._going:
            self._going = going
            Job.start(self, self._write_going, lambda _nothing: None, self.failed.emit)

    def _write_going(self) -> None:
        with self._writing:
            files.private_folder(_going_path().parent)
            files.atomic_write_json(_going_path(), self._going)

    def _remove(self, download: HubDownload) -> None:
        if download in self.downloads:
            self.downloads.remove(download)
        self.changed.emit()

    def _on_end(self, download: HubDownload) -> None:
        if download.state is DownloadState.DONE:
            self._remove(download)
            self.finished.emit(download)
        elif download.discards:
            self._discard(download)
        else:
            self.changed.emit()
            self.refresh()

    def _discard(self, download: HubDownload) -> None:
        def work() -> None:
            for begun in downloads.unfinished():
                if (begun.asked, begun.revision) == (download.id, download.revision):
                    downloads.discard(begun)

        Job.start(self, work, lambda _nothing: self._remove(download), self.failed.emit)

    def _take(self, begun: list[tuple[Download, int, bool]]) -> None:
        names = {(each.asked, each.revision) for each, _done, _going in begun}
        for download in list(self.downloads):
            if not download.live and download.error is None and (download.id, download.revision) not in names:
                self.downloads.remove(download)
        for each, done_bytes, going in begun:
            download = self._of(each.asked, each.revision) or self._add(each.asked, each.revision)
            if download.live:
                continue
            download.done_bytes, download.total_bytes = done_bytes, each.total_bytes
            if going:
                download.state = DownloadState.ELSEWHERE
            elif download.error is None:
                download.state = DownloadState.PAUSED
            download.changed.emit()
        self.changed.emit()


def _begun() -> list[tuple[Download, int, bool]]:
    return [(each, each.done_bytes(), downloads.is_going(each)) for each in downloads.unfinished()]


def _going_path() -> Path:
    return paths.config_dir() / GOING_NAME


def _left_going() -> list[tuple[str, str]]:
    """Return what an earlier window was downloading; nothing while one works offline or another process does it."""
    if SettingsFile().values.offline:
        return []
    try:
        noted = [(str(hub_id), str(revision)) for hub_id, revision in files.read_json(_going_path())]
    except (OSError, ValueError, TypeError):
        return []
    begun = {(each.asked, each.revision): each for each in downloads.unfinished()}
    return [name for name in noted if name in begun and not downloads.is_going(begun[name])]


def free_bytes() -> int:
    """Return the free space of the drive that models go to. Called on worker threads."""
    return files.free_bytes(paths.models_dir())
