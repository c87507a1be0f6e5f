"""Every page, declared once: rail, shortcuts, palette, icons and title bar read it here.

A page is imported and built when first shown, because importing them all would eat the start-up budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from PySide6.QtCore import QT_TRANSLATE_NOOP

from tunesmith_gui.page import Page
from tunesmith_gui.tr import translate


@dataclass(frozen=True, slots=True)
class PageEntry:
    """Where a page is defined and how a person gets there.

    Attributes:
        module, class_name: where the page lives.
        title: English words of the rail entry and the title bar; a page may show another title, e.g. a run's name.
        icon_name, keys: icon of the rail entry and portable key sequence; both empty for a page that is reached from
            other pages only.
        part_of: key of the page whose rail entry is marked while this one is shown.
    """

    module: str
    class_name: str
    title: str
    icon_name: str = ""
    keys: str = ""
    part_of: str = ""

    @property
    def words(self) -> str:
        """The title in the language of the window."""
        return translate("Rail", self.title)

    def load(self) -> type[Page]:
        """Imports the page's class."""
        page_class = getattr(import_module(self.module), self.class_name)
        assert issubclass(page_class, Page)
        return page_class


PAGES: dict[str, PageEntry] = {
    "train": PageEntry(
        "tunesmith_gui.new_run.page", "NewRunPage", str(QT_TRANSLATE_NOOP("Rail", "Train")), "train", "Ctrl+1"
    ),
    "data": PageEntry("tunesmith_gui.data.page", "DataPage", str(QT_TRANSLATE_NOOP("Rail", "Data")), "data", "Ctrl+2"),
    "models": PageEntry(
        "tunesmith_gui.library.page", "LibraryPage", str(QT_TRANSLATE_NOOP("Rail", "Models")), "models", "Ctrl+3"
    ),
    "runs": PageEntry("tunesmith_gui.runs.page", "RunsPage", str(QT_TRANSLATE_NOOP("Rail", "Runs")), "runs", "Ctrl+4"),
    "dashboard": PageEntry(
        "tunesmith_gui.dashboard.page", "DashboardPage", str(QT_TRANSLATE_NOOP("Rail", "Run")), part_of="runs"
    ),
    "chat": PageEntry("tunesmith_gui.chat.page", "ChatPage", str(QT_TRANSLATE_NOOP("Rail", "Try it")), part_of="runs"),
    "vote": PageEntry(
        "tunesmith_gui.chat.vote_page", "VotePage", str(QT_TRANSLATE_NOOP("Rail", "Blind vote")), part_of="runs"
    ),
    "environment": PageEntry(
        "tunesmith_gui.environment.page",
        "EnvironmentPage",
        str(QT_TRANSLATE_NOOP("Rail", "Environment")),
        "environment",
        "Ctrl+5",
    ),
    "settings": PageEntry(
        "tunesmith_gui.settings.page", "SettingsPage", str(QT_TRANSLATE_NOOP("Rail", "Settings")), "settings", "Ctrl+,"
    ),
}
