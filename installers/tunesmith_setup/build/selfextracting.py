"""The self-extracting archive for any Linux: unpacks a program folder, which then installs itself for this person."""

from __future__ import annotations

import shutil
from pathlib import Path

from tunesmith_setup.build import payload, tools


def build(folder: Path, staging: Path, output: Path, version: str, source_date_s: int) -> Path:
    """Build the archive; arguments as in `debian.build`.

    Raises:
        EnvironmentProblem: `environment-build-failed`.
    """
    content, name = staging / "Tunesmith", f"Tunesmith-{version}.run"
    shutil.copytree(folder, content)
    payload.normalise(content, source_date_s)
    shutil.copyfile(payload.LINUX / "run-help.txt", staging / "help.txt")
    archive = f"--mtime=@{source_date_s} --owner=0 --group=0 --numeric-owner"
    # "9n": gzip would store the time of a file that makeself makes.
    options = ["--nox11", "--gzip", "--complevel", "9n", "--sha256", "--nomd5", "--nocrc", "--tar-quietly"]
    options += ["--help-header", "help.txt", "--packaging-date", f"@{source_date_s}", "--tar-extra", archive]
    # Relative names only: makeself writes its own command line into the archive.
    command = ["makeself", *options, content.name, name, f"Tunesmith {version}", "./tunesmith", "program"]
    tools.run(command, staging, source_date_s)
    return Path(shutil.move(staging / name, output / name))
