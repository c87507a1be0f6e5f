"""The banners that belong to the window rather than to a page: set-up missing, no GPU, damaged settings."""

from __future__ import annotations

from PySide6.QtCore import QSettings, Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_core import environments, paths
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_gui.background import Job
from tunesmith_gui.context import Context
from tunesmith_gui.services.hardware import Reading
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.banner import Banner

SETUP_COMMAND = "python3 installers/bootstrap.py"


class ShellBanners(QWidget):
    """A column over the page; takes no room while it has nothing to say.

    Signals:
        notify: (tone, text) for the toast.
    """

    notify = Signal(str, str)

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._context = context
        self._page = ""
        self._no_gpu = False
        self._environment_missing = False
        self._state = QSettings(str(paths.config_dir() / "window.ini"), QSettings.Format.IniFormat)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(SPACE * 3, SPACE * 2, SPACE * 3, 0)
        self._column.setSpacing(SPACE)
        self.setup_banner = Banner(
            "warn",
            self.tr("Training is not set up yet"),
            self.tr("You can look around and plan. To train, run the set-up command once in a terminal."),
            actions=(
                (self.tr("Copy the command"), self._copy_command),
                (self.tr("Check again"), self.check_environment),
            ),
            parent=self,
        )
        self.gpu_banner = Banner(
            "accent",
            self.tr("No supported GPU found"),
            self.tr("You can prepare data, plan runs and train models under 0.5 B parameters on the processor."),
            dismissable=True,
            parent=self,
        )
        self.gpu_banner.dismissed.connect(lambda: self._state.setValue("no_gpu_dismissed", True))
        self._column.addWidget(self.setup_banner)
        self._column.addWidget(self.gpu_banner)
        problem = context.preferences.problem
        if problem is not None:
            self._column.addWidget(
                Banner("warn", core_text(problem.title), problem.message, dismissable=True, parent=self)
            )
        self._has_problem = problem is not None
        self._arrange()

    def show_for(self, page: str) -> None:
        """Shows what concerns a page; set-up and GPU concern Train only."""
        self._page = page
        if page == "train":
            self.check_environment()
        self._arrange()

    def show_hardware(self, reading: Reading) -> None:
        """Takes note whether there is a GPU."""
        if self._no_gpu == (not reading.gpus):
            return
        self._no_gpu = not reading.gpus
        self._arrange()

    def check_environment(self) -> None:
        """Looks, off the UI thread, whether the training environment is there."""
        Job.start(self, environments.training_python, lambda _python: self._set_missing(False), self._on_problem)

    def _on_problem(self, error: TunesmithError) -> None:
        self._set_missing(isinstance(error, EnvironmentProblem))

    def _set_missing(self, missing: bool) -> None:
        if missing and self._environment_missing and self.sender() is not None:
            self.notify.emit("warn", self.tr("The training environment is still missing."))
        self._environment_missing = missing
        self._arrange()

    def _copy_command(self) -> None:
        QGuiApplication.clipboard().setText(SETUP_COMMAND)
        self.notify.emit("ok", self.tr("Copied. Run it in the program's folder."))

    def _arrange(self) -> None:
        on_train = self._page == "train"
        self.setup_banner.setVisible(on_train and self._environment_missing)
        dismissed = bool(self._state.value("no_gpu_dismissed", False, type=bool))
        self.gpu_banner.setVisible(on_train and self._no_gpu and not dismissed)
        shown = [self._column.itemAt(place).widget() for place in range(self._column.count())]
        self.setVisible(any(not each.isHidden() for each in shown if each is not None))
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground, False)
