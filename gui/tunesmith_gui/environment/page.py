"""Environment: the doctor as a page. It works with a broken training environment, for it starts nothing inside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QTimer, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QDialog, QScrollArea, QWidget

from tunesmith_core import files, paths
from tunesmith_core.actions import ACTIONS, doable
from tunesmith_core.setup_messages import Finding
from tunesmith_gui.context import Context
from tunesmith_gui.environment.cards import ChecksCard, DiskCard, EnvironmentCard, GpuCard
from tunesmith_gui.environment.choose_profile import ChooseProfileDialog
from tunesmith_gui.environment.explain_log import ExplainLogDialog
from tunesmith_gui.environment.model import Verdict, fix_words
from tunesmith_gui.environment.report import environment_report
from tunesmith_gui.environment.setup_activity import Activity, Command
from tunesmith_gui.environment.wsl import WslCard
from tunesmith_gui.models.run_spec import AtSetting
from tunesmith_gui.page import Page, page_column
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.services.diagnostics import report
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, size
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.page_header import PageHeader
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.save_file import ask_where_to_save
from tunesmith_gui.widgets.status_chip import StatusChip

_COLUMN_PX = SPACE * 110
CACHES_CHECK = "caches"
REPORT_NAME = "tunesmith-report.txt"


class EnvironmentPage(Page):
    """Binds the cards to the SetupService; `on_shown` takes "repair", "profile", "compiled", "disk" or "wsl"."""

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.setup = context.setup
        self._looked = False
        self._problem: QWidget | None = None
        self._problem_of: Activity | None = None
        self._column = page_column(self, max_width_px=_COLUMN_PX)
        (self._scroll,) = self.findChildren(QScrollArea)
        words = self.tr("The software that trains models on this computer, and its state.")
        self.header = PageHeader(self.tr("Environment"), words, parent=self)
        self.offline = StatusChip(self.tr("Offline"), "neutral", parent=self)
        set_tip(self.offline, self.tr("The network can't be reached. Everything on this computer works."))
        self.header.add_action(self.offline)
        self._column.addWidget(self.header)
        self.environment = EnvironmentCard(self)
        self.environment.asked.connect(self.ask)
        self.checks = ChecksCard(self.fix, lambda: self.ask("check"), self)
        self.gpus = GpuCard(self)
        self.disk = DiskCard(self)
        self.disk.asked.connect(self.ask)
        self.wsl = WslCard(self)
        self.wsl.asked.connect(self.ask)
        for card in (self.environment, self.checks, self.gpus, self.disk, self.wsl, self._build_help()):
            self._column.addWidget(card)
        self._column.addStretch(1)
        self.setup.changed.connect(self._show_model)
        self._show_model()

    def on_shown(self, argument: object = None) -> None:
        """Looks at everything the first time, at the files each time, and does what another page asked for."""
        if self._looked or self.setup.model.checks:
            self.setup.refresh_files()
        else:
            self.setup.look()
        self._looked = True
        if isinstance(argument, str):
            QTimer.singleShot(0, self, lambda: self.ask(argument))

    def perform(self, action: str) -> bool:
        """Diagnostics and the log by keyboard."""
        if action == "copy_diagnostics":
            self.ask("diagnostics")
        elif action == "log":
            self.environment.progress.set_open(True)
        else:
            return False
        return True

    def _build_help(self) -> Card:
        card = Card(self.tr("When something goes wrong"), parent=self)
        words = self.tr("Paste or drop the output of any training tool to see the cause and the fix.")
        card.body.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=card))
        texts = (
            ("explain", self.tr("Explain a log…")),
            ("diagnostics", self.tr("Copy diagnostics")),
            ("save_report", self.tr("Save report…")),
            ("setup", self.tr("Open setup…")),
        )
        buttons = [button(text, partial(self.ask, name), parent=card) for name, text in texts]
        card.body.addWidget(FlowRow(buttons, card))
        return card

    # Showing

    def _show_model(self) -> None:
        model = self.setup.model
        self.offline.setVisible(model.offline)
        self.environment.show_model(model)
        self.checks.show_model(model)
        self.gpus.show_machine(model.machine)
        self.disk.show_model(model)
        self.wsl.show_machine(model.machine)
        self._show_problem()

    def _show_problem(self) -> None:
        activity = self.setup.model.activity
        failed = activity if activity is not None and activity.error is not None else None
        if failed is self._problem_of:
            return
        self._problem_of = failed
        if self._problem is not None:
            self._problem.hide()
            self._problem.deleteLater()
            self._problem = None
        if failed is not None and failed.error is not None:
            again = ((self.tr("Try again"), lambda: self._repeat(failed.command)),)
            log = ((self.tr("Show the log"), lambda: self.environment.progress.set_open(True)),)
            self._problem = error_banner(failed.error, actions=again + log, parent=self)
            self._column.insertWidget(1, self._problem)

    # Doing

    def ask(self, action: str) -> None:
        """Does what a button, a check or another page names."""
        match action:
            case "check":
                self.setup.look()
            case "full_check":
                self.setup.check(full=True)
            case "cancel":
                self.setup.cancel()
            case "install" | "setup":
                self.navigate.emit("setup", None)
            case "move":
                self.navigate.emit("setup", "folder")
            case "repair":
                self._ask_repair()
            case "roll_back":
                self._ask_roll_back()
            case "profile":
                self._ask_profile()
            case "compiled":
                self.setup.repair(CACHES_CHECK, self.tr("Compiled kernels"))
            case "disk":
                self._scroll.ensureWidgetVisible(self.disk)
            case "wsl":
                self._scroll.ensureWidgetVisible(self.wsl)
            case "use_wsl":
                self._ask_wsl()
            case "runs":
                self.navigate.emit("runs", None)
            case "folder":
                self.open_folder(paths.data_root())
            case "explain":
                ExplainLogDialog(self.do_action, self.window()).show()
            case "diagnostics" | "save_report":
                self._hand_out(action)

    def fix(self, check: Finding) -> None:
        """Does what the button of a check says: by the installer, or the step that is the person's."""
        if check.fix is None:
            return
        if check.code == "environment-missing":
            self.ask("install")
        elif check.fix.automatic:
            self.setup.repair(check.id, check.title)
        elif check.fix.action == "retry":  # a step for the person, after which one looks again
            self.ask("check")
        else:
            self.do_action(check.fix.action)

    def do_action(self, name: str) -> None:
        """Does an action of the diagnosis."""
        if not doable([name]):
            return
        action = ACTIONS[name]
        if action.place == "environment":
            self.ask("use_wsl" if action.target == "wsl" else action.target)
        elif action.place == "link":
            QDesktopServices.openUrl(QUrl(action.target))
        elif action.place == "setting":
            self.navigate.emit("train", AtSetting(action.target))
        else:
            self.navigate.emit(action.target if action.place == "page" else "train", None)

    def _repeat(self, command: Command) -> None:
        again: dict[Command, Callable[[], None]] = {
            Command.INSTALL: partial(self.setup.install, self.setup.profile),
            Command.PLAN: partial(self.setup.plan, self.setup.profile),
            Command.REPAIR: self.setup.repair,
            Command.ROLL_BACK: self.setup.roll_back,
            Command.WSL: self.setup.set_up_wsl,
            Command.FULL_CHECK: partial(self.setup.check, full=True),
        }
        again.get(command, self.setup.look)()

    def _ask_repair(self) -> None:
        if self.setup.model.verdict is Verdict.MISSING:
            self.navigate.emit("setup", None)
            return
        fixes = [check for check in self.setup.model.checks.values() if check.fix and check.fix.automatic]
        lines = [f"{core_text(check.title)}: {fix_words(check.fix)}" for check in fixes if check.fix]
        text = "\n".join(lines) or self.tr("Checks everything and replaces what is damaged.")
        num_bytes = sum(check.fix.bytes for check in fixes if check.fix)
        note = self.tr(
            "Repairs run one at a time, and one that does not help is undone. Runs and models are not touched."
        )
        if num_bytes:
            note = fill(self.tr("Downloads up to %1. %2"), size(num_bytes), note)
        self._confirm(self.tr("Repair the environment?"), text, note, self.tr("Repair"), self.setup.repair)

    def _ask_roll_back(self) -> None:
        installed = self.setup.model.installed
        text = fill(self.tr("Tunesmith will use the environment %1 again."), installed.previous if installed else "")
        note = self.tr("The current one is kept, so you can switch back. Nothing is downloaded.")
        title = self.tr("Roll back to the previous environment?")
        self._confirm(title, text, note, self.tr("Roll back"), self.setup.roll_back)

    def _ask_profile(self) -> None:
        model = self.setup.model
        dialog = ChooseProfileDialog(model.profile, model.choice, self.setup.profile, self.window())
        dialog.accepted.connect(lambda: self._take_profile(dialog.profile))
        _open(dialog)

    def _take_profile(self, profile: str) -> None:
        self.setup.profile = profile
        self.navigate.emit("setup", "environment")

    def _ask_wsl(self) -> None:
        text = self.tr("Windows may ask for administrator rights and a restart. After a restart, choose Use WSL again.")
        note = self.tr("Linux gets its own environment of the same size. Your files stay in Windows.")
        title = self.tr("Set up the Windows Subsystem for Linux?")
        self._confirm(title, text, note, self.tr("Set up WSL"), self.setup.set_up_wsl)

    def _confirm(self, title: str, text: str, note: str, accept: str, act: Callable[[], object]) -> None:
        dialog = ConfirmDialog(title, text, note, accept, self.window())
        dialog.accepted.connect(lambda: act())
        _open(dialog)

    def _hand_out(self, action: str) -> None:
        values, reading = self.context.preferences.values, self.context.hardware.latest
        details = environment_report(self.setup.model)

        def work() -> str:
            return report(values, reading, details=details)

        show = self._save_report if action == "save_report" else self._show_report
        self.run_in_background(work, show)

    def _show_report(self, text: str) -> None:
        DiagnosticsDialog(text, self.window()).show()

    def _save_report(self, text: str) -> None:
        kind = self.tr("Text (*.txt)")
        path = ask_where_to_save(self, self.tr("Save report"), REPORT_NAME, kind)
        if path is not None:
            self.run_in_background(
                lambda: files.atomic_write_text(path, text),
                lambda _nothing: self.notify.emit("ok", fill(self.tr("Written to %1"), str(path))),
            )


def _open(dialog: QDialog) -> None:
    dialog.finished.connect(dialog.deleteLater)
    dialog.open()
