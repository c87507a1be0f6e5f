"""The Models page: what is on this computer, what can be had, and what is on its way."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from tunesmith_gui.context import Context
from tunesmith_gui.library.download_row import DownloadRow
from tunesmith_gui.library.get_more import GetMore
from tunesmith_gui.library.on_computer import OnComputer
from tunesmith_gui.library.row_list import RowList
from tunesmith_gui.library.sheet import ModelSheet
from tunesmith_gui.page import Page, page_column
from tunesmith_gui.services.downloads import DownloadState, HubDownload
from tunesmith_gui.tr import fill, size
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.page_header import PageHeader
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.segmented import Segmented


class LibraryPage(Page):
    """Two tabs, and above them the downloads.

    Attributes:
        tabs: "here" or "more".
        here, more: the two tabs.
        downloads: a row for each model that is not whole.
    """

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        column = page_column(self)
        words = self.tr("Base models for your runs")
        self.header = PageHeader(self.tr("Models"), words, parent=self)
        column.addWidget(self.header)
        options = (("here", self.tr("On this computer")), ("more", self.tr("Get more")))
        self.tabs = Segmented(self.tr("Models"), options, parent=self)
        column.addWidget(self.tabs)
        self._downloads_head = SafeLabel(self.tr("Downloads"), role="heading", parent=self)
        self.downloads = RowList(self._download_row, self)
        column.addWidget(self._downloads_head)
        column.addWidget(self.downloads)
        self.here = OnComputer(self)
        self.more = GetMore(self)
        column.addWidget(self.here)
        column.addWidget(self.more)
        column.addStretch(1)
        self.tabs.changed.connect(lambda _tab: self._show_tab())
        self.here.more_asked.connect(lambda: self.tabs.set_value("more"))
        self.here.looked.connect(self._take_shelf)
        self.more.asked.connect(self.look_at)
        service = context.downloads
        service.changed.connect(self._show_downloads)
        service.finished.connect(self._on_finished)
        service.failed.connect(self.tell_failure)
        self._show_tab()
        self._show_downloads()

    def on_shown(self, argument: object = None) -> None:
        """Read the shelf again; the argument names a tab, or a model of the hub to look at."""
        if argument in ("here", "more"):
            self.tabs.set_value(str(argument))
        elif isinstance(argument, str):
            self.tabs.set_value("more")
            self.look_at(argument)
        self.here.look()
        self.context.downloads.refresh()

    def perform(self, action: str) -> bool:
        """Find goes to the search for models."""
        if action != "find":
            return False
        self.tabs.set_value("more")
        self.more.focus_first()
        return True

    def memory(self) -> object:
        """Which tab is shown, and what is searched for."""
        return self.tabs.value, self.more.memory()

    def remember(self, memory: object) -> None:
        """Show the same again."""
        assert isinstance(memory, tuple)
        tab, search = memory
        self.tabs.set_value(tab)
        self.more.remember(search)

    def look_at(self, hub_id: str) -> ModelSheet:
        """Open the sheet of a model of the hub."""
        placed = self.more.here().get(hub_id)
        sheet = ModelSheet(hub_id, self.window(), folder=placed.model.path if placed else None)
        sheet.train_asked.connect(lambda folder: self.navigate.emit("train", [folder]))
        sheet.download_asked.connect(self.context.downloads.start)
        sheet.setup_asked.connect(lambda: self._leave(sheet))
        sheet.other_asked.connect(lambda other: self._look_at_other(sheet, other))
        sheet.open()
        return sheet

    def _leave(self, sheet: ModelSheet) -> None:
        sheet.reject()
        self.navigate.emit("setup", None)

    def _look_at_other(self, sheet: ModelSheet, hub_id: str) -> None:
        sheet.reject()
        self.look_at(hub_id)

    def _show_tab(self) -> None:
        self.here.setVisible(self.tabs.value == "here")
        self.more.setVisible(self.tabs.value == "more")

    def _take_shelf(self) -> None:
        if self.here.shelf is not None:
            self.more.show_shelf(self.here.shelf)

    # Downloads

    def _download_row(self, download: HubDownload) -> DownloadRow:
        row = DownloadRow(download, self)
        row.asked.connect(self._do)
        return row

    def _show_downloads(self) -> None:
        shown = {(each.id, each.revision): each for each in self.context.downloads.downloads}
        self.downloads.show_items(shown)
        self._downloads_head.setVisible(bool(shown))

    def _do(self, download: HubDownload, action: str) -> None:
        match action:
            case "pause":
                download.stop()
            case "continue":
                self.context.downloads.start(download.id, download.revision)
            case "look":
                self.look_at(download.id)
            case "cancel" if download.done_bytes:
                self._ask_cancel(download)
            case "cancel":
                self.context.downloads.give_up(download)

    def _ask_cancel(self, download: HubDownload) -> None:
        title = fill(self.tr("Cancel the download of %1?"), download.id)
        words = fill(self.tr("This deletes the %1 that have arrived."), size(download.done_bytes))
        note = self.tr("To continue later, pause it instead.") if download.state is DownloadState.GOING else ""
        dialog = ConfirmDialog(title, words, note, self.tr("Cancel the download"), self.window(), danger=True)
        dialog.cancel.setText(self.tr("Keep the download"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda: self.context.downloads.give_up(download))
        dialog.open()

    def _on_finished(self, download: HubDownload) -> None:
        self.notify.emit("ok", fill(self.tr("%1 is on this computer now."), download.id))
        self.here.look()
