"""The adapter: LoRA by PEFT, with float32 weights that depend on the seed alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model

from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.model.heads import NAME as HEAD_NAME
from tunesmith_engine.model.heads import has_head, rates_tokens
from tunesmith_engine.model.targets import choose_targets

if TYPE_CHECKING:
    from tunesmith_engine.model.full import TrainedModel


def attach_adapter(model: Any, spec: RunSpec) -> PeftModel:  # Any: a transformers model
    """Put a new adapter into a base model and return the whole, ready to be trained.

    Raises:
        UserError: `lora-target-modules-missing` when no layer has one of the names, `spec-invalid` when experts are
            named and the method can't adapt them.
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
    config = LoraConfig(
        task_type="TOKEN_CLS" if rates_tokens(model) else "SEQ_CLS" if has_head(model) else "CAUSAL_LM",
        modules_to_save=[HEAD_NAME] if has_head(model) else None,
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=targets.modules,
        exclude_modules=targets.excluded or None,
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
    adapted.peft_config["default"].base_model_name_or_path = spec.model.path
    adapted.peft_config["default"].revision = spec.model.revision or None
    return adapted


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the trained parameters by name, in the model's own order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def use_activation_checkpointing(model: TrainedModel) -> bool:
    """Make the backward pass compute activations again instead of keeping them; return whether the model can."""
    if not getattr(model.get_base_model(), "supports_gradient_checkpointing", True):
        return False
    model.get_base_model().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    # transformers lets embeddings ask for gradients, which only reentrant checkpoints need. GIT, which adds positions
    # in place, would fail.
    model.get_base_model().disable_input_require_grads()
    return True
