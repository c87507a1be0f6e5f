"""Recorded computers, from the GTX 1080 to the B200: every fact and the chosen build of PyTorch with its sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.setup.recorded import MACHINES, Recorded, load
from tunesmith_core import nvml
from tunesmith_core.machine import Machine
from tunesmith_setup import probe
from tunesmith_setup.environments import profiles

NAMES = sorted(path.stem for path in MACHINES.glob("*.json"))


def test_there_are_enough_computers() -> None:
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_computer_is_understood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = load(name)
    answers = recording.get("nvml")
    gpus: list[dict[str, Any]] = answers.get("gpus", []) if isinstance(answers, dict) else []
    names = {pid: program for gpu in gpus for pid, program, _ in gpu.get("processes", ())}
    monkeypatch.setattr(nvml, "process_name", names.get)
    machine = probe.machine(computer=Recorded(recording))
    facts = json.loads(json.dumps(machine.to_dict()))
    expected = recording["expected"]
    assert {field: facts[field] for field in expected["facts"]} == expected["facts"]
    assert machine.unknown == ()
    assert Machine.from_dict(facts) == machine
    choice = profiles.choose(machine)
    assert choice.sentence == expected["sentence"]
    assert choice.profile.name == expected["profile"]
    assert [warning.code for warning in choice.warnings] == expected["warnings"]
    assert choice.problem == expected["problem"]
