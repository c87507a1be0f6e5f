"""What a hub says of a chosen model that is not on this computer: how large it is, and whether there is room for it."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from tunesmith_core.downloads import SPARE_BYTES, Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import HubModel
from tunesmith_core.operations.kinds.hub import FACTS, HubSpec
from tunesmith_gui.background import Job
from tunesmith_gui.models.model_words import context_text, license_text, parameters_text, parts_text
from tunesmith_gui.services.downloads import free_bytes
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tr import fill, size, translate


@dataclass(frozen=True, slots=True)
class Offered:
    """A model of a hub, with what is missing of it here and the free space."""

    model: HubModel
    missing_bytes: int
    free_bytes: int

    @property
    def is_short(self) -> bool:
        """Whether there is too little room."""
        return self.missing_bytes + SPARE_BYTES > self.free_bytes

    @property
    def words(self) -> str:
        """Size, license and context, and what is downloaded when the run starts."""
        room = translate("HubLook", "%1 are downloaded when the run starts. %2 are free.")
        if self.is_short:
            room = translate("HubLook", "Not enough room: %1 to download, but only %2 are free.")
        facts = parts_text(
            parameters_text(self.model.num_parameters) if self.model.num_parameters else "",
            license_text(self.model.licence),
            context_text(self.model.context_length),
        )
        return f"{facts}\n{fill(room, size(self.missing_bytes), size(self.free_bytes))}"


class HubLook(QObject):
    """Asks about one model at a time.

    Signals:
        found: an Offered.
        failed: a TunesmithError.
    """

    found = Signal(object)
    failed = Signal(object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._task: OperationTask | None = None

    def ask(self, hub_id: str, revision: str) -> None:
        """Ask; an answer that is still to come about another model is dropped."""
        self.forget()
        task = self._task = OperationTask(FACTS, HubSpec(hub_id, revision), parent=self)
        task.succeeded.connect(lambda answer: self._take(task, Download(HubModel.from_dict(answer), hub_id, revision)))
        task.failed.connect(self.failed)
        task.start()

    def forget(self) -> None:
        """Drop an answer that is still to come."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _take(self, task: OperationTask, download: Download) -> None:
        def measure() -> Offered:
            download.check_owner()
            return Offered(download.model, download.total_bytes - download.done_bytes(), free_bytes())

        def tell(signal: object, value: Offered | TunesmithError) -> None:
            if task is self._task:
                signal.emit(value)  # type: ignore[attr-defined]

        Job.start(self, measure, lambda found: tell(self.found, found), lambda error: tell(self.failed, error))
