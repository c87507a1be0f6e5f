"""What interrupted and earlier installations left: half-built folders, environments that nobody uses, held locks."""

from __future__ import annotations

import shutil
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.environments import (
    HARNESS_POINTER,
    LAUNCHER_POINTER,
    MANIFEST,
    REWARDS_POINTER,
    TRAINING_POINTER,
)
from tunesmith_core.locks import is_locked
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message, joined
from tunesmith_core.setup_messages import Finding, Fix, State
from tunesmith_setup.checks.base import Check
from tunesmith_setup.environments import file_repair, kinds, repair
from tunesmith_setup.packages import inventory
from tunesmith_setup.progress import Progress, size_text

KINDS = ("launcher", "train", "harness", "rewards")
POINTERS = (LAUNCHER_POINTER, TRAINING_POINTER, HARNESS_POINTER, REWARDS_POINTER)
REPAIR_FOLDERS = ("reinstall-*", "skeleton-*")


def other_environments() -> list[Path]:
    """Return the complete or broken environments that no pointer names as the current ones."""
    current = {repair.pointed_folder(pointer) for pointer in POINTERS}
    folders = sorted(path for kind in KINDS for path in paths.envs_dir().glob(f"{kind}-*") if path.is_dir())
    return [folder for folder in folders if folder not in current and not repair.STAGING_PATTERN.search(folder.name)]


def fault_of(folder: Path) -> str | None:
    """Return what is wrong with an environment, in words; None when it looks as it was built."""
    if not (folder / MANIFEST).is_file():
        return Message("incomplete")
    damages = inventory.compare(folder, inventory.read(folder) or inventory.from_records(folder))
    if damages:
        return Message("{count} damaged files", count=len(damages))
    return None if repair.starts(folder) is not False else Message("Python does not start")


class OtherEnvironments(Check):
    """Environments beside the current ones: a good one is there for going back, a broken one only takes room."""

    id = "environments"
    title = "Other environments"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Look at each of them as quickly as at the current ones."""
        faults = {folder: fault_of(folder) for folder in other_environments()}
        broken = {folder: fault for folder, fault in faults.items() if fault}
        if not broken:
            names = ", ".join(folder.name for folder in faults)
            return Finding(State.OK, Message("Kept: {names}.", names=names) if names else Message("None."))
        lines = [Message("{name}: {fault}", name=folder.name, fault=fault) for folder, fault in broken.items()]
        num_bytes = sum(files.folder_bytes(folder) for folder in broken)
        text = Message(
            "{count} broken and unused, {size}: {lines}.",
            count=len(broken),
            size=size_text(num_bytes),
            lines=joined(lines, ", "),
        )
        label = Message("Remove broken environments ({size})", size=size_text(num_bytes))
        return Finding(State.WARNING, text, "environment-damaged", "\n".join(lines), Fix(label, "free-disk"))

    def fix(self, progress: Progress) -> None:
        """Remove the broken ones that nobody uses."""
        with kinds.only_one(progress):
            for folder in other_environments():
                if fault_of(folder):
                    shutil.rmtree(folder)
                    progress.note(Message("Removed {name}", name=folder.name))


def leftovers() -> list[Path]:
    """Return folders of installers and repairs that did not come to their end."""
    staged = [path for path in paths.envs_dir().glob("*") if path.is_dir() and repair.STAGING_PATTERN.search(path.name)]
    copies = list(paths.envs_dir().glob(f"{file_repair.STAGING_MARK}*"))
    temporary = [path for pattern in REPAIR_FOLDERS for path in paths.tmp_dir().glob(pattern)]
    return sorted(set(staged + copies + temporary))


class Leftovers(Check):
    """Nothing half-built lies around, and no installer is at work."""

    id = "leftovers"
    title = "Interrupted installations"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Look for half-built folders, unless an installer is at work on them."""
        if is_locked(paths.locks_dir() / "setup.lock"):
            return Finding(State.OK, "An installation or a repair is running right now.")
        found = leftovers()
        if not found:
            return Finding(State.OK, "None.")
        num_bytes = sum(files.folder_bytes(folder) for folder in found)
        text = Message(
            "Incomplete folders: {count}. They take {size}.",
            count=len(found),
            size=size_text(num_bytes),
        )
        fix = Fix(Message("Remove {size}", size=size_text(num_bytes)), "free-disk")
        return Finding(State.WARNING, text, evidence="\n".join(str(path) for path in found), fix=fix)

    def fix(self, progress: Progress) -> None:
        """Remove them; while the lock is held here, nobody builds."""
        with kinds.only_one(progress):
            for folder in leftovers():
                shutil.rmtree(folder)
                progress.note(Message("Removed {name}", name=folder))
