"""Which weights of a model folder an adapter sits on, read from the names of its tensors.

The engine decides it on the model itself (`tunesmith_engine.model.targets`); a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

NO_LAYER = ("embed", "lm_head", "wte", "wpe")
"""Parts of the names of embeddings and heads, which get no adapter."""

_ROUTERS = ("gate", "router", "router.classifier", "block_sparse_moe.router.layer")

_OF_MIXTRAL = dict.fromkeys("minimax minimax_m2 mixtral".split(), frozenset({"w1", "w2", "w3"}))
_OF_QWEN = dict.fromkeys(
    "afmoe beam cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe exaone_moe flex_olmo glm4_moe "
    "glm4_moe_lite glm_moe_dsa hunyuan_v1_moe longcat_flash mellum olmoe qwen3_moe qwen3_next solar_open".split(),
    frozenset({"gate_proj", "up_proj", "down_proj"}),
)
NAMES_OF_EXPERTS: Mapping[str, frozenset[str]] = {**_OF_MIXTRAL, **_OF_QWEN}
"""Types of models whose experts PEFT adapts, and the names that mean experts there, wherever else they stand."""

_SECOND_OF_MERGED = {"w3", "up_proj"}
"""Layers that became one weight with another, whose inputs they share."""

_STACKED = dict.fromkeys(("gate_proj", "up_proj", "w1", "w3"), "gate_up_proj") | {"w2": "down_proj"}
"""What becomes of an expert's layers where a model has all experts in one weight."""

_WHOLE_EXPERTS = ({"gate_up_proj", "down_proj"}, {"gate_proj", "up_proj", "down_proj"}, {"w1", "w2", "w3"})
"""Names of an expert's layers that become two weights of all experts."""

NO_OUT_PROJ = frozenset("falcon_h1 falcon_mamba mamba mamba2 nemotron_h".split())
"""Types whose out_proj PEFT leaves alone: its weight is read by other code."""

_STEP_SIZES = frozenset({"dt_proj"})
_ALTUP = frozenset({"correction_coefs"})
READ_PAST_ADAPTERS: Mapping[str, frozenset[str]] = {
    "falcon_mamba": _STEP_SIZES,
    "gemma3n": _ALTUP,
    "gemma3n_text": _ALTUP,
    "jamba": _STEP_SIZES,
    "longcat_flash": frozenset({"classifier"}),
    "mamba": _STEP_SIZES,
}
"""Linear layers, by type of model, with whose weights the model's own code multiplies, so that an adapter would stay as
it began: see `FalconMambaMixer`, `Gemma3nTextAltUp.correct` and `LongcatFlashTopkRouter` of transformers. Quantized,
Falcon Mamba and Jamba call theirs, and an adapter that learned there would be another model's once it is merged."""

ABOUT = frozenset(
    "ctrl deepseek_v4 fuyu gemma3n gemma3n_text git glm4v_moe hrm_text jetmoe lfm2_vl modernbert-decoder "
    "phi4_multimodal prophetnet rwkv zamba zamba2".split()
)
"""Types of which the names of the tensors don't tell exactly what gets an adapter: its size is about right."""


def is_linear(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor is the weight of a linear layer that is neither head, embedding, router nor expert."""
    if len(shape) != 2 or not name.endswith(".weight"):
        return False
    return not any(part in name for part in NO_LAYER) and not is_expert(name, shape)


def is_expert(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor belongs to the experts of a layer or chooses among them."""
    module = name.removesuffix(".weight")
    routes = any(module.endswith(f".{router}") for router in _ROUTERS)
    return (is_in_experts(name) and len(shape) in (2, 3)) or (routes and len(shape) == 2)


def num_adapter_parameters(
    model_type: str,
    linear: Mapping[str, tuple[int, int]],
    experts: Mapping[str, tuple[int, ...]],
    targets: Collection[str] | None,
    rank: int,
    of_layer: Callable[[str, int, int], int] | None = None,
) -> int:
    """Return the size of an adapter: rank x (inputs + outputs) of every weight that gets one (LoRA, section 4.1).

    Args:
        model_type: as in config.json.
        linear: outputs and inputs of linear layers, by tensor name.
        experts: sizes of weights of experts and routers, by tensor name; three where a layer's experts lie together.
        targets: names of layers; None for all that can have an adapter.
        rank: of the adapter.
        of_layer: the size at a linear layer by its name, its outputs and its inputs, where that is another.
    """
    names = NAMES_OF_EXPERTS.get(model_type, frozenset()) | READ_PAST_ADAPTERS.get(model_type, frozenset())
    total, num_others = 0, 0
    for tensor, (rows, columns) in linear.items():
        leaf = _leaf(tensor)
        wanted = leaf in targets if targets is not None else leaf != "out_proj" or model_type not in NO_OUT_PROJ
        if wanted and leaf not in names:
            module = tensor.removesuffix(".weight")
            num_others += of_layer(module, rows, columns) if of_layer else rank * (rows + columns)
    for tensor in adapted_experts(model_type, linear, experts, targets):
        shape = experts[tensor]
        inputs = 0 if _leaf(tensor) in _SECOND_OF_MERGED else shape[-1]
        total += math.prod(shape[:-2]) * (shape[-2] + inputs)
    return rank * total + num_others


def adapted_experts(
    model_type: str,
    linear: Collection[str],
    experts: Collection[str],
    targets: Collection[str] | None,
) -> list[str]:
    """Return the tensors of experts and routers that an adapter sits on; arguments as above.

    A name that a linear layer has means that layer, not a weight of experts, except for `NAMES_OF_EXPERTS`.
    """
    names = NAMES_OF_EXPERTS.get(model_type, frozenset())
    experts = [tensor for tensor in experts if _leaf(tensor) not in READ_PAST_ADAPTERS.get(model_type, ())]
    if targets is None:
        return experts if names else []
    of_layers = frozenset() if names else {_leaf(tensor) for tensor in linear}
    return [tensor for tensor in experts if not (_meant(tensor, names) - of_layers).isdisjoint(targets)]


def is_in_experts(tensor: str) -> bool:
    """Return whether a tensor of experts or a router, by its name, is of the experts."""
    return ".experts." in tensor


def names_of_experts(experts: Collection[str]) -> list[str]:
    """Return the names by which targets mean the experts' weights alone; none where their tensors don't tell them."""
    leaves = {_leaf(tensor) for tensor in experts if is_in_experts(tensor)}
    is_known = {leaf for leaf in leaves if not leaf.endswith("_bias")} in _WHOLE_EXPERTS
    return ["experts.down_proj", "experts.gate_up_proj"] if is_known else []


def _meant(tensor: str, names: frozenset[str]) -> set[str]:
    """Return the names by which an adapter's targets may mean a tensor of experts or a router."""
    leaf = _leaf(tensor)
    if not is_in_experts(tensor):
        return {leaf}
    stacked = _STACKED.get(leaf, leaf)
    return {stacked, f"experts.{stacked}", *({leaf} & names)}


def _leaf(tensor: str) -> str:
    return tensor.removesuffix(".weight").rpartition(".")[2]
