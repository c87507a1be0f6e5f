"""Modules trained whole beside the adapter: embeddings and output layer, or their new rows, and others by name.

PEFT calls them `modules_to_save`, and single rows `trainable_token_indices`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import PeftModel
from peft.utils import ModulesToSaveWrapper
from peft.utils.other import TrainableTokensWrapper
from torch import nn

from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import ALL_EMBEDDINGS, ALL_LINEAR, NEW_EMBEDDINGS

ADAPTER = "default"


@dataclass(frozen=True, slots=True)
class Saved:
    """What PEFT is told.

    Attributes:
        modules: names of modules that are trained whole.
        tokens: by the name of a table, the rows that are trained.
        tied: one table is both the embeddings and the output layer.
        linear: names of linear layers among the modules, which get no adapter.
    """

    modules: list[str] = field(default_factory=list)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    tied: bool = False
    linear: list[str] = field(default_factory=list)


def saved_modules(model: Any, spec: RunSpec, new_rows: Sequence[int]) -> Saved:  # Any: a transformers model
    """Return what of a model is trained whole.

    Args:
        model: the base model, its tables with room for new tokens.
        spec: of the run.
        new_rows: of the tables, that belong to new tokens.

    Raises:
        UserError: `trained-parts-missing` when the model has no module of a name, `spec-invalid` when one can't
            be trained whole.
    """
    tables = tables_of(model)
    tied = len({id(table.weight) for table in tables.values()}) < len(tables)
    # The output layer that is one with the embeddings follows them.
    own = dict(list(tables.items())[:1]) if tied else tables
    modules, tokens = list[str](), dict[str, list[int]]()
    if spec.adapter.embeddings == ALL_EMBEDDINGS:
        modules = list(own)
    elif spec.adapter.embeddings == NEW_EMBEDDINGS:
        tokens = {name: list(new_rows) for name in own}
    named = _named(model, spec, tables)
    clash = [name for name in (*modules, *tokens, *named) if _is_targeted(name, spec)]
    if clash:
        raise TunesmithError(
            "spec-invalid",
            "{name} can't have an adapter and be trained whole. Remove it from the target modules.",
            name=min(clash),
        )
    linear = [name for name in named if isinstance(model.get_submodule(name), nn.Linear)]
    return Saved([*modules, *named], tokens, tied and bool(modules or tokens), linear)


def tables_of(model: Any) -> dict[str, Any]:  # Any: a transformers model and modules of it
    """Return the embeddings and the output layer of a model by their names in it."""
    wanted = [model.get_input_embeddings(), model.get_output_embeddings()]
    names = {id(module): name for name, module in model.named_modules()}
    return {names[id(module)]: module for module in wanted if module is not None}


def _named(model: nn.Module, spec: RunSpec, tables: dict[str, Any]) -> list[str]:  # Any: modules
    """Return the whole names of the modules that a person has named by their ends."""
    modules = dict(model.named_modules())
    found: list[str] = []
    for end in spec.adapter.modules_to_save:
        names = [name for name in modules if name == end or name.endswith(f".{end}")]
        if not names:
            known = {name.rpartition(".")[2] for name, module in modules.items() if _is_simple(module)}
            raise TunesmithError(
                "trained-parts-missing",
                "adapter.modules_to_save: the model has no module named {name}. Its modules are {known}.",
                name=shortened(end),
                known=", ".join(sorted(known)),
            )
        for name in names:
            if name in tables:
                raise TunesmithError(
                    "spec-invalid",
                    "adapter.modules_to_save: {name} is trained by the setting Embeddings and output layer. Remove it "
                    "here.",
                    name=name,
                )
            if not _is_simple(modules[name]):
                raise TunesmithError(
                    "spec-invalid",
                    "adapter.modules_to_save: {name} can't be trained whole. Name single layers and norms whose "
                    "weights are not in 4 or 8 bits.",
                    name=name,
                )
        found += names
    return sorted(set(found))


def _is_simple(module: nn.Module) -> bool:
    weights = list(module.parameters(recurse=False))
    return bool(weights) and not list(module.children()) and all(weight.is_floating_point() for weight in weights)


def _is_targeted(name: str, spec: RunSpec) -> bool:
    targets = spec.adapter.target_modules
    return targets != ALL_LINEAR and any(name == end or name.endswith(f".{end}") for end in targets)


def finish(adapted: PeftModel) -> None:
    """Let trained tables be as wide as the model outside of them, and check that tied ones stayed tied.

    Raises:
        UserError: `spec-invalid` when PEFT does not keep them tied.
    """
    base = adapted.get_base_model()
    embedding, head = base.get_input_embeddings(), base.get_output_embeddings()
    if isinstance(embedding, ModulesToSaveWrapper):
        # The trained weights have 32 bits; what passes through the model keeps its number format.
        width = embedding.original_module.weight.dtype
        embedding.register_forward_hook(lambda _module, _given, out: out.to(width))
    is_tied = head is not None and plain(embedding).weight is plain(head).weight
    if is_tied and trained_weight(embedding) is not trained_weight(head):
        raise TunesmithError(
            "spec-invalid",
            "adapter.embeddings: PEFT can't train the embeddings of this model, which are its output layer as well. "
            "Leave them frozen, or use full fine-tuning.",
        )


def trained_weight(module: Any) -> nn.Parameter | None:  # Any: a module, maybe in PEFT's wrapper
    """Return the trained weight of a table, or its trained rows; None where it is frozen."""
    if isinstance(module, ModulesToSaveWrapper) and ADAPTER in module.modules_to_save:
        weight: nn.Parameter = module.modules_to_save[ADAPTER].weight
        return weight
    if isinstance(module, TrainableTokensWrapper):
        rows: nn.Parameter = module.token_adapter.trainable_tokens_delta[ADAPTER]
        return rows
    return None


def trained_rows(module: Any) -> list[int] | None:  # Any: a module, maybe in PEFT's wrapper
    """Return which rows of a table are trained, None where it is trained whole or not at all."""
    if isinstance(module, TrainableTokensWrapper):
        rows: list[int] = list(module.token_adapter.token_indices[ADAPTER])
        return rows
    return None


def plain(module: Any) -> Any:  # Any: a module
    """Return a module without PEFT's wrapper around it."""
    if isinstance(module, ModulesToSaveWrapper):
        return module.original_module
    return module.token_adapter.get_base_layer() if isinstance(module, TrainableTokensWrapper) else module


def retie(model: PeftModel) -> None:
    """Tie the output layer to the embeddings again after their trained weight was replaced."""
    base = model.get_base_model()
    embedding, head = base.get_input_embeddings(), base.get_output_embeddings()
    # Only LoRA's settings know of ties.
    if isinstance(head, ModulesToSaveWrapper) and model.peft_config[ADAPTER].ensure_weight_tying:
        head.modules_to_save[ADAPTER].weight = embedding.modules_to_save[ADAPTER].weight


def described(model: PeftModel) -> list[str]:
    """Return a sentence about what is trained whole, nothing where that is nothing."""
    whole, rows = set[str](), dict[str, int]()
    for name, module in model.get_base_model().named_modules():
        own = name.rpartition(".")[2]
        if isinstance(module, ModulesToSaveWrapper):
            whole.add(own)
        elif (numbers := trained_rows(module)) is not None:
            rows[own] = len(numbers)
    sentences: list[str] = []
    if whole:
        sentences.append(Message("Trained whole: {names}.", names=", ".join(sorted(whole))))
    if rows:
        names, count = ", ".join(sorted(rows)), max(rows.values())
        sentences.append(Message("Trained rows of new words: {count} of {names}.", count=count, names=names))
    return sentences


def in_own_name(name: str) -> str:
    """Return the name of a weight without what PEFT's wrappers put into it."""
    for part in (f".modules_to_save.{ADAPTER}", ".original_module", ".token_adapter", ".base_layer"):
        name = name.replace(part, "")
    return name


def row_change(weight: torch.Tensor, rows: Sequence[int], trained: torch.Tensor, begin: int = 0) -> torch.Tensor:
    """Return some rows of a table in float32, with those that are trained in their places.

    Args:
        weight: [R, d], rows of the table.
        rows: numbers of the trained rows in the whole table.
        trained: [n, d].
        begin: number of the first of R.
    """
    changed = weight.to(torch.float32, copy=True)
    for place, row in enumerate(rows):
        if begin <= row < begin + len(weight):
            changed[row - begin] = trained[place].detach().cpu().float()
    return changed
