"""A table of all types that transformers calls causal language models: what of each trains, fused, and how exactly.

python -m tests.engine.causal_table [TYPES] writes a line for each type as it is known, then the sums, in Markdown.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.engine import causal_types
from tests.engine.test_causal_types import NOT_MADE_SMALL, TOLERANCE, Trained, by_transformers, rows, spec_of
from tests.tiny_model import build_tiny_model
from tunesmith_core.errors import UserError
from tunesmith_engine.shapes import LayerShape, MlpShape, ModelShape, SparseShape, Unfused

WHOLE, ATTENTION, MLP, NORMS, HEAD = "whole", "attention + norms", "norms + MLP + head", "norms + head", "head"
PLAIN, REFUSED, NOT_MADE, BUG, DISAGREES = "plain PyTorch", "refused", "not made small", "bug", "disagrees"
FUSED = (WHOLE, ATTENTION, MLP, NORMS, HEAD)
"""From most to least; a model is called after its least layer."""


def parts_of(shape: ModelShape) -> str:
    """Return which parts of a model's layers run fused."""
    return max((_parts_of_layer(layer) for layer in shape.layers), key=FUSED.index)


def _parts_of_layer(layer: Any) -> str:  # Any: either kind of layer
    if not isinstance(layer, LayerShape):
        return HEAD
    has_mlp = layer.mlp is None or isinstance(layer.mlp, MlpShape | SparseShape)
    if isinstance(layer.attention, Unfused):
        return MLP if has_mlp and layer.mlp else NORMS
    return WHOLE if has_mlp else ATTENTION


def line_of(kind: str, folder: Path, tokenizer: Path) -> tuple[str, str, str]:
    """Return what becomes of a type, how far its losses are from an independent loop's, and why not more is fused."""
    try:
        causal_types.write_model(kind, folder, tokenizer)
    except Exception as error:
        return NOT_MADE, "", _short(error)
    data, spec = rows(), spec_of(folder)
    try:
        ours = Trained(spec, data)
    except UserError as error:
        return REFUSED, "", _short(error)
    except Exception as error:
        return NOT_MADE if kind in NOT_MADE_SMALL else BUG, "", f"{type(error).__name__}: {_short(error)}"
    theirs = by_transformers(spec, ours, data)
    worst = max(abs(our - their) / abs(their) for our, their in zip(ours.losses, theirs, strict=True))
    found = ours.path._fused.assembly.shape if ours.path.name == "fused" else None
    state = parts_of(found) if found else PLAIN
    why = [str(note) for note in (ours.path.notes if found else ours.path.report[:1])]
    return (state if worst <= TOLERANCE else DISAGREES), f"{worst:.0e}", " ".join(why)


def _short(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def tell(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(kinds: list[str]) -> None:
    """Write the table of some types."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    tell("| type | runs fused | worst difference | reason |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        tokenizer = build_tiny_model(Path(root) / "tokenizer")
        for number, kind in enumerate(kinds):
            state, worst, why = line_of(kind, Path(root) / str(number), tokenizer)
            counts[state] += 1
            tell(f"| {kind} | {state} | {worst} | {why.replace('|', '/')} |")
    tell(f"\n{len(kinds)} types: " + ", ".join(f"{count} {state}" for state, count in counts.most_common()))
    for number in range(1, len(FUSED) + 1):
        tell(f"At least {FUSED[number - 1]}: {sum(counts[state] for state in FUSED[:number])}")


if __name__ == "__main__":
    main(sys.argv[1:] or causal_types.TYPES)
