"""The report of a run as a PDF: its page, printed by the window's libraries in a process of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tunesmith_core import environments, files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.outcome import Verdict
from tunesmith_core.report import page
from tunesmith_core.runs import Run

PRINTER = "tunesmith_gui.report_pdf"
SUFFIX = ".pdf"


def write_pdf(run: Run, target: Path) -> Verdict:
    """Write the report of a run as a page in its folder and as a PDF, and return what it says on top.

    Raises:
        EnvironmentProblem: `environment-missing` without the window's libraries.
        UserError: when the run's settings can't be read.
        OSError: when a file can't be written.
    """
    verdict = page.write(run, run.report_path)
    printed = run.report_path.with_suffix(SUFFIX)
    command = environments.module_command(environments.window_python(), PRINTER, str(run.report_path), str(printed))
    # Printing needs no screen.
    screenless = {} if os.name == "nt" else {"QT_QPA_PLATFORM": "offscreen"}
    code = subprocess.call(command, env=os.environ | screenless)
    if code:
        raise TunesmithError("bug", "The report could not be printed (exit code {code}).", code=code)
    if target != printed:
        files.atomic_write_bytes(target, printed.read_bytes())
    return verdict
