"""Damages environments at random, the way disks, virus scanners, other tools and people do."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from tunesmith_core.environments import environment_python
from tunesmith_setup import inventory

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


def damage_file(folder: Path, kind: str, chance: random.Random, max_bytes: int = 2**40) -> str:
    """Damage one random file of an environment and return its path; empty files are only deleted."""
    names = sorted(name for name, entry in inventory.scan(folder).items() if not entry.is_link)
    while True:
        name = chance.choice(names)
        num_bytes = (folder / name).stat().st_size
        if num_bytes <= max_bytes and (num_bytes or kind == "delete"):
            FILE_DAMAGES[kind](folder / name, chance)
            return name


def remove_interpreter(folder: Path) -> str:
    """Remove the environment's link to its Python."""
    environment_python(folder).unlink()
    return "interpreter gone"


def dangle_interpreter(folder: Path) -> str:
    """Let the environment's link point to a Python that was uninstalled."""
    python = environment_python(folder)
    python.unlink()
    python.symlink_to("/nowhere/bin/python3")
    return "interpreter elsewhere"


def stray_path_file(folder: Path) -> str:
    """Leave a file that Python runs at every start."""
    (inventory.site_folders(folder)[0] / "zz-foreign.pth").write_text("import this_module_does_not_exist\n")
    return "stray .pth"


def foreign_torch(folder: Path) -> str:
    """Install another build of PyTorch over the locked one, as `pip install torch` does."""
    site = inventory.site_folders(folder)[0]
    info = next(site.glob("torch-*.dist-info"))
    (site / "torch" / "version.py").write_text(FOREIGN_VERSION)
    (site / "torch" / "foreign.py").write_text("x = 1\n")
    info.rename(site / "torch-2.6.0+cpu.dist-info")
    return "wrong torch build"
