"""Finds out what is known about this computer, without any package and within seconds.

Every subject is asked at once, in a thread of its own. What has not answered in time is abandoned, its facts stay None
and its name goes to `Machine.unknown`: a timeout says nothing about what it would have found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tunesmith_core.bounded import ask_all
from tunesmith_core.machine import Machine
from tunesmith_setup.probe import disks, display, memory, network, nvidia, pythons, security, shell, system, wsl
from tunesmith_setup.probe.computer import Computer

TIMEOUT_S = 5.0

Facts = dict[str, Any]  # Any: values of fields of Machine, by name
Subject = Callable[[Computer], Facts]

SUBJECTS: Mapping[str, Subject] = {
    "system": system.facts,
    "memory": memory.facts,
    "nvidia": nvidia.facts,
    "display": display.facts,
    "disks": disks.facts,
    "pythons": pythons.facts,
    "wsl": wsl.facts,
    "shell": shell.facts,
    "network": network.facts,
    "security": security.facts,
}
"""Every subject, by the name that `Machine.unknown` gives it."""


def machine(timeout_s: float = TIMEOUT_S, computer: Computer | None = None) -> Machine:
    """Return the facts about this computer.

    Args:
        timeout_s: when to stop waiting; a healthy computer answers within a second or two.
        computer: where the facts come from; this very computer when None.
    """
    computer = computer or Computer(timeout_s)
    answers = ask_all({name: partial(subject, computer) for name, subject in SUBJECTS.items()}, timeout_s)
    found = {field: value for facts in answers.values() for field, value in facts.items()}
    return Machine(system=computer.system, unknown=tuple(name for name in SUBJECTS if name not in answers), **found)
