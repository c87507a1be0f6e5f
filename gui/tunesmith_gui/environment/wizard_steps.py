"""The four steps of the first-run wizard: each draws its part of the SetupFlow and says what was asked."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.setup_messages import Finding
from tunesmith_gui.environment.check_row import CheckList
from tunesmith_gui.environment.example_run import ExampleRun
from tunesmith_gui.environment.fact_list import FactList
from tunesmith_gui.environment.model import SEPARATOR, Proof, profile_words, proof_words, seconds_words
from tunesmith_gui.environment.setup_activity import Command
from tunesmith_gui.environment.setup_flow import COMPUTER, ENVIRONMENT, STEPS, Fact, SetupFlow
from tunesmith_gui.environment.setup_progress import SetupProgress
from tunesmith_gui.plain_text import set_tip, without_shortcut
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, duration, fill, number, size, translate
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.error_banner import error_details, error_words
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip

_TONES = {"ok": "ok", "warning": "warn", "failed": "error"}
_ICONS = {"checking": "refresh", "waiting": "clock", "unknown": "help"}
OnFix = Callable[[Finding], object]


class StepCard(Card):
    """Number, title, state; what is inside shows while the step is open, a line about it while it is not.

    Signals:
        opened: the person wants to see this step.
        asked: the name of what a button of the step does.
    """

    opened = Signal(str)
    asked = Signal(str)

    def __init__(self, step: str, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.step = step
        place = STEPS.index(step) + 1
        head = QHBoxLayout()
        head.setSpacing(SPACE)
        self._number = SafeLabel(number(place), role="heading", tone="muted", parent=self)
        head.addWidget(self._number)
        self.head = button("", lambda: self.opened.emit(self.step), kind="link", parent=self)
        self.name = SafeLabel(role="heading", parent=self)
        head.addWidget(self.head)
        head.addWidget(self.name)
        self.summary = ElidedLabel(tone="muted", parent=self)
        self.summary.setAlignment(Qt.AlignmentFlag.AlignVCenter)
        head.addWidget(self.summary, 1)
        self.chip = StatusChip(parent=self)
        head.addWidget(self.chip)
        self.body.addLayout(head)
        self.inside = QWidget(self)
        self.column = QVBoxLayout(self.inside)
        self.column.setContentsMargins(0, SPACE // 2, 0, 0)
        self.column.setSpacing(SPACE + SPACE // 2)
        self.body.addWidget(self.inside)

    def show_flow(self, flow: SetupFlow) -> None:
        """Shows where the step stands."""
        opened = flow.current == self.step
        title, words, state = flow.title(self.step), flow.state_words(self.step), flow.state(self.step)
        skipped = self.step in flow.skipped
        tone = "neutral" if skipped else _TONES.get(state, "neutral")
        self.chip.set_state(words, tone, icon_name="" if skipped else _ICONS.get(state, ""))
        self.name.setText(title)
        self.head.setText(without_shortcut(title))
        self.head.setAccessibleName(title)
        self.head.setAccessibleDescription(words)
        self.name.setVisible(opened)
        self.head.setVisible(not opened)
        self.inside.setVisible(opened)
        self.summary.setText("" if opened else flow.summary(self.step))
        self.show_inside(flow)

    def show_inside(self, flow: SetupFlow) -> None:
        """Draws what is particular to the step."""

    def add_buttons(self, *buttons: QWidget) -> FlowRow:
        """Puts buttons into a row of their own."""
        row = FlowRow(buttons, self.inside)
        self.column.addWidget(row)
        return row


class ComputerStep(StepCard):
    """Facts about the computer, the chosen build, and the checks about the computer."""

    def __init__(self, on_fix: OnFix, parent: QWidget | None = None) -> None:
        super().__init__(COMPUTER, parent)
        self.looking = SafeLabel(tone="muted", wrap=True, parent=self)
        self.facts = FactList(self)
        self.choice = SafeLabel(role="strong", wrap=True, parent=self)
        self.warnings = SafeLabel(tone="warn", wrap=True, parent=self)
        self.checks = CheckList(on_fix, parent=self)
        for widget in (self.looking, self.facts, self.choice, self.warnings):
            self.column.addWidget(widget)
        self.change = button(self.tr("Change version…"), lambda: self.asked.emit("profile"), parent=self)
        self.again = button(self.tr("Check again"), lambda: self.asked.emit("look"), parent=self)
        self.add_buttons(self.change, self.again)
        self.counts = SafeLabel(tone="muted", wrap=True, parent=self)
        self.column.addWidget(self.counts)
        self.column.addWidget(self.checks)

    def show_inside(self, flow: SetupFlow) -> None:
        """Draws facts and checks."""
        model = flow.model
        running = model.activity is not None and model.activity.running
        problem = model.machine_problem
        self.looking.setVisible(model.machine is None)
        self.looking.setText(
            core_text(problem.message) if problem is not None and not running else self.tr("Looking at this computer…")
        )
        self.facts.show_facts(flow.facts())
        self.facts.setVisible(model.machine is not None)
        words = model.choice or (profile_words(model.profile) if model.profile else "")
        self.choice.setText(words)
        self.choice.setVisible(bool(words))
        self.warnings.setText("\n".join(model.choice_warnings))
        self.warnings.setVisible(bool(model.choice_warnings))
        self.again.setEnabled(not model.busy)
        self.change.setEnabled(not model.changing)
        self.counts.setText(flow.count_words(COMPUTER))
        self.counts.setVisible(bool(self.counts.text()))
        checks = flow.remarkable_checks(COMPUTER)
        self.checks.setVisible(bool(checks))
        self.checks.show_checks(checks, offline=model.offline, busy=model.changing)


class FolderStep(StepCard):
    """The folder for everything, its free room, and why another one must be chosen."""

    def __init__(self, step: str, parent: QWidget | None = None) -> None:
        super().__init__(step, parent)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.folder = ElidedLabel(mode=Qt.TextElideMode.ElideMiddle, parent=self)
        self.browse = button(self.tr("Browse…"), lambda: self.asked.emit("browse"), icon_name="folder", parent=self)
        self.browse.setAccessibleName(self.tr("Choose another folder"))
        row.addWidget(self.folder, 1)
        row.addWidget(self.browse)
        self.column.addLayout(row)
        self.words = SafeLabel(tone="muted", wrap=True, parent=self)
        self.column.addWidget(self.words)
        self.problem = Banner("error", "", parent=self)
        self.column.addWidget(self.problem)
        self.note = SafeLabel(role="caption", tone="muted", wrap=True, parent=self)
        self.column.addWidget(self.note)

    def show_inside(self, flow: SetupFlow) -> None:
        """Draws the folder and its room."""
        place = flow.place
        self.folder.setText(str(place.folder) if place else "")
        self.words.setText(flow.folder_words())
        tight = flow.state(self.step) == "warning"
        self.words.set_tone("warn" if tight else "muted")
        problem = place.problem if place else ""
        self.problem.setVisible(bool(problem))
        if problem:
            self.problem.set_message("error", self.tr("This folder can't be used"), problem)
        meaning = self.tr("Environments, models, runs and caches are stored here. The program itself does not move.")
        self.note.setText(" ".join(filter(None, (meaning, place.note if place else ""))))
        self.browse.setEnabled(place is not None and place.can_change and not flow.model.changing and not flow.moving)
        set_tip(self.browse, "" if place is None or place.can_change else place.note)


class EnvironmentStep(StepCard):
    """The plan, the button that installs, how far it is, and what failed."""

    def __init__(self, on_fix: OnFix, parent: QWidget | None = None) -> None:
        super().__init__(ENVIRONMENT, parent)
        self.build = SafeLabel(role="strong", wrap=True, parent=self)
        self.plan = SafeLabel(tone="muted", wrap=True, parent=self)
        self.parts = FactList(self)
        self.column.addWidget(self.build)
        self.column.addWidget(self.plan)
        self.column.addWidget(self.parts)
        self.problem = Banner(
            "error",
            "",
            actions=(
                (self.tr("Try again"), lambda: self.asked.emit("install")),
                (self.tr("Copy diagnostics"), lambda: self.asked.emit("diagnostics")),
            ),
            parent=self,
        )
        self.column.addWidget(self.problem)
        self.install = button(self.tr("Install"), lambda: self.asked.emit("install"), kind="primary", parent=self)
        self.choose = button(self.tr("Choose version…"), lambda: self.asked.emit("profile"), parent=self)
        self.row = self.add_buttons(self.install, self.choose)
        self.why_not = SafeLabel(role="caption", tone="muted", wrap=True, parent=self)
        self.column.addWidget(self.why_not)
        self.progress = SetupProgress(self)
        self.progress.cancel_asked.connect(lambda: self.asked.emit("cancel"))
        self.column.addWidget(self.progress)
        self.checks = CheckList(on_fix, parent=self)
        self.column.addWidget(self.checks)

    def show_inside(self, flow: SetupFlow) -> None:
        """Draws plan or progress or result."""
        model = flow.model
        activity = model.activity
        mine = activity if activity is not None and activity.command in _INSTALLING else None
        installed = model.installed is not None and model.installed.problem is None
        working = mine is not None and mine.running
        profile = model.profile or (model.installed.profile if model.installed else "")
        self.build.setText(profile_words(profile) if profile else "")
        self.build.setVisible(bool(profile))
        self.plan.setText(self._plan_words(flow, installed=installed))
        parts = model.plan.parts if model.plan is not None and not installed else ()
        self.parts.show_facts([part_fact(part.name, part.download_bytes, part.disk_bytes) for part in parts])
        self.parts.setVisible(bool(parts) and not working)
        failed = mine.error if mine is not None else None
        self.problem.setVisible(failed is not None)
        if failed is not None:
            self.problem.set_message("error", core_text(failed.title), error_words(failed), error_details(failed))
        reason = self._reason(flow)
        shown = [self.choose] if installed or failed is not None else [self.install, self.choose]
        self.row.show_only(shown)
        self.install.setEnabled(not reason)
        self.install.setAccessibleDescription(reason)
        self.why_not.setText(reason)
        self.why_not.setVisible(bool(reason) and not working and not installed)
        self.row.setVisible(not working)
        self.progress.show_activity(mine)
        checks = flow.remarkable_checks(ENVIRONMENT) if installed else []
        self.checks.setVisible(bool(checks) and not working)
        self.checks.show_checks(checks, offline=model.offline, busy=model.changing)

    def _plan_words(self, flow: SetupFlow, *, installed: bool) -> str:
        facts = flow.model.installed
        if installed and facts is not None:
            return proof_words(facts.proof, facts.built_at)
        return flow.plan_words()

    def _reason(self, flow: SetupFlow) -> str:
        plan, place = flow.model.plan, flow.place
        if flow.model.offline and plan is not None and plan.download_bytes:
            return self.tr("Offline. The packages must be downloaded first.")
        if place is not None and place.problem:
            return place.problem
        if plan is not None and place is not None and place.free_bytes is not None:
            missing = plan.disk_bytes - place.free_bytes
            if missing > 0:
                words = self.tr("Not enough disk space. Free %1, or choose another folder in step 2.")
                return fill(words, size(missing))
        return ""


_INSTALLING = (Command.INSTALL, Command.REPAIR, Command.ROLL_BACK)


def part_fact(name: str, download_bytes: int, disk_bytes: int) -> Fact:
    """A part of a plan as a labelled line."""
    if not download_bytes and not disk_bytes:
        return Fact(core_text(name), translate("SetupFlow", "complete"))
    if not download_bytes:
        return Fact(core_text(name), fill(translate("SetupFlow", "%1 on the drive"), size(disk_bytes)))
    words = translate("SetupFlow", "%1 to download, %2 on the drive")
    return Fact(core_text(name), fill(words, size(download_bytes), size(disk_bytes)))


class TryStep(StepCard):
    """The record of the proof, and a real training for who wants to see it."""

    def __init__(self, step: str, parent: QWidget | None = None) -> None:
        super().__init__(step, parent)
        self.proof = SafeLabel(wrap=True, parent=self)
        self.steps = FactList(self)
        words = self.tr("A small model learns 20 invented facts. The first steps show how long it takes here.")
        self.words = SafeLabel(words, tone="muted", wrap=True, parent=self)
        for widget in (self.proof, self.steps, self.words):
            self.column.addWidget(widget)
        self.run = button(self.tr("Train the sample"), lambda: self.asked.emit("try"), parent=self)
        self.watch = button(self.tr("Watch it"), lambda: self.asked.emit("watch"), parent=self)
        self.row = self.add_buttons(self.run, self.watch)
        self.result = SafeLabel(wrap=True, parent=self)
        self.column.addWidget(self.result)
        self.meter = Meter(self.tr("Progress"), parent=self)
        self.column.addWidget(self.meter)
        self.show_trial(None)

    def show_inside(self, flow: SetupFlow) -> None:
        """Draws the proof."""
        model = flow.model
        installed = model.installed
        ready = installed is not None and installed.problem is None
        self.proof.setText(
            proof_words(installed.proof, installed.built_at)
            if installed is not None and ready
            else self.tr("Install the training environment first.")
        )
        self.steps.show_facts(proof_facts(installed.proof) if installed is not None and installed.proof else [])
        self.run.setEnabled(ready and not model.changing and flow.trial != "going")

    def show_trial(self, trial: ExampleRun | None) -> None:
        """Draws how the check goes."""
        state = trial.state if trial is not None else ""
        going = state == "going"
        known = trial is not None and bool(trial.run_id)
        self.row.show_only([self.run, self.watch] if known else [self.run])
        words, tone = {
            "going": (self.tr("Training…"), "text"),
            "finished": (self.tr("It works. The model learned the facts in %1."), "ok"),
            "stopped": (self.tr("Training was stopped."), "muted"),
            "": ("", "muted"),
        }.get(state, (self.tr("Training failed. Its page shows why."), "error"))
        if trial is not None and trial.problem is not None:
            words, tone = error_words(trial.problem), "error"
        elif trial is not None and state == "finished":
            words = fill(words, duration(trial.seconds))
        elif trial is not None and going and trial.num_steps:
            words = fill(self.tr("Step %1 of %2"), number(trial.step), number(trial.num_steps))
            if trial.eta_s is not None:
                words += SEPARATOR + fill(self.tr("about %1 left"), duration(trial.eta_s))
        self.result.setText(words)
        self.result.set_tone(tone)
        self.result.setVisible(bool(words))
        share = trial.step / trial.num_steps if trial is not None and going and trial.num_steps else None
        self.meter.setVisible(share is not None)
        if share is not None:
            self.meter.set_share(share)


def proof_facts(proof: Proof) -> list[Fact]:
    """The steps of a proof as labelled lines."""
    facts = []
    for name, ok, seconds in proof.steps:
        word = translate("SetupFlow", "OK") if ok else translate("SetupFlow", "Failed")
        took = f"{SEPARATOR}{seconds_words(seconds)}" if seconds else ""
        facts.append(Fact(core_text(name), word + took, "ok" if ok else "error"))
    return facts
