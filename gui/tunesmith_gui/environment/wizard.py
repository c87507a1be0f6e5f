"""The first-run wizard: four cards below each other, one of them open; what they say is in `setup_flow`."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QDialog, QFileDialog, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from tunesmith_core import paths
from tunesmith_core.actions import ACTIONS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.setup_messages import Finding
from tunesmith_gui.background import Job
from tunesmith_gui.context import Context
from tunesmith_gui.environment.choose_profile import ChooseProfileDialog
from tunesmith_gui.environment.example_run import ExampleRun
from tunesmith_gui.environment.places import look_at, move_to
from tunesmith_gui.environment.report import environment_report
from tunesmith_gui.environment.setup_activity import Activity, Command, Stage
from tunesmith_gui.environment.setup_flow import ENVIRONMENT, FOLDER, NEXT, STEPS, TRY, Place, SetupFlow
from tunesmith_gui.environment.wizard_steps import ComputerStep, EnvironmentStep, FolderStep, StepCard, TryStep
from tunesmith_gui.services.diagnostics import report
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog
from tunesmith_gui.widgets.fitting import fitting_size
from tunesmith_gui.widgets.safe_label import SafeLabel, restyle

_WIDTH_LETTERS, _HEIGHT_LINES = 112, 44


class SetupWizard(QDialog):
    """Opens over the window, can be closed at any time and opened again; an installation goes on without it.

    Signals:
        navigate: (page, argument) as of a page.
    """

    navigate = Signal(str, object)

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.context = context
        self.setup = context.setup
        self.flow = SetupFlow(self.setup.model)
        self.setWindowTitle(self.tr("Set up Tunesmith"))
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, SPACE * 3, 0, SPACE * 2)
        whole.setSpacing(SPACE * 2)
        whole.addLayout(self._build_head())
        self._scroll = self._build_steps()
        whole.addWidget(self._scroll, 1)
        whole.addLayout(self._build_foot())
        self.setup.changed.connect(self.refresh)
        self.setup.ended.connect(self._on_ended)
        self.trial_run = ExampleRun(context.runs, self)
        self.trial_run.changed.connect(self._on_trial)
        self.refresh()

    def _build_head(self) -> QVBoxLayout:
        head = QVBoxLayout()
        head.setContentsMargins(SPACE * 3, 0, SPACE * 3, 0)
        head.setSpacing(2)
        head.addWidget(SafeLabel(self.tr("Set up Tunesmith"), role="title", wrap=True, parent=self))
        words = self.tr("Four steps to the first run. Each can be skipped and done later on the Environment page.")
        head.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        return head

    def _build_steps(self) -> QScrollArea:
        scroll = QScrollArea(self)
        scroll.setWidgetResizable(True)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        holder = QWidget(scroll)
        column = QVBoxLayout(holder)
        column.setContentsMargins(SPACE * 3, 0, SPACE * 3, 0)
        column.setSpacing(SPACE + SPACE // 2)
        self.computer = ComputerStep(self.fix, holder)
        self.folder = FolderStep(FOLDER, holder)
        self.environment = EnvironmentStep(self.fix, holder)
        self.trial = TryStep(TRY, holder)
        self.steps: tuple[StepCard, ...] = (self.computer, self.folder, self.environment, self.trial)
        for step in self.steps:
            step.opened.connect(self.open_step)
            step.asked.connect(self.ask)
            column.addWidget(step)
        column.addStretch(1)
        scroll.setWidget(holder)
        return scroll

    def _build_foot(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setContentsMargins(SPACE * 3, 0, SPACE * 3, 0)
        row.setSpacing(SPACE)
        self.skip = button(self.tr("Skip for now"), self.close, kind="quiet", parent=self)
        self.back = button(self.tr("Back"), self._go_back, parent=self)
        self.next = button(self.tr("Next"), self._go_on, kind="primary", parent=self)
        row.addWidget(self.skip)
        row.addStretch(1)
        row.addWidget(self.back)
        row.addWidget(self.next)
        return row

    def open_at(self, step: str = "") -> None:
        """Shows the wizard at a step, or where it was left."""
        if not self.isVisible():
            self._fit()
            self._look()
        # There is nothing to try while nothing is installed.
        left_at = ENVIRONMENT if self.flow.current == TRY and not self.flow.ready else self.flow.current
        self.flow.open(step if step in STEPS else left_at)
        self.refresh()
        self.show()
        self._bring_up()
        self.raise_()
        self.activateWindow()
        (self.next if self.next.isEnabled() else self.back).setFocus()

    def _fit(self) -> None:
        """As large as its words ask for, within the window it belongs to."""
        self.resize(fitting_size(self, _WIDTH_LETTERS, _HEIGHT_LINES))

    def _look(self) -> None:
        model = self.setup.model
        if model.machine is None or not model.checks:
            self.setup.look()
        else:
            self.setup.refresh_files()
        if model.plan is None:
            self.setup.plan(self.setup.profile)
        self.look_at_folder(paths.data_root())

    # Showing

    def refresh(self) -> None:
        """Draws everything that is known now."""
        flow = self.flow
        for step in self.steps:
            step.show_flow(flow)
        last = NEXT[flow.current] is None
        blocked = flow.blocked()
        self.next.setText(self.tr("Finish") if last else self.tr("Next"))
        self.next.setAccessibleName(self.next.text())
        self.next.setEnabled(not blocked)
        self.next.setAccessibleDescription(blocked)
        # One main action at a time: while Install is offered, it is that one.
        offered = self.environment.install.isVisibleTo(self) and self.environment.install.isEnabled()
        kind = "secondary" if offered else "primary"
        if self.next.property("kind") != kind:
            self.next.setProperty("kind", kind)
            restyle(self.next)
        self.back.setEnabled(flow.current != STEPS[0])
        self.skip.setVisible(not (flow.ready or last))

    def open_step(self, step: str) -> None:
        """Opens a step and brings it into view."""
        self.flow.open(step)
        self.refresh()
        self._bring_up()

    def _bring_up(self) -> None:
        """Scrolls the open step to the top, once the layouts know how high everything is."""
        card = next(card for card in self.steps if card.step == self.flow.current)
        QTimer.singleShot(0, card, lambda: self._scroll.verticalScrollBar().setValue(card.y()))

    def _go_on(self) -> None:
        if NEXT[self.flow.current] is None:
            self.close()
            self.navigate.emit("train", None)
        elif self.flow.next():
            self.open_step(self.flow.current)

    def _go_back(self) -> None:
        if self.flow.back():
            self.open_step(self.flow.current)

    # Doing

    def ask(self, action: str) -> None:
        """Does what a button of a step names."""
        match action:
            case "look":
                self.setup.look()
                self.setup.plan(self.setup.profile)
            case "browse":
                self._browse()
            case "install":
                self.setup.install(self.setup.profile)
            case "profile":
                self._ask_profile()
            case "cancel":
                self.setup.cancel()
            case "try":
                self.trial_run.start()
            case "watch":
                self.close()
                self.navigate.emit("dashboard", self.trial_run.run_id)
            case "diagnostics":
                self._show_diagnostics()

    def fix(self, check: Finding) -> None:
        """Does what the button of a check says."""
        if check.fix is None:
            return
        action = ACTIONS.get(check.fix.action)
        if check.code == "environment-missing":
            self.open_step(ENVIRONMENT)
        elif check.fix.action == "move-folders":
            self.open_step(FOLDER)
        elif check.fix.action == "retry":
            self.ask("look")
        elif check.fix.automatic:
            self.setup.repair(check.id, check.title)
        elif action is not None and action.place == "link":
            QDesktopServices.openUrl(QUrl(action.target))
        elif action is not None and action.place == "environment":
            self.close()
            self.navigate.emit("environment", action.target)

    def look_at_folder(self, folder: Path) -> None:
        """Looks at a folder in the background and takes it as the chosen one."""
        machine = self.setup.model.machine
        Job.start(self, lambda: look_at(folder, machine), self._take_place, self._take_place_error)

    def _take_place(self, place: Place) -> None:
        self.flow.place, self.flow.moving = place, False
        self.refresh()

    def _take_place_error(self, error: TunesmithError) -> None:
        self.flow.place, self.flow.moving = Place(paths.data_root(), problem=core_text(error.message)), False
        self.refresh()

    def _browse(self) -> None:
        before = self.flow.place.folder if self.flow.place else paths.data_root()
        folder = QFileDialog.getExistingDirectory(self, self.tr("Where to keep things"), str(before))
        if folder:
            self.choose_folder(Path(folder))

    def choose_folder(self, folder: Path) -> None:
        """Looks at a folder and, when it can serve, goes there."""
        machine = self.setup.model.machine

        def look() -> Place:
            place = look_at(folder, machine)
            if not place.problem:
                move_to(folder)
            return place

        self.flow.moving = True
        self.refresh()
        Job.start(self, look, self._take_choice, self._take_place_error)

    def _take_choice(self, place: Place) -> None:
        self._take_place(place)
        if not place.problem:
            self.context.preferences.follow_root()
            self.setup.look()
            self.setup.plan(self.setup.profile)

    def _ask_profile(self) -> None:
        model = self.setup.model
        dialog = ChooseProfileDialog(model.profile, model.choice, self.setup.profile, self)
        dialog.accepted.connect(lambda: self._take_profile(dialog.profile))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _take_profile(self, profile: str) -> None:
        self.setup.profile = profile
        self.setup.plan(profile)
        self.open_step(ENVIRONMENT)

    def _show_diagnostics(self) -> None:
        values, reading = self.context.preferences.values, self.context.hardware.latest
        activity = self.setup.model.activity
        error = activity.error if activity is not None else None
        text = report(values, reading, error=error, details=environment_report(self.setup.model))
        DiagnosticsDialog(text, self.window()).show()

    def _on_trial(self) -> None:
        self.flow.trial = self.trial_run.state
        self.trial.show_trial(self.trial_run)
        self.refresh()

    def _on_ended(self, activity: Activity) -> None:
        if activity.command is Command.INSTALL and activity.stage is Stage.DONE and self.flow.current == ENVIRONMENT:
            self.open_step(TRY)
