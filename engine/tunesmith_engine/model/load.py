"""Base model from a folder of safetensors files. Code from a model repository is never run."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.models.auto.auto_factory import _get_model_class
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.logging import disable_progress_bar

from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message
from tunesmith_core.model_config import check_size, unknown_type
from tunesmith_core.model_folder import read_layout
from tunesmith_core.model_json import read_object
from tunesmith_core.packed_weights import QUANTIZED_KEYS, Layout, format_of, is_kept, settings_of
from tunesmith_core.position_limits import too_long
from tunesmith_engine.device import Compute
from tunesmith_engine.model.complete import check_complete, check_finite
from tunesmith_engine.model.expert_places import HostRoom
from tunesmith_engine.model.folder import num_rows
from tunesmith_engine.model.foreign import reading
from tunesmith_engine.model.heads import NAME as HEAD_NAME
from tunesmith_engine.model.heads import Head, kind_of_model
from tunesmith_engine.model.packed import StoredWeights
from tunesmith_engine.model.patches import (
    know_language_model,
    never_look_for_packed_rows,
    never_reserve_weights_in_one_piece,
)
from tunesmith_engine.model.quant import calculate_in, int8_config, never_pack_for_the_cpu, nf4_config
from tunesmith_engine.model.row_lengths import learned_positions

logger = logging.getLogger(__name__)

HEAD_WEIGHTS = frozenset({f"{HEAD_NAME}.weight", f"{HEAD_NAME}.bias"})
"""Missing in every base model, because a head gets its first numbers from `Head.begin`."""

REMOVED_CONFIG_KEYS = ("auto_map", "trust_remote_code", "custom_pipelines", "attn_implementation")
"""Keys by which a model folder could name code or kernels to load."""

REMOVED_CONFIG_STARTS = ("_attn_implementation", "_experts_implementation", "experts_implementation")

HALVING = "rescale_every"
"""After so many layers RWKV halves its numbers when it is not trained, and the weights of the layers behind, but no
adapter beside these: another model would be evaluated than was trained."""

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
    path = folder / "config.json"
    values = read_object(path)
    model_type, has_code = values.get("model_type"), bool(values.get("auto_map"))
    for key in [key for key in values if key in REMOVED_CONFIG_KEYS or key.startswith(REMOVED_CONFIG_STARTS)]:
        del values[key]
    for part in [values, *(value for value in values.values() if isinstance(value, dict))]:
        # Packed weights are unpacked here, see `load_model`.
        for key in QUANTIZED_KEYS:
            part.pop(key, None)
    if not isinstance(model_type, str):
        raise TunesmithError("model-files-missing-or-corrupt", "{folder}: model_type is missing.", folder=path)
    know_language_model(model_type)
    if model_type not in CONFIG_MAPPING:
        raise unknown_type(folder, model_type, has_code)
    if model_type in REFUSED_TYPES:
        raise UserError(
            "model-kind-unsupported",
            "{folder}: {model_type} {reason}.",
            folder=folder,
            model_type=model_type,
            reason=REFUSED_TYPES[model_type],
        )
    with reading(path, "the settings can't be used"):
        config = CONFIG_MAPPING[model_type].from_dict(_with_special_floats(values))
        num_rows(config)
    if hasattr(config, HALVING):
        setattr(config, HALVING, 0)
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


def load_model(
    folder: Path,
    compute: Compute,
    four_bit: bool,
    head: Head | None = None,
    *,
    eight_bit: bool = False,
    host_room: HostRoom | None = None,
) -> Any:  # Any: a transformers model
    """Return the frozen base model on its device, with a new head in place of its output layer where one is given.

    Args:
        folder: of the model. Quantized weights are unpacked one by one as they are taken, or kept where they already
            are what is asked for.
        compute: its device and number format.
        four_bit, eight_bit: how its linear layers are stored; as the rest of it where neither is said.
        host_room: for experts in 4 bits in the computer's memory; None keeps them on the device.

    Raises:
        UserError: `model-files-missing-or-corrupt` when the files hold other weights than the model has,
            `model-kind-unsupported` for a head that it can't have.
    """
    never_look_for_packed_rows()
    never_reserve_weights_in_one_piece()
    disable_progress_bar()
    layout = read_layout(folder)
    kind = "nf4" if four_bit else "int8" if eight_bit else "none"
    kept = _kept(folder, kind)
    config = _config_of(folder, compute, head, kept)
    _check_size(folder, config, layout)
    arguments = _arguments(compute, kind, None if kept else config.model_type)
    if four_bit:
        # Not imported where nothing is packed.
        from tunesmith_engine.model import packed_experts

        packed_experts.pack_experts_too(host_room or HostRoom(0))
    _check_generation_config(folder)

    unpacking = (layout, compute) if layout.packed and not kept else None
    with reading(folder, "no model can be made of config.json and the weights"):
        try:
            model, info = _read(kind_of_model(head), folder, config, "sdpa", arguments, unpacking)
        except ValueError as error:
            # A few architectures have no scaled-dot-product attention in transformers; they say so by this error.
            if "scaled_dot_product_attention" not in str(error):
                raise
            config = _config_of(folder, compute, head, kept)
            model, info = _read(kind_of_model(head), folder, config, "eager", arguments, unpacking)
    if head:
        head.begin(model, folder)
        info["missing_keys"] -= HEAD_WEIGHTS
    check_complete(folder, model, info, layout)
    check_finite(folder, model, layout)
    if kept:
        calculate_in(model, compute.dtype)
    if four_bit:
        packed_experts.unpack_when_read(model, compute.dtype)
    never_pack_for_the_cpu(model)
    return model.requires_grad_(False)


def check_weights(folder: Path, head: Head | None = None) -> None:
    """Refuse a model folder as `load_model` does whose files hold other weights than the model has, reading headers.

    Args:
        folder: of the model.
        head: that takes the place of its output layer, if any.

    Raises:
        UserError: `model-files-missing-or-corrupt`, and what `load_config` and `read_layout` find.
    """
    disable_progress_bar()
    layout, config = read_layout(folder), load_config(folder)
    _check_size(folder, config, layout)
    kind = kind_of_model(head)
    if type(config) not in kind._model_mapping:
        # Another refusal, which comes with the labels.
        return
    weights = {name: torch.empty(weight.shape, dtype=torch.bfloat16, device="meta")
               for name, weight in layout.weights.items()}  # fmt: skip
    arguments = _arguments(Compute(torch.device("meta"), torch.bfloat16, "", 1), "none", None)
    try:
        # Attention has no weights of its own, and every architecture has this one.
        model, info = _model_of(kind, config, weights, "eager", arguments)
    except Exception:
        # Nothing that is known of the files: numbers may be asked for, of which there are none.
        logger.info("%s: the weights could not be checked before they are loaded", folder, exc_info=True)
        return
    if head:
        info["missing_keys"] -= HEAD_WEIGHTS
    check_complete(folder, model, info, layout)


def _check_size(folder: Path, config: Any, layout: Layout) -> None:  # Any: transformers' config of this model
    """Check sizes again, with what config.json leaves to the class of the model."""
    num_numbers = sum(math.prod(weight.shape) for weight in layout.weights.values())
    check_size(folder / "config.json", vars(config.get_text_config()), num_numbers)


def _arguments(compute: Compute, kind: str, packs: str | None) -> dict[str, Any]:  # Any: of `from_pretrained`
    """Return what transformers is told of a model.

    Args:
        compute: its device and number format.
        kind: how its linear layers are stored: "nf4", "int8" or "none".
        packs: its type, if they have to be packed for that.
    """
    arguments: dict[str, Any] = {
        "dtype": compute.dtype,
        "use_safetensors": True,
        "trust_remote_code": False,
        "local_files_only": True,
        "output_loading_info": True,
        # Refused by `check_complete`, by name.
        "ignore_mismatched_sizes": True,
    }
    if packs is not None and kind != "none":
        arguments["quantization_config"] = nf4_config(compute.dtype, packs) if kind == "nf4" else int8_config(packs)
    if kind != "none" or compute.device.type != "cpu":
        arguments["device_map"] = {"": compute.device}
    return arguments


def _kept(folder: Path, kind: str) -> dict[str, Any] | None:  # Any: JSON values
    """Return the settings of quantized weights that are taken as they are; None for all others."""
    settings = settings_of(read_object(folder / "config.json"))
    format_ = format_of(settings) if settings else None
    return dict(settings) if settings and format_ and is_kept(format_, kind) else None


def _config_of(
    folder: Path, compute: Compute, head: Head | None, kept: dict[str, Any] | None
) -> Any:  # Any: JSON values; transformers' config of this model
    """Return the config of a model that is made: with its head, and with the settings of packed weights in it."""
    config = load_config(folder)
    if head:
        head.configure(config, folder)
    if kept:
        # transformers takes the settings of such weights from the config alone.
        whole = {"llm_int8_skip_modules": [*(kept.get("llm_int8_skip_modules") or ["lm_head"]), HEAD_NAME]}
        number = {"bnb_4bit_compute_dtype": str(compute.dtype).removeprefix("torch.")}
        config.quantization_config = kept | number | (whole if head else {})
    return config


def _read(
    kind: Any,
    folder: Path,
    config: Any,
    attention: str,
    arguments: Mapping[str, Any],
    unpacking: tuple[Layout, Compute] | None,
) -> tuple[Any, dict[str, Any]]:  # Any: a class of transformers, its config, arguments and model, sets of names
    """Return a model and what transformers says of its weights.

    Args:
        kind: of the model.
        folder: of the model.
        config: of the model.
        attention: how it computes attention, as transformers calls it.
        arguments: of `from_pretrained`.
        unpacking: which weights are unpacked, and where; None where transformers reads them itself.
    """
    if unpacking is None:
        model, info = kind.from_pretrained(folder, config=config, attn_implementation=attention, **arguments)
        return model, info
    layout, compute = unpacking
    with StoredWeights(folder, layout, compute.dtype, compute.device) as weights:
        model, info = _model_of(kind, config, weights.lazy(), attention, arguments)
    model.name_or_path = model.config._name_or_path = str(folder)
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model, info


def _model_of(
    kind: Any, config: Any, weights: Mapping[str, Any], attention: str, arguments: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:  # Any: as in `_read`; weights are tensors, or are read when they are taken
    """Return what `_read` does, of a model of these weights."""
    # transformers takes either files or weights, and for weights the class of the model itself.
    own = _get_model_class(config, kind._model_mapping)
    model, info = own.from_pretrained(
        None, config=config, attn_implementation=attention, state_dict=weights, **arguments
    )
    return model, info


def _check_generation_config(folder: Path) -> None:
    if (folder / "generation_config.json").is_file():
        with reading(folder / "generation_config.json", "the settings can't be used"):
            GenerationConfig.from_pretrained(folder, local_files_only=True)


def check_row_lengths(longest_tokens: int, model: PreTrainedModel, folder: Path) -> None:
    """Refuse rows that are longer than a model's learned table of positions: a GPU would fail without saying why.

    Raises:
        UserError: `spec-invalid`.
    """
    if problem := too_long(longest_tokens, learned_positions(model) or 0, folder):
        raise problem


def num_parameters(model: torch.nn.Module) -> int:
    """Return the number of parameters without adapters; packed 4-bit weights count as what they stand for."""
    # PEFT takes seconds to import, for which `check_weights` would wait.
    from tunesmith_engine.model.targets import is_of_adapter

    total = 0
    for name, parameter in model.named_parameters():
        if is_of_adapter(name) or ".modules_to_save." in name or ".trainable_tokens_delta." in name:
            continue
        state = getattr(parameter, "quant_state", None)
        total += state.shape.numel() if state is not None else parameter.numel()
    return total
