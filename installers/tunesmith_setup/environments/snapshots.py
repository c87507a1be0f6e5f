"""The environments on this computer as snapshots: what each holds, how two differ, and going back to another one.

An environment never changes after it was built, so each folder is its own snapshot; going back moves a pointer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import environments, files, paths
from tunesmith_core.environments import LAUNCHER_POINTER, MANIFEST, TRAINING_POINTER
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_core.messages import Message
from tunesmith_setup.environments import envs, kinds, repair
from tunesmith_setup.packages import inventory, scratch, stores
from tunesmith_setup.progress import Progress


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An environment.

    Attributes:
        name: of its folder.
        role: "current", "previous" or "".
        built_at: seconds since 1970, 0 when it is not known.
        num_bytes: what it takes on the disk.
        packages: version by normal name.
    """

    name: str
    role: str
    built_at: float
    num_bytes: int
    packages: dict[str, str]


def _roles() -> dict[str, str]:
    """Return the role of every environment that a pointer names."""
    roles: dict[str, str] = {}
    for pointer in (LAUNCHER_POINTER, TRAINING_POINTER):
        for name, role in ((pointer, Message("current")), (previous_name(pointer), Message("previous"))):
            folder = repair.pointed_folder(name)
            if folder is not None:
                roles.setdefault(folder.name, role)
    return roles


def previous_name(pointer: str) -> str:
    """Return the name of the file that names the environment in use before."""
    return envs.previous_pointer(Path(pointer)).name


def snapshots() -> list[Snapshot]:
    """Return the complete environments, newest first."""
    roles, found = _roles(), []
    for path in paths.envs_dir().glob(f"*/{MANIFEST}"):
        folder = path.parent
        if not repair.STAGING_PATTERN.search(folder.name):
            built_at = scratch.manifest_of(folder).get("built_at")
            seconds = float(built_at) if isinstance(built_at, int | float) else 0.0
            size, packages = files.folder_bytes(folder), stores.installed_packages(folder)
            found.append(Snapshot(folder.name, roles.get(folder.name, ""), seconds, size, packages))
    return sorted(found, key=lambda snapshot: (-snapshot.built_at, snapshot.name))


def named(name: str) -> Snapshot:
    """Return the snapshot of a name, of the beginning of one, or of a role such as "current".

    Raises:
        UserError: `usage` when none or several fit.
    """
    every = snapshots()
    fitting = [snapshot for snapshot in every if name == snapshot.name] or [
        snapshot
        for snapshot in every
        if snapshot.name.startswith(name) or (snapshot.role == name and snapshot.name.startswith("train-"))
    ]
    if len(fitting) != 1:
        names = ", ".join(snapshot.name for snapshot in every) or Message("none")
        raise UserError(
            "usage",
            "{count} environments match {name!r}. Available: {names}.",
            count=len(fitting),
            name=name,
            names=names,
        )
    return fitting[0]


def difference(before: Snapshot, after: Snapshot) -> list[tuple[str, str | None, str | None]]:
    """Return name, version before and version after of every package that differs, in order of the names."""
    return [
        (name, before.packages.get(name), after.packages.get(name))
        for name in sorted(before.packages.keys() | after.packages.keys())
        if before.packages.get(name) != after.packages.get(name)
    ]


def go_back(progress: Progress) -> str:
    """Switch to the training environment that was in use before; doing it again goes forward.

    Returns:
        The name of the environment in use now.

    Raises:
        EnvironmentProblem: `environment-missing` when there is none, `environment-damaged` when it is damaged; the
            current one stays in use.
    """
    with kinds.only_one(progress):
        current = repair.pointed_folder(TRAINING_POINTER)
        target = repair.pointed_folder(previous_name(TRAINING_POINTER))
        if target is None or not target.is_dir() or target == current:
            raise EnvironmentProblem(
                "environment-missing",
                "There is no earlier training environment on this computer.",
                hint="Run tunesmith repair when the current one does not work.",
            )
        with progress.phase(Message("Checking {name}", name=target.name)):
            listed = inventory.read(target)
            damages = inventory.compare(target, listed) if listed else []
            if listed is None or damages or repair.starts(target) is False:
                shown = "; ".join(str(damage) for damage in damages[: repair.NUM_NAMES_SHOWN]) or Message(
                    "it can't be used"
                )
                text = Message("{name}: {shown}. The current one stays in use.", name=target.name, shown=shown)
                raise EnvironmentProblem("environment-damaged", text)
        _swap(current, target)
    return target.name


def _swap(current: Path | None, target: Path) -> None:
    """Point to another environment; killed in between, both pointers name the same, good one."""
    pointer = paths.envs_dir() / environments.TRAINING_POINTER
    files.atomic_write_text(pointer, f"{target.name}\n")
    files.crashpoint("rollback.switched")
    if current is not None and current.is_dir():
        files.atomic_write_text(envs.previous_pointer(pointer), f"{current.name}\n")
