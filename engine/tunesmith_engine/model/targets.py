"""Which weights of a model get an adapter, decided before PEFT is asked, and said in a sentence afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from peft.tuners.lora import LoraModel
from peft.tuners.lora.layer import LoraLayer, ParamWrapper
from peft.tuners.trainable_tokens import TrainableTokensLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.adapter_problems import FROM_DATA
from tunesmith_core.adapter_ranks import FROM_WEIGHTS, adapts_experts, alphas, layer_numbers, matching, ranks
from tunesmith_core.adapter_shapes import READ_PAST_ADAPTERS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.spec_sections import ALL_LINEAR, AdapterSpec
from tunesmith_core.trained_parts import LORA
from tunesmith_engine.model import saved_modules
from tunesmith_engine.model.stacked import stacked_names

_ADAPTABLE = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention, Conv1D)
"""Kinds of layers that PEFT puts an adapter into; those of 4-bit libraries are linear ones."""

PREFIXES = ("lora_", "oft_", "vera_", "ia3_", "hada_", "lokr_", "randlora_", "miss_", "delora_")
"""How PEFT's names of an adapter's own parts begin."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What PEFT is told.

    Attributes:
        modules: "all-linear", or the ends of names of modules.
        excluded: ends of names of modules that "all-linear" leaves out.
        parameters: ends of names of weights that belong to no linear layer: the experts of a layer, stacked.
    """

    modules: str | list[str]
    excluded: list[str]
    parameters: list[str]


def choose_targets(model: Any, adapter: AdapterSpec) -> Targets:  # Any: a transformers model
    """Return what gets an adapter.

    Raises:
        UserError: `lora-target-modules-missing` when the model has no weight of a name; `spec-invalid` when experts are
            named and the method can't adapt them.
    """
    check_layers(model, adapter)
    modules, parameters = adapter.target_modules, list[str]()
    if isinstance(modules, list):
        parameters = [name for name in modules if _is_stacked(model, name)]
        modules = [name for name in modules if name not in parameters]
    modules, converted = _in_present_names(model, modules)
    parameters += converted
    excluded: list[str] = []
    if isinstance(modules, list):
        if adapter.target_modules == ALL_LINEAR:
            modules = [name for name in modules if not _is_forbidden(model, name)]
        _check_names(model, modules)
    else:
        excluded = _not_adaptable(model)
        if adapter.layers:
            # PEFT takes numbers of layers beside names only.
            modules = _linear_ends(model, excluded)
    _check_kinds(model, modules, adapter)
    if parameters and not adapts_experts(adapter):
        if adapter.target_modules != ALL_LINEAR:
            raise TunesmithError(
                "spec-invalid",
                "{names}: experts stored in one weight support only LoRA in all layers, without DoRA, dropout and "
                "special initial values. Change these settings, or remove these names.",
                names=", ".join(sorted(parameters)),
            )
        parameters = []
    return Targets(modules, excluded, sorted(parameters))


def _is_stacked(model: nn.Module, name: str) -> bool:
    """Return whether a name means weights of three dimensions, and no module."""
    if any(_ends(known, name) for known, _ in model.named_modules()):
        return False
    return any(_ends(known, name) for known in stacked_names(model))


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")


def _in_present_names(model: Any, modules: str | list[str]) -> tuple[str | list[str], list[str]]:
    """Return modules, and stacked weights for names that experts had when each was a layer of its own.

    PEFT does the same by itself, but with twice the rank where two layers became one weight.

    Raises:
        UserError: `lora-target-modules-missing` when one of two such layers is named alone, or a layer beside the
            experts, which PEFT would take for theirs here and wherever the adapter is loaded.
    """
    config = LoraConfig(target_modules=modules)
    try:
        convert_peft_config_for_transformers(config, model=model, conversions=None)
    except ValueError as error:
        raise TunesmithError("lora-target-modules-missing", "{error}", error=error) from error
    if not config.target_parameters:
        return modules, []
    of_experts = set(modules).difference(config.target_modules) if isinstance(modules, list) else ()
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if beside := [name for name in of_experts if "." in name and any(_ends(other, name) for other in linear)]:
        raise TunesmithError(
            "lora-target-modules-missing",
            "No adapter fits here: {names}. In this type of model PEFT takes these names for those of the experts.",
            names=shortened(", ".join(sorted(beside))),
        )
    return sorted(config.target_modules), sorted(config.target_parameters)


def _check_names(model: nn.Module, names: list[str]) -> None:
    """Refuse names that no layer has, or one without a product of weights; PEFT is content when one of several fits."""
    if forbidden := [name for name in names if _is_forbidden(model, name)]:
        raise TunesmithError(
            "lora-target-modules-missing",
            "No adapter fits here: {names}. In this type of model other code reads these weights, past an adapter.",
            names=shortened(", ".join(forbidden)),
        )
    fit = {name: isinstance(module, _ADAPTABLE) for name, module in model.named_modules()}
    missing = [name for name in names if not any(_ends(other, name) for other in fit)]
    unfit = [name for name in names if any(_ends(other, name) and not fit[other] for other in fit)]
    if missing or unfit:
        linear = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        stacked = {name.rpartition(".")[2] for name in stacked_names(model)}
        listed = ", ".join(sorted(linear | stacked))
        if missing:
            raise TunesmithError(
                "lora-target-modules-missing",
                "The model has no layer named {names}. Its linear layers are {known}.",
                names=shortened(", ".join(missing)),
                known=listed,
            )
        raise TunesmithError(
            "lora-target-modules-missing",
            "No adapter fits here: {names}. Only linear layers, convolutions and embeddings can have one. "
            "The linear layers of the model are {known}.",
            names=shortened(", ".join(unfit)),
            known=listed,
        )


def _linear_ends(model: Any, excluded: list[str]) -> list[str]:  # Any: a transformers model
    """Return the ends of names of the linear layers that are meant by "all-linear"."""
    head = model.get_output_embeddings()
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D)}
    names = {name for name in linear if model.get_submodule(name) is not head}
    return sorted({name.rpartition(".")[2] for name in names if not any(_ends(name, end) for end in excluded)})


def _check_kinds(model: nn.Module, modules: str | list[str], adapter: AdapterSpec) -> None:
    """Refuse what initial values from frozen weights or from data are not computed for.

    Raises:
        UserError: `spec-invalid` for a name of no linear layer.
    """
    if adapter.initial_values not in FROM_WEIGHTS | {FROM_DATA} or isinstance(modules, str):
        return
    for name, module in model.named_modules():
        if any(_ends(name, end) for end in modules) and not isinstance(module, nn.Linear | Conv1D):
            raise TunesmithError(
                "spec-invalid",
                "adapter.initial_values: PiSSA, OLoRA and EVA are for linear layers only, which {name} is not.",
                name=name,
            )


def check_patterns(model: PeftModel, adapter: AdapterSpec) -> None:
    """Refuse layers, ranks and alphas for modules that have no adapter, and two of them for one module.

    Raises:
        UserError: `spec-invalid`.
    """
    names = [
        name.partition("base_model.model.")[2]
        for name, module in model.named_modules()
        if is_adapted(module)
    ]
    if adapter.kind != LORA:
        return
    for setting, patterns in (
        ("adapter.rank_pattern", ranks(adapter.rank_pattern)),
        ("adapter.alpha_pattern", alphas(adapter.alpha_pattern)),
    ):
        found = [matching(patterns, name) for name in names]
        if missing := [pattern for pattern in patterns if not any(pattern in each for each in found)]:
            raise TunesmithError(
                "spec-invalid",
                "{setting}: no module with an adapter is called {pattern}. Those with one are {known}.",
                setting=setting,
                pattern=missing[0],
                known=", ".join(sorted({_short(name) for name in names})),
            )
        if twice := [(name, each) for name, each in zip(names, found, strict=True) if len(each) > 1]:
            name, each = twice[0]
            raise TunesmithError(
                "spec-invalid",
                "{setting}: {name} fits both {first} and {second}. Leave one of them out.",
                setting=setting,
                name=name,
                first=each[0],
                second=each[1],
            )


def check_layers(model: nn.Module, adapter: AdapterSpec) -> None:
    """Refuse numbers of layers that the model does not have.

    Raises:
        UserError: `spec-invalid`.
    """
    wanted = layer_numbers(adapter)
    if wanted is None:
        return
    known = {int(part) for name, _ in model.named_modules() for part in name.split(".")[:4] if part.isdigit()}
    if missing := [number for number in wanted if number not in known]:
        raise TunesmithError(
            "spec-invalid",
            "adapter.layers: the model has no layer {number}. Its layers are 0 to {last}.",
            number=missing[0],
            last=max(known, default=0),
        )


def _not_adaptable(model: nn.Module) -> list[str]:
    """Return the linear layers that PEFT forbids and those that compute more than a product, such as some routers."""
    names = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D)}
    refused = {name for name, module in names.items() if _is_forbidden(model, name) or not _is_product(module)}
    ends = {name.rpartition(".")[2] for name in refused} - {name.rpartition(".")[2] for name in names.keys() - refused}
    return sorted(ends | {name for name in refused if name.rpartition(".")[2] not in ends})


def _is_forbidden(model: Any, name: str) -> bool:  # Any: a transformers model
    end = name.rpartition(".")[2]
    if end in READ_PAST_ADAPTERS.get(model.config.model_type, ()):
        return True
    try:
        LoraModel._check_target_module_compatiblity(None, LoraConfig(), model, end)
    except ValueError:
        return True
    return False


def _is_product(module: Any) -> bool:  # Any: a linear layer of some kind
    """Return whether a layer does what its weight says; layers of PyTorch and of 4-bit libraries do."""
    is_packed = hasattr(module.weight, "quant_state") or hasattr(module.weight, "SCB")
    if type(module).forward is nn.Linear.forward or is_packed or isinstance(module, Conv1D):
        return True
    # Of a model without weights, any numbers show it.
    weights = {name: _numbers(value) for name, value in module.named_parameters(recurse=False)}
    weight = weights["weight"]
    x = torch.ones(2, module.in_features, dtype=weight.dtype, device=weight.device)
    expected = functional.linear(x, weight, weights.get("bias"))
    try:
        result = functional_call(module, weights, x)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return isinstance(result, torch.Tensor) and result.shape == expected.shape and torch.allclose(result, expected)


def _numbers(value: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1, value.numel(), device="cpu").view(value.shape) if value.is_meta else value.detach()


def experts_left_out(model: PeftModel, adapter: AdapterSpec) -> list[str]:
    """Return the names of experts that "all-linear" means and whose settings let them have no adapter."""
    if adapter.target_modules != ALL_LINEAR or adapter.start_from or adapts_experts(adapter):
        return []
    base = model.get_base_model()
    return _in_present_names(base, ALL_LINEAR)[1] if stacked_names(base) else []


def described(model: PeftModel) -> list[str]:
    """Return sentences about what has an adapter, with which rank, and which linear layers and experts have none."""
    adapted: dict[int, set[str]] = {}
    taken: set[str] = set()
    others: set[str] = set()
    kind = str(model.peft_config["default"].peft_type.value).lower()
    for name, module in model.named_modules():
        own = name.partition("base_model.model.")[2].replace(".base_layer", "")
        if isinstance(module, LoraLayer):
            full = f"{own}.{module.parameter_name}" if isinstance(module, ParamWrapper) else own
            adapted.setdefault(module.r["default"], set()).add(_short(full))
            taken.add(_short(full))
        elif is_adapted(module):
            others.add(_short(own))
    left = set()
    base = model.get_base_model()
    head = saved_modules.plain(base.get_output_embeddings())
    whole = {id(part) for part in base.modules() if isinstance(part, ModulesToSaveWrapper) for part in part.modules()}
    for name, module in base.named_modules():
        if isinstance(module, nn.Linear) and module is not head and not is_of_adapter(name) and id(module) not in whole:
            left.add(_short(name.removesuffix(".base_layer")))
    left |= {_short(name.replace(".base_layer", "")) for name in stacked_names(base)}
    sentences: list[str] = [
        Message("Adapters of rank {rank}: {names}.", rank=rank, names=", ".join(sorted(names)))
        for rank, names in sorted(adapted.items())
    ]
    if others:
        title = KINDS[kind].title
        sentences.append(Message("Adapters ({kind}): {names}.", kind=title, names=", ".join(sorted(others))))
    if left - taken - others:
        sentences.append(Message("Without adapters: {names}.", names=", ".join(sorted(left - taken - others))))
    return [*sentences, *saved_modules.described(model)]


def is_adapted(module: nn.Module) -> bool:
    """Return whether a module is one with an adapter; a table with some trained rows, to PEFT one too, is not."""
    return isinstance(module, BaseTunerLayer) and not isinstance(module, TrainableTokensLayer)


def is_of_adapter(name: str) -> bool:
    """Return whether a parameter or a module belongs to an adapter of any kind, by its name in the model."""
    return any(part.startswith(PREFIXES) for part in name.split("."))


def _short(name: str) -> str:
    """Return the last two parts of a name that are not numbers."""
    return ".".join([part for part in name.split(".") if not part.isdigit()][-2:])
