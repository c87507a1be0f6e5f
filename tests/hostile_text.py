"""Text as an attacker, or an accident, puts it into names, errors, samples and log lines, and a run full of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.run_mutations import line_of
from tests.tiny_run import make_tiny_run
from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec

HOSTILE = {
    "bold": "<b>x</b>",
    "image": '<img src="file:///etc/hostname"><img src="//host/share/x.png">',
    "document": '<!DOCTYPE html><html><body style="font-size:99pt"><h1>x</h1><a href="file:///">x</a>',
    "entity": "&amp; &lt;b&gt; &#60;",
    "shortcut": "&x && &",
    "places": "%1 %2 %n {0} {run} %s [*]",
    "title": "\x1b]0;x\x07\x1b[2J\x1b[31m",
    "eight bits": "\x9b31m\x9d0;x\x9c",
    "overwrites": "fine\rerror\b\b\b\x7f",
    "backwards": "\u202egnp.exe\u2066\u200f",
    "lines": "x\n" * 300,
    "nothing": "a\x00b",
    "half a letter": "a\ud800b",
    "endless": "x" * 70_000,
    "endless Chinese": "训练" * 35_000,
    "words": "lorem ipsum " * 6000,
}

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no terminal may get: everything that steers it, but newlines."""

_KEPT = {"type", "status", "code", "kind", "protocol", "mode", "version"}
"""Fields that decide what an event or a spec is."""


def make_hostile_run(path: Path, text: str) -> Run:
    """Write a failed run with a text in every field that may hold one."""
    run = make_tiny_run(path)
    spec = json.loads(run.spec_path.read_text())
    for holder, key in list(_texts(spec)):
        before, holder[key] = holder[key], text
        try:
            RunSpec.from_dict(spec)
        except TunesmithError:
            holder[key] = before
    run.spec_path.write_text(json.dumps(spec))
    lines = []
    for line in run.journal_path.read_bytes().splitlines():
        event = json.loads(line)
        event.pop("crc")
        if event["type"] == "result":
            event["status"] = "failed"
        for holder, key in list(_texts(event)):
            holder[key] = text
        if event["type"] == "phase" and event["name"] == text and len(lines) > 3:
            event["name"] = "training"
        lines.append(line_of(json.dumps(event)))
    run.journal_path.write_bytes(b"".join(lines))
    for name in ("engine.log", "supervisor.log"):
        (run.path / name).write_bytes(text.encode("utf-8", "surrogatepass") * 3)
    files.atomic_write_bytes(run.path / "checkpoints" / "note.txt", b"")
    return run


def _texts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the holder and key of every text in JSON values."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, str) and key not in _KEPT:
            yield value, key
        elif isinstance(each, (dict, list)):
            yield from _texts(each)
