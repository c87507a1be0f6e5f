"""The cards of the Environment page: each shows a part of the EnvironmentModel and says what the person asked for."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from tunesmith_core.error_codes import CODES
from tunesmith_core.machine import Gpu, Machine
from tunesmith_core.setup_messages import Finding
from tunesmith_gui.environment.check_row import CheckList
from tunesmith_gui.environment.model import (
    DiskUse,
    EnvironmentModel,
    Installed,
    Verdict,
    gpu_notes,
    profile_words,
    proof_words,
    verdict_words,
)
from tunesmith_gui.environment.setup_progress import SetupProgress
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number, size, translate
from tunesmith_gui.widgets.buttons import Kind, button
from tunesmith_gui.widgets.card import Card, line
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip

TIGHT_SHARE = 0.85
LIBRARIES = ("torch", "cuda", "triton", "transformers", "peft", "bitsandbytes")
"""Names of versions that are shown, in this order; all are in the diagnostics."""


def installed_words(installed: Installed, choice: str) -> list[str]:
    """What is installed, why, and what is known about it, line by line."""
    if installed.problem is not None:
        return [core_text(CODES[installed.problem.code].cause), *([choice] if choice else [])]
    lines = [profile_words(installed.profile) if installed.profile else installed.name]
    if choice:
        lines[0] = f"{lines[0]}  ·  {choice}"
    proof = installed.proof
    versions = proof.versions if proof else {}
    named = [f"{name} {versions[name]}" for name in LIBRARIES if name in versions]
    if named:
        lines.append("  ·  ".join(named))
    return [*lines, proof_words(proof, installed.built_at)]


class EnvironmentCard(Card):
    """The training environment: what it is, how it is, what can be done with it, and what goes on.

    Signals:
        asked: check, full_check, repair, roll_back, install, profile or cancel.
    """

    asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(translate("Environment", "Training environment"), parent=parent)
        self.chip = StatusChip(parent=self)
        self.add_action(self.chip)
        self.words = SafeLabel(tone="muted", wrap=True, selectable=True, parent=self)
        self.body.addWidget(self.words)
        self.install = self._button("install", self.tr("Install…"), kind="primary")
        self.check = self._button("check", self.tr("Check again"))
        self.repair = self._button("repair", self.tr("Repair…"), kind="primary")
        self.roll_back = self._button("roll_back", self.tr("Roll back…"))
        self.full_check = self._button("full_check", self.tr("Full check"))
        self.profile = self._button("profile", self.tr("Change version…"))
        self._buttons = (self.install, self.repair, self.check, self.roll_back, self.full_check, self.profile)
        self.flow = FlowRow(self._buttons, self)
        self.body.addWidget(self.flow)
        self.progress = SetupProgress(self)
        self.progress.cancel_asked.connect(lambda: self.asked.emit("cancel"))
        self.body.addWidget(self.progress)

    def _button(self, name: str, words: str, *, kind: Kind = "secondary") -> QPushButton:
        return button(words, lambda: self.asked.emit(name), kind=kind, parent=self)

    def show_model(self, model: EnvironmentModel) -> None:
        """Shows what is known now."""
        word, tone = verdict_words(model.verdict)
        going = model.verdict in (Verdict.CHECKING, Verdict.WORKING)
        self.chip.set_state(word, tone, icon_name="refresh" if going else "")
        if model.installed is None:
            self.words.setText(self.tr("Reading what is installed…"))
        else:
            self.words.setText("\n".join(installed_words(model.installed, model.choice)))
        missing = model.verdict is Verdict.MISSING
        faults = any(check.state in ("failed", "warning") and check.fix for check in model.checks.values())
        shown = [self.check, self.profile, self.install if missing else self.full_check]
        shown += [self.repair] if faults and not missing else []
        shown += [self.roll_back] if model.installed is not None and model.installed.previous else []
        self.flow.show_only(shown)
        for each in self._buttons:
            each.setEnabled(not model.changing)
        for each in (self.check, self.full_check):
            each.setEnabled(not model.busy)
        self.progress.show_activity(model.activity if _worth_showing(model) else None)


def _worth_showing(model: EnvironmentModel) -> bool:
    """A quick look that went well needs no words: the checks say it."""
    activity = model.activity
    return activity is not None and (activity.running or activity.command.changes or activity.error is not None)


class ChecksCard(Card):
    """What is not well, each with its fix; what is well is one line that opens into all checks."""

    def __init__(
        self, on_fix: Callable[[Finding], object], on_check: Callable[[], object], parent: QWidget | None = None
    ) -> None:
        super().__init__(translate("Environment", "Checks"), parent=parent)
        self.counts = SafeLabel(tone="muted", parent=self)
        self.toggle = button("", self._toggle, kind="link", parent=self)
        for each in (self.counts, self.toggle):
            self.add_action(each)
        self._model: EnvironmentModel | None = None
        self._shows_all = False
        self.empty = SafeLabel(tone="muted", wrap=True, parent=self)
        self.check = button(self.tr("Check now"), on_check, parent=self)
        self.body.addWidget(self.empty)
        row = QHBoxLayout()
        row.addWidget(self.check)
        row.addStretch(1)
        self.body.addLayout(row)
        self.list = CheckList(on_fix, parent=self)
        self.body.addWidget(self.list)

    def show_model(self, model: EnvironmentModel) -> None:
        """Shows what is known now."""
        self._model = model
        nothing = not model.checks
        self.empty.setVisible(nothing)
        self.empty.setText(self.tr("Checking…") if model.busy else self.tr("No checks have run yet."))
        self.check.setVisible(nothing and not model.busy)
        checks = list(model.checks.values() if model.busy else model.gravest_first())
        known = [check for check in checks if not _is_missing_part(check, model)]
        remarkable = [check for check in known if check.state in ("warning", "failed", "unknown")]
        shown = checks if self._shows_all else remarkable
        self.list.setVisible(bool(shown))
        self.list.show_checks(shown, offline=model.offline, busy=model.changing)
        passed = bool(checks) and all(check.state == "ok" for check in checks)
        self.counts.setText(self.tr("All %n check(s) passed", "", len(checks)) if passed else _count_words(known))
        self.counts.set_tone("ok" if passed else "muted")
        self.toggle.setVisible(self._shows_all or len(shown) < len(checks))
        self.toggle.setText(self.tr("Show less") if self._shows_all else self.tr("Show all"))
        self.toggle.setAccessibleName(fill(self.tr("Checks: %1"), self.toggle.text()))

    def _toggle(self) -> None:
        self._shows_all = not self._shows_all
        if self._model is not None:
            self.show_model(self._model)


def _is_missing_part(check: Finding, model: EnvironmentModel) -> bool:
    """Whether a check only repeats that the environment is missing, which the card above says with its button."""
    return model.verdict is Verdict.MISSING and (check.state == "unknown" or check.code == "environment-missing")


def _count_words(checks: list[Finding]) -> str:
    states: list[str] = [check.state for check in checks]
    num_open = states.count("waiting") + states.count("checking")
    if num_open:
        words = translate("Environment", "%1 of %2 checks done")
        return fill(words, number(len(states) - num_open), number(len(states)))
    words_by_state = {
        "failed": translate("Environment", "%1 failed"),
        "warning": translate("Environment", "%1 with warnings"),
        "unknown": translate("Environment", "%1 unknown"),
        "ok": translate("Environment", "%1 passed"),
    }
    counted = [fill(words, number(states.count(state))) for state, words in words_by_state.items() if state in states]
    return "  ·  ".join(counted)


class GpuCard(Card):
    """Memory of each GPU and who holds it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(translate("Environment", "GPU memory"), parent=parent)
        self._shown: tuple[Gpu, ...] | None = None
        self._rows: list[QWidget] = []

    def show_machine(self, machine: Machine | None) -> None:
        """Shows the GPUs of a computer; hidden where there is none or nobody knows."""
        gpus = machine.gpus or () if machine is not None else ()
        self.setVisible(bool(gpus))
        if gpus == self._shown:
            return
        self._shown = gpus
        for row in self._rows:
            self.body.removeWidget(row)
            row.hide()
            row.deleteLater()
        self._rows = [self._row(gpu) for gpu in gpus]
        for row in self._rows:
            self.body.addWidget(row)

    def _row(self, gpu: Gpu) -> QWidget:
        row = QWidget(self)
        column = QVBoxLayout(row)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addWidget(SafeLabel(f"{gpu.index}: {gpu.name}", role="strong", wrap=True, parent=row))
        if gpu.total_bytes is None or gpu.free_bytes is None:
            words = self.tr("The driver does not report memory use.")
            column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=row))
        else:
            self._add_use(gpu, gpu.total_bytes, gpu.free_bytes, column)
        for tone, note in gpu_notes(gpu):
            column.addWidget(SafeLabel(note, tone=tone, wrap=True, parent=row))
        holders = self._holders(gpu)
        if holders:
            column.addWidget(SafeLabel(holders, role="caption", tone="muted", wrap=True, selectable=True, parent=row))
        return row

    def _add_use(self, gpu: Gpu, total_bytes: int, free_bytes: int, column: QVBoxLayout) -> None:
        used = total_bytes - free_bytes
        share = used / max(total_bytes, 1)
        meter = Meter(fill(self.tr("Memory of %1"), gpu.name), parent=self)
        meter.set_share(share, "warn" if share > TIGHT_SHARE else "neutral")
        column.addWidget(meter)
        words = fill(self.tr("%1 of %2 in use, %3 free"), size(used), size(total_bytes), size(free_bytes))
        column.addWidget(SafeLabel(words, parent=self, wrap=True))

    def _holders(self, gpu: Gpu) -> str:
        if gpu.processes is None:
            return self.tr("The programs that use it could not be determined.")
        if not gpu.processes:
            return self.tr("No other program uses it.")
        unknown = self.tr("unknown")
        parts = []
        for process in gpu.processes:
            used = size(process.used_bytes) if process.used_bytes is not None else unknown
            parts.append(f"{process.name or '?'} ({process.pid}): {used}")
        return fill(self.tr("In use by: %1"), ", ".join(parts))


class DiskCard(Card):
    """What the parts of the data folder take, with a way to free each.

    Signals:
        asked: compiled, runs or folder.
    """

    asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(translate("Environment", "Disk"), parent=parent)
        self.folder = button(self.tr("Open folder"), lambda: self.asked.emit("folder"), icon_name="folder", parent=self)
        self.add_action(self.folder)
        self._shown: object = None
        self._rows: list[QWidget] = []
        self.clear: QPushButton | None = None

    def show_model(self, model: EnvironmentModel) -> None:
        """Shows what is known now."""
        self.setVisible(bool(model.disk))
        if (model.disk, model.changing) == self._shown:
            return
        self._shown = (model.disk, model.changing)
        for row in self._rows:
            self.body.removeWidget(row)
            row.hide()
            row.deleteLater()
        self._rows, self.clear = [], None
        for use in model.disk:
            if self._rows:
                self._add(line(self))
            self._add(self._row(use, enabled=not model.changing))

    def _add(self, row: QWidget) -> None:
        self._rows.append(row)
        self.body.addWidget(row)

    def _row(self, use: DiskUse, *, enabled: bool) -> QWidget:
        row = QWidget(self)
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(SPACE)
        layout.addWidget(SafeLabel(disk_words(use.key), wrap=True, parent=row), 1)
        layout.addWidget(SafeLabel(size(use.num_bytes), tone="muted", parent=row))
        if use.can_free:
            self.clear = button(self.tr("Clear"), lambda: self.asked.emit(use.key), parent=row)
            self.clear.setAccessibleName(self.tr("Clear compiled kernels"))
            self.clear.setEnabled(enabled)
            layout.addWidget(self.clear)
        elif use.key == "runs":
            layout.addWidget(button(self.tr("Show runs"), lambda: self.asked.emit("runs"), parent=row))
        return row


def disk_words(key: str) -> str:
    """Name of a part of the data folder."""
    return {
        "environments": translate("Environment", "Environments, including the previous one"),
        "compiled": translate("Environment", "Compiled kernels, rebuilt when needed"),
        "downloads": translate("Environment", "Download cache"),
        "models": translate("Environment", "Base models"),
        "runs": translate("Environment", "Runs, with checkpoints and adapters"),
    }[key]
