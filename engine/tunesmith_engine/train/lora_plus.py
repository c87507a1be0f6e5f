"""LoRA+ (Hayou et al. 2024, arXiv 2402.12354): the B of an adapter learns faster than its A.

Which weight has which rate is as in PEFT's `create_loraplus_optimizer`.
"""

from __future__ import annotations

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
    if settings.lora_plus_ratio == 1.0:
        return 1.0
    if "lora_embedding_" in name:
        return EMBEDDING_RATE / settings.learning_rate
    return settings.lora_plus_ratio if "lora_B" in name or num_dimensions == 1 else 1.0
