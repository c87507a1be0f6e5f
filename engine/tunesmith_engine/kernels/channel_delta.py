"""The delta rule with a decay for each channel of a key, by chunks, forwards and backwards, for packed documents.

Kimi Linear (arXiv 2510.26692), transformers' `chunk_kimi_delta_attention`. A head keeps a state S [K, V] whose rows
decay each by its own exp(g), and is else that of the gated delta rule:

    S <- exp(g) S;   S <- S + k beta (v - S^T k)^T;   o = S^T q

with q and k of length 1 (q also times K^-1/2). The formulas are those of delta_rule.py, but `reach`, `rest` and `total`
have a number for each channel, and the decays stand inside the sums over channels:

    A = beta sum_d k[i, d] k[j, d] decays[i, j, d],    P = sum_d q[i, d] k[j, d] decays[i, j, d]

Such a sum is a product of matrices only where a decay is a product of two factors, and exp(G[i]) exp(-G[j]) overflows.
So each pair of tokens meets at a token between them: a chunk of 64 is halved six times, and a token i of the second
half of a block sees a token j of the first half by exp(G[i] - G[m]) exp(G[m] - G[j]) with m the last token of the first
half. Both are 1 at most, each token has one of them at a time, and the 6 products of whole chunks, of which the blocks
of that size are taken, have all pairs but those of a token with itself. (Yang et al. 2024, arXiv 2312.06635, halve once
and go through the rest pair by pair.)

The gradients of log decays come from those of q and k, as in delta_rule.py: dG = q dq - k dk, channel by channel.

Documents, states, programs and workspace are as in delta_rule.py; there are as many key heads as value heads, and the
gates are computed inside, from what a projection gives. A pass takes 1.5 GiB backward (`workspace_bytes`) for 8192
tokens of 32 heads of 128 + 128. Nothing is added up by atomics.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tunesmith_engine.kernels import channel_delta_twin as twin
from tunesmith_engine.kernels import delta_launches, registry
from tunesmith_engine.kernels.channel_delta_backward import (
    gate_gradients_kernel,
    prepare_gradients_kernel,
    read_gradients_kernel,
    state_gradients_kernel,
    write_gradients_kernel,
)
from tunesmith_engine.kernels.channel_delta_forward import (
    decays_kernel,
    outputs_kernel,
    prepare_kernel,
    states_kernel,
    systems_kernel,
)
from tunesmith_engine.kernels.channel_delta_twin import Gates
from tunesmith_engine.kernels.chunk_inverse import invert
from tunesmith_engine.kernels.chunk_places import CHUNK
from tunesmith_engine.kernels.delta_rule_backward import head_gradients_kernel
from tunesmith_engine.kernels.delta_rule_parts import NOBODY
from tunesmith_engine.kernels.delta_rule_twin import EPS, cut, joined, through_norm
from tunesmith_engine.kernels.short_convolution import first_tokens
from tunesmith_engine.kernels.triton_import import triton

NAME = "channel_delta"
LARGEST_HEAD_DIM = 128

AT_ONCE = 8
"""Tokens whose gates are loaded at a time."""

ALL = ("KEY_DIM", "KEY_WIDTH", "VALUE_DIM", "VALUE_WIDTH")
"""Names of the constants that are sizes."""


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gates: Gates,
    beta: torch.Tensor,
    bounds: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write what the queries read from the states.

    Args:
        q, k: queries and keys [T, H, K], with any strides between rows and heads, as all below; K and V up to 128.
        v: values [T, H, V].
        gates: see `Gates`.
        beta: strength of each token's correction [T, H].
        bounds: start of each document and the end of the last, [num_documents + 1] int32; empty ones may follow.
        out: [T, H, V].
    """
    if not runs(q.dtype, q.device):
        out.copy_(joined(twin.forward(twin.chunks_of(q, k, v, gates, beta, bounds))[0], v))
        return
    work = _Work(q, k, v, gates, beta, bounds)
    work.prepare()
    work.update_states()
    grid = (work.num_chunks, work.value_width // work.values("outputs"), work.num_heads)
    outputs_kernel[grid](
        *(q, work.u, work.states, out, work.begins, work.scales, work.decay, work.weights),
        *(*_strides(q, out), work.num_tokens, work.num_chunks),
        **work.form("outputs", *ALL, "VALUES", "LATE"),
    )


def backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gates: Gates,
    beta: torch.Tensor,
    bounds: torch.Tensor,
    outs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Write the gradients of q, k, v, the raw gates and beta; the same bits in every run.

    Args:
        do: gradient of the output [T, H, V].
        outs: of the shapes of q, k, v, the raw gates and beta, in any number format; none of the inputs.
        others: as in `forward`.
    """
    if not runs(q.dtype, q.device):
        _backward_twin(do, (q, k, v, gates, beta, bounds), outs)
        return
    dq, dk, dv, d_raw, dbeta = outs
    work = _Work(q, k, v, gates, beta, bounds)
    work.prepare()
    back_u, back_w = work.prepare_gradients(do)
    work.update_states()
    slopes = work.update_slopes(do, back_u, back_w)
    work.write_gradients(do, back_u, dv, dbeta)
    # The states are there: what made them holds the gradients of normal queries and keys from now on.
    dq_normal, dk_normal, d_decay = work.w, back_w, torch.empty_like(work.decay)
    read_gradients_kernel[work.num_chunks, work.num_heads](
        *(q, k, do, beta, work.u, back_u, work.states, slopes, work.begins, work.scales, work.decay),
        *(work.solved, work.weights, dq_normal, dk_normal, d_decay),
        *(*_strides(q, k, do), beta.stride(0), work.num_tokens, work.num_chunks),
        **work.form("read_gradients", *ALL, "VALUES", "LATE"),
    )
    gate_gradients_kernel[work.num_chunks, work.num_heads](
        *(gates.raw, gates.bias, gates.rate, work.begins, d_decay, d_raw),
        *(*_strides(gates.raw, d_raw), work.num_tokens),
        **work.gate_form(),
    )
    for x, normal, dx, index, scale in ((q, dq_normal, dq, 0, q.shape[2] ** -0.5), (k, dk_normal, dk, 1, 1.0)):
        head_gradients_kernel[work.num_chunks, work.num_heads](
            *(x, normal, dx, work.scales[index]),
            *(*_strides(x, dx), work.num_tokens, scale),
            GROUP=1,
            KEY_DIM=k.shape[2],
            KEY_WIDTH=work.key_width,
            CHUNK=CHUNK,
        )


class _Work:
    """What the programs of a pass leave for each other, in float32, by head, token and width filled up with zeros."""

    def __init__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        gates: Gates,
        beta: torch.Tensor,
        bounds: torch.Tensor,
    ) -> None:
        self.q, self.k, self.v, self.gates, self.beta, self.bounds = q, k, v, gates, beta, bounds
        self.num_tokens, self.num_heads = beta.shape
        self.num_chunks = triton.cdiv(self.num_tokens, CHUNK)
        self.key_width, self.value_width = (max(16, triton.next_power_of_2(x.shape[2])) for x in (k, v))
        self.launches = delta_launches.by_channel(q.device)
        self.begins = first_tokens(bounds, self.num_tokens)
        self.decay = self._room(self.key_width)
        self.scales = q.new_empty(2, self.num_heads, self.num_tokens, dtype=torch.float32)
        self.u, self.w = self._room(self.value_width), self._room(self.key_width)
        self.solved, self.weights = self._room(CHUNK), self._room(CHUNK)
        shape = (self.num_heads, self.num_chunks, self.key_width, self.value_width)
        self.states = q.new_empty(shape, dtype=torch.float32)
        decays_kernel[self.num_chunks, self.num_heads](
            *(q, k, gates.raw, gates.bias, gates.rate, self.begins, self.scales, self.decay),
            *(*_strides(q, k, gates.raw), self.num_tokens, EPS, k.shape[2] ** -0.5),
            **self.gate_form(),
        )

    def _room(self, width: int) -> torch.Tensor:
        return self.q.new_empty(self.num_heads, self.num_tokens, width, dtype=torch.float32)

    def form(self, program: str, *constants: str) -> dict[str, Any]:
        """Return constants and options of a program."""
        found = {
            "KEY_DIM": self.k.shape[2],
            "KEY_WIDTH": self.key_width,
            "VALUE_DIM": self.v.shape[2],
            "VALUE_WIDTH": self.value_width,
            "VALUES": self.values(program),
            "LATE": NOBODY,
        }
        launch = self.launches[program]
        options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
        return {"CHUNK": CHUNK, **options, **{name: found[name] for name in constants}}

    def gate_form(self) -> dict[str, Any]:
        """Return constants and options of programs that go through gates token by token."""
        floor = self.gates.floor
        sizes = {"KEY_DIM": self.k.shape[2], "KEY_WIDTH": self.key_width, "CHUNK": CHUNK, "AT_ONCE": AT_ONCE}
        return {"floor": floor or 0.0, "FLOOR": floor is not None, "num_warps": 1, **sizes}

    def values(self, program: str) -> int:
        """Return how many columns a program has at a time."""
        return min(self.launches[program].values, self.key_width, self.value_width)

    def prepare(self) -> None:
        """Solve each chunk's system."""
        q, k, v, beta = self.q, self.k, self.v, self.beta
        systems_kernel[self.num_chunks, self.num_heads](
            *(q, k, beta, self.begins, self.scales, self.decay, self.solved, self.weights),
            *(*_strides(q, k), beta.stride(0), self.num_tokens),
            **self.form("systems", "KEY_DIM", "KEY_WIDTH", "VALUES", "LATE"),
        )
        invert(self.solved)
        prepare_kernel[self.num_chunks, self.num_heads](
            *(k, v, beta, self.begins, self.scales, self.decay, self.solved, self.u, self.w),
            *(*_strides(k, v), beta.stride(0), self.num_tokens),
            **self.form("prepare", *ALL, "VALUES", "LATE"),
        )

    def prepare_gradients(self, do: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Do the same for the backward pass, as far as it needs no states."""
        back_u, back_w = torch.empty_like(self.u), torch.empty_like(self.w)
        prepare_gradients_kernel[self.num_chunks, self.num_heads](
            *(self.k, do, self.begins, self.scales, self.decay, self.solved, self.weights, back_u, back_w),
            *(*_strides(self.k, do), self.num_tokens),
            **self.form("prepare_gradients", *ALL, "VALUES"),
        )
        return back_u, back_w

    def update_states(self) -> None:
        """Go from chunk to chunk in each document; `u` then holds the updates."""
        states_kernel[self._grid("states")](
            *(self.k, self.u, self.w, self.states, self.bounds, self.scales, self.decay),
            *(*_strides(self.k), self.num_tokens, self.num_chunks),
            **self.form("states", "KEY_DIM", "KEY_WIDTH", "VALUE_WIDTH", "VALUES"),
        )

    def update_slopes(self, do: torch.Tensor, back_u: torch.Tensor, back_w: torch.Tensor) -> torch.Tensor:
        """Go back from chunk to chunk in each document; `back_u` then holds R."""
        slopes = torch.empty_like(self.states)
        state_gradients_kernel[self._grid("state_gradients")](
            *(self.q, self.k, do, self.beta, back_u, back_w, slopes, self.bounds, self.scales, self.decay),
            *(*_strides(self.q, self.k, do), self.beta.stride(0), self.num_tokens, self.num_chunks),
            **self.form("state_gradients", *ALL, "VALUES"),
        )
        return slopes

    def write_gradients(self, do: torch.Tensor, back_u: torch.Tensor, dv: torch.Tensor, dbeta: torch.Tensor) -> None:
        """Write the gradients of values and betas, and turn P and T into the gradients of P and of A times beta."""
        write_gradients_kernel[self.num_chunks, self.num_heads](
            *(do, self.beta, self.u, back_u, self.begins, self.solved, self.weights, dv, dbeta),
            *(*_strides(do), self.beta.stride(0), *_strides(dv), dbeta.stride(0), self.num_tokens),
            **self.form("write_gradients", "VALUE_DIM", "VALUE_WIDTH", "VALUES", "LATE"),
        )

    def _grid(self, program: str) -> tuple[int, int, int]:
        return self.bounds.numel() - 1, self.value_width // self.values(program), self.num_heads


def runs(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the Triton programs run for such inputs: on a GPU in bfloat16 alone, as delta_rule.py's do."""
    return (dtype == torch.bfloat16 or device.type == "cpu") and registry.runs(NAME, device, needs_dot=True)


def workspace_bytes(num_heads: int, key_dim: int, value_dim: int) -> int:
    """Return what the backward pass takes of each token beside its inputs and results; the forward pass takes less.

    Two right-hand sides and their gradients, log decays and their gradients, two matrices of the chunk, the states
    before the chunks and their gradients, and a few scales.
    """
    key, value = (max(16, 1 << (width - 1).bit_length()) for width in (key_dim, value_dim))
    return num_heads * (16 * key + 8 * value + 8 * CHUNK + 8 * math.prod((key, value)) // CHUNK + 8) + 24


def _strides(*tensors: torch.Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _backward_twin(do: torch.Tensor, inputs: tuple[Any, ...], outs: tuple[torch.Tensor, ...]) -> None:
    q, k, v, gates, beta, bounds = inputs
    chunks = twin.chunks_of(q, k, v, gates, beta, bounds)
    dq, dk, *others = twin.backward(cut(do, v.shape[1]), chunks)
    dq = through_norm(dq, chunks.q, chunks.roots[0], q.shape[2] ** -0.5)
    dk = through_norm(dk, chunks.k, chunks.roots[1], 1.0)
    for out, slope in zip(outs, (dq, dk, *others), strict=True):
        out.copy_(joined(slope, out))
