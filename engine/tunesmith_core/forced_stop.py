"""A forced stop: a stop is asked, awaited as long as it moves on, then enforced; first gently, then at once.

Pure bookkeeping over events and a clock, so that it can be tested without processes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tunesmith_core.protocol import Event

NO_PROGRESS_TYPES = frozenset({"step", "gpu", "log", "warning", "ack"})
"""Events that an engine may write for ever without coming nearer to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times of a forced stop; only tests change them.

    Attributes:
        stop_s: shortest time without progress after a stop before the engine is ended by force.
        saves: how many times the last checkpoint's or step's duration a stop may take instead, when that is longer.
        terminate_s: time between asking the group to end and ending it.
        result_s: time an engine may take to exit after its result.
    """

    stop_s: float = 60.0
    saves: float = 3.0
    terminate_s: float = 10.0
    result_s: float = 20.0


class Force(enum.IntEnum):
    """What is to be done now."""

    WAIT = 0
    TERMINATE = 1
    KILL = 2


class ForcedStop:
    """Decides when an engine that should end is made to end.

    Attributes:
        mode: of the stop that was asked for, or None.
        has_result: whether the engine has written its result.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.mode: str | None = None
        self.has_result = False
        self._since_s = 0.0
        self._slowest_s = 0.0

    def ask(self, mode: str, now_s: float) -> None:
        """Note that a stop was asked for; asking again changes only the mode, not the clock."""
        if self.mode is None:
            self._since_s = now_s
        self.mode = mode

    def see(self, event: Event, now_s: float) -> None:
        """Take an event of the engine into account; the clock is monotonic seconds."""
        data = event.data
        match event.type:
            case "checkpoint":
                self._slowest_s = max(self._slowest_s, _seconds(data.get("seconds")))
            case "step":
                self._slowest_s = max(self._slowest_s, _seconds(data.get("step_s")))
            case "stopping":
                self.ask(str(data.get("mode")), now_s)
            case "ack" if data.get("command") == "stop" and data.get("ok") is not False:
                self.ask(self.mode or "save", now_s)
            case "result":
                self.has_result = True
                self._since_s = now_s
        if event.type not in NO_PROGRESS_TYPES:
            self._since_s = now_s

    @property
    def limit_s(self) -> float:
        """Time without progress that is allowed now."""
        if self.has_result:
            return self.limits.result_s
        return max(self.limits.stop_s, self.limits.saves * self._slowest_s)

    def force(self, now_s: float) -> Force:
        """Return what is to be done at a time."""
        if self.mode is None and not self.has_result:
            return Force.WAIT
        over_s = now_s - self._since_s - self.limit_s
        if over_s < 0:
            return Force.WAIT
        # After a result nothing can be lost, so the gentle way would only cost time.
        return Force.KILL if self.has_result or over_s >= self.limits.terminate_s else Force.TERMINATE


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
