"""The training loop, readable from top to bottom.

A step is: rows -> micro-batches -> gradients of (sum of token losses / trained tokens of the
whole step) -> clip -> AdamW.
On a GPU the host never waits inside a step; loss and gradient norm are read after the next step was submitted.
What happens between steps is decided by the conductor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.spec_changes import refusal
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.preparation import prompt_tokens
from tunesmith_engine.train.assembly import Assembly, Parts
from tunesmith_engine.train.checkpoint import Snapshot, random_states, restore_random_states
from tunesmith_engine.train.comparison import compare, losses_of
from tunesmith_engine.train.conductor import Conductor, Progress
from tunesmith_engine.train.evaluate import HeldOut, Written, generate, held_out
from tunesmith_engine.train.memory_trial import try_longest
from tunesmith_engine.train.metrics import StepMeter, StepReport
from tunesmith_engine.train.oom import MemoryLadder, Result, is_out_of_memory
from tunesmith_engine.train.optim import optimizer_of
from tunesmith_engine.train.schedule import StepPlan


class Loop:
    """Trains what a method has put together."""

    def __init__(
        self,
        parts: Parts,
        warn: Callable[[str, str], None],
        at_rest: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Open the way in which gradients come about.

        Args:
            parts: what a method has put together.
            warn: takes a code and a sentence.
            at_rest: makes the context of what may be cut short by the end of the run, see `StopWatch.at_rest`.
        """
        self.parts = parts
        self.plan = StepPlan.of(parts.spec.schedule, parts.data)
        self.ladder = MemoryLadder(parts.spec.schedule.micro_batch_size, warn)
        path = self.ladder.fit(
            lambda: parts.open_path(self.ladder.micro_batch_size, warn), Message("Before the first step")
        )
        self.path = self.ladder.path = path
        self.assembly = Assembly(parts, path)
        self.tried_bytes: int | None = None
        self._meter = StepMeter(parts.compute.device, parts.metrics)
        self._rest = at_rest
        self._random_at_rest: dict[str, torch.Tensor] | None = None

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
            self.tried_bytes = try_longest(self.path, self.assembly.updater, self.ladder, rows, num_rows, device)

    def train(self, conductor: Conductor) -> None:
        """Train to the end, an early stop or a stop request.

        Raises:
            RunFailure: `nan-loss` or `cuda-oom`.
        """
        self.parts.model.train()
        conductor.begin()
        while conductor.wants_step():
            conductor.take(self._step(conductor.progress))
            conductor.do_what_is_due()
        conductor.end()

    def _step(self, progress: Progress) -> list[StepReport]:
        """Train on the rows of one step; after a lack of memory, again and in smaller portions."""
        step = progress.step
        examples = [self.parts.data.train[row] for row in self.plan.rows(step)]
        lr = self.parts.spec.optimizer.learning_rate * self.plan.learning_rate_factor(step)
        losses, grad_norm = self._fit(lambda: self.assembly.update(examples, lr, self._at_rest), step)
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
                return held_out(model, self.path, rows, device, self.parts.metrics, with_adapter, should_stop)

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
                return compare(model, self.path, rows, device, is_over, before)

        return self._fit(measure, step)

    def without_adapter(self) -> AbstractContextManager[None]:
        """Return the context in which the model is the base model."""
        context: AbstractContextManager[None] = self.parts.model.disable_adapter()
        return context

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
                return generate(self.path.decoder(), parts.model, parts.tokenizer, prompt, max_tokens, should_stop)
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

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to where a checkpoint was made. Raises UserError `resume-refused` when its weights don't fit."""
        self._check_fits(snapshot)
        for name, parameter in self.assembly.parameters.items():
            parameter.data.copy_(snapshot.adapter[name])
        self.assembly.updater.load_state(snapshot.optimizer, snapshot.state["optimizer_numbers"])
        # Checkpoints of versions before the fused path name no number.
        self.ladder.restore(snapshot.state["micro_batch_size"], snapshot.state.get("num_kept_less", 0))
        self.path.weights_changed()
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
