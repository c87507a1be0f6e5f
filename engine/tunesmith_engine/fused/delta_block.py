"""The gated delta rule in attention's place: projections, short convolution, rule, gated norm, output projection.

The backward pass computes convolution, gates, states and norm again from the projections; see `DeltaShape`.

# T tokens, C channels of q, k and v, V numbers of all value heads, H value heads, R columns of the adapters
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional

from tunesmith_engine.attention import shared
from tunesmith_engine.fused.attention_block import inputs_backward, num_parts
from tunesmith_engine.fused.pieces import gather
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.state_block import StateBlock
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import delta_rule
from tunesmith_engine.kernels.gated_norm import gated_norm, gated_norm_backward
from tunesmith_engine.kernels.state_step import Tokens
from tunesmith_engine.mixer_shapes import DeltaShape
from tunesmith_engine.packed.batch import Documents

Gates = tuple[torch.Tensor, torch.Tensor]
"""Logarithms of the decays in float32 and strengths, [T, H] each."""


class DeltaBlock(StateBlock):
    """The buffer of what the inputs give holds q, k, v, z, b and a: C + V + 2 H columns."""

    shape: DeltaShape

    def __init__(
        self,
        shape: DeltaShape,
        inputs: Projection | PlainModules,
        output: Projection | PlainModules,
        workspace: Workspace,
        capacity_tokens: int,
        numbers_at_once: int,
    ) -> None:
        self.shape, self.inputs, self.output = shape, inputs, output
        self._workspace, self._numbers_at_once = workspace, numbers_at_once
        self._num_channels, self._num_values = shape.num_channels, shape.numbers_per_token
        self.qkv_width = self._num_channels + self._num_values + 2 * shape.num_heads
        self.heads_width = self._num_values
        workspace.reserve("block", *self._block(capacity_tokens))
        workspace.reserve("gated", (capacity_tokens, self._num_values + output.num_extra))
        if shape.pieces:
            workspace.reserve("product", (capacity_tokens, self.qkv_width + inputs.num_extra))

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of convolved channels, their gradient, that of the heads, and that of the inputs."""
        widths = [self._num_channels, self._num_channels, self._num_values, self.qkv_width + self.inputs.num_extra]
        return [(num_tokens, width) for width in widths]

    def may_be_captured(self, documents: Documents, tensor: torch.Tensor) -> bool:  # noqa: ARG002 (as attention has it)
        """Return whether a graph of a batch serves others of the same sizes."""
        return delta_rule.runs(tensor.dtype, tensor.device)

    # Forward

    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:  # noqa: ARG002 (as attention has it)
        """Write q, k, v, z, b and a, [T, C + V + 2 H], from the normalised input [T, hidden + R]."""
        if self.shape.pieces is None:
            self.inputs.forward(x, qkv, with_adapter)
            return
        (product,) = self._workspace.carve("product", (len(x), self.qkv_width))
        self.inputs.forward(x, product, with_adapter)
        gather(product, self.shape.pieces, qkv)

    def _rule(self, mixed: torch.Tensor, qkv: torch.Tensor, documents: Documents, out: torch.Tensor) -> None:
        gates = self._gates(shared.whole(qkv[:, self._num_channels + self._num_values :], documents))
        for some, groups in self._parts(len(mixed)):
            q, k, v = self._heads(mixed, some, groups)
            g, beta = (gate[:, some] for gate in gates)
            delta_rule.forward(q, k, v, g, beta, documents.bounds, self._values(out)[:, some])

    def tokens(self, mixed: torch.Tensor, qkv: torch.Tensor) -> Tokens:
        """Return what tokens do to states, from their convolved channels and from what `project` wrote."""
        decay, strength = self._gates(qkv[:, self._num_channels + self._num_values :])
        q, k, v = self._heads(mixed, slice(None), slice(None))
        return Tokens(*delta_rule.unit_rows(q, k), v, decay[..., None].expand(-1, -1, k.shape[2]), strength)

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
        *_, to_heads, to_qkv = self._workspace.carve("block", *self._block(len(qkv)))
        inside, gated = to_qkv[:, : self.qkv_width], self._gated(qkv, heads)
        self._output_backward(gradient, gated, to_heads)
        to_z = inside[:, self._num_channels :][:, : self._num_values]
        gated_norm_backward(to_heads, heads, self._z(qkv), self.shape.norm, to_heads, to_z)
        self._rule_backward(to_heads, qkv, inside, documents)
        inputs_backward(self.inputs, self.shape.pieces, qkv, to_qkv, x, out, self._workspace)

    def _rule_backward(
        self, to_heads: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, documents: Documents
    ) -> None:
        """Write the gradients of q, k, v, b and a to their columns of `out`, from that of the rule's output."""
        channels, mixed = self.convolved(qkv, documents)
        first = self._num_channels + self._num_values
        raw = shared.whole(qkv[:, first:], documents)
        gates = self._gates(raw)
        to_mixed = self._workspace.carve("block", *self._block(len(qkv)))[1]
        to_channels, to_raw = out[:, : self._num_channels], out[:, first:]
        to_heads = shared.slopes(to_heads, documents)
        if documents.shared is not None:
            to_mixed, to_channels, to_raw = torch.empty_like(mixed), torch.empty_like(mixed), torch.empty_like(raw)
        to_gates = [torch.empty_like(gate) for gate in gates]
        for some, groups in self._parts(len(mixed)):
            q, k, v = self._heads(mixed, some, groups)
            g, beta = (gate[:, some] for gate in gates)
            outs = *self._heads(to_mixed, some, groups), to_gates[0][:, some], to_gates[1][:, some]
            delta_rule.backward(self._values(to_heads)[:, some], q, k, v, g, beta, documents.bounds, outs)
        self._convolved_backward(to_mixed, channels, documents, to_channels)
        self._gates_backward(raw, gates, to_gates, to_raw)
        if documents.shared is not None:
            shared.collect(to_channels, documents.shared, out[:, : self._num_channels])
            shared.collect(to_raw, documents.shared, out[:, first:])

    # Parts

    def channels(self, qkv: torch.Tensor) -> torch.Tensor:
        return qkv[:, : self._num_channels]

    def _gates(self, raw: torch.Tensor) -> Gates:
        """Return the gates from b and a, [T, 2 H]."""
        b, a = raw.chunk(2, dim=1)
        return self._decay(a.dtype) * functional.softplus(self._biased(a)), b.sigmoid() * self.shape.strength

    def _gates_backward(
        self, raw: torch.Tensor, gates: Gates, slopes: Sequence[torch.Tensor], out: torch.Tensor
    ) -> None:
        """Write the gradients of b and a, [T, 2 H]."""
        _, a = raw.chunk(2, dim=1)
        (to_g, to_beta), strength = slopes, self.shape.strength
        to_b = torch.ops.aten.sigmoid_backward(to_beta * strength, gates[1] / strength)
        torch.cat([to_b, (to_g * self._decay(a.dtype) * self._biased(a).sigmoid()).to(out.dtype)], dim=1, out=out)

    def _decay(self, dtype: torch.dtype) -> torch.Tensor:
        return -self.shape.decay_log.to(torch.promote_types(dtype, torch.float32)).exp()

    def _biased(self, a: torch.Tensor) -> torch.Tensor:
        return a.to(torch.promote_types(a.dtype, torch.float32)) + self.shape.decay_bias

    def _gated(self, qkv: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        (gated,) = self._workspace.carve("gated", (len(qkv), self._num_values + self.output.num_extra))
        gated_norm(heads, self._z(qkv), self.shape.norm, gated[:, : self._num_values])
        return gated

    def _z(self, qkv: torch.Tensor) -> torch.Tensor:
        return qkv[:, self._num_channels : self._num_channels + self._num_values]

    def _values(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.unflatten(1, (-1, self.shape.value_dim))

    def _heads(
        self, mixed: torch.Tensor, some: slice, groups: slice
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries and keys of some key heads and values of their value heads."""
        num_keys = self.shape.num_key_heads * self.shape.key_dim
        q, k = (part.unflatten(1, (-1, self.shape.key_dim))[:, groups] for part in mixed[:, : 2 * num_keys].chunk(2, 1))
        return q, k, self._values(mixed[:, 2 * num_keys :])[:, some]

    def _parts(self, num_tokens: int) -> Iterator[tuple[slice, slice]]:
        """Yield the value heads and the key heads that are computed one after another."""
        count = num_parts(self.shape, num_tokens, self._numbers_at_once)
        heads, groups = self.shape.num_heads // count, self.shape.num_key_heads // count
        for part in range(count):
            yield slice(part * heads, (part + 1) * heads), slice(part * groups, (part + 1) * groups)
