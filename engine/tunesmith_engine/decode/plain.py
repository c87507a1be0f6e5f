"""Answers through transformers' own `generate`: for models that nothing faster serves, and to judge what is faster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from tunesmith_core.errors import TunesmithError
from tunesmith_core.sampling import Sampling
from tunesmith_engine.decode import MOST_ROWS, OnTokens
from tunesmith_engine.device import Compute
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.model.other_weights import before_run
from tunesmith_engine.model.row_lengths import learned_positions

REPORT_EVERY = 4
"""Tokens between two reports; the first token is told at once."""
NO_TOKEN = 2**31 - 1


class PlainDecoder:
    """Answers one row after another, so that no row's padding touches another's numbers.

    Attributes:
        positions: that the model has learned, None where it computes them.
        keeps_state: whether the model reads only each new token, not the whole text again.
    """

    name = "plain"

    def __init__(self, model: Any, compute: Compute) -> None:  # Any: a transformers model, maybe with PEFT's adapter
        self._model, self._compute = model, compute
        self.positions = learned_positions(model)
        self.keeps_state = True

    def weights_changed(self) -> None:
        """Do nothing: the model itself answers."""

    def release(self) -> None:
        """Do nothing: no memory is kept."""

    def close(self) -> None:
        """Do nothing: the model is as it was."""

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
        rows_at_once: int = MOST_ROWS,  # noqa: ARG002 - one after another
    ) -> list[list[int]]:
        """Do what `Decoder.generate` says.

        Raises:
            TunesmithError: `sample-failed` where a prompt is longer than what the model has positions for.
        """
        answers: list[list[int]] = []
        model, device = self._model, self._compute.device
        base_model_only = before_run(model) if not with_adapter else contextlib.nullcontext()
        with untouched_training(model, device), base_model_only, self._compute.autocast():
            for row, prompt in enumerate(prompts):
                watch = _Watch(len(prompt), () if keeps_end else ends, partial(on_tokens, row), should_stop)
                if not should_stop():
                    self._continue(prompt, replace(sampling, seed=sampling.seed + row), ends, watch)
                answers.append(watch.tokens)
                on_end(row)
        return answers

    def _continue(self, prompt: Sequence[int], sampling: Sampling, ends: Collection[int], watch: _Watch) -> None:
        """Answer one prompt; a model whose code fails over its own state answers without it from then on."""
        config = _config(within(sampling, len(prompt), self.positions), ends, self.keeps_state)
        try:
            self._write(prompt, config, sampling.seed, watch)
        except (TunesmithError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:
            # Training never asks for the state, so that an error in its code shows here first (RWKV whose attention is
            # wider than its layers). Behind the first token it may as well come from whoever is told.
            if watch.tokens or not self.keeps_state:
                raise
            config.use_cache = False
            self._write(prompt, config, sampling.seed, watch)
            self.keeps_state = False

    def _write(self, prompt: Sequence[int], config: GenerationConfig, seed: int, watch: _Watch) -> None:
        torch.manual_seed(seed)
        input_ids = torch.tensor([list(prompt)], device=self._compute.device)
        output = self._model.generate(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            generation_config=config,
            stopping_criteria=StoppingCriteriaList([watch]),
        )
        watch.take(output[0].tolist())


def within(sampling: Sampling, num_prompt: int, positions: int | None) -> Sampling:
    """Return how to answer a prompt up to the last position of the model, None where it has no last one.

    Raises:
        TunesmithError: `sample-failed` where the prompt leaves no room.
    """
    if positions is None or num_prompt + sampling.max_tokens <= positions:
        return sampling
    if num_prompt >= positions:
        raise TunesmithError(
            "sample-failed",
            "The prompt has {tokens:,} tokens, and this model reads at most {most:,}.",
            tokens=num_prompt,
            most=positions,
        )
    return replace(sampling, max_tokens=positions - num_prompt)


class _Watch(StoppingCriteria):
    """Reports new tokens on the way and ends an answer that nobody wants any more."""

    def __init__(
        self,
        prompt_length: int,
        ends: Collection[int],
        report: Callable[[list[int]], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self.tokens: list[int] = []
        self._prompt_length, self._ends, self._report, self._should_stop = prompt_length, ends, report, should_stop

    def __call__(
        self, input_ids: torch.Tensor, scores: Any, **_: Any  # noqa: ARG002 - transformers' own call; Any: its types
    ) -> torch.Tensor:
        stops = False
        num_new = input_ids.shape[1] - self._prompt_length
        if num_new == 1 or num_new % REPORT_EVERY == 0:
            self.take(input_ids[0].tolist())
            stops = self._should_stop()
        return torch.full((1,), stops, device=input_ids.device)

    def take(self, row: list[int]) -> None:
        """Report what is new in a row of prompt and answer."""
        answer = row[self._prompt_length :]
        if answer and answer[-1] in self._ends:
            answer.pop()
        new = answer[len(self.tokens) :]
        if new:
            self.tokens = answer
            self._report(new)


def _config(sampling: Sampling, ends: Collection[int], keeps_state: bool) -> GenerationConfig:
    end = sorted(ends)
    chosen: dict[str, Any] = {"do_sample": False}  # Any: settings of transformers
    if sampling.temperature > 0:
        chosen = {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
        }
    return GenerationConfig(
        max_new_tokens=sampling.max_tokens,
        use_cache=keeps_state,
        repetition_penalty=sampling.repetition_penalty,
        pad_token_id=end[0] if end else 0,
        # With none transformers would take those of the model's own settings.
        eos_token_id=end or [NO_TOKEN],
        **chosen,
    )
