"""Deleted runs: they lie in the data root's trash until a person restores them or empties it.

Layout: `trash/ID-NANOSECONDS/` holds `origin.json` (version, path or path_bytes, deleted_at) and the run's folder under
its own name. `origin.json` is written first and the folder renamed into place last, so that a deletion cut off anywhere
leaves the run where it was or whole in the trash.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.json_values import is_time
from tunesmith_core.runs import Run, called
from tunesmith_core.store import Library

ORIGIN = "origin.json"


@dataclass(frozen=True, slots=True)
class DeletedRun:
    """One run in the trash.

    Attributes:
        folder: in the trash; holds the run's folder and `origin.json`.
        origin: where the run's folder was.
        deleted_at: seconds since 1970.
    """

    folder: Path
    origin: Path
    deleted_at: float

    @property
    def id(self) -> str:
        """The run's id."""
        return self.origin.name

    @property
    def path(self) -> Path:
        """The run's folder as it lies in the trash."""
        return self.folder / self.origin.name


def delete(run: Run, *, force: bool = False) -> DeletedRun:
    """Move a run's folder into the trash and forget the run.

    Args:
        run: of this data root, and made by Tunesmith.
        force: take any other folder, too.

    Raises:
        UserError: `run-foreign` without `force` for any other folder; `run-busy` while the run is going.
        EnvironmentProblem: the folder can't be moved.
    """
    path = run.path.absolute()
    _refuse_what_holds_more(path)
    if not force:
        _check_ours(run)
    if run.is_supervised():
        raise TunesmithError("run-busy", "The run {run} is still in progress.", run=run.id)
    deleted = delete_folder(path)
    try:
        with contextlib.closing(Library(paths.library_path())) as library:
            library.delete(run)
    except OSError as error:
        raise wrap(error) from error
    return deleted


def delete_folder(path: Path) -> DeletedRun:
    """Move a folder of ours into the trash, a run's or a model's. Raises EnvironmentProblem when it can't be moved."""
    deleted_at = time.time()
    deleted = DeletedRun(paths.trash_dir() / f"{path.name}-{time.time_ns():x}", path, deleted_at)
    try:
        files.private_folder(deleted.folder)
        # From the data root, which may be moved or copied with its trash.
        origin = path.relative_to(paths.data_root()) if path.is_relative_to(paths.data_root()) else path
        files.atomic_write_json(deleted.folder / ORIGIN, {"version": 1, **_spelled(origin), "deleted_at": deleted_at})
        files.crashpoint("trash.before-move")
        _move(path, deleted.path)
        files.crashpoint("trash.after-move")
    except OSError as error:
        raise wrap(error) from error
    finally:
        if not os.path.lexists(deleted.path):
            shutil.rmtree(deleted.folder, ignore_errors=True)
    return deleted


def deleted_runs() -> Iterator[DeletedRun]:
    """Yield what is in the trash, the last deleted first."""
    found = []
    for origin in paths.trash_dir().glob(f"*/{ORIGIN}"):
        try:
            values = files.read_json(origin)
            run = DeletedRun(origin.parent, paths.data_root() / _read(values), float(values["deleted_at"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if is_time(run.deleted_at) and os.path.lexists(run.path):
            found.append(run)
    yield from sorted(found, key=lambda run: run.deleted_at, reverse=True)


def find(name: str) -> DeletedRun:
    """Return the run of an id that was deleted last, or the one of a name that a person gave it.

    Raises:
        UserError: `run-not-found` when the trash has none, `run-ambiguous` for the name of several.
    """
    found = list(deleted_runs())
    for run in found:
        if run.id == name:
            return run
    if named := called(name, (Run(run.path) for run in found)):
        return next(run for run in found if run.path == named[0].path)
    raise TunesmithError(
        "run-not-found",
        "There is no run named {name!r} in the trash.",
        hint="Run tunesmith trash to list the deleted runs.",
        name=name,
    )


def restore(run: DeletedRun) -> Run:
    """Bring a run back to where it was.

    Raises:
        UserError: `run-exists` when its place is taken.
        EnvironmentProblem: the folder can't be moved.
    """
    if os.path.lexists(run.origin):
        raise TunesmithError("run-exists", "{path} already exists.", path=run.origin)
    try:
        files.private_folder(run.origin.parent)
        _move(run.path, run.origin)
        shutil.rmtree(run.folder)
    except OSError as error:
        raise wrap(error) from error
    return Run(run.origin)


def erase(run: DeletedRun) -> None:
    """Delete a run in the trash for good.

    Raises:
        EnvironmentProblem: a file can't be deleted.
    """
    try:
        # Links inside are removed, never followed.
        shutil.rmtree(run.folder)
    except OSError as error:
        raise wrap(error) from error


def _spelled(path: Path) -> dict[str, str]:
    """Return a path as JSON takes it, even if its name is not valid text."""
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"path_bytes": os.fsencode(text).hex()}
    return {"path": path.as_posix()}


def _read(values: dict[str, str]) -> Path:
    if "path_bytes" in values:
        return Path(os.fsdecode(bytes.fromhex(values["path_bytes"])))
    return Path(values["path"])


def _check_ours(run: Run) -> None:
    """Refuse a folder that isn't surely a run of this data root."""
    if not _same(run.path.parent, paths.runs_dir()):
        raise TunesmithError("run-foreign", "{path} is not in {runs_dir}.", path=run.path, runs_dir=paths.runs_dir())
    if not run.path.is_symlink() and not run.is_proven():
        raise TunesmithError("run-foreign", "{path} has no valid run.json and spec.json.", path=run.path)


def _refuse_what_holds_more(path: Path) -> None:
    """Refuse the data root and whatever it lies in, the home folder and the present one: none can be a run."""
    for inner in (paths.runs_dir(), Path.home(), Path.cwd()):
        if not path.is_symlink() and inner.resolve().is_relative_to(path.resolve()):
            raise TunesmithError("run-foreign", "{path} holds {inner}.", path=path, inner=inner)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _move(source: Path, target: Path) -> None:
    """Rename a folder, or copy it to another disk and delete it only when the copy is whole."""
    try:
        files.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(source, target)
