"""Which pages exist: imported and built when first shown, because importing them all would eat the start-up budget."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from PySide6.QtCore import QT_TRANSLATE_NOOP

from tunesmith_gui.page import Page


@dataclass(frozen=True, slots=True)
class PageEntry:
    """Where a page is defined and how the rail shows it.

    Attributes:
        module, class_name: where the page lives.
        label: English words for the rail; empty for a page that is reached from other pages only.
        icon_name: icon of the rail entry.
    """

    module: str
    class_name: str
    label: str = ""
    icon_name: str = ""

    def load(self) -> type[Page]:
        """Imports the page's class."""
        page_class = getattr(import_module(self.module), self.class_name)
        assert issubclass(page_class, Page)
        return page_class


PAGES: dict[str, PageEntry] = {
    "train": PageEntry("tunesmith_gui.new_run.page", "NewRunPage", str(QT_TRANSLATE_NOOP("Rail", "Train")), "train"),
    "runs": PageEntry("tunesmith_gui.runs.page", "RunsPage", str(QT_TRANSLATE_NOOP("Rail", "Runs")), "runs"),
    "dashboard": PageEntry("tunesmith_gui.dashboard.page", "DashboardPage"),
    "environment": PageEntry(
        "tunesmith_gui.environment.page",
        "EnvironmentPage",
        str(QT_TRANSLATE_NOOP("Rail", "Environment")),
        "environment",
    ),
    "settings": PageEntry(
        "tunesmith_gui.settings.page", "SettingsPage", str(QT_TRANSLATE_NOOP("Rail", "Settings")), "settings"
    ),
}
