"""The card of a run's device: the present while it is live, what it took once it has ended."""

from __future__ import annotations

from typing import Any

import pytest

from tunesmith_core.messages import Message
from tunesmith_core.protocol import Event, decode, encode
from tunesmith_gui import tr
from tunesmith_gui.dashboard.device_card import DeviceCard
from tunesmith_gui.dashboard.model import DashboardModel, pack

GIB = 2**30


@pytest.fixture
def card(qtbot: Any) -> DeviceCard:
    result = DeviceCard()
    qtbot.addWidget(result)
    return result


def model_of(*readings: dict[str, Any], end: str = "") -> DashboardModel:
    events = [Event(1, 0.0, "phase", {"name": "training"})]
    events += [Event(2 + n, float(n), "gpu", fields) for n, fields in enumerate(readings)]
    if end:
        events.append(Event(99, 99.0, "result", {"status": end}))
    model = DashboardModel()
    model.apply(pack(events))
    return model


def gpu(percent: int, used: int, heat: int) -> dict[str, Any]:
    shares = {"utilization_percent": percent, "temperature_c": heat, "power_w": percent}
    return {"device": "cuda:0", "reserved_bytes": used * GIB, "total_bytes": 8 * GIB, **shares}


def cpu(**processor: float) -> dict[str, Any]:
    return {"device": "cpu", "process_bytes": GIB, "host_used_bytes": 2 * GIB, "host_total_bytes": 4 * GIB, **processor}


def test_the_processor_is_named_in_the_language_in_force(card: DeviceCard) -> None:
    model = DashboardModel()
    name = Message("{name}, {count} threads", name="AMD EPYC", count=2)
    greeting = decode(encode(Event(1, 0.0, "hello", {"device_name": name})))
    assert greeting is not None
    model.apply(pack([greeting]))
    tr.install_language("zh_CN")
    try:
        card.show_model(model)
    finally:
        tr.install_language("en")
    assert card.heading.text() == "AMD EPYC，2 线程"


def test_live_run_shows_the_present(card: DeviceCard) -> None:
    card.show_model(model_of(gpu(90, 6, 70), gpu(50, 4, 60)))
    assert card.load.accessibleName() == "Utilization: 50%"
    assert card.memory.value.text() == "4.0 / 8.0 GiB"


@pytest.mark.parametrize("end", ["finished", "stopped", "failed"])
def test_ended_run_shows_what_it_took(end: str, card: DeviceCard) -> None:
    card.show_model(model_of(gpu(90, 6, 70), gpu(50, 4, 60), end=end))
    assert card.load.accessibleName() == "Average utilization: 70%"
    assert card.heat.accessibleName() == "Highest temperature: 70 °C"
    assert card.power.accessibleName() == "Average power: 70 W"
    assert (card.memory.name.text(), card.memory.value.text()) == ("VRAM, highest", "6.0 / 8.0 GiB")


def test_memory_of_the_computer_is_of_the_present_only(card: DeviceCard) -> None:
    card.show_model(model_of(cpu(cpu_machine_percent=74.0)))
    assert not card.host.isHidden()
    card.show_model(model_of(cpu(cpu_machine_percent=74.0), end="stopped"))
    assert card.host.isHidden()
    assert card.memory.value.text() == "1.0 / 4.0 GiB"


def test_processor_is_a_share_of_all_cores(card: DeviceCard) -> None:
    card.show_model(model_of(cpu(cpu_machine_percent=74.0)))
    assert card.load.accessibleName() == "Utilization: 74% of all cores"


def test_journal_of_an_earlier_version_counts_cores(card: DeviceCard) -> None:
    card.show_model(model_of(cpu(cpu_percent=148.0)))
    assert card.load.accessibleName() == "Utilization: 1.5 cores busy"
    card.show_model(model_of(cpu(cpu_percent=148.0), cpu(cpu_percent=52.0), end="finished"))
    assert card.load.accessibleName() == "Average utilization: 1.0 cores busy"
