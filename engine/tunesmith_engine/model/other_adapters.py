"""Kinds of adapters beside LoRA, by PEFT; `tunesmith_core.adapter_kinds` declares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peft import (
    DeloraConfig,
    IA3Config,
    LoHaConfig,
    LoKrConfig,
    MissConfig,
    OFTConfig,
    PeftConfig,
    RandLoraConfig,
    VeraConfig,
)
from torch import nn

from tunesmith_core.adapter_kinds import FEEDFORWARD
from tunesmith_core.adapter_ranks import is_in_layers, layer_numbers
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import ALL_LINEAR, AdapterSpec
from tunesmith_engine.model.targets import Targets

Arguments = dict[str, Any]  # Any: arguments of PEFT's configs

_CONFIGS: Mapping[str, tuple[type[PeftConfig], Callable[[AdapterSpec], Arguments]]] = {
    "oft": (OFTConfig, lambda adapter: {"r": 0, "oft_block_size": adapter.rank}),
    "vera": (VeraConfig, lambda adapter: {"r": adapter.rank, "vera_dropout": adapter.dropout}),
    "ia3": (IA3Config, lambda _: {}),
    "loha": (LoHaConfig, lambda adapter: {"r": adapter.rank, "alpha": adapter.alpha}),
    "lokr": (LoKrConfig, lambda adapter: {"r": adapter.rank, "alpha": adapter.alpha}),
    "randlora": (
        RandLoraConfig,
        lambda adapter: {
            "r": adapter.rank,
            "randlora_alpha": adapter.alpha,
            "randlora_dropout": adapter.dropout,
        },
    ),
    "miss": (MissConfig, lambda adapter: {"r": adapter.rank}),
    "delora": (DeloraConfig, lambda adapter: {"r": adapter.rank}),
}


def config_of(model: Any, spec: RunSpec, targets: Targets) -> PeftConfig:  # Any: a transformers model
    """Return what PEFT is told of an adapter that is no LoRA.

    Raises:
        UserError: `lora-target-modules-missing` when no linear layer has one of the names.
    """
    kind, adapter = spec.adapter.kind, spec.adapter
    modules = _modules(model, targets, layer_numbers(adapter))
    config, arguments = _CONFIGS[kind]
    if kind == "ia3":
        # Ends of names: PEFT shortens long lists, and one of its two would no longer fit the other.
        ends = sorted({name.rpartition(".")[2] for name in modules})
        inputs = [name for name in ends if name in FEEDFORWARD]
        return config(
            task_type="CAUSAL_LM", target_modules=ends, feedforward_modules=inputs, exclude_modules=targets.excluded
        )
    return config(task_type="CAUSAL_LM", target_modules=modules, **arguments(adapter))


def _modules(model: Any, targets: Targets, numbers: list[int] | None) -> list[str]:
    """Return the full names of the linear layers that are meant; not all kinds know other ways to say it."""
    head = model.get_output_embeddings()
    found = []
    for name, module in model.named_modules():
        ends = [name == end or name.endswith(f".{end}") for end in targets.excluded]
        if not isinstance(module, nn.Linear) or any(ends) or not is_in_layers(numbers, name):
            continue
        if targets.modules == ALL_LINEAR:
            if module is not head:
                found.append(name)
        elif any(name == end or name.endswith(f".{end}") for end in targets.modules):
            found.append(name)
    if not found:
        raise TunesmithError(
            "lora-target-modules-missing",
            "None of the chosen modules is a linear layer. Only LoRA works for others.",
        )
    return found
