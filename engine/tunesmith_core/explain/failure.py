"""Puts a cause into a failure of our own that has none, where it happens; everybody later only renders what it says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tunesmith_core import hardware
from tunesmith_core.capped_log import STARTED_AGAIN
from tunesmith_core.environments import WSL_LIBRARIES
from tunesmith_core.error_codes import CODES, SYMPTOMS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.explain import facts
from tunesmith_core.explain.answer import UNKNOWN, explain
from tunesmith_core.explain.reading import decode, read_file
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message

DRIVER_TIMEOUT_S = 2.0


def explained(failure: TunesmithError, output: str) -> TunesmithError:
    """Return a failure with the cause that the output of its process tells, and what helps against it.

    Args:
        failure: returned as it is when it names a cause already, or when none is found. A cause that is not sure
            becomes its next step.
        output: what the process printed.
    """
    if failure.code not in SYMPTOMS:
        return failure
    # The facts take a moment, so they are asked only where a cause was found that they can change.
    answer = explain(output)
    if answer.code in facts.AMBIGUOUS:
        answer = explain(output, this_machine())
    if answer.code == UNKNOWN:
        return failure
    title = Message(CODES[answer.code].title)
    if answer.confidence == "low":
        hint = Message("Possible cause: {title}. {fix}", title=title, fix=answer.fix)
        return type(failure)(failure.code, failure.message, context=failure.context, hint=hint, actions=answer.actions)
    message = Message("{title}: {evidence}", title=title, evidence=answer.evidence)
    return TunesmithError(answer.code, message, context=failure.context, hint=answer.fix, actions=answer.actions)


def printed(log: Path) -> str:
    """Return what a process printed since it was started last; "" when that can't be read."""
    try:
        return decode(read_file(log)).rpartition(STARTED_AGAIN)[2]
    except OSError:
        return ""


def this_machine() -> Machine:
    """Return the facts about this computer that decide between causes and cost next to nothing."""
    reading = hardware.nvidia_reading(DRIVER_TIMEOUT_S)
    return Machine(
        system="windows" if sys.platform == "win32" else "linux",
        is_wsl=Path(WSL_LIBRARIES).is_dir(),
        gpus=reading.gpus if reading else None,
        driver=reading.driver if reading else None,
        leaks={name: os.environ[name] for name in facts.PTXAS_LEAKS if name in os.environ},
    )
