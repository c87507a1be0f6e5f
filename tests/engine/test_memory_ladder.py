"""Out of memory: the next rung is taken, the cheaper first, until the work fits or nothing is left."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_engine.train import oom
from tunesmith_engine.train.oom import MemoryLadder, is_out_of_memory

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore words")


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (FULL, True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 bytes"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("DefaultCPUAllocator: can't allocate memory"), False),
        (ValueError("CUBLAS_STATUS_ALLOC_FAILED"), False),
    ],
)
def test_a_lack_of_memory_is_told_from_other_errors(error: Exception, is_full: bool) -> None:
    assert is_out_of_memory(error) == is_full


class Path:
    """A loss path whose memory plan has divided the rows to `rows` already, and that can keep less `times` times."""

    def __init__(self, rows: int = 99, times: int = 0, *, keeps_less_first: bool = False) -> None:
        self.rows, self.times, self.keeps_less_first = rows, times, keeps_less_first
        self.failures: list[Exception] = []

    def use_micro_batch_size(self, micro_batch_size: int) -> bool:
        is_less, self.rows = micro_batch_size < self.rows, min(self.rows, micro_batch_size)
        return is_less

    def keep_less(self) -> str | None:
        if self.failures:
            raise self.failures.pop()
        if not self.times:
            return None
        self.times -= 1
        return Message("Keeping less.")


class Ladder(MemoryLadder):
    """Remembers what it warned of."""

    def __init__(self, micro_batch_size: int, path: Path | None = None) -> None:
        self.told: list[str] = []
        super().__init__(micro_batch_size, lambda code, words: self.told.append(f"{code}: {words}"))
        self.path = path  # type: ignore[assignment]  # it has what is asked for


def rungs(ladder: Ladder) -> list[str]:
    """Step down to the end and return what was told."""

    def step_down() -> None:
        while True:
            ladder.step_down(Message("Full."))

    with pytest.raises(TunesmithError) as caught:
        step_down()
    assert caught.value.code == "cuda-oom"
    assert caught.value.message == "Full. Even one example at a time with the fewest activations does not fit."
    return [words.removeprefix("cuda-oom: Full. ") for words in ladder.told]


def test_rows_are_halved_before_a_path_is_open() -> None:
    ladder = Ladder(5)
    assert rungs(ladder) == ["Continuing with micro-batches of 2.", "Continuing with micro-batches of 1."]
    assert (ladder.micro_batch_size, ladder.num_kept_less) == (1, 0)


def test_the_cheaper_way_comes_first() -> None:
    ladder = Ladder(4, Path(times=2))
    halves = ["Continuing with micro-batches of 2.", "Continuing with micro-batches of 1."]
    assert rungs(ladder) == [*halves, "Keeping less.", "Keeping less."]
    assert ladder.num_kept_less == 2
    assert rungs(Ladder(4, Path(times=2, keeps_less_first=True))) == ["Keeping less.", "Keeping less.", *halves]


def test_a_number_that_changes_nothing_is_passed_over() -> None:
    ladder = Ladder(16, Path(rows=2))
    assert rungs(ladder) == ["Continuing with micro-batches of 1."]


def test_a_rung_whose_buffers_do_not_fit_is_passed_over() -> None:
    path = Path(times=1)
    path.failures = [FULL, MemoryError()]
    ladder = Ladder(1, path)
    ladder.step_down(Message("Full."))
    assert ladder.told == ["cuda-oom: Full. Keeping less."]
    path.failures = [RuntimeError("broken")]
    with pytest.raises(RuntimeError, match="broken"):
        ladder.step_down(Message("Full."))


def test_a_resumed_run_begins_on_the_rung_where_it_ended() -> None:
    path = Path(times=3)
    ladder = Ladder(8, path)
    ladder.restore(2, 2)
    assert (ladder.micro_batch_size, ladder.num_kept_less, path.rows, path.times) == (2, 2, 2, 1)
    ladder.restore(4, 1)
    assert (ladder.micro_batch_size, ladder.num_kept_less, path.rows, path.times) == (2, 2, 2, 1), "never up again"
    ladder.restore(2, 9)
    assert (ladder.num_kept_less, path.times) == (3, 0)
    assert ladder.told == []


def test_work_is_begun_again_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    ladder, tried, done = Ladder(8), [], []
    freed: list[None] = []
    monkeypatch.setattr(oom, "_free_caches", lambda: freed.append(None))

    def work() -> str:
        tried.append(ladder.micro_batch_size)
        if ladder.micro_batch_size > 2:
            raise FULL
        return "done"

    assert ladder.fit(work, "Step 3", lambda: done.append(len(tried))) == "done"
    assert tried == [8, 4, 2]
    assert done == [1, 2]
    assert len(freed) == 2
    told = "cuda-oom: Step 3: CUDA out of memory. Tried to allocate 2 GiB. Continuing with micro-batches of {}."
    assert ladder.told == [told.format(rows) for rows in (4, 2)]
    assert ladder.fit(lambda: 7, "Step 4") == 7


def test_memory_is_given_back_before_the_next_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that refer to each other, and what PyTorch keeps for later."""

    class Held:
        """Refers to itself, as the graph of a step that was broken off can."""

        def __init__(self) -> None:
            self.own = self

    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    gc.disable()
    try:
        held = weakref.ref(Held())
        assert held() is not None
        Ladder(2).step_down(Message("Full."))
        assert held() is None
    finally:
        gc.enable()
    assert emptied == [None]


def test_other_errors_pass_and_long_reasons_are_cut() -> None:
    ladder = Ladder(2)

    def broken() -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        ladder.fit(broken, "Step 1")

    def full() -> None:
        raise torch.OutOfMemoryError("x" * 1000)

    with pytest.raises(TunesmithError) as caught:
        ladder.fit(full, "Step 1")
    assert ladder.told == [f"cuda-oom: Step 1: {'x' * 200} Continuing with micro-batches of 1."]
    assert caught.value.code == "cuda-oom"
