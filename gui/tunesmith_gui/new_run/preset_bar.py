"""The choice of a preset with one line that says what it means."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.hardware import Hardware
from tunesmith_core.planner import number_bytes
from tunesmith_core.presets import PRESETS
from tunesmith_core.spec import RunSpec, has_effect
from tunesmith_core.trained_parts import FULL
from tunesmith_gui.new_run.setting_text import number_text
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill, number, translate
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.segmented import Segmented


def preset_word(preset: str) -> str:
    """Name of a preset."""
    return {
        "balanced": translate("PresetBar", "Balanced"),
        "fast-try": translate("PresetBar", "Fast try"),
        "best-quality": translate("PresetBar", "Best quality"),
    }.get(preset, preset)


def base_word(spec: RunSpec, hardware: Hardware | None) -> str:
    """What is trained in which precision; which one "auto" means depends on the device."""
    if spec.adapter.kind == FULL:
        if spec.adapter.weights == "bfloat16":
            return translate("PresetBar", "Full fine-tuning in 16 bits")
        return translate("PresetBar", "Full fine-tuning in 32 bits")
    if kind := KINDS.get(spec.adapter.kind):
        return kind.title
    if spec.quantization.kind == "nf4":
        return translate("PresetBar", "LoRA on a 4-bit base")
    if spec.quantization.kind == "int8":
        return translate("PresetBar", "LoRA on an 8-bit base")
    if hardware is None:
        return translate("PresetBar", "LoRA")
    if number_bytes(spec, hardware) == 2:
        return translate("PresetBar", "LoRA on a 16-bit base")
    return translate("PresetBar", "LoRA on a 32-bit base")


def summary(spec: RunSpec, hardware: Hardware | None) -> str:
    """What a spec does on a device, in one line."""
    if spec.schedule.max_steps:
        length = fill(translate("PresetBar", "%1 steps"), number(spec.schedule.max_steps))
    else:
        length = fill(translate("PresetBar", "%1 epochs"), number_text(spec.schedule.epochs))
    parts = (
        base_word(spec, hardware),
        fill(translate("PresetBar", "rank %1"), spec.adapter.rank) if has_effect(spec, "adapter.rank") else "",
        fill(translate("PresetBar", "%1 tokens"), number(spec.data.context_length)),
        length,
        fill(translate("PresetBar", "learning rate %1"), number_text(spec.optimizer.learning_rate)),
    )
    return "  ·  ".join(filter(None, parts))


class PresetBar(Card):
    """Segments and the summary line.

    Signals:
        chosen: (name) a preset.
    """

    chosen = Signal(str)

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("PresetBar", "Preset"), parent=parent)
        options = [(name, preset_word(name)) for name in PRESETS]
        self.changes = SafeLabel(tone="accent", parent=self)
        self.add_action(self.changes)
        self.segments = Segmented(translate("PresetBar", "Preset"), options, parent=self)
        self.segments.changed.connect(self.chosen)
        self.body.addWidget(self.segments)
        self.summary = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.summary)
        self.body.setSpacing(SPACE)

    def show_spec(self, preset: str, num_changed: int, spec: RunSpec, hardware: Hardware | None) -> None:
        """Shows from which preset a spec comes, how much differs from it, and what it does."""
        self.segments.blockSignals(True)
        self.segments.set_value(preset)
        self.segments.blockSignals(False)
        self.summary.setText(summary(spec, hardware))
        words = fill(self.tr("%1, %2"), preset_word(preset), self.tr("%n changed", "", num_changed))
        self.changes.setText(words if num_changed else "")
