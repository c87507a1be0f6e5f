"""What a step's operations allocate while they run, beside the buffers that are planned for them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tunesmith_core.altup_memory import ROUTER_NUMBERS
from tunesmith_core.expert_memory import passing_bytes
from tunesmith_core.mixer_memory import FIRST_TOKEN_BYTES
from tunesmith_engine.fused.activations import LayerPolicy
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.attention_block import num_parts
from tunesmith_engine.fused.plain_documents import PlainDocuments
from tunesmith_engine.fused.plain_memory import Growth, growth_of
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.kernels import channel_delta, delta_rule, state_space
from tunesmith_engine.mixer_shapes import (
    AttentionShape,
    ChannelDeltaShape,
    ConvolutionShape,
    DeltaShape,
    LatentShape,
    StateSpaceShape,
    branches_of,
)
from tunesmith_engine.shapes import MlpShape, SparseShape


class PassingMemory:
    """Counts what the parts of one assembly allocate and give back within a step.

    Args:
        assembly: the parts of the fused model.
        longest_tokens: of a row.
        spread: most times as many tokens that attention sees, where documents share their beginnings.
    """

    def __init__(self, assembly: Assembly, longest_tokens: int, spread: float) -> None:
        self._assembly, self._longest_tokens, self._spread = assembly, longest_tokens, spread
        self._on_gpu = assembly.compute.device.type == "cuda"

    def num_bytes(self, policies: Sequence[LayerPolicy], capacity: int, tiling: Tiling) -> int:
        """Return what attention's own operations allocate.

        For the heads that are computed at once: gradients of its inputs and dense copies; cuDNN and flash add a float32
        gradient of the queries and gradients of keys and values for each query head. Then the sums of weights that
        stay until the backward pass. Shared beginnings want whole documents' queries, keys, values, output and its
        gradient beside. The delta rule's programs leave each other their results, and gates have gradients.
        """
        shape, itemsize = self._assembly.shape, self._assembly.compute.dtype.itemsize
        whole = math.ceil(capacity * self._spread)
        written = self._written_bytes(whole, tiling)
        copies, most, statistics, largest = (2 if self._spread > 1 else 1), 0, 0, 0
        for mixer in {id(mixer): mixer for mixer in shape.mixers}.values():
            at_once = -(-whole // num_parts(mixer, capacity, tiling.attention_numbers))
            if isinstance(mixer, DeltaShape | ChannelDeltaShape):
                most = max(most, self._delta_bytes(mixer, at_once, whole))
                continue
            if isinstance(mixer, StateSpaceShape):
                most = max(most, self._scan_bytes(mixer, at_once, whole))
                continue
            if isinstance(mixer, ConvolutionShape):
                most = max(most, self._convolution_bytes(mixer, whole))
                continue
            mixer = mixer.inner if isinstance(mixer, LatentShape) else mixer
            query, key = mixer.numbers_per_token, mixer.num_key_value_heads * mixer.head_dim
            out, value = mixer.output_width, mixer.num_key_value_heads * mixer.value_dim
            beside = 8 * query if self._on_gpu else 0
            # Flash has narrow values, their gradient, the output and its gradient filled up.
            beside += 2 * (query + key) * itemsize if out < query else 0
            norms = 2 * capacity * query * itemsize if mixer.norms_apart and not mixer.whole_width_norms else 0
            if mixer.steps_apart:
                # Gradients, what stands before the last norm, and one norm's rows and output; clipped values.
                norms = capacity * (2 * (query + key) + 2 * query + value) * itemsize
            most = max(most, at_once * (copies * (query + 2 * out + key + value) * itemsize + beside) + norms)
        for layer, policy in zip(shape.layers, policies, strict=True):
            for mixer in branches_of(layer.attention):
                sums = whole * 4 * mixer.num_heads if isinstance(mixer, AttentionShape | LatentShape) else 0
                statistics += sums * (policy.level in ("none", "mlp"))
                largest = max(largest, sums)
        most = max(most, written, self._altup_bytes(capacity, tiling))
        return most + statistics + largest + self._expert_bytes(capacity, tiling)

    def _altup_bytes(self, capacity: int, tiling: Tiling) -> int:
        """Return what the streams' coefficients take, which run as written, or which gates are cut in a tile."""
        layers, itemsize = self._assembly.shape.layers, self._assembly.compute.dtype.itemsize
        weighing = ROUTER_NUMBERS * capacity * self._assembly.shape.hidden_size * itemsize
        cut = [layer.mlp.width for layer in layers if isinstance(layer.mlp, MlpShape) and layer.mlp.cut is not None]
        masks = min(capacity, tiling.mlp_tokens) * max(cut, default=0)
        return max(masks, weighing if any(layer.altup for layer in layers) else 0)

    def _written_bytes(self, whole: int, tiling: Tiling) -> int:
        """Return what a mixer, or a layer, that runs as written takes: one at a time, on texts that pass together."""
        longest = min(whole, math.ceil(self._longest_tokens * self._spread))
        together = max(longest, min(whole, tiling.mlp_tokens))
        beside = 3 * whole * self._assembly.shape.hidden_size * self._assembly.compute.dtype.itemsize
        beside = beside if self._spread > 1 and self._growths else 0
        return max((growth.num_bytes(together, longest) for growth in self._growths), default=0) + beside

    @functools.cached_property
    def _growths(self) -> list[Growth]:
        """What each kind of mixer and layer that runs as written takes."""
        parts = [parts.attention_inputs for parts in self._assembly.projections]
        kinds = {type(part.modules[0]): part for part in parts if isinstance(part, PlainDocuments)}
        compute = self._assembly.compute
        return [growth_of(part, self._longest_tokens, compute.device, compute.dtype) for part in kinds.values()]

    def _expert_bytes(self, capacity: int, tiling: Tiling) -> int:
        """Return what routers, the order of rows and the sums of adapters' gradients take while a layer runs."""
        shape, size = self._assembly.shape, self._assembly.compute.dtype.itemsize
        sums = [parts.experts.gradient_bytes for parts in self._assembly.projections if parts.experts]
        routers = [
            passing_bytes(
                *(capacity, tiling.mlp_tokens, mlp.num_experts, mlp.per_token, shape.hidden_size, size),
                has_norm=mlp.branch_norms is not None,
            )
            for layer in shape.layers
            if isinstance(mlp := layer.mlp, SparseShape)
        ]
        return max(sums, default=0) + max(routers, default=0)

    def _delta_bytes(self, shape: DeltaShape | ChannelDeltaShape, at_once: int, whole: int) -> int:
        """Return what a delta rule's backward pass allocates: what is computed at once, gates, whole documents."""
        rule = delta_rule if isinstance(shape, DeltaShape) else channel_delta
        num_bytes = at_once * rule.workspace_bytes(shape.num_heads, shape.key_dim, shape.value_dim)
        num_bytes += whole * 8 * 4 * shape.num_heads
        if self._spread > 1:
            numbers = 4 * shape.num_channels + 2 * shape.numbers_per_token
            numbers += 3 * shape.num_keys if isinstance(shape, ChannelDeltaShape) else 0
            num_bytes += whole * numbers * self._assembly.compute.dtype.itemsize
        return num_bytes

    def _convolution_bytes(self, shape: ConvolutionShape, whole: int) -> int:
        """Return what a gated convolution allocates: where documents begin, and whole documents of its inputs."""
        copies = 10 * shape.numbers_per_token * self._assembly.compute.dtype.itemsize if self._spread > 1 else 0
        return whole * (FIRST_TOKEN_BYTES + copies)

    def _scan_bytes(self, shape: StateSpaceShape, at_once: int, whole: int) -> int:
        """Return what a state-space scan's backward pass allocates: what is computed at once, and whole documents."""
        sizes = shape.num_heads, shape.num_groups, shape.state_dim, shape.head_dim
        num_bytes = at_once * state_space.workspace_bytes(*sizes) + whole * FIRST_TOKEN_BYTES
        if self._spread > 1:
            numbers = 4 * shape.num_channels + 2 * shape.numbers_per_token + 2 * shape.num_heads
            num_bytes += whole * numbers * self._assembly.compute.dtype.itemsize
        return num_bytes
