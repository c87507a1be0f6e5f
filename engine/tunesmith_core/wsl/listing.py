"""Reads the list of distributions that `wsl.exe -l -v` prints.

Headings and states are translated, so a line is read by its columns: a star for the default, the name, the state, and
the version as the last word. The running state is known in the languages below; elsewhere it counts as not running.
"""

from __future__ import annotations

import re

from tunesmith_core.machine import WslDistribution

RUNNING = frozenset(
    """running 正在运行 執行中 çalışıyor ausgeführt ausführung exécution cours ejecución esecuzione execução
    실행 실행中 実行中 выполняется работает działa""".split()
)
"""Words that say "running" in the languages of Windows."""


def parse(text: str) -> tuple[WslDistribution, ...]:
    """Return the distributions that a listing names; lines of any other shape are passed over."""
    return tuple(found for line in text.splitlines() if (found := _distribution(line)) is not None)


def _distribution(line: str) -> WslDistribution | None:
    words = re.split(r"\s{2,}", line.strip().removeprefix("*").strip())
    if len(words) != 3:
        # An old build pads with one space where a name is long.
        words = line.strip().removeprefix("*").split()
    if len(words) < 3 or words[-1] not in ("1", "2"):
        return None
    state = " ".join(words[1:-1]).lower()
    return WslDistribution(
        name=words[0],
        version=int(words[-1]),
        running=not RUNNING.isdisjoint(state.split()),
        default=line.lstrip().startswith("*"),
    )
