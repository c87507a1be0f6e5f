"""The strip at the foot of the rail: memory, load, heat and power of the GPU; processor and memory without one."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui import tr
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.services.hardware import Gpu, Reading
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel

TIGHT_SHARE, FULL_SHARE = 0.85, 0.97


class _Line(QWidget):
    """A word at the left, a value at the right, a bar below."""

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.name = SafeLabel(name, role="caption", tone="muted", parent=self)
        self.value = SafeLabel(role="caption", parent=self)
        self.meter = Meter(name, parent=self)
        row = QHBoxLayout()
        row.addWidget(self.name)
        row.addStretch(1)
        row.addWidget(self.value)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addLayout(row)
        column.addWidget(self.meter)

    def show_value(self, name: str, value: str, share: float, tone: str = "neutral") -> None:
        self.name.setText(name)
        self.value.setText(value)
        self.meter.setAccessibleName(name)
        self.meter.set_share(share, tone)

    def set_collapsed(self, collapsed: bool) -> None:
        self.name.setVisible(not collapsed)
        self.value.setVisible(not collapsed)


class GpuStrip(QWidget):
    """Shows the latest reading of `HardwareService`; the first GPU in the strip, all of them in the tool tip."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._collapsed = False
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE, SPACE, SPACE, SPACE)
        column.setSpacing(SPACE)
        self.title = ElidedLabel(role="caption", tone="muted", parent=self)
        self._memory = _Line("", self)
        self._load = _Line("", self)
        self._extra = SafeLabel(role="caption", tone="muted", parent=self)
        self._extra.setAlignment(Qt.AlignmentFlag.AlignRight)
        for widget in (self.title, self._memory, self._load, self._extra):
            column.addWidget(widget)
        self.setAccessibleName(self.tr("Hardware"))
        self.hide()

    def set_collapsed(self, collapsed: bool) -> None:
        """Shows the bars only, for a collapsed rail."""
        self._collapsed = collapsed
        self.title.setVisible(not collapsed)
        self._extra.setVisible(not collapsed and bool(self._extra.text()))
        self._memory.set_collapsed(collapsed)
        self._load.set_collapsed(collapsed)

    def show_reading(self, reading: Reading) -> None:
        """Draws a reading."""
        if reading.gpus:
            self._show_gpu(reading.gpus[0])
        else:
            self._show_processor(reading)
        words = "\n".join(self._sentence(gpu) for gpu in reading.gpus) or self._processor_sentence(reading)
        set_tip(self, words)
        self.setAccessibleDescription(words)
        self.setVisible(True)

    def _show_gpu(self, gpu: Gpu) -> None:
        self.title.setText(gpu.name)
        share = gpu.used_bytes / max(gpu.total_bytes, 1)
        self._memory.show_value(self.tr("VRAM"), _of(gpu.used_bytes, gpu.total_bytes), share, _fill_tone(share))
        load = gpu.utilization_percent
        self._load.setVisible(load is not None)
        if load is not None:
            self._load.show_value(self.tr("Load"), f"{load}%", load / 100)
        parts = [f"{gpu.temperature_c} °C"] if gpu.temperature_c is not None else []
        parts += [f"{gpu.power_w:.0f} W"] if gpu.power_w is not None else []
        self._extra.setText(" · ".join(parts))
        self._extra.setVisible(bool(parts) and not self._collapsed)

    def _show_processor(self, reading: Reading) -> None:
        self.title.setText(self.tr("No GPU"))
        share = reading.memory_used_bytes / max(reading.memory_total_bytes, 1)
        used = _of(reading.memory_used_bytes, reading.memory_total_bytes)
        self._memory.show_value(self.tr("RAM"), used, share, _fill_tone(share))
        percent = round(reading.cpu_percent)
        self._load.show_value(self.tr("Processor"), f"{percent}%", percent / 100)
        self._extra.hide()

    def _sentence(self, gpu: Gpu) -> str:
        parts = [tr.fill(self.tr("%1: VRAM %2"), gpu.name, _of(gpu.used_bytes, gpu.total_bytes))]
        parts += [f"{gpu.utilization_percent}%"] if gpu.utilization_percent is not None else []
        parts += [f"{gpu.temperature_c} °C"] if gpu.temperature_c is not None else []
        parts += [f"{gpu.power_w:.0f} W"] if gpu.power_w is not None else []
        return ", ".join(parts)

    def _processor_sentence(self, reading: Reading) -> str:
        used = _of(reading.memory_used_bytes, reading.memory_total_bytes)
        return tr.fill(self.tr("RAM %1, processor %2%"), used, round(reading.cpu_percent))


def _fill_tone(share: float) -> str:
    return "error" if share > FULL_SHARE else "warn" if share > TIGHT_SHARE else "neutral"


def _of(used_bytes: int, total_bytes: int) -> str:
    return f"{tr.number(used_bytes / 2**30, 1)} / {tr.number(total_bytes / 2**30, 1)} GiB"
