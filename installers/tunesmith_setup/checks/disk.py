"""Room on the drives that Tunesmith writes to, and what its own caches take of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.environments import COMPILE_CACHES
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message, joined
from tunesmith_core.setup_messages import Finding, Fix, State
from tunesmith_setup.checks.base import Check
from tunesmith_setup.progress import GIB, Progress, size_text

TRAINING_FLOOR_BYTES = 2 * GIB
"""Less than this, and a run of a small model can't keep two checkpoints."""
COMFORTABLE_BYTES = 10 * GIB
"""Room for one more base model of a few billion parameters and its run."""
TEMPORARY_FLOOR_BYTES = GIB

LARGE_CACHE_BYTES = GIB


def compile_cache_bytes() -> int:
    """Return what the compile caches take."""
    return sum(files.folder_bytes(paths.cache_dir() / name) for name in COMPILE_CACHES)


def clear_compile_caches(progress: Progress) -> None:
    """Remove the compile caches; the next run compiles its kernels again, which takes a minute."""
    freed = compile_cache_bytes()
    for name in COMPILE_CACHES:
        shutil.rmtree(paths.cache_dir() / name, ignore_errors=True)
    progress.note(Message("Removed the compile caches ({freed})", freed=size_text(freed)))


def _drives() -> dict[int, tuple[Path, int]]:
    """Return folder and wanted bytes of each drive that is written to, by the drive's number."""
    drives: dict[int, tuple[Path, int]] = {}
    places = [(folder, TRAINING_FLOOR_BYTES) for folder in (paths.envs_dir(), paths.cache_dir(), paths.runs_dir())]
    for folder, floor in [*places, (paths.tmp_dir(), TEMPORARY_FLOOR_BYTES)]:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        drives.setdefault(existing.stat().st_dev, (existing, floor))
    return drives


class FreeSpace(Check):
    """Enough room for runs, on every drive that is written to."""

    id = "disk"
    title = "Free disk space"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Compare the free space of each drive with what a run needs."""
        worst, message = State.OK, []
        for folder, floor in _drives().values():
            free = files.free_bytes(folder)
            message.append(Message("{free} free at {folder}", free=size_text(free), folder=folder))
            if free < floor:
                worst = State.FAILED
            elif free < COMFORTABLE_BYTES and worst is State.OK:
                worst = State.WARNING
        text = joined(message, ", ")
        if worst is State.OK:
            return Finding(State.OK, Message("{text}.", text=text))
        caches = compile_cache_bytes()
        fix = Fix("Free some space on this drive", "free-disk", automatic=False)
        if caches > LARGE_CACHE_BYTES // 4:
            fix = Fix(Message("Clear compile caches ({size})", size=size_text(caches)), "clear-compile-caches")
        need = Message(
            "A run needs at least {minimum}, another model about 10 GiB.",
            minimum=size_text(TRAINING_FLOOR_BYTES),
        )
        return Finding(worst, Message("{text}. {need}", text=text, need=need), "disk-full", fix=fix)

    def fix(self, progress: Progress) -> None:
        """Clear the compile caches."""
        clear_compile_caches(progress)


class CompileCaches(Check):
    """Caches of compiled kernels, which grow without limit and are poisoned by a change of compiler."""

    id = "caches"
    title = "Compile caches"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Add up what the caches take."""
        num_bytes = compile_cache_bytes()
        if num_bytes < LARGE_CACHE_BYTES:
            return Finding(
                State.OK,
                Message(
                    "{size} of compiled kernels at {folder}.",
                    size=size_text(num_bytes),
                    folder=paths.cache_dir(),
                ),
            )
        return Finding(
            State.WARNING,
            Message(
                "Compiled kernels of earlier runs take {size} at {folder}. "
                "You can remove them: the next run compiles what it needs.",
                size=size_text(num_bytes),
                folder=paths.cache_dir(),
            ),
            fix=Fix(Message("Clear {size}", size=size_text(num_bytes)), "clear-compile-caches"),
        )

    def fix(self, progress: Progress) -> None:
        """Clear the compile caches."""
        clear_compile_caches(progress)
