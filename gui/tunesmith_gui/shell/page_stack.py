"""The pages behind the rail: built when first shown, told when they come and go, replaced by words when they break."""

from __future__ import annotations

import logging
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLineEdit, QStackedWidget, QWidget

from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_gui.context import Context
from tunesmith_gui.page import Page
from tunesmith_gui.pages import PAGES
from tunesmith_gui.services.diagnostics import report
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog
from tunesmith_gui.widgets.empty_state import EmptyState

log = logging.getLogger(__name__)


class PageStack(QStackedWidget):
    """Holds the pages by key.

    Signals:
        navigate: (page, argument) from any page.
        notify: (tone, text) from any page.
        offer: (text, action, act) from any page.
        title_changed: the page in front has another title.
    """

    navigate = Signal(str, object)
    notify = Signal(str, str)
    offer = Signal(str, str, object)
    title_changed = Signal()

    def __init__(
        self, context: Context, memories: dict[str, object] | None = None, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._context = context
        self._memories = memories or {}
        self._pages: dict[str, QWidget] = {}
        self._shown: Page | None = None

    def page(self, key: str) -> QWidget:
        """The page with a key, built on first use; in its place a message when it could not be built."""
        if key not in self._pages:
            self._pages[key] = self._build(key)
            self.addWidget(self._pages[key])
        return self._pages[key]

    def may_close(self) -> bool:
        """Whether no page keeps the window open."""
        return all(page.may_close() for page in self._pages.values() if isinstance(page, Page))

    def memories(self) -> dict[str, object]:
        """What the pages want to know when the window is built again, by key."""
        built = {key: page.memory() for key, page in self._pages.items() if isinstance(page, Page)}
        # A page that was not looked at since the last time has its memory still there.
        return self._memories | built

    def show_page(self, key: str, argument: object = None) -> None:
        """Brings a page to the front and tells both pages."""
        page = self.page(key)
        if page is not self._shown:
            self.hide_current()
            focused = self.window().focusWidget()
            if focused is not None and self.isAncestorOf(focused):
                # Else Qt hands the keyboard to whatever comes next, which may be a button.
                self.setFocus(Qt.FocusReason.OtherFocusReason)
        self.setCurrentWidget(page)
        if isinstance(page, Page):
            self._shown = page
            page.on_shown(argument)

    def show_current(self) -> None:
        """The window is visible again; the page keeps what it shows."""
        page = self.currentWidget()
        if isinstance(page, Page) and self._shown is None:
            self._shown = page
            page.on_shown(None)

    def hide_current(self) -> None:
        """The page in front is no longer seen."""
        if self._shown is not None:
            self._shown.on_hidden()
            self._shown = None

    def perform(self, action: str) -> bool:
        """Offers a keyboard action to the page in front."""
        return self._shown is not None and self._shown.perform(action)

    def words_for_files(self) -> str:
        """What the page in front does with files that are dropped; "" where it takes none."""
        return self._shown.words_for_files if self._shown is not None else ""

    def take_files(self, files: list[Path]) -> bool:
        """Gives dropped files to the page in front; False when it takes none."""
        if self._shown is None or not self._shown.words_for_files:
            return False
        self._shown.on_shown(files)
        return True

    def current_title(self) -> str:
        """Title of the page in front."""
        page, key = self.currentWidget(), self.current_key()
        own = page.title if isinstance(page, Page) else ""
        return own or (PAGES[key].words if key else "")

    def current_key(self) -> str:
        """Key of the page in front, "" before the first."""
        page = self.currentWidget()
        return next((key for key, each in self._pages.items() if each is page), "")

    def _build(self, key: str) -> QWidget:
        try:
            page = PAGES[key].load()(self._context, self)
        except Exception as error:
            log.exception("the page %s could not be built", key)
            return self._broken(wrap(error))
        if self._memories.get(key) is not None:
            page.remember(self._memories.pop(key))
        for field in page.findChildren(QLineEdit):
            field.setAcceptDrops(False)  # a file that is dropped on a field is meant for the window
        page.navigate.connect(self.navigate)
        page.notify.connect(self.notify)
        page.offer.connect(self.offer)
        page.title_changed.connect(self.title_changed)
        return page

    def _broken(self, error: TunesmithError) -> QWidget:
        return EmptyState(
            "error",
            self.tr("This page could not be opened"),
            core_text(error.message),
            primary=(self.tr("Copy diagnostics"), lambda: self.show_diagnostics(error)),
            parent=self,
        )

    def show_diagnostics(self, error: TunesmithError | None = None) -> None:
        """Opens the diagnostics, with an error or without."""
        text = report(self._context.preferences.values, self._context.hardware.latest, error=error)
        DiagnosticsDialog(text, self.window()).show()
