"""Tables in the computer's memory lie behind each other, and a block goes when none is left in it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from tunesmith_engine import host_memory
from tunesmith_engine.host_memory import PAGE_BYTES, HostBlocks, HostTable, PinningError, has_own_memory


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give ordinary memory, and note how much each time."""
    given: list[int] = []

    def memory(num_bytes: int) -> torch.Tensor:
        given.append(num_bytes)
        return torch.zeros(num_bytes, dtype=torch.uint8)

    monkeypatch.setattr(host_memory, "_pinned", memory)
    monkeypatch.setattr(torch, "as_tensor", lambda table, device: table._pinned)
    return given


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32])
def test_tables_lie_behind_each_other(sizes: list[int], dtype: torch.dtype) -> None:
    blocks, num = HostBlocks(), 3 * PAGE_BYTES // dtype.itemsize - 7
    tables = [torch.arange(num).to(dtype).view(-1, 1) + index for index in range(12)]
    held = [HostTable(table, blocks) for table in tables]
    assert all(torch.equal(one.view, table) for one, table in zip(held, tables, strict=True))
    assert all(torch.equal(one.taken_back(), table) for one, table in zip(held, tables, strict=True))
    # A block of 32 pages has room for 10 tables.
    assert sizes == [32 * PAGE_BYTES] * 2
    assert all(one._pinned.data_ptr() % 16 == 0 for one in held)


def test_a_large_table_has_a_block_of_its_own(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "LARGEST_BLOCK_BYTES", 4 * PAGE_BYTES)
    blocks = HostBlocks()
    held = [HostTable(torch.zeros(num * PAGE_BYTES, dtype=torch.uint8), blocks) for num in (1, 2, 6, 1)]
    assert sizes == [4 * PAGE_BYTES, 6 * PAGE_BYTES, 4 * PAGE_BYTES]
    assert len({one._pinned.untyped_storage().data_ptr() for one in held}) == 3


def test_a_table_alone_takes_no_more_than_it_is(sizes: list[int]) -> None:
    HostTable(torch.zeros(100, dtype=torch.bfloat16))
    assert sizes == [200]


def test_a_block_goes_with_its_last_table(sizes: list[int]) -> None:
    blocks = HostBlocks()
    held = [HostTable(torch.zeros(8), blocks) for _ in range(2)]
    block = weakref.ref(held[0]._block)
    del held[0]
    gc.collect()
    assert block() is not None
    del held
    gc.collect()
    assert block() is None
    HostTable(torch.zeros(8), blocks)
    assert len(sizes) == 2


def test_a_machine_without_a_gpu_pins_nothing() -> None:
    assert not has_own_memory(torch.device("cpu"))
    if not torch.cuda.is_available():
        with pytest.raises(PinningError):
            HostTable(torch.zeros(8))
