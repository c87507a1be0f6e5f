"""What a run takes of the machine: the present while it is live, its highest and average numbers once it has ended."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from tunesmith_gui import tr
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.stat_tile import UNKNOWN, Meter, StatTile, TileGrid

_GIB = float(2**30)
_NAME_LETTERS = 120


class DeviceCard(Card):
    """VRAM and GPU figures, or memory and processor on a CPU."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(self.tr("GPU"), parent=parent)
        self.memory = Meter(self.tr("VRAM"), parent=self)
        self.host = Meter(self.tr("Memory of this computer"), parent=self)
        self.body.addWidget(self.memory)
        self.body.addWidget(self.host)
        self.load = StatTile(self.tr("Utilization"), parent=self)
        self.heat = StatTile(self.tr("Temperature"), parent=self)
        self.power = StatTile(self.tr("Power"), parent=self)
        self.body.addWidget(TileGrid((self.load, self.heat, self.power), self))
        self.body.addStretch(1)

    def show_model(self, model: DashboardModel) -> None:
        """Show the newest reading of a live run, or what an ended one took."""
        live, on_cpu = model.status.state.live, model.on_cpu
        reading = model.reading if live else model.taken()
        name = tr.core_text(model.status.device_name)[:_NAME_LETTERS]
        self.heading.setText(name or (self.tr("Processor") if on_cpu else self.tr("GPU")))
        self._name_values(live, on_cpu)
        host_total = reading.get("host_total_bytes")
        self.host.setVisible(live and bool(host_total))
        _set_meter(self.host, reading.get("host_used_bytes"), host_total)
        if on_cpu:
            _set_meter(self.memory, reading.get("process_bytes"), host_total)
            self._show_processor(reading)
        else:
            _set_meter(self.memory, reading.get("device_bytes"), reading.get("total_bytes"))
            self.load.set_value(_unit(reading.get("utilization_percent"), "%"))
        self.heat.setVisible(not on_cpu)
        self.power.setVisible(not on_cpu)
        self.heat.set_value(_unit(reading.get("temperature_c"), " °C"))
        self.power.set_value(_unit(reading.get("power_w"), " W"))

    def _name_values(self, live: bool, on_cpu: bool) -> None:
        if live:
            self.memory.set_name(self.tr("Memory of the run") if on_cpu else self.tr("VRAM"))
            names = self.tr("Utilization"), self.tr("Temperature"), self.tr("Power")
        else:
            self.memory.set_name(self.tr("Memory of the run, highest") if on_cpu else self.tr("VRAM, highest"))
            names = self.tr("Average utilization"), self.tr("Highest temperature"), self.tr("Average power")
        for tile, name in zip((self.load, self.heat, self.power), names, strict=True):
            tile.set_name(name)

    def _show_processor(self, reading: dict[str, float]) -> None:
        share, busy_cores = reading.get("cpu_machine_percent"), reading.get("cpu_percent")
        if share is None and busy_cores is not None:
            # The sum over cores, as earlier versions wrote it; how many there were, they did not write.
            self.load.set_value(tr.number(busy_cores / 100, 1), self.tr("cores busy"))
            return
        self.load.set_value(_unit(share, "%"), "" if share is None else self.tr("of all cores"))


def _unit(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{tr.number(value)}{unit}"


def _set_meter(meter: Meter, used: float | None, total: float | None) -> None:
    if used is None or not total:
        meter.set_value(0.0, UNKNOWN if used is None else tr.size(used))
        return
    meter.set_value(used / total, f"{tr.number(used / _GIB, 1)} / {tr.size(total)}")
