"""One decoder layer, forward and backward, with its activations kept, sent out or computed again as a policy says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tunesmith_engine.fused.activations import ActivationStore, LayerBuffers
from tunesmith_engine.fused.attention_block import AttentionBlock
from tunesmith_engine.fused.channel_delta_block import ChannelDeltaBlock
from tunesmith_engine.fused.convolution_block import ConvolutionBlock
from tunesmith_engine.fused.delta_block import DeltaBlock
from tunesmith_engine.fused.experts import Experts
from tunesmith_engine.fused.latent_block import LatentBlock
from tunesmith_engine.fused.laurel_block import LaurelBlock
from tunesmith_engine.fused.mlp_block import MlpBlock, PlainMlp
from tunesmith_engine.fused.parallel_block import Columns, ParallelBlock
from tunesmith_engine.fused.per_layer_block import PerLayerBlock
from tunesmith_engine.fused.plain_documents import PlainMixer
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.sparse_block import SparseBlock
from tunesmith_engine.fused.state_space_block import StateSpaceBlock
from tunesmith_engine.fused.weight_gradients import WeightGradients
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import rms_norm
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.kernels.copy_rows import copy_rows
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.shapes import LayerShape

Mixer = (
    AttentionBlock
    | DeltaBlock
    | ChannelDeltaBlock
    | ConvolutionBlock
    | StateSpaceBlock
    | LatentBlock
    | ParallelBlock
    | PlainMixer
)
"""Attention, or what a layer has in its place."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What all layers share while a micro-batch goes through them."""

    batch: PackedBatch
    rotary: Mapping[str, Rotary]
    store: ActivationStore
    workspace: Workspace
    with_adapter: bool
    with_gradients: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a parallel MLP leaves until attention has gone backward.

    Attributes:
        gradient: of its norm's output where attention reads the same norm, else of the layer's input, [T, hidden].
        statistics: of that same norm, or None.
    """

    gradient: torch.Tensor
    statistics: torch.Tensor | None


class FusedLayer:
    """Runs one layer, whose attention or MLP is None where it has the other block alone.

    The stream between layers is a pair: the residual stream and the last block's output, not yet added to it. The next
    norm adds them in the pass in which it reads them anyway. Where there is more behind the MLP, the second is None.
    Where what a norm gives is the stream as well, it stays where the blocks read it.
    """

    def __init__(
        self,
        index: int,
        shape: LayerShape,
        attention: Mixer | None,
        mlp: MlpBlock | PlainMlp | SparseBlock | None,
        hidden_size: int,
        gradient_width: int,
        gradients: WeightGradients | None = None,
        per_layer: PerLayerBlock | None = None,
        laurel: LaurelBlock | None = None,
    ) -> None:
        self.index, self.shape, self._gradients = index, shape, gradients
        self.attention, self.mlp, self._per_layer, self._laurel = attention, mlp, per_layer, laurel
        self._hidden_size, self._gradient_width = hidden_size, gradient_width
        self._saved: tuple[tuple[torch.Tensor, ...], ...] = ()
        parts: list[Projection | PlainModules | Experts] = []
        for block in (attention, mlp, per_layer, laurel):
            parts += _parts_of(block)
        self._plain = [part for part in parts if isinstance(part, PlainModules)]
        # Where what the MLP reads is left: the input of a layer that has nothing before it.
        self._middle = "x_mid" if attention else "x"
        # A norm behind a block needs the block's output for its gradient, and so do DoRA's magnitudes; a third block
        # and AltUp read what is behind the MLP.
        self._keeps_attention_output = attention is not None and (
            shape.post_attention_norm is not None or attention.output.has_magnitudes
        )
        reads_end = per_layer is not None or shape.altup is not None
        self._keeps_mlp_output = mlp is not None and (
            shape.post_mlp_norm is not None or mlp.down.has_magnitudes or reads_end
        )

    def buffers(self, keep_gate_up: bool, dtype: torch.dtype) -> LayerBuffers:
        """Return what the forward pass leaves, and which of it stays under which level of the policy."""
        stream, blocks, inner = {"x"}, set[str](), set[str]()
        widths = {"x": self._hidden_size}
        if self.attention:
            widths |= {"qkv": self.attention.qkv_width, "heads": self.attention.heads_width}
            inner = {"qkv", "heads"}
        if self._keeps_attention_output:
            widths["attention_output"] = self._hidden_size
            blocks.add("attention_output")
        gate_up_width = self.mlp.gate_up_width if self.mlp else 0
        if self.mlp and self.attention:
            widths[self._middle] = self._hidden_size
            blocks.add(self._middle)
        if self._keeps_mlp_output:
            widths["mlp_output"] = self._hidden_size
            stream.add("mlp_output")
        if keep_gate_up and gate_up_width:
            widths["gate_up"] = gate_up_width
        kept = {
            "none": frozenset(widths),
            "mlp": frozenset(stream | blocks | inner),
            "smart": frozenset(stream | blocks),
            "full": frozenset(stream),
        }
        tile = (gate_up_width, dtype) if gate_up_width and not keep_gate_up else None
        return LayerBuffers({name: (width, dtype) for name, width in widths.items()}, kept, tile=tile)

    # Forward

    def forward(
        self, x: torch.Tensor, pending: torch.Tensor | None, now: Pass
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Go through the layer; x and pending are [T, hidden], and so is what is returned."""
        self.begin_forward()
        x, y = self.through(x, pending, now.store.forward(self.index, now.batch.num_tokens), now)
        ends_here = self._per_layer is not None or self.shape.output_scale != 1.0
        if ends_here:
            self._end(x, y, self.input_region(now), now.with_adapter)
        if now.with_gradients:
            now.store.forward_done(self.index)
        return (y, None) if ends_here else (x, y)

    def begin_forward(self) -> None:
        """Let parts that run as written draw new random numbers from now on."""
        for part in self._plain:
            part.begin_forward()

    def through(
        self, x: torch.Tensor, pending: torch.Tensor | None, kept: dict[str, torch.Tensor], now: Pass
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Go through attention and MLP; return the stream and the last block's output, [T, hidden] each."""
        normed, y = self.input_region(now), self.output_region(now)[:, : self._hidden_size]
        if self.attention:
            self._add_norm(x, pending, self.shape.input_norm, normed, kept["x"])
            self._attend(self.attention, kept, normed, now, now.with_adapter)
            self._attention_output(self.attention, kept, y, now.with_adapter)
            x, pending = self._stream(kept["x"], normed), y
            if self._laurel:
                self._laurel.join(x, self._with_columns(normed, self._laurel.left), y, now.with_adapter)
                x, pending = y, None
        if self.mlp:
            self._mlp_forward(self.mlp, x, pending, kept, now)
            x = self._stream(kept[self._middle], normed)
        return x, y

    def _attend(
        self, attention: Mixer, kept: dict[str, torch.Tensor], normed: torch.Tensor, now: Pass, with_adapter: bool
    ) -> None:
        """Write what attention's own buffers hold, from the normalised input."""
        rotary = now.rotary[self.shape.rotary_kind]
        attention.project(self._with_columns(normed, attention.inputs), kept["qkv"], rotary, with_adapter)
        self._saved = attention.attend(kept["qkv"], kept["heads"], rotary, now.batch.documents)

    def _mlp_forward(
        self,
        mlp: MlpBlock | PlainMlp | SparseBlock,
        x: torch.Tensor,
        pending: torch.Tensor | None,
        kept: dict[str, torch.Tensor],
        now: Pass,
    ) -> None:
        """Write what the MLP reads, x + pending, and its output, which is normalised where the model does that."""
        shape, middle = self.shape, kept[self._middle]
        normed, y = self.input_region(now), self.output_region(now)[:, : self._hidden_size]
        if shape.parallel and pending is not None:
            self._add(x, pending, middle)
            if shape.mlp_norm:
                self._add_norm(x, None, shape.mlp_norm, normed, None)
        else:
            self._add_norm(x, pending, shape.mlp_norm, normed, middle)
        output = kept["mlp_output"] if self._keeps_mlp_output else y
        sent = now.store.tiles(self.index) if now.with_gradients else None
        mlp.forward(self._with_columns(normed, mlp.inputs), output, kept.get("gate_up"), now.with_adapter, sent)
        if shape.post_mlp_norm:
            rms_norm.add_norm(output, None, shape.post_mlp_norm, y)
        elif self._keeps_mlp_output:
            copy_rows(output, y)

    def _end(self, x: torch.Tensor, y: torch.Tensor, normed: torch.Tensor, with_adapter: bool) -> None:
        """Do what is behind the MLP, whose output y is, and write what leaves the layer there."""
        stream = normed[:, : self._hidden_size]
        self._add(x, y, stream)
        if self._per_layer:
            self._per_layer.forward(self._with_columns(normed, self._per_layer.gate), y, with_adapter)
            torch.add(stream, y, out=y)
        else:
            copy_rows(stream, y)
        if self.shape.output_scale != 1.0:
            y.mul_(self.shape.output_scale)

    def _end_backward(
        self, stream: torch.Tensor, kept: dict[str, torch.Tensor], normed: torch.Tensor, scratch: torch.Tensor
    ) -> None:
        """Turn the gradient of what leaves the layer into that of what is behind the MLP."""
        if self.shape.output_scale != 1.0:
            stream.mul_(self.shape.output_scale)
        if self._per_layer:
            hidden = self._hidden_size
            self.write_end(kept, normed[:, :hidden], scratch[:, :hidden])
            stream.add_(self._per_layer.backward(stream, self._with_columns(normed, self._per_layer.gate), scratch))

    def write_end(self, kept: dict[str, torch.Tensor], out: torch.Tensor, scratch: torch.Tensor) -> None:
        """Write once more what is behind the MLP, [T, hidden], whose output was kept."""
        output = kept["mlp_output"]
        if self.shape.post_mlp_norm:
            rms_norm.add_norm(output, None, self.shape.post_mlp_norm, scratch)
            output = scratch
        self._add(kept[self._middle], output, out)

    def _attention_output(
        self, attention: Mixer, kept: dict[str, torch.Tensor], y: torch.Tensor, with_adapter: bool
    ) -> None:
        """Write the attention block's output, normalised where the model does that."""
        norm = self.shape.post_attention_norm
        output = kept["attention_output"] if self._keeps_attention_output else y
        attention.put_out(kept["qkv"], kept["heads"], output, with_adapter)
        if norm:
            rms_norm.add_norm(output, None, norm, y)
        elif self._keeps_attention_output:
            copy_rows(output, y)

    # Backward

    def backward(self, gradient: torch.Tensor, now: Pass, first: bool) -> None:
        """Turn the gradient of the layer's output into that of its input, in place.

        Args:
            gradient: [T, gradient_width]; the columns behind the first `hidden` are scratch.
            now: as in the forward pass.
            first: nobody needs the input's gradient.
        """
        self.begin_backward()
        kept, missing = now.store.backward(self.index, now.batch.num_tokens)
        self.replay(kept, missing, now)
        self._end_backward(gradient[:, : self._hidden_size], kept, self.input_region(now), self.output_region(now))
        self.through_backward(gradient, kept, missing, now, first)
        now.store.backward_done(self.index)

    def begin_backward(self) -> None:
        """Let parts that run as written draw the random numbers of the forward pass again."""
        for part in self._plain:
            part.begin_backward()

    def through_backward(
        self,
        gradient: torch.Tensor,
        kept: dict[str, torch.Tensor],
        missing: frozenset[str],
        now: Pass,
        first: bool,
    ) -> None:
        """Go through MLP and attention, with what was missing computed again; see `backward`."""
        waiting = None
        if self.mlp:
            gate_up = None if "gate_up" in missing else kept.get("gate_up")
            waiting = self._mlp_backward(self.mlp, gradient, kept, gate_up, now)
        if self.attention:
            self._attention_backward(self.attention, gradient, kept, waiting, now, first)
        self._saved = ()

    def _mlp_backward(
        self,
        mlp: MlpBlock | PlainMlp | SparseBlock,
        gradient: torch.Tensor,
        kept: dict[str, torch.Tensor],
        gate_up: torch.Tensor | None,
        now: Pass,
    ) -> Waiting | None:
        """Go through the MLP and its norm: add to the stream's gradient, or return what waits for attention's."""
        num_tokens, shape = now.batch.num_tokens, self.shape
        normed, scratch = self.input_region(now), self.output_region(now)
        to_input, stream = scratch[:, : self._hidden_size], gradient[:, : self._hidden_size]
        to_block = self._block_gradient(gradient, shape.post_mlp_norm, kept.get("mlp_output"), mlp.down, scratch)
        self._add_to_magnitudes(mlp.down, to_block, kept.get("mlp_output"))
        norm = shape.mlp_norm or (shape.input_norm if shape.parallel else None)
        to_mlp = kept["x"] if shape.parallel else kept[self._middle]
        statistics = self._add_norm(to_mlp, None, norm, normed, None)
        mlp.backward(to_block, self._with_columns(normed, mlp.inputs), to_input, gate_up, now.store.tiles(self.index))
        if not shape.parallel:
            self._norm_backward(to_input, to_mlp, norm, statistics, stream)
            return None
        # Attention's part of the gradient is that of the stream alone, so this one waits.
        from_mlp: torch.Tensor
        (from_mlp,) = now.workspace.carve("parallel", (num_tokens, self._hidden_size))
        from_mlp.copy_(to_input)
        if shape.mlp_norm is not None and statistics is not None:
            self._through_norm(from_mlp, to_mlp, shape.mlp_norm, statistics, from_mlp)
        return Waiting(from_mlp, statistics if shape.mlp_norm is None else None)

    def _attention_backward(
        self,
        attention: Mixer,
        gradient: torch.Tensor,
        kept: dict[str, torch.Tensor],
        waiting: Waiting | None,
        now: Pass,
        first: bool,
    ) -> None:
        """Go through attention and its norm, and add what a parallel MLP left."""
        shape = self.shape
        normed, scratch = self.input_region(now), self.output_region(now)
        to_input, stream = scratch[:, : self._hidden_size], gradient[:, : self._hidden_size]
        if self._laurel:
            stream.mul_(self._laurel.shape.factor)
        norm, output = shape.post_attention_norm, kept.get("attention_output")
        to_block = self._block_gradient(gradient, norm, output, attention.output, scratch)
        self._add_to_magnitudes(attention.output, to_block, output)
        # Where both blocks read the same norm, the MLP has left it.
        statistics = waiting.statistics if waiting else None
        if statistics is None:
            statistics = self._add_norm(kept["x"], None, shape.input_norm, normed, None)
        wide = self._with_columns(normed, attention.inputs)
        if isinstance(attention.inputs, Projection):
            attention.inputs.shrink(wide)
        rotary, documents = now.rotary[shape.rotary_kind], now.batch.documents
        out = None if first else to_input
        attention.backward(to_block, wide, kept["qkv"], kept["heads"], self._saved, rotary, documents, out)
        if self._laurel:
            self._laurel.backward(stream, self._with_columns(normed, self._laurel.left), out)
        if first:
            return
        if waiting and shape.mlp_norm is None:
            to_input.add_(waiting.gradient)
        self._norm_backward(to_input, kept["x"], shape.input_norm, statistics, stream)
        if waiting and shape.mlp_norm is not None:
            stream.add_(waiting.gradient)

    def replay(self, kept: dict[str, torch.Tensor], missing: frozenset[str], now: Pass) -> None:
        """Compute again what was not kept; never the MLP's output projection."""
        attention, missing = self.attention, missing - {"gate_up"}
        if attention is None or not missing:
            return
        normed, scratch = self.input_region(now), self.output_region(now)[:, : self._hidden_size]
        self._add_norm(kept["x"], None, self.shape.input_norm, normed, None)
        self._attend(attention, kept, normed, now, True)
        if not missing & {"x_mid", "attention_output"}:
            attention.fill_columns(kept["heads"])
            return
        self._attention_output(attention, kept, scratch, True)
        if "x_mid" in missing and self._laurel:
            self._laurel.join(kept["x"], self._with_columns(normed, self._laurel.left), scratch, True)
            kept["x_mid"].copy_(scratch)
        elif "x_mid" in missing:
            self._add(self._stream(kept["x"], normed), scratch, kept["x_mid"])

    def _block_gradient(
        self,
        gradient: torch.Tensor,
        norm: Norm | None,
        output: torch.Tensor | None,
        last: Projection | PlainModules | Experts | Columns,
        scratch: torch.Tensor,
    ) -> torch.Tensor:
        """Return the gradient of a block's last projection, with room for that projection's adapter columns."""
        stream = gradient[:, : self._hidden_size]
        width = self._hidden_size + last.num_extra
        if norm is None and self.shape.residual_scale == 1.0:
            return gradient[:, :width]
        out = scratch[:, : self._hidden_size]
        if norm is None:
            torch.mul(stream, self.shape.residual_scale, out=out)
        elif output is not None:
            # Only the statistics are needed; what else is written here is overwritten next.
            statistics = rms_norm.add_norm(output, None, norm, out)
            if self._gradients:
                self._gradients.add_norm(norm, stream, output, statistics, self.shape.residual_scale)
            rms_norm.norm_backward(stream, output, norm, statistics, out)
            if self.shape.residual_scale != 1.0:
                out.mul_(self.shape.residual_scale)
        return scratch[:, :width]

    # Parts

    def _add_to_magnitudes(
        self, last: Projection | PlainModules | Experts | Columns, gradient: torch.Tensor, output: torch.Tensor | None
    ) -> None:
        """Add the gradient of DoRA's magnitudes in a block's last projection."""
        if isinstance(last, Projection) and last.has_magnitudes and output is not None:
            last.add_to_magnitudes(column_dots(gradient[:, : self._hidden_size], output), gradient)

    def input_region(self, now: Pass) -> torch.Tensor:
        """Return where what a block reads lies, [T, gradient_width]."""
        return now.workspace.carve("input", (now.batch.num_tokens, self._gradient_width))[0]

    def output_region(self, now: Pass) -> torch.Tensor:
        """Return where what a block gives lies, [T, gradient_width]."""
        return now.workspace.carve("output", (now.batch.num_tokens, self._gradient_width))[0]

    def _with_columns(
        self, normed: torch.Tensor, projection: Projection | PlainModules | Experts | Columns
    ) -> torch.Tensor:
        return normed[:, : self._hidden_size + projection.num_extra]

    def _stream(self, total: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
        """Return what a block's output is added to: the sum that its norm read, or what the norm gave."""
        return normed[:, : self._hidden_size] if self.shape.norms_stream else total

    def _add(self, x: torch.Tensor, pending: torch.Tensor, total: torch.Tensor) -> None:
        if self.shape.residual_scale == 1.0:
            torch.add(x, pending, out=total)
        else:
            torch.add(x, pending * self.shape.residual_scale, out=total)

    def _add_norm(
        self,
        x: torch.Tensor,
        pending: torch.Tensor | None,
        norm: Norm | None,
        normed: torch.Tensor,
        total: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Write x + pending to `total` and its norm to the first columns of `normed`; return the norm's statistics."""
        out = normed[:, : self._hidden_size]
        if norm is not None:
            return rms_norm.add_norm(x, pending, norm, out, total, self.shape.residual_scale)
        if total is not None:
            total.copy_(x) if pending is None else self._add(x, pending, total)
            x = total
        out.copy_(x)
        return None

    def _norm_backward(
        self,
        to_normed: torch.Tensor,
        total: torch.Tensor,
        norm: Norm | None,
        statistics: torch.Tensor | None,
        stream: torch.Tensor,
    ) -> None:
        """Add the gradient that came through a norm to that of the residual stream."""
        if norm is None or statistics is None:
            stream.add_(to_normed)
        elif self.shape.norms_stream:
            stream.add_(to_normed)
            self._through_norm(stream, total, norm, statistics, stream)
        else:
            self._through_norm(to_normed, total, norm, statistics, stream, stream)

    def _through_norm(
        self,
        to_normed: torch.Tensor,
        total: torch.Tensor,
        norm: Norm,
        statistics: torch.Tensor,
        out: torch.Tensor,
        residual: torch.Tensor | None = None,
    ) -> None:
        """Write the gradient of a norm's input, with that of the residual stream added if it is given."""
        if self._gradients:
            self._gradients.add_norm(norm, to_normed, total, statistics)
        rms_norm.norm_backward(to_normed, total, norm, statistics, out, residual=residual)


def _parts_of(
    block: Mixer | MlpBlock | PlainMlp | SparseBlock | PerLayerBlock | LaurelBlock | None,
) -> list[Projection | PlainModules | Experts]:
    """Return what a block multiplies with."""
    if block is None:
        return []
    if isinstance(block, SparseBlock):
        return list(block.parts)
    if isinstance(block, MlpBlock | PlainMlp):
        return [block.inputs, block.down]
    if isinstance(block, PerLayerBlock):
        return [block.gate, block.output]
    if isinstance(block, LaurelBlock):
        return [block.left, block.right]
    if isinstance(block, ParallelBlock):
        return [part for branch in block.branches for part in _parts_of(branch)]
    parts: list[Projection | PlainModules | Experts] = [block.inputs, block.output]
    if isinstance(block, LatentBlock | ChannelDeltaBlock):
        parts += [part for part in block.expansions if part is not None]
    return parts
