"""The Windows installer: NSIS with a 64-bit stub, per person and without elevation."""

from __future__ import annotations

import shutil
from pathlib import Path

from tunesmith_core import files
from tunesmith_setup.build import payload, tools
from tunesmith_setup.build.sources import REPOSITORY

RECIPES = REPOSITORY / "installers" / "windows"
LIST_NAME = "files.nsh"
MAX_PATH_LENGTH = 259
"""Of Windows, without the end of the text (MAX_PATH)."""

BYTECODE_LENGTH = len("__pycache__\\") + len("cpython-311.opt-1.pyc")
"""What the name of a module's bytecode has more than the module's own."""


def file_list(folder: Path) -> str:
    """Return the NSIS lines that unpack a program folder into $Staging, in an order that no file system decides."""
    lines, current = [], None
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        parent = path.parent.relative_to(folder)
        if parent != current:
            current = parent
            target = "$Staging" if parent == Path() else "$Staging\\" + _escaped("\\".join(parent.parts))
            lines.append(f'SetOutPath "{target}"')
        lines.append(f'File "{_escaped(str(path))}"')
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def longest_folder_length(folder: Path) -> int:
    """Return how long the path of the chosen folder may be, in characters, for everything in it to be reachable."""
    longest = max(len(str(path.relative_to(folder))) for path in folder.rglob("*"))
    return MAX_PATH_LENGTH - len("\\program.new\\") - longest - BYTECODE_LENGTH


def build(folder: Path, staging: Path, output: Path, version: str, source_date_s: int) -> Path:
    """Build the installer; arguments as in `debian.build`. With a folder `python` in it, that Python is bundled.

    Raises:
        EnvironmentProblem: `environment-build-failed`.
    """
    staging.mkdir()
    payload.normalise(folder, source_date_s)
    # The mark tells NSIS that the text is UTF-8.
    (staging / LIST_NAME).write_text(file_list(folder), encoding="utf-8-sig")
    for recipe in RECIPES.iterdir():
        shutil.copy(recipe, staging)
    values = {
        "VERSION": version,
        "SIZE_KIB": str(files.folder_bytes(folder) // 1024),
        "MAX_FOLDER_LENGTH": str(longest_folder_length(folder)),
        "ICON": str(folder / "tunesmith.ico"),
        "LICENCE": str(folder / "LICENSE.txt"),
    }
    if (folder / "python").is_dir():
        values["BUNDLED_PYTHON"] = "1"
    defines = [f"-D{name}={value}" for name, value in values.items()]
    tools.run(["makensis", "-V2", "-INPUTCHARSET", "UTF8", *defines, "tunesmith.nsi"], staging, source_date_s)
    return Path(shutil.move(staging / "Tunesmith-Setup.exe", output / "Tunesmith-Setup.exe"))
