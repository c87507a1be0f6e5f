"""Program and environments: is the pointer right, does their Python start, is every file as it was installed."""

from __future__ import annotations

import time

from tunesmith_core import files, paths, runs
from tunesmith_core.environments import LAUNCHER_POINTER, MANIFEST, TRAINING_POINTER
from tunesmith_core.machine import Machine
from tunesmith_core.runs import RunState
from tunesmith_core.setup_messages import Finding, Fix, State
from tunesmith_setup.checks.base import Check
from tunesmith_setup.environments import repair
from tunesmith_setup.installation import program
from tunesmith_setup.packages import inventory
from tunesmith_setup.packages.inventory import Damage, Kind
from tunesmith_setup.progress import Progress

NAMES = {LAUNCHER_POINTER: "launcher", TRAINING_POINTER: "training"}
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
            return Finding(State.OK, f"It runs from {folder}, which has no list of its files.")
        damaged = program.damaged_files(folder)
        if not damaged:
            return Finding(State.OK, f"All files of {folder} are as they were packed.")
        fix = Fix("Install Tunesmith again", "retry", automatic=False, needs_network=True)
        text = f"{folder}: {len(damaged)} files are not as they were packed: {damaged[0]}."
        return Finding(State.FAILED, text, "environment-damaged", "\n".join(damaged[:NUM_SHOWN]), fix)


def _repair_fix(num_files: int = 0) -> Fix:
    what = f"{num_files} {'file' if num_files == 1 else 'files'}" if num_files else "the environment"
    return Fix(f"Repair {what}", "repair-environment")


def missing(pointer: str) -> Finding | None:
    """Return what is wrong with a pointer, None when it names a folder."""
    folder = repair.pointed_folder(pointer)
    if folder is not None and folder.is_dir():
        return None
    if folder is None and not any(paths.envs_dir().glob(f"{pointer.partition('.')[0]}-*")):
        fix = Fix("Install Tunesmith", "retry", automatic=False, needs_network=True)
        return Finding(State.FAILED, "It is not installed on this computer.", "environment-missing", fix=fix)
    gone = f"{folder} is gone" if folder else f"{paths.envs_dir() / pointer} can't be read"
    return Finding(State.FAILED, f"{gone}.", "environment-missing", fix=_repair_fix())


class EnvironmentPython(Check):
    """The Python of an environment starts."""

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer
        self.id = f"{NAMES[pointer]}-python"
        self.title = f"Python of the {NAMES[pointer]} environment"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Start the Python, in a child process of bounded time."""
        fault = missing(self.pointer)
        if fault:
            return fault
        folder = repair.pointed_folder(self.pointer)
        assert folder is not None, "a pointer without a fault names a folder"
        started = repair.starts(folder)
        if started is None:
            return Finding(State.UNKNOWN, f"{folder.name}: Python did not answer within {repair.START_TIMEOUT_S} s.")
        if not started:
            text = f"{folder.name}: Python does not start; its base may have been updated or removed."
            return Finding(State.FAILED, text, "environment-damaged", fix=_repair_fix())
        return Finding(State.OK, f"It starts ({folder.name}).")

    def fix(self, progress: Progress) -> None:
        """Mend the environment."""
        repair.mend(self.pointer, progress)


class EnvironmentFiles(Check):
    """Every file of an environment is as it was installed, and no other is there."""

    def __init__(self, pointer: str, *, full: bool = False) -> None:
        self.pointer = pointer
        self.full = full
        self.id = f"{NAMES[pointer]}-files"
        self.title = f"Files of the {NAMES[pointer]} environment"

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
            text = f"{folder.name}: the list of its files is damaged or was never made."
            return Finding(State.FAILED, text, "environment-damaged", fix=_repair_fix())
        full = self.full or is_due(folder.name)
        damages = inventory.compare(folder, listed, full=full)
        if full and not damages:
            remember_full(folder.name)
        if damages:
            return _damaged(folder.name, damages)
        how = "every byte was read" if full else "by size and time; --full reads every byte"
        return Finding(State.OK, f"{len(listed.entries):,} files are as they were installed ({how}).")

    def fix(self, progress: Progress) -> None:
        """Mend the environment."""
        repair.mend(self.pointer, progress)


def _damaged(name: str, damages: list[Damage]) -> Finding:
    strangers = sum(damage.kind is Kind.UNEXPECTED for damage in damages)
    parts = [(len(damages) - strangers, "missing or changed"), (strangers, "of unknown origin")]
    counted = " and ".join(f"{number:,} {text}" for number, text in parts if number)
    shown = [str(damage) for damage in damages[:NUM_SHOWN]]
    rest = [f"and {len(damages) - NUM_SHOWN:,} more"] if len(damages) > NUM_SHOWN else []
    return Finding(
        State.FAILED,
        f"{name}: files are not as they were installed: {counted}; the first is {damages[0].path}.",
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
    paths.config_dir().mkdir(parents=True, exist_ok=True)
    files.atomic_write_json(paths.config_dir() / "full-checks.json", _remembered() | {name: time.time()})


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
