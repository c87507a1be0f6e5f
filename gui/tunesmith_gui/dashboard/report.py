"""What goes out of a run's page: the report, the diagnostics text and the command that does the same."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Literal, NamedTuple

from tunesmith_core.files import open_file
from tunesmith_core.plain_text import pasted, visible
from tunesmith_core.redact import redact
from tunesmith_core.report.page import write
from tunesmith_core.runs import Run
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.models.log_lines import MAX_LINES

LOG_LINES = 200
OUTPUT_TAIL_BYTES = 16_384
OUTPUT_VIEW_BYTES = 1 << 18
OUTPUT_LINE_CHARS = 2000


def read_tail(path: Path, num_bytes: int = OUTPUT_TAIL_BYTES) -> str:
    """The end of a text file, "" when there is none; bytes that are no UTF-8 are replaced."""
    try:
        with open_file(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - num_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


class EngineOutput(NamedTuple):
    """Lines of engine.log; `extent` says whether they are all of it, its end, or none."""

    text: str
    extent: Literal["all", "end", "none"]


def engine_output(folder: Path) -> EngineOutput:
    """The newest lines of what the engine and its libraries wrote, long lines cut."""
    text = read_tail(folder / "engine.log", OUTPUT_VIEW_BYTES)
    if not text:
        return EngineOutput("", "none")
    lines = text.splitlines()
    cut = len(lines) > MAX_LINES or len(text.encode()) >= OUTPUT_VIEW_BYTES
    # The first line of a tail is the rest of a line.
    shown = lines[1:][-MAX_LINES:] if cut else lines
    return EngineOutput("\n".join(line[:OUTPUT_LINE_CHARS] for line in shown), "end" if cut else "all")


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
    return visible(redact("\n\n".join(f"== {title}\n{text}" for title, text in parts))) + "\n"


def command_line(folder: Path) -> str:
    """The command that starts a run of the same spec."""
    return pasted(["tunesmith", "train", str(folder / "spec.json")])


def written_report(folder: Path) -> Path:
    """Write the report of a run into its folder and return where it is."""
    run = Run(folder)
    write(run, run.report_path)
    return run.report_path
