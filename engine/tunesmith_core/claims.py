"""What stands for a lock on drives that know none, as some network file systems: a file that one process creates.

It names its creator by pid, start time and boot, so that what a dead process left is taken over and a living one is
never robbed. Weaker than a lock: it is not released by the system, and two that take over at the same moment are told
apart only by what they find afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import uuid
from pathlib import Path

from tunesmith_core import files, process_identity
from tunesmith_core.process_identity import ProcessIdentity

WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
"""What a drive without locks answers when one is asked for."""

WRITING_S = 10.0
"""A claim that names nobody yet is being written, unless it is older."""


def claim_path(lock: Path) -> Path:
    """Return the file that stands for a lock."""
    return lock.with_name(f"{lock.name}.claim")


def take(lock: Path) -> bool:
    """Claim a lock for this process; return whether it is claimed now."""
    claim = claim_path(lock)
    for _ in range(2):
        try:
            descriptor = os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if is_taken(lock) or not _remove_dead(claim):
                return False
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(process_identity.current().to_dict(), file)
        return True
    return False


def is_taken(lock: Path) -> bool:
    """Return whether a living process claims a lock."""
    claim = claim_path(lock)
    try:
        age_s = time.time() - claim.stat().st_mtime
        holder = _holder(claim)
    except FileNotFoundError:
        return False
    return holder.alive() if holder else age_s < WRITING_S


def drop(lock: Path) -> None:
    """Give up the claim of this process."""
    claim_path(lock).unlink(missing_ok=True)


def _holder(claim: Path) -> ProcessIdentity | None:
    try:
        return ProcessIdentity.from_dict(json.loads(claim.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError):
        return None


def _remove_dead(claim: Path) -> bool:
    """Move a dead process's claim out of the way; return False when somebody else's was there by now."""
    aside = claim.with_name(f"{claim.name}.{uuid.uuid4().hex[:8]}")
    try:
        files.replace(claim, aside)
    except FileNotFoundError:
        return True
    holder = _holder(aside)
    if holder and holder.alive():
        with contextlib.suppress(OSError):
            os.link(aside, claim)
        aside.unlink()
        return False
    aside.unlink()
    return True
