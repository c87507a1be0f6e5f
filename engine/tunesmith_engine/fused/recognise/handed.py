"""What a decoder hands its layers, and a layer its mixer: found by running their own code without what is inside.

A module that isn't understood must be called as its owner calls it. So the owner's code runs with recorders in place of
the modules: masks, positions and rotary tables come from it, for each text as if that were alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tunesmith_engine.attention.shared import whole
from tunesmith_engine.fused.recognise.body import Body
from tunesmith_engine.fused.recognise.stand_ins import copied, in_holders, result_of
from tunesmith_engine.model.saved_modules import plain
from tunesmith_engine.packed.batch import Documents, PackedBatch
from tunesmith_engine.shapes import NotFusableError

HIDDEN = "hidden_states"

FORMS = (0, 1, 2, 3)
"""Results of a call: a tuple of so many, or one alone (0)."""

NUM_TOKENS = 7
FIRST_TOKEN = 11
"""Of the trial's tokens; the lowest ones may stand for padding."""


@dataclass(frozen=True, slots=True)
class Call:
    """How a module is called.

    Attributes:
        args, named: all that it is given.
        place: where the hidden states are among them.
    """

    args: tuple[Any, ...]
    named: Mapping[str, Any]
    place: int | str

    @classmethod
    def of(cls, args: tuple[Any, ...], named: Mapping[str, Any]) -> Call:
        """Find the hidden states: by their name, else the first tensor.

        Raises:
            NotFusableError: there is none.
        """
        if HIDDEN in named:
            return cls(args, named, HIDDEN)
        for place, value in _placed(args, named):
            if isinstance(value, torch.Tensor):
                return cls(args, named, place)
        raise NotFusableError("A layer is called without hidden states.")

    @property
    def hidden(self) -> torch.Tensor:
        """The hidden states."""
        found: torch.Tensor = self.args[self.place] if isinstance(self.place, int) else self.named[self.place]
        return found

    @property
    def others(self) -> dict[int | str, Any]:
        """All but the hidden states."""
        return {place: value for place, value in _placed(self.args, self.named) if place != self.place}

    @property
    def on_cpu(self) -> Call:
        """The same with all tensors in the computer's memory."""
        return Call(_on_cpu(self.args), _on_cpu(self.named), self.place)

    def given(self, hidden: torch.Tensor) -> Call:
        """Return the same with other hidden states."""
        args, named = list(self.args), dict(self.named)
        if isinstance(self.place, int):
            args[self.place] = hidden
        else:
            named[self.place] = hidden
        return Call(tuple(args), named, self.place)

    def run(self, module: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        """Call a module with other hidden states; return what it makes of them."""
        call = self.given(hidden)
        result = module(*call.args, **call.named)
        found: torch.Tensor = result[0] if isinstance(result, tuple | list) else result
        return found


def _placed(args: tuple[Any, ...], named: Mapping[str, Any]) -> list[tuple[int | str, Any]]:
    return [*enumerate(args), *named.items()]


class _WithAttributesOf(nn.Module):
    """Stands for a module, with its attributes.

    Attributes:
        original: the module.
    """

    original: nn.Module

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        # Not as a part of this module.
        self.__dict__["original"] = original

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["original"], name)


class Recorder(_WithAttributesOf):
    """Keeps how a module is called, and answers with what it is told to.

    Attributes:
        call: the last one.
        answer: None for the hidden states as they came.
        extra: what else it answers with, where its form has more results.
    """

    def __init__(self, original: nn.Module, form: int) -> None:
        super().__init__(original)
        self._form = form
        self.call: Call | None = None
        self.answer: torch.Tensor | None = None
        self.extra: torch.Tensor | None = None

    def forward(self, *args: Any, **named: Any) -> Any:
        """Take note."""
        self.call = Call.of(args, named)
        result = self.call.hidden if self.answer is None else self.answer
        return (result, *[self.extra] * (self._form - 1)) if self._form else result


class _NoEmbedding(_WithAttributesOf):
    """Stands for an embedding whose numbers nobody reads."""

    def __init__(self, width: int, original: nn.Module) -> None:
        super().__init__(original)
        self._width, self.dtype = width, torch.float32

    def forward(self, ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Return zeros that take no memory."""
        return torch.zeros(1, dtype=self.dtype, device=ids.device).expand(*ids.shape, self._width)


def hollowed(module: nn.Module, parts: Mapping[str, nn.Module]) -> nn.Module:
    """Return a module with the same code, attributes and weights, where they are, but other parts; see `in_holders`."""
    twin = copied(module, type(module))
    twin._modules = {**module._modules, **in_holders(module, parts, hollowed)}
    twin.training = False
    return twin


@dataclass(frozen=True, slots=True)
class Run:
    """Texts of one length that pass through modules as written together.

    Attributes:
        rows: of the whole documents' tokens.
        number: of texts.
        start: what the first layer is given, [number, length, hidden].
        calls: of the layers, or of the mixers in them, by the number of the layer.
    """

    rows: slice
    number: int
    start: torch.Tensor
    calls: Mapping[int, Call]


class Handing:
    """Runs a decoder's own code around its layers.

    Attributes:
        runs: of the micro-batch that passes through now.
        uses_embedding: the first layer's input is taken from here, or what else the layers are handed depends on it.
    """

    def __init__(self, body: Body, num_layers: int, hidden_size: int, form: int) -> None:
        self.runs: Sequence[Run] = ()
        self.uses_embedding = False
        self._layers = [Recorder(layer, form) for layer in body.part(body.layers)[:num_layers]]
        self._norms = {body.norm: Recorder(body.part(body.norm), 0)} if body.norm else {}
        self._inside: dict[int, tuple[nn.Module, Recorder]] = {}
        self._wanted: set[int] = set()
        parts: dict[str, nn.Module] = {body.layers: nn.ModuleList(self._layers), **self._norms}
        self._embedding = plain(body.part(body.embedding))
        self._name, self._with_embedding = body.name, hollowed(body.module, parts)
        self._no_embedding = _NoEmbedding(hidden_size, body.part(body.embedding))
        self._without = hollowed(body.module, {**parts, body.embedding: self._no_embedding})

    @classmethod
    def of(cls, body: Body, num_layers: int, hidden_size: int) -> Handing:
        """Find out how a decoder calls its layers.

        Raises:
            NotFusableError: it doesn't only hand on what a layer returns, or it hands over what we can't give.
        """
        problem: NotFusableError | None = None
        for form in FORMS:
            found = cls(body, num_layers, hidden_size, form)
            try:
                calls = found._tried(1)
            except NotFusableError as error:
                # The sentence of the first form, which is the most usual one, says most.
                problem = problem or error
            else:
                found._compare(calls)
                return found
        raise problem or NotFusableError("{name} has no layers.", name=body.name)

    def layer_call(self, index: int) -> Call:
        """Return how a layer was called last."""
        call = self._layers[index].call
        if call is None:
            raise NotFusableError("{name} passes over a layer.", name=self._name)
        return call

    def hand_layer(self, index: int) -> None:
        """Keep the calls of a layer from now on."""
        self._wanted.add(index)

    def hand_mixer(self, index: int, hollow: nn.Module, recorder: Recorder) -> None:
        """Keep the calls of what is recorded in a hollow layer from now on.

        Raises:
            NotFusableError: the layer hands over what we can't give.
        """
        call, calls = self.layer_call(index), []
        for shift in (0.0, 1.0):
            result_of(self._name, lambda: call.run(hollow, call.hidden + shift))  # noqa: B023 - run at once
            calls.append(recorder.call)
        _check_alike(self._name, recorder.original, *calls)
        self._inside[index] = hollow, recorder
        self._wanted.add(index)

    def start(self, documents: Documents) -> torch.Tensor:
        """Return what the first layer is given, [T, hidden]."""
        rows = torch.cat([run.start.flatten(0, 1) for run in self.runs])
        return rows if documents.shared is None else rows.index_select(0, documents.shared.first)

    def begin(self, batch: PackedBatch, dtype: torch.dtype, most_tokens: int) -> None:
        """Make the calls of a micro-batch.

        Args:
            batch: whose documents pass through as if each were alone.
            dtype: of the hidden states.
            most_tokens: that pass together, unless one text is longer.
        """
        ids = whole(batch.input_ids, batch.documents)
        self.runs, start, lengths = [], 0, batch.documents.lengths
        first = 0
        while first < len(lengths):
            length, last = lengths[first], first + 1
            while last < len(lengths) and lengths[last] == length and (last + 1 - first) * length <= most_tokens:
                last += 1
            rows = slice(start, start + (last - first) * length)
            self.runs.append(self._run(ids[rows].view(-1, length), rows, dtype))
            start, first = rows.stop, last

    def _run(self, ids: torch.Tensor, rows: slice, dtype: torch.dtype) -> Run:
        self._no_embedding.dtype = dtype
        self._call(ids, self.uses_embedding)
        calls = {}
        for index in self._wanted:
            calls[index] = self.layer_call(index)
            if index in self._inside:
                (hollow, recorder), hidden = self._inside[index], calls[index].hidden
                with torch.no_grad():
                    # Some write to what they are given, which zeros that take no memory don't bear.
                    calls[index].run(hollow, hidden.contiguous())
                if recorder.call is not None:
                    calls[index] = recorder.call.given(hidden)
        return Run(rows, len(ids), self.layer_call(0).hidden, calls)

    def _call(self, ids: torch.Tensor, with_embedding: bool) -> Any:
        twin = self._with_embedding if with_embedding else self._without
        with torch.no_grad():
            return twin(input_ids=ids, use_cache=False)

    # The trial

    def _compare(self, calls: list[Call]) -> None:
        """Check that the calls don't depend on what the layers return; note whether they do on the tokens.

        Raises:
            NotFusableError: they do.
        """
        for recorder, *pair in zip(self._layers, calls, self._tried(2), strict=True):
            _check_alike(self._name, recorder.original, *pair)
        others = self._tried(1, backwards=True)
        self.uses_embedding = not all(_alike(a.others, b.others) for a, b in zip(calls, others, strict=True))
        for recorder in (*self._layers, *self._norms.values()):
            recorder.answer = recorder.extra = None
        # So that the recorders hold calls with the hidden states themselves.
        self._call(self._ids, True)

    @property
    def _ids(self) -> torch.Tensor:
        return torch.arange(2 * NUM_TOKENS, device=self._embedding.weight.device).view(2, -1) + FIRST_TOKEN

    def _tried(self, seed: int, backwards: bool = False) -> list[Call]:
        """Let the layers answer with random numbers, and check that these reach the next layer as they are."""
        ids = self._ids.flip(1) if backwards else self._ids
        generator = torch.Generator().manual_seed(seed)
        weight = self._embedding.weight
        width = self._no_embedding._width
        recorders = [*self._layers, *self._norms.values()]
        for recorder in recorders:
            numbers = torch.randn(*ids.shape, width, generator=generator)
            recorder.answer, recorder.call = numbers.to(weight.device, weight.dtype), None
            # Whoever hands on a layer's other results hands on other numbers each time.
            recorder.extra = recorder.answer.mean(dim=(1, 2))
        result = result_of(self._name, lambda: self._call(ids, True).last_hidden_state)
        expected = [recorder.answer for recorder in recorders]
        reached = [recorder.call.hidden if recorder.call else None for recorder in recorders[1:]] + [result]
        for answer, there in zip(expected, reached, strict=True):
            if answer is None or there is None or there.shape != answer.shape or not torch.equal(there, answer):
                raise NotFusableError("{name} doesn't hand its layers' results on as they are.", name=self._name)
        return [self.layer_call(index) for index in range(len(self._layers))]


def _check_alike(name: str, module: nn.Module, first: Call | None, second: Call | None) -> None:
    """Refuse calls with what depends on the hidden states, or with what a layer could write to.

    Raises:
        NotFusableError: it names what is handed over.
    """
    if first is None or second is None:
        raise NotFusableError("{name} does not call {kind}.", name=name, kind=type(module).__name__)
    parameters = [name for name in inspect.signature(inspect.unwrap(module.forward)).parameters if name != "self"]
    bad = sorted(
        parameters[place] if isinstance(place, int) and place < len(parameters) else str(place)
        for place, value in first.others.items()
        if not _is_plain(value) or not _alike(value, second.others.get(place))
    )
    if bad:
        raise NotFusableError(
            "{name} hands {kind} what comes from other layers: {names}.",
            name=name,
            kind=type(module).__name__,
            names=", ".join(bad),
        )


def _is_plain(value: Any) -> bool:
    """Whether a value holds only what nobody writes to, or tensors."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if type(value) in (list, dict):
        # An empty one is there to be filled.
        return bool(value) and all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, torch.Tensor | bool | int | float | str | torch.dtype | torch.device)


def _alike(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and first.shape == second.shape and torch.equal(first, second)
    if isinstance(first, tuple | list):
        pairs = zip(first, second, strict=True) if type(first) is type(second) and len(first) == len(second) else None
        return pairs is not None and all(_alike(a, b) for a, b in pairs)
    if isinstance(first, dict):
        same = isinstance(second, dict) and first.keys() == second.keys()
        return same and all(_alike(first[name], second[name]) for name in first)
    return bool(first == second)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {name: _on_cpu(each) for name, each in value.items()}
    return type(value)(map(_on_cpu, value)) if type(value) in (tuple, list) else value
