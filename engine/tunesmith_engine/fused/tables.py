"""The embedding and the output layer on the fused path, where they are trained beside the adapter.

Trained whole, a table lies in the arena in 32 bits, and the products read a copy in the run's number format that is
made once per update; the frozen one stays for the base model. Of trained rows alone there is no copy: they take their
places in the frozen table for the time of a pass, so that the model is the base model in between.

Gradients: of the output layer dW = dY^T X over the trained rows of the text, of the embedding the gradient of the
residual stream added at the row of each token. Where both are one table, both add to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tunesmith_engine.fused.projection import Member, Projection, WeightScratch
from tunesmith_engine.fused.weight_gradients import NUMBERS_AT_ONCE, add_product
from tunesmith_engine.kernels.embedding_gradient import add_embedding_gradient
from tunesmith_engine.model.saved_modules import plain, trained_rows, trained_weight
from tunesmith_engine.shapes import AnyModel, NotFusableError


class Tables:
    """What embeds and what projects to logits, with and without what was trained.

    Attributes:
        trains_embedding: the gradient of the embedded tokens is needed.
    """

    def __init__(
        self, base: AnyModel, embedding: nn.Embedding, head: Projection, scratch: WeightScratch, dtype: torch.dtype
    ) -> None:
        """Make the copies that are read.

        Args:
            base: the transformers model.
            embedding: frozen.
            head: the frozen output layer, maybe with its adapter.
            scratch: of all projections.
            dtype: the run's number format.

        Raises:
            NotFusableError: the output layer has a bias that would be trained with it.
        """
        self._embedding, self._head, self._dtype = embedding, head, dtype
        tables = (base.get_input_embeddings(), base.get_output_embeddings())
        weights = [trained_weight(table) for table in tables]
        if weights[1] is not None and plain(tables[1]).bias is not None:
            raise NotFusableError("An output layer with a bias is trained whole in plain PyTorch.")
        made: dict[int, _Whole | _Rows] = {}
        for table, weight in zip(tables, weights, strict=True):
            if weight is not None and id(weight) not in made:
                rows = trained_rows(table)
                frozen = plain(table)
                made[id(weight)] = _Whole(weight, dtype) if rows is None else _Rows(weight, frozen, rows)
        self._trained = list(made.values())
        self._of_embedding, self._of_head = (None if weight is None else made[id(weight)] for weight in weights)
        self.trains_embedding = self._of_embedding is not None
        self._trained_head = head
        if isinstance(self._of_head, _Whole):
            self._trained_head = Projection([self._of_head.member], scratch, 0, dtype)

    @property
    def may_leave(self) -> bool:
        """Whether the frozen embedding may lie in the computer's memory: no rows are put into it."""
        return not isinstance(self._of_embedding, _Rows)

    @property
    def product_bytes(self) -> int:
        """Memory of the part of a gradient that exists in the run's number format before it is added in 32 bits."""
        of_head = self._of_head
        if of_head is None or self._dtype == of_head.parameter.dtype:
            return 0
        return min(NUMBERS_AT_ONCE, of_head.parameter.numel()) * self._dtype.itemsize

    def table(self, with_adapter: bool) -> torch.Tensor:
        """Return the embedding, [V, d]."""
        if with_adapter and isinstance(self._of_embedding, _Whole):
            return self._of_embedding.copy
        return self._embedding.weight.data

    def head(self, with_adapter: bool) -> Projection:
        """Return the output layer."""
        return self._trained_head if with_adapter else self._head

    def refresh(self) -> None:
        """Take over the present weights."""
        for trained in self._trained:
            trained.refresh()

    @contextlib.contextmanager
    def in_place(self, with_adapter: bool) -> Iterator[None]:
        """Make the context in which trained rows stand in the frozen tables, unless the adapter is left out."""
        rows = [trained for trained in self._trained if isinstance(trained, _Rows) and with_adapter]
        for trained in rows:
            trained.put()
        try:
            yield
        finally:
            for trained in rows:
                trained.take_back()

    def add_to_head(self, gradient: torch.Tensor, x: torch.Tensor) -> None:
        """Add the gradient of the output layer: dY is [R, V or more], X [R, d or more]."""
        if self._of_head is not None:
            self._of_head.add_product(gradient, x)

    def add_to_embedding(self, input_ids: torch.Tensor, gradient: torch.Tensor, scale: float) -> None:
        """Add the gradient of the embedding: that of what it gave, [T, d], which was multiplied by a scale."""
        if self._of_embedding is not None:
            self._of_embedding.add_rows(input_ids, gradient, scale, self._embedding.padding_idx)


class _Whole:
    """A table that is trained whole.

    Attributes:
        copy: [V, d] in the run's number format.
        member: the copy as a linear layer.
    """

    def __init__(self, parameter: nn.Parameter, dtype: torch.dtype) -> None:
        self.parameter = parameter
        self.copy = parameter.detach().to(dtype, copy=True)
        layer = nn.Linear(1, 1, bias=False, device="meta")
        layer.weight = nn.Parameter(self.copy, requires_grad=False)
        num_outputs, num_inputs = parameter.shape
        self.member = Member(layer, self.copy, None, None, num_outputs, num_inputs)

    def refresh(self) -> None:
        self.copy.copy_(self.parameter.data)

    def add_product(self, gradient: torch.Tensor, x: torch.Tensor) -> None:
        num_outputs, width = self.parameter.shape
        add_product(_gradient(self.parameter), gradient[:, :num_outputs], x[:, :width])

    def add_rows(self, input_ids: torch.Tensor, gradient: torch.Tensor, scale: float, padding_id: int | None) -> None:
        add_embedding_gradient(input_ids, gradient, scale, padding_id, _gradient(self.parameter))


class _Rows:
    """Some rows of a table that are trained."""

    def __init__(self, parameter: nn.Parameter, frozen: Any, rows: list[int]) -> None:  # Any: an embedding or a layer
        self.parameter, self._frozen = parameter, frozen
        weight = frozen.weight
        self._rows = torch.tensor(rows, device=weight.device)
        self._originals = weight.data[self._rows].clone()
        # The last place takes what belongs to no trained row.
        self._places = torch.full((weight.shape[0],), len(rows), device=weight.device)
        self._places[self._rows] = torch.arange(len(rows), device=weight.device)
        self._present = self._originals.clone()
        self.refresh()

    def refresh(self) -> None:
        self._present.copy_(self.parameter.data)

    def put(self) -> None:
        self._frozen.weight.data.index_copy_(0, self._rows, self._present)

    def take_back(self) -> None:
        self._frozen.weight.data.index_copy_(0, self._rows, self._originals)

    def add_product(self, gradient: torch.Tensor, x: torch.Tensor) -> None:
        width = self.parameter.shape[1]
        add_product(_gradient(self.parameter), gradient[:, self._rows], x[:, :width])

    def add_rows(self, input_ids: torch.Tensor, gradient: torch.Tensor, scale: float, padding_id: int | None) -> None:
        num_rows, width = self.parameter.shape
        places = self._places[input_ids]
        if padding_id is not None:
            places.masked_fill_(input_ids == padding_id, num_rows)
        totals = torch.zeros(num_rows + 1, width, device=gradient.device)
        # What belongs to no trained row is what padding is to a table.
        add_embedding_gradient(places, gradient, scale, num_rows, totals)
        _gradient(self.parameter).add_(totals[:num_rows])


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None, "the arena gives every trained weight one"
    return parameter.grad
