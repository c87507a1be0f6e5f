"""The adapter: LoRA by PEFT, with float32 weights that depend on the seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model

from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import ALL_LINEAR
from tunesmith_engine.model.heads import NAME as HEAD_NAME
from tunesmith_engine.model.heads import has_head
from tunesmith_engine.model.saved_modules import Saved, finish, saved_modules
from tunesmith_engine.model.targets import choose_targets


def attach_adapter(model: Any, spec: RunSpec, new_rows: Sequence[int] = ()) -> PeftModel:  # Any: a transformers model
    """Put a new adapter into a base model and return the whole, ready to be trained.

    Args:
        model: the base model.
        spec: of the run.
        new_rows: of the embeddings, that belong to new tokens.

    Raises:
        UserError: `lora-target-modules-missing` when no layer has one of the names, `spec-invalid` when experts are
            named and the method can't adapt them, or a module can't be trained whole.
        RunFailure: `nan-loss` for an alpha with which no number would be finite.
    """
    adapter = spec.adapter
    if adapter.alpha > torch.finfo(torch.float32).max:
        raise TunesmithError(
            "nan-loss",
            "adapter.alpha: {alpha:g} is beyond what a 32-bit number can be, so the loss would be infinite.",
            hint="Set alpha to once or twice the rank.",
            alpha=adapter.alpha,
        )
    targets = choose_targets(model, adapter)
    saved = Saved() if has_head(model) else saved_modules(model, spec, new_rows)
    heads = [HEAD_NAME] if has_head(model) else []
    excluded = sorted({*targets.excluded, *saved.linear}) if targets.modules == ALL_LINEAR else targets.excluded
    config = LoraConfig(
        task_type="SEQ_CLS" if has_head(model) else "CAUSAL_LM",
        modules_to_save=[*heads, *saved.modules] or None,
        trainable_token_indices=dict(saved.tokens) or None,
        ensure_weight_tying=saved.tied and not saved.tokens,
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=targets.modules,
        exclude_modules=excluded or None,
        target_parameters=targets.parameters or None,
        use_rslora=adapter.rslora,
        use_dora=adapter.dora,
        init_lora_weights=True if adapter.initial_values == "default" else adapter.initial_values,
        bias=adapter.bias,
    )
    torch.manual_seed(spec.schedule.seed)
    adapted = get_peft_model(model, config)
    for parameter in trainable(adapted).values():
        # Also biases of a 16-bit base: updates of a rounded weight would get lost.
        parameter.data = parameter.data.float()
    finish(adapted, saved)
    adapted.peft_config["default"].base_model_name_or_path = spec.model.path
    adapted.peft_config["default"].revision = spec.model.revision or None
    return adapted


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the trained parameters by name, in the model's own order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def use_activation_checkpointing(model: PeftModel) -> bool:
    """Make the backward pass compute activations again instead of keeping them; return whether the model can."""
    if not getattr(model.get_base_model(), "supports_gradient_checkpointing", True):
        return False
    model.get_base_model().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    # transformers lets embeddings ask for gradients, which only reentrant checkpoints need. GIT, which adds positions
    # in place, would fail.
    model.get_base_model().disable_input_require_grads()
    return True
