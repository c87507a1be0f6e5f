"""Proof that a saved adapter is what was trained: plain PEFT reads it back, onto a base model without weights."""

from __future__ import annotations

import copy
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel, get_peft_model, load_peft_weights, set_peft_model_state_dict
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import save_file
from torch import nn
from transformers.core_model_loading import WeightRenaming

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.model.lora import trainable

PREFIX = "base_model.model."


def ensure_restored(model: PeftModel, folder: Path) -> None:
    """Give the weights of a saved adapter names by which plain PEFT restores them all, equal to the bit.

    PEFT renames weights as transformers renames those of the base model's files. The names of the model in memory do
    for most types; where the renaming spoils them (Laguna), those of the files do.

    Raises:
        RunFailure: `adapter-not-restored` when neither names restore everything. PEFT itself would only warn, and leave
            the rest as it was before training.
    """
    present = load_peft_weights(str(folder), device="cpu")
    lost = lost_modules(model, folder, present)
    if not lost:
        return
    base = model.get_base_model()
    of_files = {_name_in_files(base, key): value for key, value in present.items()}
    if not lost_modules(model, folder, of_files):
        save_file(of_files, folder / SAFETENSORS_WEIGHTS_NAME, metadata={"format": "pt"})
        return
    num_modules = len({_module(name) for name in trainable(model)})
    raise TunesmithError(
        "adapter-not-restored",
        "PEFT would restore {num_restored} of {num_modules} trained modules. These would be lost: {modules}.",
        num_restored=num_modules - len(lost),
        num_modules=num_modules,
        modules=", ".join(lost[:3]) + (", ..." if lost[3:] else ""),
    )


def lost_modules(model: PeftModel, folder: Path, weights: dict[str, torch.Tensor]) -> list[str]:
    """Return the trained modules that PEFT would not restore from weights and the config in a folder."""
    trained, base = trainable(model), model.get_base_model()
    restored = restored_parameters(type(base), base.config, folder, weights, trained)
    return sorted({_module(name) for name, value in trained.items() if not same(value, restored.get(name))})


def restored_parameters(
    kind: Any,  # Any: a class of transformers models
    config: Any,  # Any: its config
    folder: Path,
    weights: dict[str, torch.Tensor],
    names: Collection[str],
) -> dict[str, torch.Tensor]:
    """Return named parameters of a base model as PEFT restores them; NaN stands for what it leaves alone."""
    with torch.device("meta"):
        fresh = get_peft_model(kind(copy.deepcopy(config)), PeftConfig.from_pretrained(folder))
    for name, value in list(fresh.named_parameters()):
        if name in names:
            module, _, role = name.rpartition(".")
            setattr(fresh.get_submodule(module), role, nn.Parameter(torch.full_like(value, torch.nan, device="cpu")))
    set_peft_model_state_dict(fresh, weights)
    return {name: value for name, value in fresh.named_parameters() if name in names}


def _renamings(base: Any) -> list[WeightRenaming]:  # Any: a transformers model
    """Return how names of the files became names of the model."""
    return [change for change in getattr(base, "_weight_conversions", None) or [] if isinstance(change, WeightRenaming)]


def _name_in_files(base: Any, name: str) -> str:  # Any: a transformers model
    """Return the name of an adapter's weight that follows the names of the base model's files."""
    name = name.removeprefix(PREFIX)
    for renaming in reversed(_renamings(base)):
        name, _ = renaming.reverse_transform().rename_source_key(name)
    return PREFIX + name


def same(trained: torch.Tensor, restored: torch.Tensor | None) -> bool:
    """Return whether a weight was restored to the bit."""
    return restored is not None and torch.equal(trained.detach().cpu(), restored.detach().to(trained.dtype))


def _module(name: str) -> str:
    return name.removeprefix(PREFIX).partition(".lora_")[0]
