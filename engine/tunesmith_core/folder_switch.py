"""A folder takes the place of another in one move, so that a reader always finds one of them whole."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

from tunesmith_core import files

EARLIER_PREFIX = "earlier-"
"""Begins the name of a folder whose place is being taken, where two folders can't change places at once."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def switch_folder(staging: Path, final: Path) -> None:
    """Put a complete staging folder in the place of another, which then has the staging folder's name, if there is one.

    On Linux the two change places at once. Elsewhere, and on drives that can't do that, the earlier one is renamed
    first; `sweep_switches` puts it back when the process dies in between.
    """
    if not final.exists():
        files.publish_folder(staging, final)
        return
    files.fsync_folder(staging)
    files.crashpoint("folder.before-switch")
    if not _exchange(staging, final):
        earlier = staging.with_name(f"{EARLIER_PREFIX}{final.name}")
        shutil.rmtree(earlier, ignore_errors=True)
        files.replace(final, earlier)
        files.crashpoint("folder.between-renames")
        try:
            files.replace(staging, final)
        except BaseException:
            files.replace(earlier, final)
            raise
        files.replace(earlier, staging)
    files.crashpoint("folder.after-switch")
    files.fsync_folder(final.parent)
    files.fsync_folder(staging.parent)


def sweep_switches(tmp: Path, final: Path) -> None:
    """Bring to an end what dead processes left of switches: an earlier folder without a successor is put back.

    Args:
        tmp: where the staging folders were; it is deleted.
        final: the folder that they were for.
    """
    earlier = tmp / f"{EARLIER_PREFIX}{final.name}"
    if earlier.exists() and not final.exists():
        files.replace(earlier, final)
    shutil.rmtree(tmp, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Let two folders change places at once; return whether system and drive can."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, TypeError, OSError):
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)
