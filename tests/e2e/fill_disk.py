"""Trains on a small disk that fills up in the middle: usage in `test_full_disk.py`, which gives it a disk."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from tests.real_runs import point_at_training_environment
from tests.tiny_model import write_chats
from tunesmith_core import launch
from tunesmith_core.checkpoint_manifest import damage
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.spec import RunSpec

FULL_S = 1.0
"""How long the disk stays full once it was noticed from outside that the run is silent."""


class Filler:
    """Fills the disk once a run has reached a step, and frees it once somebody says that the run is paused."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / "filler"
        self.step = step
        self.filled_at = 0
        self.told: list[str] = []

    def see(self, event: Event) -> None:
        """Take an event of the run."""
        if event.type == "step" and event.data["step"] >= self.step and not self.filled_at:
            self.filled_at = event.data["step"]
            self._fill()
        if event.type == "phase" and event.data["name"] == "paused":
            self.told.append(event.data["message"])
            if len(self.told) == 1:
                threading.Timer(FULL_S, self.path.unlink).start()

    def _fill(self) -> None:
        with self.path.open("wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(b"x" * size)
                except OSError:
                    size //= 2


def main(disk: str, model: str) -> int:
    """Train and report as JSON."""
    home = Path(disk) / "home"
    home.mkdir()
    point_at_training_environment(home)
    os.environ["TUNESMITH_HOME"] = str(home)
    spec = RunSpec()
    spec.model.path, spec.data.sources[0].path = model, str(write_chats(home / "chats.jsonl", 64))
    spec.hardware.devices, spec.hardware.cpu_threads = ["cpu"], 1
    spec.schedule.max_steps, spec.saving.every_steps, spec.evaluation.percent = 600, 50, 0.0
    run = launch.start(spec)
    filler = Filler(Path(disk), 70)
    status = launch.wait(run, filler.see)
    journal = read_journal(run.journal_path)
    report = {
        "state": status.state,
        "filled_at": filler.filled_at,
        "told": filler.told,
        "steps": [event.data["step"] for event in journal if event.type == "step"],
        "in_order": [event.seq for event in journal] == sorted({event.seq for event in journal}),
        "checkpoints": [event.data["step"] for event in journal if event.type == "checkpoint"],
        "damaged": [path.name for path in run.checkpoints_path.iterdir() if damage(path)],
        "adapter": sorted(path.name for path in run.adapter_path.iterdir()),
        "errors": [event.data for event in journal if event.type in ("error", "warning")],
        "supervised": run.is_supervised(),
        "seconds": time.time() - journal[0].t,
    }
    sys.stdout.write(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
