"""Looks at a folder that somebody wants to keep everything in, and goes there. Called on a worker thread."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tunesmith_core import environments, files, paths, placement
from tunesmith_core.errors import EnvironmentProblem, wrap
from tunesmith_core.machine import Machine
from tunesmith_gui.environment.setup_flow import Place
from tunesmith_gui.tr import core_text, fill, translate


def look_at(folder: Path, machine: Machine | None = None) -> Place:
    """Return what speaks for and against a folder; creates nothing that was not there.

    Args:
        folder: the wish.
        machine: the facts about this computer, None while they are not known.
    """
    machine = machine or Machine(system="windows" if sys.platform == "win32" else "linux")
    try:
        free = files.free_bytes(folder)
        problem = _problem(folder, machine)
    except OSError as error:
        free, problem = None, core_text(wrap(error).message)
    fixed = _fixed()
    return Place(folder, free, problem, _note(folder, machine, fixed), not fixed)


def _fixed() -> str:
    """Say why the data folder can't be changed here any more; "" when it can."""
    if os.environ.get(paths.HOME_VARIABLE):
        words = translate("Places", "This folder is set by the variable %1 and can't be changed here.")
        return fill(words, paths.HOME_VARIABLE)
    in_use = (paths.envs_dir() / environments.TRAINING_POINTER, paths.runs_dir(), paths.models_dir())
    if any(path.is_file() or (path.is_dir() and any(path.iterdir())) for path in in_use):
        return translate(
            "Places", "This folder already contains an environment, models or runs and can't be changed here."
        )
    return ""


def move_to(folder: Path) -> None:
    """Make a folder the data root from now on; settings and the window's environment come along.

    The environment is copied, for the window runs in it: the old one goes when Tunesmith is uninstalled.

    Raises:
        EnvironmentProblem: the short folder for environments can't be made.
        OSError: the folder can't be written or has no room; nothing has changed then but what was copied.
    """
    if folder == paths.data_root():
        return
    files.probe_writable(folder)
    placement.record_work_folder(folder, lambda _words: None)  # the place's note says it
    envs = placement.work_folder(folder) / "envs"
    try:
        launcher = environments.pointed_environment(environments.LAUNCHER_POINTER)
    except EnvironmentProblem:
        launcher = None  # started from a checkout
    if launcher is not None and not (envs / launcher.name).exists():
        files.private_folder(envs)
        staging = envs / f"{launcher.name}.building-{os.getpid()}"
        shutil.copytree(launcher, staging, symlinks=True)
        files.publish_folder(staging, envs / launcher.name)
        files.atomic_write_text(envs / environments.LAUNCHER_POINTER, f"{launcher.name}\n")
    if paths.config_dir().is_dir():
        own = shutil.ignore_patterns(placement.RECORD.name)
        shutil.copytree(paths.config_dir(), folder / "config", ignore=own, dirs_exist_ok=True)
    paths.record_root(folder)


def _problem(folder: Path, machine: Machine) -> str:
    # The program's own folder is three above this package in a checkout and the packages' folder when installed.
    refused = placement.problem_of(folder, machine, program_folder=paths.package_folder("tunesmith_gui").parent)
    if refused is not None:
        return f"{core_text(refused.message)}\n{core_text(refused.hint)}"
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return fill(translate("Places", "Can't write to %1. Choose another folder."), existing)
    return ""


def _note(folder: Path, machine: Machine, fixed: str) -> str:
    notes = [fixed] if fixed else []
    if machine.system == "windows" and placement.needs_short_folder(folder) is not None:
        words = translate("Places", "Environments and caches go to a short folder on the same drive: %1")
        notes.append(fill(words, next(iter(placement.short_folders(folder)))))
    return " ".join(notes)
