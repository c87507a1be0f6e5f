"""What stands around the layers: the embedding, the head, and a wrapper for images where there is one."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from transformers.modeling_outputs import MoeModelOutputWithPast

from tunesmith_engine.altup_shapes import AltUpEndsShape
from tunesmith_engine.fused.recognise import altup, balance, other_tables, per_layer, words
from tunesmith_engine.fused.recognise.biases import BIASES, slopes_of
from tunesmith_engine.fused.recognise.body import AMONG_IMAGES, Body, body_of, first_of, head_of
from tunesmith_engine.fused.recognise.parts import check_no_dropout, linear_sizes, normalise, read_norm
from tunesmith_engine.fused.recognise.rotary import RotaryTables, without_table
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Constant,
    StandIns,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.model.saved_modules import plain
from tunesmith_engine.shapes import (
    AnyModel,
    BalanceShape,
    LayerShape,
    NotFusableError,
    OtherTable,
    PerLayerInputs,
    Placeholders,
    PositionTable,
    UnfusedLayer,
)

LOGIT_SPREAD = 10.0
"""Size of the trial's logits: so large that a soft cap of 30 shows."""

SMALL_SPREAD = 1e-3
"""Size of logits that no soft cap changes by more than rounding."""

SAME_SHARE = 1e-5
"""How far a factor that was measured may be from the number that it is."""

INSIDE = "decoder"
"""What some models call the decoder inside their body."""

MOST_OFFSET = 2
"""Of a table of learned positions."""

PLACEHOLDERS = ("image_token_id", "video_token_id", "audio_token_id")
"""Names that configs have for tokens in whose places images, videos and sounds are put."""

LAYER_INPUTS = frozenset({"attention_mask", "position_ids", "per_layer_input"})
"""Tensors that a decoder hands its layers by name."""


@dataclass
class _Results(MoeModelOutputWithPast):
    """What a decoder, or a wrapper around it, returns: every field that a head asks for."""

    image_hidden_states: torch.Tensor | None = None
    audio_hidden_states: torch.Tensor | None = None
    video_hidden_states: torch.Tensor | None = None
    cross_attentions: tuple[torch.Tensor, ...] | None = None
    cache_params: None = None
    shared_kv_states: dict[str, tuple[torch.Tensor, ...]] | None = None


class _Echo(nn.Module):
    """Stands for a decoder in its wrapper: returns the embedded tokens that it is handed."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self.embed_tokens = embedding

    def get_input_embeddings(self) -> nn.Module:
        """As transformers' models have it."""
        return self.embed_tokens

    def get_per_layer_inputs(self, input_ids: torch.Tensor, _: torch.Tensor | None = None) -> torch.Tensor:
        """Return the tokens themselves."""
        return input_ids

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        per_layer_inputs: torch.Tensor | None = None,
        **_: Any,
    ) -> Any:
        """Return the embedded tokens in transformers' wrapping."""
        if position_ids is not None and not torch.equal(position_ids, torch.arange(inputs_embeds.shape[1])[None]):
            raise ValueError("it has positions of its own")
        if per_layer_inputs is not None and not torch.equal(self.embed_tokens(per_layer_inputs), inputs_embeds):
            raise ValueError("its layers read other tokens than its embedding")
        return _Results(last_hidden_state=inputs_embeds)


def find_decoder(whole: AnyModel) -> Body:
    """Return the decoder in a causal language model.

    Raises:
        NotFusableError: there is none, or what is around it does something that we don't know.
    """
    name = body_of(whole)
    inner, head = getattr(whole, name, None), head_of(whole)
    if inner is None:
        raise NotFusableError("{kind} has no model and lm_head side by side.", kind=type(whole).__name__)
    among_images = first_of(inner, AMONG_IMAGES)
    linear_sizes(head, plain(getattr(whole, head)))
    decoder = inner
    if among_images:
        words.check_words("model", inner, words.WRAPPER | words.OF_IMAGES)
        name, decoder = f"{name}.{among_images}", getattr(inner, among_images)
        _try_wrapper(inner, among_images)
    elif INSIDE in words.words(whole):
        # The head calls it past its wrapper (OPT).
        name, decoder = f"{name}.{INSIDE}", getattr(inner, INSIDE)
    body = _with_last_norm(Body.of(name, decoder))
    check_no_dropout(name, decoder)
    return body


def read_embedding(body: Body) -> tuple[nn.Embedding, float, PositionTable | None, Norm | None]:
    """Return the embedding, its factor, as rounded to its number format by the model itself, positions, and a norm.

    Raises:
        NotFusableError: the decoder does something else with the embedded tokens.
    """
    decoder, embedding = body.module, embedding_of(body)
    own_scale = getattr(embedding, "embed_scale", None)
    if type(embedding) is not nn.Embedding and own_scale is None:
        raise _not_plain(body, embedding)
    scale = 1.0
    if own_scale is not None:
        scale = float(torch.as_tensor(own_scale).to(embedding.weight.dtype))
    elif "embedding_multiplier" in words.words(decoder):
        # A Python number multiplies at full width before one rounding, so it is not rounded here.
        scale = float(decoder.embedding_multiplier)
    elif "embed_scale" in words.words(decoder):
        scale = float(decoder.embed_scale)
    return embedding, *_try_embedding(body, scale)


def embedding_of(body: Body) -> nn.Embedding:
    """Return the embedding, whatever else it does.

    Raises:
        NotFusableError: it is none, or has an adapter.
    """
    embedding = plain(body.part(body.embedding))
    if not isinstance(embedding, nn.Embedding):
        raise _not_plain(body, embedding)
    return embedding


def _not_plain(body: Body, embedding: nn.Module) -> NotFusableError:
    return NotFusableError(
        "{name} ({kind}) is not a plain embedding.",
        name=f"{body.name}.{body.embedding}",
        kind=type(embedding).__name__,
    )


def read_per_layer(body: Body) -> PerLayerInputs | None:
    """Return how what layers have of their own is made; see `per_layer.read_inputs`."""
    return per_layer.read_inputs(body, _small_embedding(plain(body.part(body.embedding)), StandIns()))


def read_altup(body: Body) -> AltUpEndsShape | None:
    """Return what is at the ends of several streams; see `altup.read_ends`."""
    if not altup.has_ends(body.module):
        return None
    return altup.read_ends(body, _small_embedding(embedding_of(body), StandIns()).float())


def read_logits(whole: AnyModel) -> tuple[float, float | None]:
    """Return the logits' factor and their soft cap.

    Raises:
        NotFusableError: the logits or the loss are something else.
    """
    used = words.words(whole)
    if "z_loss_coefficient" in used and whole.config.z_loss_coefficient:
        raise NotFusableError("The loss includes a term that keeps logits small (z_loss_coefficient).")
    config = vars(whole.config) | vars(whole.config.get_text_config())
    scale = _logit_scale(whole, config)
    caps = [value for name, value in config.items() if "cap" in name and isinstance(value, float) and value > 0]
    for softcap in (None, *dict.fromkeys(caps)):
        if _try_head(whole, scale, softcap):
            return scale, softcap
    raise NotFusableError("{kind} changes its logits in an unsupported way.", kind=type(whole).__name__)


def _logit_scale(whole: AnyModel, config: dict[str, Any]) -> float:
    """Return the factor of small logits, which no cap touches: a number of the config or its inverse, if one fits."""
    hidden = StandIns().numbers(1, NUM_TOKENS, WIDTH) * SMALL_SPREAD
    logits, product = (part.double() for part in _logits(whole, hidden, False))
    scale = float((logits * product).sum() / product.square().sum()) if logits.shape == product.shape else 1.0
    numbers = [float(value) for value in config.values() if isinstance(value, int | float) and value]
    fits = (exact for value in numbers for exact in (1.0, value, 1.0 / value) if abs(scale / exact - 1.0) < SAME_SHARE)
    return next(fits, scale)


def _small_embedding(embedding: nn.Module, make: StandIns, num_rows: int = NUM_TOKENS) -> nn.Module:
    """Return an embedding with the same code for as many tokens as a trial has."""
    weight = make.numbers(num_rows, WIDTH).to(embedding.weight.dtype)
    twin = replaced(embedding, {}, {"weight": nn.Parameter(weight)})
    twin.padding_idx = None
    return twin


class _Counted(nn.Identity):
    """Stands for a norm, and counts how often it is called."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Hand on."""
        self.calls += 1
        return x


class _Taken(nn.Module):
    """Stands for a layer, with its attributes: hands on what it is given, and keeps the tensors that came with it.

    Attributes:
        is_behind_norm: a norm was called before it.
        others: all tensors but the first, by name.
        table: of positions.
        in_pair: it returns a second result that is dropped (Bamba).
    """

    def __init__(self, original: nn.Module, norm: _Counted) -> None:
        super().__init__()
        # Not as parts of this module.
        self.__dict__ |= {"original": original, "_norm": norm}
        names = inspect.signature(inspect.unwrap(original.forward)).parameters
        self._names = [name for name in names if name != "self"]
        self.is_behind_norm = False
        self.others: dict[str, torch.Tensor] = {}
        self.table: Any = None
        self.in_pair = False

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["original"], name)

    def forward(self, *given: Any, **named: Any) -> tuple[torch.Tensor, None] | torch.Tensor:
        """Return the numbers in the wrapping of a layer."""
        named |= dict(zip(self._names, given, strict=False))
        hidden: torch.Tensor = named.pop(self._names[0])
        self.is_behind_norm = self.__dict__["_norm"].calls > 0
        self.others = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
        self.table = named.get("position_embeddings")
        return (hidden, None) if self.in_pair else hidden


def _try_embedding(body: Body, scale: float) -> tuple[float, PositionTable | None, Norm | None]:
    """Hold what reaches the first layer against the decoder's own code, without layers and norm.

    Returns:
        The embedding's factor, the one that was read or the root of the width, the positions, and a norm.

    Raises:
        NotFusableError: it is something else.
    """
    decoder, make = body.module, StandIns()
    embedding = _small_embedding(plain(body.part(body.embedding)), make)
    parts = {
        body.embedding: embedding,
        body.layers: nn.ModuleList(),
        **without_table(decoder),
        **per_layer.stand_ins(body, make),
    }
    norm = _Counted()
    if body.norm:
        parts[body.norm] = norm
    if body.embedding_norm:
        parts[body.embedding_norm] = make.norm(body.part(body.embedding_norm), WIDTH).to(embedding.weight.dtype)
    own = None if body.positions is None else plain(body.part(body.positions))
    if body.positions is not None:
        if not isinstance(own, nn.Embedding):
            raise NotFusableError("{name} is not a table.", name=f"{body.name}.{body.positions}")
        parts[body.positions] = _small_embedding(own, make, NUM_TOKENS + MOST_OFFSET)
    twin, ids = replaced(decoder, parts, {}), torch.arange(NUM_TOKENS)[None]

    def run() -> torch.Tensor:
        found: torch.Tensor = twin(input_ids=ids, use_cache=False).last_hidden_state
        return found

    result = result_of(body.name, run)
    factor, table, before = _as_read(body, parts, scale, result, norm.calls)
    if table is not None:
        table = replace(table, learns=_learns(run, parts[str(body.positions)]))
    return factor, table, before


def _learns(run: Callable[[], torch.Tensor], part: nn.Module) -> bool:
    """Whether a gradient reaches the table of a part from what is computed with it."""
    (weight,) = part.parameters()
    with torch.enable_grad():
        (found,) = torch.autograd.grad(run().float().sum(), weight.requires_grad_(), allow_unused=True)
    return found is not None


def _as_read(
    body: Body, parts: dict[str, nn.Module], scale: float, result: torch.Tensor, num_norms: int
) -> tuple[float, PositionTable | None, Norm | None]:
    """Return what gives the result of a trial; see `_try_embedding`.

    Args:
        body, parts: the decoder and its stand-ins.
        scale: of the embedding, as read.
        result: what reaches the first layer.
        num_norms: how often the last norm was called.
    """
    ids, weight = torch.arange(NUM_TOKENS)[None], cast(nn.Embedding, parts[body.embedding]).weight
    rows = functional.embedding(ids, weight).double()
    expected = (rows * scale).to(result.dtype)
    if body.embedding_norm:
        return _try_embedding_norm(body, parts, scale, expected, result)
    again = None
    if num_norms > 1:
        # The last norm comes before the layers as well (NanoChat).
        again = read_norm(*body.last_norm)
        if num_norms > 1 + 1 or again.weight is not None:
            raise NotFusableError("{name} uses its last norm several times.", name=body.name)
    if body.positions is None:
        for factor in (scale, float(body.module.config.hidden_size**0.5)):
            # A number multiplies in float32, whatever the format is.
            exact, product = rows * factor, rows.float() * factor
            if any(torch.equal(result, each.to(result.dtype)) for each in (exact, product)):
                return factor, None, again
    for table, added in _position_tables(body, parts):
        if torch.equal(result, expected + added) or agrees(result, expected + added):
            return scale, table, again
    raise NotFusableError(
        "{name} ({kind}) changes its embedding in an unsupported way.", name=body.name, kind=type(body.module).__name__
    )


def _position_tables(body: Body, parts: dict[str, nn.Module]) -> Iterator[tuple[PositionTable, torch.Tensor]]:
    """Yield what a table of positions may be with its offset, and the rows of its stand-in for a trial's tokens."""
    if body.positions is None:
        return
    table, stand_in = plain(body.part(body.positions)), parts[body.positions]
    for offset in range(MOST_OFFSET + 1):
        rows = functional.embedding(torch.arange(NUM_TOKENS)[None] + offset, cast(nn.Embedding, stand_in).weight)
        yield PositionTable(table, offset), rows


def _try_embedding_norm(
    body: Body, parts: dict[str, nn.Module], scale: float, before: torch.Tensor, result: torch.Tensor
) -> tuple[float, PositionTable | None, Norm]:
    """Return the embedding's factor, positions and the norm of the sum, held against what reaches the first layer.

    Raises:
        NotFusableError: that is something else.
    """
    name = str(body.embedding_norm)
    norm, stand_in = read_norm(f"{body.name}.{name}", body.part(name)), parts[name]
    tried = replace(norm, weight=getattr(stand_in, "weight", None), bias=getattr(stand_in, "bias", None))
    sums: list[tuple[PositionTable | None, torch.Tensor]] = [(None, before)]
    if body.positions is not None:
        sums = [(table, before + added) for table, added in _position_tables(body, parts)]
    for table, total in sums:
        if agrees(result.float(), normalise(total, tried).float()):
            return scale, table, norm
    raise NotFusableError(
        "{name} ({kind}) changes its embedding in an unsupported way.",
        name=body.name,
        kind=type(body.module).__name__,
    )


def read_layer_inputs(body: Body) -> torch.Tensor | None:
    """Return the slopes of ALiBi that a decoder hands its layers, [heads], or None.

    Raises:
        NotFusableError: it hands them a tensor that we don't know.
    """
    taken = _first_call(body)
    biases = [name for name in taken.others if name in BIASES]
    slopes = slopes_of(taken.others[biases[0]]) if len(biases) == 1 else None
    if others := taken.others.keys() - LAYER_INPUTS - set([] if slopes is None else biases):
        raise NotFusableError(
            "{name} ({kind}) hands its layers {names}.",
            name=body.name,
            kind=type(body.module).__name__,
            names=", ".join(sorted(others)),
        )
    return slopes if slopes is None else slopes.to(plain(body.part(body.embedding)).weight.device)


def _with_last_norm(body: Body) -> Body:
    """Return a decoder whose only norm is called after that of an embedding, but may be the last (BigBird-Pegasus)."""
    if body.norm or body.embedding_norm is None:
        return body
    return body if _first_call(body).is_behind_norm else replace(body, norm=body.embedding_norm, embedding_norm=None)


def _first_call(body: Body) -> _Taken:
    """Return how a decoder's own code calls its first layer.

    Raises:
        NotFusableError: it can't run on stand-ins.
    """
    norm = _Counted()
    taken = _Taken(body.part(body.layers)[0], norm)
    try:
        _hand([taken], body, norm)
    except NotFusableError:
        taken.in_pair = True
        _hand([taken], body, norm)
    return taken


def check_tables(body: Body, tables: RotaryTables, kinds: Sequence[str]) -> None:
    """Hold the rotary tables of several kinds that a decoder hands its layers against those that were read.

    Args:
        body: of the decoder.
        tables: as they are read.
        kinds: of the layers; "" for none.

    Raises:
        NotFusableError: a layer is handed another one.
    """
    norm = _Counted()
    layers = [_Taken(layer, norm) for layer in body.part(body.layers)[: len(kinds)]]
    ids = _hand(layers, body, norm)
    for layer, kind in zip(layers, kinds, strict=True):
        expected = tables(torch.zeros(1, device=ids.device), ids, kind) if kind else None
        handed = layer.table if kind else (layer.table,)
        if handed is None or not all(map(_same, handed, expected or (None,))):
            raise NotFusableError("The decoder's layers use different rotary embeddings.")


def _same(handed: torch.Tensor | None, expected: torch.Tensor | None) -> bool:
    return handed is expected or (handed is not None and expected is not None and torch.equal(handed, expected))


def _hand(layers: Sequence[nn.Module], body: Body, norm: nn.Module) -> torch.Tensor:
    """Let a decoder call stand-ins for its layers; return which tokens they are for, which are their positions as well.

    Args:
        layers: the stand-ins.
        body: of the decoder.
        norm: stands for the norm of its embedding.

    Raises:
        NotFusableError: its code doesn't run.
    """
    make = StandIns()
    parts: dict[str, nn.Module] = {
        # Slopes that are rounded to 16 bits would be others.
        body.embedding: _small_embedding(plain(body.part(body.embedding)), make).float(),
        body.layers: nn.ModuleList(layers),
        **per_layer.stand_ins(body, make),
    }
    if len(layers) == 1:
        parts |= without_table(body.module)
    if body.positions is not None:
        table = plain(body.part(body.positions))
        is_table = isinstance(table, nn.Embedding)
        rows = NUM_TOKENS + MOST_OFFSET
        parts[body.positions] = _small_embedding(table, make, rows) if is_table else Constant(torch.zeros(WIDTH))
    parts |= {body.norm: nn.Identity()} if body.norm else {}
    parts |= {body.embedding_norm: norm} if body.embedding_norm else {}
    twin, ids = replaced(body.module, parts, {}), torch.arange(NUM_TOKENS)[None]
    result_of(body.name, lambda: twin(input_ids=ids, use_cache=False).last_hidden_state)
    return ids


def _try_wrapper(inner: AnyModel, decoder: str) -> None:
    """Check that a model for images and texts hands texts on as they are, but for tokens that stand for images.

    Raises:
        NotFusableError: it doesn't.
    """
    embedding = _small_embedding(plain(getattr(inner, decoder).embed_tokens), StandIns())
    expected = embedding(torch.arange(NUM_TOKENS)[None])
    if not torch.equal(_echoed(inner, decoder, embedding, {}), expected):
        raise NotFusableError("model ({kind}) changes what its decoder reads.", kind=type(inner).__name__)


def read_placeholders(body: Body, inner: AnyModel) -> Placeholders | None:
    """Return which tokens a model for images and texts reads as padding where there are none; None for none.

    Raises:
        NotFusableError: it reads them as something else.
    """
    if not body.among_images:
        return None
    embedding = _small_embedding(plain(body.part(body.embedding)), StandIns())
    names = [name for name in PLACEHOLDERS if isinstance(getattr(inner.config, name, None), int)]
    given = {name: place for place, name in enumerate(names, start=1)}
    rows = torch.arange(NUM_TOKENS)[None]
    result, padded = _echoed(inner, body.among_images, embedding, given), rows.where(rows > len(names), 0)
    if torch.equal(result, embedding(rows)):
        return None
    if not torch.equal(result, embedding(padded)):
        raise NotFusableError("model ({kind}) changes what its decoder reads.", kind=type(inner).__name__)
    found = tuple(getattr(inner.config, name) for name in names)
    return Placeholders(found, int(inner.config.get_text_config().pad_token_id))


def read_other_tables(body: Body, inner: AnyModel) -> tuple[OtherTable, ...]:
    """Return which tokens tables of their own embed; see `other_tables.read_other_tables`."""
    if not body.among_images:
        return ()
    embedding = _small_embedding(plain(body.part(body.embedding)), StandIns()).float()
    return other_tables.read_other_tables(inner, body.among_images, embedding)


def _echoed(inner: AnyModel, decoder: str, embedding: nn.Module, ids: dict[str, int]) -> torch.Tensor:
    """Return what a decoder's wrapper hands it for the first tokens; images have the ids that are given, else none."""
    twin = replaced(inner, {decoder: _Echo(embedding), **other_tables.without_tokens(inner)}, {})
    twin.config = copy.deepcopy(inner.config)
    for name in PLACEHOLDERS:
        if isinstance(getattr(twin.config, name, None), int):
            setattr(twin.config, name, ids.get(name, -1))
    twin.config.get_text_config().pad_token_id = 0
    tokens = torch.arange(NUM_TOKENS)[None]
    return result_of("model", lambda: twin(input_ids=tokens, use_cache=False).last_hidden_state)


def read_balance(
    whole: AnyModel, body: Body, layers: Sequence[LayerShape | UnfusedLayer]
) -> BalanceShape | None:
    """Return what the model adds to its loss for its experts; see `balance.read_balance`."""

    def losses(logits: tuple[torch.Tensor, ...], mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = StandIns().numbers(1, mask.shape[1], WIDTH)
        twin, _ = _around_results(whole, _Results(last_hidden_state=hidden, router_logits=logits))
        twin.config = copy.deepcopy(whole.config)
        for owner in (twin, twin.config, twin.config.get_text_config()):
            owner.vocab_size = WIDTH
        ids = torch.arange(mask.shape[1])[None]
        found: list[Any] = []
        given = {"input_ids": ids, "labels": ids, "attention_mask": mask, "use_cache": False}
        loss = result_of("lm_head", lambda: found.append(twin(**given)) or found[0].loss)  # type: ignore[func-returns-value]
        return loss, balance.cross_entropy(found[0].logits, ids)

    return balance.read_balance(whole, body, layers, losses)


def _logits(whole: AnyModel, hidden: torch.Tensor, training: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the model's own code makes of hidden states, [1, T, V], and their product with its head."""
    twin, head = _around_results(whole, _Results(last_hidden_state=hidden))
    twin.training = training
    ids = torch.arange(hidden.shape[1])[None]
    return result_of("lm_head", lambda: twin(input_ids=ids, use_cache=False).logits), head(hidden)


def _around_results(whole: AnyModel, results: _Results) -> tuple[nn.Module, nn.Module]:
    """Return a twin of a model whose decoder gives these results, and the stand-in for its head."""
    head = StandIns().matrix(WIDTH, WIDTH)
    body: nn.Module = Constant(results)
    # Other parts of the body give the head's code their numbers.
    body.__dict__["config"] = whole.config
    own = getattr(whole, body_of(whole))
    vars(body).update({name: value for name, value in vars(own).items() if isinstance(value, int | float)})
    if INSIDE in words.words(whole):
        body = replaced(nn.Module(), {INSIDE: body}, {})
    return replaced(whole, {body_of(whole): body, head_of(whole): head}, {}), head


def _try_head(whole: AnyModel, scale: float, softcap: float | None) -> bool:
    """Whether the model's own code gives the logits with a factor and a cap, for any length, in training and not."""
    for num_tokens, training in ((NUM_TOKENS, False), (4 * NUM_TOKENS, True)):
        hidden = StandIns().numbers(1, num_tokens, WIDTH) * LOGIT_SPREAD / scale
        result, product = _logits(whole, hidden, training)
        expected = scale * product
        if softcap is not None:
            expected = softcap * torch.tanh(expected / softcap)
        if not agrees(result, expected):
            return False
    return True
