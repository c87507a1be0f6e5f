"""The adapter: LoRA or another kind by PEFT, with float32 weights that depend on the seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import (
    LoraConfig,
    PeftConfig,
    PeftModel,
    get_peft_model,
    load_peft_weights,
    set_peft_model_state_dict,
)

from tunesmith_core.adapter_ranks import FROM_WEIGHTS, alphas, expression, layer_numbers, ranks
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.planner import reference_bytes
from tunesmith_core.spec import RunSpec, compares, continues
from tunesmith_core.spec_sections import ALL_LINEAR
from tunesmith_core.trained_parts import LORA
from tunesmith_engine.model.heads import NAME as HEAD_NAME
from tunesmith_engine.model.heads import has_head, rates_tokens
from tunesmith_engine.model.other_adapters import config_of
from tunesmith_engine.model.other_weights import refer_to, remember
from tunesmith_engine.model.saved_modules import Saved, finish, saved_modules
from tunesmith_engine.model.targets import Targets, check_patterns, choose_targets

if TYPE_CHECKING:
    from tunesmith_engine.model.full import TrainedModel

MOST_TOLD = 300
"""Letters of what PEFT says of an adapter that it can't put into a model."""


def attach_adapter(model: Any, spec: RunSpec, new_rows: Sequence[int] = ()) -> PeftModel:  # Any: a transformers model
    """Put a new adapter into a base model and return the whole, ready to be trained.

    Args:
        model: the base model.
        spec: of the run.
        new_rows: of the embeddings, that belong to new tokens.

    Raises:
        UserError: `lora-target-modules-missing` when no layer has one of the names, `spec-invalid` when experts are
            named and the method can't adapt them, a pattern or layer fits no adapter, or a module can't be trained
            whole.
        RunFailure: `nan-loss` for an alpha with which no number would be finite.
    """
    if continues(spec):
        return _continued(model, spec)
    adapter = spec.adapter
    if adapter.alpha > torch.finfo(torch.float32).max:
        raise TunesmithError(
            "nan-loss",
            "adapter.alpha: {alpha:g} is beyond what a 32-bit number can be, so the loss would be infinite.",
            hint="Set alpha to once or twice the rank.",
            alpha=adapter.alpha,
        )
    targets = choose_targets(model, adapter)
    if adapter.kind == LORA:
        saved = Saved() if has_head(model) else saved_modules(model, spec, new_rows)
        adapted = _adapted(model, _lora_config(model, spec, targets, saved), spec)
    else:
        adapted = _adapted(model, config_of(model, spec, targets), spec)
    check_patterns(adapted, adapter)
    return adapted


def _adapted(model: Any, config: PeftConfig, spec: RunSpec) -> PeftModel:  # Any: a transformers model
    torch.manual_seed(spec.schedule.seed)
    adapted: PeftModel = get_peft_model(model, config)
    for parameter in trainable(adapted).values():
        # Also biases of a 16-bit base: updates of a rounded weight would get lost.
        parameter.data = parameter.data.float()
    finish(adapted)
    adapted.peft_config["default"].base_model_name_or_path = spec.model.path
    adapted.peft_config["default"].revision = spec.model.revision or None
    return adapted


def _lora_config(model: Any, spec: RunSpec, targets: Targets, saved: Saved) -> LoraConfig:  # Any: a transformers model
    """Return what PEFT is told of a LoRA adapter."""
    adapter, values = spec.adapter, spec.adapter.initial_values
    # Twice the rank at the same scale, see `initial_values`.
    times = 2 if values in FROM_WEIGHTS else 1
    louder = times**0.5 if adapter.rslora else times
    heads = [HEAD_NAME] if has_head(model) else []
    excluded = sorted({*targets.excluded, *saved.linear}) if targets.modules == ALL_LINEAR else targets.excluded
    of_ranks, of_alphas = ranks(adapter.rank_pattern), alphas(adapter.alpha_pattern)
    return LoraConfig(
        task_type="TOKEN_CLS" if rates_tokens(model) else "SEQ_CLS" if has_head(model) else "CAUSAL_LM",
        modules_to_save=[*heads, *saved.modules] or None,
        trainable_token_indices=dict(saved.tokens) or None,
        ensure_weight_tying=saved.tied and not saved.tokens,
        r=adapter.rank * times,
        lora_alpha=adapter.alpha * louder,
        lora_dropout=adapter.dropout,
        target_modules=targets.modules,
        exclude_modules=excluded or None,
        target_parameters=targets.parameters or None,
        layers_to_transform=layer_numbers(adapter),
        rank_pattern={expression(name): rank * times for name, rank in of_ranks.items()},
        alpha_pattern={expression(name): alpha * louder for name, alpha in of_alphas.items()},
        use_rslora=adapter.rslora,
        use_dora=adapter.dora,
        # What is computed from weights or data comes later.
        init_lora_weights=values if values in ("gaussian", "orthogonal") else True,
        bias=adapter.bias,
    )


def _continued(model: Any, spec: RunSpec) -> PeftModel:  # Any: a transformers model
    """Put an adapter that there is already into a base model; it keeps what it begins with for comparisons.

    Raises:
        UserError: `adapter-unfit` when the base model has no place for one of its weights, or a weight is NaN.
    """
    folder = Path(spec.adapter.start_from)
    config = PeftConfig.from_pretrained(str(folder))
    # Training goes on, from its weights and not from those that it once began with.
    config.inference_mode, config.init_lora_weights, config.lora_dropout = False, True, spec.adapter.dropout
    try:
        adapted = _adapted(model, config, spec)
        if model.device.type == "meta":
            # Who loads what the run has made needs its shape alone.
            return adapted
        _put(adapted, folder)
    except (ValueError, RuntimeError, KeyError) as error:
        said = error.args[0] if error.args and isinstance(error.args[0], Message) else str(error)[:MOST_TOLD]
        raise TunesmithError("adapter-unfit", "{path}: {problem}", path=folder, problem=said) from error
    return adapted


def _put(adapted: PeftModel, folder: Path) -> None:
    """Give an adapter the weights of a file, every one of them."""
    parameters = trainable(adapted)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.fill_(torch.nan)
    found = set_peft_model_state_dict(adapted, load_peft_weights(str(folder), device="cpu"))
    if found.unexpected_keys:
        raise ValueError(Message("the base model has no place for {name}.", name=found.unexpected_keys[0]))
    missing = [name for name, value in parameters.items() if not bool(value.isfinite().all())]
    if missing:
        raise ValueError(Message("the weight {name} is missing, NaN or infinite.", name=missing[0]))


def compare_with_others(adapted: PeftModel, spec: RunSpec) -> None:
    """Let a model that is trained be compared with the adapter that it continues, and with the reference of its run.

    Raises:
        UserError: `adapter-unfit` when the trained adapter has no place for a weight of the reference.
    """
    parameters, on_device = trainable(adapted), bool(reference_bytes(spec))
    reference = Path(spec.objective.reference_adapter) if spec.objective.reference_adapter else None
    if continues(spec):
        remember(adapted, parameters, on_device=on_device and reference is None)
    if reference and compares(spec):
        refer_to(adapted, parameters, reference, on_device=on_device)


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
