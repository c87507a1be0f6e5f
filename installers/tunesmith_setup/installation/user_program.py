"""Installs and removes a program folder for one person on Linux: files, menu entry, icons, and the command `tunesmith`.

The new version is copied beside the old one, checked against its payload manifest, and only then takes its place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tunesmith_core import files
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_core.messages import Message
from tunesmith_setup.installation import program
from tunesmith_setup.progress import Progress

COMMAND = "tunesmith"
NUM_DAMAGED_SHOWN = 3


def default_folder() -> Path:
    """Return where the program goes when the person names no folder."""
    return Path.home() / ".local" / "opt" / "tunesmith"


def _share() -> Path:
    chosen = os.environ.get("XDG_DATA_HOME")
    return Path(chosen) if chosen else Path.home() / ".local" / "share"


def _command_link() -> Path:
    return Path.home() / ".local" / "bin" / COMMAND


def _desktop_entry() -> Path:
    return _share() / "applications" / "tunesmith.desktop"


def _icons() -> dict[str, Path]:
    """Return where the icons go, by their name in the program folder."""
    folder = _share() / "icons" / "hicolor"
    return {
        "tunesmith.svg": folder / "scalable" / "apps" / "tunesmith.svg",
        "tunesmith.png": folder / "256x256" / "apps" / "tunesmith.png",
    }


def check(folder: Path) -> None:
    """Check a program folder. Raises EnvironmentProblem `environment-build-failed` that names what differs."""
    damaged = program.damaged_files(folder)
    if damaged:
        shown = "; ".join(damaged[:NUM_DAMAGED_SHOWN])
        raise EnvironmentProblem(
            "environment-build-failed",
            "{folder}: program files are damaged ({count}): {shown}.",
            hint="Download the installer again and run it. Your data is kept.",
            folder=folder,
            count=len(damaged),
            shown=shown,
        )


def install(source: Path, folder: Path, progress: Progress) -> None:
    """Install a program folder, in place of an older one.

    Args:
        source: the program folder to copy.
        folder: where it goes; missing, empty or an older program.
        progress: takes what the person sees.

    Raises:
        UserError: `usage` when the folder holds something else.
        EnvironmentProblem: `environment-build-failed` when the source or its copy is damaged.
        OSError: the folder can't be written.
    """
    _refuse_foreign(folder)
    check(source)
    staging, old = folder.with_name(f"{folder.name}.new"), folder.with_name(f"{folder.name}.old")
    for leftover in (staging, old):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        shutil.copytree(source, staging, ignore=shutil.ignore_patterns("__pycache__"))
        check(staging)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    files.crashpoint("program.copied")
    if folder.exists():
        files.replace(folder, old)
    files.crashpoint("program.moved-away")
    files.publish_folder(staging, folder)
    shutil.rmtree(old, ignore_errors=True)
    _integrate(folder, progress)


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder that is not ours to replace."""
    foreign = folder.is_symlink() or (folder.exists() and not folder.is_dir())
    if not foreign and folder.is_dir():
        foreign = any(folder.iterdir()) and not (folder / program.MANIFEST_NAME).is_file()
    if foreign:
        hint = Message("Choose an empty folder, or one that does not exist yet.")
        raise UserError("usage", "{folder} contains something other than Tunesmith.", hint=hint, folder=folder)


def _integrate(folder: Path, progress: Progress) -> None:
    """Write menu entry, icons and the command's link; what another program put there is left alone."""
    link = _command_link()
    for target in (*_icons().values(), _desktop_entry(), link):
        target.parent.mkdir(parents=True, exist_ok=True)
    for name, target in _icons().items():
        shutil.copyfile(folder / name, target)
    entry = (folder / "tunesmith.desktop").read_text(encoding="utf-8")
    files.atomic_write_text(_desktop_entry(), entry.replace("Exec=tunesmith", f"Exec={exec_word(folder / COMMAND)}"))
    if _is_ours(link, folder) or not os.path.lexists(link):
        link.unlink(missing_ok=True)
        link.symlink_to(folder / COMMAND)
        progress.note(Message("Command: {path}", path=link))
    else:
        progress.note(
            Message(
                "{path} belongs to another program and was not changed. Start {command} instead.",
                path=link,
                command=folder / COMMAND,
            )
        )
    if str(link.parent) not in os.environ.get("PATH", "").split(os.pathsep):
        progress.note(
            Message("{folder} is not on the PATH of this terminal. The menu entry works anyway.", folder=link.parent)
        )


def exec_word(path: Path) -> str:
    """Return a path as one quoted word of a desktop entry's Exec line (Desktop Entry Specification, section 7)."""
    quoted = str(path)
    for character in '\\"`$':
        quoted = quoted.replace(character, "\\" + character)
    # The value is a string of the entry first, where a backslash is doubled, and a percent sign starts a field code.
    return '"' + quoted.replace("\\", "\\\\").replace("%", "%%") + '"'


def _is_ours(link: Path, folder: Path) -> bool:
    return link.is_symlink() and link.readlink() == folder / COMMAND


def _written_outside(folder: Path) -> Iterator[Path]:
    """Yield what `_integrate` wrote for this folder and no other."""
    if _is_ours(_command_link(), folder):
        yield _command_link()
    entry = _desktop_entry()
    if entry.is_file() and exec_word(folder / COMMAND) in entry.read_text(encoding="utf-8", errors="replace"):
        yield entry
        yield from (target for target in _icons().values() if target.is_file())


def require_program(folder: Path) -> None:
    """Refuse a folder without a program. Raises UserError `usage`."""
    if not (folder / program.MANIFEST_NAME).is_file():
        hint = Message("If it is in another folder, pass that with --prefix.")
        raise UserError("usage", "Tunesmith is not installed in {folder}.", hint=hint, folder=folder)


def uninstall(folder: Path) -> None:
    """Remove a program that `install` wrote; the data root is not touched.

    Raises:
        UserError: `usage` when the folder holds no Tunesmith.
    """
    require_program(folder)
    for path in _written_outside(folder):
        path.unlink()
    shutil.rmtree(folder)
