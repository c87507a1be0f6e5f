"""Where things live: one data root per person, chosen at the first run or by the variable TUNESMITH_HOME.

Below it: envs, cache, tmp, runs, models, logs, config, locks and library.sqlite. On Windows the first three may lie in
a short work folder on the same drive instead (see `placement`). Functions name folders and create nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tunesmith_core import files, placement
from tunesmith_core.errors import TunesmithError

HOME_VARIABLE = "TUNESMITH_HOME"
ROOT_RECORD = "data-folder.txt"
"""File in the default root that names the folder chosen instead of it."""


def default_root() -> Path:
    """Return the operating system's folder for local application data, where nothing else was chosen."""
    if sys.platform == "win32":  # pragma: no cover
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "Tunesmith"
    data_home = os.environ.get("XDG_DATA_HOME")
    return (Path(data_home) if data_home else Path.home() / ".local" / "share") / "tunesmith"


def data_root() -> Path:
    """Return the data root: TUNESMITH_HOME, else the folder chosen at the first run, else the default one."""
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    root = default_root()
    try:
        recorded = (root / ROOT_RECORD).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return root
    return Path(recorded) if Path(recorded).is_absolute() else root


def root_before() -> Path | None:
    """Return the default root when another folder was chosen at the first run and is in use, else None."""
    first = default_root()
    return first if not os.environ.get(HOME_VARIABLE) and data_root() != first else None


def record_root(folder: Path) -> None:
    """Make a chosen data root last for this person. Raises OSError when the record can't be written."""
    record = default_root() / ROOT_RECORD
    files.private_folder(record.parent)
    files.atomic_write_text(record, f"{folder}\n")


def work_root() -> Path:
    """Return the folder of environments, caches and temporary files: the data root wherever it can hold them."""
    return placement.work_folder(data_root())


def runs_dir() -> Path:
    """Return the folder that holds one folder per run."""
    return data_root() / "runs"


def trash_dir() -> Path:
    """Return the folder for deleted runs, which a person can restore."""
    return data_root() / "trash"


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


def read_only_problem() -> TunesmithError | None:
    """Return what to say about a data root in which nothing can be changed, None for any other."""
    root = data_root()
    if not root.is_dir() or os.access(root, os.W_OK):
        return None
    return TunesmithError(
        "permission-or-antivirus",
        "{path} is read-only. You can look at the runs there, but not start, resume or delete any.",
        path=root,
    )


def make_private() -> None:
    """Leave to its owner alone what an earlier version let others read; each of our programs begins with it."""
    root = data_root()
    holding = (runs_dir(), trash_dir(), logs_dir(), config_dir(), locks_dir(), cache_dir(), tmp_dir(), library_path())
    # A chosen folder may hold more than what is ours.
    for path in (*holding, *([root] if root == default_root() else [])):
        files.make_private(path)


def library_path() -> Path:
    """Return the SQLite index of runs; it can be deleted at any time."""
    return data_root() / "library.sqlite"


def numbered(name: str, number: int) -> str:
    """Return what one of several things of the same name is called: a run and its folder, a data set, a copy."""
    return f"{name}-{number:02d}"


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
