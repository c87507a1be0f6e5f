"""A mixture of experts between its norm and the residual, in tiles of tokens; see `SparseShape`.

Rows of one expert lie behind each other, so a tile of tokens is a few products over all experts at once. What the last
product gave is never needed again: the gradient of a row's weight is that of its MLP's inner numbers times these. The
router runs once more in the backward pass, from the same input and with the same random numbers.

# T tokens of a tile, k experts of each, M = T k rows, F numbers of an expert's MLP, R columns of adapters
"""

from __future__ import annotations

from collections.abc import Iterator
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
        gate_up_width: numbers of a token that gate and up of its experts and of the shared MLP have.
    """

    inputs: Projection | PlainModules | Experts
    down: Projection | PlainModules | Experts

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
        shapes.append((num_tokens, self._hidden_size))
        wide = self._hidden_size + self.down.num_extra
        needs_room = self.shape.shared_scale != 1.0 and wide > self.shape.per_token * self._hidden_size
        if self.shape.shared_gate is not None or needs_room:
            shapes.append((num_tokens, wide))
        return shapes

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
        numbers = x[:, : self._hidden_size]
        with torch.no_grad():
            choice = self._router.choose(numbers)
        for number, rows in enumerate(self._tiles(len(x))):
            room = sent.write(number, rows.stop - rows.start) if sent else None
            buffers, tile = self._buffers(rows, gate_up, room)
            own, of_shared = self._halves(tile, gate_up is not None or room is not None)
            inner, outputs, shrunk, _, of_down, *_ = buffers
            order, added = order_of(choice.experts[rows], self.shape.num_experts), None
            self._experts.gate_up.forward(numbers[rows], order, own, True, shrunk, with_adapter, self._few_rows)
            weights = choice.weights[rows].contiguous()
            if self.shape.scores:
                # The product of what was multiplied is that of the product.
                own.mul_(_of_rows(weights, order))
            if self._shared:
                added = out[rows]
                self._shared.forward(x[rows], added, of_shared, with_adapter, first_row=rows.start)
                if choice.factor is not None:
                    added.mul_(choice.factor[rows])
                if self.shape.shared_scale != 1.0:
                    added.mul_(self.shape.shared_scale)
            if sent:
                sent.written(number)
            expert_rows.activate_rows(own, self.shape.gate, inner)
            self._experts.down.forward(inner, order, outputs, False, of_down, with_adapter, self._few_rows)
            expert_rows.combine(outputs, order, None if self.shape.scores else weights, out[rows], added)

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
            buffers, tile = self._buffers(rows, gate_up, there)
            is_there = gate_up is not None or there is not None
            own, of_shared = self._halves(tile, is_there)
            order = order_of(fixed.experts[rows], self.shape.num_experts)
            self._experts_backward(gradient[rows], x[rows], buffers, own, is_there, order, fixed, rows, gradients[0])
            if self._shared:
                self._shared_backward(gradient[rows], x[rows], out[rows], buffers, of_shared, fixed, rows, gradients)
                out[rows].add_(buffers[6])
            else:
                out[rows].copy_(buffers[6])
            if sent:
                sent.used(number)
        if self._router.balance and choice.logits is not None:
            probabilities, slopes = self._router.balance.gradient(choice.logits)
            parts, gradients = [*parts, probabilities], [*gradients, slopes]
        torch.autograd.backward(parts, gradients)
        if leaf.grad is not None:
            out.add_(leaf.grad)

    def _experts_backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        buffers: list[torch.Tensor],
        own: torch.Tensor,
        is_there: bool,
        order: Order,
        choice: Choice,
        rows: slice,
        to_weights: torch.Tensor,
    ) -> None:
        """Write the gradients of a tile's input and weights that come from its experts."""
        inner, outputs, shrunk, to_shrunk, of_down, to_down, to_x, *_ = buffers
        numbers, slopes = x[:, : self._hidden_size], gradient[:, : self._hidden_size]
        first, last = self._experts.gate_up, self._experts.down
        weights = _of_rows(choice.weights[rows], order).flatten()
        inside = weights[:, None] if self.shape.scores else None
        if is_there:
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
        buffers: list[torch.Tensor],
        gate_up: torch.Tensor | None,
        choice: Choice,
        rows: slice,
        gradients: list[torch.Tensor],
    ) -> None:
        """Write the gradient of a tile's input that comes from the shared MLP, and that of its factor."""
        assert isinstance(self._shared, MlpBlock | PlainMlp), "a step of decoding goes forwards only"
        if choice.factor is not None:
            slopes, wide = gradient[:, : self._hidden_size], buffers[7]
            output = wide[:, : self._hidden_size]
            # Its output is not kept; the shared MLP is small.
            self._shared.forward(x, output, gate_up, True, first_row=rows.start)
            gradients[1][rows] = (slopes.to(choice.weights.dtype) * output).sum(1, keepdim=True)
            torch.mul(slopes, choice.factor[rows].to(slopes.dtype), out=output)
            gradient = wide
        elif self.shape.shared_scale != 1.0:
            # What the experts' outputs were in is free by now.
            room = buffers[7] if len(buffers) > 7 else buffers[1]
            wide = room.view(-1)[: len(x) * gradient.shape[1]].view(len(x), -1)
            torch.mul(gradient[:, : self._hidden_size], self.shape.shared_scale, out=wide[:, : self._hidden_size])
            gradient = wide
        self._shared.backward(gradient, x, out, gate_up, first_row=rows.start)

    # Parts

    def _halves(self, tile: torch.Tensor, is_there: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return gate and up of the experts, [M, 2 F], and those of the shared MLP unless it computes them again."""
        num_tokens, flat = len(tile), tile.view(-1)
        num_numbers = num_tokens * self._own_width
        own = flat[:num_numbers].view(-1, 2 * self.shape.width)
        return own, flat[num_numbers:].view(num_tokens, -1) if is_there and self._shared else None

    def _buffers(
        self, rows: slice, gate_up: torch.Tensor | None, sent: torch.Tensor | None
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the buffers of a tile, see `_block`, and that of gate and up."""
        shapes = self._block(rows.stop - rows.start)
        own = sent if gate_up is None else gate_up[rows]
        if own is not None:
            return self._workspace.carve("sparse", *shapes), own
        *buffers, tile = self._workspace.carve("sparse", *shapes, (rows.stop - rows.start, self.gate_up_width))
        return buffers, tile

    def _tiles(self, num_tokens: int) -> Iterator[slice]:
        for start in range(0, num_tokens, self._tile_tokens):
            yield slice(start, min(start + self._tile_tokens, num_tokens))


def _of_rows(weights: torch.Tensor, order: Order) -> torch.Tensor:
    """Return the weights of choices, [T, k], as those of rows, [M, 1]."""
    return weights.reshape(-1)[order.choice][:, None]
