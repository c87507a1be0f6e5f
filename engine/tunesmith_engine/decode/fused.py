"""Answers by the fused model: prompts packed, then a token a step for all rows, which the host reads now and then."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from peft import PeftModel

from tunesmith_core.sampling import Sampling
from tunesmith_engine.decode import MOST_ROWS, OnTokens
from tunesmith_engine.decode.cache import KeyValueCache, capacity_of
from tunesmith_engine.decode.choose import Chooser
from tunesmith_engine.decode.plain import PlainDecoder
from tunesmith_engine.decode.prefill import Prefill
from tunesmith_engine.decode.rotary import RotaryTables
from tunesmith_engine.decode.step import Step, check_steppable
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.agreement import check_agreement
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.model.other_weights import Weights, start_of
from tunesmith_engine.model.row_lengths import RotarySwitches
from tunesmith_engine.packed.batch import PackedBatch

PREFILL_TOKENS = 4096
"""Of the prompts that are read at once, unless one is longer."""
REPORT_S = 0.05
MOST_UNREAD = 16
"""The host reads the tokens this often, or when so many have come."""


class FusedDecoder:
    """Answers with an assembly of the fused model; whoever owns it keeps its adapters fresh."""

    name = "fused"

    def __init__(self, model: Any, assembly: Assembly) -> None:  # Any: a transformers model, maybe with PEFT's adapter
        """Take an assembly and compare with transformers.

        Raises:
            NotFusableError: a step can't be computed by it, or comes to something else.
        """
        check_steppable(assembly)
        self._model, self._assembly = model, assembly
        self._switches = RotarySwitches(model)
        self._plain = PlainDecoder(model, assembly.compute)
        self._prefill: Prefill | None = None
        self._cache: KeyValueCache | None = None
        self._tables: RotaryTables | None = None
        self._steps: dict[bool, Step] = {}
        check_agreement(model, assembly.compute, assembly.head.num_outputs, self.loss)
        self.release()

    @classmethod
    def attach(cls, model: Any, compute: Compute) -> FusedDecoder:  # Any: as above
        """Build a decoder for a model that nothing else has been built for.

        Raises:
            NotFusableError: as above; the model is as before.
        """
        assembly = Assembly(model, recognise(model), compute)
        try:
            return cls(model, assembly)
        except Exception:
            assembly.release()
            raise

    def weights_changed(self) -> None:
        """Take over the adapters' present weights."""
        self._assembly.refresh()

    def release(self) -> None:
        """Give back all memory but the assembly's."""
        self._steps = {}
        self._prefill = self._cache = self._tables = None

    def close(self) -> None:
        """Leave the transformers model with weights of its own; not for an assembly that somebody else owns."""
        self.release()
        self._assembly.release()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        ends: Collection[int],
        *,
        with_adapter: bool = True,
        on_tokens: OnTokens = lambda _row, _tokens: None,
        on_end: Callable[[int], None] = lambda _row: None,
        should_stop: Callable[[], bool] = lambda: False,
        keeps_end: bool = False,
        rows_at_once: int = MOST_ROWS,
    ) -> list[list[int]]:
        """Do what `Decoder.generate` says."""
        longest = max(map(len, prompts), default=0) + sampling.max_tokens
        # Transformers answers row by row, so that each can go on to the last position.
        is_behind = longest > (self._plain.positions or longest)
        if is_behind or self._switches.table_of(longest) != self._switches.table_of(1):
            calls = {"on_tokens": on_tokens, "on_end": on_end, "should_stop": should_stop, "keeps_end": keeps_end}
            return self._plain.generate(prompts, sampling, ends, with_adapter=with_adapter, **calls)  # type: ignore[arg-type]
        answers: list[list[int]] = [[] for _ in prompts]
        # Rows of like lengths share a batch, so that none waits for a much longer one.
        order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row]))
        before = None if with_adapter else start_of(self._model)
        with_adapter = with_adapter or before is not None
        # No module runs, and random numbers have a generator of their own: the training has nothing to be kept.
        with (
            torch.no_grad(),
            self._asked_with(before),
            self._weights(with_adapter),
            self._assembly.tables.in_place(with_adapter),
        ):
            for start in range(0, len(order), rows_at_once):
                rows = order[start : start + rows_at_once]
                batch = _Batch(rows, ends, answers, on_tokens, on_end, keeps_end)
                if not should_stop():
                    self._answer([prompts[row] for row in rows], sampling, batch, with_adapter, should_stop)
                batch.finish()
        return answers

    @contextlib.contextmanager
    def _weights(self, with_adapter: bool) -> Iterator[None]:
        """Make the context in which the modules have the base model's weights, if these are wanted.

        Whole weights that are trained are read there, and so are those of routers, which run as written.
        """
        if with_adapter or not isinstance(self._model, FullModel | PeftModel):
            yield
            return
        with self._model.disable_adapter():
            self._assembly.scratch.forget()
            yield
        self._assembly.scratch.forget()

    @contextlib.contextmanager
    def _asked_with(self, before: Weights | None) -> Iterator[None]:
        """Make the context in which the model has other weights of its adapter, or its own for None."""
        if before is None:
            yield
            return
        # A graph reads what routers train where it lay when it was captured.
        self._steps = {}
        with self._assembly.asked_with(self._model, before):
            yield
        self._steps = {}

    def _answer(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        batch: _Batch,
        with_adapter: bool,
        should_stop: Callable[[], bool],
    ) -> None:
        device = self._assembly.compute.device
        step = self._prepared(prompts, sampling.max_tokens, with_adapter)
        chooser = Chooser(sampling, prompts, step.logits.shape[1], device)
        tokens = torch.zeros(len(prompts), sampling.max_tokens, dtype=torch.int64, device=device)
        read, read_s = 0, time.monotonic()
        for number in range(sampling.max_tokens):
            step.ids.copy_(chooser.choose(self._capped(step.logits)))
            tokens[:, number] = step.ids
            unread = number + 1 - read
            due = number < 1 or time.monotonic() - read_s > REPORT_S or unread >= MOST_UNREAD
            if due or number + 1 == sampling.max_tokens:
                batch.take(tokens[:, read : number + 1].tolist())
                read, read_s = number + 1, time.monotonic()
                if batch.is_over or should_stop():
                    return
            if number + 1 < sampling.max_tokens:
                step.run()

    def _prepared(self, prompts: Sequence[Sequence[int]], num_more: int, with_adapter: bool) -> Step:
        """Return a step whose cache holds the prompts and whose logits are those behind them."""
        longest = max(map(len, prompts))
        step = self._step_for(len(prompts), capacity_of(longest + num_more), with_adapter)
        num_tokens = sum(map(len, prompts))
        room = num_tokens if num_tokens <= PREFILL_TOKENS else max(PREFILL_TOKENS, longest)
        if self._prefill is None or self._prefill.capacity_tokens < room:
            # The old buffers go before the new ones come; so below.
            self._prefill = None
            self._prefill = Prefill(self._assembly, room)
        for rows in _portions(prompts, self._prefill.capacity_tokens):
            some = prompts[rows.start : rows.stop]
            logits = self._prefill.run(some, rows.start, step.cache, step.rotary, with_adapter)
            step.logits[rows.start : rows.stop] = logits
        return step

    def _step_for(self, num_rows: int, capacity: int, with_adapter: bool) -> Step:
        """Return the step of so many rows; with and without adapters share a cache."""
        if self._cache is None or self._cache.num_rows != num_rows or self._cache.capacity < capacity:
            self._steps, self._cache = {}, None
            self._cache = KeyValueCache(self._assembly.shape, self._assembly.compute, num_rows, capacity)
            self._tables = RotaryTables(self._assembly.shape, self._assembly.compute, capacity)
        if with_adapter not in self._steps and self._tables is not None:
            self._steps[with_adapter] = Step(self._assembly, self._cache, self._tables, with_adapter)
        return self._steps[with_adapter]

    def _capped(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits as the model scales and caps them."""
        shape = self._assembly.shape
        if shape.logit_scale != 1.0:
            logits = logits * shape.logit_scale
        if shape.softcap is not None:
            logits = shape.softcap * torch.tanh(logits / shape.softcap)
        return logits

    def loss(self, batch: PackedBatch) -> torch.Tensor:
        """Return the sum of cross-entropies in nats as decoding sees them: each document half read, half in steps."""
        losses = torch.zeros((), device=batch.input_ids.device)
        ids, bounds = batch.input_ids.tolist(), batch.documents.bounds.tolist()
        targets = dict(zip(batch.trained_rows.tolist(), batch.targets.tolist(), strict=True))
        with torch.no_grad(), self._assembly.tables.in_place(True):
            for start, end in pairwise(bounds):
                logits = self._followed(ids[start:end], (end - start) // 2)
                wanted = torch.tensor([targets[place] for place in range(start, end - 1)], device=losses.device)
                found = self._capped(logits).float()
                losses += torch.nn.functional.cross_entropy(found, wanted, reduction="sum")
        return losses

    def _followed(self, tokens: list[int], num_read: int) -> torch.Tensor:
        """Return the logits behind all tokens but the last, of which the first are read at once."""
        step, prefill = self._step_for(1, capacity_of(len(tokens)), True), Prefill(self._assembly, num_read)
        logits = [prefill.run([tokens[:num_read]], 0, step.cache, step.rotary, True, from_position=0)]
        for token in tokens[num_read:-1]:
            step.ids.fill_(token)
            step.run()
            logits.append(step.logits.clone())
        return torch.cat(logits)


class _Batch:
    """The rows that are answered together, and which of them are over."""

    def __init__(
        self,
        rows: Sequence[int],
        ends: Collection[int],
        answers: list[list[int]],
        on_tokens: OnTokens,
        on_end: Callable[[int], None],
        keeps_end: bool,
    ) -> None:
        self._rows, self._ends, self._answers, self._keeps_end = rows, ends, answers, keeps_end
        self._on_tokens, self._on_end = on_tokens, on_end
        self._open = set(range(len(rows)))

    @property
    def is_over(self) -> bool:
        """Whether every answer has ended."""
        return not self._open

    def take(self, tokens: Sequence[Sequence[int]]) -> None:
        """Add the next tokens of every row, [M][...], to answers that haven't ended."""
        for place, new in enumerate(tokens):
            if place not in self._open:
                continue
            end = next((index for index, token in enumerate(new) if token in self._ends), None)
            if end is not None:
                self._open.discard(place)
            added = list(new if end is None else new[: end + self._keeps_end])
            if added:
                self._answers[self._rows[place]] += added
                self._on_tokens(self._rows[place], added)
            if end is not None:
                self._on_end(self._rows[place])

    def finish(self) -> None:
        """End the answers that grew as long as they may."""
        for place in sorted(self._open):
            self._on_end(self._rows[place])
        self._open.clear()


def _portions(prompts: Sequence[Sequence[int]], most_tokens: int) -> Iterator[slice]:
    """Yield neighbouring prompts that have so many tokens together."""
    start, tokens = 0, 0
    for place, prompt in enumerate(prompts):
        if place > start and tokens + len(prompt) > most_tokens:
            yield slice(start, place)
            start, tokens = place, 0
        tokens += len(prompt)
    yield slice(start, len(prompts))
