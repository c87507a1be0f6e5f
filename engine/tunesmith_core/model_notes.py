"""What a plan says of a base model: that it comes quantized, that its experts stay as they are, names it lacks."""

from __future__ import annotations

from tunesmith_core import unquantized
from tunesmith_core.adapter_ranks import adapts_experts
from tunesmith_core.adapter_shapes import ABOUT, NAMES_OF_EXPERTS, adapted_experts, is_in_experts, names_of_experts
from tunesmith_core.expert_memory import is_of_experts
from tunesmith_core.messages import Message, joined
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.spec import RunSpec, continues
from tunesmith_core.spec_sections import ALL_LINEAR, AdapterSpec
from tunesmith_core.trained_parts import FULL, LORA
from tunesmith_core.unmatched_names import linear_ends, unmatched


def notes(card: ModelCard, spec: RunSpec) -> list[Message]:
    """Return what a person should know of the base model under these settings, before a run starts."""
    found = [unquantized.note(card.path, spec), _experts_note(card, spec)]
    return [*filter(None, found), *(each.message for each in unmatched(spec, card.shapes))]


def _experts_note(card: ModelCard, spec: RunSpec) -> Message | None:
    """Return the note on experts that would be trained with other settings; only where that is certain."""
    adapter = spec.adapter
    if adapter.kind == FULL or adapter.target_modules != ALL_LINEAR or continues(spec):
        return None
    adapted = adapted_experts(card.model_type, card.linear_shapes, card.expert_shapes, None)
    # A router alone is no mixture whose experts lie in one weight.
    are_meant = any(is_in_experts(name) for name in adapted)
    if not adapts_experts(adapter):
        return untrained_experts(adapter) if are_meant else None
    if are_meant:
        return _beside_note(card)
    if card.model_type in ABOUT or not any(map(is_of_experts, card.shapes)):
        return None
    left_out = Message('The model\'s experts are not trained: for this type, "all-linear" doesn\'t include them.')
    names = names_of_experts(card.expert_shapes)
    if not names:
        return left_out
    listed = ", ".join([*linear_ends(card.shapes), *names])
    return joined([left_out, Message("To train them too, name the layers: {names}.", names=listed)])


def _beside_note(card: ModelCard) -> Message | None:
    """Return that layers beside the experts get no adapter because they are called as those of experts are."""
    names = NAMES_OF_EXPERTS[card.model_type].intersection(linear_ends(card.shapes))
    if not names:
        return None
    return Message(
        'Of layers called {names} only those of the experts get an adapter: of this type "all-linear" leaves out '
        "shared experts and layers without experts.",
        names=", ".join(sorted(names)),
    )


def untrained_experts(adapter: AdapterSpec) -> Message:
    """Return that experts are not trained, which settings keep them from it, and what to set instead."""
    reasons = []
    if adapter.kind != LORA:
        reasons.append(Message("Only LoRA can adapt them: choose LoRA to train them too."))
    if adapter.dropout:
        reasons.append(Message("With dropout they can have no adapter: set Dropout to 0 to train them too."))
    if adapter.kind == LORA and adapter.dora:
        reasons.append(Message("With DoRA they can have no adapter: turn DoRA off to train them too."))
    if adapter.layers:
        message = Message("With chosen layers they can have no adapter: leave Layers empty to train them too.")
        reasons.append(message)
    if adapter.kind == LORA and adapter.initial_values not in ("default", "gaussian"):
        message = Message(
            "With these initial values they can have no adapter: choose default or gaussian ones to train them too."
        )
        reasons.append(message)
    return joined([Message("The model's experts are not trained."), *reasons])
