"""Log-probabilities of the reference, computed once before the first step and kept in the run's folder.

With them a step needs no pass of the reference. A resumed run reads them, so it continues to the bit. Another run of
the same rows finds them by their key in `reference_cache`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunesmith_core import files
from tunesmith_engine.data import Example, PreparedData
from tunesmith_engine.train import reference_cache
from tunesmith_engine.train.loss_paths import LossPath

NAME = "reference.f32"
"""The log-probabilities of the trained tokens of all rows, one behind the other, little-endian float32."""
KEY = "reference.json"
"""Hashes of the rows, and of what NAME holds for them."""

Floats = NDArray[np.float32]


def keep_reference(
    folder: Path, data: PreparedData, path: LossPath, tell: Callable[[int, int], bool], model_key: str = ""
) -> bool:
    """Give every row its log-probabilities by the reference: those that the folder or the cache holds, else new ones.

    Args:
        folder: of the run.
        data: its rows, which are replaced by such with a reference.
        path: computes them.
        tell: told how many of how many rows are done; returns True to end here.
        model_key: names the reference and what rounds its numbers, "" where nothing is shared with other runs.

    Returns:
        False when it was ended.
    """
    rows = [*data.train, *data.eval]
    key = reference_cache.key_of(model_key, data.hashes()) if model_key else ""
    found = _kept(folder, data)
    if found is None and (shared := reference_cache.fetch(key, sum(map(_num_kept, rows)))) is not None:
        found = shared
        _write(folder, data, found)
    if found is None:
        computed: dict[int, Floats] = {}
        with torch.no_grad():
            for portion in path.portions(rows):
                if tell(len(computed), len(rows)):
                    return False
                values = path.reference(portion).float().cpu().numpy()
                parts = np.split(values, np.cumsum([_num_kept(row) for row in portion])[:-1])
                computed |= {id(row): part for row, part in zip(portion, parts, strict=True)}
        found = np.concatenate([computed[id(row)] for row in rows])
        reference_cache.keep(key, _write(folder, data, found))
    ends = np.cumsum([_num_kept(row) for row in rows]).tolist()
    with_reference = [
        _with_reference(row, found[end - _num_kept(row) : end]) for row, end in zip(rows, ends, strict=True)
    ]
    num = len(data.train)
    data.train[:], data.eval[:] = with_reference[:num], with_reference[num:]
    return True


def _write(folder: Path, data: PreparedData, found: Floats) -> bytes:
    content = np.asarray(found, "<f4").tobytes()
    files.atomic_write_bytes(folder / NAME, content)
    files.atomic_write_json(folder / KEY, _key(data, content))
    return content


def _num_kept(row: Example) -> int:
    return sum(sequence.num_trained_tokens for sequence in row.sequences)


def _with_reference(row: Example, values: Floats) -> Example:
    own = row.num_trained_tokens
    rejected = replace(row.rejected, reference=values[own:]) if row.rejected else None
    return replace(row, reference=values[:own], rejected=rejected)


def _key(data: PreparedData, content: bytes) -> dict[str, Any]:  # Any: JSON values
    return {**data.hashes(), "sha256": hashlib.sha256(content).hexdigest()}


def _kept(folder: Path, data: PreparedData) -> Floats | None:
    """Return what the folder holds for these rows, None for nothing whole."""
    try:
        content = (folder / NAME).read_bytes()
        if files.read_json(folder / KEY) != _key(data, content):
            return None
    except (OSError, ValueError):
        return None
    return np.asarray(np.frombuffer(content, "<f4"), np.float32).copy()
