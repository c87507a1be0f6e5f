"""The programs of the system that build packages: found or named with the command that installs them, and run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tunesmith_core.environments import scrubbed_environment
from tunesmith_core.errors import EnvironmentProblem

PACKAGES = {"makensis": "nsis", "makeself": "makeself", "dpkg-deb": "dpkg"}
"""Building program, and the Debian package that holds it."""

EPOCH_VARIABLE = "SOURCE_DATE_EPOCH"
TIMEOUT_S = 900


def require(names: list[str]) -> None:
    """Refuse when one of the programs is missing.

    Raises:
        EnvironmentProblem: `system-library-missing` with the command that installs what is missing.
    """
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        raise EnvironmentProblem(
            "system-library-missing",
            f"To build this, these programs are missing: {', '.join(missing)}.",
            hint=f"Run: sudo apt-get install --no-install-recommends {' '.join(PACKAGES[name] for name in missing)}",
        )


def run(command: list[str], folder: Path, source_date_s: int) -> None:
    """Run a building program in a folder, with the date of the sources and nothing of this person's settings.

    Raises:
        EnvironmentProblem: `environment-build-failed` with the end of what the program said.
    """
    environment = scrubbed_environment() | {EPOCH_VARIABLE: str(source_date_s), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem("environment-build-failed", f"{Path(command[0]).name}: {error}.") from error
    if answer.returncode != 0:
        raise EnvironmentProblem(
            "environment-build-failed",
            f"{Path(command[0]).name} ended with exit code {answer.returncode}; its last lines are above.",
            context=answer.stdout.decode("utf-8", errors="replace")[-3000:],
            hint="Correct what it names, then run the same command again.",
        )
