"""What the sensors say of the machine."""

from __future__ import annotations

import psutil
import pytest

from tunesmith_engine.sensors import Sensors


def test_processor_is_a_share_of_the_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(psutil.Process, "cpu_percent", lambda _process: 148.0)
    values = Sensors().read()
    assert values["cpu_machine_percent"] == 74.0
    assert "cpu_percent" not in values
