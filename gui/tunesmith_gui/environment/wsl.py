"""The card about the Windows Subsystem for Linux: how it stands, and when and why to use it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from tunesmith_core.machine import Machine, Wsl
from tunesmith_gui.tr import fill, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip


def wsl_words(wsl: Wsl | None) -> tuple[str, str, str]:
    """Word, tone and sentence for a state of the subsystem."""
    if wsl is None:
        words = translate("Wsl", "WSL did not respond in time. Training in Windows does not need it.")
        return translate("Wsl", "Unknown"), "neutral", words
    if wsl.state == "ready":
        names = ", ".join(each.name for each in wsl.distributions if each.version == 2)
        return translate("Wsl", "Ready"), "ok", fill(translate("Wsl", "Distributions: %1"), names)
    table = {
        "no-distribution": (
            translate("Wsl", "No distribution"),
            "neutral",
            translate("Wsl", "WSL is enabled, but no Linux distribution is installed."),
        ),
        "version-1": (
            translate("Wsl", "Version 1"),
            "warn",
            translate("Wsl", "The distribution uses WSL version 1, which can't use the GPU."),
        ),
        "not-installed": (
            translate("Wsl", "Not installed"),
            "neutral",
            translate("Wsl", "Setup needs administrator rights and a restart."),
        ),
    }
    failed = (translate("Wsl", "Does not work"), "error", wsl.detail or translate("Wsl", "No reason was given."))
    return table.get(wsl.state, failed)


def wsl_reason(machine: Machine) -> str:
    """Why one would train in the subsystem on this computer."""
    if machine.gpus is not None and len(machine.gpus) > 1:
        return translate("Wsl", "Training on several GPUs needs Linux. WSL provides it.")
    return translate("Wsl", "Needed only if Triton does not work in Windows.")


class WslCard(Card):
    """Shown on Windows only.

    Signals:
        asked: "use_wsl".
    """

    asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(translate("Wsl", "Windows Subsystem for Linux"), parent=parent)
        self.chip = StatusChip(parent=self)
        self.add_action(self.chip)
        self.words = SafeLabel(wrap=True, selectable=True, parent=self)
        self.reason = SafeLabel(tone="muted", wrap=True, parent=self)
        self.use = button(self.tr("Use WSL…"), lambda: self.asked.emit("use_wsl"), parent=self)
        self.body.addWidget(self.words)
        self.body.addWidget(self.reason)
        row = QHBoxLayout()
        row.addWidget(self.use)
        row.addStretch(1)
        self.body.addLayout(row)
        self.hide()

    def show_machine(self, machine: Machine | None) -> None:
        """Shows the subsystem of a computer."""
        relevant = machine is not None and machine.system == "windows"
        self.setVisible(relevant)
        if machine is None or not relevant:
            return
        word, tone, sentence = wsl_words(machine.wsl)
        self.chip.set_state(word, tone)
        self.words.setText(sentence)
        self.reason.setText(wsl_reason(machine))
