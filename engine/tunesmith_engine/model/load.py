"""Base model from a folder of safetensors files. Code from a model repository is never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.logging import disable_progress_bar

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message
from tunesmith_engine.device import Compute
from tunesmith_engine.model.patches import never_look_for_packed_rows, never_reserve_weights_in_one_piece
from tunesmith_engine.model.quant import never_pack_for_the_cpu, nf4_config

REMOVED_CONFIG_KEYS = ("auto_map", "trust_remote_code", "custom_pipelines", "attn_implementation")
"""Keys by which a model folder could name code or kernels to load."""

REFUSED_TYPES = {
    "reformer": Message("splits texts into chunks of a fixed length, so it can't train on examples of any length"),
    "xmod": Message("has separate weights for each language and does not know which to train"),
}


def load_config(folder: Path) -> Any:  # Any: transformers' config of this model
    """Return the config of a model folder without anything that could load code.

    Raises:
        UserError: `model-files-missing-or-corrupt` or `model-kind-unsupported`.
        EnvironmentProblem: `transformers-version-mismatch`.
    """
    values = _with_special_floats(files.read_json(folder / "config.json"))
    model_type = values.get("model_type")
    for key in [key for key in values if key in REMOVED_CONFIG_KEYS or key.startswith("_attn_implementation")]:
        del values[key]
    if not isinstance(model_type, str):
        raise TunesmithError(
            "model-files-missing-or-corrupt", "{folder}: model_type is missing.", folder=folder / "config.json"
        )
    if model_type not in CONFIG_MAPPING:
        raise TunesmithError(
            "transformers-version-mismatch",
            "{folder}: models of type {model_type} are not supported by the installed transformers.",
            folder=folder,
            model_type=model_type,
        )
    if model_type in REFUSED_TYPES:
        raise UserError(
            "model-kind-unsupported",
            "{folder}: {model_type} {reason}.",
            folder=folder,
            model_type=model_type,
            reason=REFUSED_TYPES[model_type],
        )
    config = CONFIG_MAPPING[model_type].from_dict(values)
    if type(config) not in AutoModelForCausalLM._model_mapping:
        is_pair = model_type in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
        kind = Message("an encoder-decoder") if is_pair else Message("not a language model on its own")
        raise UserError(
            "model-kind-unsupported",
            "{folder}: a model of type {model_type} is {kind}.",
            folder=folder,
            model_type=model_type,
            kind=kind,
        )
    return config


def _with_special_floats(value: Any) -> Any:  # Any: JSON values
    """Return JSON with the numbers that it has no form for, which transformers writes as {"__float__": "Infinity"}."""
    if isinstance(value, dict):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: _with_special_floats(item) for key, item in value.items()}
    return [_with_special_floats(item) for item in value] if isinstance(value, list) else value


def load_model(folder: Path, compute: Compute, four_bit: bool) -> Any:  # Any: a transformers model
    """Return the frozen base model on its device.

    Raises:
        UserError: `model-files-missing-or-corrupt` when weights are missing in the files.
    """
    never_look_for_packed_rows()
    never_reserve_weights_in_one_piece()
    disable_progress_bar()
    arguments: dict[str, Any] = {
        "config": load_config(folder),
        "dtype": compute.dtype,
        "use_safetensors": True,
        "trust_remote_code": False,
        "local_files_only": True,
        "output_loading_info": True,
    }
    if four_bit:
        arguments["quantization_config"] = nf4_config(compute.dtype, arguments["config"].model_type)
    if four_bit or compute.device.type == "cuda":
        arguments["device_map"] = {"": compute.device}
    try:
        model, info = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", **arguments)
    except ValueError as error:
        # A few architectures have no scaled-dot-product attention in transformers; they say so by this error.
        if "scaled_dot_product_attention" not in str(error):
            raise
        arguments["config"] = load_config(folder)
        model, info = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **arguments)
    missing = sorted(info["missing_keys"])
    if missing:
        # transformers would go on with random numbers in their place.
        raise TunesmithError(
            "model-files-missing-or-corrupt",
            "{folder}: {num_missing} weights are missing, such as {name}.",
            folder=folder,
            num_missing=len(missing),
            name=missing[0],
        )
    model.requires_grad_(False)
    never_pack_for_the_cpu(model)
    return model


def num_parameters(model: torch.nn.Module) -> int:
    """Return the number of parameters without adapters; packed 4-bit weights count as what they stand for."""
    total = 0
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            continue
        state = getattr(parameter, "quant_state", None)
        total += state.shape.numel() if state is not None else parameter.numel()
    return total
