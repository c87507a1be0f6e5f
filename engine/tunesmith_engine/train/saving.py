"""Saves a run: checkpoints on the way and what it has made at its end, however long the disk takes."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tunesmith_core import files
from tunesmith_core.objectives import FROM_PAIRS, LABELS
from tunesmith_core.preferences import Preferences
from tunesmith_core.report.facts import read
from tunesmith_core.runs import FIRST_SAVED_STEP, Run
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.export.adapter_card import adapter_card
from tunesmith_engine.host import Host
from tunesmith_engine.patience import outlast
from tunesmith_engine.train.assembly import Parts
from tunesmith_engine.train.checkpoint import Checkpoints, Snapshot

if TYPE_CHECKING:
    from tunesmith_engine.train.conductor import Progress

SAVES_PER_RUN = 10


class Saving:
    """Saves one run.

    Attributes:
        step: the newest one that was saved, 0 before the first.
    """

    def __init__(self, host: Host, parts: Parts, checkpoints: Checkpoints, total_steps: int) -> None:
        self._host, self._parts, self._checkpoints = host, parts, checkpoints
        self._total_steps = total_steps
        self._every_steps = parts.spec.saving.every_steps or max(1, total_steps // SAVES_PER_RUN)
        self._saved_s = time.monotonic()
        self.step = 0

    def is_due(self, step: int) -> bool:
        """Return whether a step is to be saved: every so often, but the last one is saved with the run's end."""
        minutes = (time.monotonic() - self._saved_s) / 60
        often = step % self._every_steps == 0 or minutes >= self._parts.spec.saving.every_minutes
        return FIRST_SAVED_STEP < step < self._total_steps and often

    def is_first(self, step: int) -> bool:
        """Return whether this is the step from which on a run can be resumed."""
        return step == FIRST_SAVED_STEP < self._total_steps

    def save(self, snapshot: Snapshot, progress: Progress, fingerprint: dict[str, Any]) -> None:  # Any: JSON values
        """Save a checkpoint and publish it, waiting for the disk where needed. Raises Unsaved when a stop ends that."""
        host, started_s = self._host, time.monotonic()
        snapshot.state["progress"] = asdict(progress)
        folder = outlast(host, lambda: self._checkpoints.save(snapshot, fingerprint))
        self.step, self._saved_s = snapshot.step, time.monotonic()
        host.event(
            "checkpoint",
            step=snapshot.step,
            path=folder.relative_to(host.run.path).as_posix(),
            bytes=files.folder_bytes(folder),
            seconds=round(self._saved_s - started_s, 3),
            kept=self._checkpoints.steps(),
        )

    def publish(self, progress: Progress, data_hash: str) -> dict[str, str]:
        """Put what the run has made in its place and return the result's artifacts. Waits and raises as `save`."""
        parts, run = self._parts, self._host.run
        pairs = parts.spec.objective.kind in FROM_PAIRS | LABELS
        card = adapter_card(
            parts.spec,
            model_folder=parts.folder,
            data_hash=data_hash,
            num_train_rows=len(parts.data.train),
            num_eval_rows=len(parts.data.eval),
            system_prompt=parts.data.system_prompt,
            step=progress.step,
            eval_loss_before=progress.eval_loss_before,
            eval_loss_after=progress.eval_loss,
            preferences=Preferences.of(read(run).pairs) if pairs else None,
        )
        notes = outlast(self._host, lambda: _write(parts, card, run))
        for code, text in notes.items():
            self._host.warning(code, text)
        return {"adapter": run.adapter_path.name}


def _write(parts: Parts, card: str, run: Run) -> dict[str, str]:
    """Write what a run has made, and return what a person should know before they load it."""
    if parts.spec.adapter.kind != FULL:
        return parts.method.save(parts.model, parts.tokenizer, card, run.adapter_path, run.tmp_path)
    # Not imported for an adapter.
    from tunesmith_engine.export.full_model import save_full_model

    return save_full_model(
        parts.model, parts.spec, parts.folder, parts.tokenizer, card, run.model_path, run.tmp_path
    )
