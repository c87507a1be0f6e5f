"""Where things live: one data root per person, moved as a whole by the variable TUNESMITH_HOME.

Below it: envs, cache, tmp, runs, models, logs, config, locks and library.sqlite. On Windows the first three may lie in
a short work folder on the same drive instead (see `placement`). Functions name folders and create nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tunesmith_core import placement

HOME_VARIABLE = "TUNESMITH_HOME"


def data_root() -> Path:
    """Return the data root: TUNESMITH_HOME, else the operating system's folder for local application data."""
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":  # pragma: no cover
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "Tunesmith"
    data_home = os.environ.get("XDG_DATA_HOME")
    return (Path(data_home) if data_home else Path.home() / ".local" / "share") / "tunesmith"


def work_root() -> Path:
    """Return the folder of environments, caches and temporary files: the data root wherever it can hold them."""
    return placement.work_folder(data_root())


def runs_dir() -> Path:
    """Return the folder that holds one folder per run."""
    return data_root() / "runs"


def models_dir() -> Path:
    """Return the folder that holds base models, one folder each."""
    return data_root() / "models"


def envs_dir() -> Path:
    """Return the folder that holds the versioned environments and their pointer files."""
    return work_root() / "envs"


def cache_dir() -> Path:
    """Return the folder for everything that can be downloaded or computed again."""
    return work_root() / "cache"


def tmp_dir() -> Path:
    """Return the folder for temporary files of our own processes."""
    return work_root() / "tmp"


def logs_dir() -> Path:
    """Return the folder for logs that belong to no run."""
    return data_root() / "logs"


def config_dir() -> Path:
    """Return the folder for settings and drafts."""
    return data_root() / "config"


def locks_dir() -> Path:
    """Return the folder for lock files that several processes share."""
    return data_root() / "locks"


def library_path() -> Path:
    """Return the SQLite index of runs; it can be deleted at any time."""
    return data_root() / "library.sqlite"


def package_folder(name: str) -> Path:
    """Return the folder of one of our packages, in a checkout and in an installed wheel alike.

    Raises:
        FileNotFoundError: when the program folder lacks the package.
    """
    core = Path(__file__).resolve().parent
    top = core.parents[1]
    for root in (core.parent, top / "gui", top / "installers", top / "assets"):
        if (root / name / "__init__.py").is_file():
            return root / name
    raise FileNotFoundError(f"the program folder lacks the package {name}: install Tunesmith again")
