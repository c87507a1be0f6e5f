"""The layers of a decoding step, each made of the parts that its shape asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunesmith_engine.decode.attention_step import AttentionStep
from tunesmith_engine.decode.context import Context
from tunesmith_engine.decode.latent_step import LatentStep
from tunesmith_engine.decode.mlp_step import MlpStep, SparseStep
from tunesmith_engine.decode.parallel_step import ParallelStep
from tunesmith_engine.decode.per_layer_step import ThirdStep
from tunesmith_engine.decode.product import StepProjection
from tunesmith_engine.decode.recurrent_step import ConvolutionStep, StateStep
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.convolution_block import ConvolutionBlock
from tunesmith_engine.fused.latent_block import LatentBlock
from tunesmith_engine.fused.layer_projections import LayerProjections
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.state_block import StateBlock
from tunesmith_engine.fused.tiling import SMALL
from tunesmith_engine.mixer_shapes import AttentionShape, ParallelShape
from tunesmith_engine.shapes import LayerShape, MlpShape, SparseShape

MixerStep = AttentionStep | ConvolutionStep | StateStep | ParallelStep | LatentStep
"""Attention, or what a layer has in its place."""


@dataclass(frozen=True, slots=True)
class StepLayer:
    """A decoder layer with its blocks."""

    shape: LayerShape
    mixer: MixerStep | None
    mlp: MlpStep | SparseStep | None
    third: ThirdStep | None


def layer_of(
    shape: LayerShape,
    parts: LayerProjections,
    assembly: Assembly,
    context: Context,
    before: Sequence[StepLayer],
) -> StepLayer:
    """Return a layer's step; `before` are those of the layers below."""
    mixer = None if shape.attention is None else _mixer(shape, parts, assembly, context, before)
    mlp, dense = shape.mlp, None
    own = mlp.shared if isinstance(mlp, SparseShape) else mlp
    if isinstance(own, MlpShape):
        dense = MlpStep(own, _checked(parts.mlp_inputs), _checked(parts.mlp_down), context)
    third = ThirdStep(shape, parts, assembly, context) if shape.per_layer else None
    if isinstance(mlp, SparseShape) and parts.experts is not None:
        sparse = SparseStep(mlp, parts.experts, assembly.router_of(mlp, for_answers=True), dense, context)
        return StepLayer(shape, mixer, sparse, third)
    return StepLayer(shape, mixer, dense, third)


def _mixer(
    shape: LayerShape,
    parts: LayerProjections,
    assembly: Assembly,
    context: Context,
    before: Sequence[StepLayer],
) -> MixerStep:
    """Return attention's step, or that of what a layer has in its place."""
    index = len(before)
    inputs, output = _checked(parts.attention_inputs), _checked(parts.attention_output)
    if isinstance(shape.attention, AttentionShape):
        source = shape.attention.source
        lender = None if source is None else before[source].mixer
        assert lender is None or isinstance(lender, AttentionStep)
        return AttentionStep(index, shape.attention, inputs, output, lender, context)
    if isinstance(shape.attention, ParallelShape):
        attention = AttentionStep(index, shape.attention.attention, inputs, output, None, context)
        inputs, output = _checked(parts.scan_inputs), _checked(parts.scan_output)
        alone = replace(shape, attention=shape.attention.scan)
        scan = _of_block(alone, parts, (inputs, output), assembly, context, index)
        assert isinstance(scan, StateStep)
        return ParallelStep(shape.attention.factors, attention, scan, inputs.num_inputs, context)
    return _of_block(shape, parts, (inputs, output), assembly, context, index)


def _of_block(
    shape: LayerShape,
    parts: LayerProjections,
    around: tuple[Projection, Projection],
    assembly: Assembly,
    context: Context,
    index: int,
) -> ConvolutionStep | StateStep | LatentStep:
    """Return a step that runs the training's block, on M rows and with products for few rows."""
    first, last = context.product(around[0]), context.product(around[1], is_last=True)
    expansions = [
        None if each is None else StepProjection(_checked(each), context.product(_checked(each)))
        for each in (parts.query_expansion, parts.expansion)
    ]
    for_rows = replace(
        parts,
        attention_inputs=StepProjection(around[0], first),
        attention_output=StepProjection(around[1], last),
        query_expansion=expansions[0],
        expansion=expansions[1],
    )
    sizes = context.num_rows, SMALL.attention_numbers
    block = assembly.mixer_of(index, shape, for_rows, context.workspace, *sizes)
    if isinstance(block, ConvolutionBlock):
        return ConvolutionStep(index, block, first.x, context)
    if isinstance(block, StateBlock):
        return StateStep(index, block, first.x, context)
    if isinstance(block, LatentBlock):
        return LatentStep(index, block, first.x, context)
    raise TypeError(f"{shape.name} was not checked.")


def _checked(part: object) -> Projection:
    """Return a part that `check_steppable` let pass."""
    if not isinstance(part, Projection):
        raise TypeError("The layer was not checked.")
    return part
