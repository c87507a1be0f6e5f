"""Rounds of a run that learns from rewards: the model answers the prompts of a step several times, and is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.rewards import OF_ROUNDS
from tunesmith_core.sampling import Sampling
from tunesmith_engine.data.asked import question_in
from tunesmith_engine.data.example import IGNORED_LABEL, Example, Sampled
from tunesmith_engine.data.rows_file import Kept
from tunesmith_engine.decode import end_tokens
from tunesmith_engine.reinforcement.advantages import Floats, spread_of_groups
from tunesmith_engine.reinforcement.scoring import Answered, Scorer
from tunesmith_engine.train.oom import is_out_of_memory

if TYPE_CHECKING:
    from tunesmith_engine.reinforcement.method import Reinforcement
    from tunesmith_engine.reinforcement.reward_model import RewardScores
    from tunesmith_engine.train.assembly import Parts
    from tunesmith_engine.train.loss_paths import LossPath

MOST_HELD_OUT = 128
"""Held-out prompts that are answered at an evaluation, spread evenly over all."""

MOST_COMPARED = 4
"""Answers of a step that are compared with the base model only to tell how far the model has moved."""

MOST_TEXT_CHARACTERS = 2000
SEEDS = 2**63 - 1

LogProbabilities = Callable[["list[Example]"], torch.Tensor]
"""Those of a micro-batch by one of the models that a loss path asks."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of the data.

    Attributes:
        tokens: all that comes before the answer.
        question: what is asked in it, for a person and for rewards.
        right: the answer in the data, "" where there is none.
        columns: other columns of its row.
        tail: tokens that the chat template writes behind an answer, beginning with its end.
    """

    tokens: tuple[int, ...]
    question: str
    right: str
    columns: dict[str, Any] = field(default_factory=dict)  # Any: JSON values
    tail: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """What came of the prompts of a step.

    Attributes:
        examples: the answers, to train on.
        num_answers: of all, also of those that are not trained on.
        numbers: `rewards.OF_ROUNDS`.
        shown: fields of the event "rollouts": the answers to the first prompt.
    """

    examples: list[Example]
    num_answers: int
    numbers: dict[str, float]
    shown: dict[str, Any]  # Any: JSON values


class Rollouts:
    """Writes and scores answers with the model as it is.

    Args:
        parts: rows, tokenizer and settings.
        path: answers by its decoder.
        warn: takes a code and a sentence.
        models: reward models of the run by the place of their reward.
    """

    def __init__(
        self,
        parts: Parts,
        path: LossPath,
        warn: Callable[[str, str], None],
        models: Mapping[int, RewardScores] = MappingProxyType({}),
    ) -> None:
        self._parts, self._path, self._warn = parts, path, warn
        self._method: Reinforcement = parts.method  # type: ignore[assignment]
        self._settings = parts.spec.rollouts
        self._ends = end_tokens(parts.model.get_base_model(), parts.tokenizer)
        (in_training, held_out), (kept, kept_apart) = parts.data.asked, parts.data.kept
        self._train = list(map(self._prompt_in, parts.data.train, in_training, kept))
        num = min(len(parts.data.eval), MOST_HELD_OUT)
        places = [place * len(parts.data.eval) // num for place in range(num)]
        self._eval = [
            self._prompt_in(parts.data.eval[place], held_out[place], kept_apart[place]) for place in places
        ]
        self._rows_at_once = path.rows_at_once
        self._scorer = Scorer(self._settings.rewards, [each.right for each in self._train], models)
        self._try_out()

    @property
    def num_held_out(self) -> int:
        """Number of held-out prompts."""
        return len(self._eval)

    def _prompt_in(self, example: Example, question: str, kept: Kept) -> Prompt:
        asked = question_in(example, "asked")
        if asked is None or not asked.question:
            raise TunesmithError(
                "reward-failed",
                "The data holds a row without a prompt of its own, such as plain text. Learning from rewards needs "
                "prompts with answers.",
            )
        right = self._text(asked.expected) if kept.has_answer else ""
        end = asked.expected[-1:] if asked.expected[-1] in self._ends else ()
        tail = (*end, *example.input_ids[len(asked.prompt) + len(asked.expected) :].tolist())
        return Prompt(asked.prompt, question, right, kept.columns, tail)

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self._parts.tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def _try_out(self) -> None:
        """Score answers of the data: a reward that can't be computed shows before the first step, not in it."""
        some = self._train[:2]
        self._scorer.scores(
            [
                Answered(each.question, each.right, each.right, 1, each.columns, (*each.tokens, *each.tail))
                for each in some
            ]
        )

    def round(self, rows: Sequence[int], step: int, should_stop: Callable[[], bool]) -> Round | None:
        """Answer the prompts of a step and score the answers; None after a stop.

        Args:
            rows: numbers of the training rows.
            step: from 0; the same step with the same weights gives the same answers.
            should_stop: asked every few tokens.
        """
        size, asked = self._settings.group_size, [self._train[row] for row in rows]
        prompts = [each.tokens for each in asked for _ in range(size)]
        sampling = Sampling(self._settings.max_tokens, temperature=self._settings.temperature)
        written = self._write(prompts, sampling, _seed(self._parts.spec.schedule.seed, step), True, should_stop)
        if written is None:
            return None
        answers = [
            self._answered(each, tokens)
            for each, tokens in zip((each for each in asked for _ in range(size)), written, strict=True)
        ]
        rewards = self._scorer.scores(answers).reshape(-1, size)
        examples = [_joined(prompt, tokens) for prompt, tokens in zip(prompts, written, strict=True)]
        advantages = self._method.advantages(self._parts.spec, self._lessened(rewards, examples)).ravel()
        is_cut = np.array([self._is_cut(tokens) for tokens in written])
        sampled = [
            replace(example, sampled=Sampled(float(advantage)))
            for example, advantage in zip(examples, advantages, strict=True)
        ]
        numbers = self._numbers(rewards, np.array([len(tokens) for tokens in written]), is_cut)
        numbers |= self._distance(examples)
        shown = self._shown(step + 1, answers[:size], rewards[0], is_cut[:size])
        return Round(self._remembered(self._trained(sampled, is_cut)), len(sampled), numbers, shown)

    def held_out(self, with_adapter: bool, should_stop: Callable[[], bool]) -> Floats | None:
        """Return the reward of the most likely answer to each held-out prompt, [prompts]; None after a stop."""
        sampling = Sampling(self._settings.max_tokens)
        written = self._write([each.tokens for each in self._eval], sampling, 0, with_adapter, should_stop)
        if written is None:
            return None
        return self._scorer.scores(
            [self._answered(each, tokens) for each, tokens in zip(self._eval, written, strict=True)]
        )

    def _write(
        self,
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling,
        seed: int,
        with_adapter: bool,
        should_stop: Callable[[], bool],
    ) -> list[list[int]] | None:
        """Return the tokens of an answer to each prompt with the one that ends it; fewer at once when memory lacks."""
        written: list[list[int]] = []
        decoder = self._path.decoder()
        while len(written) < len(prompts):
            some = prompts[len(written) : len(written) + self._rows_at_once]
            try:
                written += decoder.generate(
                    some,
                    # By the place of the first one: however many are answered at once, none is answered twice alike.
                    replace(sampling, seed=(seed + len(written)) % SEEDS),
                    self._ends,
                    with_adapter=with_adapter,
                    should_stop=should_stop,
                    keeps_end=True,
                    rows_at_once=self._rows_at_once,
                )
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                decoder.release()
                self._use_less(len(some))
            if should_stop():
                return None
        return written

    def _use_less(self, num_rows: int) -> None:
        """Answer half as many at once. Raises RunFailure `cuda-oom` when it is one already."""
        if num_rows == 1:
            raise TunesmithError(
                "cuda-oom",
                "There is no room for a single answer of {max_tokens} tokens beside the training.",
                hint="Let answers be shorter (rollouts.max_tokens), or use fewer examples at once.",
                max_tokens=self._settings.max_tokens,
            )
        self._rows_at_once = num_rows // 2
        words = Message("There was not enough memory for the answers. {num} are written at once.", num=num_rows // 2)
        self._warn("cuda-oom", words)
        torch.cuda.empty_cache()

    def _trained(self, sampled: list[Example], is_cut: Any) -> list[Example]:  # Any: NumPy's array
        """Leave out answers that were cut where the run does so; where all were, they teach nothing."""
        if not self._settings.skip_cut:
            return sampled
        whole = [example for example, cut in zip(sampled, is_cut, strict=True) if not cut]
        return whole or [replace(example, sampled=Sampled(0.0)) for example in sampled]

    def trial_rows(self, num_rows: int) -> list[Example]:
        """Return rows as long as any may get, for a trial of the memory."""
        longest = max(self._train, key=lambda prompt: len(prompt.tokens)).tokens
        answer = [min(self._ends, default=0)] * self._settings.max_tokens
        return [replace(_joined(longest, answer), sampled=Sampled(1.0))] * (num_rows * self._settings.group_size)

    def _is_cut(self, tokens: Sequence[int]) -> bool:
        return not tokens or tokens[-1] not in self._ends

    def _answered(self, prompt: Prompt, tokens: Sequence[int]) -> Answered:
        # A chat template writes its own end of an answer, also where the model has not come to one.
        said = tokens if self._is_cut(tokens) else tokens[:-1]
        whole = (*prompt.tokens, *said, *prompt.tail)
        return Answered(prompt.question, self._text(tokens), prompt.right, len(tokens), prompt.columns, whole)

    def _lessened(self, rewards: Floats, examples: list[Example]) -> Floats:
        """Return rewards less what the divergence from the base model costs, summed over the tokens of an answer."""
        beta = self._method.beta_of_reward(self._parts.spec)
        if not beta:
            return rewards
        now, reference = (self._sums(examples, of) for of in (self._path.log_probabilities, self._path.reference))
        return rewards - beta * (now - reference).reshape(rewards.shape)

    def _distance(self, examples: list[Example]) -> dict[str, float]:
        """Return how far the model is from its reference on a few answers; {} where the loss tells it of all."""
        objective = self._path.objective
        if objective is None or objective.has_reference:
            return {}
        places = sorted({place * len(examples) // MOST_COMPARED for place in range(MOST_COMPARED)})
        some = [examples[place] for place in places]
        ways = (self._path.log_probabilities, self._path.reference)
        now, reference = (np.concatenate(self._log_probabilities(some, of)) for of in ways)
        difference = reference.astype(np.float64) - now.astype(np.float64)
        return {"kl": float((np.exp(difference) - difference - 1).mean())}

    def _sums(self, examples: list[Example], of: LogProbabilities) -> Floats:
        return np.array([each.sum(dtype=np.float64) for each in self._log_probabilities(examples, of)])

    def _remembered(self, examples: list[Example]) -> list[Example]:
        """Note how likely the answers are now, where the model moves on before it is through with them."""
        if self._settings.updates == 1:
            return examples
        known = self._log_probabilities(examples, self._path.log_probabilities)
        return [
            replace(example, sampled=replace(example.sampled, log_probabilities=values))
            for example, values in zip(examples, known, strict=True)
            if example.sampled
        ]

    def _log_probabilities(self, examples: list[Example], of: LogProbabilities) -> list[Any]:  # Any: NumPy's arrays
        """Return those of the tokens of each answer."""
        found: dict[int, Any] = {}
        with torch.no_grad():
            for portion in self._path.portions(examples):
                values = of(portion).cpu()
                counts = [example.num_trained_tokens for example in portion]
                parts = values.float().split(counts)
                found |= {id(example): part.numpy() for example, part in zip(portion, parts, strict=True)}
        return [found[id(example)] for example in examples]

    def _numbers(self, rewards: Floats, num_tokens: Any, is_cut: Any) -> dict[str, float]:  # Any: NumPy's arrays
        are_equal = spread_of_groups(rewards) == 0.0
        values = (
            *(rewards.mean(), rewards.std(ddof=1), rewards.min(), rewards.max(), are_equal.mean()),
            *(num_tokens.mean(), is_cut.mean()),
        )
        return dict(zip(OF_ROUNDS, map(float, values), strict=True))

    def _shown(
        self, step: int, answers: Sequence[Answered], rewards: Floats, is_cut: Any  # Any: NumPy's array
    ) -> dict[str, Any]:  # Any: JSON values
        group = [
            {"text": answer.text[:MOST_TEXT_CHARACTERS], "reward": float(reward), "is_cut": bool(cut)}
            for answer, reward, cut in zip(answers, rewards, is_cut, strict=True)
        ]
        first = answers[0]
        texts = {"prompt": first.prompt[:MOST_TEXT_CHARACTERS], "expected": first.expected[:MOST_TEXT_CHARACTERS]}
        return {"step": step, **texts, "group": group}


def _joined(prompt: Sequence[int], answer: Sequence[int]) -> Example:
    return Example(
        np.array([*prompt, *answer], dtype=np.int32),
        np.array([*[IGNORED_LABEL] * len(prompt), *answer], dtype=np.int32),
    )


def _seed(seed: int, step: int) -> int:
    """Return a seed of its own for each step."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 2)
