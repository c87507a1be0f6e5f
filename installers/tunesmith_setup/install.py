"""The installation from a bare Python to an open window or a trained example.

Every part looks first whether it is done, so the same command continues after any interruption and needs no network
when nothing is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import environments, files, paths
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.locks import FileLock
from tunesmith_setup import demo, envs, example_model, interpreters, probe, profiles, system_libraries, uvtool
from tunesmith_setup.interpreters import Interpreter
from tunesmith_setup.profiles import Profile
from tunesmith_setup.progress import Progress, duration_text, size_text
from tunesmith_setup.uvtool import LOCKS, Uv

LAUNCHER_MODULES = ("numpy", "psutil", "keyring", "platformdirs", "shiboken6")
TRAINING_MODULES = ("torch", "transformers", "peft", "datasets", "bitsandbytes")
LAUNCHER_BYTES = 360_000_000
LOCK_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Installed:
    """What an installation left.

    Attributes:
        launcher: the window's environment.
        training: the engine's environment.
        model: folder of the example's base model.
    """

    launcher: envs.Environment
    training: envs.Environment
    model: Path


def launcher_environment(interpreter: Interpreter) -> envs.Environment:
    """Return the launcher environment of a Python version."""
    lock = envs.lock_path(LOCKS, "launcher", interpreter)
    return envs.Environment(
        "launcher", interpreter, (lock,), LAUNCHER_MODULES, LAUNCHER_BYTES, environments.LAUNCHER_POINTER
    )


def training_environment(interpreter: Interpreter, profile: Profile) -> envs.Environment:
    """Return the training environment of a Python version.

    Raises:
        EnvironmentProblem: `environment-build-failed` when this system has no lock for the profile.
    """
    lock = envs.lock_path(LOCKS, profile.name, interpreter)
    if not lock.is_file():
        raise EnvironmentProblem(
            "environment-build-failed",
            f"The profile {profile.name} is not available on this system yet.",
            hint="Choose the CPU: python3 installers/bootstrap.py --profile cpu",
        )
    kind = f"train-{profile.name}"
    pointer = environments.TRAINING_POINTER
    return envs.Environment(kind, interpreter, (lock,), TRAINING_MODULES, profile.installed_bytes, pointer)


def has_display() -> bool:
    """Return whether a window can be opened here."""
    return sys.platform == "win32" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def only_one(progress: Progress) -> Iterator[None]:
    """Hold the installer's lock; wait while another installer works on the same data root."""
    lock = FileLock(paths.locks_dir() / "setup.lock")
    if not lock.acquire():
        progress.line("Another installation is at work on this folder: waiting for its end.")
        while not lock.acquire():
            time.sleep(LOCK_POLL_S)
    try:
        yield
    finally:
        lock.release()


def show_budget(parts: list[tuple[str, int]], progress: Progress) -> None:
    """Show the room that is needed at most while installing.

    Args:
        parts: name and bytes of each part; 0 for what is complete.
        progress: takes the lines.

    Raises:
        EnvironmentProblem: `disk-full` when the drive has less room.
    """
    required, free = sum(num_bytes for _, num_bytes in parts), files.free_bytes(paths.data_root())
    progress.note(f"data folder: {paths.data_root()} ({paths.HOME_VARIABLE} chooses another)")
    for name, num_bytes in parts:
        progress.note(f"{name}: {f'up to {size_text(num_bytes)}' if num_bytes else 'complete'}")
    progress.note(f"disk: up to {size_text(required)} while installing, {size_text(free)} free")
    if free < required:
        raise EnvironmentProblem(
            "disk-full",
            f"{paths.data_root()}: {size_text(required)} are needed, {size_text(free)} are free.",
            hint=f"Free some space, or set {paths.HOME_VARIABLE} to a folder on another drive.",
        )


def prepare_folder() -> None:
    """Create the data root. Raises EnvironmentProblem `permission-or-antivirus` when it can't be written."""
    try:
        files.probe_writable(paths.data_root())
    except OSError as error:
        raise EnvironmentProblem(
            "permission-or-antivirus",
            f"{paths.data_root()} can't be written: {error.strerror}.",
            hint=f"Set {paths.HOME_VARIABLE} to a folder that you may write to.",
        ) from error


def forget_downloads(launcher: envs.Environment, training: envs.Environment, uv: Uv) -> None:
    """Remove the training packages, gigabytes that are installed now, from the download cache."""
    kept = set(launcher.packages())
    uv.forget([name for name in training.packages() if name not in kept])


def choose_profile(name: str | None, progress: Progress) -> Profile:
    """Return the profile that the person asked for, or the one for this computer.

    Raises:
        EnvironmentProblem: when the NVIDIA driver must be repaired first; a GPU is never left unused silently.
    """
    choice = profiles.choose(probe.machine(), name)
    if choice.problem:
        hint = f"{CODES[choice.problem].action} To train on the processor instead: --profile cpu"
        raise EnvironmentProblem(choice.problem, f"{choice.sentence}.", hint=hint)
    progress.note(choice.sentence)
    for warning in choice.warnings:
        progress.note(f"warning: {warning.text}")
    return choice.profile


def install_environments(interpreter: Interpreter, profile: Profile, uv: Uv, progress: Progress) -> Installed:
    """Build both environments and fetch the example's model, as far as they are not there.

    Raises:
        EnvironmentProblem: what stopped it; the same command continues.
    """
    launcher, training = launcher_environment(interpreter), training_environment(interpreter, profile)
    for title, environment in (("Launcher environment", launcher), ("Training environment", training)):
        with progress.phase(title):
            envs.build(environment, uv, progress)
    forget_downloads(launcher, training, uv)
    with progress.phase("Base model of the example"):
        model = example_model.ensure(LOCKS / "example-model.txt", training.python, uv, progress)
    return Installed(launcher, training, model)


def install(profile_name: str | None, progress: Progress, *, window: bool) -> Installed:
    """Install everything a person needs.

    Args:
        profile_name: name of a profile, or None to choose by the GPU.
        progress: takes what the person sees.
        window: whether a window will be opened, so that missing system libraries are an error.

    Raises:
        EnvironmentProblem: what stopped it; the same command continues.
    """
    prepare_folder()
    with only_one(progress):
        with progress.phase("This computer"):
            interpreter = interpreters.choose()
            progress.note(f"Python: {interpreter.executable}")
            profile = choose_profile(profile_name, progress)
            parts = [
                ("launcher environment", launcher_environment(interpreter).required_bytes()),
                ("training environment", training_environment(interpreter, profile).required_bytes()),
                ("base model of the example", example_model.required_bytes()),
            ]
            show_budget(parts, progress)
            uv = uvtool.obtain(progress)
        with progress.phase("System libraries"):
            try:
                system_libraries.ensure(progress)
            except EnvironmentProblem as problem:
                if window:
                    raise
                progress.note(f"{problem.message} The example needs none; for the window: {problem.hint}")
        return install_environments(interpreter, profile, uv, progress)


def closing(progress: Progress, started: float) -> None:
    """Print times and sizes of the whole command; `started` is its start on the monotonic clock."""
    progress.line()
    for name, seconds in progress.timings:
        progress.line(f"{name:<28}{duration_text(seconds):>14}")
    progress.line(f"{'Total':<28}{duration_text(time.monotonic() - started):>14}")
    progress.line(f"{'Data folder':<28}{size_text(files.folder_bytes(paths.data_root())):>14}  {paths.data_root()}")


def run(profile_name: str | None, *, demo_wanted: bool) -> int:
    """Install, then open the window or, where there is none or `demo_wanted`, train the example.

    Returns:
        The exit code.

    Raises:
        TunesmithError: what stopped it.
    """
    progress, started = Progress(), time.monotonic()
    window = has_display() and not demo_wanted
    installed = install(profile_name, progress, window=window)
    if window:
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
