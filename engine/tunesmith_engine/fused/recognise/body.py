"""The parts of a decoder by what they are for, whatever a family calls them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.shapes import AnyModel, NotFusableError

EMBEDDING = ("embed_tokens", "embed_in", "wte", "word_embeddings", "embeddings", "tokens_embed", "w")
LAYERS = ("layers", "h", "blocks")
NORM = (
    *("norm", "final_layer_norm", "final_layernorm", "ln_f", "layer_norm", "norm_f", "embedding_norm", "layernorm"),
    "final_norm",
)
EMBEDDING_NORM = ("word_embeddings_layernorm", "layernorm_embedding")
HEAD = ("lm_head", "embed_out", "output_projection", "proj_out")
AMONG_IMAGES = ("language_model", "text_model")
"""Decoders inside models for images and texts."""
POSITIONS = ("wpe", "embed_positions", "positions_embed")


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
        embedding, layers: names of these parts in the module.
        norm: name of the last norm, or None.
        positions: name of the table of learned positions, or None.
        embedding_norm: name of a norm of the embedded tokens alone, or None.
    """

    name: str
    module: AnyModel
    embedding: str
    layers: str
    norm: str | None
    positions: str | None
    embedding_norm: str | None = None

    @classmethod
    def of(cls, name: str, module: AnyModel) -> Body:
        """Find the parts.

        Raises:
            NotFusableError: one is missing.
        """
        found = {}
        for role, names in (("layers", LAYERS), ("embedding", EMBEDDING)):
            part = first_of(module, names)
            if part is None:
                raise _missing(name, module, names)
            found[role] = part
        positions, norm = first_of(module, POSITIONS), first_of(module, NORM)
        used = words.words(module)
        if norm is None and any(name in used and not hasattr(module, name) for name in NORM):
            raise _missing(name, module, NORM)
        return cls(
            name,
            module,
            **found,
            norm=norm,
            positions=positions if positions in used else None,
            embedding_norm=first_of(module, tuple(each for each in EMBEDDING_NORM if each in used)),
        )

    def part(self, name: str) -> AnyModel:
        """Return a part of the decoder."""
        return getattr(self.module, name)

    @property
    def among_images(self) -> str | None:
        """The name of the decoder inside a model for images and texts; None for a model of texts alone."""
        last = self.name.rpartition(".")[2]
        return last if last in AMONG_IMAGES else None

    @property
    def last_norm(self) -> tuple[str, nn.Module]:
        """The full name of the last norm, and the norm itself.

        Raises:
            NotFusableError: there is none.
        """
        if self.norm is None:
            raise _missing(self.name, self.module, NORM)
        return f"{self.name}.{self.norm}", self.part(self.norm)

    @property
    def num_layers(self) -> int:
        """How many layers the decoder runs; a config may count those of an encoder (BART)."""
        there = len(self.part(self.layers))
        named = "num_hidden_layers" in words.words(self.module)
        return min(there, self.module.config.num_hidden_layers) if named else there


def _missing(name: str, module: nn.Module, names: tuple[str, ...]) -> NotFusableError:
    kind = type(module).__name__
    return NotFusableError("{name} ({kind}) has none of {names}.", name=name, kind=kind, names=", ".join(names))
