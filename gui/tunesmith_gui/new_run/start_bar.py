"""Start, whose label names what is missing, the way to each wrong setting above it, and "Copy as" below it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QSizePolicy, QStackedWidget, QVBoxLayout, QWidget

from tunesmith_gui.new_run.setting_paths import setting_of
from tunesmith_gui.new_run.surroundings import Missing
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import SafeLabel

LINK_INSET_PX = 5
"""Frame and padding of a link, within which its words begin."""


def missing_word(missing: Missing) -> str:
    """The label of Start."""
    return {
        Missing.NOTHING: translate("StartBar", "Start run"),
        Missing.ENVIRONMENT: translate("StartBar", "Training is not set up"),
        Missing.MODEL: translate("StartBar", "Choose a model"),
        Missing.MODEL_BROKEN: translate("StartBar", "The model can't be used"),
        Missing.TEACHER: translate("StartBar", "Choose a bigger model"),
        Missing.DATA: translate("StartBar", "Choose data"),
        Missing.COLUMNS: translate("StartBar", "Choose the columns"),
        Missing.PAIRS: translate("StartBar", "The data has no pairs"),
        Missing.LABELS: translate("StartBar", "Check the labels"),
        Missing.PROMPTS: translate("StartBar", "The data has no prompts"),
        Missing.DATA_BROKEN: translate("StartBar", "The data can't be used"),
        Missing.SETTING: translate("StartBar", "Correct a setting"),
        Missing.LEARNS_NOTHING: translate("StartBar", "Nothing to learn: see plan"),
        Missing.TOO_LONG: translate("StartBar", "Rows too long: see plan"),
        Missing.MEMORY: translate("StartBar", "Does not fit: see plan"),
        Missing.ROOM: translate("StartBar", "No room for the model"),
        Missing.DOWNLOADING: translate("StartBar", "Downloading the model…"),
        Missing.STARTING: translate("StartBar", "Starting…"),
    }[missing]


def _label(path: str) -> str:
    """The name of a setting; of a problem with something else its path."""
    with contextlib.suppress(KeyError):
        return core_text(setting_of(path).declaration.label)
    return path


class ProblemList(QWidget):
    """Every wrong setting as a link with what is wrong with it below.

    Signals:
        chosen: (setting path) the person wants to correct it.
    """

    chosen = Signal(str)

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self._rows: list[QWidget] = []
        self._shown: Mapping[str, str] = {}
        self.hide()

    def show_problems(self, problems: Mapping[str, str]) -> None:
        """Shows setting path -> what is wrong."""
        if problems == self._shown:
            return  # a link that holds the focus keeps it
        self._shown = dict(problems)
        for row in self._rows:
            row.hide()
            row.deleteLater()
        self._rows = []
        for path, problem in problems.items():
            label = _label(path)
            link = button(label, functools.partial(self.chosen.emit, path), kind="link", parent=self)
            link.setAccessibleDescription(problem)
            words = SafeLabel(problem, role="caption", tone="error", wrap=True, parent=self)
            words.setContentsMargins(LINK_INSET_PX, 0, 0, SPACE // 2)
            self._column.addWidget(link, 0, Qt.AlignmentFlag.AlignLeft)
            self._column.addWidget(words)
            self._rows += [link, words]
        self.setVisible(bool(problems))


class StartBar(QWidget):
    """Start and "Copy as".

    Signals:
        setting_asked: (setting path) the person wants to correct a setting.
        cancel_asked: the download before the run is to end.
        cancel_start_asked: the run is not to start after all.
        start_asked, copy_command_asked, copy_json_asked, save_asked: the person chose that.
    """

    setting_asked = Signal(str)
    cancel_asked = Signal()
    cancel_start_asked = Signal()
    start_asked = Signal()
    copy_command_asked = Signal()
    copy_json_asked = Signal()
    save_asked = Signal()

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE * 2)
        self.plan = SafeLabel(role="strong", wrap=True, parent=self)
        row.addWidget(self.plan, 1)
        column = QVBoxLayout()
        column.setSpacing(SPACE)
        row.addLayout(column, 1)
        self.problems = ProblemList(parent=self)
        self.problems.chosen.connect(self.setting_asked)
        self.copy_as = button(self.tr("Copy as…"), kind="quiet", icon_name="copy", parent=self)
        menu = QMenu(self.copy_as)
        menu.addAction(self.tr("Copy as command")).triggered.connect(self.copy_command_asked)
        menu.addAction(self.tr("Copy spec as JSON")).triggered.connect(self.copy_json_asked)
        menu.addAction(self.tr("Save spec…")).triggered.connect(self.save_asked)
        self.copy_as.setMenu(menu)
        self.start = button("", self.start_asked.emit, kind="primary", icon_name="play", parent=self)
        self.start.setMinimumHeight(SPACE * 5)
        self.download = self._build_download()
        # Not Start itself: a double click would cancel what it began.
        self.cancel_start = button(self.tr("Cancel"), self.cancel_start_asked.emit, kind="link", parent=self)
        self.cancel_start.setAccessibleName(self.tr("Cancel the start"))
        # In the same place: a link that came below Start would lift it, and lie under the second click itself.
        self._below = QStackedWidget(self)
        self._below.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self._below.addWidget(self.copy_as)
        self._below.addWidget(self.cancel_start)
        for widget in (self.problems, self.download, self.start, self._below):
            column.addWidget(widget)
        self.show_missing(Missing.MODEL, {})

    def _build_download(self) -> QWidget:
        holder = QWidget(self)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        self.download_words = SafeLabel(role="caption", tone="muted", wrap=True, parent=holder)
        self.meter = Meter(self.tr("Progress of the download"), parent=holder)
        self.cancel = button(self.tr("Cancel"), self.cancel_asked.emit, kind="link", parent=holder)
        self.cancel.setAccessibleName(self.tr("Cancel the download"))
        column.addWidget(self.meter)
        column.addWidget(self.download_words)
        column.addWidget(self.cancel, 0, Qt.AlignmentFlag.AlignLeft)
        holder.hide()
        return holder

    def show_starting(self, starting: bool) -> None:
        """Offers to cancel the start in place of copies."""
        self._below.setCurrentWidget(self.cancel_start if starting else self.copy_as)

    def show_download(self, words: str, share: float) -> None:
        """Shows how far the download before the run is; without words there is none."""
        self.download.setVisible(bool(words))
        self.download_words.setText(words)
        self.meter.set_share(share)

    def set_beside_plan(self, beside: bool) -> None:
        """Away from the plan its verdict stands beside Start."""
        self.plan.setVisible(not beside)

    def show_missing(self, missing: Missing, problems: Mapping[str, str]) -> None:
        """Names what is missing on the button; `problems` are the wrong settings, which are led to above it."""
        words = missing_word(missing)
        ready = missing is Missing.NOTHING
        self.start.setText(f"{words}   Ctrl+Enter" if ready else words)
        self.start.setAccessibleName(words)
        self.start.setEnabled(ready)
        self.problems.show_problems(problems)
        # Neither a copy nor a file may hold other values than the form shows.
        self.copy_as.setEnabled(not problems)
