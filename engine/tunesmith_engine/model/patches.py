"""Changes to transformers while the engine runs, each with the reason; none changes a result."""

from __future__ import annotations

import torch
import transformers
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    Gemma3nVisionConfig,
    PreTrainedModel,
    masking_utils,
    modeling_utils,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.utils import is_timm_available, is_vision_available

FOR_IMAGES = (
    "aya_vision cohere2_vision exaone4_5 glm4v glm4v_moe idefics3 internvl lfm2_vl llava llava_next llava_onevision "
    "mistral3 qwen2_5_vl qwen2_vl qwen3_vl qwen3_vl_moe smolvlm".split()
)
"""Models for images and texts that read texts alone as well."""
NOT_LISTED = {"mistral4": "Mistral4ForCausalLM"} | {
    kind: MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[kind] for kind in FOR_IMAGES
}
"""Classes by types of models that train on texts, though transformers 5.23 doesn't list them as language models."""

OF_TIMM = "gemma3n"
"""A type of models whose part for images is made by a library that isn't among ours."""


class LeftOutTower(PreTrainedModel):
    """Stands for that part where texts are all that a model reads; it has no weights."""

    config_class = Gemma3nVisionConfig


def _no_packed_rows(_: torch.Tensor) -> None:
    """Say that no row holds several packed texts, as transformers would find out for itself."""


def never_look_for_packed_rows() -> None:
    """Keep transformers from reading position ids back from the GPU in each forward pass, which makes the host wait.

    It looks for rows packed from several texts; ours hold one text each.
    """
    if hasattr(masking_utils, "find_packed_sequence_indices"):
        masking_utils.find_packed_sequence_indices = _no_packed_rows


def know_language_model(model_type: str) -> None:
    """Let transformers find the class of a model that reads texts alone, though it doesn't list it as one that does.

    A part for images whose library is missing is left out of the model, whose files keep its weights.
    """
    if model_type == OF_TIMM and not (is_timm_available() and is_vision_available()):
        AutoModel.register(Gemma3nVisionConfig, LeftOutTower, exist_ok=True)
    if model_type in NOT_LISTED:
        kind = getattr(transformers, NOT_LISTED[model_type])
        AutoModelForCausalLM.register(CONFIG_MAPPING[model_type], kind, exist_ok=True)


def _reserve_nothing(*_: object, **__: object) -> None:
    """Allocate nothing in advance."""


def never_reserve_weights_in_one_piece() -> None:
    """Keep transformers from taking memory for all weights in one piece before it reads them.

    It makes loading a little faster. But the fused path moves weights into buffers of its own, layer by layer, and what
    they leave inside one large piece can't be given back: 2.1 GiB lay idle beside Llama-3.1-8B in bfloat16.
    """
    if hasattr(modeling_utils, "caching_allocator_warmup"):
        modeling_utils.caching_allocator_warmup = _reserve_nothing
