"""One run per device: a lock file each, taken in the order in which the runs were created.

Who waits for a device has a ticket in its queue folder, named so that sorting by name is sorting by the age of the run.
Waiting reads that folder and the ticket at its head, never the run folders; a ticket whose holder is dead is removed.
Who got the device leaves its name beside the lock, for those who ask what they wait for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.devices import Device
from tunesmith_core.locks import FileLock, is_locked
from tunesmith_core.process_identity import ProcessIdentity
from tunesmith_core.runs import Run


def device_lock(device: Device) -> FileLock:
    """Return the lock that a run holds while its engine uses a device."""
    return FileLock(paths.locks_dir() / f"{device.name}.lock")


def note_holder(device: Device, run: Run) -> None:
    """Say which run holds the lock of a device; it counts as long as the lock is held."""
    # A run needs no note to train: a full disk is met where it matters.
    with contextlib.suppress(OSError):
        files.atomic_write_json(_holder_path(device.name), {"run": run.id})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run stands in a queue.

    Attributes:
        device: name of the device, gpu-0 or cpu.
        holder: id of the run that uses the device, "" where nobody knows.
        num_ahead: how many older runs wait for it too.
    """

    device: str
    holder: str
    num_ahead: int


def place_of(run: Run) -> Place | None:
    """Return what a run waits for, or None when it waits for no device."""
    name = _ticket_name(run)
    for queue in sorted(paths.locks_dir().glob("*.queue")):
        if (queue / name).exists():
            device = queue.stem
            return Place(device, _holder(device), sum(1 for _ in _older_than(queue / name)))
    return None


def holder_of(device: Device) -> str:
    """Return the id of the run that uses a device, "" where none does or nobody knows."""
    return _holder(device.name)


def _holder(device: str) -> str:
    if is_locked(paths.locks_dir() / f"{device}.lock"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return str(files.read_json(_holder_path(device))["run"])
    return ""


def _holder_path(device: str) -> Path:
    return paths.locks_dir() / f"{device}.holder.json"


class Ticket:
    """The place of a run in the queue of a device, from `take` to `give_back`."""

    def __init__(self, run: Run, device: Device) -> None:
        self._queue = paths.locks_dir() / f"{device.name}.queue"
        self.path = self._queue / _ticket_name(run)

    def take(self, holder: ProcessIdentity) -> None:
        """Queue up. Raises OSError when the folder can't be written."""
        files.private_folder(self._queue)
        files.atomic_write_json(self.path, holder.to_dict())

    def is_first(self) -> bool:
        """Return whether no older run waits for the device."""
        return next(_older_than(self.path), None) is None

    def give_back(self) -> None:
        """Leave the queue: it is this run's turn, or it waits no more."""
        files.remove(self.path)


def _ticket_name(run: Run) -> str:
    # The path keeps two runs apart that were created at once in different folders.
    digest = hashlib.sha256(str(run.path.absolute()).encode("utf-8", "replace")).hexdigest()[:12]
    return f"{run.created_at:020.6f}-{digest}.json"


def _older_than(ticket: Path) -> Iterator[str]:
    """Yield the names of the older tickets beside one with which somebody still waits."""
    for name in sorted(os.listdir(ticket.parent)):
        if name >= ticket.name:
            break
        if name.endswith(".json") and not name.startswith(".") and _holder_lives(ticket.parent / name):
            yield name


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
