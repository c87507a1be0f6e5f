"""How much memory a fused model will take on its GPU, and the policy that makes a step fastest within what there is."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tunesmith_engine.fused.activations import LEVELS, LayerBuffers, PinningError, StoreBytes, store_bytes
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.attention_block import num_parts
from tunesmith_engine.fused.head import Head
from tunesmith_engine.fused.policy import (
    LayerCosts,
    LayerPolicy,
    choose,
    plan_bytes,
    predicted_s,
    step_down,
    without_host,
)
from tunesmith_engine.fused.rates import CopyRates, host_budget_bytes, measure_copy_rate, measure_matmul_rate

HEAD_ROWS = {16384: 1024, 4096: 1024, 2048: 512, 1024: 256}
"""Rows of the MLP that are computed together -> rows whose logits exist together, for less and less memory.

A product of 184 rows is bound by arithmetic already on an H200, so only the last is slower to speak of."""

WHOLE_TILE, SMALL_TILE, SAVER_TILE, SMALLEST_TILE = HEAD_ROWS

USABLE_SHARE = 0.94
"""Of the free memory; the rest is for what other programs take meanwhile and for gaps between tensors."""

SUSTAINED_SHARE = 0.8
"""Of the rate of a short burst of products, over a whole step: everything else of a layer, and a GPU that gets warm.
Llama-3.1-8B QLoRA, 4 x 2048 tokens on an H200, torch 2.11, 2026-11-21: 378 ms of products and attention, timed alone,
against a step of 465 ms."""

LIBRARY_BYTES = 96 * 2**20
"""Workspaces of cuBLAS and cuDNN, which PyTorch allocates with the tensors."""

USUAL_DOCUMENT_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a step will take.

    Attributes:
        policies: of each layer.
        capacity_tokens: most tokens of a micro-batch.
        tile_tokens: rows of the MLP at a time.
        head_rows: rows whose logits exist together.
        embedding_on_host: the input embedding lies in the computer's memory.
        peak_bytes: expected peak of what PyTorch allocates on the device.
        host_bytes: pinned memory for activations.
    """

    policies: tuple[LayerPolicy, ...]
    capacity_tokens: int
    tile_tokens: int
    head_rows: int
    embedding_on_host: bool
    peak_bytes: int
    host_bytes: int


class MemoryPlanner:
    """Plans the memory of one assembly.

    Args:
        assembly: the parts of the fused model, its weights on the device.
        capacity_tokens: most tokens of a micro-batch.
        memory_bytes: what PyTorch may allocate on the device in all; None takes what is free.
        optimizer_bytes_per_weight: what the optimizer will keep of each trained weight.
    """

    def __init__(
        self, assembly: Assembly, capacity_tokens: int, memory_bytes: int | None, optimizer_bytes_per_weight: float
    ) -> None:
        self._assembly, self._capacity = assembly, capacity_tokens
        device = assembly.compute.device
        self._on_gpu = self._pins = device.type == "cuda"
        allocated = torch.cuda.memory_allocated(device) if self._on_gpu else 0
        trained = assembly.arena.weights.numel()
        self._fixed_bytes = allocated + round(trained * optimizer_bytes_per_weight) + assembly.scratch.num_bytes
        self._fixed_bytes += LIBRARY_BYTES if self._on_gpu else 0
        self._total_bytes = memory_bytes or (self._free_bytes(allocated) if self._on_gpu else 2**62)

    def _free_bytes(self, allocated: int) -> int:
        free = torch.cuda.mem_get_info(self._assembly.compute.device)[0]
        unused = torch.cuda.memory_reserved(self._assembly.compute.device) - allocated
        return allocated + round((free + unused) * USABLE_SHARE)

    def plan(self, name: str) -> MemoryPlan:
        """Return the plan of a policy by name: "auto" or another key of `policy.NAMED`."""
        num_layers = len(self._assembly.shape.layers)
        everything = (LayerPolicy("none"),) * num_layers
        if name in ("auto", "none"):
            for on_host in (False, True):
                found = self._sized(everything, WHOLE_TILE, on_host)
                if found.peak_bytes <= self._total_bytes or not self._on_gpu:
                    return found
        tiles = (SAVER_TILE,) if name == "saver" else (SMALL_TILE, SAVER_TILE)
        plans = [self._chosen(name, tile) for tile in tiles]
        if all(plan.peak_bytes > self._total_bytes for plan in plans):
            plans.append(self._chosen(name, SMALLEST_TILE))
        return min(plans, key=self._judgement)

    def _judgement(self, plan: MemoryPlan) -> tuple[bool, float]:
        """Order plans: those that fit first, then by predicted time; of equals the first, whose tiles are larger."""
        if plan.peak_bytes > self._total_bytes:
            return True, float(plan.peak_bytes)
        kept = {
            level: max(b.num_bytes(b.kept[level], self._capacity) for b in buffers)
            for level, buffers in self._buffers().items()
        }
        return False, predicted_s(plan.policies, self._costs, kept, self._rates)

    def step_down(self, plan: MemoryPlan) -> MemoryPlan | None:
        """Return a plan that takes less memory of the device, or None."""
        policies = step_down(plan.policies, host=self._pins)
        if policies is not None:
            return self._sized(policies, min(plan.tile_tokens, SMALL_TILE), self._on_gpu)
        smaller = (self._sized(plan.policies, tile, self._on_gpu) for tile in HEAD_ROWS if tile < plan.tile_tokens)
        return next((found for found in smaller if found.peak_bytes < plan.peak_bytes), None)

    def resized(self, plan: MemoryPlan, capacity_tokens: int) -> MemoryPlan:
        """Return a plan for micro-batches of another size, with the same policies."""
        self._capacity = capacity_tokens
        return self._sized(plan.policies, plan.tile_tokens, plan.embedding_on_host)

    def without_pinning(self, plan: MemoryPlan) -> MemoryPlan:
        """Return a plan that replays what a plan wanted to send out, on a machine that pins no memory for it."""
        self._pins = False
        return self._sized(without_host(plan.policies), plan.tile_tokens, plan.embedding_on_host)

    def _chosen(self, name: str, tile: int) -> MemoryPlan:
        """Return the plan whose policies are predicted to be fastest with a given tile."""
        # Whatever the policies will be, gate and up of a tile have room.
        policies = (LayerPolicy("full"),) * len(self._assembly.shape.layers)
        empty = self._sized(policies, tile, self._on_gpu, with_store=False)
        budget = self._total_bytes - empty.peak_bytes
        host = host_budget_bytes() if self._rates else 0
        policies = choose(name, self._costs, self._buffers(), self._capacity, budget, host, self._rates)
        return self._sized(policies, tile, self._on_gpu)

    @functools.cached_property
    def _rates(self) -> CopyRates | None:
        if not self._pins:
            return None
        try:
            return measure_copy_rate(self._assembly.compute.device)
        except PinningError:
            self._pins = False
            return None

    @functools.cached_property
    def _costs(self) -> LayerCosts:
        shape, compute = self._assembly.shape, self._assembly.compute
        flops = measure_matmul_rate(compute.device, compute.dtype) * SUSTAINED_SHARE
        document = min(self._capacity, USUAL_DOCUMENT_TOKENS)
        return LayerCosts.of(shape.layers[0], shape.hidden_size, self._capacity, document, flops)

    @functools.cached_property
    def s_per_token(self) -> float:
        """Predicted seconds of all layers for a token, forward and backward, with nothing computed again."""
        return len(self._assembly.shape.layers) * (self._costs.forward_s + self._costs.backward_s) / self._capacity

    def _buffers(self) -> Mapping[str, Sequence[LayerBuffers]]:
        return {
            level: self._layers((LayerPolicy(level),) * len(self._assembly.shape.layers), SMALLEST_TILE)[0]
            for level in LEVELS
        }

    def _layers(self, policies: Sequence[LayerPolicy], tile: int) -> tuple[list[LayerBuffers], int]:
        """Return the buffers of all layers under policies, and the bytes of the workspace."""
        assembly, dtype = self._assembly, self._assembly.compute.dtype
        workspace = assembly.workspace(self._capacity)
        layers = assembly.layers(policies, workspace, self._capacity, tile)
        Head(assembly.shape, assembly.head, workspace, min(self._capacity, HEAD_ROWS[tile]))
        buffers = [layer.buffers(policy.level == "none", dtype) for layer, policy in zip(layers, policies, strict=True)]
        return buffers, workspace.num_bytes

    def _sized(
        self, policies: tuple[LayerPolicy, ...], tile: int, on_host: bool, with_store: bool = True
    ) -> MemoryPlan:
        """Return the plan of given policies with its sizes."""
        buffers, workspace_bytes = self._layers(policies, tile)
        store = store_bytes(buffers, policies, self._capacity) if with_store else StoreBytes(0, 0)
        embedding_bytes = self._assembly.embedding_bytes if on_host else 0
        fixed = self._fixed_bytes - embedding_bytes + self._passing_bytes(policies)
        fixed += self._assembly.quantised_bytes(self._capacity, tile)
        peak = plan_bytes(store, fixed, workspace_bytes)
        head_rows = min(self._capacity, HEAD_ROWS[tile])
        return MemoryPlan(policies, self._capacity, tile, head_rows, embedding_bytes > 0, peak, store.host)

    def _passing_bytes(self, policies: Sequence[LayerPolicy]) -> int:
        """Return what attention's own operations allocate.

        For the heads that are computed at once: gradients of its inputs and dense copies; cuDNN and flash add a float32
        gradient of the queries and gradients of keys and values for each query head. Then the sums of weights that
        stay until the backward pass.
        """
        attention = self._assembly.shape.layers[0].attention
        query = attention.num_heads * attention.head_dim
        key = attention.num_key_value_heads * attention.head_dim
        itemsize = self._assembly.compute.dtype.itemsize
        num_saved = sum(policy.level in ("none", "mlp") for policy in policies) + 1
        beside = 8 * query if self._on_gpu else 0
        at_once = -(-self._capacity // num_parts(attention, self._capacity))
        statistics = self._capacity * 4 * attention.num_heads * num_saved
        return at_once * ((3 * query + 2 * key) * itemsize + beside) + statistics
