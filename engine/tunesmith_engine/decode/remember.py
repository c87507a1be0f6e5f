"""Leaves in a cache what a layer of the training has computed of prompts that lie behind each other."""

from __future__ import annotations

import torch

from tunesmith_engine.decode.cache import KeyValueCache
from tunesmith_engine.decode.recurrent_step import last_inputs
from tunesmith_engine.fused.attention_block import AttentionBlock
from tunesmith_engine.fused.convolution_block import ConvolutionBlock
from tunesmith_engine.fused.latent_block import LatentBlock
from tunesmith_engine.fused.layer import FusedLayer, Mixer
from tunesmith_engine.fused.parallel_block import ParallelBlock
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.state_block import StateBlock
from tunesmith_engine.kernels import state_step
from tunesmith_engine.kernels.gated_convolution import NUM_PARTS
from tunesmith_engine.packed.batch import PackedBatch


def remember(
    layer: FusedLayer, qkv: torch.Tensor, batch: PackedBatch, rotary: Rotary, cache: KeyValueCache, first_row: int
) -> None:
    """Write what a layer remembers of each document into the cache's rows.

    Args:
        layer: that the batch has just passed.
        qkv: what its projections wrote.
        batch: the prompts.
        rotary: of the layer.
        cache: whose rows from `first_row` on are the documents'.
        first_row: see `cache`.
    """
    block = layer.attention
    parts = block.own(qkv) if isinstance(block, ParallelBlock) else [(block, qkv)]
    for part, own in parts:
        _remember(layer.index, part, own, batch, rotary, cache, first_row)


def _remember(
    index: int,
    block: Mixer | None,
    qkv: torch.Tensor,
    batch: PackedBatch,
    rotary: Rotary,
    cache: KeyValueCache,
    first_row: int,
) -> None:
    """Do it for one of two blocks beside each other, or for the only one."""
    lengths = batch.documents.lengths
    rows = slice(first_row, first_row + len(lengths))
    if isinstance(block, AttentionBlock) and block.shape.source is not None:
        return
    if isinstance(block, AttentionBlock | LatentBlock):
        row = torch.repeat_interleave(torch.arange(*rows.indices(cache.num_rows)), torch.tensor(lengths))
        cache.write(index, row.to(qkv.device), batch.positions, *block.keys_values(qkv, rotary))
    elif isinstance(block, ConvolutionBlock):
        b, _, x = qkv.to(cache.inputs[index].dtype).chunk(NUM_PARTS, dim=1)
        _keep_inputs(cache, index, rows, b * x, lengths)
    elif isinstance(block, StateBlock):
        channels, mixed = block.convolved(qkv, batch.documents)
        _keep_inputs(cache, index, rows, channels, lengths)
        states = cache.states[index][rows].zero_()
        state_step.advance(block.tokens(mixed, qkv), batch.documents.bounds, block.corrects, states, None)
    elif block is not None:
        raise TypeError("The layer was not checked.")


def _keep_inputs(
    cache: KeyValueCache, index: int, rows: slice, channels: torch.Tensor, lengths: tuple[int, ...]
) -> None:
    inputs = cache.inputs[index]
    inputs[rows] = last_inputs(channels, lengths, inputs.shape[2]).to(inputs.dtype)
