"""Checkpoints: safetensors and JSON, complete or absent, proved by their hashes before anybody is told.

A checkpoint is built in a staging folder, synced, described by a manifest, renamed and read again. The order matters: a
process that dies at any point leaves the earlier checkpoints whole and the new one either whole or invisible.
"""

from __future__ import annotations

import math
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tunesmith_core import files
from tunesmith_core.base_model import BaseModel
from tunesmith_core.checkpoint_manifest import (
    SUFFIX,
    TENSORS,
    VERSION,
    Manifest,
    damage,
    read_manifest,
    sealed,
    shard_name,
    step_of,
)
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.runs import CHECKPOINT_MANIFEST
from tunesmith_core.spec import RunSpec

SPACE_FACTOR = 1.2
SHARD_BYTES = 2 << 30
"""Of tensors that one file holds, and that are copied to the computer's memory at once; one tensor may have more."""

STAGING_PREFIX, TRASH_PREFIX, QUARANTINE_PREFIX = ".staging-", ".trash-", "damaged-"


@dataclass(slots=True)
class Snapshot:
    """Everything that a run needs to go on as if it had never stopped.

    Attributes:
        step: number of finished steps.
        adapter: trained weights by parameter name; of full fine-tuning those of the model itself.
        optimizer: optimizer tensors by "parameter:key".
        random: states of the random generators, uint8 tensors by device.
        state: the rest as JSON values.
    """

    step: int
    adapter: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    random: dict[str, torch.Tensor]
    state: dict[str, Any]  # Any: JSON values

    def tensors(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the tensors by the name of their group."""
        return dict(zip(TENSORS, (self.adapter, self.optimizer, self.random), strict=True))


class Checkpoints:
    """The checkpoint folder of one run.

    Attributes:
        base_model: what the run's adapter belongs to, noted in each checkpoint; None before it is found.
    """

    def __init__(self, folder: Path, keep: int, spec: RunSpec, run: float = 0.0) -> None:
        """Look at nothing yet.

        Args:
            folder: of the checkpoints.
            keep: how many of them.
            spec: of the run.
            run: when it was created, by which its checkpoints are told from those of others; 0 where unknown.
        """
        self.folder = folder
        self.base_model: BaseModel | None = None
        self._keep = keep
        self._spec = spec.to_dict()
        self._run = run

    def save(self, snapshot: Snapshot, fingerprint: dict[str, Any]) -> Path:  # Any: JSON values
        """Write, verify, rotate and return the folder. A sound checkpoint of the same step is kept.

        Raises:
            RunFailure: `nan-loss` when a weight is not finite; nothing is written then.
            EnvironmentProblem: `disk-full` when the space does not suffice.
            OSError: as the file system says; nothing is left behind.
        """
        final = self.folder / f"step-{snapshot.step:06d}"
        self.folder.mkdir(exist_ok=True)
        if final.exists() and damage(final):
            self._quarantine(final)
        if not final.exists():
            self._make(final, snapshot, fingerprint)
        # Also for one that was renamed before the disk failed.
        files.fsync_folder(self.folder)
        self._rotate()
        if self.base_model:
            self.base_model.hash_in_background()
        return final

    def _make(self, final: Path, snapshot: Snapshot, fingerprint: dict[str, Any]) -> None:  # Any: JSON values
        _refuse_nonfinite(snapshot)
        self._sweep()
        self._check_space(snapshot)
        staging = self.folder / f"{STAGING_PREFIX}{final.name}-{uuid.uuid4().hex[:8]}"
        staging.mkdir()
        try:
            self._write(staging, snapshot, fingerprint)
            files.publish_folder(staging, final)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        files.crashpoint("ckpt.after-rename")
        problem = damage(final)
        if problem:
            self._quarantine(final)
            raise TunesmithError(
                "checkpoint-damaged", "{final}: {problem}. It was written a moment ago.", final=final, problem=problem
            )

    def _check_space(self, snapshot: Snapshot) -> None:
        size = sum(t.numel() * t.element_size() for group in snapshot.tensors().values() for t in group.values())
        needed, free = size * SPACE_FACTOR, files.free_bytes(self.folder)
        if free < needed:
            raise TunesmithError(
                "disk-full",
                "{folder}: a checkpoint needs {size:.0f} MiB, but only {free:.0f} MiB are free.",
                # The engine names files from the run's folder; a person has to find the disk.
                folder=self.folder.absolute(),
                size=math.ceil(needed / 2**20),
                free=free // 2**20,
            )

    def _write(self, staging: Path, snapshot: Snapshot, fingerprint: dict[str, Any]) -> None:  # Any: JSON values
        for name, tensors in snapshot.tensors().items():
            shards = _shards(tensors)
            for number, shard in enumerate(shards, 1):
                path = staging / shard_name(name, number, len(shards))
                # Copies, because the 8-bit optimizer's states share one table, which safetensors refuses.
                save_file({key: value.to("cpu", copy=True).contiguous() for key, value in shard.items()}, path)
                files.fsync_file(path)
            files.crashpoint(f"ckpt.after-{name}")
        files.atomic_write_json(staging / "state.json", snapshot.state)
        files.crashpoint("ckpt.after-state")
        manifest = {
            "version": VERSION,
            "step": snapshot.step,
            "created_at": time.time(),
            "run": self._run,
            "base_model": self.base_model.to_dict() if self.base_model else {},
            "spec": self._spec,
            "fingerprint": fingerprint,
            "files": {path.name: _described(path) for path in sorted(staging.iterdir())},
        }
        files.atomic_write_json(staging / CHECKPOINT_MANIFEST, sealed(manifest))
        files.crashpoint("ckpt.after-manifest")

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints that are kept, newest first."""
        return list(map(step_of, self._all()))

    def _rotate(self) -> None:
        """Delete the oldest beyond `keep`. Age is the step number: clocks go wrong."""
        for path in self._all()[self._keep :]:
            # Renamed first, so that a half-deleted checkpoint can't be taken for a damaged one.
            files.replace(path, path.with_name(f"{TRASH_PREFIX}{path.name}-{uuid.uuid4().hex[:8]}"))
            files.crashpoint("ckpt.after-trash")
        self._sweep()
        files.crashpoint("ckpt.after-rotate")

    def _all(self) -> list[Path]:
        """Return the published checkpoints, newest step first."""
        return sorted(self.folder.glob("step-*"), key=step_of, reverse=True)

    def _quarantine(self, path: Path) -> None:
        files.replace(path, path.with_name(f"{QUARANTINE_PREFIX}{path.name}-{uuid.uuid4().hex[:8]}"))

    def recover(self, warn: Callable[[str, str], None]) -> Path | None:
        """Return the newest sound checkpoint, or None when there is none.

        Leftovers of killed writers are removed; damaged checkpoints are renamed, never deleted, and reported.
        """
        if not self.folder.is_dir():
            return None
        self._sweep()
        for path in self._all():
            problem = damage(path) or self._foreignness(path)
            if not problem:
                return path
            self._quarantine(path)
            warn("checkpoint-damaged", Message("{path}: {problem}", path=path.name, problem=problem))
        return None

    def _sweep(self) -> None:
        """Delete what is in the trash, and what killed or failed writers left."""
        for prefix in (STAGING_PREFIX, TRASH_PREFIX):
            for leftover in self.folder.glob(f"{prefix}*"):
                shutil.rmtree(leftover, ignore_errors=True)

    def _foreignness(self, path: Path) -> str:
        run = read_manifest(path).run
        return Message("it was saved by another run") if run and self._run and run != self._run else ""


def load(path: Path) -> tuple[Snapshot, Manifest]:
    """Return a verified checkpoint's snapshot, with tensors on the CPU, and its manifest."""
    manifest = read_manifest(path)
    adapter, optimizer, random = (_load_group(path, group, manifest) for group in TENSORS)
    return Snapshot(manifest.step, adapter, optimizer, random, files.read_json(path / "state.json")), manifest


def _load_group(path: Path, group: str, manifest: Manifest) -> dict[str, torch.Tensor]:
    names = [name for name in manifest.entries if name.startswith((f"{group}-", f"{group}{SUFFIX}"))]
    return {key: value for name in names for key, value in load_file(path / name).items()}


def _shards(tensors: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Divide tensors in their order into files of SHARD_BYTES at most; a single larger one has a file of its own."""
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for key, value in tensors.items():
        num_bytes = value.numel() * value.element_size()
        if shards[-1] and size + num_bytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][key] = value
        size += num_bytes
    return shards


def random_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the states of PyTorch's random generators."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: dict[str, torch.Tensor], device: torch.device) -> None:
    """Put the random generators back to saved states."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def _described(path: Path) -> dict[str, Any]:  # Any: JSON values
    return {"bytes": path.stat().st_size, "sha256": files.sha256_file(path)}


def _refuse_nonfinite(snapshot: Snapshot) -> None:
    for name, tensor in snapshot.adapter.items():
        if not bool(torch.isfinite(tensor).all()):
            raise TunesmithError(
                "nan-loss",
                "After step {step} the weight {name} is NaN or infinite. It was not saved.",
                step=snapshot.step,
                name=name,
            )
