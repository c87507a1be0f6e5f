"""What happens around the steps of a run, whoever takes them: commands, evaluation, samples, checkpoints, the end.

Our loop asks it between two steps; a trainer of another library would by its callbacks.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message, joined
from tunesmith_core.protocol import Command
from tunesmith_core.runs import unsaved
from tunesmith_core.spec_changes import OTHER_ROWS, OTHER_TOKENS, ROUNDING, change
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.failures import MAX_MESSAGE_CHARS
from tunesmith_engine.host import Host
from tunesmith_engine.patience import Unsaved, write_out
from tunesmith_engine.reinforcement.watch import Watch
from tunesmith_engine.train.asking import Asking
from tunesmith_engine.train.assembly import Parts
from tunesmith_engine.train.checkpoint import Checkpoints, Snapshot
from tunesmith_engine.train.evaluate import HeldOut, Written
from tunesmith_engine.train.metrics import StepReport
from tunesmith_engine.train.saving import Saving
from tunesmith_engine.train.schedule import StepPlan

EVALUATIONS_PER_RUN = 10
MAX_NONFINITE_STEPS = 3

LEAST_COMPARISON_S, COMPARISON_SHARE = 10.0, 0.05
"""The comparison at the end may take so long, or this share of the run's time."""

EFFECTS = {"rows": OTHER_ROWS, "pairs": OTHER_TOKENS}
"""What a changed part of the fingerprint does to the rest of the run; where it is not named, rounding differs."""

DIGESTS = {
    "data": Message("The data changed, so the remaining steps train on other rows."),
    "tokens": Message("The training rows are not the same as before, or become other tokens."),
    "held_out": Message("The held-out rows changed, so earlier evaluation losses can't be compared with new ones."),
}
"""What is said of a changed hash, whose digits tell a person nothing."""


@dataclass(slots=True)
class Progress:
    """How far a run is; saved with each checkpoint."""

    step: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    base_model_seen: bool = False
    eval_loss_before: float | None = None
    eval_loss: float | None = None
    eval_step: int | None = None
    best_eval_loss: float | None = None
    num_evals_without_gain: int = 0
    num_nonfinite_steps: int = 0
    base_losses: list[float] = field(default_factory=list)
    """Of held-out rows before the first step, where the base model can't be asked any more at the end."""


class Trainee(Protocol):
    """Whoever takes the steps, as the conductor sees it."""

    plan: StepPlan

    def flush(self) -> list[StepReport]:
        """Wait for the step that is under way, if any, and return its report."""

    def restart_clock(self) -> None:
        """Leave the time since the last step out of the next one's."""

    def held_out(self, step: int, with_adapter: bool, should_stop: Callable[[], bool]) -> HeldOut | None:
        """Return how well the held-out rows are predicted, or None when stopped on the way."""

    def base_losses(self, is_over: Callable[[], bool]) -> list[float]:
        """Return how each of the held-out rows that are compared at the end is predicted now."""

    def comparison(
        self, step: int, is_over: Callable[[], bool], before: list[float] | None
    ) -> dict[str, Any] | None:  # Any: JSON values
        """Return how much better than the base model each held-out row is predicted; None where that can't be told.

        Args:
            step: that was taken last.
            is_over: asked before each row; True makes do with the rows so far.
            before: losses from `base_losses`, where the base model can't be asked any more.
        """

    def without_adapter(self) -> AbstractContextManager[None]:
        """Return the context in which the model is the base model."""

    def prompt_tokens(self, prompt: str, should_stop: Callable[[], bool]) -> list[int] | None:
        """Return the tokens of a prompt, or None when stopped on the way."""

    def answer(self, prompt: list[int], max_tokens: int, should_stop: Callable[[], bool]) -> Written | None:
        """Return the model's answer to the tokens of a prompt, or None when memory is short; a stop cuts it."""

    def snapshot(self, step: int) -> Snapshot:
        """Return what a checkpoint holds beside the progress."""

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to where a checkpoint was made."""

    def fingerprint(self) -> dict[str, Any]:  # Any: JSON values
        """Return what decides, beside settings and data, whether the same step gives the same bits."""


class Conductor:
    """Conducts one run."""

    def __init__(self, host: Host, parts: Parts, checkpoints: Checkpoints, trainee: Trainee) -> None:
        self.progress = Progress()
        self.data_hash = ", ".join(files.sha256_tree(Path(source.path))[:16] for source in parts.spec.data.sources)
        self._host, self._parts, self._trainee = host, parts, trainee
        self._spec = parts.spec
        self._total_steps = trainee.plan.total_steps
        self._evaluate_every = self._spec.evaluation.every_steps or max(1, self._total_steps // EVALUATIONS_PER_RUN)
        self._sample_every = self._spec.evaluation.sample_every_steps or self._evaluate_every
        self._saving = Saving(host, parts, checkpoints, self._total_steps)
        self._asking = Asking(host, parts, trainee.answer)
        self._watch = Watch()
        self._stopped_early = False
        self._started_s = time.monotonic()

    # What the loop calls

    def begin(self) -> None:
        """Do what comes before the first step of this part of the run."""
        self._host.phase("training", self.progress.step, self._total_steps, "steps")
        if self.progress.step:
            # A stop may have cut it short.
            self._look_at_base_model_after_first_step()
            self._evaluate_if_due()
            return
        for code, text in self._parts.data.notes.items():
            self._host.warning(code, text)
        if not self._spec.adapter.keeps_base:
            self._look_at_base_model()
            if self._spec.adapter.kind == FULL and self._parts.data.eval:
                self._remember_base_model()

    def wants_step(self) -> bool:
        """Carry out waiting commands and return whether there shall be another step."""
        if self.progress.step >= self._total_steps or self._stopped_early:
            return False
        with contextlib.suppress(Unsaved):
            # No step is taken that the journal can't tell of.
            if write_out(self._host):
                self._back_to_training()
        self._obey()
        return not self._host.stop_requested()

    def take(self, reports: list[StepReport]) -> None:
        """Publish the numbers of steps and watch over their losses. Raises RunFailure `nan-loss`."""
        for report in reports:
            self._take(report)

    def do_what_is_due(self) -> None:
        """Evaluate, sample and save after a step where it is time."""
        step = self.progress.step
        if self._saving.is_first(step):
            self._save_if_possible()
        self._look_at_base_model_after_first_step()
        self._evaluate_if_due()
        if step % self._sample_every == 0:
            self._sample_all(step)
        if self._saving.is_due(step):
            self._save_if_possible()

    def save_before_failing(self) -> None:
        """Save the steps so far, if possible: what fails next is no fault of theirs."""
        self._save_if_possible()

    def end(self) -> None:
        """Do what comes after the last step. Raises RunFailure `nan-loss` when not one step was any good."""
        self._flush()
        if 0 < self.progress.step == self.progress.num_nonfinite_steps:
            raise TunesmithError("nan-loss", "The loss was NaN or infinite in every step. Nothing was learned.")
        if self._host.stop_requested():
            return
        if self.progress.eval_step != self.progress.step:
            self._evaluate()
        self._compare()
        if self._asking.last_step != self.progress.step:
            self._ask_questions(self.progress.step)
        if self.progress.step % self._sample_every:
            # What was sampled last is not the model that is saved.
            self._sample_all(self.progress.step)

    # Steps

    def _take(self, report: StepReport) -> None:
        host, progress = self._host, self.progress
        host.progress(report.step_s)
        event: dict[str, Any] = {  # Any: JSON values
            "step": report.step,
            "epoch": round(report.epoch, 4),
            "loss": report.loss,
            "lr": report.lr,
            "grad_norm": report.grad_norm,
            "tokens": report.num_tokens,
            "tokens_per_s": round(report.tokens_in_step / max(report.step_s, 1e-9), 1),
            "step_s": round(report.step_s, 4),
            **report.metrics,
        }
        device = self._parts.compute.device
        if device.type == "cuda":
            event["vram_peak_bytes"] = torch.cuda.max_memory_allocated(device)
        host.event("step", **event)
        if "reward" in report.metrics:
            for words in self._watch.look(report.metrics):
                host.warning("rewards-collapsed", Message("Step {step}: {words}", step=report.step, words=words))
        if report.finite:
            progress.num_nonfinite_steps = 0
            return
        progress.num_nonfinite_steps += 1
        if progress.num_nonfinite_steps >= MAX_NONFINITE_STEPS:
            raise TunesmithError(
                "nan-loss",
                "The loss was NaN or infinite for {num_steps} steps in a row, up to step {step}.",
                num_steps=MAX_NONFINITE_STEPS,
                step=report.step,
            )
        host.warning(
            "nan-loss", Message("Step {step}: the loss is NaN or infinite. The update was skipped.", step=report.step)
        )

    def _flush(self) -> None:
        self.take(self._trainee.flush())

    def _back_to_training(self) -> None:
        self._trainee.restart_clock()
        self._host.progress()

    # Evaluation and samples

    def _evaluate_if_due(self) -> None:
        step = self.progress.step
        if step % self._evaluate_every == 0 and self.progress.eval_step != step:
            self._evaluate()

    def _evaluate(self) -> None:
        """Measure the held-out loss and decide about an early stop."""
        progress = self.progress
        loss = self._measure(progress.step)
        if loss is None:
            return
        progress.eval_loss, progress.eval_step = loss, progress.step
        if self._asking.is_affordable():
            self._ask_questions(progress.step)
        better = progress.best_eval_loss is None or loss < progress.best_eval_loss
        progress.best_eval_loss = loss if better else progress.best_eval_loss
        progress.num_evals_without_gain = 0 if better else progress.num_evals_without_gain + 1
        patience = self._spec.evaluation.early_stopping
        if patience and progress.num_evals_without_gain >= patience:
            self._stopped_early = True

    def _look_at_base_model_after_first_step(self) -> None:
        if not self.progress.base_model_seen and self._spec.adapter.keeps_base:
            self._look_at_base_model()

    def _look_at_base_model(self) -> None:
        """Measure and sample the model as it was before the first step.

        That comes after the first step, so that a person soon sees training work: with the adapter switched off, the
        base model is still there. Trained biases and full fine-tuning can't be switched off, so then it comes before.
        """
        with_adapter = self.progress.step == 0
        loss = self._measure(0, with_adapter)
        with contextlib.nullcontext() if with_adapter else self._trainee.without_adapter():
            self._sample_all(0)
            self._ask_questions(0)
        self.progress.eval_loss_before = self.progress.best_eval_loss = loss
        # A stop on the way leaves it to the resumed run.
        self.progress.base_model_seen = not self._host.stop_requested()

    def _measure(self, step: int, with_adapter: bool = True) -> float | None:
        """Publish the held-out loss as that of a step and return it, or None without data or after a stop."""
        if not self._parts.data.eval:
            return None
        self._flush()
        started_s = time.monotonic()
        self._host.phase("evaluating", step, self._total_steps, "steps")
        result = self._trainee.held_out(self.progress.step, with_adapter, self._interrupted)
        self._host.phase("training", self.progress.step, self._total_steps, "steps")
        self._back_to_training()
        if result is None:
            return None
        seconds = round(time.monotonic() - started_s, 3)
        numbers = {"loss": result.loss, "num_tokens": result.num_tokens, **result.metrics}
        self._host.event("eval", step=step, seconds=seconds, **numbers, **self._of_sources(result))
        if not math.isfinite(result.loss):
            self._fail_at_evaluation(step)
        return result.loss

    def _of_sources(self, result: HeldOut) -> dict[str, Any]:  # Any: JSON values
        """Return what an event says of each data file or document, nothing where they are not told apart."""
        if not result.source_losses:
            return {}
        paths = [name for name, _ in self._parts.data.held_out_parts]
        found = [
            {"path": path, "loss": loss, "num_tokens": num_tokens}
            for path, (loss, num_tokens) in zip(paths, result.source_losses, strict=True)
        ]
        return {"source_losses": found}

    def _fail_at_evaluation(self, step: int) -> NoReturn:
        if not step:
            raise TunesmithError(
                "nan-loss",
                "The evaluation loss of the base model itself is NaN or infinite.",
                hint="Check config.json and the weights of the base model, or set the number format to float32.",
            )
        # The steps so far stay available: a smaller learning rate may go on from them.
        self._save_if_possible()
        raise TunesmithError("nan-loss", "Step {step}: the evaluation loss is NaN or infinite.", step=step)

    def _interrupted(self) -> bool:
        """Say between two portions of an evaluation that all is well, and return whether to break off."""
        self._host.progress()
        return self._host.stop_requested()

    def _compare(self) -> None:
        """Publish by how much the held-out rows are predicted better than by the base model, and how certain it is."""
        before = self.progress.base_losses or None
        is_possible = self._spec.adapter.keeps_base or before
        if not self._parts.data.eval or not is_possible or self._host.stop_requested():
            return
        started_s = time.monotonic()
        most_s = max(LEAST_COMPARISON_S, COMPARISON_SHARE * self.seconds())
        self._host.phase("evaluating", self.progress.step, self._total_steps, "steps")
        compared = self._trainee.comparison(
            self.progress.step, lambda: self._interrupted() or time.monotonic() - started_s > most_s, before
        )
        if compared and not self._host.stop_requested():
            seconds = round(time.monotonic() - started_s, 3)
            self._host.event("comparison", step=self.progress.step, seconds=seconds, **compared)
        self._host.phase("training", self.progress.step, self._total_steps, "steps")
        self._back_to_training()

    def _remember_base_model(self) -> None:
        """Note how the model predicts held-out rows before the first step: full fine-tuning changes it for good."""
        started_s = time.monotonic()
        self._host.phase("evaluating", 0, self._total_steps, "steps")
        self.progress.base_losses = self._trainee.base_losses(
            lambda: self._interrupted() or time.monotonic() - started_s > LEAST_COMPARISON_S
        )
        self._host.phase("training", 0, self._total_steps, "steps")
        self._back_to_training()

    def _ask_questions(self, step: int) -> None:
        if self._asking.has_questions and not self._host.stop_requested():
            self._flush()
            self._asking.ask(step)
            self._back_to_training()

    def _sample_all(self, step: int) -> None:
        if not self._parts.method.writes:
            return
        for prompt in self._spec.evaluation.sample_prompts:
            if self._host.stop_requested():
                return
            self._sample(step, prompt)

    def _sample(self, step: int, prompt: str) -> None:
        self._flush()
        try:
            tokens = self._trainee.prompt_tokens(prompt, self._interrupted)
            if tokens is None:
                return
            written = self._trainee.answer(tokens, self._spec.evaluation.sample_max_tokens, self._interrupted)
        except Exception as error:
            # Training needs no sample, and transformers can't generate with every model that it trains.
            self._host.warning(
                "sample-failed", Message("Step {step}: {error}", step=step, error=str(error)[:MAX_MESSAGE_CHARS])
            )
        else:
            if written is None:
                self._host.warning("cuda-oom", Message("There was not enough memory for a sample. It was skipped."))
            else:
                self._host.event("sample", step=step, prompt=prompt, text=written.text, cut_at_tokens=written.cut_at)
        self._back_to_training()

    # Commands

    def _obey(self) -> None:
        for command in self._host.take_commands():
            try:
                self._carry_out(command)
            except UserError as error:
                self._host.ack(command, False, error.message)
            except Unsaved as unsaved:
                self._host.ack(command, False, unsaved.problem.message)
            else:
                self._host.ack(command)

    def _carry_out(self, command: Command) -> None:
        if command.name == "checkpoint":
            self.save()
        elif command.name == "evaluate":
            if not self._parts.data.eval:
                raise TunesmithError("usage", "This run has no evaluation data.")
            self._measure(self.progress.step)
        else:
            if not self._parts.method.writes:
                raise TunesmithError("usage", "This model rates texts and writes none, so it can't answer a prompt.")
            prompt = str(command.data.get("prompt", "")).strip()
            if not prompt:
                raise TunesmithError("usage", "A sample needs a prompt.")
            self._sample(self.progress.step, prompt)

    # Checkpoints

    def save(self) -> None:
        """Save a checkpoint of the present step and publish it. Raises Unsaved when the disk refuses until a stop."""
        self._flush()
        self.progress.seconds = self.seconds()
        self._started_s = time.monotonic()
        self._saving.save(self._trainee.snapshot(self.progress.step), self.progress, self._fingerprint())
        self._back_to_training()

    def _save_if_possible(self) -> None:
        with contextlib.suppress(Unsaved):
            # The stop that ended the wait is met before the next step, and says what is unsaved.
            self.save()

    def restore(self, snapshot: Snapshot, fingerprint: Mapping[str, Any], changes: list[Message]) -> None:
        """Go on where a checkpoint was made, and say what is not as it was then.

        Args:
            snapshot: of the checkpoint.
            fingerprint: its own.
            changes: sentences about settings and files that changed since.
        """
        here = self._fingerprint()
        # A checkpoint that says nothing about pairs is of a version that always joined them as plain text.
        then = {"pairs": "text", **fingerprint}
        changes += [
            DIGESTS.get(key) or change(key, then[key], new, EFFECTS.get(key, ROUNDING))
            for key, new in here.items()
            if key in then and then[key] != new
        ]
        if changes:
            words = Message("The run continues under different conditions.")
            self._host.warning("resume-differs", joined([words, *changes], "\n"))
        self.progress = Progress(**snapshot.state["progress"])
        self._saving.step = self.progress.step
        self._trainee.restore(snapshot)

    def _fingerprint(self) -> dict[str, Any]:  # Any: JSON values
        return self._trainee.fingerprint() | self._rows

    @cached_property
    def _rows(self) -> dict[str, Any]:  # Any: JSON values
        data = self._parts.data
        return {"rows": len(data.train), "pairs": data.pairs, "data": self.data_hash, **data.hashes()}

    def seconds(self) -> float:
        """Return the time spent in the run so far, earlier parts included."""
        return round(self.progress.seconds + time.monotonic() - self._started_s, 3)

    # The end

    def finish(self) -> dict[str, Any]:  # Any: JSON values
        """Save what the run has made and return the fields of the result event.

        A run that has done all its steps is finished, whether or not a stop came after the last.
        A stop that was to save and could not is a failure: whoever asked for it takes the steps for saved.
        """
        host, progress = self._host, self.progress
        artifacts: dict[str, str] = {}
        failure: TunesmithError | None = None
        if progress.step and host.stop_mode != "discard":
            host.phase("saving")
            try:
                self.save()
                artifacts = self._saving.publish(progress, self.data_hash)
            except Unsaved as stop:
                if host.stop_mode != "discard":
                    failure = unsaved(stop.problem, self._saving.step, progress.step)
                    host.event("error", **failure.to_dict())
        # A stop after the last step leaves no step to resume with.
        is_through = self._stopped_early or progress.step >= self._total_steps
        ended = "stopped" if host.stop_mode == "discard" or (host.stop_mode and not is_through) else "finished"
        return {
            "status": "failed" if failure else ended,
            "code": failure.code if failure else None,
            "step": progress.step,
            "seconds": self.seconds(),
            "artifacts": artifacts,
            "eval_loss_before": progress.eval_loss_before,
            "eval_loss_after": progress.eval_loss,
        }
