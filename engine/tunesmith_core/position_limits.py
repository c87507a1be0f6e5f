"""How many tokens a model can read, as its files say: some learn a vector for each position in a text, and no more.

The engine knows it for certain once the model is loaded, which takes long; a plan is to know it before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, joined
from tunesmith_core.model_config import language_part
from tunesmith_core.model_folder import local_folder, open_model_folder
from tunesmith_core.model_library import CONTEXT_NAMES, context_length
from tunesmith_core.spec import RunSpec

_POSITIONS = re.compile(r"wpe|pos")
"""Parts of the names of tables with a row for each position in a text."""

_NO_TEXT = re.compile(r"vision|visual|image|audio")
"""Parts of a model that look or listen, whose positions are no tokens."""

SHORTEN = Message("Use shorter prompts, other data, or a model for longer texts.")

OFFSETS = (0, 2)
"""Rows in front of the first position, of which BART and what comes from it has two."""


def is_position_table(name: str) -> bool:
    """Return whether a table of this name, without ".weight", has a row for each position in a text."""
    return _POSITIONS.search(name.rpartition(".")[2]) is not None and not _NO_TEXT.search(name)


def num_positions(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> int:  # Any: JSON values
    """Return for how many positions a model has learned vectors; 0 where it computes them or nobody can tell."""
    text = language_part(config)
    stated = {text.get(name) for name in (*CONTEXT_NAMES, "max_target_positions")}
    rows = {
        shape[0] - offset
        for name, shape in shapes.items()
        if len(shape) == 2 and name.endswith(".weight") and is_position_table(name.removesuffix(".weight"))
        for offset in OFFSETS
    }
    return min((number for number in rows if number in stated), default=0)


def positions_of(spec: RunSpec) -> int:
    """Return the same of the base model of a run."""
    try:
        folder = local_folder(spec.model.path, spec.model.revision)
        model = open_model_folder(folder) if folder else None
    except TunesmithError:
        return 0
    return num_positions(model.config, model.shapes) if model else 0


def stated_context(spec: RunSpec) -> int:
    """Return for how many tokens the base model of a run is made; 0 when that is not said."""
    try:
        folder = local_folder(spec.model.path, spec.model.revision)
        return context_length(folder) if folder else 0
    except TunesmithError:
        return 0


def beyond_stated(longest_tokens: int, stated: int, learned_from: int) -> Message | None:
    """Return what to know of rows that are longer than the model is made for, but can be computed.

    Args:
        longest_tokens: of the longest row.
        stated: tokens that the model is made for, 0 for any number.
        learned_from: the fewest tokens with which a row has something to learn.
    """
    if not stated or longest_tokens <= stated:
        return None
    words = Message(
        "The longest row has {longest} tokens, but the model is made for {stated}. It may not work well beyond that.",
        longest=longest_tokens,
        stated=stated,
    )
    if learned_from > stated:
        return joined([words, SHORTEN])
    return joined([words, Message("Set the context length to {stated} tokens.", stated=stated)])


def too_long(longest_tokens: int, positions: int, folder: Path | str) -> TunesmithError | None:
    """Return the refusal of rows that are longer than the learned positions, 0 for no limit; else None."""
    if not positions or longest_tokens <= positions:
        return None
    return TunesmithError(
        "spec-invalid",
        "data.context_length: the longest row has {longest} tokens, but {path} supports only {positions}.",
        hint=Message("Set the context length to {positions} tokens or less.", positions=positions),
        longest=longest_tokens,
        path=folder,
        positions=positions,
    )
