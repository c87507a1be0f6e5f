"""What config.json and generation_config.json of a model may say, as far as that is true of every model.

What only one architecture knows is left to its class in transformers, which the engine asks before it reads weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.json_values import shortened
from tunesmith_core.known_model_types import KNOWN
from tunesmith_core.messages import Message
from tunesmith_core.model_json import damaged
from tunesmith_core.packed_weights import format_of, settings_of
from tunesmith_core.safetensors_header import Tensor
from tunesmith_core.unquantized import base_of

NUM_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
NUM_LAYERS = ("decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
EMBEDDED = ("word_embed_proj_dim", "embedding_size")
WIDE = ("intermediate_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "ffn_hidden_size")
NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")
"""Names of these numbers in the configs of the families."""

_AT_LEAST_1 = frozenset((*NUM_HEADS, *NUM_LAYERS, *HIDDEN, "vocab_size", "num_key_value_heads"))
_AT_LEAST_0 = frozenset((*WIDE, "head_dim", "max_position_embeddings", "n_positions", "n_ctx"))
_SMALL = frozenset("rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps norm_epsilon".split())
_BOOLEANS = frozenset("tie_word_embeddings use_cache is_encoder_decoder is_decoder".split())
_TEXTS = frozenset(("model_type", "hidden_act", "activation_function"))
_FORMATS = frozenset(("dtype", "torch_dtype"))
_KNOWN_FORMATS = frozenset("auto float64 float32 float16 bfloat16 float half double".split())
_COUNT = re.compile(r"(num|n)_.*")
_TOKEN = re.compile(r"(eos|bos|pad|unk|sep|cls|mask)_token_id")
_DROPOUT = re.compile(r".*(dropout|pdrop).*")

MOST = 1 << 31
"""No size of a model comes near it, and every library can hold it."""

_QUANTIZED_NAMES = (".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".absmax", ".codebooks")
_DETAILS = ("format", "checkpoint_format", "bits", "version", "scale_fmt", "is_marlin_format")
_TRAINABLE = ("F64", "F32", "F16", "BF16")
_EMBEDDING = re.compile(r"(.*\.)?(embed_tokens|wte|embed_in|word_embeddings)\.weight")
_LAYER = re.compile(r"(.*?)\.?\b(layers|h|blocks)\.(\d+)\.(.+)")
_QUERIES = re.compile(r"(model\.|language_model\.|text_model\.)*layers\.\d+\.self_attn\.q_proj\.weight")
_EXPERT = re.compile(r"\.layers\.\d+\.(?:mlp|feed_forward|block_sparse_moe)\.experts\.(\d+)\.")
_PART_OF_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(.+\.(?:weight|bias))")
_MIXER = re.compile(r".*(attn|attention|mamba|mixer|conv|feed_forward|mlp|moe).*")
_NO_LANGUAGE = re.compile(r"vision|visual|audio|image|encoder|mtp")


def check_config(path: Path, config: Mapping[str, Any]) -> None:  # Any: JSON values
    """Refuse a config that no model can have.

    Raises:
        UserError: `model-files-missing-or-corrupt` naming the setting, or `model-kind-unsupported` for an
            encoder-decoder, for weights quantized in a way that isn't read and for a model that needs code of its own.
        EnvironmentProblem: `transformers-version-mismatch` for a type that transformers doesn't know.
    """
    for key in ("model_type", "architectures"):
        if config.get(key):
            break
    else:
        raise damaged(path, "names neither a model_type nor an architecture")
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type and model_type not in KNOWN:
        raise unknown_type(path.parent, model_type, bool(config.get("auto_map")))
    settings = settings_of(config)
    if settings is not None and format_of(settings) is None:
        raise _quantized(path.parent, path, _method(settings))
    if not isinstance(config.get("text_config", {}), dict | type(None)):
        raise damaged(path, "text_config must be an object, not {value}", value=_shown(config["text_config"]))
    for part in (config, language_part(config)):
        for name, value in part.items():
            if problem := _problem(name, value):
                raise damaged(
                    path, "{name} {problem}, not {value}", name=shortened(name), problem=problem, value=_shown(value)
                )
    if config.get("is_encoder_decoder") is True:
        kind = config.get("model_type") or "unknown type"
        raise UserError(
            "model-kind-unsupported",
            "{folder}: a model of type {kind} is an encoder-decoder.",
            folder=path.parent,
            kind=kind,
        )


def unknown_type(folder: Path, model_type: str, has_code: bool) -> TunesmithError:
    """Return the error of a type that transformers has no code for: a newer one may have it, or only the model itself.

    Args:
        folder: of the model.
        model_type: as config.json has it.
        has_code: whether the model brings code of its own.
    """
    if has_code:
        return TunesmithError(
            "model-kind-unsupported",
            "{folder}: the model needs code of its own (auto_map in config.json), for transformers doesn't know the "
            "type {model_type}. Tunesmith never runs the code of a model.",
            hint="Choose a version of the model that works without code of its own, or another model.",
            folder=folder,
            model_type=shortened(model_type),
        )
    return TunesmithError(
        "transformers-version-mismatch",
        "{folder}: models of type {model_type} are not supported by the installed transformers.",
        folder=folder,
        model_type=shortened(model_type),
    )


def check_generation(path: Path, values: Mapping[str, Any]) -> None:  # Any: JSON values
    """Refuse token ids in generation_config.json that can't be any. Raises UserError naming the setting."""
    for name, value in values.items():
        if _TOKEN.fullmatch(name) and (problem := _token_problem(value)):
            raise damaged(path, "{name} {problem}, not {value}", name=name, problem=problem, value=_shown(value))


def check_tensors(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # Any: JSON values
    """Refuse weights that are compressed or of which config.json leaves out or invents a part.

    Raises:
        UserError: `model-kind-unsupported` or `model-files-missing-or-corrupt`.
    """
    for name, tensor in tensors.items():
        if name.endswith(_QUANTIZED_NAMES):
            raise _quantized(folder, folder, shortened(name))
        if name.endswith(".weight") and len(tensor.shape) > 1 and tensor.dtype not in _TRAINABLE:
            raise _quantized(folder, folder, f"{shortened(name)}: {tensor.dtype}")
    part = language_part(config)
    rows = embedding_rows(tensors)
    # A few models have some rows more.
    if rows is not None and isinstance(part.get("vocab_size"), int) and rows < part["vocab_size"]:
        raise damaged(
            folder / "config.json",
            "vocab_size is {vocab_size}, but the embedding in the weights has {rows} rows",
            vocab_size=part["vocab_size"],
            rows=rows,
        )
    pad = part.get("pad_token_id")
    if rows is not None and isinstance(pad, int) and pad >= rows:
        # transformers would not even make such an embedding.
        raise damaged(
            folder / "config.json",
            "pad_token_id is {pad}, but the embedding in the weights has {rows} rows",
            pad=pad,
            rows=rows,
        )
    _check_heads(folder, part, tensors)
    check_size(folder / "config.json", part, sum(math.prod(tensor.shape) for tensor in tensors.values()))
    _check_layers(folder, part, tensors)
    _check_width(folder, part, tensors)
    _check_experts(folder, part, tensors)
    _check_whole_experts(folder, part, tensors)


def check_size(path: Path, part: Mapping[str, Any], num_numbers: int) -> None:  # Any: JSON values
    """Refuse settings by which one part of the model alone would be larger than all the weights.

    Without it a library would make a model of that size first, which can take all memory or forever.

    Args:
        path: config.json, named in the error.
        part: settings of the language model.
        num_numbers: in all weights.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
    """
    hidden, wide, layers, rows = (_first_whole(part, names) for names in (HIDDEN, WIDE, NUM_LAYERS, ("vocab_size",)))
    embedded = _first_whole(part, EMBEDDED) or hidden
    sizes = {"vocab_size": rows * embedded, "intermediate_size": wide * hidden, "num_hidden_layers": layers * hidden}
    sizes |= {
        name: value
        for name, value in part.items()
        if _COUNT.fullmatch(name) and name not in _AT_LEAST_0 and type(value) is int
    }
    for name, size in sizes.items():
        if size > num_numbers:
            raise damaged(
                path,
                "by {name}, the model would be larger than its weights: {size:,} numbers of {held:,}",
                name=shortened(name),
                size=size,
                held=num_numbers,
            )


def _first_whole(part: Mapping[str, Any], names: Sequence[str]) -> int:  # Any: JSON values
    return next((part[name] for name in names if type(part.get(name)) is int), 0)


def language_part(config: Mapping[str, Any]) -> Mapping[str, Any]:  # Any: JSON values
    """Return the settings of the language model; models that also see images keep them one level deeper."""
    text = config.get("text_config")
    return text if isinstance(text, dict) and text else config


def embedding_rows(tensors: Mapping[str, Tensor]) -> int | None:
    """Return for how many tokens the weights have an embedding; None where that can't be told."""
    rows = {
        tensor.shape[0] for name, tensor in tensors.items() if len(tensor.shape) == 2 and _EMBEDDING.fullmatch(name)
    }
    return rows.pop() if len(rows) == 1 else None


def _quantized(folder: Path, path: Path, method: str) -> UserError:
    base = base_of(folder)
    which = (
        Message("Choose the unquantized model that it was made from: {base}.", base=shortened(base))
        if base
        else Message("Choose the unquantized version of the model.")
    )
    return UserError(
        "model-kind-unsupported",
        "{path}: the weights are quantized ({method}).",
        hint=Message(
            "{which} To save memory, set Frozen weights to NF4 or Int8: it is quantized while it loads.", which=which
        ),
        path=path,
        method=method,
    )


def _method(settings: Mapping[str, Any]) -> str:  # Any: JSON values
    """Return the name of the way in which weights are quantized, with what makes it one that isn't read."""
    for key in ("quant_method", "quant_algo"):
        if isinstance(settings.get(key), str):
            details = [f"{name}: {settings[name]}" for name in _DETAILS if settings.get(name) not in (None, False, {})]
            return shortened(", ".join([settings[key], *details]))
    if settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        return "bitsandbytes"
    return Message("unknown method")


def _problem(name: str, value: object) -> Message | None:
    """Say what is wrong with a setting, or return None; what is not known here is right."""
    problem: Message | None = None
    if value is None:
        # The class of the model has a default for it, or says that it needs one.
        return None
    if name in _AT_LEAST_1 or name in _AT_LEAST_0:
        problem = _count_problem(value, 1 if name in _AT_LEAST_1 else 0)
    elif name in _SMALL:
        # What is not a number at all is told by the first prediction, which is none either.
        sound = _is_number(value) and not value < 0  # type: ignore[operator]
        problem = None if sound else Message("must be a small positive number")
    elif name in _BOOLEANS:
        problem = None if isinstance(value, bool) else Message("must be true or false")
    elif name in _TEXTS:
        problem = None if isinstance(value, str) else Message("must be a text")
    elif name == "architectures":
        sound = isinstance(value, list) and all(isinstance(each, str) for each in value)
        problem = None if sound else Message("must be a list of names")
    elif name in _FORMATS:
        known = isinstance(value, dict) or (isinstance(value, str) and value.removeprefix("torch.") in _KNOWN_FORMATS)
        problem = None if known else Message("must be a number format such as bfloat16")
    elif _TOKEN.fullmatch(name):
        problem = _token_problem(value)
    elif _DROPOUT.fullmatch(name):
        sound = isinstance(value, bool | dict | list) or (_is_number(value) and 0 <= value <= 1)  # type: ignore[operator]
        problem = None if sound else Message("must be between 0 and 1")
    elif name == "rope_theta":
        sound = isinstance(value, dict | list) or (_is_number(value) and 0 < value < math.inf)  # type: ignore[operator]
        problem = None if sound else Message("must be above 0")
    if problem is None and isinstance(value, int) and abs(value) >= 1 << 63:
        problem = Message("must be a number of 64 bits")
    return problem


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    # Some files write 1200.0 for 1200.
    return _is_number(value) and value % 1 == 0  # type: ignore[operator]


def _count_problem(value: object, least: int) -> Message | None:
    """Say what is wrong with a size; some models have several, for each layer or part one."""
    if isinstance(value, list | dict):
        several = value.values() if isinstance(value, dict) else value
        sound = all(each is None or (_is_whole(each) and 0 <= each < MOST) for each in several)
    else:
        sound = _is_whole(value) and least <= value < MOST  # type: ignore[operator]
    return None if sound else Message("must be a whole number of at least {least}", least=least)


def _token_problem(value: object) -> Message | None:
    each = value if isinstance(value, list) else [value]
    # Minus one is written where there is no such token.
    sound = all(number is None or (type(number) is int and -1 <= number < MOST) for number in each)
    return None if sound else Message("must be the number of a token")


def _check_heads(folder: Path, part: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # Any: JSON values
    """Refuse a number of heads that divides the queries of no layer.

    The hidden size says less: many models give their heads another size.
    """
    heads = _first_whole(part, NUM_HEADS)
    rows = {tensor.shape[0]: name for name, tensor in tensors.items() if _QUERIES.fullmatch(name) and tensor.shape}
    if heads and rows and all(each % heads for each in rows):
        most = max(rows)
        raise damaged(
            folder / "config.json",
            "{heads} attention heads can't share the {rows} rows of {name}",
            heads=heads,
            rows=most,
            name=shortened(rows[most]),
        )


def _check_layers(folder: Path, part: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # Any: JSON values
    """Refuse a config with more layers than the weights hold, or fewer: transformers would cut the model silently.

    A layer behind the last that joins what layers don't is no such layer: it predicts further tokens, and many models
    that have one leave it out on purpose.
    """
    wanted = next((part[name] for name in NUM_LAYERS if isinstance(part.get(name), int)), None)
    if wanted is None:
        return
    stacks: dict[str, dict[int, set[str]]] = {}
    for name in tensors:
        found = _LAYER.fullmatch(name)
        if found and not _NO_LANGUAGE.search(found[1]):
            stacks.setdefault(f"{found[1]}.{found[2]}", {}).setdefault(int(found[3]), set()).add(found[4])
    known = list(stacks.values())
    # Of several stacks, each gone through more than once (HRM), a config counts the passes.
    held = max(known[0]) + 1 if len(known) == 1 else wanted
    for layers in known if held >= wanted else ():
        parts = {number: {name.partition(".")[0] for name in names} for number, names in layers.items()}
        inside = set().union(*(names for number, names in parts.items() if number < wanted))
        # Another kind of mixer than the layers before have makes a hybrid's layer, none that predicts.
        alike = [number for number, names in parts.items() if all(map(_MIXER.fullmatch, names - inside))]
        held = max([wanted, *(number + 1 for number in alike if number >= wanted)])
        if held > wanted:
            break
    if held != wanted:
        raise damaged(
            folder / "config.json", "names {wanted} layers, but the weights hold {held}", wanted=wanted, held=held
        )


def _check_width(folder: Path, part: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # Any: JSON values
    """Refuse a hidden size that neither the embedding nor any layer's queries have."""
    hidden = _first_whole(part, HIDDEN)
    read = {tensor.shape[1] for name, tensor in tensors.items() if _QUERIES.fullmatch(name) and len(tensor.shape) == 2}
    embedded = {
        tensor.shape[1] for name, tensor in tensors.items() if _EMBEDDING.fullmatch(name) and len(tensor.shape) == 2
    }
    if hidden and len(read) == 1 and read == embedded and hidden not in read:
        raise damaged(
            folder / "config.json",
            "says that hidden_size is {hidden}, but the layers in the weights read {read} numbers of a token",
            hidden=hidden,
            read=read.pop(),
        )


def _check_experts(folder: Path, part: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # Any: JSON values
    """Refuse more experts of a token than there are, and more of a layer than the weights hold one by one."""
    wanted, chosen = _first_whole(part, NUM_EXPERTS), _first_whole(part, EXPERTS_PER_TOKEN)
    if not wanted or not any(".experts." in name for name in tensors):
        return
    if chosen > wanted:
        raise damaged(
            folder / "config.json",
            "names {chosen} experts of each token, but {wanted} in all",
            chosen=chosen,
            wanted=wanted,
        )
    held = max((int(found[1]) + 1 for name in tensors if (found := _EXPERT.search(name))), default=wanted)
    if held < wanted:
        raise damaged(
            folder / "config.json", "names {wanted} experts, but the weights hold {held}", wanted=wanted, held=held
        )


def _check_whole_experts(
    folder: Path,
    part: Mapping[str, Any],  # Any: JSON values
    tensors: Mapping[str, Tensor],
) -> None:
    """Refuse experts with fewer weights than others of their layer: transformers fails when it stacks them.

    Experts beyond the count in config.json are not checked. In LongCat they return a token unchanged, so they need no
    down_proj.
    """
    held: dict[tuple[str, str], set[int]] = {}
    for name in tensors:
        if (found := _PART_OF_EXPERT.fullmatch(name)) and not _NO_LANGUAGE.search(found[1]):
            held.setdefault((found[1], found[3]), set()).add(int(found[2]))
    numbers: dict[str, int] = {}
    for (layer, _), each in held.items():
        numbers[layer] = max(numbers.get(layer, 0), max(each) + 1)
    if named := _first_whole(part, NUM_EXPERTS):
        numbers = {layer: min(number, named) for layer, number in numbers.items()}
        held = {key: {number for number in each if number < named} for key, each in held.items()}
    # A name may hold any number, so they are not counted one by one.
    lacking = [(layer, role, each) for (layer, role), each in held.items() if len(each) < numbers[layer]]
    if lacking:
        layer, role, each = lacking[0]
        number = next(number for number in range(numbers[layer]) if number not in each)
        name = shortened(f"{layer}.{number}.{role}")
        num_missing = sum(numbers[other] - len(present) for other, _, present in lacking)
        if num_missing == 1:
            raise damaged(folder, "the weight {name} is missing", name=name)
        raise damaged(
            folder, "{num_missing:,} weights of experts are missing, such as {name}", num_missing=num_missing, name=name
        )


def _shown(value: object) -> str:
    """Return a JSON value as it stands in the file, shortened."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    return shortened(f'"{value}"' if isinstance(value, str) else repr(value) if isinstance(value, float) else value)
