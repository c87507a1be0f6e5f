"""The keyboard actions: the window makes the shortcuts, settings and palette show them, pages handle them by id.

A page gets an action through `Page.perform(id)` while it is in front; what it does not take, the window does.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QT_TRANSLATE_NOOP
from PySide6.QtGui import QKeySequence

from tunesmith_gui.pages import PAGES
from tunesmith_gui.tr import fill, translate


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a key does.

    Attributes:
        id: what `perform` receives.
        label: English words, with %1 for the title of `page`.
        keys: portable key sequence.
        icon_name: icon of its line in the palette.
        page: key of the page that it opens.
    """

    id: str
    label: str
    keys: str
    icon_name: str
    page: str = ""

    @property
    def words(self) -> str:
        """The label in the language of the window."""
        words = translate("Shortcuts", self.label)
        return fill(words, PAGES[self.page].words) if self.page else words

    @property
    def shown_keys(self) -> str:
        """The key sequence as this system writes it, with the name that is printed on the key."""
        return QKeySequence(self.keys).toString(QKeySequence.SequenceFormat.NativeText).replace("Return", "Enter")


_GO_TO = str(QT_TRANSLATE_NOOP("Shortcuts", "Go to %1"))
_OTHERS = (
    Action("setup", str(QT_TRANSLATE_NOOP("Shortcuts", "Set up Tunesmith…")), "Ctrl+Shift+U", "download"),
    Action("new_run", str(QT_TRANSLATE_NOOP("Shortcuts", "New run")), "Ctrl+N", "plus"),
    Action("start_run", str(QT_TRANSLATE_NOOP("Shortcuts", "Start the run")), "Ctrl+Return", "play"),
    Action("stop_run", str(QT_TRANSLATE_NOOP("Shortcuts", "Stop the run…")), "Ctrl+.", "stop"),
    Action("palette", str(QT_TRANSLATE_NOOP("Shortcuts", "Find a command")), "Ctrl+K", "search"),
    Action("find", str(QT_TRANSLATE_NOOP("Shortcuts", "Find on this page")), "Ctrl+F", "search"),
    Action("log", str(QT_TRANSLATE_NOOP("Shortcuts", "Show the log")), "Ctrl+L", "log"),
    Action("activity", str(QT_TRANSLATE_NOOP("Shortcuts", "Show what is running")), "Ctrl+J", "activity"),
    Action("copy_diagnostics", str(QT_TRANSLATE_NOOP("Shortcuts", "Copy diagnostics")), "Ctrl+Shift+D", "copy"),
    Action("chart_full_screen", str(QT_TRANSLATE_NOOP("Shortcuts", "Enlarge the chart")), "F11", "fullscreen"),
    Action("help", str(QT_TRANSLATE_NOOP("Shortcuts", "Explain the focused setting")), "F1", "help"),
    Action("toggle_rail", str(QT_TRANSLATE_NOOP("Shortcuts", "Collapse or expand the side bar")), "Ctrl+B", "sidebar"),
)


def actions() -> tuple[Action, ...]:
    """Return the pages that have keys, then everything else."""
    pages = (Action(f"page_{key}", _GO_TO, page.keys, page.icon_name, key) for key, page in PAGES.items() if page.keys)
    return (*pages, *_OTHERS)
