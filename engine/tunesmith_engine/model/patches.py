"""Changes to transformers while the engine runs, each with the reason; none changes a result."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, Mistral4Config, Mistral4ForCausalLM, masking_utils, modeling_utils


def _no_packed_rows(_: torch.Tensor) -> None:
    """Say that no row holds several packed texts, as transformers would find out for itself."""


def never_look_for_packed_rows() -> None:
    """Keep transformers from reading position ids back from the GPU in each forward pass, which makes the host wait.

    It looks for rows packed from several texts; ours hold one text each.
    """
    if hasattr(masking_utils, "find_packed_sequence_indices"):
        masking_utils.find_packed_sequence_indices = _no_packed_rows


def know_mistral_4() -> None:
    """Let transformers find the class of Mistral 4's text part by its config, which it has but doesn't list."""
    AutoModelForCausalLM.register(Mistral4Config, Mistral4ForCausalLM, exist_ok=True)


def _reserve_nothing(*_: object, **__: object) -> None:
    """Allocate nothing in advance."""


def never_reserve_weights_in_one_piece() -> None:
    """Keep transformers from taking memory for all weights in one piece before it reads them.

    It makes loading a little faster. But the fused path moves weights into buffers of its own, layer by layer, and what
    they leave inside one large piece can't be given back: 2.1 GiB lay idle beside Llama-3.1-8B in bfloat16.
    """
    if hasattr(modeling_utils, "caching_allocator_warmup"):
        modeling_utils.caching_allocator_warmup = _reserve_nothing
