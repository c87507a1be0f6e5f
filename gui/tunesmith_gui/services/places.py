"""Looks at a folder that somebody wants to keep everything in. No widgets; called on a worker thread."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tunesmith_core import files, paths, placement
from tunesmith_core.errors import wrap
from tunesmith_core.machine import Machine
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.viewmodels.setup_flow import Place


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
        free, problem = None, wrap(error).message
    can_change = not os.environ.get(paths.HOME_VARIABLE)
    return Place(folder, free, problem, _note(folder, machine, can_change=can_change), can_change)


def _problem(folder: Path, machine: Machine) -> str:
    # The program's own folder is three above this package in a checkout and the packages' folder when installed.
    refused = placement.problem_of(folder, machine, program_folder=paths.package_folder("tunesmith_gui").parent)
    if refused is not None:
        return f"{refused.message}\n{core_text(refused.hint)}"
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return fill(translate("Places", "%1 can't be written to. Choose a folder of your own."), existing)
    return ""


def _note(folder: Path, machine: Machine, *, can_change: bool) -> str:
    notes = []
    if not can_change:
        words = translate("Places", "The variable %1 names this folder, so it can't be changed here.")
        notes.append(fill(words, paths.HOME_VARIABLE))
    if machine.system == "windows" and placement.needs_short_folder(folder) is not None:
        words = translate("Places", "Environments and caches go to a short folder on the same drive: %1")
        notes.append(fill(words, next(iter(placement.short_folders(folder)))))
    return " ".join(notes)
