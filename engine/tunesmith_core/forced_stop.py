"""A forced stop: a stop is asked, awaited for a short while, then enforced; first gently, then at once.

An engine that was asked to stop is over within 10 s in every phase, counted from the last command that changed
something: one that obeys needs 2 to 4 s, one that hangs is ended after `stop_s` and `terminate_s` (7 s and 1 s).

One exception: a save that is under way, which can be seen by its phase or its files, may finish, since nothing that was
trained may be lost. It is ended when neither its files nor the journal changed for `save_s` (60 s), or for `saves` (3)
times the slowest checkpoint before it. Who then stops and discards gets the short limit again.

Pure bookkeeping over events, names of files and a clock, so that it can be tested without processes.
"""

from __future__ import annotations

import enum
from collections.abc import Set
from dataclasses import dataclass

from tunesmith_core.protocol import Event

NO_PROGRESS_TYPES = frozenset({"step", "gpu", "log", "warning", "ack"})
"""Events that an engine may write for ever without coming nearer to its end."""

SAVING_PHASE = "saving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times of a forced stop; only tests change them.

    Attributes:
        stop_s: time after a stop before the engine is ended by force.
        save_s: time without progress that a save which is under way may take instead.
        saves: how many times the slowest checkpoint's duration it may take, when that is longer.
        terminate_s: time between asking the group to end and ending it.
        result_s: time an engine that nobody stopped may take to exit after its result.
    """

    stop_s: float = 7.0
    save_s: float = 60.0
    saves: float = 3.0
    terminate_s: float = 1.0
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
        is_unsaved: whether this engine has made steps that no checkpoint holds.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.mode: str | None = None
        self.has_result = self.is_unsaved = False
        self._since_s = 0.0
        self._slowest_save_s = 0.0
        self._is_saving = False
        self._saved_files: Set[tuple[str, int]] = frozenset()

    def ask(self, mode: str, now_s: float) -> None:
        """Note that a stop was asked for. A later "discard" sharpens a "save" and starts the clock again."""
        if self.mode not in (mode, "discard"):
            self.mode, self._since_s = mode, now_s

    def see(self, event: Event, now_s: float) -> None:
        """Take an event of the engine into account; the clock is monotonic seconds."""
        data = event.data
        match event.type:
            case "checkpoint":
                seconds = data.get("seconds")
                if isinstance(seconds, (int, float)):
                    self._slowest_save_s = max(self._slowest_save_s, seconds)
                self.is_unsaved = False
            case "step":
                self.is_unsaved = True
            case "phase":
                self._is_saving = data.get("name") == SAVING_PHASE
            case "stopping":
                self.ask(str(data.get("mode")), now_s)
            case "ack" if data.get("command") == "stop" and data.get("ok") is not False:
                self.ask(self.mode or "save", now_s)
            case "result":
                self.has_result = True
                self._since_s = now_s if self.mode is None else self._since_s
        if self._lets_save and event.type not in NO_PROGRESS_TYPES:
            self._since_s = now_s

    def see_files(self, saved_files: Set[tuple[str, int]], now_s: float) -> None:
        """Take note of the files that are being saved, as names and sizes; none while nothing is."""
        if saved_files != self._saved_files:
            self._saved_files = saved_files
            if self.mode == "save":
                self._since_s = now_s

    @property
    def _lets_save(self) -> bool:
        return self.mode == "save" and (self._is_saving or bool(self._saved_files))

    @property
    def limit_s(self) -> float:
        """Time that is allowed now, counted from the stop, or from the last progress of a save."""
        if self.has_result:
            return self.limits.stop_s if self.mode else self.limits.result_s
        if self._lets_save:
            return max(self.limits.save_s, self.limits.saves * self._slowest_save_s)
        return self.limits.stop_s

    def force(self, now_s: float) -> Force:
        """Return what is to be done at a time."""
        if self.mode is None and not self.has_result:
            return Force.WAIT
        over_s = now_s - self._since_s - self.limit_s
        if over_s < 0:
            return Force.WAIT
        # After a result nothing can be lost, so the gentle way would only cost time.
        return Force.KILL if self.has_result or over_s >= self.limits.terminate_s else Force.TERMINATE
