"""What is copied out of a run's page: the diagnostics text and the command that does the same."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from pathlib import Path

from tunesmith_core.redact import redact
from tunesmith_gui.viewmodels.dashboard import DashboardModel

LOG_LINES = 200
OUTPUT_TAIL_BYTES = 16_384


def read_tail(path: Path, num_bytes: int = OUTPUT_TAIL_BYTES) -> str:
    """The end of a text file, "" when there is none; bytes that are no UTF-8 are replaced."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - num_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def diagnostics(model: DashboardModel, folder: Path) -> str:
    """State, error, spec, log and engine output of a run, with secrets and personal names taken out."""
    status = model.status
    spec = read_tail(folder / "spec.json", 1 << 20)
    log = "\n".join(line.format() for line in list(model.log.matching())[-LOG_LINES:])
    parts = (
        ("Run", f"{folder.name}: {status.state.value}, step {status.step} of {status.total_steps}"),
        ("Machine", f"{platform.platform()}, {status.device_name or 'unknown device'}"),
        ("Error", json.dumps(status.error, indent=1, ensure_ascii=False) if status.error else "none"),
        ("Set-up", json.dumps(model.setup, ensure_ascii=False)),
        ("Spec", spec.strip()),
        ("Log", log),
        ("Engine output", read_tail(folder / "engine.log").strip()),
    )
    return redact("\n\n".join(f"== {title}\n{text}" for title, text in parts)) + "\n"


def command_line(folder: Path) -> str:
    """The command that starts a run of the same spec."""
    arguments = ["tunesmith", "train", str(folder / "spec.json")]
    return subprocess.list2cmdline(arguments) if os.name == "nt" else shlex.join(arguments)
