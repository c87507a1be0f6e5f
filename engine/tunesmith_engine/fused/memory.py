"""How much memory a fused model will take on its GPU, and the plan that makes a step fastest within what there is.

Where not all activations have room there are three ways out: compute some again, send some to the computer's memory,
or let fewer rows through the model at a time. The last costs little where products stay large enough to keep the GPU
busy, for frozen weights have no gradients that every micro-batch would have to add to.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tunesmith_core.expert_memory import host_steps
from tunesmith_core.fused_memory import LIBRARY_BYTES, USABLE_SHARE
from tunesmith_engine.fused.activations import LEVELS, LayerBuffers, StoreBytes, store_bytes
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.graphs import launching_s
from tunesmith_engine.fused.passing_memory import PassingMemory
from tunesmith_engine.fused.policy import ON_DEVICE, RUNGS, LayerPolicy, choose, plan_bytes, step_down, without_host
from tunesmith_engine.fused.prediction import LayerCosts, Tiles, predicted_s
from tunesmith_engine.fused.rates import (
    MOST_SIZES,
    CopyRates,
    measure_copy_rate,
    measure_matmul_rate,
    measure_memory_rate,
)
from tunesmith_engine.fused.refining import refined
from tunesmith_engine.fused.tiling import FEW_LOGITS, SAVER, SMALL, SMALLEST, TILINGS, WHOLE, Tiling
from tunesmith_engine.host_memory import PinningError, host_budget_bytes
from tunesmith_engine.shapes import MlpShape

SUSTAINED_SHARE = 0.8
"""Of the rate of a short burst of products, over a whole step: everything else of a layer, and a GPU that gets warm.
Llama-3.1-8B QLoRA, 4 x 2048 tokens on an H200, torch 2.11, 2026-11-21: 378 ms of products and attention, timed alone,
against a step of 465 ms."""

USUAL_DOCUMENT_TOKENS = 2048

LEAST_TOKENS = 1024
"""A micro-batch is not made smaller than that, nor than the longest row."""

PORTIONS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Into how many micro-batches the rows of one may be divided."""

GAPS_S = 1e-4
"""What a layer costs a micro-batch whatever its size: the beginnings and ends of some fifty kernels, 2 µs each."""

WORTHWHILE = 0.97
"""Smaller micro-batches must promise at most so much of the time: what is measured varies by less."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a step will take.

    Attributes:
        policies: of each layer.
        capacity_tokens: most tokens of a micro-batch.
        tiling: what is computed at a time.
        embedding_on_host: the input embedding lies in the computer's memory.
        experts_on_host: of how many layers the experts do, the last ones of those that have them in 4 bits.
        peak_bytes: expected peak of what PyTorch allocates on the device.
        host_bytes: pinned memory for activations.
        by_layer: whole weights are updated layer by layer, so that their gradients never exist together.
    """

    policies: tuple[LayerPolicy, ...]
    capacity_tokens: int
    tiling: Tiling
    embedding_on_host: bool
    peak_bytes: int
    host_bytes: int
    by_layer: bool = False
    experts_on_host: int = 0


@dataclass(frozen=True, slots=True)
class WholeWeights:
    """What the training of whole weights takes beside them.

    Attributes:
        state_bytes: of the optimizer.
        transient_bytes: what it takes on the way of an update.
        by_layer: whether a layer's gradients are applied as soon as they are there, where a step is one micro-batch.
        step_tokens: of the longest step.
    """

    state_bytes: int
    transient_bytes: int
    by_layer: bool
    step_tokens: int


class MemoryPlanner:
    """Plans the memory of one assembly.

    Args:
        assembly: the parts of the fused model, its weights on the device.
        most_tokens: of a micro-batch.
        memory_bytes: what PyTorch may hold on the device in all; None takes what is free.
        optimizer_bytes_per_weight: what the optimizer will keep of each trained weight.
        longest_tokens: of a row, if micro-batches may be made smaller; no row is ever divided.
        steps_vary: most micro-batches of that size have far fewer tokens.
        spread: most times as many tokens that attention sees, where documents share their beginnings.
        whole: what the training of whole weights takes; None for an adapter.
    """

    def __init__(
        self,
        assembly: Assembly,
        most_tokens: int,
        memory_bytes: int | None,
        optimizer_bytes_per_weight: float,
        longest_tokens: int | None = None,
        steps_vary: bool = False,
        spread: float = 1.0,
        whole: WholeWeights | None = None,
    ) -> None:
        self._whole = whole
        self._assembly, self._most_tokens, self._steps_vary = assembly, most_tokens, steps_vary
        self._longest_tokens = min(longest_tokens or most_tokens, most_tokens)
        self._passing = PassingMemory(assembly, self._longest_tokens, spread)
        device = assembly.compute.device
        self._on_gpu = self._pins = device.type == "cuda"
        state_bytes = whole.state_bytes if whole else 0
        if assembly.gradients is None:
            # First, so that weights and gradients in the arena are counted with what is there.
            state_bytes = round(assembly.arena.weights.numel() * optimizer_bytes_per_weight)
        allocated, gap_bytes = self._allocated(device) if self._on_gpu else (0, 0)
        self._experts = assembly.places.experts
        # As if all of it lay on the device, from which each plan takes what it puts out.
        self._fixed_bytes = allocated + assembly.places.host_bytes + assembly.scratch.num_bytes + state_bytes
        self._fixed_bytes += LIBRARY_BYTES if self._on_gpu else 0
        if memory_bytes:
            self._total_bytes = memory_bytes - gap_bytes
        else:
            self._total_bytes = self._usable_bytes(allocated) if self._on_gpu else 2**62
        self._measured: dict[int, float] = {}
        self._known_buffers: dict[int, Mapping[str, Sequence[LayerBuffers]]] = {}
        self._known_costs: dict[tuple[int, Tiling], tuple[list[LayerCosts], list[Mapping[str, int]]]] = {}

    @staticmethod
    def _allocated(device: torch.device) -> tuple[int, int]:
        """Return the bytes of all tensors, and those of gaps between them, into which no buffer fits."""
        torch.cuda.empty_cache()
        allocated = torch.cuda.memory_allocated(device)
        return allocated, torch.cuda.memory_reserved(device) - allocated

    def _usable_bytes(self, allocated: int) -> int:
        free = torch.cuda.mem_get_info(self._assembly.compute.device)[0]
        return allocated + round(free * USABLE_SHARE)

    def plan(self, name: str) -> MemoryPlan:
        """Return the plan of a policy by name: "auto", which may make micro-batches smaller, or a key of NAMED.

        Experts leave the device only where nothing fits beside them, for they cross the bus in every micro-batch.
        """
        for experts_on_host in self._expert_steps():
            found = self._with_experts_out(name, experts_on_host)
            if self._fits(found):
                return self._refined(found) if name == "auto" else found
        return found

    def _expert_steps(self) -> Iterator[int]:
        """Yield of how many layers the experts may lie in the computer's memory, fewest first."""
        yield 0
        for num_layers in host_steps(len(self._experts.layer_bytes))[1:]:
            is_there = num_layers <= self._experts.num_on_host
            if is_there or (self._rates and self._pins and self._more_on_host(num_layers) <= host_budget_bytes()):
                yield num_layers

    def _more_on_host(self, experts_on_host: int) -> int:
        """Return the bytes of experts that would have to be pinned yet."""
        return max(0, self._experts.bytes_of(experts_on_host) - self._experts.host_bytes)

    def _with_experts_out(self, name: str, experts_on_host: int) -> MemoryPlan:
        """Return the best plan of a policy by name with the experts of so many layers in the computer's memory."""
        sizes = self._capacities(name, experts_on_host)
        first, *smaller = (self._best(name, capacity, experts_on_host) for capacity in sizes)
        best = first
        for found in smaller:
            if self._judgement(found, WORTHWHILE) < self._judgement(best):
                best = found
        return best

    def _capacities(self, name: str, experts_on_host: int) -> Iterator[int]:
        """Yield tokens of micro-batches that are worth a look, most first: none smaller where everything has room."""
        yield self._most_tokens
        if name != "auto" or self._fits(self._everything(self._most_tokens, experts_on_host)):
            return
        longest, last = self._longest_tokens, self._most_tokens
        for portions in PORTIONS:
            capacity = longest * math.ceil(math.ceil(self._most_tokens / longest) / portions)
            if LEAST_TOKENS <= capacity < last:
                yield (last := capacity)

    def _best(self, name: str, capacity: int, experts_on_host: int) -> MemoryPlan:
        """Return the plan for micro-batches of a size that is predicted to be fastest."""
        if name in ("auto", "none"):
            everything = self._everything(capacity, experts_on_host)
            if self._fits(everything):
                return everything
        # With room enough every policy is tiled as the one that keeps everything, and so gives the very same results.
        tilings = (SAVER,) if name == "saver" else (WHOLE, SMALL, FEW_LOGITS, SAVER)
        plans = [self._chosen(name, capacity, tiling, experts_on_host) for tiling in tilings]
        if not any(map(self._fits, plans)):
            plans.append(self._chosen(name, capacity, SMALLEST, experts_on_host))
        return min(plans, key=self._judgement)

    def _everything(self, capacity: int, experts_on_host: int) -> MemoryPlan:
        """Return the plan that keeps everything, and the embedding on the device if both have room."""
        policies = (LayerPolicy("none"),) * len(self._assembly.shape.layers)
        sizes = policies, capacity, WHOLE
        found = self._sized(*sizes, False, experts_on_host)
        return found if self._fits(found) else self._sized(*sizes, True, experts_on_host)

    def _refined(self, plan: MemoryPlan) -> MemoryPlan:
        """Return a plan that is predicted to be faster by what suits each of its layers, if there is one."""
        if set(plan.policies) == {RUNGS[0]}:
            # Nothing is copied or computed again.
            return plan
        places = plan.embedding_on_host, plan.experts_on_host
        host_bytes = self._activations_on_host(plan.experts_on_host)

        def sized(policies: tuple[LayerPolicy, ...]) -> MemoryPlan:
            return self._sized(policies, plan.capacity_tokens, plan.tiling, *places)

        def fits(policies: tuple[LayerPolicy, ...]) -> bool:
            found = sized(policies)
            return self._fits(found) and found.host_bytes <= host_bytes

        tiles = self._tiles(plan.capacity_tokens, plan.tiling)
        sends = self._rates and tiles.num_bytes and self._sent_tile_tokens(plan.capacity_tokens, plan.tiling)
        policies = refined(
            plan.policies,
            RUNGS if self._rates else ON_DEVICE,
            tiles.number if sends else 0,
            lambda policies: self._portion_s(policies, plan.capacity_tokens, plan.tiling),
            fits,
        )
        return sized(policies)

    def _fits(self, plan: MemoryPlan) -> bool:
        return plan.peak_bytes <= self._total_bytes

    def _judgement(self, plan: MemoryPlan, handicap: float = 1.0) -> tuple[bool, float]:
        """Order plans: those that fit first, then by predicted time; of equals the first, whose pieces are larger."""
        if not self._fits(plan):
            return True, float(plan.peak_bytes)
        return False, self.step_s(plan) / handicap

    def step_s(self, plan: MemoryPlan) -> float:
        """Predict the seconds of all layers for the most tokens that there may be."""
        capacity = plan.capacity_tokens
        portion_s = self._portion_s(plan.policies, capacity, plan.tiling)
        portion_s += self._unpacking_s + self._fetching_s(plan.experts_on_host) + len(plan.policies) * GAPS_S
        if not self.captures(plan):
            portion_s = max(portion_s, launching_s(self._assembly.shape))
        return portion_s * self._most_tokens / capacity

    def _portion_s(self, policies: Sequence[LayerPolicy], capacity: int, tiling: Tiling) -> float:
        """Predict the seconds of all layers for a full micro-batch."""
        key = capacity, tiling
        if key not in self._known_costs:
            buffers = self._buffers(capacity)
            kept: list[Mapping[str, int]] = [
                {level: each.num_bytes(each.kept[level], capacity) for level, each in zip(buffers, layer, strict=True)}
                for layer in zip(*buffers.values(), strict=True)
            ]
            self._known_costs[key] = self._costs(capacity, tiling), kept
        return predicted_s(policies, *self._known_costs[key], self._rates, tiles=self._tiles(capacity, tiling))

    def _tiles(self, capacity: int, tiling: Tiling) -> Tiles:
        return Tiles.of(self._buffers(capacity), capacity, tiling.mlp_tokens)

    def captures(self, plan: MemoryPlan) -> bool:
        """Return whether steps by a plan may be captured in CUDA graphs."""
        return not plan.experts_on_host and self._assembly.capturable

    def step_down(self, plan: MemoryPlan) -> MemoryPlan | None:
        """Return a plan that takes less memory of the device, or None."""
        policies, capacity = step_down(plan.policies, host=self._pins), plan.capacity_tokens
        places = self._on_gpu, plan.experts_on_host
        if policies is not None:
            return self._sized(policies, capacity, SMALL if plan.tiling == WHOLE else plan.tiling, *places)
        below = TILINGS[TILINGS.index(plan.tiling) + 1 :]
        smaller = (self._sized(plan.policies, capacity, tiling, *places) for tiling in below)
        further = (number for number in self._expert_steps() if number > plan.experts_on_host)
        without = (self._sized(plan.policies, capacity, plan.tiling, self._on_gpu, number) for number in further)
        both = itertools.chain(smaller, without)
        return next((found for found in both if found.peak_bytes < plan.peak_bytes), None)

    def resized(self, plan: MemoryPlan, capacity_tokens: int) -> MemoryPlan:
        """Return a plan for micro-batches of another size, with the same policies as far as there are tiles."""
        num_tiles = math.ceil(capacity_tokens / plan.tiling.mlp_tokens)
        policies = tuple(replace(policy, sent_tiles=min(policy.sent_tiles, num_tiles)) for policy in plan.policies)
        places = plan.embedding_on_host, plan.experts_on_host
        return self._sized(policies, capacity_tokens, plan.tiling, *places)

    def without_pinning(self, plan: MemoryPlan) -> MemoryPlan:
        """Return a plan that replays what a plan wanted to send out, on a machine that pins no memory for it.

        Weights that have left the device before it refused stay where they are.
        """
        self._pins = False
        places = self._assembly.places.embedding_on_host, self._experts.num_on_host
        return self._sized(without_host(plan.policies), plan.capacity_tokens, plan.tiling, *places)

    def _chosen(self, name: str, capacity: int, tiling: Tiling, experts_on_host: int) -> MemoryPlan:
        """Return the plan whose policies are predicted to be fastest with a given tiling."""
        # Whatever the policies will be, gate and up of a piece have room.
        policies = (LayerPolicy("full"),) * len(self._assembly.shape.layers)
        places = self._on_gpu, experts_on_host
        empty = self._sized(policies, capacity, tiling, *places, with_store=False)
        budget = self._total_bytes - empty.peak_bytes
        policies = choose(
            name,
            LayerCosts.mean(self._costs(capacity, tiling)),
            self._buffers(capacity),
            capacity,
            budget,
            self._activations_on_host(experts_on_host),
            self._rates,
            tile_tokens=self._sent_tile_tokens(capacity, tiling),
        )
        return self._sized(policies, capacity, tiling, *places)

    def _activations_on_host(self, experts_on_host: int) -> int:
        """Return how many bytes of activations may be pinned beside the experts of so many layers."""
        return max(0, host_budget_bytes() - self._more_on_host(experts_on_host)) if self._rates else 0

    def _sent_tile_tokens(self, capacity: int, tiling: Tiling) -> int:
        """Return how many rows the tiles have that may be sent, or 0.

        A whole layer's copy shrinks with the micro-batch; a tile's does not, and few tokens hide it no longer: short
        chats took 216 instead of 157 ms a step on an H200.
        """
        return 0 if self._steps_vary and capacity == self._most_tokens else tiling.mlp_tokens

    # What is measured

    @functools.cached_property
    def _rates(self) -> CopyRates | None:
        if not self._pins:
            return None
        try:
            return measure_copy_rate(self._assembly.compute.device)
        except PinningError:
            self._pins = False
            return None

    def _costs(self, capacity: int, tiling: Tiling = WHOLE) -> list[LayerCosts]:
        # Rows of which no two fit into the largest micro-batch are trained one by one, so most are about as long.
        alone = 2 * self._longest_tokens > self._most_tokens
        return self._costs_of(capacity, self._longest_tokens if alone else self._usual_tokens, tiling)

    @property
    def _usual_tokens(self) -> int:
        return min(self._longest_tokens, USUAL_DOCUMENT_TOKENS)

    def _costs_of(self, capacity: int, document_tokens: int, tiling: Tiling) -> list[LayerCosts]:
        shape = self._assembly.shape
        flops = self._flops_per_s(capacity) * SUSTAINED_SHARE
        sizes = shape.hidden_size, capacity, document_tokens, flops, tiling.attention_numbers
        return [LayerCosts.of(layer, *sizes) for layer in shape.layers]

    def _flops_per_s(self, capacity: int) -> float:
        """Return the rate of the model's products with so many rows, by the next lower power of two."""
        compute, shape = self._assembly.compute, self._assembly.shape
        rows = min(2 ** int(math.log2(capacity)), MOST_SIZES[compute.device.type][0])
        if rows not in self._measured:
            mlp = shape.layers[0].mlp
            inner_width = mlp.width if isinstance(mlp, MlpShape) else shape.hidden_size
            rate = measure_matmul_rate(compute.device, compute.dtype, rows, shape.hidden_size, inner_width)
            self._measured[rows] = rate
        return self._measured[rows]

    @functools.cached_property
    def _unpacking_s(self) -> float:
        """Seconds in which a micro-batch has 4-bit weights unpacked, once forward and once backward."""
        num_bytes = self._assembly.num_packed_weights * (0.5 + self._assembly.compute.dtype.itemsize)
        if not (num_bytes and self._on_gpu):
            return 0.0
        return 2 * num_bytes / measure_memory_rate(self._assembly.compute.device)

    def _fetching_s(self, experts_on_host: int) -> float:
        """Return the seconds in which a micro-batch has experts brought from the computer's memory to be unpacked.

        Once forward and once backward, except those of the last layer: what is computed again in a backward pass finds
        its layer's experts unpacked, see `WeightScratch`.
        """
        if not (experts_on_host and self._rates):
            return 0.0
        num_bytes = 2 * self._experts.bytes_of(experts_on_host) - self._experts.bytes_of(1)
        return num_bytes / self._rates.to_device

    @property
    def s_per_token(self) -> float:
        """Predicted seconds of all layers for a token, forward and backward, with nothing computed again."""
        costs = self._costs_of(self._most_tokens, self._usual_tokens, WHOLE)
        return sum(each.forward_s + each.backward_s for each in costs) / self._most_tokens

    # Sizes

    def _buffers(self, capacity: int) -> Mapping[str, Sequence[LayerBuffers]]:
        if capacity not in self._known_buffers:
            num_layers = len(self._assembly.shape.layers)
            self._known_buffers[capacity] = {
                level: self._layers((LayerPolicy(level),) * num_layers, capacity, SMALLEST)[0] for level in LEVELS
            }
        return self._known_buffers[capacity]

    def _layers(self, policies: Sequence[LayerPolicy], capacity: int, tiling: Tiling) -> tuple[list[LayerBuffers], int]:
        """Return the buffers of all layers under policies, and the bytes of the workspace."""
        assembly, dtype = self._assembly, self._assembly.compute.dtype
        workspace = assembly.workspace(capacity)
        layers = assembly.layers(policies, workspace, capacity, tiling)
        assembly.head_of(workspace, capacity, tiling)
        assembly.per_layer_of(workspace, capacity)
        assembly.altup_of(workspace, capacity)
        buffers = [layer.buffers(policy.level == "none", dtype) for layer, policy in zip(layers, policies, strict=True)]
        return buffers, workspace.num_bytes

    def _sized(
        self,
        policies: tuple[LayerPolicy, ...],
        capacity: int,
        tiling: Tiling,
        embedding_on_host: bool,
        experts_on_host: int = 0,
        with_store: bool = True,
    ) -> MemoryPlan:
        """Return the plan of given policies with its sizes."""
        buffers, workspace_bytes = self._layers(policies, capacity, tiling)
        tile_tokens = min(tiling.mlp_tokens, capacity)
        store = store_bytes(buffers, policies, capacity, tile_tokens=tile_tokens) if with_store else StoreBytes(0, 0)
        embedding_bytes = self._assembly.places.embedding_bytes if embedding_on_host else 0
        fixed = self._fixed_bytes - embedding_bytes - self._experts.bytes_of(experts_on_host)
        fixed += self._passing.num_bytes(policies, capacity, tiling)
        fixed += self._assembly.quantised_bytes(capacity, tiling.mlp_tokens) + self._gradient_bytes(capacity)
        peak = plan_bytes(store, fixed, workspace_bytes)
        by_layer = self._goes_by_layer(capacity)
        return MemoryPlan(
            policies, capacity, tiling, embedding_bytes > 0, peak, store.host, by_layer, experts_on_host
        )

    def _gradient_bytes(self, capacity: int) -> int:
        """Return the memory of whole weights' gradients: of one layer, if steps are one micro-batch, or of all."""
        if self._assembly.gradients is None:
            return self._assembly.tables.product_bytes
        transient = self._whole.transient_bytes if self._whole else 0
        return self._assembly.gradients.num_bytes(self._goes_by_layer(capacity)) + transient

    def _goes_by_layer(self, capacity: int) -> bool:
        """Return whether steps are one micro-batch, and gradients of whole weights are applied as they come."""
        gradients, whole = self._assembly.gradients, self._whole
        possible = gradients is not None and gradients.can_go_by_layer and whole is not None and whole.by_layer
        return possible and whole is not None and capacity >= whole.step_tokens
