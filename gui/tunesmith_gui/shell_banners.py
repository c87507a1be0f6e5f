"""The banners that belong to the window rather than to a page: no GPU, damaged settings."""

from __future__ import annotations

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_core import paths
from tunesmith_core.errors import TunesmithError
from tunesmith_gui.services.hardware import Reading
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.banner import Banner


class ShellBanners(QWidget):
    """A column over the page; takes no room while it has nothing to say.

    Args:
        problem: what was wrong with the settings file at start, if anything.
    """

    def __init__(self, problem: TunesmithError | None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._on_train = False
        self._no_gpu = False
        self._state = QSettings(str(paths.config_dir() / "window.ini"), QSettings.Format.IniFormat)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 2, SPACE * 3, 0)
        column.setSpacing(SPACE)
        self.gpu_banner = Banner(
            "accent",
            self.tr("No supported GPU found"),
            self.tr("You can prepare data, plan runs and train models under 0.5 B parameters on the processor."),
            dismissable=True,
            parent=self,
        )
        self.gpu_banner.dismissed.connect(self._on_gpu_dismissed)
        self.settings_banner = Banner("warn", "", dismissable=True, parent=self)
        if problem is not None:
            self.settings_banner.set_message("warn", core_text(problem.title), problem.message)
        self.settings_banner.dismissed.connect(self._arrange)
        self.settings_banner.setVisible(problem is not None)
        column.addWidget(self.settings_banner)
        column.addWidget(self.gpu_banner)
        self._arrange()

    def show_for(self, page: str) -> None:
        """Shows what concerns a page; the GPU concerns Train only."""
        self._on_train = page == "train"
        self._arrange()

    def show_hardware(self, reading: Reading) -> None:
        """Takes note whether there is a GPU."""
        if self._no_gpu == bool(reading.gpus):
            self._no_gpu = not reading.gpus
            self._arrange()

    def _on_gpu_dismissed(self) -> None:
        self._state.setValue("no_gpu_dismissed", True)
        self._arrange()

    def _arrange(self) -> None:
        dismissed = bool(self._state.value("no_gpu_dismissed", False, type=bool))
        self.gpu_banner.setVisible(self._on_train and self._no_gpu and not dismissed)
        self.setVisible(not (self.gpu_banner.isHidden() and self.settings_banner.isHidden()))
