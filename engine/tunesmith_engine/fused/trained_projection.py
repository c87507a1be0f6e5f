"""Linear layers that read the same input as one product, with weights that are trained themselves: no adapters.

Where weights have the run's number format they lie below each other in one matrix, and the modules keep views of it.
Weights in float32 beside products in 16 bits are rounded at each use, which takes next to no time and no memory of
their own. Biases are added behind the product.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tunesmith_engine.fused.projection import Member, Projection, WeightScratch
from tunesmith_engine.fused.weight_gradients import Bundle, WeightGradients


class TrainedProjection(Projection):
    """A group of linear layers as one product, see `Projection` for its methods.

    Attributes:
        gradients: where those of the weights are added up; None where nothing is trained yet.
    """

    def __init__(self, members: Sequence[Member], scratch: WeightScratch, place: int, dtype: torch.dtype) -> None:
        self.members = list(members)
        self.gradients: WeightGradients | None = None
        self.first_row = self.num_ranks = self.num_extra = 0
        self.has_bias = self.has_dropout = self.has_magnitudes = False
        self.row_scales: torch.Tensor | None = None
        self.num_inputs = members[0].num_inputs
        self.num_outputs = sum(member.num_outputs for member in members)
        self._masks, self._mask_numbers = None, [None] * len(members)
        self._device, self._dtype = members[0].base.weight.device, dtype
        self._scratch, self._place = scratch, place
        self._parts = self._lay_out()
        self._own: torch.Tensor | None = None
        self.beside = self.below = torch.empty(0)
        if {member.base.weight.dtype for member in members} == {dtype}:
            self._take_over_dense_weights()
        else:
            scratch.reserve(place, self.num_outputs * self.num_inputs)

    @property
    def bundles(self) -> list[Bundle]:
        """The trained weights and biases."""
        weights = [member.base.weight for member in self.members]
        if all(weight.requires_grad for weight in weights):
            found: list[Bundle] = [tuple(weights)]
        else:
            found = [(weight,) for weight in weights if weight.requires_grad]
        biases = (member.bias for member in self.members if member.bias is not None)
        return found + [(bias,) for bias in biases if bias.requires_grad]

    def refresh(self) -> None:
        """Do nothing: the weights themselves are updated, and the scratch forgets what it has rounded."""

    def shrink(self, x: torch.Tensor, with_adapter: bool = True) -> None:
        """Do nothing: there are no columns beside the input."""

    def forward(self, x: torch.Tensor, out: torch.Tensor, with_adapter: bool = True) -> None:  # noqa: ARG002
        """See `Projection.forward`; for the base model's outputs the model exchanges the weights."""
        torch.mm(x[:, : self.num_inputs], self._weight("")[: self.num_outputs].t(), out=out)
        for member, rows, _ in self._parts:
            if member.bias is not None:
                out[:, rows].add_(member.bias.data)

    def input_gradient(self, gradient: torch.Tensor, out: torch.Tensor | None) -> None:
        """See `Projection.input_gradient`."""
        if out is not None:
            torch.mm(gradient[:, : self.num_outputs], self._weight("")[: self.num_outputs], out=out)

    def accumulate(self, gradient: torch.Tensor, x: torch.Tensor) -> None:
        """Add the gradients of weights and biases that are trained."""
        if self.gradients is None:
            return
        x = x[:, : self.num_inputs]
        weights = tuple(member.base.weight for member in self.members)
        together = all(weight.requires_grad for weight in weights)
        if together:
            self._add_product(weights, gradient[:, : self.num_outputs], x)
        for (member, rows, _), weight in zip(self._parts, weights, strict=True):
            if weight.requires_grad and not together:
                self._add_product((weight,), gradient[:, rows], x)
            if member.bias is not None and member.bias.requires_grad:
                wide = torch.promote_types(gradient.dtype, torch.float32)
                self.gradients.add(member.bias, gradient[:, rows].sum(0, dtype=wide))

    def _add_product(self, weights: Bundle, gradient: torch.Tensor, x: torch.Tensor) -> None:
        """Add dW, or its transpose where the module has its weight that way."""
        if self.gradients is None:
            return
        if self.members[0].transposed:
            self.gradients.add_product(weights, x, gradient)
        else:
            self.gradients.add_product(weights, gradient, x)
