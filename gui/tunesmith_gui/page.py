"""The contract between a page and the window around it.

A page is built the first time it is shown (`pages.PAGES` declares it), gets the `Context`
and nothing else, and talks to the window by two signals:

- `navigate(page, argument)`: go to another page. Pages: "train" (argument None, a `list[Path]` of dropped files and
  folders, a `RunSpec` to start from, e.g. Duplicate, or a `SourceSpec` of data to train on), "data" (None, a
  `list[Path]` with a file to open, or a `ChosenData` of which a part is to be seen), "runs" (None), "dashboard", "chat"
  and "vote" (the run's id), "environment" (None, or what to do there, see the page), "models" (None, "here", "more", or
  the hub id of a model to look at), "settings" (None, or the name of a setting); "setup" opens the first-run wizard
  (argument: None or one of its steps).
- `notify(tone, text)`: one short line at the bottom of the window for some seconds; tone is ok, accent, warn or error.
- `offer(text, action, act)`: the same about what went well, with a button beside it that calls `act()`, such as Undo.
  For what needs an answer use a `Banner` inside the page.

The window calls `on_shown(argument)` each time the page comes to the front and `on_hidden()` when it leaves or the
window is minimised: a hidden page repaints nothing and polls nothing. `perform(action)` gives the page a keyboard
action (ids in `shortcuts.actions()`) while it is in front; return True when it was handled.

A change of language builds a new window, so services live longer than pages. Connect their signals to methods, which Qt
disconnects when the page is deleted, never to lambdas.

Work over 5 ms (files, SQLite, imports of heavy modules) leaves the UI thread: `run_in_background(work, done, failed)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_gui.background import Job
from tunesmith_gui.context import Context
from tunesmith_gui.tokens import BODY_WIDTH_PX, SPACE
from tunesmith_gui.tr import core_text, fill, translate

Result = TypeVar("Result")


class Page(QWidget):
    """One page of the window.

    Attributes:
        context: the services.

    Signals:
        navigate: (page, argument), see the module text.
        notify: (tone, text), see the module text.
        offer: (text, action, act), see the module text.
        title_changed: `title` has another value.
    """

    navigate = Signal(str, object)
    notify = Signal(str, str)
    offer = Signal(str, str, object)
    title_changed = Signal()

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.context = context
        self.setProperty("surface", "page")

    def tell_failure(self, error: TunesmithError) -> None:
        """Says what went wrong at the bottom of the window."""
        self.notify.emit("error", core_text(error.message))

    @property
    def title(self) -> str:
        """What the title bar says while this page is in front, where it is not the title that `pages` declares."""
        return ""

    @property
    def words_for_files(self) -> str:
        """What happens to files that are dropped while this page is in front; "" sends them to the Train page."""
        return ""

    def on_shown(self, argument: object = None) -> None:
        """The page came to the front."""

    def on_hidden(self) -> None:
        """The page left the front, or the window was minimised."""

    def may_close(self) -> bool:
        """Asks before the window is closed with something that is not saved; False keeps it open."""
        return True

    def memory(self) -> object:
        """What a page that takes this one's place must know: the window is built again in another language.

        That page also follows from now on what this one followed.
        """
        return None

    def remember(self, memory: object) -> None:
        """Takes what `memory` gave before the window was built again."""

    def perform(self, action: str) -> bool:
        """Handles a keyboard action of `shortcuts.actions()`; False leaves it to the window."""
        del action
        return False

    def open_folder(self, folder: Path) -> None:
        """Opens the file manager at a folder, or says where the folder is when there is no file manager."""

        def tell(opened: bool) -> None:
            if not opened:
                words = translate("Page", "No file manager was found. The folder is %1")
                self.notify.emit("warn", fill(words, folder))

        self.run_in_background(lambda: self.context.desktop.reveal(folder), tell)

    def offer_undo(self, words: str, folders: Iterable[Path], restored: Callable[[], object]) -> None:
        """Says that something is in the trash now, with a button that brings it back.

        Args:
            words: what is said.
            folders: where it was.
            restored: called once it is back.
        """
        places = list(folders)

        def undo() -> None:
            # Imported here: most windows delete nothing.
            from tunesmith_gui.widgets.delete_run import bring_back

            self.run_in_background(lambda: bring_back(places), lambda _nothing: restored())

        self.offer.emit(words, translate("Page", "Undo"), undo)

    def run_in_background(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], object],
        failed: Callable[[TunesmithError], object] | None = None,
    ) -> None:
        """Runs `work` on a worker thread and hands its result, or its error, back on the UI thread.

        Nothing is called any more once the page is gone. Without `failed` the error is shown by `notify`.
        """
        Job.start(self, work, done, failed or self._show_error)

    def _show_error(self, error: TunesmithError) -> None:
        self.notify.emit("error", core_text(error.message))


def page_column(page: QWidget, *, max_width_px: int = BODY_WIDTH_PX) -> QVBoxLayout:
    """A scrolling, centred column with page margins; returns the layout to put header and cards in."""
    scroll = QScrollArea(page)
    scroll.setWidgetResizable(True)
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    holder = QWidget(scroll)
    outer = QHBoxLayout(holder)
    outer.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
    column_widget = QWidget(holder)
    column_widget.setMaximumWidth(max_width_px)
    column_widget.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
    outer.addStretch(0)
    outer.addWidget(column_widget, 1)
    outer.addStretch(0)
    column = QVBoxLayout(column_widget)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(SPACE * 2)
    scroll.setWidget(holder)
    whole = QVBoxLayout(page)
    whole.setContentsMargins(0, 0, 0, 0)
    whole.addWidget(scroll)
    return column
