"""What the pages share that ask the model of one run: which run it is, its name, and the service that answers."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QVBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run
from tunesmith_gui.context import Context
from tunesmith_gui.page import Page
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.announcer import Announcer


class ModelPage(Page):
    """A page of one run that asks its model.

    Attributes:
        run: the one that is shown.
    """

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.run: Run | None = None
        self._name = ""
        self._announcer = Announcer(self)

    def _listen(self) -> None:
        """Take what the service tells, once the page is built."""
        service = self.context.chat
        service.changed.connect(self._show_state)
        service.happened.connect(self._take)
        service.failed.connect(self._fail)

    def _whole(self) -> QVBoxLayout:
        """Return the column of the whole page."""
        whole = QVBoxLayout(self)
        whole.setContentsMargins(SPACE * 3, SPACE * 2, SPACE * 3, SPACE * 2)
        whole.setSpacing(SPACE * 3 // 2)
        return whole

    def _scrolling(self) -> tuple[QScrollArea, QWidget, QVBoxLayout]:
        """Return an area that scrolls up and down, what is inside it, and the column of that."""
        area = QScrollArea(self)
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        holder = QWidget(area)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, SPACE, 0)
        column.setSpacing(SPACE * 3 // 2)
        area.setWidget(holder)
        return area, holder, column

    def memory(self) -> object:
        """The run that is shown."""
        return self.run.id if self.run is not None else None

    def remember(self, memory: object) -> None:
        """Show the run that was shown."""
        if isinstance(memory, str):
            self._open(self.context.runs.run(memory))

    def _is_another(self, argument: object) -> bool:
        """Whether the page is asked for another run than the one that is shown."""
        return isinstance(argument, str) and (self.run is None or argument != self.run.id)

    def _load(self, checkpoint: int = 0) -> None:
        """Have what the run has trained loaded, where it was loaded before."""
        if self.run is not None:
            service = self.context.chat
            service.open(self.run, checkpoint, service.device if service.run == self.run else "auto")

    def _go(self, page: str) -> None:
        self.navigate.emit(page, self.run.id if self.run is not None else None)

    def _open(self, run: Run) -> None:
        """Show a run."""

    def _show_state(self) -> None:
        """Show what the service or the page has come to."""

    def _take(self, asker: object, event: Event) -> None:
        """Take a piece or the end of an answer."""

    def _fail(self, error: TunesmithError) -> None:
        """Say why the model is not loaded any more."""
