"""Which folder can hold Tunesmith's data, and where environments, caches and temporary files go.

The data root is the folder that the person chose. On Windows the compilers and libraries of a training environment fail
on paths that are long, hold spaces or are not plain ASCII; then these three go to a short folder on the same drive, the
work folder. That choice is recorded, so that it stays. Linux has no such rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message

if TYPE_CHECKING:
    from tunesmith_core.machine import Disk, Machine

WORK_VARIABLE = "TUNESMITH_WORK"
"""Chooses the work folder, on any system."""

SHORT_NAME = "Tunesmith"
MAX_WORK_CHARS = 20
"""Longest work folder: Triton's and Inductor's names below it stay within Windows' 260 characters."""

MAX_ROOT_CHARS = 100
"""Longest data root on Windows: the files of a run below it stay within 260 characters."""

NUM_SHORT_FOLDERS = 99
RECORD = Path("config", "placement.json")
OWNER = "tunesmith-work.json"
ROOMS = frozenset({"envs", "cache", "tmp"})
"""What `paths` puts into a work folder."""

_SYNCED_VARIABLES = ("ONEDRIVE", "ONEDRIVECONSUMER", "ONEDRIVECOMMERCIAL")
_SYNCED_NAMES = frozenset({"onedrive", "dropbox", "google drive", "googledrive", "iclouddrive"})
_SYSTEM_VARIABLES = ("SYSTEMROOT", "WINDIR", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432")
_SYSTEM_FOLDERS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")


def needs_short_folder(root: PurePath) -> str | None:
    """Say why a data root on Windows can't hold environments and caches itself, or return None."""
    if not str(root).isascii():
        return Message("its path contains letters other than A to Z")
    if " " in str(root):
        return Message("its path contains spaces")
    if len(str(root)) > MAX_WORK_CHARS:
        return Message("its path is longer than {limit} characters", limit=MAX_WORK_CHARS)
    return None


def short_folders(root: PurePath) -> Iterator[PurePath]:
    """Yield the short folders on the drive of a data root, the preferred one first."""
    for number in range(1, NUM_SHORT_FOLDERS + 1):
        yield root.__class__(root.anchor) / f"{SHORT_NAME}{number if number > 1 else ''}"


def work_folder(root: Path, *, windows: bool = os.name == "nt") -> Path:
    """Return the folder for the environments, caches and temporary files of a data root."""
    chosen = os.environ.get(WORK_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    if not windows:
        return root
    return _recorded(root) or _choose(root)


def record_work_folder(root: Path, tell: Callable[[str], None], *, windows: bool = os.name == "nt") -> None:
    """Make the choice of the work folder last, before anything is written there.

    Args:
        root: the data root.
        tell: called with what the person should know, when the choice is not the data root itself.
        windows: whether Windows' rules apply.

    Raises:
        EnvironmentProblem: `permission-or-antivirus` when the work folder can't be made.
        OSError: when the record can't be written.
    """
    folder = work_folder(root, windows=windows)
    if not windows or os.environ.get(WORK_VARIABLE):
        return
    if folder != root:
        why = needs_short_folder(root) or Message("they are already in the other folder")
        reason = Message("{root} can't be used for them: {why}", root=root, why=why)
        try:
            files.private_folder(folder)
            files.atomic_write_json(folder / OWNER, {"version": 1, "data_root": str(root)})
        except OSError as error:
            raise TunesmithError(
                "permission-or-antivirus",
                "{folder} for environments and caches can't be written: {reason}. {need}.",
                hint=Message(
                    "Set {work_variable} to a short folder that you can write to, such as {anchor}ts.",
                    work_variable=WORK_VARIABLE,
                    anchor=root.anchor,
                ),
                folder=folder,
                reason=Message(str(error.strerror)),
                need=reason,
            ) from error
        tell(Message("Environments and caches go to {folder}, because {reason}.", folder=folder, reason=reason))
    files.private_folder((root / RECORD).parent)
    files.atomic_write_json(root / RECORD, {"version": 1, "work_folder": str(folder)})


def _choose(root: Path) -> Path:
    if needs_short_folder(root) is None:
        return root
    free = (Path(folder) for folder in short_folders(root) if _is_ours_or_free(Path(folder), root))
    return next(free, root)


def _is_ours_or_free(folder: Path, root: Path) -> bool:
    try:
        owner = files.read_json(folder / OWNER)
    except FileNotFoundError:
        return not folder.exists() or _was_begun(folder)
    except (OSError, ValueError):
        return False
    return isinstance(owner, dict) and owner.get("data_root") == str(root)


def _was_begun(folder: Path) -> bool:
    """Return whether a folder holds what we put there before the choice is recorded; else every look names another."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    return bool(names) and names <= ROOMS


def _recorded(root: Path) -> Path | None:
    """Return the recorded work folder, unless the data root has moved to another drive since."""
    try:
        folder = Path(files.read_json(root / RECORD)["work_folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return folder if folder.anchor == root.anchor else None


def problem_of(
    path: str | PurePath,
    machine: Machine,
    *,
    variables: Mapping[str, str] | None = None,
    program_folder: PurePath | None = None,
) -> TunesmithError | None:
    """Say why a folder can't be the data root of a computer, or return None. Looks at nothing but its arguments.

    Args:
        path: the chosen folder.
        machine: the facts about the computer, for its system and its disks.
        variables: the environment variables of that computer; this process's when None.
        program_folder: where the program is installed, whose content an update replaces.
    """
    windows = machine.system == "windows"
    root = PureWindowsPath(path) if windows else PurePosixPath(path)
    names = {name.upper(): value for name, value in (os.environ if variables is None else variables).items()}
    if not root.is_absolute():
        return TunesmithError(
            "usage", "{root} is not a full path.", hint="Choose a folder with its full path.", root=root
        )
    kind = "network" if str(root).startswith("\\\\") else _kind_of(root, machine.disks or ())
    program = root.__class__(program_folder) if program_folder else None
    reasons = (
        (Message("is in a folder that is synchronized with a cloud"), _is_synced(root, names)),
        (Message("is on a network drive"), kind == "network"),
        (Message("is on a removable drive"), kind == "removable"),
        (Message("belongs to the operating system"), _is_system(root, names, windows=windows)),
        (
            Message("is in the program's own folder, which an update replaces"),
            program is not None and _within(root, program),
        ),
    )
    for reason, applies in reasons:
        if applies:
            return TunesmithError("folder-unsuitable", "{root} {reason}.", root=root, reason=reason)
    if windows and len(str(root)) > MAX_ROOT_CHARS:
        return UserError(
            "path-too-long",
            "{root} has {num_chars} characters. Windows allows 260 in total, and the files inside need the rest.",
            hint=Message(
                "Choose a folder with at most {max_root_chars} characters, such as {anchor}Tunesmith.",
                max_root_chars=MAX_ROOT_CHARS,
                anchor=root.anchor,
            ),
            root=root,
            num_chars=len(str(root)),
        )
    return None


def writing_problem(root: Path) -> TunesmithError | None:
    """Create the folder, write a test file into it, and say what hinders that, or return None."""
    try:
        files.probe_writable(root)
    except OSError as error:
        return TunesmithError(
            "permission-or-antivirus",
            "{root} can't be written: {reason}.",
            hint="Choose a folder that you can write to.",
            root=root,
            reason=Message(str(error.strerror)),
        )
    return None


def _within(path: PurePath, folder: PurePath) -> bool:
    return path == folder or folder in path.parents


def _kind_of(path: PurePath, disks: tuple[Disk, ...]) -> str:
    """Return the kind of the disk that holds a path: of those that do, the one with the longest mount point."""
    holding = [(len(disk.path), disk.kind) for disk in disks if _within(path, path.__class__(disk.path))]
    return max(holding)[1] if holding else "unknown"


def _is_synced(path: PurePath, names: Mapping[str, str]) -> bool:
    roots = [path.__class__(names[name]) for name in _SYNCED_VARIABLES if names.get(name)]
    parts = [part.casefold() for part in path.parts]
    named = any(part in _SYNCED_NAMES or part.startswith("onedrive - ") for part in parts)
    return named or any(_within(path, root) for root in roots)


def _is_system(path: PurePath, names: Mapping[str, str], *, windows: bool) -> bool:
    folders = [names[name] for name in _SYSTEM_VARIABLES if names.get(name)] if windows else list(_SYSTEM_FOLDERS)
    return path == path.__class__(path.anchor) or any(_within(path, path.__class__(folder)) for folder in folders)
