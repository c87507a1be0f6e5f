"""Models whose layers share weights: an adapter that changes these in each layer in its own way can't be merged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tunesmith_core.model_config import language_part
from tunesmith_core.model_folder import MOST_CONFIG_BYTES
from tunesmith_core.model_json import read_object

_TYPES = frozenset({"zamba", "zamba2"})
_SHARED = re.compile(r"\.layers\.\d+\.(shared_transf(?:ormer)?\..+)")


def type_without_merged(folder: Path, adapted: Iterable[str]) -> str:
    """Return the type of a model that can't hold an adapter in its weights, "" where it may.

    Args:
        folder: of the base model.
        adapted: names of the adapter's tensors.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
    """
    config = language_part(read_object(folder / "config.json", MOST_CONFIG_BYTES))
    kind = str(config.get("model_type") or "")
    if kind not in _TYPES:
        return ""
    blocks = config.get("num_mem_blocks") if kind == "zamba2" else 1
    num_blocks = blocks if isinstance(blocks, int) else 1
    layers = Counter(found[1] for name in adapted if (found := _SHARED.search(name)))
    # Of more layers than there are blocks, two are the same block.
    return kind if max(layers.values(), default=0) > num_blocks else ""
