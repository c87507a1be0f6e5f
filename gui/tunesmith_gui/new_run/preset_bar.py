"""The choice of a preset with one line that says what it means."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from tunesmith_core.presets import CUSTOM, PRESETS
from tunesmith_core.spec import RunSpec
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
        CUSTOM: translate("PresetBar", "Custom"),
    }.get(preset, preset)


def summary(spec: RunSpec) -> str:
    """What a spec does, in one line."""
    base = {
        "none": translate("PresetBar", "LoRA on a 16-bit base"),
        "nf4": translate("PresetBar", "LoRA on a 4-bit base"),
    }[spec.quantization.kind]
    if spec.schedule.max_steps:
        length = fill(translate("PresetBar", "%1 steps"), number(spec.schedule.max_steps))
    else:
        length = fill(translate("PresetBar", "%1 epochs"), number_text(spec.schedule.epochs))
    parts = (
        base,
        fill(translate("PresetBar", "rank %1"), spec.adapter.rank),
        fill(translate("PresetBar", "%1 tokens"), number(spec.data.context_length)),
        length,
        fill(translate("PresetBar", "learning rate %1"), number_text(spec.optimizer.learning_rate)),
    )
    return "  ·  ".join(parts)


class PresetBar(Card):
    """Segments and the summary line.

    Signals:
        chosen: (name) a preset, or `custom`.
    """

    chosen = Signal(str)

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("PresetBar", "Preset"), parent=parent)
        names = (*PRESETS, CUSTOM)
        options = [(name, preset_word(name)) for name in names]
        self.segments = Segmented(translate("PresetBar", "Preset"), options, parent=self)
        self.segments.changed.connect(self.chosen)
        self.body.addWidget(self.segments)
        self.summary = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.summary)
        self.body.setSpacing(SPACE)

    def show_spec(self, preset: str, spec: RunSpec) -> None:
        """Shows which preset a spec has and what it does."""
        self.segments.blockSignals(True)
        self.segments.set_value(preset)
        self.segments.blockSignals(False)
        self.summary.setText(summary(spec))
