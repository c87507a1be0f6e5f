"""One run per device: a lock file each, taken in the order in which the runs were created.

Who waits for a device has a ticket in its queue folder, named so that sorting by name is sorting by the age of the run.
Waiting reads that folder and the ticket at its head, never the run folders; a ticket whose holder is dead is removed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.devices import Device
from tunesmith_core.locks import FileLock
from tunesmith_core.process_identity import ProcessIdentity
from tunesmith_core.runs import Run


def device_lock(device: Device) -> FileLock:
    """Return the lock that a run holds while its engine uses a device."""
    return FileLock(paths.locks_dir() / f"{device.name}.lock")


class Ticket:
    """The place of a run in the queue of a device, from `take` to `give_back`."""

    def __init__(self, run: Run, device: Device) -> None:
        self._queue = paths.locks_dir() / f"{device.name}.queue"
        # The path keeps two runs apart that were created at once in different folders.
        digest = hashlib.sha256(str(run.path).encode("utf-8", "replace")).hexdigest()[:12]
        self.path = self._queue / f"{run.created_at:020.6f}-{digest}.json"

    def take(self, holder: ProcessIdentity) -> None:
        """Queue up. Raises OSError when the folder can't be written."""
        self._queue.mkdir(parents=True, exist_ok=True)
        files.atomic_write_json(self.path, holder.to_dict())

    def is_first(self) -> bool:
        """Return whether no older run waits for the device."""
        for name in sorted(os.listdir(self._queue)):
            if name >= self.path.name:
                break
            if name.endswith(".json") and not name.startswith(".") and _holder_lives(self._queue / name):
                return False
        return True

    def give_back(self) -> None:
        """Leave the queue: it is this run's turn, or it waits no more."""
        files.remove(self.path)


def _holder_lives(ticket: Path) -> bool:
    """Return whether somebody still waits with a ticket; one of the dead is removed."""
    try:
        holder = ProcessIdentity.from_dict(files.read_json(ticket))
    except FileNotFoundError:
        return False
    except OSError:
        # On Windows a file can't be opened for a moment while another process handles it.
        return True
    except (ValueError, KeyError, TypeError):
        files.remove(ticket)
        return False
    if holder.alive():
        return True
    files.remove(ticket)
    return False
