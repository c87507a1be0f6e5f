"""The stacked weights of a layer's experts with their adapters, as PEFT lays them out (`target_parameters`).

Weights stay where and as they are; those in 4 bits are unpacked for the products of a layer. PEFT's A is [E r, K], the
experts behind each other, and its B is [N, r E], in which the experts take turns; here both are copied once per update
into [E, R, K] and [E, N, R] in the run's number format.

# M rows, T tokens, K inputs, N outputs, E experts, r ranks, R columns: r filled up, see `expert_memory.padded_ranks`
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from peft.tuners.lora.layer import ParamWrapper
from torch import nn

from tunesmith_core.expert_memory import padded_ranks
from tunesmith_engine.fused.projection import OF_EXPERTS, PlainOnlyError, WeightScratch
from tunesmith_engine.kernels import grouped_product, nf4
from tunesmith_engine.kernels.expert_order import Order
from tunesmith_engine.model.stacked import packed_stack
from tunesmith_engine.shapes import SparseShape


@dataclass(frozen=True, slots=True)
class StackedAdapter:
    """LoRA of all experts: A is [E r, K], B is [N, r E], float32."""

    a: nn.Parameter
    b: nn.Parameter
    rank: int
    scale: float


class StackedWeight:
    """The frozen weights of one product: as they are, or in 4 bits and unpacked where they are used.

    Attributes:
        shape: (E, N, K).
    """

    def __init__(
        self, experts: nn.Module, name: str, transposed: bool, scratch: WeightScratch, place: int, dtype: torch.dtype
    ) -> None:
        self._transposed, self._scratch, self._place = transposed, scratch, place
        self._packed = packed = packed_stack(experts, name)
        if packed is None:
            self._weight: nn.Parameter = getattr(experts, name)
            if self._weight.dtype != dtype:
                self._weight.data = self._weight.data.to(dtype)
            stored = self._weight.shape
        else:
            try:
                quant_type = nf4.FourBitWeight.of(packed).quant_type
            except ValueError as error:
                raise PlainOnlyError(str(error)) from error
            stored = packed.quant_state.shape
            if quant_type == "mxfp4":
                # Its blocks lie along the inputs, so those are behind the outputs where the module has them before.
                self._transposed, stored = not transposed, (stored[0], stored[2], stored[1])
            scratch.reserve(place, math.prod(stored))
        self._stored = tuple(stored)
        self.shape = (stored[0], stored[2], stored[1]) if self._transposed else self._stored

    @property
    def whole(self) -> torch.Tensor:
        """All numbers, [E, N, K] with any strides."""
        if self._packed is not None:
            return self._turned(self._scratch.unpacked(self, self._place).view(self._stored))
        return self._turned(self._weight.detach())

    def of_rows(self, order: Order) -> torch.Tensor:
        """Return the same where only the experts that have rows are unpacked."""
        if self._packed is None:
            return self.whole
        weight = self._scratch.room(self, self._place)
        nf4.dequantise(nf4.FourBitWeight.of(self._packed), weight, counts=order.offsets.diff())
        return self._turned(weight.view(self._stored))

    def _turned(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.transpose(1, 2) if self._transposed else weight

    @property
    def buffer_shape(self) -> tuple[int, int]:
        """Rows and columns of all matrices behind each other."""
        return self._stored[0] * self._stored[1], self._stored[2]

    def unpack(self, weight: torch.Tensor, scaled: bool = True) -> None:
        """Unpack the weights into a buffer."""
        del scaled
        # Where the codes lie may have changed since the last time.
        nf4.dequantise(nf4.FourBitWeight.of(self._packed), weight)


class StackedProjection:
    """One product of all experts.

    Attributes:
        num_inputs, num_outputs, num_experts: K, N and E.
        num_ranks: columns R of the adapters, 0 without.
    """

    def __init__(
        self,
        weight: StackedWeight,
        bias: nn.Parameter | None,
        adapter: StackedAdapter | None,
        dtype: torch.dtype,
    ) -> None:
        if bias is not None and bias.dtype != dtype:
            bias.data = bias.data.to(dtype)
        self._weight, self._bias, self._adapter = weight, bias, adapter
        self.num_experts, self.num_outputs, self.num_inputs = weight.shape
        self.num_ranks = padded_ranks(adapter.rank) if adapter else 0
        self._beside = self._below = torch.empty(0)
        if adapter:
            like = {"device": adapter.a.device, "dtype": dtype}
            self._beside = torch.zeros(self.num_experts, self.num_outputs, self.num_ranks, **like)
            self._below = torch.zeros(self.num_experts, self.num_ranks, self.num_inputs, **like)
        self.refresh()

    @property
    def weight(self) -> torch.Tensor:
        """All weights, [E, N, K] with any strides."""
        return self._weight.whole

    @property
    def bias(self) -> torch.Tensor | None:
        """All biases, [E, N], or None."""
        return None if self._bias is None else self._bias.detach()

    @property
    def gradient_bytes(self) -> int:
        """Memory of the sums from which the adapters' gradients are taken."""
        return 4 * self.num_experts * self.num_ranks * max(self.num_inputs, self.num_outputs)

    def refresh(self) -> None:
        """Take over the adapters' present weights."""
        if self._adapter:
            rank, beside, below = self._adapter.rank, self._beside, self._below
            torch.mul(_by_expert(self._adapter.b.data, rank), self._adapter.scale, out=beside[..., :rank])
            below[:, :rank].copy_(self._adapter.a.data.view(self.num_experts, rank, self.num_inputs))

    def shrink(self, x: torch.Tensor, order: Order, gathered: bool, shrunk: torch.Tensor) -> None:
        """Write x A^T, [M, R]; x is as in `forward`."""
        if self.num_ranks:
            grouped_product.multiply(x, self._below, order, shrunk, gathered)

    def forward(
        self,
        x: torch.Tensor,
        order: Order,
        out: torch.Tensor,
        gathered: bool,
        shrunk: torch.Tensor,
        with_adapter: bool,
        few_rows: bool = False,
    ) -> None:
        """Write all rows' outputs.

        Args:
            x: [M, K], or [T, K] with `gathered`.
            order: of the rows.
            out: [M, N].
            gathered: see `x`.
            shrunk: [M, R], written.
            with_adapter: False leaves the adapters out.
            few_rows: most experts have none, so their weights aren't unpacked.
        """
        adapter = (None, None)
        if with_adapter and self.num_ranks:
            self.shrink(x, order, gathered, shrunk)
            adapter = (shrunk, self._beside)
        weight = self._weight.of_rows(order) if few_rows else self.weight
        grouped_product.multiply(x, weight, order, out, gathered, *adapter, self.bias)

    def input_gradient(
        self, gradient: torch.Tensor, order: Order, out: torch.Tensor, gathered: bool, to_shrunk: torch.Tensor
    ) -> None:
        """Write the gradient of all rows' inputs.

        Args:
            gradient: of the outputs, [M, N], or [T, N] with `gathered`.
            order: of the rows.
            out: [M, K].
            gathered: see `gradient`.
            to_shrunk: [M, R]: the gradient of what `shrink` gives is written.
        """
        adapter = (None, None)
        if self.num_ranks:
            grouped_product.multiply(gradient, self._beside.transpose(1, 2), order, to_shrunk, gathered)
            adapter = (to_shrunk, self._below.transpose(1, 2))
        grouped_product.multiply(gradient, self.weight.transpose(1, 2), order, out, gathered, *adapter)

    def accumulate(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        order: Order,
        gathered: tuple[bool, bool],
        shrunk: torch.Tensor,
        to_shrunk: torch.Tensor,
    ) -> None:
        """Add the adapters' gradients, dB = s dY^T S and dA = dS^T X for each expert.

        Args:
            gradient, x: as in `input_gradient` and `forward`.
            order: of the rows.
            gathered: of both.
            shrunk, to_shrunk: as these left them, with the rows' weights where `gradient` is not weighted.
        """
        if self._adapter is None or self._adapter.a.grad is None or self._adapter.b.grad is None:
            return
        rank = self._adapter.rank
        to_b = grouped_product.sum_products(gradient, shrunk, order, gathered[0])
        _by_expert(self._adapter.b.grad, rank).add_(to_b[..., :rank], alpha=self._adapter.scale)
        to_a = grouped_product.sum_products(x, to_shrunk, order, gathered[1])
        self._adapter.a.grad.view(self.num_experts, rank, -1).add_(to_a[..., :rank].transpose(1, 2))


class Experts:
    """Both products of a layer's experts.

    Attributes:
        gate_up, down: they.
        num_extra, has_magnitudes: as a layer without columns beside its inputs has them.
    """

    num_extra = 0
    has_magnitudes = False

    def __init__(
        self, shape: SparseShape, scratch: WeightScratch, dtype: torch.dtype, all_frozen: bool = True
    ) -> None:
        """Read the experts' weights and adapters.

        Args:
            shape: of the whole block.
            scratch: where weights in 4 bits are unpacked.
            dtype: the run's number format.
            all_frozen: nothing but adapters is trained, the router neither.

        Raises:
            PlainOnlyError: for what a product can't hold.
        """
        norms = shape.branch_norms.all if shape.branch_norms else []
        trains_norms = any(norm.trained_parameters for norm in norms)
        trains_weights = any(weight.requires_grad for weight in shape.experts.parameters(recurse=False))
        if not all_frozen or trains_norms or trains_weights:
            raise PlainOnlyError("Their own weights are trained.")
        adapters = _adapters(shape)
        if shape.scores and adapters:
            # PEFT takes these weights for transposed ones, so its A and B are each other's.
            raise PlainOnlyError("The experts have an adapter that is not supported.")

        def product(name: str, place: int) -> StackedProjection:
            bias = getattr(shape.experts, f"{name}_bias", None)
            weight = StackedWeight(shape.experts, name, shape.transposed, scratch, place, dtype)
            return StackedProjection(weight, bias, adapters.get(name), dtype)

        self.gate_up, self.down = (product(*one) for one in zip(("gate_up_proj", "down_proj"), OF_EXPERTS, strict=True))

    @property
    def gradient_bytes(self) -> int:
        """Memory of the sums of one product's adapters."""
        return max(self.gate_up.gradient_bytes, self.down.gradient_bytes)

    def refresh(self) -> None:
        """Take over the adapters' present weights."""
        self.gate_up.refresh()
        self.down.refresh()


def _by_expert(b: torch.Tensor, rank: int) -> torch.Tensor:
    """Return PEFT's B, [N, r E], as [E, N, r]."""
    return b.view(b.shape[0], rank, -1).permute(2, 0, 1)


def _adapters(shape: SparseShape) -> dict[str, StackedAdapter]:
    """Return the active adapter of each weight."""
    found: dict[str, StackedAdapter] = {}
    wrapper = shape.wrapped
    while isinstance(wrapper, ParamWrapper):
        names = [name for name in wrapper.active_adapters if name in wrapper.lora_A]
        if len(names) > 1:
            raise PlainOnlyError("Several adapters are active.")
        if names:
            (name,) = names
            a, b = wrapper.lora_A[name].weight, wrapper.lora_B[name].weight
            found[wrapper.parameter_name] = StackedAdapter(a, b, wrapper.r[name], float(wrapper.scaling[name]))
        wrapper = wrapper.base_layer
    if wrapper is not shape.experts or found.keys() - {"gate_up_proj", "down_proj"}:
        raise PlainOnlyError("The experts have an adapter that is not supported.")
    return found
