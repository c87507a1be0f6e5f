"""On this computer: our models, and those of other programs, which are read and never changed."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QVBoxLayout, QWidget

from tunesmith_core import model_library
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_import import target_of
from tunesmith_core.operations.kind import AbsolutePath, Kind
from tunesmith_core.operations.kinds.engine import IMPORT, ImportSpec
from tunesmith_core.operations.kinds.library import IMPORT_FOLDER, VERIFY, FolderSpec
from tunesmith_gui.background import Job
from tunesmith_gui.library.model_row import ModelRow
from tunesmith_gui.library.row_list import RowList
from tunesmith_gui.library.shelf import Placed, Shelf, look_around
from tunesmith_gui.library.task_row import TaskRow
from tunesmith_gui.page import Page
from tunesmith_gui.services.operation import OperationTask, operations
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, listed, size, translate
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.empty_state import EmptyState
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel

MOST_RUNS = 5
"""So many runs are named in a question."""


class OnComputer(QWidget):
    """The first tab.

    Attributes:
        shelf: what the last look found; None before it.

    Signals:
        more_asked: the person wants other models.
        looked: `shelf` is another one.
    """

    more_asked = Signal()
    looked = Signal()

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self._page = page
        self.shelf: Shelf | None = None
        self._looking = self._again = False
        self._problem: Banner | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE * 2)
        self.import_folder = button(self.tr("Import folder…"), self._choose_folder, icon_name="folder", parent=self)
        self.import_gguf = button(self.tr("Import GGUF…"), self._choose_gguf, icon_name="file", parent=self)
        self._imports = FlowRow([self.import_folder, self.import_gguf], self)
        column.addWidget(self._imports)
        self._news = QVBoxLayout()
        self._news.setSpacing(SPACE)
        column.addLayout(self._news)
        self.loading = SafeLabel(self.tr("Looking for models…"), tone="muted", parent=self)
        column.addWidget(self.loading)
        self.own = RowList(self._row, self)
        self.empty = EmptyState(
            "models",
            self.tr("No models in the library yet"),
            self.tr("Download one, or import a folder with safetensors files, such as one that a run has used."),
            primary=(self.tr("Get a model"), self.more_asked.emit),
            parent=self,
        )
        self._others = QWidget(self)
        words = QVBoxLayout(self._others)
        words.setContentsMargins(0, 0, 0, 0)
        words.setSpacing(2)
        words.addWidget(SafeLabel(self.tr("From other programs"), role="heading", parent=self._others))
        note = self.tr("Tunesmith reads these models and changes nothing.")
        words.addWidget(SafeLabel(note, tone="muted", wrap=True, parent=self._others))
        self.foreign = RowList(self._row, self)
        self.total = SafeLabel(tone="muted", wrap=True, parent=self)
        for each in (self.own, self.total, self.empty, self._others, self.foreign):
            column.addWidget(each)
            each.hide()
        for kind in (VERIFY, IMPORT, IMPORT_FOLDER):
            for task in operations().of(kind):
                self._follow(task)

    def look(self) -> None:
        """Read the shelf again; a call while that is under way makes one more follow."""
        if self._looking:
            self._again = True
            return
        self._looking, self._again = True, False
        Job.start(self, look_around, self._take, self._refuse)

    def _row(self, placed: Placed) -> ModelRow:
        row = ModelRow(placed, self)
        row.asked.connect(self._do)
        return row

    def _take(self, shelf: Shelf) -> None:
        self._looking = False
        self._put_problem(None)
        self.shelf = shelf
        self.loading.hide()
        self.own.show_items({each.model.path: each for each in shelf.own})
        self.foreign.show_items({each.model.path: each for each in shelf.foreign})
        self._others.setVisible(bool(shelf.foreign))
        words = self.tr("%Ln model(s) take up %1 on this computer.", "", len(shelf.own))
        # A linked model takes its room elsewhere.
        num_bytes = sum(each.model.size_bytes for each in shelf.own if not each.model.path.is_symlink())
        total = fill(words, size(num_bytes))
        self.total.setText(f"{total}\n{core_text(model_library.fits_note(shelf.hardware))}")
        self.total.setVisible(bool(shelf.own))
        self.empty.setVisible(not shelf.own)
        self.looked.emit()
        if self._again:
            self.look()

    def _refuse(self, error: TunesmithError) -> None:
        self._looking = False
        self.loading.hide()
        self._put_problem(error_banner(error, actions=((self.tr("Try again"), self.look),), parent=self))

    def _put_problem(self, banner: Banner | None) -> None:
        if self._problem is not None:
            self._problem.hide()
            self._problem.deleteLater()
        self._problem = banner
        if banner is not None:
            self._tell(banner)

    def _tell(self, banner: QWidget) -> None:
        self._news.addWidget(banner)

    def _clear_news(self) -> None:
        """Take away what was said of earlier actions: the person has read it and goes on."""
        for banner in self.findChildren(Banner):
            if banner is not self._problem:
                banner.hide()
                banner.deleteLater()

    def _tell_error(self, error: TunesmithError) -> None:
        self._tell(error_banner(error, parent=self))

    # What a row asks for

    def _do(self, placed: Placed, action: str) -> None:
        path = placed.model.path
        match action:
            case "train":
                self._page.navigate.emit("train", [path])
            case "reveal":
                self._page.open_folder(path)
            case "verify":
                self._begin(VERIFY, FolderSpec(AbsolutePath(str(path))), placed.model.name)
            case "import":
                self.bring_gguf(path, placed.model.name.replace("/", "--").replace(":", "-"))
            case "delete":
                self._ask_delete(placed)

    def _tell_verified(self, name: str, changed: list[str]) -> None:
        if not changed:
            words = fill(self.tr("%1 is what the hub has, file by file."), name)
            self._tell(Banner("ok", words, dismissable=True, parent=self))
            return
        title = fill(self.tr("%1 has changed since it was downloaded"), name)
        words = fill(self.tr("Missing or changed: %1. Delete the model and download it again."), listed(changed))
        self._tell(Banner("error", title, words, dismissable=True, parent=self))

    def _ask_delete(self, placed: Placed) -> None:
        live = {run.id for run in self._page.context.runs.live_runs()}
        busy = [name for run, name in placed.runs.items() if run in live]
        if busy:
            words = fill(self.tr("The run %1 is training with it. Stop the run first."), busy[0])
            self._page.notify.emit("warn", words)
            return
        title = fill(self.tr("Delete %1?"), placed.model.name)
        words = self.tr("%1 are moved to the trash, from where the model can be restored: Runs, Trash…")
        words = fill(words, size(placed.model.size_bytes))
        note, accept = self._depends_words(placed), self.tr("Move to the trash")
        dialog = ConfirmDialog(title, words, note, accept, self.window(), danger=bool(placed.runs))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda: self._delete(placed))
        dialog.open()

    def _depends_words(self, placed: Placed) -> str:
        names = list(placed.runs.values())
        if not names:
            return self.tr("No run uses it.")
        shown = listed(names[:MOST_RUNS])
        if len(names) > MOST_RUNS:
            shown = fill(self.tr("%1 and %n more", "", len(names) - MOST_RUNS), shown)
        count = len(names)
        words = self.tr("%n run(s) use it and can't be resumed, asked or exported without it:", "", count)
        return f"{words}\n{shown}"

    def _delete(self, placed: Placed) -> None:
        def done(_deleted: object) -> None:
            words = self.tr("Moved to the trash. To restore it: Runs, Trash…")
            self._page.offer_undo(words, [placed.model.path], self.look)
            self.look()

        self._page.run_in_background(lambda: model_library.remove(placed.model), done, self._tell_error)

    # Importing

    def _choose_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("Choose a model folder"))
        if folder:
            self.bring_folder(Path(folder))

    def _choose_gguf(self) -> None:
        kind = self.tr("GGUF files (*.gguf)")
        path, _kind = QFileDialog.getOpenFileName(self, self.tr("Choose a GGUF file"), "", kind)
        if path:
            self.bring_gguf(Path(path), Path(path).stem)

    def bring_folder(self, folder: Path) -> None:
        """Copy a model folder into the library."""
        self._begin(IMPORT_FOLDER, FolderSpec(AbsolutePath(str(folder))), folder.name)

    def bring_gguf(self, path: Path, name: str) -> None:
        """Convert a GGUF file into a model of the library."""

        def begin(target: Path) -> None:
            spec = ImportSpec(AbsolutePath(str(path)), AbsolutePath(str(target)))
            self._begin(IMPORT, spec, name)

        self._page.run_in_background(lambda: target_of(name.removesuffix(".gguf")), begin, self._tell_error)

    def _tell_imported(self, name: str) -> None:
        self._page.notify.emit("ok", fill(self.tr("%1 was imported."), name))
        self.look()

    def _begin(self, kind: Kind, spec: FolderSpec | ImportSpec, name: str) -> None:
        self._clear_news()
        task = operations().begin(kind, spec)
        task.run_name = name
        if kind is VERIFY:
            task.describe(lambda: translate("OnComputer", "Verifying %1"))
        else:
            task.describe(lambda: translate("OnComputer", "Importing %1"))
        self._follow(task)
        task.start()

    def _follow(self, task: OperationTask) -> None:
        row = TaskRow(task, self)
        name = task.run_name
        if task.kind is VERIFY:
            row.succeeded.connect(lambda changed: self._tell_verified(name, changed))
        else:
            row.succeeded.connect(lambda _answer: self._tell_imported(name))
        row.failed.connect(self._tell_error)

        def over() -> None:
            row.hide()
            row.deleteLater()

        row.over.connect(over)
        self._news.addWidget(row)

    def focus_first(self) -> None:
        """Put the keyboard where the tab begins."""
        self.import_folder.setFocus(Qt.FocusReason.OtherFocusReason)
