"""A model that stays loaded and answers: the trained one, or its base model without the adapter."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tunesmith_core.conversations import Answer
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.chat import TUNED
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec
from tunesmith_engine.chat.pieces import Detokenizer, Thinking
from tunesmith_engine.chat.prompting import Prompt
from tunesmith_engine.decode import Decoder, end_tokens, open_decoder
from tunesmith_engine.decode.plain import PlainDecoder
from tunesmith_engine.export.trained import Trained, find_trained
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.trained_model import inference_compute, load_trained, switch_to
from tunesmith_engine.model.vocabulary import words_of

OnPiece = Callable[[str, bool], None]
"""Told a piece of text, and whether the model only thinks it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a question: the answer, and the tokens and seconds that question and answer took."""

    answer: Answer
    prompt_tokens: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return it as the fields of the event "done", with the text."""
        return {**asdict(self.answer), "prompt_tokens": self.prompt_tokens, "seconds": self.seconds}


class Session:
    """The model of a run on its device.

    Args:
        run: whose model answers.
        spec: of the run, on the device that answers.
        folder: of the base model.
        checkpoint: as in `ChatSpec`.
    """

    def __init__(self, run: Run, spec: RunSpec, folder: Path, checkpoint: int) -> None:
        self._run, self._folder = run, folder
        self.compute = inference_compute(spec, spec.hardware.device)
        self._trained = self._find(checkpoint)
        self._trained.check_base(folder)
        self._tokenizer = load_tokenizer(folder, spec.model.chat_template, words_of(spec))
        self._model = load_trained(self._trained, folder, self.compute)
        self._ends = end_tokens(self._model.get_base_model(), self._tokenizer)
        # On a CPU the comparison with transformers, without which no other way is taken, takes longer than an answer.
        self._waits = self.compute.device.type == "cpu"
        self._has_answered = False
        self._decoder: Decoder = (PlainDecoder if self._waits else open_decoder)(self._model, self.compute)

    @property
    def step(self) -> int:
        """After which the weights that answer were saved."""
        return self._trained.step

    @property
    def most_tokens(self) -> int | None:
        """How many tokens a conversation may have, None where the model sets no limit."""
        config = self._model.get_base_model().config.get_text_config()
        most = getattr(config, "max_position_embeddings", None)
        return int(most) if most else None

    @property
    def may_hurry(self) -> bool:
        """Whether the first answer did not wait for the fastest way, and is over."""
        return self._waits and self._has_answered

    def hurry(self) -> None:
        """Take the fastest way to answer from now on."""
        self._waits = False
        self._decoder = open_decoder(self._model, self.compute)

    @property
    def has_template(self) -> bool:
        """Whether conversations become prompts by a chat template."""
        return bool(self._tokenizer.chat_template)

    def switch(self, checkpoint: int) -> None:
        """Let other weights of the run answer, in the same memory; those of before stay when they can't be found.

        Raises:
            TunesmithError: as `find_trained`, or `adapter-not-restored`.
        """
        trained = self._find(checkpoint)
        if trained.folder == self._trained.folder:
            return
        try:
            switch_to(self._model, trained)
            self._trained = trained
        except TunesmithError:
            switch_to(self._model, self._trained)
            raise
        finally:
            self._decoder.weights_changed()

    def _find(self, checkpoint: int) -> Trained:
        return find_trained(self._run, checkpoint)

    def tidy(self) -> None:
        """Give back memory that no answer needs at the moment."""
        self._decoder.release()
        gc.collect()
        if self.compute.device.type == "cuda":
            torch.cuda.empty_cache()

    def answer(
        self,
        prompt: Prompt,
        side: str,
        sampling: Sampling,
        on_piece: OnPiece,
        should_stop: Callable[[], bool],
    ) -> Answered:
        """Answer a conversation.

        Args:
            prompt: the conversation as tokens.
            side: who answers, one of `SIDES`.
            sampling: how tokens are chosen; never more than the model has room for.
            on_piece: told each piece of text as it comes.
            should_stop: asked every few tokens.

        Raises:
            UserError: `chat-too-long`.
            RuntimeError: as PyTorch, for lack of memory too.
        """
        sampling = self._fitting(sampling, len(prompt.tokens))
        answer = _Growing(self._tokenizer, prompt.thinks, on_piece)
        stopped = False

        def stops() -> bool:
            nonlocal stopped
            stopped = stopped or should_stop()
            return stopped

        (tokens,) = self._decoder.generate(
            [prompt.tokens],
            sampling,
            self._ends,
            with_adapter=side == TUNED,
            on_tokens=lambda _row, new: answer.take(new),
            should_stop=stops,
        )
        answer.finish()
        self._has_answered = True
        status = "canceled" if stopped else "length" if len(tokens) >= sampling.max_tokens else "end"
        told, seconds = answer.told(status, self.step)
        return Answered(told, len(prompt.tokens), seconds)

    def _fitting(self, sampling: Sampling, num_prompt: int) -> Sampling:
        most = self.most_tokens
        if most is None:
            return sampling
        if num_prompt >= most:
            raise TunesmithError(
                "chat-too-long",
                "The conversation has {tokens:,} tokens, and this model reads at most {most:,}.",
                tokens=num_prompt,
                most=most,
            )
        return replace(sampling, max_tokens=min(sampling.max_tokens, most - num_prompt))


class _Growing:
    """An answer from its first token to its last."""

    def __init__(self, tokenizer: Any, thinks: bool, on_piece: OnPiece) -> None:  # Any: a transformers tokenizer
        self._began = time.perf_counter()
        self._first: tuple[float, int] | None = None
        self._num_tokens = 0
        self._detokenizer = Detokenizer(
            lambda tokens: str(
                tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            )
        )
        self._thinking = Thinking(thinks)
        self._on_piece = on_piece
        self._words = {True: "", False: ""}

    def take(self, tokens: list[int]) -> None:
        self._num_tokens += len(tokens)
        self._first = self._first or (time.perf_counter(), self._num_tokens)
        self._tell(self._thinking.take(self._detokenizer.take(tokens)))

    def finish(self) -> None:
        self._tell([*self._thinking.take(self._detokenizer.finish()), *self._thinking.finish()])

    def _tell(self, pieces: list[tuple[str, bool]]) -> None:
        for words, thought in pieces:
            self._words[thought] += words
            self._on_piece(words, thought)

    def told(self, status: str, step: int) -> tuple[Answer, float]:
        """Return the answer and the seconds that it took."""
        now = time.perf_counter()
        first_at, first_tokens = self._first or (now, 0)
        later = self._num_tokens - first_tokens
        answer = Answer(
            text=self._words[False].strip(),
            thinking=self._words[True].strip(),
            status=status,
            tokens=self._num_tokens,
            first_s=round(first_at - self._began, 3),
            # Of an answer that came at once nobody knows it.
            tokens_per_s=round(later / (now - first_at), 1) if later and now > first_at else 0.0,
            step=step,
        )
        return answer, round(now - self._began, 3)
