"""How the programs of both delta rules are launched.

Servers have more shared memory and an assembler that hardly spills: theirs are the quickest of those timed on an H200
(PyTorch 2.11, Triton 3.6, 2026-11-28, 8192 tokens of 32 heads of 128 in bfloat16). The others are the quickest there of
those that hardly spill on consumer GPUs, by Triton's compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tunesmith_engine.kernels import registry


@dataclass(frozen=True, slots=True)
class Launch:
    """Columns of values that a program has at a time, its warps, and loads in flight."""

    values: int
    num_warps: int
    num_stages: int = 1


Launches = Mapping[str, Launch]
"""By the program's name."""

BY_HEAD: Launches = {
    "systems": Launch(64, 4),
    "prepare": Launch(32, 4),
    "prepare_gradients": Launch(64, 8),
    "states": Launch(32, 4),
    "outputs": Launch(64, 4),
    "state_gradients": Launch(32, 4),
    "query_gradients": Launch(32, 8, 2),
    "key_gradients": Launch(32, 8, 2),
    "write_gradients": Launch(32, 8, 2),
}
BY_HEAD_ON_SERVERS: Launches = {
    **BY_HEAD,
    "prepare_gradients": Launch(64, 4),
    "states": Launch(64, 4, 2),
    "state_gradients": Launch(32, 4, 2),
    "query_gradients": Launch(32, 4),
}
FEW_BY_HEAD_ON_SERVERS: Launches = {**BY_HEAD_ON_SERVERS, "states": Launch(32, 4, 2)}
"""Where few programs go from chunk to chunk, it is the time of one chunk that counts."""

BY_CHANNEL: Launches = {
    "systems": Launch(16, 4),
    "prepare": Launch(32, 4),
    "prepare_gradients": Launch(32, 8),
    "states": Launch(64, 4),
    "outputs": Launch(64, 4),
    "state_gradients": Launch(64, 8),
    "write_gradients": Launch(32, 8, 2),
    "read_gradients": Launch(32, 8, 2),
}
BY_CHANNEL_ON_SERVERS: Launches = {
    **BY_CHANNEL,
    "systems": Launch(32, 4),
    "prepare_gradients": Launch(32, 4),
}

MANY = 256
"""Programs for two on each multiprocessor of a server's GPU: with half of them narrower ones were quicker, not so with
as many."""


def by_head(device: torch.device, num_states: int, value_width: int) -> Launches:
    """Return the launches of the rule with a decay for each head.

    Args:
        num_states: of all documents and heads.
        value_width: of a state.
    """
    if not registry.is_server(device):
        return BY_HEAD
    num_programs = num_states * max(1, value_width // BY_HEAD_ON_SERVERS["states"].values)
    return BY_HEAD_ON_SERVERS if num_programs >= MANY else FEW_BY_HEAD_ON_SERVERS


def by_channel(device: torch.device) -> Launches:
    """Return the launches of the rule with a decay for each channel."""
    return BY_CHANNEL_ON_SERVERS if registry.is_server(device) else BY_CHANNEL
