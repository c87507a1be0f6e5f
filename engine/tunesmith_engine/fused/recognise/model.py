"""What stands around the layers: the embedding, the head, and a wrapper for images where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.modeling_outputs import MoeModelOutputWithPast

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.parts import linear_sizes
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Constant,
    StandIns,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.model.saved_modules import plain
from tunesmith_engine.shapes import AnyModel, NotFusableError

LOGIT_SPREAD = 10.0
"""Size of the trial's logits: so large that a soft cap of 30 shows."""


@dataclass
class _Results(MoeModelOutputWithPast):
    """What a decoder, or a wrapper around it, returns: every field that a head asks for."""

    image_hidden_states: torch.Tensor | None = None


class _Echo(nn.Module):
    """Stands for a decoder in its wrapper: returns the embedded tokens that it is handed."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self.embed_tokens = embedding

    def get_input_embeddings(self) -> nn.Module:
        """As transformers' models have it."""
        return self.embed_tokens

    def forward(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor | None = None, **_: Any) -> Any:
        """Return the embedded tokens in transformers' wrapping."""
        if position_ids is not None:
            raise ValueError("it has positions of its own")
        return _Results(last_hidden_state=inputs_embeds)


def find_decoder(whole: AnyModel) -> tuple[str, AnyModel]:
    """Return the name and the module of the decoder in a causal language model.

    Raises:
        NotFusableError: there is none, or what is around it does something that we don't know.
    """
    inner = getattr(whole, "model", None)
    if inner is None or not hasattr(whole, "lm_head"):
        raise NotFusableError("{kind} has no model and lm_head side by side.", kind=type(whole).__name__)
    words.check_words("model", whole, words.CAUSAL_MODEL)
    linear_sizes("lm_head", plain(whole.lm_head))
    name, decoder = "model", inner
    if hasattr(inner, "language_model"):
        words.check_words("model", inner, words.WRAPPER)
        name, decoder = "model.language_model", inner.language_model
        _try_wrapper(inner, decoder)
    if not hasattr(decoder, "layers"):
        raise NotFusableError("{name} ({kind}) has no layers.", name=name, kind=type(decoder).__name__)
    words.check_words(name, decoder, words.MODEL)
    return name, decoder


def read_embedding(name: str, decoder: AnyModel) -> tuple[nn.Embedding, float]:
    """Return the embedding and its factor, as rounded to the embedding's number format by the model itself.

    Raises:
        NotFusableError: the decoder does something else with the embedded tokens.
    """
    embedding = plain(decoder.embed_tokens)
    own_scale = getattr(embedding, "embed_scale", None)
    if not isinstance(embedding, nn.Embedding) or (type(embedding) is not nn.Embedding and own_scale is None):
        raise NotFusableError(
            "{name} ({kind}) is not a plain embedding.", name=f"{name}.embed_tokens", kind=type(embedding).__name__
        )
    scale = 1.0
    if own_scale is not None:
        scale = float(torch.as_tensor(own_scale).to(embedding.weight.dtype))
    elif "embedding_multiplier" in words.words(decoder):
        # A Python number multiplies at full width before one rounding, so it is not rounded here.
        scale = float(decoder.embedding_multiplier)
    _try_embedding(name, decoder, scale)
    return embedding, scale


def read_logits(whole: AnyModel) -> tuple[float, float | None]:
    """Return the logits' factor and their soft cap.

    Raises:
        NotFusableError: the logits or the loss are something else.
    """
    used = words.words(whole)
    if "output_router_logits" in used and whole.config.output_router_logits:
        raise NotFusableError("The loss includes a term that balances the experts (output_router_logits).")
    scale, softcap = 1.0, None
    if "logit_scale" in used:
        scale = float(whole.logit_scale)
    if "logits_scaling" in used:
        scale = 1.0 / float(whole.config.logits_scaling)
    if "final_logit_softcapping" in used:
        softcap = whole.config.final_logit_softcapping
    _try_head(whole, scale, softcap)
    return scale, softcap


def _small_embedding(embedding: nn.Module, make: StandIns) -> nn.Module:
    """Return an embedding with the same code for as many tokens as a trial has."""
    weight = make.numbers(NUM_TOKENS, WIDTH).to(embedding.weight.dtype)
    twin = replaced(embedding, {}, {"weight": nn.Parameter(weight)})
    twin.padding_idx = None
    return twin


def _try_embedding(name: str, decoder: AnyModel, scale: float) -> None:
    """Hold what reaches the first layer against the decoder's own code, without layers and norm.

    Raises:
        NotFusableError: it is something else.
    """
    embedding = _small_embedding(plain(decoder.embed_tokens), StandIns())
    parts = {
        "embed_tokens": embedding,
        "layers": nn.ModuleList(),
        "norm": nn.Identity(),
        "rotary_emb": Constant((None, None)),
    }
    twin, ids = replaced(decoder, parts, {}), torch.arange(NUM_TOKENS)[None]
    result = result_of(name, lambda: twin(input_ids=ids, use_cache=False).last_hidden_state)
    expected = functional.embedding(ids, embedding.weight).double() * scale
    if not torch.equal(result, expected.to(result.dtype)):
        raise NotFusableError(
            "{name} ({kind}) changes its embedding in an unsupported way.", name=name, kind=type(decoder).__name__
        )


def _try_wrapper(inner: AnyModel, decoder: AnyModel) -> None:
    """Check that a model for images and texts hands texts on as they are.

    Raises:
        NotFusableError: it doesn't.
    """
    embedding = _small_embedding(plain(decoder.embed_tokens), StandIns())
    twin, ids = replaced(inner, {"language_model": _Echo(embedding)}, {}), torch.arange(NUM_TOKENS)[None]
    result = result_of("model", lambda: twin(input_ids=ids, use_cache=False).last_hidden_state)
    if not torch.equal(result, embedding(ids)):
        raise NotFusableError("model ({kind}) changes what its decoder reads.", kind=type(inner).__name__)


def _try_head(whole: AnyModel, scale: float, softcap: float | None) -> None:
    """Hold the logits against the model's own code.

    Raises:
        NotFusableError: they are something else.
    """
    make = StandIns()
    head, hidden = make.matrix(WIDTH, WIDTH), make.numbers(1, NUM_TOKENS, WIDTH) * LOGIT_SPREAD / scale
    twin = replaced(whole, {"model": Constant(_Results(last_hidden_state=hidden)), "lm_head": head}, {})
    ids = torch.arange(NUM_TOKENS)[None]
    result = result_of("lm_head", lambda: twin(input_ids=ids, use_cache=False).logits)
    expected = scale * head(hidden)
    if softcap is not None:
        expected = softcap * torch.tanh(expected / softcap)
    if not agrees(result, expected):
        raise NotFusableError("{kind} changes its logits in an unsupported way.", kind=type(whole).__name__)
