"""4-bit and 8-bit base weights: NF4 with double quantisation, and LLM.int8, by bitsandbytes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig


_ALTUP = ["lm_head", "prediction_coefs", "correction_coefs"]
KEPT_WHOLE = {"gemma3n": _ALTUP, "gemma3n_text": _ALTUP, "mamba": ["lm_head", "dt_proj"]}
"""Layers, by type of model, whose weight is read by other code than their own, which can't unpack it."""


def nf4_config(compute_dtype: torch.dtype, model_type: str) -> BitsAndBytesConfig:
    """Return the settings of an NF4 base whose products are computed in a number format."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
        llm_int8_skip_modules=KEPT_WHOLE.get(model_type),
    )


def int8_config(model_type: str) -> BitsAndBytesConfig:
    """Return the settings of an 8-bit base (Dettmers et al. 2022, arXiv:2208.07339): outliers keep 16 bits."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=KEPT_WHOLE.get(model_type))


def calculate_in(model: Any, dtype: torch.dtype) -> None:  # Any: a transformers model
    """Let a model whose packed weights were read as they are calculate in a number format.

    transformers leaves such a model in the format of its files.
    """
    as_stored = [re.compile(pattern.replace("*", ".*")) for pattern in model._get_dtype_plan(dtype)]
    for name, weight in model.named_parameters():
        state = getattr(weight, "quant_state", None)
        if state is not None:
            state.dtype = dtype
        elif weight.is_floating_point() and not any(pattern.search(name) for pattern in as_stored):
            weight.data = weight.data.to(dtype)


def never_pack_for_the_cpu(model: torch.nn.Module) -> None:
    """Keep bitsandbytes from packing 4-bit weights anew for the CPU's bf16 instructions.

    It does so when a model in evaluation mode is first called, for good and with scales rounded to bf16, so a look at
    the held-out loss would change what training does next.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
