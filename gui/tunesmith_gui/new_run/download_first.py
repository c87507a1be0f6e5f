"""A base model that a run names by its hub id comes before the run, as a download that can be paused and continued."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from tunesmith_core.spec import RunSpec
from tunesmith_gui.models.model_words import progress_text
from tunesmith_gui.services.downloads import DownloadService, DownloadState, HubDownload
from tunesmith_gui.tr import core_text, fill


class DownloadFirst(QObject):
    """Follows the download of the model of one run.

    Signals:
        changed: `live`, `words` or `share` is another.
        arrived: (RunSpec) the model is here; the run can start.
        paused: it was ended; what arrived is kept.
        failed: (TunesmithError) it did not come.
    """

    changed = Signal()
    arrived = Signal(object)
    paused = Signal()
    failed = Signal(object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._download: HubDownload | None = None
        self._spec: RunSpec | None = None

    @property
    def spec(self) -> RunSpec | None:
        """The run that waits for its model and was not given up."""
        return self._spec if self._download is not None else None

    @property
    def live(self) -> bool:
        """Whether a run waits for its model."""
        return self._download is not None

    @property
    def share(self) -> float:
        """How much has arrived, 0 to 1."""
        download = self._download
        return download.done_bytes / download.total_bytes if download and download.total_bytes else 0.0

    @property
    def words(self) -> str:
        """How far the download is."""
        download = self._download
        if download is None:
            return ""
        if download.state is DownloadState.STOPPING:
            return self.tr("Stopping…")
        if download.waits is not None:
            return fill(self.tr("Waiting: %1"), core_text(download.waits.title))
        far = progress_text(download.done_bytes, download.total_bytes, download.bytes_per_s, download.remaining_s)
        return far or self.tr("Asking the hub…")

    def begin(self, service: DownloadService, spec: RunSpec) -> None:
        """Download the model of a run, or follow the download that is going."""
        self._spec = spec
        self._download = service.start(spec.model.path, spec.model.revision)
        self._download.changed.connect(self.changed)
        self._download.ended.connect(self._on_end)
        self.changed.emit()

    def cancel(self) -> None:
        """Give up the run; what arrived of the model stays."""
        self._spec = None
        if self._download is not None:
            self._download.stop()

    def leave(self) -> HubDownload | None:
        """Follow the download no longer, which goes on; return it where there is one."""
        download, self._download = self._download, None
        if download is not None:
            download.changed.disconnect(self.changed)
            download.ended.disconnect(self._on_end)
            self.changed.emit()
        return download

    def _on_end(self) -> None:
        download = self.leave()
        if download is None:
            return
        if download.state is DownloadState.DONE:
            if self._spec is not None:
                self.arrived.emit(self._spec)
        elif download.error is not None:
            self.failed.emit(download.error)
        else:
            self.paused.emit()
