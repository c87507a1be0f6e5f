"""Which block runs what a layer has in attention's place."""

from __future__ import annotations

from collections.abc import Sequence

from tunesmith_engine.fused.attention_block import AttentionBlock
from tunesmith_engine.fused.channel_delta_block import ChannelDeltaBlock
from tunesmith_engine.fused.convolution_block import ConvolutionBlock
from tunesmith_engine.fused.delta_block import DeltaBlock
from tunesmith_engine.fused.latent_block import LatentBlock
from tunesmith_engine.fused.layer import Mixer
from tunesmith_engine.fused.layer_projections import LayerProjections
from tunesmith_engine.fused.parallel_block import ParallelBlock
from tunesmith_engine.fused.plain_documents import PlainDocuments, PlainMixer
from tunesmith_engine.fused.sharing_block import Loan, SharingBlock
from tunesmith_engine.fused.state_space_block import StateSpaceBlock
from tunesmith_engine.fused.weight_gradients import WeightGradients
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.mixer_shapes import (
    AttentionShape,
    ChannelDeltaShape,
    ConvolutionShape,
    DeltaShape,
    LatentShape,
    ParallelShape,
    StateSpaceShape,
)
from tunesmith_engine.shapes import LayerShape, Unfused, UnfusedLayer


def mixer_block(
    index: int,
    shape: LayerShape,
    parts: LayerProjections,
    workspace: Workspace,
    sizes: tuple[int, int],
    hidden_size: int,
    gradients: WeightGradients | None,
    loan: Loan | None,
) -> Mixer | None:
    """Return what a layer has between its first norm and the residual; see `AttentionBlock`.

    Args:
        index: of the layer.
        shape: of it.
        parts: what it multiplies with.
        workspace: where the block reserves what it needs.
        sizes: most tokens of a micro-batch, and most queries times their width at once.
        hidden_size: numbers of a token in the stream.
        gradients: of whole weights, or None.
        loan: see `loan_of`.
    """
    mixer = shape.attention
    if mixer is None:
        return None
    if isinstance(parts.attention_inputs, PlainDocuments):
        return PlainMixer(parts.attention_inputs)
    if not (parts.attention_inputs and parts.attention_output) or isinstance(mixer, Unfused):
        raise TypeError(f"{shape.name} has no attention that can be run.")
    around = parts.attention_inputs, parts.attention_output, workspace
    if isinstance(mixer, ParallelShape):
        return _parallel(mixer, parts, workspace, sizes, hidden_size, gradients)
    if isinstance(mixer, DeltaShape):
        return DeltaBlock(mixer, *around, *sizes)
    if isinstance(mixer, ChannelDeltaShape):
        return ChannelDeltaBlock(mixer, *around[:2], (parts.query_expansion, parts.expansion), workspace, *sizes)
    if isinstance(mixer, StateSpaceShape):
        return StateSpaceBlock(mixer, *around, *sizes)
    if isinstance(mixer, ConvolutionShape):
        return ConvolutionBlock(mixer, *around, sizes[0])
    if isinstance(mixer, LatentShape):
        assert parts.expansion is not None, "made with the others"
        both = parts.query_expansion, parts.expansion
        return LatentBlock(mixer, *around[:2], both, workspace, *sizes, gradients)
    if mixer.shares:
        return SharingBlock(index, loan, mixer, *around, *sizes, gradients)
    return AttentionBlock(mixer, *around, *sizes, gradients)


def _parallel(
    shape: ParallelShape,
    parts: LayerProjections,
    workspace: Workspace,
    sizes: tuple[int, int],
    hidden_size: int,
    gradients: WeightGradients | None,
) -> ParallelBlock:
    around = parts.attention_inputs, parts.attention_output, parts.scan_inputs, parts.scan_output
    first, second, third, fourth = (part for part in around if part is not None)
    attention = AttentionBlock(shape.attention, first, second, workspace, *sizes, gradients)
    scan = StateSpaceBlock(shape.scan, third, fourth, workspace, *sizes)
    return ParallelBlock(shape, attention, scan, hidden_size, workspace, sizes[0])


def loan_of(index: int, layers: Sequence[LayerShape | UnfusedLayer]) -> Loan | None:
    """Return where a layer's keys and values are shared with others, None where they are its own alone."""
    sources = {
        number: layer.attention.source
        for number, layer in enumerate(layers)
        if isinstance(layer.attention, AttentionShape) and layer.attention.source is not None
    }
    lender = sources.get(index, index)
    readers = [number for number, source in sources.items() if source == lender]
    return Loan(lender, max(readers)) if readers else None
