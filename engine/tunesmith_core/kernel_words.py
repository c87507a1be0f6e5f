"""What a run says about its kernels: sentences for its log, and what they come to for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tunesmith_core.messages import Message, joined

PLAIN = Message("The model runs in plain PyTorch. {reason}")
FUSED = Message("{num_fused} of {num_layers} layers run on Tunesmith's own path.")
NOT_FUSED = Message("Not fused in {num_unfused} of {num_layers} layers. {note}")
RUNNING = Message("Triton kernels: {names}.")
TWINS = Message("In plain PyTorch: {names}. {reason}")
BALANCED = Message(
    "Losses, held-out ones too, include the model's own term for an even use of its experts (output_router_logits), so "
    "perplexities made of them are too high."
)


def summary(sentences: Iterable[str]) -> Iterator[Message]:
    """Yield in words without names what ran on fast kernels, and what did not and why."""
    known = [sentence for sentence in sentences if isinstance(sentence, Message)]
    on_kernels = any(sentence.template == RUNNING.template for sentence in known)
    twins = [sentence for sentence in known if sentence.template == TWINS.template]
    if twins and not on_kernels:
        # The path of the layers is fast by its kernels only.
        reasons = joined(dict.fromkeys(reason for each in twins if (reason := each.values.get("reason"))))
        yield Message("None: all operations ran in plain PyTorch. {reason}", reason=reasons)
        return
    for sentence in known:
        told = sentence.values
        count, reason = len(str(told.get("names")).split(", ")), told.get("reason")
        match sentence.template:
            case PLAIN.template:
                yield Message("The model was trained in plain PyTorch, without fast kernels. {reason}", reason=reason)
            case FUSED.template if told.get("num_fused") == told.get("num_layers"):
                yield Message("All layers ran on Tunesmith's fast path.")
            case FUSED.template:
                fused, layers = told.get("num_fused"), told.get("num_layers")
                yield Message("Layers on Tunesmith's fast path: {fused} of {layers}.", fused=fused, layers=layers)
            case NOT_FUSED.template:
                layers, note = told.get("num_unfused"), told.get("note")
                yield Message("Layers with a part in plain PyTorch: {layers}. {note}", layers=layers, note=note)
            case RUNNING.template:
                yield Message("Operations on fast GPU kernels: {count}.", count=count)
            case TWINS.template:
                yield Message("Operations without a GPU kernel: {count}. {reason}", count=count, reason=reason)
