"""Damages environments at random, the way disks, virus scanners, other tools and people do."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from tunesmith_core.environments import environment_python
from tunesmith_setup.packages import inventory

FOREIGN_VERSION = "__version__ = '2.6.0+cpu'\ncuda = None\n"


def delete(path: Path, _random: random.Random) -> None:
    """Remove a file."""
    path.unlink()


def truncate(path: Path, chance: random.Random) -> None:
    """Cut a file short somewhere."""
    os.truncate(path, chance.randrange(path.stat().st_size))


def flip(path: Path, chance: random.Random) -> None:
    """Turn the bits of one byte and keep size and time, as a decaying disk does."""
    status = path.stat()
    with path.open("r+b") as file:
        place = chance.randrange(status.st_size)
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1 << chance.randrange(8)]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def zero(path: Path, chance: random.Random) -> None:
    """Fill a file with zeros and keep its size, as a power cut does; where it is zeros already, cut it off."""
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)) if content.strip(b"\0") else b"")
    del chance


FILE_DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "delete": delete,
    "truncate": truncate,
    "flip": flip,
    "zero": zero,
}


def damageable(folder: Path, max_bytes: int = 2**40) -> list[str]:
    """Return the files of an environment in a fixed order, without its list and manifest, which are damaged apart."""
    found = inventory.scan(folder)
    names = [name for name, entry in found.items() if not entry.is_link and (entry.size or 0) <= max_bytes]
    return sorted(set(names) - inventory.NOT_LISTED)


def damage_files(folder: Path, count: int, chance: random.Random, max_bytes: int = 2**40) -> dict[str, str]:
    """Damage random files of an environment, each kind in turn; return the kind by path. Empty files are deleted."""
    kinds = sorted(FILE_DAMAGES)
    done = {}
    for number, name in enumerate(chance.sample(damageable(folder, max_bytes), count)):
        kind = kinds[number % len(kinds)] if (folder / name).stat().st_size else "delete"
        FILE_DAMAGES[kind](folder / name, chance)
        done[name] = kind
    return done


def remove_interpreter(folder: Path) -> str:
    """Remove the environment's link to its Python; return its path in the environment."""
    python = environment_python(folder)
    python.unlink()
    return python.relative_to(folder).as_posix()


def dangle_interpreter(folder: Path) -> str:
    """Let the environment's link point to a Python that was uninstalled; return its path in the environment."""
    name = remove_interpreter(folder)
    (folder / name).symlink_to("/nowhere/bin/python3")
    return name


def stray_path_file(folder: Path) -> str:
    """Leave a file that Python runs at every start."""
    path = inventory.site_folders(folder)[0] / "zz-foreign.pth"
    path.write_text("import this_module_does_not_exist\n")
    return path.relative_to(folder).as_posix()


def foreign_torch(folder: Path) -> str:
    """Install another build of PyTorch over the locked one, as `pip install torch` does; return a changed path."""
    site = inventory.site_folders(folder)[0]
    (site / "torch" / "version.py").write_text(FOREIGN_VERSION)
    (site / "torch" / "foreign.py").write_text("x = 1\n")
    next(site.glob("torch-*.dist-info")).rename(site / "torch-2.6.0+cpu.dist-info")
    return (site / "torch" / "version.py").relative_to(folder).as_posix()


OTHER_DAMAGES = (remove_interpreter, dangle_interpreter, stray_path_file, foreign_torch)
