"""Prompts of several rows at once, packed through the layers of training; their keys and values stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from tunesmith_engine.data.example import Example
from tunesmith_engine.decode.cache import KeyValueCache
from tunesmith_engine.decode.remember import remember
from tunesmith_engine.decode.rotary import RotaryTables
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.layer import FusedLayer, Pass
from tunesmith_engine.fused.policy import LayerPolicy
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.tiling import SMALL
from tunesmith_engine.kernels import rms_norm
from tunesmith_engine.kernels.embedding import add_positions, embed
from tunesmith_engine.packed.pack import make_packed_batch


class Prefill:
    """Reads prompts into a cache.

    Attributes:
        capacity_tokens: of all prompts that are read at once.
    """

    def __init__(self, assembly: Assembly, capacity_tokens: int) -> None:
        self._assembly, self.capacity_tokens = assembly, capacity_tokens
        self._workspace = assembly.workspace(capacity_tokens)
        policies = (LayerPolicy("full"),) * len(assembly.shape.layers)
        layers = assembly.layers(policies, self._workspace, capacity_tokens, SMALL, for_answers=True)
        self._layers = [layer for layer in layers if isinstance(layer, FusedLayer)]
        self._per_layer = assembly.per_layer_of(self._workspace, capacity_tokens)
        self._store = _OneLayer(self._layers, capacity_tokens, assembly)

    def run(
        self,
        prompts: Sequence[Sequence[int]],
        first_row: int,
        cache: KeyValueCache,
        tables: RotaryTables,
        with_adapter: bool,
        from_position: int | None = None,
    ) -> torch.Tensor:
        """Read prompts into rows of the cache from `first_row` on.

        Args:
            prompts: tokens of each row, at most `capacity_tokens` together.
            first_row: of the cache.
            cache: whose rows are empty.
            tables: for the cache's capacity.
            with_adapter: False for the base model.
            from_position: None for the logits behind the last token of each prompt; else for those from this position
                on of each.

        Returns:
            Logits [rows, V] in the run's number format.
        """
        device, shape = self._assembly.compute.device, self._assembly.shape
        batch = make_packed_batch([_row(prompt) for prompt in prompts], device)
        if shape.placeholders is not None:
            batch = replace(batch, input_ids=shape.placeholders.read(batch.input_ids))
        lengths = [len(prompt) for prompt in prompts]
        turned = {kind: Rotary(*pair, batch.positions) for kind, pair in tables.at(batch.positions).items()}
        now = Pass(batch, turned, self._store, self._workspace, with_adapter, False)  # type: ignore[arg-type]
        (embedded,) = self._workspace.carve("output", (batch.num_tokens, self._assembly.gradient_width))
        x: torch.Tensor = embedded[:, : shape.hidden_size]
        pending: torch.Tensor | None = None
        self._assembly.scratch.forget()
        embed(batch.input_ids, self._assembly.tables.table(with_adapter), shape.embedding_scale, x)
        if shape.positions:
            add_positions(shape.positions, batch.positions, x)
        if shape.embedding_norm:
            rms_norm.add_norm(x, None, shape.embedding_norm, x)
        if self._per_layer:
            self._per_layer.forward(batch.input_ids, embedded, with_adapter)
        for layer in self._layers:
            x, pending = layer.forward(x, pending, now)
            if layer.attention is None:
                continue
            qkv = self._store.forward(layer.index, batch.num_tokens)["qkv"]
            remember(layer, qkv, batch, turned[layer.shape.rotary_kind], cache, first_row)
        cache.lengths[first_row : first_row + len(prompts)] = torch.tensor(lengths, dtype=torch.int32).to(device)
        starts = np.cumsum([0, *lengths])
        first = [length - 1 if from_position is None else from_position for length in lengths]
        wanted = [
            place
            for (start, end), skipped in zip(pairwise(starts), first, strict=True)
            for place in range(start + skipped, end)
        ]
        return self._logits(x, pending, torch.tensor(wanted, device=device), with_adapter)

    def _logits(
        self, x: torch.Tensor, pending: torch.Tensor | None, places: torch.Tensor, with_adapter: bool
    ) -> torch.Tensor:
        """Return the logits of some places; the rows are gathered first, so the head multiplies nothing else."""
        shape, head = self._assembly.shape, self._assembly.tables.head(with_adapter)
        normed = x.new_empty(len(places), shape.hidden_size + head.num_extra)
        added = None if pending is None else pending.index_select(0, places)
        scale = shape.layers[-1].residual_scale
        rms_norm.add_norm(
            x.index_select(0, places), added, shape.final_norm, normed[:, : shape.hidden_size], None, scale
        )
        logits = x.new_empty(len(places), head.num_outputs)
        head.forward(normed, logits, with_adapter)
        return logits


class _OneLayer:
    """What one layer leaves, on the same memory for every layer: nothing goes backward here."""

    def __init__(self, layers: Sequence[FusedLayer], capacity_tokens: int, assembly: Assembly) -> None:
        compute = assembly.compute
        widths: dict[str, int] = {}
        self._names: list[dict[str, int]] = []
        for layer in layers:
            named = {name: width for name, (width, _) in layer.buffers(False, compute.dtype).tensors.items()}
            self._names.append(named)
            widths |= {name: max(width, widths.get(name, 0)) for name, width in named.items()}
        self._memory = {
            name: torch.zeros(capacity_tokens * width, device=compute.device, dtype=compute.dtype)
            for name, width in widths.items()
        }

    def forward(self, layer: int, num_tokens: int) -> dict[str, torch.Tensor]:
        """Return all tensors of a layer, [num_tokens, width]; see `ActivationStore.forward`."""
        return {
            name: self._memory[name][: num_tokens * width].view(num_tokens, width)
            for name, width in self._names[layer].items()
        }


def _row(tokens: Sequence[int]) -> Example:
    ids = np.asarray(tokens, np.int32)
    return Example(ids, ids)
