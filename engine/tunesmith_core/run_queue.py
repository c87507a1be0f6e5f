"""One run per device: a lock file each, taken in the order in which the runs were created.

Who waits is told by the leases, so the order needs no file of its own and a dead waiter holds up nobody.
"""

from __future__ import annotations

from typing import Any

from tunesmith_core import files, paths
from tunesmith_core.devices import Device
from tunesmith_core.locks import FileLock
from tunesmith_core.process_identity import ProcessIdentity
from tunesmith_core.runs import Run, iter_runs


def device_lock(device: Device) -> FileLock:
    """Return the lock that a run holds while its engine uses a device."""
    return FileLock(paths.locks_dir() / f"{device.name}.lock")


def write_lease(
    run: Run, supervisor: ProcessIdentity, *, engine: ProcessIdentity | None = None, waiting_for: Device | None = None
) -> None:
    """Say who works on a run and what it waits for."""
    lease: dict[str, Any] = {  # Any: JSON values
        "supervisor": supervisor.to_dict(),
        "engine": engine.to_dict() if engine else None,
        "waiting_for": waiting_for.name if waiting_for else None,
    }
    files.atomic_write_json(run.lease_path, lease)


def leased_engine(run: Run) -> ProcessIdentity | None:
    """Return the engine that the lease names, alive or not."""
    try:
        return ProcessIdentity.from_dict(files.read_json(run.lease_path)["engine"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_first(run: Run, device: Device) -> bool:
    """Return whether no older run waits for the same device."""
    for other in iter_runs(run.path.parent):
        if other.id == run.id:
            return True
        if _waits_for(other, device) and other.is_supervised():
            return False
    return True


def _waits_for(run: Run, device: Device) -> bool:
    try:
        return bool(files.read_json(run.lease_path)["waiting_for"] == device.name)
    except (OSError, ValueError, KeyError, TypeError):
        return False
