"""Limits on memory below what the computer has: of the process (ulimit) and of its control group (containers, systemd).

A process that meets one fails in many words, few of which say so.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, joined

GIB = 1 << 30
OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 1 << 60
"""From here on a number of the system means that there is no limit."""

FAILURES = ("memory-full", "engine-crashed", "engine-killed")
"""Some libraries die of a limit without a word, so a crash names it too."""

WORDS = (
    "Cannot allocate memory",
    "DefaultCPUAllocator: can't allocate memory",
    "can't start new thread",
    "failed to map segment",
    "memory allocation of",
    "pthread_create failed",
    "Thread creation failed",
    "std::bad_alloc",
)
"""What libraries say when the system gives them no memory, or none for the stack of a thread."""


def speaks_of_memory(text: str) -> bool:
    """Return whether what a library says means that the system gave it no memory."""
    return any(words in text for words in WORDS)


def with_limit(failure: TunesmithError) -> TunesmithError:
    """Return a lack of main memory, or an end that can come of one, with the limit; any other failure as it is."""
    limit = limit_words()
    if failure.code not in FAILURES or limit is None:
        return failure
    hint = failure.hint
    if hint == CODES["memory-full"].action:
        hint = Message("Raise this limit, lower the micro-batch size or the context length, or choose a smaller model.")
    words = joined([failure.message, limit], "\n")
    return TunesmithError(failure.code, words, context=failure.context, hint=hint, actions=failure.actions)


def limit_words() -> Message | None:
    """Return the tightest limit on the memory of this process as a sentence, or None without one."""
    limits = [*of_process(), *_of_groups()]
    if not limits:
        return None
    return min(limits, key=lambda limit: limit[0])[1]


def num_kills() -> int:
    """Return how many processes of this one's control group the system has ended for lack of memory."""
    for folder in _groups():
        with contextlib.suppress(OSError, ValueError):
            for line in (folder / "memory.events").read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


if sys.platform == "win32":  # pragma: no cover

    def of_process() -> Iterator[tuple[int, Message]]:
        """Yield nothing: there is no such limit."""
        return iter(())

else:
    import resource

    def of_process() -> Iterator[tuple[int, Message]]:
        """Yield the limit that this process was given, in bytes and as a sentence."""
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if 0 < soft < UNLIMITED_BYTES:
            yield soft, Message("This process may use {size:.1f} GiB of address space (ulimit -v).", size=soft / GIB)


def _of_groups() -> Iterator[tuple[int, Message]]:
    for folder in _groups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                num_bytes = int((folder / name).read_text(encoding="ascii"))
                if num_bytes < UNLIMITED_BYTES:
                    yield (
                        num_bytes,
                        Message("Its control group may use {size:.1f} GiB of memory.", size=num_bytes / GIB),
                    )


def _groups() -> Iterator[Path]:
    """Yield the folders of this process's control group and of those around it, of both versions of the system."""
    try:
        lines = OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            root = GROUPS / controllers
            inner = root / path.lstrip("/")
            yield inner
            yield from (parent for parent in inner.parents if parent.is_relative_to(root))
