"""The Pythons of this computer, those that can't serve with the reason."""

from __future__ import annotations

from functools import partial
from typing import Any

from tunesmith_core.bounded import ask_all
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.computer import Computer


def facts(computer: Computer) -> dict[str, Any]:
    """Return `pythons`; an interpreter that does not answer in time is left out."""
    places = interpreters.places(computer)
    questions = {place: partial(interpreters.inspect, place, computer) for place in places}
    answers = ask_all(questions, computer.timeout_s * 0.9)
    found = {answer.executable: answer for place in places if (answer := answers.get(place)) is not None}
    return {"pythons": tuple(found.values())}
