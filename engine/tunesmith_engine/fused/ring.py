"""Slots on the device that take turns with more tensors than there are slots; the rest is in the computer's memory.

A slot is copied out while the next entries are computed, and copied back one turn ahead on the way back. The entries
that the way back wants first stay in their slots. No call makes the host wait.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch

from tunesmith_engine.fused.copies import Copies

Entry = TypeVar("Entry", bound=Hashable)


class _Slot:
    """A part of the device's memory."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.holds: Any = None  # Any: an entry
        self.copying: Any = None  # Any: a mark of Copies


class Ring(Generic[Entry]):
    """Hands the slots to entries: in order by `take` and `leave`, then in reverse by `fetch` and `free`.

    Args:
        slots: uint8 tensors on the device, each large enough for every entry.
        on_host: entry -> its uint8 tensor in the computer's memory; the last entries of a pass need none.
        copies: copies between the two.
    """

    def __init__(self, slots: Sequence[torch.Tensor], on_host: Mapping[Entry, torch.Tensor], copies: Copies) -> None:
        self._slots = [_Slot(memory) for memory in slots]
        self._on_host, self._copies = on_host, copies
        self._sizes: Mapping[Entry, int] = {}
        self._slot_of: dict[Entry, _Slot] = {}
        self._earlier: dict[Entry, Entry] = {}
        self._sent: frozenset[Entry] = frozenset()

    def arrange(self, sizes: Mapping[Entry, int]) -> None:
        """Say which entries the next passes have, in their order, and how many bytes of each."""
        order, number = list(sizes), len(self._slots)
        self._sizes = sizes
        self._slot_of = {entry: self._slots[place % number] for place, entry in enumerate(order)}
        self._earlier = dict(zip(order[number:], order, strict=False))
        self._sent = frozenset(self._earlier.values())

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._slot_of

    def memory(self, entry: Entry) -> torch.Tensor:
        """Return an entry's slot, whatever it holds."""
        return self._slot_of[entry].memory

    def holds(self, entry: Entry) -> bool:
        """Return whether an entry is in its slot, or on its way there."""
        return bool(self._slot_of[entry].holds == entry)

    def take(self, entry: Entry) -> None:
        """Let later computation write an entry into its slot."""
        slot = self._slot_of[entry]
        self._wait(slot)
        slot.holds = entry

    def leave(self, entry: Entry) -> None:
        """Start to send an entry out; it may be read until its slot's next turn. The last ones stay."""
        if entry in self._sent:
            self._copy(self._slot_of[entry], entry, to_host=True)

    def fetch(self, entry: Entry) -> None:
        """Let later computation wait until an entry is in its slot."""
        self._wait(self._slot_of[entry])

    def free(self, entry: Entry) -> None:
        """Give an entry's slot to the entry before it that shares the slot."""
        if (earlier := self._earlier.get(entry)) is not None:
            slot = self._slot_of[entry]
            slot.holds = earlier
            self._copy(slot, earlier, to_host=False)

    def settle(self) -> None:
        """Let later computation wait for all copies."""
        for slot in self._slots:
            self._wait(slot)

    def _copy(self, slot: _Slot, entry: Entry, to_host: bool) -> None:
        num_bytes = self._sizes[entry]
        on_device, on_host = slot.memory[:num_bytes], self._on_host[entry][:num_bytes]
        self._wait(slot)
        slot.copying = self._copies.start(*((on_host, on_device) if to_host else (on_device, on_host)))

    def _wait(self, slot: _Slot) -> None:
        if slot.copying is not None:
            self._copies.wait(slot.copying)
            slot.copying = None
