"""The state-space scan of Mamba 2, by chunks, forwards and backwards, for packed documents.

Dao and Gu 2024 (arXiv 2405.21060); transformers has it as `mamba2_chunk_scan`. With steps of
softplus(raw + bias) inside limits, a head keeps a state S [K, V] that decays by exp(-rate step), is written and then
read:

    S <- exp(-rate step) S + b (step x)^T;   y = S^T c + skip x

where b and c serve all heads of a group. Within a chunk of 64 tokens, with `decays` [i, j] from token j to token i (0
where i doesn't see j), `reach` from the chunk's begin and `rest` to its end, both 0 for other documents:

    y = reach c S + (decays (c b^T)) (step x) + skip x,    S' = total S + (rest b)^T (step x)

and backwards, from the last chunk to the first, dS = total dS' + (reach c)^T dy; the rest follows chunk by chunk.

Chunks are cut from the whole batch, as in delta_rule.py, with which this shares what a token sees of its chunk: a
chunk's state belongs to the one document that crosses its boundary. Nothing is added up by atomics. The gradients of b
and c are sums over the heads of a group: a program adds up to 16 of them, and what the programs give is added in one
order. Between the passes nothing is kept but the inputs. What the passes take meanwhile is `workspace_bytes`.

Products are TF32, which holds bfloat16 and float16 exactly and rounds all else as finely as float16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn import functional

from tunesmith_core.mixer_memory import MOST_IN_PART, SMALLEST_SCAN
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels import state_space_twin as twin
from tunesmith_engine.kernels.chunk_places import CHUNK
from tunesmith_engine.kernels.delta_rule_parts import NOBODY
from tunesmith_engine.kernels.delta_rule_twin import cut, joined
from tunesmith_engine.kernels.state_space_programs import (
    head_gradients_kernel,
    key_gradients_kernel,
    outputs_kernel,
    scales_kernel,
    state_gradients_kernel,
    states_kernel,
)
from tunesmith_engine.kernels.triton_import import triton

NAME = "state_space"
LARGEST_STATE = 256
LARGEST_HEAD = 128


class Launch(NamedTuple):
    """Dimensions of states and columns of values that a program has at a time, and its warps."""

    keys: int
    values: int
    num_warps: int


STATES = Launch(64, 64, 4)
OUTPUTS = Launch(64, 64, 8)
STATE_GRADIENTS = Launch(64, 64, 4)
HEAD_GRADIENTS = Launch(32, 32, 8)
KEY_GRADIENTS = Launch(64, 32, 8)


class Steps(NamedTuple):
    """What makes steps and decays of the raw steps of all heads.

    Attributes:
        raw: [T, H], with any stride between rows.
        bias, log_rate: [H] each; the rate is exp(log_rate).
        limits: between which the steps stay.
    """

    raw: torch.Tensor
    bias: torch.Tensor
    log_rate: torch.Tensor
    limits: tuple[float, float]


def steps_and_decays(steps: Steps) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the steps and the logarithms of the decays, [T, H] float32."""
    wide = steps.raw.to(torch.promote_types(steps.raw.dtype, torch.float32)) + steps.bias
    taken = functional.softplus(wide).clamp(*steps.limits)
    return taken, -steps.log_rate.to(taken.dtype).exp() * taken


def forward(
    x: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    steps: Steps,
    skip: torch.Tensor,
    bounds: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write what is read from the states.

    Args:
        x: numbers [T, H, V], with any strides between rows and heads, as all below; V up to 128.
        b, c: [T, G, K]; each serves H / G consecutive heads; K up to 256.
        steps: see there.
        skip: [H].
        bounds: start of each document and the end of the last, [num_documents + 1] int32; empty ones may follow.
        out: [T, H, V].
    """
    if not runs(x.dtype, x.device):
        out.copy_(joined(twin.forward(_chunks(x, b, c, steps, bounds), skip), x))
        return
    work = _Work(x, b, c, steps, bounds)
    work.update_states()
    grid = (work.num_chunks, work.value_width // work.block(OUTPUTS)[1], work.num_heads)
    outputs_kernel[grid](
        *(x, b, c, skip, work.states, out, work.begins, work.scales),
        *_strides(x, b, c, out),
        *(work.num_tokens, work.num_chunks, work.group),
        **work.form(OUTPUTS),
        LATE=NOBODY,
    )


def backward(
    do: torch.Tensor,
    x: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    steps: Steps,
    skip: torch.Tensor,
    bounds: torch.Tensor,
    outs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Write the gradients of x, b, c and the raw steps; the same bits in every run.

    Args:
        do: gradient of the output [T, H, V].
        outs: of the shapes of x, b, c and the raw steps, in any number format; none of the inputs.
        others: as in `forward`.
    """
    if not runs(x.dtype, x.device):
        found = twin.backward(cut(do, do.shape[1]), _chunks(x, b, c, steps, bounds), skip, -steps.log_rate.exp())
        for out, slope in zip(outs, found, strict=True):
            out.copy_(joined(slope, out))
        return
    work = _Work(x, b, c, steps, bounds)
    work.update_states()
    slopes = torch.empty_like(work.states)
    work.update_slopes(do, slopes)
    head_gradients_kernel[work.num_chunks, work.num_heads](
        *(do, x, b, c, steps.raw, steps.bias, steps.log_rate, skip, work.states, slopes),
        *(outs[0], outs[3], work.begins, work.scales),
        *(*_strides(do, x, b, c), steps.raw.stride(0), *_strides(outs[0]), outs[3].stride(0)),
        *(work.num_tokens, work.num_chunks, work.group, *steps.limits),
        **work.form(HEAD_GRADIENTS),
        LATE=NOBODY,
    )
    in_part = heads_in_part(work.group)
    num_parts = work.num_heads // in_part
    db, dc = x.new_empty(2, num_parts, work.num_tokens, work.key_width, dtype=torch.float32)
    key_gradients_kernel[work.num_chunks, num_parts, work.key_width // work.block(KEY_GRADIENTS)[0]](
        *(do, x, b, c, work.states, slopes, db, dc, work.begins, work.scales),
        *_strides(do, x, b, c),
        *(work.num_tokens, work.num_chunks, work.num_heads, work.group, in_part),
        **work.form(KEY_GRADIENTS),
        LATE=NOBODY,
    )
    for parts, out in ((db, outs[1]), (dc, outs[2])):
        total = parts.unflatten(0, (b.shape[1], -1)).sum(1)
        out.copy_(total[..., : b.shape[2]].transpose(0, 1))


class _Work:
    """What the programs of a pass leave for each other, in float32, by head, token and width filled up with zeros."""

    def __init__(self, x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, steps: Steps, bounds: torch.Tensor) -> None:
        self.x, self.b, self.c, self.bounds = x, b, c, bounds
        self.num_tokens, self.num_heads = x.shape[:2]
        self.num_chunks, self.group = triton.cdiv(self.num_tokens, CHUNK), self.num_heads // b.shape[1]
        self.key_width, self.value_width = (_padded(each.shape[2]) for each in (b, x))
        shape = (self.num_heads, self.num_chunks, self.key_width, self.value_width)
        self.states = x.new_empty(shape, dtype=torch.float32)
        self.scales = x.new_empty(3, self.num_heads, self.num_tokens, dtype=torch.float32)
        self.begins = x.new_empty(self.num_tokens, dtype=torch.int32)
        num_documents = bounds.numel() - 1
        scales_kernel[self.num_chunks, self.num_heads](
            *(steps.raw, steps.bias, steps.log_rate, bounds, self.begins, self.scales, steps.raw.stride(0)),
            *(self.num_tokens, num_documents, num_documents.bit_length(), *steps.limits),
            CHUNK=CHUNK,
        )

    def form(self, launch: Launch) -> dict[str, Any]:
        """Return constants and options of a program."""
        return {
            "KEY_DIM": self.b.shape[2],
            "KEY_WIDTH": self.key_width,
            "VALUE_DIM": self.x.shape[2],
            "VALUE_WIDTH": self.value_width,
            "CHUNK": CHUNK,
            "KEYS": self.block(launch)[0],
            "VALUES": self.block(launch)[1],
            "num_warps": launch.num_warps,
            "num_stages": 1,
        }

    def block(self, launch: Launch) -> tuple[int, int]:
        """Return how many dimensions and columns a program has at a time."""
        return min(launch.keys, self.key_width), min(launch.values, self.value_width)

    def update_states(self) -> None:
        """Go from chunk to chunk in each document."""
        states_kernel[self._grid(STATES)](
            *(self.x, self.b, self.states, self.bounds, self.scales),
            *(*_strides(self.x, self.b), self.num_tokens, self.num_chunks, self.group),
            **self.form(STATES),
        )

    def update_slopes(self, do: torch.Tensor, slopes: torch.Tensor) -> None:
        """Go back from chunk to chunk in each document."""
        state_gradients_kernel[self._grid(STATE_GRADIENTS)](
            *(do, self.c, slopes, self.bounds, self.scales),
            *(*_strides(do, self.c), self.num_tokens, self.num_chunks, self.group),
            **self.form(STATE_GRADIENTS),
        )

    def _grid(self, launch: Launch) -> tuple[int, int, int]:
        keys, values = self.block(launch)
        num_blocks = self.key_width // keys * (self.value_width // values)
        return self.bounds.numel() - 1, num_blocks, self.num_heads


def runs(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the Triton programs run for such inputs: on a GPU in bfloat16 alone, as delta_rule.py's do."""
    # TF32 is as coarse as float16 itself, which runs choose only on GPUs without these products.
    return (dtype == torch.bfloat16 or device.type == "cpu") and registry.runs(NAME, device, needs_dot=True)


def heads_in_part(group: int) -> int:
    """Return of how many heads of a group a program adds up the gradients of b and c."""
    return max(number for number in range(1, MOST_IN_PART + 1) if group % number == 0)


def workspace_bytes(num_heads: int, num_groups: int, key_dim: int, value_dim: int) -> int:
    """Return what the backward pass takes of each token beside its inputs and results; the forward pass takes less.

    The states before the chunks and their gradients, a few scales, and the parts of the gradients of b and c.
    """
    keys, values = _padded(key_dim), _padded(value_dim)
    parts = num_heads // heads_in_part(num_heads // num_groups)
    return num_heads * (8 * keys * values // CHUNK + 16) + (8 * parts + 4 * num_groups) * keys + 4


def _padded(width: int) -> int:
    return max(SMALLEST_SCAN, 1 << (width - 1).bit_length())


def _strides(*tensors: torch.Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _chunks(x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, steps: Steps, bounds: torch.Tensor) -> twin.Chunks:
    wide = torch.promote_types(x.dtype, torch.float32)
    rates = -steps.log_rate.to(wide).exp()
    return twin.chunks_of(x, b, c, steps.raw, steps.bias.to(wide), rates, steps.limits, bounds)
