"""A computer on whose CPU a device seems to have memory of its own, so that what leaves it can be followed."""

from __future__ import annotations

import pytest
import torch

from tunesmith_engine.host_memory import PinningError


class FakeHost:
    """The computer's memory beside that device.

    Attributes:
        num_bytes: what lies there now.
        most_tables: after so many tables no more memory is given.
        free_bytes: of the device, before a model is loaded.
    """

    def __init__(self) -> None:
        self.num_bytes, self.most_tables, self.num_tables = 0, 1 << 30, 0
        self.free_bytes = 1 << 40

    def table(self, table: torch.Tensor, _: object = None) -> FakeTable:
        """Put a table there."""
        if self.num_tables >= self.most_tables:
            raise PinningError("No more.")
        return FakeTable(table, self)


class FakeTable:
    """As `HostTable`: another place that reads the same. What is left behind is overwritten, as others would do."""

    def __init__(self, table: torch.Tensor, host: FakeHost) -> None:
        self.view, self.num_bytes, self._host = table.clone(), table.nbytes, host
        host.num_bytes += table.nbytes
        host.num_tables += 1
        table.zero_()

    def taken_back(self) -> torch.Tensor:
        """Return the table as one of the device."""
        self._host.num_bytes -= self.num_bytes
        self._host.num_tables -= 1
        own = self.view.clone()
        self.view.zero_()
        return own


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """Let the CPU count as a device apart, for experts and embeddings."""
    made = FakeHost()
    for module in ("model.expert_places", "fused.places"):
        monkeypatch.setattr(f"tunesmith_engine.{module}.has_own_memory", lambda _: True)
        monkeypatch.setattr(f"tunesmith_engine.{module}.HostTable", made.table)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (made.free_bytes, made.free_bytes))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    return made
