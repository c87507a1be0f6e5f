"""Finds out what is known about this computer, without any library and within seconds.

Every subject is asked in a thread of its own. What has not answered in time is abandoned, its facts stay None and its
name goes to `Machine.unknown`: a timeout says nothing about what it would have found.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tunesmith_core.machine import Machine
from tunesmith_setup.probe import nvidia
from tunesmith_setup.probe.sources import Sources

TIMEOUT_S = 5.0

Facts = dict[str, Any]  # Any: values of fields of Machine, by name
Subject = Callable[[Sources], Facts]

SUBJECTS: Mapping[str, Subject] = {
    "nvidia": nvidia.facts,
}
"""Every subject, by the name that `Machine.unknown` gives it."""


def machine(timeout_s: float = TIMEOUT_S, sources: Sources | None = None) -> Machine:
    """Return the facts about this computer.

    Args:
        timeout_s: when to stop waiting; a healthy computer answers within a second or two.
        sources: where the facts come from; this very computer when None.
    """
    sources = sources or Sources()
    answers: dict[str, Facts] = {}

    def ask(name: str, subject: Subject) -> None:
        # A subject that fails is as unknown as one that hangs; nothing that a computer answers may end the probe.
        try:
            answers[name] = subject(sources)
        except Exception:
            return

    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in SUBJECTS.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    found = {name: value for facts in list(answers.values()) for name, value in facts.items()}
    unknown = tuple(name for name in SUBJECTS if name not in answers)
    return Machine(system=sources.system, unknown=unknown, **found)
