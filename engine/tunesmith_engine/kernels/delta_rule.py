"""The gated delta rule of Qwen3-Next and Qwen3.5, by chunks, forwards and backwards, for packed documents.

Yang et al. 2024 (arXiv 2412.06464); transformers has it as `torch_chunk_gated_delta_rule`. A head keeps a state S
[K, V] that decays by exp(g), is corrected by each token and is then read:

    S <- exp(g) S;   S <- S + k beta (v - S^T k)^T;   o = S^T q

with q and k of length 1 (q also times K^-1/2). Within a chunk of 64 tokens, with `decays` [i, j] from token j to token
i (0 where i doesn't see j), `reach` from the chunk's begin and `rest` to its end, both 0 for other documents:

    A = beta decays (k k^T) below the diagonal, T = (1 + A)^-1, P = decays (q k^T)
    U = T (beta v) - T (beta reach k) S,    o = reach q S + P U,    S' = total S + (rest k)^T U

The backward pass has the same form: with T^T (P^T do) and T^T (rest k) it runs from the last chunk to the first,

    R = T^T P^T do + T^T (rest k) dS',    dS = total dS' + (reach q)^T do - (beta reach k)^T R

and R, the gradient of the right-hand side that T solves, gives the rest: dv = beta R, dA = -R U^T.

Chunks are cut from the whole batch, not from each document, as in attention.py: what a token sees is cut off at its
document's first token, and a chunk's state belongs to the one document that crosses its boundary. So the states of
each document are computed by a program of its own, and documents inside one chunk have none. Nothing is added up by
atomics. Between the passes nothing is kept but the inputs: the backward pass computes the states again. What the passes
take meanwhile is `workspace_bytes`: 1.0 GiB backward and 0.57 GiB forward for 8192 tokens of 32 heads of 128 + 128.

Products are TF32, whose rounding is finer than bfloat16's and as coarse as float16's own: float16 runs as the twin.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tunesmith_engine.kernels import delta_launches, registry
from tunesmith_engine.kernels import delta_rule_twin as twin
from tunesmith_engine.kernels.chunk_inverse import invert
from tunesmith_engine.kernels.chunk_places import CHUNK
from tunesmith_engine.kernels.delta_rule_backward import (
    head_gradients_kernel,
    key_gradients_kernel,
    prepare_gradients_kernel,
    query_gradients_kernel,
    state_gradients_kernel,
    write_gradients_kernel,
)
from tunesmith_engine.kernels.delta_rule_forward import (
    outputs_kernel,
    prepare_kernel,
    scales_kernel,
    states_kernel,
    systems_kernel,
)
from tunesmith_engine.kernels.delta_rule_parts import NOBODY
from tunesmith_engine.kernels.delta_rule_twin import EPS
from tunesmith_engine.kernels.triton_import import triton

NAME = "delta_rule"
LARGEST_HEAD_DIM = 128


ALL = ("KEY_DIM", "KEY_WIDTH", "VALUE_DIM", "VALUE_WIDTH")
"""Names of the constants that are sizes."""


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    bounds: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write what the queries read from the states.

    Args:
        q, k: queries and keys [T, HK, K], with any strides between rows and heads, as all below; K and V up to 128.
        v: values [T, H, V]; each key head serves H / HK consecutive value heads.
        g: logarithm of the decay [T, H], 0 or less, float32.
        beta: strength of each token's correction [T, H].
        bounds: start of each document and the end of the last, [num_documents + 1] int32; empty ones may follow.
        out: [T, H, V].
    """
    if not runs(q.dtype, q.device):
        out.copy_(twin.joined(twin.forward(twin.chunks_of(q, k, v, g, beta, bounds))[0], v))
        return
    work = _Work(q, k, v, g, beta, bounds)
    work.prepare()
    work.update_states()
    grid = (work.num_chunks, work.value_width // work.values("outputs"), work.num_heads)
    outputs_kernel[grid](
        *(q, k, work.u, work.states, out, work.begins, work.scales),
        *_strides(q, k, out),
        *(work.num_tokens, work.num_chunks, work.group),
        **work.form("outputs", *ALL, "VALUES", "LATE"),
    )


def backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    bounds: torch.Tensor,
    outs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Write the gradients of q, k, v, g and beta; the same bits in every run.

    Args:
        do: gradient of the output [T, H, V].
        outs: of the shapes of q, k, v, g and beta, in any number format; none of the inputs.
        others: as in `forward`.
    """
    dq, dk, dv, dg, dbeta = outs
    if not runs(q.dtype, q.device):
        _backward_twin(do, (q, k, v, g, beta), bounds, outs)
        return
    work = _Work(q, k, v, g, beta, bounds)
    back_u, back_w = torch.empty_like(work.u), torch.empty_like(work.w)
    work.prepare_gradients(do, work.prepare(), back_u, back_w)
    work.update_states()
    slopes = torch.empty_like(work.states)
    work.update_slopes(do, back_u, back_w, slopes)
    # The states are there: what made them holds the gradients of normal queries and keys from now on.
    dq_normal, dk_normal = work.w, back_w
    d_decay = torch.empty_like(work.scales[0])
    numbers = (work.num_tokens, work.num_chunks, work.group)
    query_gradients_kernel[work.num_chunks, work.num_heads](
        *(q, k, do, work.u, work.states, dq_normal, d_decay, work.begins, work.scales),
        *_strides(q, k, do),
        *numbers,
        **work.form("query_gradients", *ALL, "VALUES", "LATE"),
    )
    key_gradients_kernel[work.num_chunks, work.num_heads](
        *(q, k, do, work.u, work.states, slopes, dk_normal, d_decay, work.begins, work.scales),
        *_strides(q, k, do),
        *numbers,
        **work.form("key_gradients", *ALL, "VALUES", "LATE"),
    )
    write_gradients_kernel[work.num_chunks, work.num_heads](
        *(k, v, beta, work.u, back_u, work.states, dk_normal, dv, d_decay, dg, dbeta, work.begins, work.scales),
        *(*_strides(k, v), beta.stride(0), *_strides(dv), dg.stride(0), dbeta.stride(0)),
        *numbers,
        **work.form("write_gradients", *ALL, "VALUES", "LATE"),
    )
    for x, normal, dx, index, scale in ((q, dq_normal, dq, 0, q.shape[2] ** -0.5), (k, dk_normal, dk, 1, 1.0)):
        head_gradients_kernel[work.num_chunks, k.shape[1]](
            *(x, normal, dx, work.scales[index]),
            *_strides(x, dx),
            *(work.num_tokens, scale),
            GROUP=work.group,
            KEY_DIM=k.shape[2],
            KEY_WIDTH=work.key_width,
            CHUNK=CHUNK,
        )


class _Work:
    """What the programs of a pass leave for each other, in float32, by head, token and width filled up with zeros."""

    def __init__(self, *inputs: torch.Tensor) -> None:
        self.q, self.k, self.v, self.g, self.beta, self.bounds = q, k, v, g, _beta, bounds = inputs
        self.num_tokens, self.num_heads = g.shape
        self.num_chunks, self.group = triton.cdiv(self.num_tokens, CHUNK), self.num_heads // k.shape[1]
        self.key_width, self.value_width = (max(16, triton.next_power_of_2(x.shape[2])) for x in (k, v))
        num_states = (bounds.numel() - 1) * self.num_heads
        self.launches = delta_launches.by_head(q.device, num_states, self.value_width)
        rows = (self.num_heads, self.num_tokens)
        self.u = q.new_empty(*rows, self.value_width, dtype=torch.float32)
        self.w = q.new_empty(*rows, self.key_width, dtype=torch.float32)
        shape = (self.num_heads, self.num_chunks, self.key_width, self.value_width)
        self.states = q.new_empty(shape, dtype=torch.float32)
        self.scales = q.new_empty(4, *rows, dtype=torch.float32)
        self.begins = q.new_empty(self.num_tokens, dtype=torch.int32)
        num_documents = bounds.numel() - 1
        scales_kernel[self.num_chunks, self.num_heads](
            *(q, k, g, bounds, self.begins, self.scales),
            *(*_strides(q, k), g.stride(0)),
            *(self.num_tokens, num_documents, num_documents.bit_length(), self.group, EPS, k.shape[2] ** -0.5),
            KEY_DIM=k.shape[2],
            KEY_WIDTH=self.key_width,
            CHUNK=CHUNK,
        )

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

    def values(self, program: str) -> int:
        """Return how many columns a program has at a time."""
        return min(self.launches[program].values, self.key_width, self.value_width)

    def prepare(self) -> torch.Tensor:
        """Solve each chunk's system; return T, [H, T, CHUNK]."""
        solved = self.u.new_empty(self.num_heads, self.num_tokens, CHUNK)
        systems_kernel[self.num_chunks, self.num_heads](
            *(self.k, self.beta, self.begins, self.scales, solved),
            *(*_strides(self.k), self.beta.stride(0), self.num_tokens, self.group),
            **self.form("systems", "KEY_DIM", "KEY_WIDTH", "VALUES", "LATE"),
        )
        invert(solved)
        prepare_kernel[self.num_chunks, self.num_heads](
            *(self.k, self.v, self.beta, self.begins, self.scales, solved, self.u, self.w),
            *(*_strides(self.k, self.v), self.beta.stride(0), self.num_tokens, self.group),
            **self.form("prepare", *ALL, "VALUES", "LATE"),
        )
        return solved

    def prepare_gradients(
        self, do: torch.Tensor, solved: torch.Tensor, back_u: torch.Tensor, back_w: torch.Tensor
    ) -> None:
        """Do the same for the backward pass, as far as it needs no states."""
        prepare_gradients_kernel[self.num_chunks, self.num_heads](
            *(self.q, self.k, do, self.begins, self.scales, solved, back_u, back_w),
            *(*_strides(self.q, self.k, do), self.num_tokens, self.group),
            **self.form("prepare_gradients", *ALL, "VALUES", "LATE"),
        )

    def update_states(self) -> None:
        """Go from chunk to chunk in each document; `u` then holds the updates."""
        states_kernel[self._grid("states")](
            *(self.k, self.u, self.w, self.states, self.bounds, self.scales),
            *(*_strides(self.k), self.num_tokens, self.num_chunks, self.group),
            **self.form("states", "KEY_DIM", "KEY_WIDTH", "VALUE_WIDTH", "VALUES"),
        )

    def update_slopes(
        self, do: torch.Tensor, back_u: torch.Tensor, back_w: torch.Tensor, slopes: torch.Tensor
    ) -> None:
        """Go back from chunk to chunk in each document; `back_u` then holds R."""
        state_gradients_kernel[self._grid("state_gradients")](
            *(self.q, self.k, do, self.beta, back_u, back_w, slopes, self.bounds, self.scales),
            *(*_strides(self.q, self.k, do), self.beta.stride(0), self.num_tokens, self.num_chunks, self.group),
            **self.form("state_gradients", *ALL, "VALUES"),
        )

    def _grid(self, program: str) -> tuple[int, int, int]:
        return self.bounds.numel() - 1, self.value_width // self.values(program), self.num_heads


def unit_rows(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries and keys as they meet the states: of length 1, in float32, and queries also times K^-1/2."""
    q, k = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k))
    q, k = (x * (x.square().sum(-1, keepdim=True) + EPS).rsqrt() for x in (q, k))
    return q * q.shape[-1] ** -0.5, k


def runs(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the Triton programs run for such inputs: on a GPU in bfloat16 alone."""
    # In float32 no GPU has the registers; Triton's interpreter, which tests use, has, and is exact.
    return (dtype == torch.bfloat16 or device.type == "cpu") and registry.runs(NAME, device, needs_dot=True)


def workspace_bytes(num_heads: int, key_dim: int, value_dim: int) -> int:
    """Return what the backward pass takes of each token beside its inputs and results; the forward pass takes less.

    Two right-hand sides and their gradients, the states before the chunks and their gradients, and a few scales.
    """
    both = [max(16, 1 << (width - 1).bit_length()) for width in (key_dim, value_dim)]
    return num_heads * (8 * sum(both) + 8 * math.prod(both) // CHUNK + 20)


def _strides(*tensors: torch.Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _backward_twin(
    do: torch.Tensor, inputs: tuple[torch.Tensor, ...], bounds: torch.Tensor, outs: tuple[torch.Tensor, ...]
) -> None:
    q, k, v, g, beta = inputs
    chunks = twin.chunks_of(q, k, v, g, beta, bounds)
    dq, dk, *others = twin.backward(twin.cut(do, v.shape[1]), chunks)
    dq = twin.through_norm(dq, chunks.q, chunks.roots[0], q.shape[2] ** -0.5)
    dk = twin.through_norm(dk, chunks.k, chunks.roots[1], 1.0)
    for out, slope, like in zip(outs[:3], (dq, dk, others[0]), (q, k, v), strict=True):
        out.copy_(twin.joined(slope, like))
    for out, slope in zip(outs[3:], others[1:], strict=True):
        out.copy_(twin.joined(slope, out))
