"""The program folder and its payload manifest: which files belong to it, with their SHA-256.

Layout, the same in every package: `app` (our packages and the locks, start scripts included), `tools` (uv), on Windows
`python` (a whole CPython), and `payload.json`, the manifest, which every installer checks before it uses the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunesmith_core import files

MANIFEST_NAME = "payload.json"


def program_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a program folder in a fixed order, without its manifest and Python's caches of bytecode."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path != folder / MANIFEST_NAME:
            yield path


def write_manifest(folder: Path, version: str) -> None:
    """Write the manifest of a complete program folder."""
    digests = {path.relative_to(folder).as_posix(): files.sha256_file(path) for path in program_files(folder)}
    files.atomic_write_json(folder / MANIFEST_NAME, {"version": version, "files": digests})


def damaged_files(folder: Path) -> list[str]:
    """Return what differs from the manifest: "missing", "changed" or "foreign", a colon and the file's name.

    Returns:
        One text per file in the order of their names; empty when all is as it was packed.
    """
    try:
        manifest: dict[str, Any] = files.read_json(folder / MANIFEST_NAME)
        expected: dict[str, str] = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return [f"missing: {MANIFEST_NAME}"]
    found = {path.relative_to(folder).as_posix(): path for path in program_files(folder)}
    faults = dict.fromkeys(expected.keys() - found.keys(), "missing")
    faults |= dict.fromkeys(found.keys() - expected.keys(), "foreign")
    for name in expected.keys() & found.keys():
        if files.sha256_file(found[name]) != expected[name]:
            faults[name] = "changed"
    return [f"{faults[name]}: {name}" for name in sorted(faults)]
