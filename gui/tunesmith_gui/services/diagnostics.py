"""The report a person can copy when something went wrong: redacted, and shown before it is copied."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path

from PySide6.QtCore import qVersion

from tunesmith_core import __version__, paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.plain_text import visible
from tunesmith_core.protocol import PROTOCOL
from tunesmith_core.redact import redact
from tunesmith_core.settings import Settings
from tunesmith_gui.services.hardware import Reading

MAX_LOG_LINES = 200


def report(
    settings: Settings, reading: Reading | None, *, error: TunesmithError | None = None, details: str = ""
) -> str:
    """The whole report as text, without tokens, e-mail addresses, user names and home paths.

    Args:
        settings: those that differ from the defaults are listed.
        reading: the last hardware reading, if there was one.
        error: what went wrong.
        details: what the page adds, such as a run's spec and the end of its log.
    """
    parts = [_versions(), _hardware(reading), _settings(settings)]
    if error is not None:
        parts.append(f"error: {error.code}\n{error.title}\n{error.message}\n{error.context or ''}".rstrip())
    if details:
        parts.append(details)
    parts.append(tail(paths.logs_dir() / "window.log"))
    return visible(redact("\n\n".join(part for part in parts if part))) + "\n"


def tail(path: Path, num_lines: int = MAX_LOG_LINES) -> str:
    """The last lines of a log under its name, empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - num_lines * 400, 0))
            lines = file.read().decode("utf-8", errors="replace").splitlines()[-num_lines:]
    except OSError:
        return ""
    return "\n".join([f"{path.name}:", *lines])


def _versions() -> str:
    return "\n".join(
        [
            f"Tunesmith {__version__}, protocol {PROTOCOL}",
            f"Python {platform.python_version()}, Qt {qVersion()}",
            f"{platform.system()} {platform.release()} {platform.machine()}",
        ]
    )


def _hardware(reading: Reading | None) -> str:
    if reading is None:
        return "hardware: not read yet"
    lines = [f"memory {reading.memory_used_bytes / 2**30:.1f} / {reading.memory_total_bytes / 2**30:.1f} GiB"]
    lines += [
        f"GPU {gpu.index}: {gpu.name}, {gpu.used_bytes / 2**30:.1f} / {gpu.total_bytes / 2**30:.1f} GiB"
        for gpu in reading.gpus
    ]
    return "\n".join(lines if reading.gpus else [*lines, "no NVIDIA GPU"])


def _settings(settings: Settings) -> str:
    default = dataclasses.asdict(Settings())
    changed = {name: value for name, value in dataclasses.asdict(settings).items() if value != default[name]}
    return f"settings: {json.dumps(changed)}"
