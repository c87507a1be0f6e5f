"""Removes what Tunesmith wrote: environments, caches, tools, locks; runs and models only when the person says so.

Only names that are ours are removed from the data root, so a data root that was laid into a folder with other things
leaves those alone. The pointers go first: what is half removed is not installed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files, paths, placement
from tunesmith_core.environments import LAUNCHER_POINTER, TRAINING_POINTER
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.locks import FileLock
from tunesmith_core.messages import Message
from tunesmith_setup.environments import envs, file_repair
from tunesmith_setup.progress import Progress, size_text

TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class Item:
    """A file or folder of the data root.

    Attributes:
        what: what it is, for the person.
        num_bytes: what it takes.
    """

    path: Path
    what: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What an uninstallation removes and what it leaves."""

    removed: tuple[Item, ...]
    kept: tuple[Item, ...]

    @property
    def num_bytes(self) -> int:
        """What is freed."""
        return sum(item.num_bytes for item in self.removed)


def plan(*, with_runs: bool, with_models: bool) -> Plan:
    """Return what is there of ours, and what of it goes.

    Args:
        with_runs: whether runs with their checkpoints and adapters go.
        with_models: whether base models go.
    """
    root = paths.data_root()
    alone = with_runs and with_models
    index = paths.library_path()
    first = paths.root_before()
    judged = [
        (paths.envs_dir(), Message("environments"), True),
        (paths.cache_dir(), Message("caches and downloads"), True),
        (root / TOOLS, Message("tools"), True),
        (paths.tmp_dir(), Message("temporary files"), True),
        (paths.work_root() / placement.OWNER, Message("marker of the short folder"), True),
        (root / file_repair.QUARANTINE, Message("files that a repair set aside"), True),
        (paths.logs_dir(), Message("logs"), True),
        (paths.runs_dir(), Message("runs, with checkpoints and adapters"), with_runs),
        (paths.models_dir(), Message("base models"), with_models),
        *((path, Message("index of runs"), True) for path in sorted(root.glob(f"{index.name}*"))),
        (paths.config_dir(), Message("settings"), alone),
        (paths.locks_dir(), Message("locks"), True),
    ]
    if first is not None:
        judged += [
            (placement.work_folder(first) / "envs", Message("environments of the first start"), True),
            (first / paths.ROOT_RECORD, Message("choice of the data folder"), alone),
        ]
    ours = [(Item(path, what, _bytes(path)), goes) for path, what, goes in judged if path.exists() or path.is_symlink()]
    known = {item.path for item, _ in ours}
    foreign = sorted(path for path in root.glob("*") if path not in known) if root.is_dir() else []
    return Plan(
        removed=tuple(item for item, goes in ours if goes),
        kept=(
            *(item for item, goes in ours if not goes),
            *(Item(path, Message("not created by Tunesmith"), _bytes(path)) for path in foreign),
        ),
    )


def _bytes(path: Path) -> int:
    return files.folder_bytes(path) if path.is_dir() else path.lstat().st_size


def show(planned: Plan, progress: Progress) -> None:
    """Show what goes and what stays."""
    for title, items in ((Message("Remove"), planned.removed), (Message("Keep"), planned.kept)):
        for item in items:
            progress.note(
                Message(
                    "{title}: {path}, {what}, {size}",
                    title=title,
                    path=item.path,
                    what=item.what,
                    size=size_text(item.num_bytes),
                )
            )


def remove(planned: Plan, progress: Progress) -> list[Item]:
    """Remove what a plan names; return what could not be removed.

    Raises:
        EnvironmentProblem: `run-busy` while a run is live or an installer is at work; nothing is removed then.
    """
    if envs.has_live_run():
        raise EnvironmentProblem("run-busy", "A run is in progress. Stop it first, or wait until it ends.")
    # The choice of the folders may go with them.
    roots = (paths.data_root(), paths.root_before() or paths.data_root(), paths.work_root())
    locks = paths.locks_dir()
    lock = FileLock(locks / "setup.lock")
    if not lock.acquire():
        raise EnvironmentProblem("run-busy", "An installation or a repair is running. Wait until it ends.")
    try:
        for pointer in (LAUNCHER_POINTER, TRAINING_POINTER):
            for path in (paths.envs_dir() / pointer, envs.previous_pointer(paths.envs_dir() / pointer)):
                path.unlink(missing_ok=True)
        files.crashpoint("uninstall.unpointed")
        left = [item for item in planned.removed if item.path != locks and not _remove(item, progress)]
    finally:
        lock.release()
    # Not as planned: taking the lock has made the folder even where there was none.
    shutil.rmtree(locks, ignore_errors=True)
    for root in roots:
        if root.is_dir() and not any(root.iterdir()):
            root.rmdir()
    return left


def _remove(item: Item, progress: Progress) -> bool:
    """Remove one item; a symbolic link goes, and what it points to stays."""
    try:
        if item.path.is_dir() and not item.path.is_symlink():
            shutil.rmtree(item.path)
        else:
            item.path.unlink(missing_ok=True)
    except OSError as error:
        progress.note(Message("{path} can't be removed: {reason}", path=item.path, reason=Message(str(error.strerror))))
        return False
    files.crashpoint("uninstall.removed")
    progress.note(Message("Removed {name}", name=item.path))
    return True
