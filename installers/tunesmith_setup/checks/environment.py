"""Program and environments: is the pointer right, does their Python start, is every file as it was installed."""

from __future__ import annotations

import time

from tunesmith_core import files, paths, runs
from tunesmith_core.environments import LAUNCHER_POINTER, MANIFEST, TRAINING_POINTER
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message, joined
from tunesmith_core.runs import RunState
from tunesmith_core.setup_messages import Finding, Fix, State
from tunesmith_setup.checks.base import Check
from tunesmith_setup.environments import repair
from tunesmith_setup.installation import program
from tunesmith_setup.packages import inventory
from tunesmith_setup.packages.inventory import Damage, Kind
from tunesmith_setup.progress import Progress

NAMES = {LAUNCHER_POINTER: "launcher", TRAINING_POINTER: "training"}
PYTHON_TITLES = {
    LAUNCHER_POINTER: Message("Python of the launcher environment"),
    TRAINING_POINTER: Message("Python of the training environment"),
}
FILES_TITLES = {
    LAUNCHER_POINTER: Message("Files of the launcher environment"),
    TRAINING_POINTER: Message("Files of the training environment"),
}
NOT_INSTALLED = {
    LAUNCHER_POINTER: (Message("Not installed on this computer."), Message("Install Tunesmith")),
    TRAINING_POINTER: (
        Message("The training environment is not installed."),
        Message("Install the training environment"),
    ),
}
"""What is said of an environment that was never built, and the label of the step that builds it."""

FULL_EVERY_S = 7 * 24 * 3600
NUM_SHOWN = 20


class ProgramFiles(Check):
    """The program's own files are as they were packed."""

    id = "program"
    title = "Files of the program"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Compare an installed program folder with its payload manifest; a checkout has none."""
        folder = paths.package_folder("tunesmith_core").parents[1]
        if not (folder / program.MANIFEST_NAME).is_file():
            return Finding(
                State.OK, Message("Tunesmith runs from {folder}, which has no list of its files.", folder=folder)
            )
        damaged = program.damaged_files(folder)
        if not damaged:
            return Finding(State.OK, Message("All program files in {folder} are intact.", folder=folder))
        fix = Fix("Install Tunesmith again", "retry", automatic=False, needs_network=True)
        text = Message(
            "{folder}: {count} program files are damaged, first {name}.",
            folder=folder,
            count=len(damaged),
            name=damaged[0],
        )
        return Finding(State.FAILED, text, "environment-damaged", "\n".join(damaged[:NUM_SHOWN]), fix)


def _repair_fix(num_files: int = 0) -> Fix:
    label = Message("Repair {count:,} files", count=num_files) if num_files > 1 else "Repair the environment"
    return Fix(label, "repair-environment")


def missing(pointer: str) -> Finding | None:
    """Return what is wrong with a pointer, None when it names a folder."""
    folder = repair.pointed_folder(pointer)
    if folder is not None and folder.is_dir():
        return None
    if folder is not None:
        gone = Message("{folder} is missing.", folder=folder)
        return Finding(State.FAILED, gone, "environment-missing", fix=_repair_fix())
    if complete := repair.complete_folders(pointer):
        unused = Message(
            "{path} names no environment. Installed, but not in use: {name}.",
            path=paths.envs_dir() / pointer,
            name=complete[0].name,
        )
        fix = Fix(Message("Use {name}", name=complete[0].name), "repair-environment")
        return Finding(State.FAILED, unused, "environment-missing", fix=fix)
    words, label = NOT_INSTALLED[pointer]
    fix = Fix(label, "retry", automatic=False, needs_network=True)
    return Finding(State.FAILED, words, "environment-missing", fix=fix)


def is_uninstalled(finding: Finding) -> bool:
    """Return whether it is the installation of an environment that is missing, which no repair does."""
    return finding.code == "environment-missing" and finding.fix is not None and not finding.fix.automatic


class EnvironmentPython(Check):
    """The Python of an environment starts."""

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer
        self.id = f"{NAMES[pointer]}-python"
        self.title = PYTHON_TITLES[pointer]

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Start the Python, in a child process of bounded time."""
        fault = missing(self.pointer)
        if fault:
            return fault
        folder = repair.pointed_folder(self.pointer)
        assert folder is not None, "a pointer without a fault names a folder"
        started = repair.starts(folder)
        if started is None:
            return Finding(
                State.UNKNOWN,
                Message(
                    "{name}: Python did not answer within {seconds} s.",
                    name=folder.name,
                    seconds=repair.START_TIMEOUT_S,
                ),
            )
        if not started:
            text = Message(
                "{name}: Python does not start. The Python it was built from may have been updated or removed.",
                name=folder.name,
            )
            return Finding(State.FAILED, text, "environment-damaged", fix=_repair_fix())
        return Finding(State.OK, Message("Python starts ({name}).", name=folder.name))

    def fix(self, progress: Progress) -> None:
        """Mend the environment."""
        repair.mend(self.pointer, progress)


class EnvironmentFiles(Check):
    """Every file of an environment is as it was installed, and no other is there."""

    def __init__(self, pointer: str, *, full: bool = False) -> None:
        self.pointer = pointer
        self.full = full
        self.id = f"{NAMES[pointer]}-files"
        self.title = FILES_TITLES[pointer]

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Compare sizes and times with the list; read every byte when asked, once a week, and after an early crash.

        A change that keeps size and time of a file is seen only when the bytes are read.
        """
        fault = missing(self.pointer)
        if fault:
            return fault
        folder = repair.pointed_folder(self.pointer)
        assert folder is not None, "a pointer without a fault names a folder"
        listed = inventory.read(folder)
        if listed is None:
            text = Message("{name}: the list of its files is damaged or was never made.", name=folder.name)
            return Finding(State.FAILED, text, "environment-damaged", fix=_repair_fix())
        full = self.full or is_due(folder.name)
        damages = inventory.compare(folder, listed, full=full)
        if full and not damages:
            remember_full(folder.name)
        if damages:
            return _damaged(folder.name, damages)
        how = Message("every byte was read") if full else Message("compared by size and time, --full reads every byte")
        return Finding(
            State.OK,
            Message("All {count:,} files are intact ({how}).", count=len(listed.entries), how=how),
        )

    def fix(self, progress: Progress) -> None:
        """Mend the environment."""
        repair.mend(self.pointer, progress)


def _damaged(name: str, damages: list[Damage]) -> Finding:
    strangers = sum(damage.kind is Kind.UNEXPECTED for damage in damages)
    changed = len(damages) - strangers
    counted = [Message("{count:,} files missing or changed", count=changed)] if changed else []
    counted += [Message("{count:,} files of unknown origin", count=strangers)] if strangers else []
    shown = [str(damage) for damage in damages[:NUM_SHOWN]]
    rest = [f"and {len(damages) - NUM_SHOWN:,} more"] if len(damages) > NUM_SHOWN else []
    return Finding(
        State.FAILED,
        Message(
            "{name}: {counted}. First: {path}.",
            name=name,
            counted=joined(counted, ", "),
            path=damages[0].path,
        ),
        "environment-damaged",
        "\n".join(shown + rest),
        _repair_fix(len(damages)),
    )


def _remembered() -> dict[str, float]:
    try:
        values = files.read_json(paths.config_dir() / "full-checks.json")
        return {str(name): float(seconds) for name, seconds in values.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def remember_full(name: str) -> None:
    """Note that every byte of an environment was read and right."""
    path = files.private_folder(paths.config_dir()) / "full-checks.json"
    files.atomic_write_json(path, _remembered() | {name: time.time()})


def is_due(name: str) -> bool:
    """Return whether every byte should be read: a week after the last time, or when a run ended before its first step.

    The building of an environment counts as the first time.
    """
    try:
        manifest = files.read_json(paths.envs_dir() / name / MANIFEST)
        last = max(float(manifest.get("built_at", 0)), _remembered().get(name, 0.0))
    except (OSError, ValueError, AttributeError, TypeError):
        return True
    if time.time() - last > FULL_EVERY_S:
        return True
    newest = next(reversed(list(runs.iter_runs())), None)
    status = newest.status() if newest else None
    if status is None or status.state is not RunState.FAILED or status.step:
        return False
    return (status.ended_at or 0.0) > last
