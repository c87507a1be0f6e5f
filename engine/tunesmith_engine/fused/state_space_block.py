"""Mamba 2's state-space scan in attention's place: projection, short convolution, scan, gated norm, output projection.

The backward pass computes convolution, states and norm again from the projection; see `StateSpaceShape`.

# T tokens, C channels of x, b and c, V numbers of all heads, H heads, R columns of the adapters
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tunesmith_engine.attention import shared
from tunesmith_engine.fused.attention_block import num_parts
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.state_block import StateBlock
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import glu, state_space
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.kernels.gated_norm import Form, gated_norm, gated_norm_backward
from tunesmith_engine.kernels.state_step import Tokens
from tunesmith_engine.mixer_shapes import StateSpaceShape
from tunesmith_engine.packed.batch import Documents

GATE = "silu"
"""The activation of gates."""


class StateSpaceBlock(StateBlock):
    """The buffer of what the inputs give holds gates, x, b, c and raw steps: V + C + H columns."""

    shape: StateSpaceShape
    corrects = False

    def __init__(
        self,
        shape: StateSpaceShape,
        inputs: Projection | PlainModules,
        output: Projection | PlainModules,
        workspace: Workspace,
        capacity_tokens: int,
        numbers_at_once: int,
    ) -> None:
        self.shape, self.inputs, self.output = shape, inputs, output
        self._workspace, self._numbers_at_once = workspace, numbers_at_once
        self._num_values, self._num_channels = shape.numbers_per_token, shape.num_channels
        self.qkv_width = self._num_values + self._num_channels + shape.num_heads
        self.heads_width = self._num_values
        self._form = Form(shape.norm_width, shape.gate_first)
        workspace.reserve("block", *self._block(capacity_tokens))
        workspace.reserve("gated", (capacity_tokens, self._num_values + output.num_extra))

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of convolved channels, their gradient, that of the heads, and that of the inputs."""
        widths = [self._num_channels, self._num_channels, self._num_values, self.qkv_width + self.inputs.num_extra]
        return [(num_tokens, width) for width in widths]

    def may_be_captured(self, documents: Documents, tensor: torch.Tensor) -> bool:  # noqa: ARG002 (as attention has it)
        """Return whether a graph of a batch serves others of the same sizes."""
        return state_space.runs(tensor.dtype, tensor.device)

    # Forward

    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:  # noqa: ARG002 (as attention has it)
        """Write gates, x, b, c and raw steps, [T, V + C + H], from the normalised input [T, hidden + R]."""
        self.inputs.forward(x, qkv, with_adapter)
        if self.shape.scales is not None:
            qkv.mul_(self.shape.scales)

    def _rule(self, mixed: torch.Tensor, qkv: torch.Tensor, documents: Documents, out: torch.Tensor) -> None:
        raw = shared.whole(self._raw(qkv), documents)
        for some, groups in self._parts(len(mixed)):
            operands, steps = self._operands(mixed, some, groups), self._steps(raw, some)
            bounds, skip = documents.bounds, self.shape.skip[some]
            state_space.forward(*operands, steps, skip, bounds, self._heads(out)[:, some])

    def tokens(self, mixed: torch.Tensor, qkv: torch.Tensor) -> Tokens:
        """Return what tokens do to states, from their convolved channels and from what `project` wrote."""
        x, b, c = self._operands(mixed, slice(None), slice(None))
        steps, decay = state_space.steps_and_decays(self._steps(self._raw(qkv), slice(None)))
        return Tokens(c, b, x, decay[..., None].expand(-1, -1, b.shape[2]), steps)

    def add_skipped(self, mixed: torch.Tensor, heads: torch.Tensor) -> None:
        """Add the numbers that go past the states to what is read from them, [T, V]."""
        x = self._heads(mixed[:, : self._num_values]).to(heads.dtype)
        self._heads(heads).add_(x * self.shape.skip.to(heads.dtype)[:, None])

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
        z, to_z, norm = self._z(qkv), self._z(inside), self.shape.norm
        if norm is None:
            glu.gate_backward(to_heads, z, heads, GATE, to_z, to_heads)
        else:
            gated_norm_backward(to_heads, heads, z, norm, to_heads, to_z, self._form)
        self._scan_backward(to_heads, qkv, inside, documents)
        self._inputs_backward(qkv, to_qkv, x, out)

    def _scan_backward(
        self, to_heads: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, documents: Documents
    ) -> None:
        """Write the gradients of x, b, c and raw steps to their columns of `out`, from that of the scan's output."""
        channels, mixed = self.convolved(qkv, documents)
        raw = shared.whole(self._raw(qkv), documents)
        to_mixed = self._workspace.carve("block", *self._block(len(qkv)))[1]
        to_channels, to_raw = self.channels(out), self._raw(out)
        to_heads = shared.slopes(to_heads, documents)
        if documents.shared is not None:
            to_mixed, to_channels, to_raw = torch.empty_like(mixed), torch.empty_like(mixed), torch.empty_like(raw)
        for some, groups in self._parts(len(mixed)):
            operands, steps = self._operands(mixed, some, groups), self._steps(raw, some)
            outs = *self._operands(to_mixed, some, groups), to_raw[:, some]
            bounds, skip = documents.bounds, self.shape.skip[some]
            state_space.backward(self._heads(to_heads)[:, some], *operands, steps, skip, bounds, outs)
        self._convolved_backward(to_mixed, channels, documents, to_channels)
        if documents.shared is not None:
            shared.collect(to_channels, documents.shared, self.channels(out))
            shared.collect(to_raw, documents.shared, self._raw(out))

    def _inputs_backward(
        self, qkv: torch.Tensor, to_qkv: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None
    ) -> None:
        """Go through the input projection; `qkv` holds its output times the scales."""
        scales, inside = self.shape.scales, to_qkv[:, : self.qkv_width]
        dots = column_dots(inside, qkv) if self.inputs.has_magnitudes else None
        if scales is not None:
            inside.mul_(scales)
        if dots is not None and isinstance(self.inputs, Projection):
            self.inputs.add_to_magnitudes(dots, to_qkv)
        self.inputs.backward(to_qkv, x, out)

    # Parts

    def _gated(self, qkv: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        (gated,) = self._workspace.carve("gated", (len(qkv), self._num_values + self.output.num_extra))
        out, norm = gated[:, : self._num_values], self.shape.norm
        if norm is None:
            glu.gate_and_multiply(self._z(qkv), heads, GATE, out)
        else:
            gated_norm(heads, self._z(qkv), norm, out, self._form)
        return gated

    def _z(self, qkv: torch.Tensor) -> torch.Tensor:
        return qkv[:, : self._num_values]

    def channels(self, qkv: torch.Tensor) -> torch.Tensor:
        return qkv[:, self._num_values : self._num_values + self._num_channels]

    def _raw(self, qkv: torch.Tensor) -> torch.Tensor:
        return qkv[:, self._num_values + self._num_channels : self.qkv_width]

    def _heads(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.unflatten(1, (-1, self.shape.head_dim))

    def _operands(
        self, mixed: torch.Tensor, some: slice, groups: slice
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return x of some heads, and b and c of their groups."""
        states = (self.shape.num_groups, self.shape.state_dim)
        b, c = (part.unflatten(1, states)[:, groups] for part in mixed[:, self._num_values :].chunk(2, 1))
        return self._heads(mixed[:, : self._num_values])[:, some], b, c

    def _steps(self, raw: torch.Tensor, some: slice) -> state_space.Steps:
        shape = self.shape
        return state_space.Steps(raw[:, some], shape.step_bias[some], shape.decay_log[some], shape.limits)

    def _parts(self, num_tokens: int) -> Iterator[tuple[slice, slice]]:
        """Yield the heads and the groups that are computed one after another."""
        count = num_parts(self.shape, num_tokens, self._numbers_at_once)
        heads, groups = self.shape.num_heads // count, self.shape.num_groups // count
        for part in range(count):
            yield slice(part * heads, (part + 1) * heads), slice(part * groups, (part + 1) * groups)
