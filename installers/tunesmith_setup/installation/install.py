"""The installation from a bare Python to an open window or a trained example.

Every part looks first whether it is done, so the same command continues after any interruption and needs no network
when nothing is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import environments, files, paths, placement
from tunesmith_core.environments import MANIFEST
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.messages import Message, said
from tunesmith_core.setup_messages import Part, Plan
from tunesmith_setup import probe
from tunesmith_setup.environments import envs, file_repair, kinds, profiles, proof
from tunesmith_setup.environments.profiles import Choice
from tunesmith_setup.installation import demo, example_model
from tunesmith_setup.packages import inventory, system_libraries, uvtool
from tunesmith_setup.packages.uvtool import LOCKS, Uv
from tunesmith_setup.probe import interpreters
from tunesmith_setup.progress import Progress, duration_text, size_text

DOWNLOAD_BYTES_PER_S = 10_000_000
DISK_BYTES_PER_S = 100_000_000
PROOF_S = 60
"""Rough numbers for the plan: a connection of 80 megabits a second, a slow disk, libraries that are read from it."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What an installation left.

    Attributes:
        launcher: the window's environment; None when it was left alone.
        training: the engine's environment.
        model: folder of the example's base model.
    """

    launcher: envs.Environment | None
    training: envs.Environment
    model: Path


def has_display() -> bool:
    """Return whether a window can be opened here."""
    return sys.platform == "win32" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an installation brings.

    Attributes:
        choice: the profile, and why.
        training: the engine's environment.
        launcher: the window's environment; None when it is left alone.
    """

    choice: Choice
    training: envs.Environment
    launcher: envs.Environment | None

    def plan(self) -> Plan:
        """Return what is fetched and written, where to, and roughly how long it takes. Writes nothing."""
        named = {Message("Libraries of the window"): self.launcher, Message("Libraries for training"): self.training}
        environments_wanted = {name: item for name, item in named.items() if item is not None}
        parts = []
        for name, item in environments_wanted.items():
            disk_bytes = 0 if item.is_complete() else item.disk_bytes()
            parts.append(Part(name, item.missing().download_bytes, disk_bytes))
        parts.append(example_model.part())
        passing_bytes = sum(item.passing_bytes() for item in environments_wanted.values())
        passing_bytes += example_model.passing_bytes()
        if passing_bytes:
            parts.append(Part("Temporary files, removed after the installation", 0, passing_bytes))
        seconds = sum(part.download_bytes / DOWNLOAD_BYTES_PER_S + part.disk_bytes / DISK_BYTES_PER_S for part in parts)
        if not proof.is_proven(self.training.folder):
            seconds += PROOF_S
        root = paths.work_root()
        return Plan(
            tuple(parts),
            str(root),
            files.free_bytes(root),
            round(seconds),
            self.choice.profile.name,
            self.choice.sentence,
        )


def wanted(profile_name: str | None, progress: Progress, *, training_only: bool) -> Wanted:
    """Decide what this computer gets. Writes nothing.

    Raises:
        EnvironmentProblem: `python-unsupported`, or what is wrong with the NVIDIA driver.
    """
    interpreter = interpreters.choose()
    progress.note(Message("Python: {executable}", executable=interpreter.executable))
    choice = choose_profile(profile_name, progress)
    launcher = None if training_only else kinds.launcher_environment(interpreter)
    return Wanted(choice, kinds.training_environment(interpreter, choice.profile), launcher)


def check_room(plan: Plan) -> None:
    """Raise EnvironmentProblem `disk-full` when the drive has less room than is needed at most meanwhile."""
    if plan.free_bytes < plan.disk_bytes:
        raise EnvironmentProblem(
            "disk-full",
            "{folder}: {needed} are needed, {free} are free.",
            hint=Message(
                "Free some space, or set {variable} to a folder on another drive.",
                variable=paths.HOME_VARIABLE,
            ),
            folder=plan.folder,
            needed=size_text(plan.disk_bytes),
            free=size_text(plan.free_bytes),
        )


def prepare_folder(progress: Progress) -> None:
    """Create the data root. Raises EnvironmentProblem `permission-or-antivirus` when it can't be written."""
    try:
        files.probe_writable(paths.data_root())
        placement.record_work_folder(paths.data_root(), progress.note)
    except OSError as error:
        raise EnvironmentProblem(
            "permission-or-antivirus",
            "{root} can't be written: {reason}.",
            hint=Message("Set {variable} to a folder that you can write to.", variable=paths.HOME_VARIABLE),
            root=paths.data_root(),
            reason=Message(str(error.strerror)),
        ) from error


def forget_downloads(launcher: envs.Environment, training: envs.Environment, uv: Uv) -> None:
    """Remove the training packages, gigabytes that are installed now, from the download cache."""
    kept = set(launcher.packages())
    uv.forget([name for name in training.packages() if name not in kept])


def choose_profile(name: str | None, progress: Progress) -> Choice:
    """Return the profile that the person asked for, or the one for this computer.

    Raises:
        EnvironmentProblem: when the NVIDIA driver must be repaired first; a GPU is never left unused silently.
    """
    choice = profiles.choose(probe.machine(), name)
    if choice.problem:
        hint = Message(
            "{step} To train on the processor instead: --profile cpu", step=Message(CODES[choice.problem].action)
        )
        raise EnvironmentProblem(choice.problem, "{sentence}.", hint=hint, sentence=choice.sentence)
    for warning in choice.warnings:
        progress.note(Message("warning: {text}", text=warning.text))
    return choice


def bring(environment: envs.Environment, uv: Uv, progress: Progress) -> None:
    """Build an environment, or mend the one that is there, prove it and point to it.

    Raises:
        EnvironmentProblem: what stopped it; the same command continues.
    """
    if environment.is_complete():
        _mend(environment, uv, progress)
    envs.build(environment, uv, progress)


def _mend(environment: envs.Environment, uv: Uv, progress: Progress) -> None:
    """Replace what is damaged in a complete environment; remove it when that is not possible, to be built anew."""
    folder = environment.folder
    listed = inventory.read(folder) or inventory.from_records(folder)
    damages = inventory.compare(folder, listed)
    if not damages:
        return
    progress.note(
        Message(
            "{name}: files are damaged, missing or unknown ({count})",
            name=environment.name,
            count=len(damages),
        )
    )
    left = file_repair.FileRepair(folder, progress, lambda: uv).run()
    if left and envs.has_live_run():
        raise EnvironmentProblem("run-busy", "The environment has to be rebuilt, but a run is using it.")
    if left:
        (folder / MANIFEST).unlink()


def prove(environment: envs.Environment, progress: Progress) -> proof.Record:
    """Prove an environment once more and return the record. Raises EnvironmentProblem: under the name of the cause."""
    return proof.prove(environment.folder, environment.device or "auto", progress)


def install(profile_name: str | None, progress: Progress, *, window: bool, training_only: bool = False) -> Installed:
    """Install everything a person needs.

    Args:
        profile_name: name of a profile, or None to choose by the GPU.
        progress: takes what the person sees.
        window: whether a window will be opened, so that missing system libraries are an error.
        training_only: whether the window's environment is left alone.

    Raises:
        EnvironmentProblem: what stopped it; the same command continues.
    """
    with progress.phase("This computer"):
        parts = wanted(profile_name, progress, training_only=training_only)
        plan = parts.plan()
        progress.plan(plan)
        prepare_folder(progress)
        check_room(plan)
    with kinds.only_one(progress):
        uv = uvtool.obtain(progress)
        if parts.launcher:
            with progress.phase("System libraries"):
                _ensure_libraries(progress, required=window)
            with progress.phase("Launcher environment"):
                bring(parts.launcher, uv, progress)
        with progress.phase("Training environment"):
            bring(parts.training, uv, progress)
        forget_downloads(kinds.launcher_environment(parts.training.interpreter), parts.training, uv)
        with progress.phase("Base model of the example"):
            model = example_model.ensure(LOCKS / "example-model.txt", parts.training.python, uv, progress)
        return Installed(parts.launcher, parts.training, model)


def install_window(progress: Progress) -> envs.Environment:
    """Install the window's environment only: the window asks before it gets what training needs.

    Raises:
        EnvironmentProblem: what stopped it; the same command continues.
    """
    prepare_folder(progress)
    with kinds.only_one(progress):
        with progress.phase("System libraries"):
            system_libraries.ensure(progress)
        launcher = kinds.launcher_environment(interpreters.choose())
        progress.note(Message("Data folder: {folder}", folder=paths.data_root()))
        if required := launcher.required_bytes():
            progress.note(
                Message("Disk space needed: {required}. The download is smaller.", required=size_text(required))
            )
        with progress.phase("Libraries of the window"):
            bring(launcher, uvtool.obtain(progress), progress)
    return launcher


def _ensure_libraries(progress: Progress, *, required: bool) -> None:
    try:
        system_libraries.ensure(progress)
    except EnvironmentProblem as problem:
        if required:
            raise
        progress.note(
            Message(
                "{message} The example works without it. For the window: {hint}",
                message=problem.message,
                hint=problem.hint,
            )
        )


def closing(progress: Progress, started: float) -> None:
    """Print times and sizes of the whole command; `started` is its start on the monotonic clock."""
    progress.line()
    for name, seconds in progress.timings:
        progress.line(f"{said(name):<28}{duration_text(seconds):>14}")
    progress.line(f"{said(Message('Total')):<28}{duration_text(time.monotonic() - started):>14}")
    progress.line(
        f"{said('Data folder'):<28}{size_text(files.folder_bytes(paths.data_root())):>14}  {paths.data_root()}"
    )


def run(profile_name: str | None, progress: Progress, *, demo_wanted: bool) -> int:
    """Install, then open the window or, where there is none or `demo_wanted`, train the example.

    A window needs only its own libraries: its wizard shows the plan of the rest, and asks. A profile that was named is
    the answer already.

    Returns:
        The exit code.

    Raises:
        TunesmithError: what stopped it.
    """
    started = time.monotonic()
    window = has_display() and not demo_wanted
    if window and profile_name is None:
        launcher = install_window(progress)
        closing(progress, started)
        if not (paths.envs_dir() / environments.TRAINING_POINTER).is_file():
            progress.line()
            progress.line("The window opens and sets up training with you. It asks before it downloads more.")
        return open_window(launcher.python)
    installed = install(profile_name, progress, window=window)
    if window and installed.launcher:
        closing(progress, started)
        return open_window(installed.launcher.python)
    with progress.phase("Example"):
        code = demo.run(installed.model, progress)
    closing(progress, started)
    return code


def open_window(python: Path) -> int:
    """Open the window and wait for its end; runs go on without it. Returns its exit code."""
    command = environments.module_command(python, "tunesmith_gui")
    return subprocess.run(command, check=False).returncode
