"""Run folders with a journal of tests/data/events, and the words that a page shows."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QPushButton, QWidget

from tests.run_adapter import make_adapter
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.widgets.safe_label import SafeLabel

EVENTS = Path(__file__).parents[1] / "data" / "events"


def make_run(name: str, stream: str = "", **schedule: int) -> Run:
    spec = RunSpec(name=name)
    spec.model.path, spec.data.sources[0].path = "/models/Tiny", "/data/chats.jsonl"
    for key, value in schedule.items():
        setattr(spec.schedule, key, value)
    run = create_run(spec)
    if stream:
        run.journal_path.write_bytes((EVENTS / f"{stream}.jsonl").read_bytes())
        make_adapter(run.adapter_path)
    return run


def texts(widget: QWidget) -> str:
    labels = [label.text() for label in widget.findChildren(SafeLabel) if not label.isHidden()]
    return "\n".join(labels + [each.text() for each in widget.findChildren(QPushButton) if not each.isHidden()])
