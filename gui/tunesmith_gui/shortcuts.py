"""One table of keyboard actions: the window makes the shortcuts, settings shows them, pages handle them by id.

A page gets an action through `Page.perform(id)` while it is in front; what it does not take, the window does.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QT_TRANSLATE_NOOP
from PySide6.QtGui import QKeySequence


@dataclass(frozen=True, slots=True)
class Action:
    """One row.

    Attributes:
        id: what `perform` receives.
        label: English words; shown through `translate("Shortcuts", label)`.
        keys: portable key sequence.
    """

    id: str
    label: str
    keys: str


ACTIONS: tuple[Action, ...] = (
    Action("page_train", str(QT_TRANSLATE_NOOP("Shortcuts", "Go to Train")), "Ctrl+1"),
    Action("page_runs", str(QT_TRANSLATE_NOOP("Shortcuts", "Go to Runs")), "Ctrl+2"),
    Action("page_environment", str(QT_TRANSLATE_NOOP("Shortcuts", "Go to Environment")), "Ctrl+3"),
    Action("page_settings", str(QT_TRANSLATE_NOOP("Shortcuts", "Settings")), "Ctrl+,"),
    Action("setup", str(QT_TRANSLATE_NOOP("Shortcuts", "Set up Tunesmith…")), "Ctrl+Shift+U"),
    Action("new_run", str(QT_TRANSLATE_NOOP("Shortcuts", "New run")), "Ctrl+N"),
    Action("start_run", str(QT_TRANSLATE_NOOP("Shortcuts", "Start the run")), "Ctrl+Return"),
    Action("stop_run", str(QT_TRANSLATE_NOOP("Shortcuts", "Stop the run…")), "Ctrl+."),
    Action("palette", str(QT_TRANSLATE_NOOP("Shortcuts", "Find a command")), "Ctrl+K"),
    Action("find", str(QT_TRANSLATE_NOOP("Shortcuts", "Find on this page")), "Ctrl+F"),
    Action("log", str(QT_TRANSLATE_NOOP("Shortcuts", "Show the log")), "Ctrl+L"),
    Action("activity", str(QT_TRANSLATE_NOOP("Shortcuts", "Show what is running")), "Ctrl+J"),
    Action("copy_diagnostics", str(QT_TRANSLATE_NOOP("Shortcuts", "Copy diagnostics")), "Ctrl+Shift+D"),
    Action("chart_full_screen", str(QT_TRANSLATE_NOOP("Shortcuts", "Enlarge the chart")), "F11"),
    Action("help", str(QT_TRANSLATE_NOOP("Shortcuts", "Explain the focused setting")), "F1"),
    Action("toggle_rail", str(QT_TRANSLATE_NOOP("Shortcuts", "Collapse or expand the side bar")), "Ctrl+B"),
)


def keys_of(action_id: str) -> str:
    """The key sequence of an action as this system writes it; KeyError for an unknown id."""
    keys = {action.id: action.keys for action in ACTIONS}[action_id]
    return QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText)
