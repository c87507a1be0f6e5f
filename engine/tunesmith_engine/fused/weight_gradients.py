"""Gradients of whole weights: each in memory of its own, or those of a layer in the memory of the layer before it.

A gradient is in its weight's number format, as PyTorch's is. Whoever applies it takes it away by `weight.grad = None`;
the next product then overwrites the memory instead of adding to it, so nothing has to be cleared.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import nn

from tunesmith_engine.kernels.embedding_gradient import add_embedding_gradient
from tunesmith_engine.kernels.norm_gradient import norm_weight_gradient
from tunesmith_engine.mixer_shapes import Norm

Bundle = tuple[nn.Parameter, ...]
"""Weights that lie below each other in one matrix, and so do their gradients; most often one alone."""

Consume = Callable[[Sequence[nn.Parameter]], None]
"""Applies the gradients of weights that nothing reads any more in this step, and takes them away."""

ALIGNMENT = 256
"""Numbers between the starts of two bundles."""

NUMBERS_AT_ONCE = 1 << 24
"""Of a product whose number format is not that of the gradient to which it is added."""


@dataclass(frozen=True, slots=True)
class Group:
    """Trained weights whose gradients are ready at the same time.

    Attributes:
        bundles: those whose gradients are made here.
        others: those whose gradients PyTorch makes.
    """

    bundles: Sequence[Bundle] = ()
    others: Sequence[nn.Parameter] = ()

    @property
    def weights(self) -> list[nn.Parameter]:
        """All of them."""
        return [*chain.from_iterable(self.bundles), *self.others]


class WeightGradients:
    """Adds up the gradients of a model's trained weights.

    Attributes:
        layers: as given.
        can_go_by_layer: whether a layer's gradients may be applied as soon as its backward pass is done.
    """

    def __init__(
        self,
        ends: Group,
        layers: Sequence[Group],
        embedding: nn.Parameter | None,
        tied: bool,
        dtype: torch.dtype,
        positions: nn.Parameter | None = None,
        of_embedded: Sequence[nn.Parameter] = (),
    ) -> None:
        """Plan the memory; none is taken before the first gradient.

        Args:
            ends: final norm and head, which are done with before the layers.
            layers: from the first to the last, which is the first that is done with.
            embedding: its weight if that is trained, done with behind all layers.
            tied: the head adds to the embedding's gradient, too, before the layers.
            dtype: number format of products.
            positions: the weight of learned positions if that is trained, done with as the embedding.
            of_embedded: trained weights of a norm of the embedded tokens, done with as the embedding.
        """
        self._ends, self.layers, self._dtype = ends, layers, dtype
        self._last = Group([(table,) for table in (embedding, positions, *of_embedded) if table is not None])
        groups = [ends, *layers, self._last]
        weights = [weight for group in groups for weight in group.weights]
        self._weight_dtype, self._device = weights[0].dtype, weights[0].device
        alone = set(Counter(map(id, weights)).values()) == {1}
        self.can_go_by_layer = alone and {weight.dtype for weight in weights} == {self._weight_dtype}
        kept = _size((embedding,)) if embedding is not None and tied else 0
        self._starts: dict[int, int] = {}
        self._region_size = self._whole_size = 0
        for group in groups:
            # What head and embedding share stays from the one to the other.
            place = 0 if group is self._last else kept
            for bundle in group.bundles:
                self._starts[id(bundle[0])] = place
                place += _size(bundle)
                self._whole_size += _size(bundle)
            self._region_size = max(self._region_size, place)
        self._consume: Consume | None = None
        self._goes_by_layer = False
        self._region: torch.Tensor | None = None
        self._own: dict[int, torch.Tensor] = {}

    def num_bytes(self, by_layer: bool) -> int:
        """Return the memory of all gradients, or of those that exist at a time."""
        numbers = self._region_size if by_layer else self._whole_size
        beside = min(NUMBERS_AT_ONCE, self._region_size) * self._dtype.itemsize
        return numbers * self._weight_dtype.itemsize + (beside if self._dtype != self._weight_dtype else 0)

    def give_back(self) -> None:
        """Let the memory go until the next gradient; none may be there."""
        self._region, self._own = None, {}

    @contextlib.contextmanager
    def by_layer(self, consume: Consume | None) -> Iterator[None]:
        """Make the context in which a layer's gradients are consumed as soon as they are there; None for as usual."""
        if self._goes_by_layer != (consume is not None):
            # The other way's memory has no use now.
            self.give_back()
        self._consume, self._goes_by_layer = consume, consume is not None
        try:
            yield
        finally:
            self._consume = None

    # What the passes tell

    def add_product(self, bundle: Bundle, gradient: torch.Tensor, x: torch.Tensor) -> None:
        """Add dW = dY^T X, with dY [T, N] and X [T, K], to the gradient of weights with N rows together."""
        room, is_fresh = self._room(bundle)
        room = room.view(-1, x.shape[1])
        if not is_fresh:
            add_product(room, gradient, x)
        elif room.dtype == gradient.dtype:
            torch.mm(gradient.t(), x, out=room)
        else:
            for rows, part in _products(gradient, x):
                room[rows].copy_(part)

    def add(self, weight: nn.Parameter, values: torch.Tensor) -> None:
        """Add numbers of any format in the weight's shape."""
        room, is_fresh = self._room((weight,))
        if is_fresh:
            room.view(weight.shape).copy_(values)
        else:
            room.view(weight.shape).add_(values)

    def add_norm(
        self,
        norm: Norm | None,
        gradient: torch.Tensor,
        total: torch.Tensor,
        statistics: torch.Tensor | None,
        scale: float = 1.0,
    ) -> None:
        """Add the gradients of a norm's weight and bias that are trained; see `norm_weight_gradient`.

        `scale` is a factor.
        """
        if norm is not None and norm.trained is not None:
            found = norm_weight_gradient(gradient, total, norm, statistics)
            self.add(norm.trained, found if scale == 1.0 else found * scale)
        if norm is not None and norm.trained_bias is not None:
            wide = torch.promote_types(gradient.dtype, torch.float32)
            self.add(norm.trained_bias, gradient[:, : total.shape[1]].sum(0, dtype=wide) * scale)

    def add_embedding(
        self, embedding: nn.Embedding, input_ids: torch.Tensor, gradient: torch.Tensor, scale: float
    ) -> None:
        """Add the gradient of the embedding if that is trained; see `add_embedding_gradient`."""
        if embedding.weight.requires_grad:
            room, is_fresh = self._room((embedding.weight,))
            if is_fresh:
                room.zero_()
            table = room.view(embedding.weight.shape)
            add_embedding_gradient(input_ids, gradient, scale, embedding.padding_idx, table)

    def done_with_ends(self) -> None:
        """Take note that the head's backward pass is done."""
        self._done(self._ends)

    def done_with_layer(self, index: int) -> None:
        """Take note that a layer's backward pass is done."""
        self._done(self.layers[index])

    def done(self) -> None:
        """Take note that the backward pass is done."""
        self._done(self._last)

    def _done(self, group: Group) -> None:
        if self._consume is not None and (weights := [weight for weight in group.weights if weight.grad is not None]):
            self._consume(weights)

    def _room(self, bundle: Bundle) -> tuple[torch.Tensor, bool]:
        """Return the flat gradient of a bundle, and whether there is nothing in it yet."""
        key, size = id(bundle[0]), sum(weight.numel() for weight in bundle)
        if self._consume is None:
            if key not in self._own:
                self._own[key] = torch.empty(size, device=self._device, dtype=bundle[0].dtype)
            room = self._own[key]
        else:
            if self._region is None:
                self._region = torch.empty(self._region_size, device=self._device, dtype=self._weight_dtype)
            room = self._region[self._starts[key] : self._starts[key] + size]
        is_fresh = bundle[0].grad is None
        if is_fresh:
            start = 0
            for weight in bundle:
                weight.grad = room[start : start + weight.numel()].view(weight.shape)
                start += weight.numel()
        return room, is_fresh


def add_product(total: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor) -> None:
    """Add dW = dY^T X, with dY [T, N] and X [T, K], to a gradient [N, K] of any number format."""
    if total.dtype == gradient.dtype:
        total.addmm_(gradient.t(), x)
        return
    for rows, part in _products(gradient, x):
        total[rows].add_(part)


def _products(gradient: torch.Tensor, x: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield rows of a product and which they are, so that it never exists whole in a format that isn't its own."""
    num_rows = max(1, NUMBERS_AT_ONCE // x.shape[1])
    for start in range(0, gradient.shape[1], num_rows):
        rows = slice(start, start + num_rows)
        yield rows, torch.mm(gradient[:, rows].t(), x)


def _size(bundle: Bundle) -> int:
    """Return the numbers that a bundle takes."""
    return -(-sum(weight.numel() for weight in bundle) // ALIGNMENT) * ALIGNMENT


def bundles_of_norms(norms: Sequence[Norm]) -> list[Bundle]:
    """Return the trained weights of norms, each by itself."""
    return [(parameter,) for norm in norms for parameter in norm.trained_parameters]
