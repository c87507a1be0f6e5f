"""What the installer or doctor is doing: title, bar, one line of words, Cancel, and its log on demand."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui.environment.setup_activity import Activity, Stage
from tunesmith_gui.icons import icon
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.announcer import Announcer
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.log_console import LogConsole
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import SafeLabel


class SetupProgress(QWidget):
    """Follows an Activity.

    Signals:
        cancel_asked: the person wants it to end.
    """

    cancel_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._activity: Activity | None = None
        self._announcer = Announcer(self)
        self._said: tuple[object, str] | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        words = QVBoxLayout()
        words.setSpacing(2)
        self.title = SafeLabel(role="strong", wrap=True, parent=self)
        self.words = SafeLabel(tone="muted", wrap=True, parent=self)
        words.addWidget(self.title)
        words.addWidget(self.words)
        row.addLayout(words, 1)
        self.cancel = button(self.tr("Cancel"), self.cancel_asked.emit, parent=self)
        row.addWidget(self.cancel)
        column.addLayout(row)
        self.meter = Meter(self.tr("Progress"), parent=self)
        column.addWidget(self.meter)
        self.toggle = button(self.tr("Show details"), self._toggle, kind="link", icon_name="chevron-down", parent=self)
        foot = QHBoxLayout()
        foot.addWidget(self.toggle)
        foot.addStretch(1)
        column.addLayout(foot)
        self.console: LogConsole | None = None
        self._column = column
        self.hide()

    def show_activity(self, activity: Activity | None) -> None:
        """Shows how a command stands; None hides everything."""
        self.setVisible(activity is not None)
        if activity is None:
            return
        if activity is not self._activity:
            self._activity = activity
            if self.console is not None:
                self.console.set_lines(activity.log)
        title = activity.title
        if activity.detail:
            title = fill(self.tr("%1: %2"), title, core_text(activity.detail))
        self.title.setText(title)
        # A failure is told by the banner beside this; here is only its log.
        self.title.setVisible(activity.stage is not Stage.FAILED)
        self.words.setText(activity.progress_words() if activity.running else activity.outcome)
        self.words.setVisible(bool(self.words.text()) and activity.stage is not Stage.FAILED)
        self.cancel.setVisible(activity.running)
        self.cancel.setEnabled(not activity.cancelling)
        self.meter.setVisible(activity.running and activity.share is not None)
        if activity.share is not None:
            self.meter.set_share(activity.share)
        if self.console is not None:
            self.console.refresh()
        self._announce(activity, title)

    def set_open(self, opened: bool) -> None:
        """Shows or hides the log, which is built when it is first wanted."""
        if self.console is None:
            self.console = LogConsole(self)
            self._column.addWidget(self.console)
            if self._activity is not None:
                self.console.set_lines(self._activity.log)
        self.console.setVisible(opened)
        words = self.tr("Hide details") if opened else self.tr("Show details")
        self.toggle.setText(words)
        self.toggle.setAccessibleName(words)
        self.toggle.setIcon(icon("chevron-up" if opened else "chevron-down", "accent"))

    def _toggle(self) -> None:
        self.set_open(self.console is None or self.console.isHidden())

    def _announce(self, activity: Activity, title: str) -> None:
        """Tells a screen reader of another part and of the end."""
        now = (activity, activity.phase if activity.running else activity.stage.value)
        if now != self._said and activity.command.changes:
            self._said = now
            part = core_text(activity.phase) if activity.running else activity.outcome
            self._announcer.say(fill(self.tr("%1: %2"), title, part) if part else title)
