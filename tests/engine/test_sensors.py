"""What the sensors say of the machine."""

from __future__ import annotations

import platform
from types import SimpleNamespace

import psutil
import pytest

from tunesmith_core.messages import said
from tunesmith_core.spec import RunSpec
from tunesmith_engine import device, sensors
from tunesmith_engine.sensors import Sensors


def test_processor_is_a_share_of_the_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    told = iter([0.0, 148.0, 476.0])
    monkeypatch.setattr(psutil.Process, "cpu_percent", lambda _process: next(told))
    clock = iter([10.0, 10.1, 10.7, 10.7, 12.0, 12.0])
    monkeypatch.setattr(sensors, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    read = Sensors()
    assert "cpu_machine_percent" not in read.read(), "too soon to tell"
    values = read.read()
    assert values["cpu_machine_percent"] == 74.0
    assert "cpu_percent" not in values
    assert read.read()["cpu_machine_percent"] == 100.0


@pytest.mark.parametrize(
    ("told", "name"), [("processor\t: 0\nmodel name\t: Fast CPU\nmodel name\t: Fast CPU\n", "Fast CPU, "), ("", "")]
)
def test_processor_has_its_own_name(monkeypatch: pytest.MonkeyPatch, told: str, name: str) -> None:
    spec = RunSpec()
    spec.hardware.devices = ["cpu"]
    with monkeypatch.context() as patch:
        patch.setattr(device.Path, "read_text", lambda _path, **_: told)
        shown = device.choose_compute(spec).name
    assert shown.startswith(name or f"{platform.processor() or platform.machine()}, ")
    assert said(shown, "zh_CN").endswith(" 线程")
