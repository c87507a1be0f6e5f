"""Gives a finished GGUF file to Ollama and LM Studio, where they are on this computer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.other_programs import find_lm_studio, find_ollama
from tunesmith_engine.export.gguf.modelfile import MODELFILE_NAME

PUBLISHER = "tunesmith"
"""LM Studio has a folder for each publisher, and in it one for each model."""


def ollama_program() -> str:
    """Return the path of Ollama's program.

    Raises:
        UserError: `other-program-failed` when it is not installed.
    """
    program = find_ollama()
    if not program:
        raise _failed(
            Message("Ollama was not found on this computer."), Message("Install Ollama, then export again.")
        )
    return program


def lm_studio_folder() -> Path:
    """Return the folder in which LM Studio looks for models.

    Raises:
        UserError: `other-program-failed` when there is none.
    """
    folder = find_lm_studio()
    if folder is None:
        raise _failed(
            Message("LM Studio was not found on this computer."), Message("Start LM Studio once, then export again.")
        )
    return folder


def create_in_ollama(program: str, name: str, folder: Path) -> None:
    """Make a model in Ollama of an export.

    Args:
        program: of Ollama.
        name: of the model there.
        folder: of the export, with its Modelfile.

    Raises:
        UserError: `other-program-failed` with Ollama's last words.
    """
    if not (folder / MODELFILE_NAME).is_file():
        raise _failed(
            Message("Ollama can't use this chat template, so there is no Modelfile."),
            Message("Use the file with llama.cpp or LM Studio, which read the template from it."),
        )
    command = [program, "create", name, "-f", MODELFILE_NAME]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL
    )
    if done.returncode:
        said = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        reason = next((line.strip() for line in reversed(said) if line.strip()), str(done.returncode))
        raise _failed(Message("Ollama did not create {name}: {reason}", name=name, reason=reason))


def put_into_lm_studio(models: Path, file: Path) -> Path:
    """Put a file where LM Studio finds it, without a second copy on the same drive, and return its path there.

    Args:
        models: LM Studio's folder.
        file: of the export.

    Raises:
        UserError: `other-program-failed` when another file has the name.
    """
    place = models / PUBLISHER / file.stem / file.name
    if place.exists():
        if place.stat().st_size == file.stat().st_size and files.sha256_file(place) == files.sha256_file(file):
            return place
        raise _failed(
            Message("{path} exists already and is not this export.", path=place), Message("Move it, then export again.")
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, place)
    except OSError:
        # Another drive, or one that has no second names.
        part = place.with_name(f"{place.name}.part")
        shutil.copyfile(file, part)
        files.replace(part, place)
    return place


def _failed(message: str, hint: str = "") -> TunesmithError:
    return TunesmithError("other-program-failed", message, hint=hint)
