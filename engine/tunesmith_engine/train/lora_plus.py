"""Weights with rates of their own: the B of an adapter by LoRA+, and embeddings that are trained beside an adapter.

LoRA+ is Hayou et al. 2024 (arXiv 2402.12354); which weight has which rate is as in PEFT's `create_loraplus_optimizer`.
Embeddings and output layer learn slower, as Unsloth has it in its guide to continued pretraining: 2 to 10 times.
"""

from __future__ import annotations

from tunesmith_core.adapter_shapes import NO_LAYER
from tunesmith_core.spec_training import OptimizerSpec

EMBEDDING_RATE = 1e-6
"""PEFT's, of adapters on embeddings."""


def rate_factor(name: str, num_dimensions: int, settings: OptimizerSpec) -> float:
    """Return by what the learning rate is multiplied for a trained weight.

    Args:
        name: of the weight.
        num_dimensions: of the weight; vectors, as biases and DoRA's magnitudes are, learn as B does.
        settings: of the optimizer.
    """
    if (".modules_to_save." in name or ".trainable_tokens_delta." in name) and any(part in name for part in NO_LAYER):
        return settings.embedding_rate
    if settings.lora_plus_ratio == 1.0:
        return 1.0
    if "lora_embedding_" in name:
        return EMBEDDING_RATE / settings.learning_rate
    return settings.lora_plus_ratio if "lora_B" in name or num_dimensions == 1 else 1.0
