"""The longest sequence that trains within a memory limit, found by trying: a row trains or it doesn't."""

from __future__ import annotations

from collections.abc import Callable

from tunesmith_engine.bench.session import Row, Session
from tunesmith_engine.bench.workload import Workload

STEP_TOKENS = 256
SHORTEST_TOKENS = 512
PRECISION = 0.02


def longest_row(session: Session, workload: Workload) -> Row:
    """Search for the longest single row that trains for two steps within the workload's memory.

    Args:
        session: with a loaded model.
        workload: its memory limit and policy count; its sequence_length is where the search begins.

    Returns:
        A row like those of timings, with "longest_tokens" and every try.
    """
    tries: list[Row] = []

    def fits(length: int) -> bool:
        single = Workload(
            workload.name,
            1,
            length,
            vram_gib=workload.vram_gib,
            policy=workload.policy,
            num_warmup_steps=1,
            num_steps=1,
        )
        tries.append({"tokens": length} | session.try_out(single))
        return "error" not in tries[-1]

    longest = search(fits, workload.sequence_length)
    return session.facts(workload) | {"longest_tokens": longest, "tries": tries}


def search(fits: Callable[[int], bool], start: int) -> int:
    """Return the longest length that fits, to one part in fifty, 0 when none does.

    Doubling or halving comes first, then bisection.
    """
    length, good, bad = max(SHORTEST_TOKENS, _rounded(start)), 0, 0
    while not (good and bad) and bad != SHORTEST_TOKENS:
        if fits(length):
            good, length = length, length * 2
        else:
            bad, length = length, max(SHORTEST_TOKENS, _rounded(length // 2))
    while good and bad - good > max(STEP_TOKENS, PRECISION * good):
        middle = _rounded((good + bad) // 2)
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


def _rounded(length: int) -> int:
    return length // STEP_TOKENS * STEP_TOKENS
