"""The practical floor of a LoRA step: the model's own matrix products and attention, timed alone on this device.

No step can be faster than each product with a frozen weight (forward, and backward for the input's gradient) and each
attention once. A step that computes every layer twice needs the forward part of the layers twice. Of experts, the rows
of all tokens are one product; a token that sees so many before it is as much work as documents of twice the length.
What has attention's place otherwise, as a scan, is left out, and so is all attention of a model that isn't understood.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.shapes import NotFusableError, SparseShape

NUM_WARMUPS, NUM_TIMES = 3, 10
MOST_OUTPUT_NUMBERS = 2**31
"""Larger products are timed in parts, as they would have to be computed."""

BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


@dataclass(frozen=True, slots=True)
class Floor:
    """Times of a step, in ms: with every layer computed twice, and with every layer computed once."""

    replay_all_ms: float
    replay_none_ms: float


@dataclass(frozen=True, slots=True)
class Shapes:
    """The work of a model.

    Attributes:
        products: (inputs, outputs, rows of each token) -> number in all layers; experts have several rows of a token.
        head: (inputs, outputs).
        attentions: (heads, numbers of a head, most tokens that a query sees or None) -> number of layers.
    """

    products: Counter[tuple[int, int, int]]
    head: tuple[int, int]
    attentions: Counter[tuple[int, int, int | None]]

    @classmethod
    def of(cls, model: Any) -> Shapes:  # Any: a PeftModel or a transformers model
        """Read them off a model, whose adapters do not count."""
        head = model.get_output_embeddings()
        products: Counter[tuple[int, int, int]] = Counter()
        for name, module in model.named_modules():
            linear = isinstance(module, torch.nn.Linear) and "lora_" not in name
            if linear and module is not head and module is not getattr(head, "base_layer", None):
                products[module.in_features, module.out_features, 1] += 1
        attentions: Counter[tuple[int, int, int | None]] = Counter()
        with contextlib.suppress(NotFusableError):
            shape = recognise(model)
            for each in shape.attentions:
                attentions[each.num_heads, each.head_dim, each.window or each.chunk] += 1
            for layer in shape.layers:
                if isinstance(layer.mlp, SparseShape):
                    products[shape.hidden_size, 2 * layer.mlp.width, layer.mlp.per_token] += 1
                    products[layer.mlp.width, shape.hidden_size, layer.mlp.per_token] += 1
        return cls(products, (head.in_features, head.out_features), attentions)


def measure(
    model: Any, device: torch.device, dtype: torch.dtype, num_tokens: int, num_documents: int, length: int
) -> Floor:  # Any: a PeftModel or a transformers model
    """Time the parts of a step.

    Args:
        model: a PeftModel or a transformers model.
        device: where.
        dtype: number format of the products.
        num_tokens: tokens of a step, which go through the products.
        num_documents: documents of a step that attention sees.
        length: tokens of each.
    """
    shapes = Shapes.of(model)
    timer = _Timer(device, dtype)
    forward_ms = backward_ms = 0.0
    for (inputs, outputs, num_rows), number in shapes.products.items():
        forward, backward = timer.product(num_rows * num_tokens, inputs, outputs)
        forward_ms, backward_ms = forward_ms + number * forward, backward_ms + number * backward
    head_ms = sum(timer.product(num_tokens, *shapes.head))
    for (num_heads, head_dim, reach), number in shapes.attentions.items():
        as_long = min(length, 2 * reach) if reach else length
        as_many = round(num_documents * length / as_long)
        forward, backward = timer.attention(as_many, as_long, num_heads, head_dim)
        forward_ms, backward_ms = forward_ms + number * forward, backward_ms + number * backward
    return Floor(2 * forward_ms + backward_ms + head_ms, forward_ms + backward_ms + head_ms)


class _Timer:
    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype

    def product(self, num_tokens: int, inputs: int, outputs: int) -> tuple[float, float]:
        """Return the ms of a product and of its input's gradient."""
        rows = min(num_tokens, MOST_OUTPUT_NUMBERS // max(inputs, outputs) - 1)
        x, weight, gradient = self._random(rows, inputs), self._random(outputs, inputs), self._random(rows, outputs)
        parts = num_tokens / rows
        return parts * self._ms(lambda: x @ weight.t()), parts * self._ms(lambda: gradient @ weight)

    def attention(self, num_documents: int, length: int, num_heads: int, head_dim: int) -> tuple[float, float]:
        """Return the ms of attention forward and backward by whichever backend is the quickest here."""
        shape = (num_documents, num_heads, length, head_dim)
        q, k, v, gradient = (self._random(*shape) for _ in range(4))
        for tensor in (q, k, v):
            tensor.requires_grad_(True)

        def forward() -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        found = []
        for backend in BACKENDS if self._device.type == "cuda" else (SDPBackend.MATH,):
            try:
                with sdpa_kernel(backend):
                    forward_ms = self._ms(forward)
                    both_ms = self._ms(lambda: torch.autograd.grad(forward(), (q, k, v), gradient))
            except RuntimeError:
                # This backend can't do the shape; the others are asked as well.
                continue
            found.append((forward_ms, both_ms - forward_ms))
        return min(found, key=sum)

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=self._device, dtype=self._dtype)

    def _ms(self, work: Callable[[], object]) -> float:
        for _ in range(NUM_WARMUPS):
            work()
        return statistics.median(self._once(work) for _ in range(NUM_TIMES))

    def _once(self, work: Callable[[], object]) -> float:
        if self._device.type != "cuda":
            start_s = time.perf_counter()
            work()
            return (time.perf_counter() - start_s) * 1000
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)
