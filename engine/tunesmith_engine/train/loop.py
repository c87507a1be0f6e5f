"""The training loop, readable from top to bottom.

A step is: rows -> micro-batches -> gradients of (sum of token losses / trained tokens of the
whole step) -> clip -> AdamW.
On a GPU the host never waits inside a step; loss and gradient norm are read after the next step was submitted.
What happens between steps is decided by the conductor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message
from tunesmith_core.spec_changes import refusal
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.preparation import prompt_tokens
from tunesmith_engine.train.assembly import Assembly, Parts
from tunesmith_engine.train.checkpoint import Snapshot, random_states, restore_random_states
from tunesmith_engine.train.comparison import compare, compare_rewards, losses_of
from tunesmith_engine.train.conductor import Conductor, Progress
from tunesmith_engine.train.evaluate import HeldOut, Written, generate, held_out
from tunesmith_engine.train.kept_reference import keep_reference
from tunesmith_engine.train.memory_trial import try_longest
from tunesmith_engine.train.metrics import StepMeter, StepReport
from tunesmith_engine.train.oom import MemoryLadder, Result, is_out_of_memory
from tunesmith_engine.train.optim import optimizer_of
from tunesmith_engine.train.reference_cache import model_key
from tunesmith_engine.train.schedule import StepPlan

if TYPE_CHECKING:
    from tunesmith_engine.data import Example
    from tunesmith_engine.distillation.own_answers import OwnAnswers
    from tunesmith_engine.reinforcement.advantages import Floats
    from tunesmith_engine.reinforcement.reward_model import RewardScores
    from tunesmith_engine.reinforcement.rollouts import Rollouts, Round


class Loop:
    """Trains what a method has put together."""

    def __init__(
        self,
        parts: Parts,
        warn: Callable[[str, str], None],
        at_rest: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        should_stop: Callable[[], bool] = lambda: False,
        tell: Callable[..., object] = lambda _event, **_fields: None,
    ) -> None:
        """Open the way in which gradients come about.

        Args:
            parts: what a method has put together.
            warn: takes a code and a sentence.
            at_rest: makes the context of what may be cut short by the end of the run, see `StopWatch.at_rest`.
            should_stop: asked while a step takes long.
            tell: writes an event, by its name and fields.
        """
        self.parts = parts
        self.plan = StepPlan.of(parts.spec.schedule, parts.data)
        self.ladder = MemoryLadder(parts.spec.schedule.micro_batch_size, warn)
        models: dict[int, RewardScores] = {}
        if parts.method.from_rewards:
            from tunesmith_engine.reinforcement.reward_model import load_reward_models

            # Before the training is given what memory is free.
            models = load_reward_models(parts)
        path = self.ladder.fit(
            lambda: parts.open_path(self.ladder.micro_batch_size, warn), Message("Before the first step")
        )
        self.path = self.ladder.path = path
        self.assembly = Assembly(parts, path)
        self.tried_bytes: int | None = None
        self._meter = StepMeter(parts.compute.device, parts.metrics)
        self._rest = at_rest
        self._random_at_rest: dict[str, torch.Tensor] | None = None
        self._should_stop, self._tell = should_stop, tell
        self._rollouts: Rollouts | None = None
        if parts.method.from_rewards:
            from tunesmith_engine.reinforcement.rollouts import Rollouts

            self._rollouts = Rollouts(parts, path, warn, models)
        self._own_answers: OwnAnswers | None = None
        if parts.method.has_teacher:
            from tunesmith_engine.distillation.own_answers import OwnAnswers

            self._own_answers = OwnAnswers(parts, path, warn)
        self._rewards: dict[bool, tuple[int, Floats]] = {}
        self._answers_as_before = False

    @contextlib.contextmanager
    def _at_rest(self) -> Iterator[None]:
        """Compute what draws random numbers and changes nothing else; a checkpoint has those from before."""
        self._random_at_rest = random_states(self.parts.compute.device)
        try:
            with self._rest():
                yield
        finally:
            self._random_at_rest = None

    def try_out(self) -> None:
        """On a GPU, step down until the largest micro-batch fits: before the first step, not in the middle of a run."""
        device, rows = self.parts.compute.device, self.parts.data.train
        if device.type == "cuda":
            self.parts.model.train()
            num_rows = len(self.plan.rows(0))
            if self._rollouts:
                rows = self._rollouts.trial_rows(num_rows)
                num_rows = len(rows)
            if self._own_answers:
                rows = [*rows, *self._own_answers.trial_rows(num_rows)]
            self.tried_bytes = try_longest(self.path, self.assembly.updater, self.ladder, rows, num_rows, device)

    def keep_reference(
        self, folder: Path, tell: Callable[[int, int], bool], base_notes: Mapping[str, str]
    ) -> bool:
        """Compute what the reference says of all rows, or read it; see `kept_reference` and `reference_cache`."""
        data, compute = self.parts.data, self.parts.compute
        key = model_key(self.parts.spec, compute, self.path.name, base_notes)

        def keep() -> bool:
            with untouched_training(self.parts.model, compute.device):
                return keep_reference(folder, data, self.path, tell, key)

        return self.ladder.fit(keep, Message("Before the first step"))

    def train(self, conductor: Conductor) -> None:
        """Train to the end, an early stop or a stop request.

        Raises:
            RunFailure: `nan-loss` or `cuda-oom`.
        """
        self.parts.model.train()
        conductor.begin()
        while conductor.wants_step():
            try:
                reports = self._step(conductor.progress)
            except UserError:
                # A reward that can't be computed.
                conductor.save_before_failing()
                raise
            conductor.take(reports)
            conductor.do_what_is_due()
        conductor.end()

    def _step(self, progress: Progress) -> list[StepReport]:
        """Train on the rows of one step; after a lack of memory, again and in smaller portions."""
        rows = self.plan.rows(progress.step)
        if self._rollouts:
            return self._round(self._rollouts, rows, progress)
        examples = self._examples(rows, progress.step)
        if examples is None:
            return []
        lr = self._learning_rate(progress.step)
        losses, grad_norm = self._fit(lambda: self.assembly.update(examples, lr, self._at_rest), progress.step)
        return self._taken(progress, examples, lr, losses, grad_norm)

    def _examples(self, rows: list[int], step: int) -> list[Example] | None:
        """Return the rows of a step, or what the model answers to their prompts; None after a stop."""
        own = self._own_answers
        if own is None or not own.are_learned(step):
            return [self.parts.data.train[row] for row in rows]

        def write() -> list[Example] | None:
            with self._at_rest():
                return own.rows(rows, step, self._should_stop)

        return self._fit(write, step)

    def _round(self, rollouts: Rollouts, rows: list[int], progress: Progress) -> list[StepReport]:
        """Let the model answer the prompts of a step and train it on its answers; no step after a stop."""
        step, updates = progress.step, self.parts.spec.rollouts.updates

        def write() -> Round | None:
            with self._at_rest():
                return rollouts.round(rows, step, self._should_stop)

        found = self._fit(write, step)
        if found is None:
            return []
        self._tell("rollouts", **found.shown)
        lr = self._learning_rate(step)

        def update() -> tuple[torch.Tensor, torch.Tensor]:
            return self.assembly.update(found.examples, lr, self._at_rest, found.num_answers)

        done = [self._fit(update, step) for _ in range(updates)]
        losses = torch.stack([losses for losses, _ in done]).mean(dim=0)
        return self._taken(progress, found.examples, lr, losses, done[-1][1], found.numbers)

    def _learning_rate(self, step: int) -> float:
        return self.parts.spec.optimizer.learning_rate * self.plan.learning_rate_factor(step)

    def _taken(
        self,
        progress: Progress,
        examples: list[Example],
        lr: float,
        losses: torch.Tensor,
        grad_norm: torch.Tensor,
        numbers: Mapping[str, float] = MappingProxyType({}),
    ) -> list[StepReport]:
        """Count a step and return the reports that are complete by now."""
        num_tokens = sum(example.num_tokens for example in examples)
        progress.step += 1
        progress.num_tokens += num_tokens
        return self._meter.submit(
            step=progress.step,
            epoch=self.plan.epoch(progress.step),
            lr=lr,
            num_tokens=progress.num_tokens,
            tokens_in_step=num_tokens,
            losses=losses,
            grad_norm=grad_norm,
            numbers=numbers,
        )

    def _fit(self, work: Callable[[], Result], step: int) -> Result:
        """Do the work, stepping down the memory ladder until it fits; no half step is ever applied."""
        return self.ladder.fit(work, f"Step {step + 1}", self.assembly.updater.drop_gradients)

    # What the conductor asks for between steps, see Trainee

    def flush(self) -> list[StepReport]:
        """Wait for the step that is under way and return its report."""
        return self._meter.flush()

    def restart_clock(self) -> None:
        """Leave the time since the last step out of the next one's."""
        self._meter.restart_clock()

    def held_out(self, step: int, with_adapter: bool, should_stop: Callable[[], bool]) -> HeldOut | None:
        """Return the mean loss of the held-out rows, or None when stopped on the way."""
        model, rows, device = self.parts.model, self.parts.data.eval, self.parts.compute.device

        def measure() -> HeldOut | None:
            with self._at_rest():
                if self._rollouts:
                    rewards = self._held_out_rewards(self._rollouts, step, with_adapter, should_stop)
                    return None if rewards is None else HeldOut.of_rewards(rewards)
                nums = [num for _, num in self.parts.data.held_out_parts]
                return held_out(model, self.path, rows, device, self.parts.metrics, with_adapter, should_stop, nums)

        return self._fit(measure, step)

    def base_losses(self, is_over: Callable[[], bool]) -> list[float]:
        """Return how well the model predicts held-out rows, see `comparison.losses_of`."""
        model, rows, device = self.parts.model, self.parts.data.eval, self.parts.compute.device

        def measure() -> list[float]:
            with self._at_rest():
                return losses_of(model, self.path, rows, device, is_over)

        return self._fit(measure, 0)

    def comparison(
        self, step: int, is_over: Callable[[], bool], before: list[float] | None
    ) -> dict[str, Any] | None:  # Any: JSON values
        """Compare the model with the base model row by row, see `comparison.compare`."""
        model, rows, device = self.parts.model, self.parts.data.eval, self.parts.compute.device

        def measure() -> dict[str, Any] | None:
            with self._at_rest():
                if self._rollouts:
                    after = self._held_out_rewards(self._rollouts, step, True, is_over)
                    unmoved = self._held_out_rewards(self._rollouts, 0, False, is_over)
                    return None if unmoved is None or after is None else compare_rewards(unmoved, after)
                return compare(model, self.path, rows, device, is_over, before)

        return self._fit(measure, step)

    def _held_out_rewards(
        self, rollouts: Rollouts, step: int, with_adapter: bool, should_stop: Callable[[], bool]
    ) -> Floats | None:
        """Return the rewards of held-out prompts, those of the base model and of the last step without asking again."""
        known_step, known = self._rewards.get(with_adapter, (-1, None))
        if known is not None and (known_step == step or not with_adapter):
            return known
        rewards = rollouts.held_out(with_adapter, should_stop)
        if rewards is not None:
            self._rewards[with_adapter] = step, rewards
        return rewards

    @contextlib.contextmanager
    def without_adapter(self) -> Iterator[None]:
        """Make the context in which the model answers as before the run."""
        self._answers_as_before = True
        try:
            yield
        finally:
            self._answers_as_before = False

    def prompt_tokens(self, prompt: str, should_stop: Callable[[], bool]) -> list[int] | None:
        """Return the tokens of a prompt, or None when stopped on the way."""
        parts = self.parts
        if known := parts.data.prompts.get(prompt):
            return known
        spec = replace(parts.spec, data=replace(parts.spec.data, system_prompt=parts.data.system_prompt))
        return prompt_tokens(spec, parts.folder, prompt, should_stop)

    def answer(self, prompt: list[int], max_tokens: int, should_stop: Callable[[], bool]) -> Written | None:
        """Return the model's answer to the tokens of a prompt, or None when memory is short."""
        written = self._generate(prompt, max_tokens, should_stop)
        if written is None:
            with self.path.out_of_the_way():
                written = self._generate(prompt, max_tokens, should_stop)
        return written

    def _generate(self, prompt: list[int], max_tokens: int, should_stop: Callable[[], bool]) -> Written | None:
        parts = self.parts
        try:
            with self._at_rest():
                with_adapter = not self._answers_as_before
                decoder = self.path.decoder()
                return generate(
                    decoder, parts.model, parts.tokenizer, prompt, max_tokens, should_stop, with_adapter=with_adapter
                )
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None

    # State

    def snapshot(self, step: int) -> Snapshot:
        """Return what a checkpoint holds of the loop."""
        tensors, numbers = self.assembly.updater.state()
        state = {
            "optimizer_numbers": numbers,
            "micro_batch_size": self.ladder.micro_batch_size,
            "num_kept_less": self.ladder.num_kept_less,
        }
        adapter = {name: parameter.detach() for name, parameter in self.assembly.parameters.items()}
        random = self._random_at_rest or random_states(self.parts.compute.device)
        return Snapshot(step, adapter, tensors, random, state)

    def begin(self) -> None:
        """Start from the initial values that are computed, where there is no checkpoint."""
        self._fit(lambda: self.assembly.begin(self.parts), 0)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to where a checkpoint was made. Raises UserError `resume-refused` when its weights don't fit."""
        self._check_fits(snapshot)
        for name, parameter in self.assembly.parameters.items():
            parameter.data.copy_(snapshot.adapter[name])
        self.assembly.updater.load_state(snapshot.optimizer, snapshot.state["optimizer_numbers"])
        # Checkpoints of versions before the fused path name no number.
        self.ladder.restore(snapshot.state["micro_batch_size"], snapshot.state.get("num_kept_less", 0))
        self.assembly.weights_were_set()
        restore_random_states(snapshot.random, self.parts.compute.device)

    def _check_fits(self, snapshot: Snapshot) -> None:
        """Compare the saved weights with those that are trained: checkpoints of early versions don't tell settings."""
        saved = {name: tuple(weights.shape) for name, weights in snapshot.adapter.items()}
        trained = {name: tuple(weights.shape) for name, weights in self.assembly.parameters.items()}
        differing = sorted(name for name in saved.keys() | trained.keys() if saved.get(name) != trained.get(name))
        if differing:
            name = differing[0]
            raise TunesmithError(
                "resume-refused",
                "{count} weights of the checkpoint don't fit the run, such as {name}: {old} -> {new}.",
                count=len(differing),
                name=name,
                old=saved.get(name),
                new=trained.get(name),
            )
        if self.parts.spec.adapter.kind == FULL:
            # No early version saved such a checkpoint without its settings.
            return
        optimizer = self.parts.spec.optimizer.name
        saved_by = optimizer_of(snapshot.optimizer)
        if saved_by not in (None, optimizer):
            raise refusal(f"optimizer.name: {saved_by} -> {optimizer}")

    def fingerprint(self) -> dict[str, Any]:  # Any: JSON values
        """Return what decides, beside settings and data, whether the same step gives the same bits."""
        compute = self.parts.compute
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "",
            "device": compute.name,
            "dtype": compute.dtype_name,
            "kernels": self.path.name,
            "threads": compute.num_threads,
        }
