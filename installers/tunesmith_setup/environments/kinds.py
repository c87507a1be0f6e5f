"""The environments that people have: what is in them, how they are named, and who may change them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tunesmith_core import environments, paths
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.locks import FileLock
from tunesmith_setup.environments import envs
from tunesmith_setup.environments.profiles import Profile
from tunesmith_setup.packages.uvtool import LOCKS
from tunesmith_setup.probe.interpreters import Interpreter
from tunesmith_setup.progress import Progress

LAUNCHER_MODULES = ("numpy", "psutil", "keyring", "platformdirs", "shiboken6")
TRAINING_MODULES = ("torch", "transformers", "peft", "datasets", "bitsandbytes")
HARNESS_MODULES = ("absl", "joblib", "defusedxml")
"""Those of its packages that need none of the training environment."""
REWARDS_MODULES = ("attr", "pyfiglet", "rpds")
LAUNCHER_BYTES = 360_000_000
HARNESS_BYTES = 260_000_000
REWARDS_BYTES = 60_000_000
LOCK_POLL_S = 1.0


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
            "The profile {name} is not available on this system yet.",
            hint="Choose the CPU: python3 installers/bootstrap.py --profile cpu",
            name=profile.name,
        )
    kind = f"train-{profile.name}"
    pointer = environments.TRAINING_POINTER
    device = "cpu" if profile.name == "cpu" else "cuda"
    return envs.Environment(kind, interpreter, (lock,), TRAINING_MODULES, profile.installed_bytes, pointer, device)


def harness_environment(interpreter: Interpreter) -> envs.Environment:
    """Return the packages that lm-evaluation-harness adds to the training environment of a Python version."""
    lock = envs.lock_path(LOCKS, "harness", interpreter)
    return envs.Environment(
        "harness", interpreter, (lock,), HARNESS_MODULES, HARNESS_BYTES, environments.HARNESS_POINTER
    )


def rewards_environment(interpreter: Interpreter) -> envs.Environment:
    """Return the packages that tasks and some rewards add to the training environment of a Python version."""
    lock = envs.lock_path(LOCKS, "rewards", interpreter)
    return envs.Environment(
        "rewards", interpreter, (lock,), REWARDS_MODULES, REWARDS_BYTES, environments.REWARDS_POINTER
    )


@contextmanager
def only_one(progress: Progress) -> Iterator[None]:
    """Hold the installer's lock; wait while another installer works on the same data root."""
    lock = FileLock(paths.locks_dir() / "setup.lock")
    if not lock.acquire():
        progress.line("Another installation is running in this folder. Waiting for it to finish.")
        while not lock.acquire():
            time.sleep(LOCK_POLL_S)
    try:
        yield
    finally:
        lock.release()
