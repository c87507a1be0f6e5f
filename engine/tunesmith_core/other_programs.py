"""Programs of this computer that take a GGUF file: where they are, and what a model is called there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tunesmith_core.runs import Run, display_name, slug

_LM_STUDIO_FOLDERS = (".lmstudio/models", ".cache/lm-studio/models")
"""In a person's home, the newer first."""


def find_ollama() -> str:
    """Return the path of Ollama's program, "" where it is not installed."""
    return shutil.which("ollama") or ""


def find_lm_studio() -> Path | None:
    """Return the folder in which LM Studio looks for models, None where there is none."""
    folders = (Path.home() / name for name in _LM_STUDIO_FOLDERS)
    return next((folder for folder in folders if folder.is_dir()), None)


def ollama_name(run: Run, type_name: str) -> str:
    """Return what a run's model is called in Ollama, which takes plain letters only.

    Args:
        run: that was exported.
        type_name: number format of the file.
    """
    plain = re.sub(r"[^a-z0-9._-]+", "-", slug(display_name(run))).strip("-._")
    return f"{plain or 'tunesmith'}:{type_name}"
