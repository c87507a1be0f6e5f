"""The channel-wise delta rule in attention's place: projections, convolution, rule, gated norm, output projection.

The backward pass computes convolution, decays, states and norm again from the projections; see `ChannelDeltaShape`.

# T tokens, C channels of q, k and v, V numbers of all values, K of all keys, H heads, R columns of the adapters
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from tunesmith_engine.attention import shared
from tunesmith_engine.fused.attention_block import inputs_backward, num_parts
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.state_block import StateBlock
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import channel_delta
from tunesmith_engine.kernels.channel_delta_twin import Gates, logarithms
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.kernels.delta_rule import unit_rows
from tunesmith_engine.kernels.gated_norm import SIGMOID_HEADS, gated_norm, gated_norm_backward
from tunesmith_engine.kernels.state_step import Tokens
from tunesmith_engine.mixer_shapes import ChannelDeltaShape
from tunesmith_engine.packed.batch import Documents


class Room(NamedTuple):
    """Places of a block's intermediate results.

    Attributes:
        mixed: convolved channels, [T, C]; to_mixed: their gradient.
        to_heads: gradient of the rule's output, [T, V].
        to_inputs: of what the inputs give, [T, columns + R].
        to_expanded: of what either expansion gives, [T, V or K + R], without columns where there is none.
    """

    mixed: torch.Tensor
    to_mixed: torch.Tensor
    to_heads: torch.Tensor
    to_inputs: torch.Tensor
    to_expanded: tuple[torch.Tensor, torch.Tensor]


class ChannelDeltaBlock(StateBlock):
    """The buffer of what the inputs give holds, behind that, what the expansions give.

    Attributes:
        expansions: from latents to the output's gates and to the decays' raw gates; None where there are no latents.
    """

    shape: ChannelDeltaShape

    def __init__(
        self,
        shape: ChannelDeltaShape,
        inputs: Projection | PlainModules,
        output: Projection | PlainModules,
        expansions: tuple[Projection | PlainModules | None, Projection | PlainModules | None],
        workspace: Workspace,
        capacity_tokens: int,
        numbers_at_once: int,
    ) -> None:
        self.shape, self.inputs, self.output, self.expansions = shape, inputs, output, expansions
        self._workspace, self._numbers_at_once = workspace, numbers_at_once
        self._rate = shape.decay_log.float().flatten().exp()
        self._bias = shape.decay_bias.float().view(shape.num_heads, shape.key_dim)
        self._widths = shape.numbers_per_token, shape.num_keys
        self.qkv_width = shape.num_columns
        self.qkv_width += sum(width for width, part in zip(self._widths, expansions, strict=True) if part)
        self.heads_width = shape.numbers_per_token
        workspace.reserve("block", *self._block(capacity_tokens))
        workspace.reserve("gated", (capacity_tokens, self.heads_width + output.num_extra))
        workspace.reserve("latents", (capacity_tokens, self._widest))

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of what `Room` names."""
        widths = [self.shape.num_channels, self.shape.num_channels, self.heads_width]
        widths.append(self.shape.num_columns + self.inputs.num_extra)
        for width, part in zip(self._widths, self.expansions, strict=True):
            widths.append(width + part.num_extra if part else 0)
        return [(num_tokens, width) for width in widths]

    @property
    def _widest(self) -> int:
        """Width of latents with room for adapter columns: one sort at a time."""
        return max((part.num_inputs + part.num_extra for part in self.expansions if part), default=0)

    def _room(self, num_tokens: int) -> Room:
        mixed, to_mixed, to_heads, to_inputs, *both = self._workspace.carve("block", *self._block(num_tokens))
        return Room(mixed, to_mixed, to_heads, to_inputs, (both[0], both[1]))

    def may_be_captured(self, documents: Documents, tensor: torch.Tensor) -> bool:  # noqa: ARG002 (as attention has it)
        """Return whether a graph of a batch serves others of the same sizes."""
        return channel_delta.runs(tensor.dtype, tensor.device)

    # Forward

    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:  # noqa: ARG002 (as attention has it)
        """Write what inputs and expansions give, from the normalised input [T, hidden + R]."""
        self.inputs.forward(x, qkv[:, : self.shape.num_columns], with_adapter)
        for place, part in enumerate(self.expansions):
            if part:
                part.forward(self._latents(qkv, place, part), self._gate(qkv, place), with_adapter)

    def _rule(self, mixed: torch.Tensor, qkv: torch.Tensor, documents: Documents, out: torch.Tensor) -> None:
        raw, beta = self._gates(qkv, documents)
        for some in self._parts(len(mixed)):
            gates = self._some(raw, some)
            q, k, v = self._heads(mixed, some)
            channel_delta.forward(q, k, v, gates, beta[:, some], documents.bounds, self._values(out)[:, some])

    def tokens(self, mixed: torch.Tensor, qkv: torch.Tensor) -> Tokens:
        """Return what tokens do to states, from their convolved channels and from what `project` wrote."""
        q, k, v = self._heads(mixed, slice(None))
        decay, _ = logarithms(self._some(self._gate(qkv, 1), slice(None)))
        return Tokens(*unit_rows(q, k), v, decay, self._strengths(qkv).sigmoid())

    # Backward

    def backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        qkv: torch.Tensor,
        heads: torch.Tensor,
        saved: tuple[tuple[torch.Tensor, ...], ...],  # noqa: ARG002 (as attention has it)
        rotary: Rotary,  # noqa: ARG002 (as attention has it)
        documents: Documents,
        out: torch.Tensor | None,
    ) -> None:
        """Write the gradient of the normalised input and add those of the adapters; see `AttentionBlock.backward`."""
        room, gated = self._room(len(qkv)), self._gated(qkv, heads)
        self._output_backward(gradient, gated, room.to_heads)
        to_z, to_raw = (self._to_gate(room, place) for place in (0, 1))
        norm, to_heads = self.shape.norm, room.to_heads
        gated_norm_backward(to_heads, heads, self._gate(qkv, 0), norm, to_heads, to_z, SIGMOID_HEADS)
        self._rule_backward(room, to_raw, qkv, documents)
        # From the last to the first, as in any backward pass.
        for place, part in reversed([*enumerate(self.expansions)]):
            if part:
                self._expansion_backward(place, part, qkv, room)
        columns = qkv[:, : self.shape.num_columns]
        inputs_backward(self.inputs, None, columns, room.to_inputs, x, out, self._workspace)

    def _rule_backward(self, room: Room, to_raw: torch.Tensor, qkv: torch.Tensor, documents: Documents) -> None:
        """Write the gradients of q, k, v, b and the decays' raw gates, from that of the rule's output."""
        channels, mixed = self.convolved(qkv, documents)
        raw, beta = self._gates(qkv, documents)
        to_heads, to_mixed = shared.slopes(room.to_heads, documents), room.to_mixed
        places = room.to_inputs[:, : self.shape.num_channels], to_raw, self._strengths(room.to_inputs)
        to_channels, to_decays = places[:2]
        if documents.shared is not None:
            to_mixed, to_channels, to_decays = torch.empty_like(mixed), torch.empty_like(mixed), torch.empty_like(raw)
        to_beta = torch.empty_like(beta)
        for some in self._parts(len(mixed)):
            gates, (q, k, v) = self._some(raw, some), self._heads(mixed, some)
            outs = *self._heads(to_mixed, some), self._keys(to_decays)[:, some], to_beta[:, some]
            slope = self._values(to_heads)[:, some]
            channel_delta.backward(slope, q, k, v, gates, beta[:, some], documents.bounds, outs)
        self._convolved_backward(to_mixed, channels, documents, to_channels)
        to_b = torch.ops.aten.sigmoid_backward(to_beta, beta)
        if documents.shared is None:
            places[2].copy_(to_b)
            return
        for found, place in zip((to_channels, to_decays, to_b), places, strict=True):
            shared.collect(found, documents.shared, place)

    def _expansion_backward(self, place: int, part: Projection | PlainModules, qkv: torch.Tensor, room: Room) -> None:
        """Go through one expansion, from the gradient [T, N + R] to that of the latents."""
        latents, gradient = self._latents(qkv, place, part), room.to_expanded[place]
        if isinstance(part, Projection):
            part.shrink(latents)
            if part.has_magnitudes:
                expanded = self._gate(qkv, place)
                part.add_to_magnitudes(column_dots(gradient[:, : expanded.shape[1]], expanded), gradient)
        part.backward(gradient, latents, room.to_inputs[:, self._columns(place)])

    # Parts

    def channels(self, qkv: torch.Tensor) -> torch.Tensor:
        return qkv[:, : self.shape.num_channels]

    def _columns(self, place: int) -> slice:
        """Return where the inputs give the output's gates (0) or the raw gates of the decays (1), or their latents."""
        first = self.shape.num_channels + (self.shape.gate_columns if place else 0)
        return slice(first, first + (self.shape.decay_columns if place else self.shape.gate_columns))

    def _gate(self, qkv: torch.Tensor, place: int) -> torch.Tensor:
        """Return the output's gates, [T, V], or the raw gates of the decays, [T, K]."""
        if self.expansions[place] is None:
            return qkv[:, self._columns(place)]
        first = self.shape.num_columns + (self._widths[0] if place and self.expansions[0] else 0)
        return qkv[:, first : first + self._widths[place]]

    def _to_gate(self, room: Room, place: int) -> torch.Tensor:
        """Return where the gradient of what `_gate` returns is written."""
        if self.expansions[place] is None:
            return room.to_inputs[:, self._columns(place)]
        return room.to_expanded[place][:, : self._widths[place]]

    def _strengths(self, columns: torch.Tensor) -> torch.Tensor:
        """Return the last columns of what the inputs give, or of its gradient, [T, H]."""
        return columns[:, self.shape.num_columns - self.shape.num_heads : self.shape.num_columns]

    def _latents(self, qkv: torch.Tensor, place: int, part: Projection | PlainModules) -> torch.Tensor:
        """Return latents in a place of their own, [T, N + R], whose last R columns are still to be written."""
        num_tokens, width = len(qkv), part.num_inputs + part.num_extra
        (room,) = self._workspace.carve("latents", (num_tokens, self._widest))
        latents = room.flatten()[: num_tokens * width].view(num_tokens, width)
        latents[:, : part.num_inputs].copy_(qkv[:, self._columns(place)])
        return latents

    def _gates(self, qkv: torch.Tensor, documents: Documents) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the decays' raw gates, [T, K], and the strengths, [T, H], of whole documents."""
        return shared.whole(self._gate(qkv, 1), documents), shared.whole(self._strengths(qkv), documents).sigmoid()

    def _some(self, raw: torch.Tensor, some: slice) -> Gates:
        """Return the gates of some heads."""
        return Gates(self._keys(raw)[:, some], self._bias[some], self._rate[some], self.shape.decay_floor)

    def _gated(self, qkv: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        (gated,) = self._workspace.carve("gated", (len(qkv), self.heads_width + self.output.num_extra))
        gated_norm(heads, self._gate(qkv, 0), self.shape.norm, gated[:, : self.heads_width], SIGMOID_HEADS)
        return gated

    def _keys(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.unflatten(1, (-1, self.shape.key_dim))

    def _values(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.unflatten(1, (-1, self.shape.value_dim))

    def _heads(self, mixed: torch.Tensor, some: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values of some heads."""
        num_keys = self.shape.num_keys
        q, k = (self._keys(part)[:, some] for part in mixed[:, : 2 * num_keys].chunk(2, 1))
        return q, k, self._values(mixed[:, 2 * num_keys :])[:, some]

    def _parts(self, num_tokens: int) -> Iterator[slice]:
        """Yield the heads that are computed one after another."""
        count = num_parts(self.shape, num_tokens, self._numbers_at_once)
        heads = self.shape.num_heads // count
        for part in range(count):
            yield slice(part * heads, (part + 1) * heads)
