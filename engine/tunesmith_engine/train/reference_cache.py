"""Kept references of all runs: what a model finds likely is the same for every run of the same rows.

An entry is a file named by a hash of all that decides its numbers. It begins with the hash of its own content, so a
damaged one is never taken. The least recently used ones go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from tunesmith_core import files, paths
from tunesmith_core.locks import FileLock
from tunesmith_core.spec import RunSpec, continues
from tunesmith_engine.device import Compute

VERSION = 1
"""Of what is kept; another one takes nothing of before."""

MOST_BYTES = 2 << 30
"""Of all entries: half a billion trained tokens."""

LEAST_FREE_BYTES = 4 << 30
"""With less free space nothing is kept."""

ENDING = ".f32"
HASH_BYTES = hashlib.sha256().digest_size


def model_key(spec: RunSpec, compute: Compute, path_name: str, base_notes: Mapping[str, str]) -> str:
    """Return a digest of the reference of a run, and of what rounds its numbers.

    Args:
        spec: the run, its adapters in its own folder.
        compute: its device.
        path_name: "fused" or "plain".
        base_notes: digests of the base model's files, by their names.
    """
    reference = spec.objective.reference_adapter or (spec.adapter.start_from if continues(spec) else "")
    adapter = (Path(reference) / name for name in ("adapter_config.json", "adapter_model.safetensors"))
    decides = [
        *(VERSION, torch.__version__, transformers.__version__),
        *(compute.name, compute.dtype_name, compute.num_threads, path_name),
        *(spec.quantization.kind, spec.hardware.fp8_weights),
        dict(sorted(base_notes.items())),
        spec.model.new_tokens,
        [files.sha256_file(each) for each in adapter] if reference else [],
        # The scale of the trained adapter is part of the reference's rounding.
        [spec.adapter.rank, spec.adapter.alpha, spec.adapter.rslora] if spec.objective.reference_adapter else [],
    ]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def key_of(model: str, rows: Mapping[str, str]) -> str:
    """Return the name of an entry.

    Args:
        model: from `model_key`.
        rows: digests of the rows.
    """
    return hashlib.sha256(json.dumps([model, dict(sorted(rows.items()))]).encode()).hexdigest()


def fetch(key: str, num_values: int) -> NDArray[np.float32] | None:
    """Return the values of an entry, None where there is none of that many, or a damaged one; "" names none."""
    path = _folder() / f"{key}{ENDING}"
    try:
        held = path.read_bytes() if key else b""
        content = held[HASH_BYTES:]
        if len(content) != 4 * num_values or hashlib.sha256(content).digest() != held[:HASH_BYTES]:
            return None
        os.utime(path)
    except OSError:
        return None
    return np.asarray(np.frombuffer(content, "<f4"), np.float32).copy()


def keep(key: str, content: bytes) -> None:
    """Keep the values of an entry, little-endian float32; where that is impossible, nothing happens."""
    size = HASH_BYTES + len(content)
    with contextlib.suppress(OSError, TimeoutError):
        if not key or size > MOST_BYTES or files.free_bytes(paths.cache_dir()) < size + LEAST_FREE_BYTES:
            return
        files.private_folder(_folder())
        with FileLock(paths.locks_dir() / "reference-cache.lock").waiting(1.0):
            _make_room(MOST_BYTES - size)
            files.atomic_write_bytes(_folder() / f"{key}{ENDING}", hashlib.sha256(content).digest() + content)


def _folder() -> Path:
    return paths.cache_dir() / "references"


def _make_room(most_bytes: int) -> None:
    """Remove what was not used for longest, until the rest has no more than so many bytes."""
    entries = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in _folder().iterdir())
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total > most_bytes:
            path.unlink(missing_ok=True)
            total -= size
