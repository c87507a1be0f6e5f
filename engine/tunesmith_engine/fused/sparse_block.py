"""A mixture of experts between its norm and the residual, in tiles of tokens; see `SparseShape`.

Rows of one expert lie behind each other, so a tile of tokens is a few products over all experts at once. What the last
product gave is never needed again: the gradient of a row's weight is that of its MLP's inner numbers times these. The
router runs once more in the backward pass, from the same input and with the same random numbers.

# T tokens of a tile, k experts of each, M = T k rows, F numbers of an expert's MLP, R columns of adapters
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from tunesmith_engine.fused.experts import Experts
from tunesmith_engine.fused.mlp_block import MlpBlock, PlainMlp
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.routing import Choice, Router
from tunesmith_engine.fused.sent_tiles import SentTiles
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import expert_rows
from tunesmith_engine.kernels.expert_order import Order, order_of
from tunesmith_engine.shapes import SparseShape


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of tokens.

    Attributes:
        rows: which of a micro-batch.
        order: of its rows.
        buffers: see `SparseBlock._block`.
        own: gate and up of the experts, [M, 2 F].
        of_shared: those of the shared MLP, or None where that keeps its own.
        is_there: both hold what the forward pass left.
    """

    rows: slice
    order: Order
    buffers: list[torch.Tensor]
    own: torch.Tensor
    of_shared: torch.Tensor | None
    is_there: bool


class Shared(Protocol):
    """The MLP that all tokens go through; see `MlpBlock`.

    Attributes:
        inputs, down: its projections.
        gate_up_width: columns of a buffer that keeps gate and up.
    """

    @property
    def inputs(self) -> Projection | PlainModules: ...

    @property
    def down(self) -> Projection | PlainModules: ...

    @property
    def gate_up_width(self) -> int: ...

    def forward(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor | None,
        with_adapter: bool = True,
        sent: SentTiles | None = None,
        first_row: int = 0,
    ) -> None:
        """Write the MLP's output."""


class SparseBlock:
    """Does what `MlpBlock` does, on the same buffers.

    Attributes:
        inputs, down: the projections of the shared MLP, or the experts, which have no columns beside their inputs.
        parts: what it multiplies with.
        gate_up_width: numbers of a token that gate and up of its experts and of the shared MLP have.
    """

    lends_room = False
    """Whether the shared MLP has gate and up in the block's room even if they are computed again."""

    inputs: Projection | PlainModules | Experts
    down: Projection | PlainModules | Experts
    parts: Sequence[Projection | PlainModules | Experts]

    def __init__(
        self,
        shape: SparseShape,
        experts: Experts,
        router: Router,
        shared: Shared | None,
        workspace: Workspace,
        tile_tokens: int,
        keeps_gate_up: bool,
        few_rows: bool = False,
    ) -> None:
        """Reserve the memory.

        Args:
            shape: of the mixture.
            experts, router, shared: its parts.
            workspace: for a tile.
            tile_tokens: most tokens of a tile.
            keeps_gate_up: whether gate and up have buffers of the layer's.
            few_rows: see `StackedProjection.forward`; for a pass without a way back.
        """
        self._few_rows = few_rows
        self.shape, self._experts, self._router, self._shared = shape, experts, router, shared
        self._workspace, self._tile_tokens = workspace, tile_tokens
        self._hidden_size = experts.gate_up.num_inputs
        self.inputs, self.down = (shared.inputs, shared.down) if shared else (experts, experts)
        self.parts = [self.inputs, self.down]
        self._own_width = shape.per_token * 2 * shape.width
        self.gate_up_width = self._own_width + (shared.gate_up_width if shared else 0)
        shapes = self._block(tile_tokens)
        if not keeps_gate_up:
            shapes.append((tile_tokens, self.gate_up_width))
        workspace.reserve("sparse", *shapes)

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of inner numbers, rows, what adapters shrink, the input's gradient and the shared MLP's."""
        num_rows, experts = num_tokens * self.shape.per_token, self._experts
        widths = [self.shape.width, self._hidden_size]
        widths += [experts.gate_up.num_ranks] * 2 + [experts.down.num_ranks] * 2
        shapes = [(num_rows, width) for width in widths]
        return [*shapes, (num_tokens, self._hidden_size), *self._beside_experts(num_tokens)]

    def _beside_experts(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of what is taken beside the experts."""
        wide = self._hidden_size + self.down.num_extra
        needs_room = self.shape.shared_scale != 1.0 and wide > self.shape.per_token * self._hidden_size
        return [(num_tokens, wide)] if self.shape.shared_gate is not None or needs_room else []

    # Forward

    def forward(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor | None,
        with_adapter: bool = True,
        sent: SentTiles | None = None,
    ) -> None:
        """Write the block's output; see `MlpBlock.forward`."""
        with torch.no_grad():
            choice = self._router.choose(x[:, : self._hidden_size])
        for number, rows in enumerate(self._tiles(len(x))):
            room = sent.write(number, rows.stop - rows.start) if sent else None
            tile = self._tile(rows, gate_up, room, choice)
            inner, outputs, shrunk, _, of_down, *_ = tile.buffers
            numbers = self._read(x[rows], tile)
            self._experts.gate_up.forward(numbers, tile.order, tile.own, True, shrunk, with_adapter, self._few_rows)
            if self.shape.scores:
                # The product of what was multiplied is that of the product.
                tile.own.mul_(_of_rows(choice.weights[rows].contiguous(), tile.order))
            if self._shared:
                self._put_shared(self._shared, x[rows], out[rows], tile, choice, with_adapter)
            if sent:
                sent.written(number)
            expert_rows.activate_rows(tile.own, self.shape.gate, inner)
            self._experts.down.forward(inner, tile.order, outputs, False, of_down, with_adapter, self._few_rows)
            self._add_experts(out[rows], tile, choice)

    def _read(self, x: torch.Tensor, tile: Tile) -> torch.Tensor:  # noqa: ARG002 - a branch has a norm here
        """Return what the experts of a tile read."""
        return x[:, : self._hidden_size]

    def _put_shared(
        self,
        shared: Shared,
        x: torch.Tensor,
        out: torch.Tensor,
        tile: Tile,
        choice: Choice,
        with_adapter: bool,
    ) -> None:
        """Write what the shared MLP adds."""
        shared.forward(x, out, tile.of_shared, with_adapter, first_row=tile.rows.start)
        if choice.factor is not None:
            out.mul_(choice.factor[tile.rows])
        if self.shape.shared_scale != 1.0:
            out.mul_(self.shape.shared_scale)

    def _add_experts(self, out: torch.Tensor, tile: Tile, choice: Choice) -> None:
        """Write the weighted sum of the rows that the experts gave, with what the shared MLP wrote."""
        self._combine(tile, choice, out, out if self._shared else None)

    def _combine(self, tile: Tile, choice: Choice, out: torch.Tensor, added: torch.Tensor | None = None) -> None:
        """Write the weighted sum of the rows that the experts gave, and what is added."""
        weights = None if self.shape.scores else choice.weights[tile.rows].contiguous()
        expert_rows.combine(tile.buffers[1], tile.order, weights, out, added)

    # Backward

    def backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor | None,
        sent: SentTiles | None = None,
    ) -> None:
        """Write the gradient of the normalised input and add those of the adapters; see `MlpBlock.backward`."""
        # Columns beside these are written meanwhile, which autograd must not take for a change of its input.
        leaf = x[:, : self._hidden_size].data.requires_grad_()
        choice = self._router.choose_again(leaf)
        parts = [part for part in (choice.weights, choice.factor) if part is not None]
        gradients = [torch.empty_like(part) for part in parts]
        fixed = Choice(choice.experts, *(part if part is None else part.detach() for part in choice.learned))
        for number, rows in reversed(list(enumerate(self._tiles(len(x))))):
            there = sent.read(number, rows.stop - rows.start) if sent else None
            tile = self._tile(rows, gate_up, there, fixed)
            self._tile_backward(gradient[rows], x[rows], out[rows], tile, fixed, gradients)
            if sent:
                sent.used(number)
        if self._router.balance and choice.logits is not None:
            probabilities, slopes = self._router.balance.gradient(choice.logits)
            parts, gradients = [*parts, probabilities], [*gradients, slopes]
        torch.autograd.backward(parts, gradients)
        if leaf.grad is not None:
            out.add_(leaf.grad)

    def _tile_backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        out: torch.Tensor,
        tile: Tile,
        choice: Choice,
        gradients: list[torch.Tensor],
    ) -> None:
        """Write the gradients of a tile's input, and those of what the router decides but for its own input."""
        self._experts_backward(gradient, x, tile, choice, gradients[0])
        if self._shared:
            self._shared_backward(gradient, x, out, tile, choice, gradients)
            out.add_(tile.buffers[6])
        else:
            out.copy_(tile.buffers[6])

    def _experts_backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        tile: Tile,
        choice: Choice,
        to_weights: torch.Tensor,
    ) -> None:
        """Write the gradients of a tile's input and weights that come from its experts."""
        inner, outputs, shrunk, to_shrunk, of_down, to_down, to_x, *_ = tile.buffers
        rows, order, own = tile.rows, tile.order, tile.own
        numbers, slopes = x[:, : self._hidden_size], gradient[:, : self._hidden_size]
        first, last = self._experts.gate_up, self._experts.down
        weights = _of_rows(choice.weights[rows], order).flatten()
        inside = weights[:, None] if self.shape.scores else None
        if tile.is_there:
            first.shrink(numbers, order, True, shrunk)
        else:
            first.forward(numbers, order, own, True, shrunk, True)
            if inside is not None:
                own.mul_(inside)
        # The rows' weights come behind this product, so that it gives their gradients as well.
        last.input_gradient(slopes, order, inner, True, to_down)
        behind = torch.ones_like(weights) if self.shape.scores else weights
        dots = torch.empty_like(weights)
        expert_rows.activate_rows_backward(inner, own, self.shape.gate, behind, dots)
        of_choices = dots[order.place.long()].view(-1, self.shape.per_token)
        if last.bias is not None:
            of_choices += torch.mm(slopes, last.bias.t()).gather(1, choice.experts[rows])
        if last.num_ranks:
            last.shrink(inner, order, False, of_down)
            of_down.mul_(behind[:, None])
            to_down.mul_(behind[:, None])
            last.accumulate(slopes, inner, order, (True, False), of_down, to_down)
        first.input_gradient(own, order, outputs, False, to_shrunk)
        if inside is not None:
            self._dots_of_inputs(outputs, numbers, order, to_x, of_choices)
            own.mul_(inside)
            to_shrunk.mul_(inside)
        to_weights[rows] = of_choices
        first.accumulate(own, numbers, order, (False, True), shrunk, to_shrunk)
        expert_rows.combine(outputs, order, choice.weights[rows].contiguous() if self.shape.scores else None, to_x)

    def _dots_of_inputs(
        self, slopes: torch.Tensor, x: torch.Tensor, order: Order, room: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Write the gradients of weights that multiply what experts read, [T, k]; `room`, [T, hidden], is scratch."""
        places = order.place.view(-1, self.shape.per_token)
        for number in range(self.shape.per_token):
            torch.index_select(slopes, 0, places[:, number], out=room)
            out[:, number] = torch.einsum("th,th->t", room, x)

    def _shared_backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        out: torch.Tensor,
        tile: Tile,
        choice: Choice,
        gradients: list[torch.Tensor],
    ) -> None:
        """Write the gradient of a tile's input that comes from the shared MLP, and that of its factor."""
        assert isinstance(self._shared, MlpBlock | PlainMlp), "a step of decoding goes forwards only"
        rows, buffers = tile.rows, tile.buffers
        if choice.factor is not None:
            slopes, wide = gradient[:, : self._hidden_size], buffers[7]
            output = wide[:, : self._hidden_size]
            # Its output is not kept; the shared MLP is small.
            self._shared.forward(x, output, tile.of_shared, True, first_row=rows.start)
            gradients[1][rows] = (slopes.to(choice.weights.dtype) * output).sum(1, keepdim=True)
            torch.mul(slopes, choice.factor[rows].to(slopes.dtype), out=output)
            gradient = wide
        elif self.shape.shared_scale != 1.0:
            # What the experts' outputs were in is free by now.
            room = buffers[7] if len(buffers) > 7 else buffers[1]
            wide = room.view(-1)[: len(x) * gradient.shape[1]].view(len(x), -1)
            torch.mul(gradient[:, : self._hidden_size], self.shape.shared_scale, out=wide[:, : self._hidden_size])
            gradient = wide
        self._shared.backward(gradient, x, out, tile.of_shared, first_row=rows.start)

    # Parts

    def _tile(self, rows: slice, gate_up: torch.Tensor | None, sent: torch.Tensor | None, choice: Choice) -> Tile:
        """Return a tile of a micro-batch; the shared MLP has no room for gate and up if it computes them again."""
        num_tokens, order = rows.stop - rows.start, order_of(choice.experts[rows], self.shape.num_experts)
        shapes, room = self._block(num_tokens), sent if gate_up is None else gate_up[rows]
        is_there = room is not None
        if room is None:
            *buffers, room = self._workspace.carve("sparse", *shapes, (num_tokens, self.gate_up_width))
        else:
            buffers = self._workspace.carve("sparse", *shapes)
        flat, num_numbers = room.view(-1), num_tokens * self._own_width
        own, of_shared = flat[:num_numbers].view(-1, 2 * self.shape.width), None
        if self._shared and (is_there or self.lends_room):
            of_shared = flat[num_numbers:].view(num_tokens, -1)
        return Tile(rows, order, buffers, own, of_shared, is_there)

    def _tiles(self, num_tokens: int) -> Iterator[slice]:
        for start in range(0, num_tokens, self._tile_tokens):
            yield slice(start, min(start + self._tile_tokens, num_tokens))


def _of_rows(weights: torch.Tensor, order: Order) -> torch.Tensor:
    """Return the weights of choices, [T, k], as those of rows, [M, 1]."""
    return weights.reshape(-1)[order.choice][:, None]
