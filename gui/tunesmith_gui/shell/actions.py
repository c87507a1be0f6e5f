"""What the window does for a keyboard action no page took, and the lines of the command palette."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tunesmith_gui import tr
from tunesmith_gui.shell.palette import CommandPalette, Entry
from tunesmith_gui.shortcuts import actions
from tunesmith_gui.tr import translate

if TYPE_CHECKING:
    from tunesmith_gui.shell.main_window import MainWindow


def perform(window: MainWindow, action: str) -> None:
    """Does a window action; an action that only some page knows does nothing here."""
    table: dict[str, Callable[[], object]] = {
        "setup": lambda: window.show_page("setup"),
        "new_run": lambda: window.show_page("train"),
        "activity": lambda: window.activity.show_above(window.rail.activity),
        "copy_diagnostics": window.pages.show_diagnostics,
        "toggle_rail": window.rail.toggle,
        "palette": lambda: open_palette(window),
        **{each.id: partial(window.show_page, each.page) for each in actions() if each.page},
    }
    if action in table:
        table[action]()


def open_palette(window: MainWindow) -> None:
    """Opens the command palette over the window."""
    palette = window.findChild(CommandPalette) or CommandPalette(window)
    palette.open_with(entries(window))


def entries(window: MainWindow) -> list[Entry]:
    """All actions except the palette itself, then the live runs, then the newest ended ones that are known."""
    result = [
        Entry(action.words, action.shown_keys, action.icon_name, partial(window.perform, action.id))
        for action in actions()
        if action.id != "palette"
    ]
    names = {run.id: run.name for run in window.context.runs.live_runs()}
    library = window.context.__dict__.get("library")  # a palette does not load the index for itself
    if library is not None:
        names |= {row.id: row.name for row in library.rows if row.id not in names}
    result.extend(
        Entry(
            tr.fill(translate("Shortcuts", "Open the run %1"), name),
            "",
            "chart",
            partial(window.show_page, "dashboard", run_id),
        )
        for run_id, name in names.items()
    )
    return result
