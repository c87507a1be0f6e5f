"""The parts of a decoder by what they are for, whatever a family calls them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.shapes import AnyModel, NotFusableError

EMBEDDING = ("embed_tokens", "embed_in", "wte", "word_embeddings")
LAYERS = ("layers", "h")
NORM = ("norm", "final_layer_norm", "final_layernorm", "ln_f", "layer_norm", "embedding_norm")
HEAD = ("lm_head", "embed_out", "output_projection")
POSITIONS = ("wpe", "embed_positions")


def first_of(module: nn.Module, names: tuple[str, ...]) -> str | None:
    """Return the first of some names that a module has a part for; None for none."""
    return next((name for name in names if isinstance(getattr(module, name, None), nn.Module)), None)


def head_of(whole: AnyModel) -> str:
    """Return the name of a causal language model's output layer.

    Raises:
        NotFusableError: there is none.
    """
    name = first_of(whole, HEAD)
    if name is None:
        raise NotFusableError("{kind} has no model and lm_head side by side.", kind=type(whole).__name__)
    return name


def body_of(whole: AnyModel) -> str:
    """Return the name of what a causal language model has below its output layer."""
    prefix: str = whole.base_model_prefix
    return prefix if isinstance(getattr(whole, prefix, None), nn.Module) else "model"


@dataclass(frozen=True, slots=True)
class Body:
    """A decoder.

    Attributes:
        name: as in `named_modules`.
        module: whose code runs the layers.
        embedding, layers, norm: names of these parts in the module.
        positions: name of the table of learned positions, or None.
    """

    name: str
    module: AnyModel
    embedding: str
    layers: str
    norm: str
    positions: str | None

    @classmethod
    def of(cls, name: str, module: AnyModel) -> Body:
        """Find the parts.

        Raises:
            NotFusableError: one is missing.
        """
        found = {}
        for role, names in (("layers", LAYERS), ("embedding", EMBEDDING), ("norm", NORM)):
            part = first_of(module, names)
            if part is None:
                raise NotFusableError(
                    "{name} ({kind}) has none of {names}.",
                    name=name,
                    kind=type(module).__name__,
                    names=", ".join(names),
                )
            found[role] = part
        positions = first_of(module, POSITIONS)
        return cls(name, module, **found, positions=positions if positions in words.words(module) else None)

    def part(self, name: str) -> AnyModel:
        """Return a part of the decoder."""
        return getattr(self.module, name)
