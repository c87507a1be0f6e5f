"""Products with frozen weights on 8-bit tensor cores, which are twice as fast; adapters and all else stay as they are.

Weights, activations and gradients are rounded to e4m3 with a scale a row. A row scale can be taken out of a product
only if it belongs to a row of the result, so the two products of a layer, X W^T and dY W, need two copies of W: one
with a scale for each output, and a transposed one with a scale for each input. Together they are as large as the weight
in a 16-bit format, and they come on top of it: generating, saving and the way back read the weight itself.

A rounding to 3 bits of mantissa errs by 2.4 % of a number's size in the mean (relative root mean square, numbers evenly
spread over a binade), a product of two roundings by 3.4 %. Whether that is harmless depends on the model: a few huge
activations push a row's other numbers below the format's range. So a run measures it before it trusts these products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from tunesmith_core.messages import Message
from tunesmith_engine.data import Example
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.agreement import LENGTHS
from tunesmith_engine.fused.layer_projections import LayerProjections
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.kernels.fp8 import quantise_rows
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.packed.pack import make_packed_batch

CAPABILITY = (8, 9)
"""Of the first GPUs with 8-bit tensor cores for floating point: Ada (RTX 40). Hopper and Blackwell follow."""

SIZE_MULTIPLE = 16
"""Rows and columns of weights must be multiples of this for torch._scaled_mm."""

MOST_LOSS_SHARE = 0.01
LEAST_COSINE = 0.98
"""What the rounding may do to the loss, and to the direction of the adapters' gradient.

Noise of a share e of the gradient's length gives a cosine of 1 / sqrt(1 + e^2), so 0.98 allows e = 0.2; the gradients
of two batches differ by far more. The noise of one product is 3.4 %, but that of all products before it adds up:
SmolLM2-135M, 30 layers of 576, has 2.1 % and 0.87 on random tokens and is refused (1.1 % and 0.98 on English text, and
0.997 with the backward pass alone in 8 bits; float32 on a CPU, 2026-11-21).
"""


@dataclass(frozen=True, slots=True)
class Fp8Rows:
    """A matrix [rows, columns] in e4m3, and its scales, [rows, 1] in float32."""

    values: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor) -> Fp8Rows:
        """Round a matrix with any stride between its rows."""
        values = torch.empty(x.shape, device=x.device, dtype=torch.float8_e4m3fn)
        scales = torch.empty(x.shape[0], 1, device=x.device, dtype=torch.float32)
        quantise_rows(x, values, scales)
        return cls(values, scales)


def product(left: Fp8Rows, right: Fp8Rows, out: torch.Tensor) -> None:
    """Write left right^T to out, [rows of left, rows of right]."""
    if not out.is_cuda:
        exact = left.values.float() @ right.values.float().t()
        out.copy_(exact * left.scales * right.scales.t())
        return
    # The library's kernels write whole matrices without gaps.
    whole = out if out.is_contiguous() else torch.empty(out.shape, device=out.device, dtype=out.dtype)
    torch._scaled_mm(
        left.values,
        right.values.t(),
        scale_a=left.scales,
        scale_b=right.scales.t(),
        out_dtype=out.dtype,
        # Sums of a whole row in the tensor core's own registers; the alternative costs the gain (NVIDIA H100).
        use_fast_accum=True,
        out=whole,
    )
    if whole is not out:
        out.copy_(whole)


class Fp8Projection(Projection):
    """A projection whose frozen weights are multiplied in 8 bits; bias and adapters as in the one that it replaces.

    It has no columns beside its inputs: S and dS are small and are computed where they are needed.
    """

    def __init__(self, exact: Projection) -> None:
        self._exact = exact
        self.members = exact.members
        self.num_inputs, self.num_outputs, self.num_ranks = exact.num_inputs, exact.num_outputs, exact.num_ranks
        self.num_extra, self.has_magnitudes, self.has_dropout = 0, False, False
        self.quantised_bytes_per_row = max(self.num_inputs, self.num_outputs)
        weight = exact.frozen_weight()
        self._rows = Fp8Rows.of(weight)
        self._transposed = Fp8Rows.of(weight.t().contiguous())
        self._to_shrunk: torch.Tensor | None = None

    def refresh(self) -> None:
        """Take over the adapters' present weights."""
        self._exact.refresh()

    def release(self) -> None:
        """Give the modules weights of their own again; the projection can't be used after that."""
        self._exact.release()
        self.members = []

    def shrink(self, x: torch.Tensor, with_adapter: bool = True) -> None:
        """Do nothing: there are no columns to fill."""

    def _shrunk(self, x: torch.Tensor, with_adapter: bool) -> torch.Tensor:
        """Return what stands beside the input elsewhere: S = X A^T and ones for a bias, [T, R]."""
        exact = self._exact
        beside = x.new_zeros(x.shape[0], exact.num_extra)
        if with_adapter and self.num_ranks:
            torch.mm(x, exact.below.t(), out=beside)
        if exact.has_bias:
            beside[:, self.num_ranks].fill_(1.0)
        return beside

    def forward(self, x: torch.Tensor, out: torch.Tensor, with_adapter: bool = True) -> None:
        """Write the outputs of all members side by side: x is [T, K], out [T, N]."""
        x = x[:, : self.num_inputs]
        product(Fp8Rows.of(x), self._rows, out)
        if self._exact.has_bias or (with_adapter and self.num_ranks):
            out.addmm_(self._shrunk(x, with_adapter), self._exact.beside.t())

    def input_gradient(self, gradient: torch.Tensor, out: torch.Tensor | None) -> None:
        """Write the input's gradient: gradient is [T, N], out [T, K] or None when nobody needs it."""
        gradient = gradient[:, : self.num_outputs]
        if self.num_ranks:
            self._to_shrunk = torch.mm(gradient, self._exact.beside)
        if out is None:
            return
        product(Fp8Rows.of(gradient), self._transposed, out)
        if self._to_shrunk is not None:
            out.addmm_(self._to_shrunk, self._exact.below)

    def accumulate(self, gradient: torch.Tensor, x: torch.Tensor) -> None:
        """Add the adapters' gradients, after `input_gradient` of the same rows."""
        self._exact.add_to_biases(gradient)
        if self._to_shrunk is None:
            return
        x, ranks = x[:, : self.num_inputs], self.num_ranks
        shrunk = self._shrunk(x, True)[:, :ranks]
        self._exact.add_to_adapters(gradient[:, : self.num_outputs], self._to_shrunk[:, :ranks], x, shrunk)
        self._to_shrunk = None


def quantised(projections: Sequence[LayerProjections]) -> list[LayerProjections]:
    """Return the layers' projections with 8-bit copies of their weights; what isn't fused stays as it is."""
    layers = []
    for layer in projections:
        parts: dict[str, Any] = {field.name: getattr(layer, field.name) for field in fields(layer)}  # Any: of all kinds
        parts |= {name: Fp8Projection(part) for name, part in parts.items() if isinstance(part, Projection)}
        layers.append(LayerProjections(**parts))
    return layers


def problem(compute: Compute, projections: Sequence[LayerProjections]) -> str | None:
    """Return why a model can't have 8-bit products here, or None."""
    if compute.device.type != "cuda":
        return Message("The CPU does not support them.")
    major, minor = torch.cuda.get_device_capability(compute.device)
    if (major, minor) < CAPABILITY:
        return Message(
            "They need compute capability 8.9 (RTX 40, H100 or newer), and this GPU has {capability}.",
            capability=f"{major}.{minor}",
        )
    if compute.dtype != torch.bfloat16:
        return Message("They need a run in bfloat16.")
    if any(part.has_magnitudes for layer in projections for part in layer.all()):
        return Message("They do not support DoRA.")
    if any(isinstance(part, Projection) and part.has_dropout for layer in projections for part in layer.all()):
        return Message("They do not support dropout.")
    sizes = {
        size
        for layer in projections
        for part in layer.all()
        if isinstance(part, Projection)
        for size in (part.num_inputs, part.num_outputs)
    }
    if odd := sorted(size for size in sizes if size % SIZE_MULTIPLE):
        return Message(
            "A layer of the model has a width of {width}, which is not divisible by {step}.",
            width=odd[0],
            step=SIZE_MULTIPLE,
        )
    try:
        rows = Fp8Rows.of(torch.ones(2 * SIZE_MULTIPLE, SIZE_MULTIPLE, device=compute.device, dtype=compute.dtype))
        product(
            rows, rows, torch.empty(2 * SIZE_MULTIPLE, 2 * SIZE_MULTIPLE, device=compute.device, dtype=compute.dtype)
        )
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        return Message(
            "PyTorch {version} does not support row scales on this GPU: {reason}",
            version=torch.__version__,
            reason=reason,
        )
    return None


def random_batch(num_token_ids: int, device: torch.device) -> PackedBatch:
    """Return the same few random tokens each time, all of them trained; no generator that a run uses is touched."""
    generator = np.random.default_rng(0)
    documents = (generator.integers(num_token_ids, size=length, dtype=np.int32) for length in LENGTHS)
    return make_packed_batch([Example(ids, ids) for ids in documents], device)


@dataclass(frozen=True, slots=True)
class Measured:
    """Loss and gradient of `random_batch`: the sum in nats, and the adapters' gradient in one piece."""

    loss: float
    gradient: torch.Tensor


@dataclass(frozen=True, slots=True)
class Quality:
    """What 8-bit products did to a loss (relative) and to the direction of a gradient."""

    loss_share: float
    cosine: float

    @classmethod
    def of(cls, exact: Measured, rounded: Measured) -> Quality:
        """Compare the same model with both kinds of products."""
        first, second = exact.gradient.double(), rounded.gradient.double()
        cosine = (first @ second / (first.norm() * second.norm())).item()
        return cls(abs(rounded.loss - exact.loss) / abs(exact.loss), cosine)

    @property
    def suffices(self) -> bool:
        """Whether training may use them; a NaN does not suffice."""
        return self.loss_share <= MOST_LOSS_SHARE and self.cosine >= LEAST_COSINE

    @property
    def sentence(self) -> str:
        """The two figures for a person."""
        return Message(
            "On random tokens they change the loss by {loss_share}, and the cosine of the gradients is {cosine}.",
            loss_share=f"{self.loss_share:.2%}",
            cosine=f"{self.cosine:.4f}",
        )
