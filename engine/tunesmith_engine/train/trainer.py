"""The training loop, readable from top to bottom.

A step is: rows -> micro-batches -> gradients of (sum of token losses / trained tokens of the
whole step) -> clip -> AdamW.
On a GPU the host never waits inside a step; loss and gradient norm are read after the next step was submitted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from tunesmith_core import files
from tunesmith_core.errors import RunFailure, UserError
from tunesmith_core.protocol import Command
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import Example, PreparedData
from tunesmith_engine.device import Compute
from tunesmith_engine.failures import MAX_MESSAGE_CHARS
from tunesmith_engine.host import Host
from tunesmith_engine.model.load import padding_id
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.train import checkpoint
from tunesmith_engine.train.checkpoint import Checkpoints, Snapshot
from tunesmith_engine.train.evaluate import generate, held_out_loss
from tunesmith_engine.train.loss import num_trained_tokens
from tunesmith_engine.train.metrics import StepMeter, StepReport
from tunesmith_engine.train.oom import MemoryLadder, Result, is_out_of_memory
from tunesmith_engine.train.optim import Updater
from tunesmith_engine.train.paths import LossPath, open_path
from tunesmith_engine.train.probe import probe
from tunesmith_engine.train.schedule import StepPlan

EVALUATIONS_PER_RUN = 10
MAX_NONFINITE_STEPS = 3


@dataclass(slots=True)
class Progress:
    """How far a run is; saved with each checkpoint."""

    step: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    base_model_seen: bool = False
    eval_loss_before: float | None = None
    eval_loss: float | None = None
    eval_step: int = -1
    best_eval_loss: float | None = None
    num_evals_without_gain: int = 0
    num_nonfinite_steps: int = 0


class Trainer:
    """Trains one adapter."""

    def __init__(
        self,
        model: PeftModel,
        tokenizer: Any,  # Any: a transformers tokenizer
        data: PreparedData,
        spec: RunSpec,
        compute: Compute,
        host: Host,
        checkpoints: Checkpoints,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.data = data
        self.spec = spec
        self.compute = compute
        self.host = host
        self.checkpoints = checkpoints
        self.progress = Progress()
        self.data_hash = files.sha256_file(Path(spec.data.path))[:16]
        self.plan = StepPlan(spec.schedule, len(data.train))
        self.parameters = trainable(model)
        self.ladder = MemoryLadder(spec.schedule.micro_batch_size, host.warning)
        self.path = self.ladder.path = self.ladder.fit(self._open_path, "Before the first step")
        self.updater = Updater(self.parameters, spec.optimizer, compute.device, compute.dtype, self.path.arena)
        self._meter = StepMeter(compute.device)
        self._evaluate_every = spec.evaluation.every_steps or max(1, self.plan.total_steps // EVALUATIONS_PER_RUN)
        self._stopped_early = False
        self.tried_bytes: int | None = None
        self._started_s = self._saved_s = time.monotonic()

    def _open_path(self) -> LossPath:
        pad_token_id, size = padding_id(self.tokenizer), self.ladder.micro_batch_size
        return open_path(self.model, self.spec, self.compute, self.data, pad_token_id, size, self.host.warning)

    def try_out(self) -> None:
        """On a GPU, step down until the largest micro-batch fits: before the first step, not in the middle of a run."""
        device = self.compute.device
        if device.type == "cuda":
            self.model.train()
            num_rows = len(self.plan.rows(0))
            self.tried_bytes = probe(self.path, self.updater, self.ladder, self.data.train, num_rows, device)

    # The loop

    def train(self) -> None:
        """Train to the end, an early stop or a stop request; `host.stop_mode` tells the latter.

        Raises:
            RunFailure: `nan-loss` or `cuda-oom`.
        """
        self.model.train()
        if self.progress.step:
            # A stop may have cut it short.
            self._evaluate_if_due()
        elif self.spec.method.bias != "none":
            self._look_at_base_model()
        while self.progress.step < self.plan.total_steps and not self._stopped_early:
            self._obey()
            if self.host.stop_requested():
                break
            self._step()
            self._do_what_is_due()
        self._flush()
        if not self.host.stop_requested() and self.progress.eval_step != self.progress.step:
            self._evaluate()

    def _step(self) -> None:
        """Train on the rows of one step; after a lack of memory, again and in smaller portions."""
        step = self.progress.step
        examples = [self.data.train[row] for row in self.plan.rows(step)]
        lr = self.spec.optimizer.learning_rate * self.plan.learning_rate_factor(step)
        loss, grad_norm = self._fit(lambda: self._update(examples, lr))
        num_tokens = sum(len(example.input_ids) for example in examples)
        self.progress.step += 1
        self.progress.num_tokens += num_tokens
        reports = self._meter.submit(
            step=step + 1,
            epoch=self.plan.epoch(step + 1),
            lr=lr,
            num_tokens=self.progress.num_tokens,
            tokens_in_step=num_tokens,
            loss=loss,
            grad_norm=grad_norm,
        )
        for report in reports:
            self._take(report)

    def _update(self, examples: list[Example], lr: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Do one update and return its loss and gradient norm, both on the device."""
        num_trained = max(1, num_trained_tokens(examples))
        loss = torch.zeros((), device=self.compute.device)
        for portion in self.path.portions(examples):
            loss += self.path.add_gradients(portion, num_trained, self.updater)
        grad_norm = self.updater.update(lr)
        self.path.weights_changed()
        return loss, grad_norm

    def _fit(self, work: Callable[[], Result]) -> Result:
        """Do the work, stepping down the memory ladder until it fits; no half step is ever applied."""
        return self.ladder.fit(work, f"Step {self.progress.step + 1}", self.updater.drop_gradients)

    def _take(self, report: StepReport) -> None:
        """Publish a step's numbers and watch over its loss."""
        self.host.progress(report.step_s)
        event: dict[str, Any] = {  # Any: JSON values
            "step": report.step,
            "epoch": round(report.epoch, 4),
            "loss": report.loss,
            "lr": report.lr,
            "grad_norm": report.grad_norm,
            "tokens": report.num_tokens,
            "tokens_per_s": round(report.tokens_in_step / max(report.step_s, 1e-9), 1),
            "step_s": round(report.step_s, 4),
        }
        if self.compute.device.type == "cuda":
            event["vram_peak_bytes"] = torch.cuda.max_memory_allocated(self.compute.device)
        self.host.event("step", **event)
        if report.finite:
            self.progress.num_nonfinite_steps = 0
            return
        self.progress.num_nonfinite_steps += 1
        if self.progress.num_nonfinite_steps >= MAX_NONFINITE_STEPS:
            raise RunFailure(
                "nan-loss", f"The loss was no number for {MAX_NONFINITE_STEPS} steps running, up to step {report.step}."
            )
        self.host.warning("nan-loss", f"The loss of step {report.step} is no number; the step was not applied.")

    def _flush(self) -> None:
        for report in self._meter.flush():
            self._take(report)

    # What happens between steps

    def _do_what_is_due(self) -> None:
        step, saving = self.progress.step, self.spec.saving
        if not self.progress.base_model_seen and self.spec.method.bias == "none":
            self._look_at_base_model()
        self._evaluate_if_due()
        if step % (self.spec.evaluation.sample_every_steps or self._evaluate_every) == 0:
            self._sample_all(step)
        minutes = (time.monotonic() - self._saved_s) / 60
        if minutes >= saving.every_minutes or (saving.every_steps and step % saving.every_steps == 0):
            self.save()

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
        better = progress.best_eval_loss is None or loss < progress.best_eval_loss
        progress.best_eval_loss = loss if better else progress.best_eval_loss
        progress.num_evals_without_gain = 0 if better else progress.num_evals_without_gain + 1
        patience = self.spec.evaluation.early_stopping
        if patience and progress.num_evals_without_gain >= patience:
            self._stopped_early = True

    def _look_at_base_model(self) -> None:
        """Measure and sample the model as it was before the first step.

        That comes after the first step, so that a person soon sees training work: with the adapter switched off, the
        base model is still there. Only trained biases can't be switched off, so then it comes before.
        """
        with_adapter = self.progress.step == 0
        loss = self._measure(0, with_adapter)
        with contextlib.nullcontext() if with_adapter else self.model.disable_adapter():
            self._sample_all(0)
        self.progress.eval_loss_before = self.progress.best_eval_loss = loss
        # A stop on the way leaves it to the resumed run.
        self.progress.base_model_seen = not self.host.stop_requested()

    def _measure(self, step: int, with_adapter: bool = True) -> float | None:
        """Publish the held-out loss as that of a step and return it, or None without data or after a stop."""
        if not self.data.eval:
            return None
        self._flush()
        started_s = time.monotonic()
        self.host.phase("evaluating", step, self.plan.total_steps, "steps")
        device = self.compute.device
        result = self._fit(
            lambda: held_out_loss(self.model, self.path, self.data.eval, device, with_adapter, self._interrupted)
        )
        self._back_to_training()
        if result is None:
            return None
        loss, num_tokens = result
        seconds = round(time.monotonic() - started_s, 3)
        self.host.event("eval", step=step, loss=loss, num_tokens=num_tokens, seconds=seconds)
        return loss

    def _interrupted(self) -> bool:
        """Say between two portions of an evaluation that all is well, and return whether to break off."""
        self.host.progress()
        return self.host.stop_requested()

    def _sample_all(self, step: int) -> None:
        for prompt in self.spec.evaluation.sample_prompts:
            if self.host.stop_requested():
                return
            self._sample(step, prompt)

    def _sample(self, step: int, prompt: str) -> None:
        self._flush()
        try:
            text = self._answer(prompt)
            if text is None:
                with self.path.out_of_the_way():
                    text = self._answer(prompt)
        except Exception as error:
            # Training needs no sample, and transformers can't generate with every model that it trains.
            self.host.warning("sample-failed", f"Step {step}: {str(error)[:MAX_MESSAGE_CHARS]}")
        else:
            if text is None:
                self.host.warning("cuda-oom", "There was not enough memory for a sample; it is left out.")
            else:
                self.host.event("sample", step=step, prompt=prompt, text=text)
        self._meter.restart_clock()
        self.host.progress()

    def _answer(self, prompt: str) -> str | None:
        """Return the model's answer, or None when memory is short."""
        system_prompt, max_tokens = self.spec.data.system_prompt, self.spec.evaluation.sample_max_tokens
        try:
            return generate(self.model, self.tokenizer, self.compute, prompt, system_prompt, max_tokens)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None

    def _back_to_training(self) -> None:
        self.host.phase("training", self.progress.step, self.plan.total_steps, "steps")
        self.host.progress()
        self._meter.restart_clock()

    # Commands

    def _obey(self) -> None:
        for command in self.host.take_commands():
            try:
                self._carry_out(command)
            except UserError as error:
                self.host.ack(command, False, error.message)
            else:
                self.host.ack(command)

    def _carry_out(self, command: Command) -> None:
        if command.name == "checkpoint":
            self.save()
        elif command.name == "evaluate":
            if not self.data.eval:
                raise UserError("usage", "This run has no evaluation data.")
            self._measure(self.progress.step)
        else:
            prompt = str(command.data.get("prompt", "")).strip()
            if not prompt:
                raise UserError("usage", "A sample needs a prompt.")
            self._sample(self.progress.step, prompt)

    # Checkpoints

    def save(self) -> None:
        """Save a checkpoint of the present step and publish it."""
        self._flush()
        tensors, numbers = self.updater.state()
        self.progress.seconds = self.seconds()
        self._started_s = time.monotonic()
        state = {
            "progress": asdict(self.progress),
            "optimizer_numbers": numbers,
            "micro_batch_size": self.ladder.micro_batch_size,
            "num_kept_less": self.ladder.num_kept_less,
        }
        adapter = {name: parameter.detach() for name, parameter in self.parameters.items()}
        random = checkpoint.random_states(self.compute.device)
        snapshot = Snapshot(self.progress.step, adapter, tensors, random, state)
        saved = self.checkpoints.save(snapshot, self.fingerprint())
        self._saved_s = time.monotonic()
        path = saved.path.relative_to(self.host.run.path).as_posix()
        self.host.event(
            "checkpoint", step=saved.step, path=path, bytes=saved.num_bytes, seconds=round(saved.seconds, 3)
        )
        self._meter.restart_clock()
        self.host.progress()

    def restore(self, snapshot: Snapshot, manifest: dict[str, Any]) -> None:  # Any: JSON values
        """Go on where a checkpoint was made, and say what is not as it was then."""
        differences = [
            f"{key} was {old}, is {self.fingerprint()[key]}"
            for key, old in manifest["fingerprint"].items()
            if self.fingerprint().get(key) != old
        ]
        if differences:
            self.host.warning("resume-differs", f"{'; '.join(differences)}.")
        for name, parameter in self.parameters.items():
            parameter.data.copy_(snapshot.adapter[name])
        self.updater.load_state(snapshot.optimizer, snapshot.state["optimizer_numbers"])
        self.progress = Progress(**snapshot.state["progress"])
        # Checkpoints of versions before the fused path name no number.
        self.ladder.restore(snapshot.state["micro_batch_size"], snapshot.state.get("num_kept_less", 0))
        self.path.weights_changed()
        checkpoint.restore_random_states(snapshot.random, self.compute.device)

    def seconds(self) -> float:
        """Return the time spent in the run so far, earlier parts included."""
        return round(self.progress.seconds + time.monotonic() - self._started_s, 3)

    def fingerprint(self) -> dict[str, Any]:  # Any: JSON values
        """Return what decides whether the same step gives the same bits."""
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "",
            "device": self.compute.name,
            "dtype": self.compute.dtype_name,
            "kernels": self.path.name,
            "threads": self.compute.num_threads,
            "rows": len(self.data.train),
            "data": self.data_hash,
        }
