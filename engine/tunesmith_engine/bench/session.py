"""One model in memory and timings of it: each workload is attached, trained for some steps and measured."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunesmith_core.datafmt.stored import KEPT_TOKENS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.objectives import PREFERENCES, STORED
from tunesmith_core.operations.kinds.engine import BenchSpec
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.bench import floor
from tunesmith_engine.bench.workload import Workload
from tunesmith_engine.data import IGNORED_LABEL, DataStats, Example, PreparedData
from tunesmith_engine.data.example import SoftTargets
from tunesmith_engine.device import choose_compute
from tunesmith_engine.failures import translate
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.train.assembly import Assembly, Parts
from tunesmith_engine.train.fused_path import RowLengths, Timing, most_spread
from tunesmith_engine.train.loss_paths import LossPath
from tunesmith_engine.train.metrics import StepMeter, StepReport
from tunesmith_engine.train.oom import MemoryLadder

GIB = 2**30
VERSIONED = ("torch", "triton", "transformers", "peft", "bitsandbytes")
PLANNED_SHARE = 0.985
"""Of a memory limit: what is allocated later leaves gaps, too, most where lengths vary."""


def run_spec(wanted: BenchSpec) -> RunSpec:
    """Return the settings of a run that takes such steps."""
    spec = RunSpec()
    spec.model.path, spec.hardware.devices = wanted.model, [wanted.device]
    spec.quantization.kind = "nf4" if wanted.method == "qlora" else "none"
    if wanted.method == FULL:
        spec.adapter.kind, spec.adapter.weights = FULL, "bfloat16"
    spec.adapter.rank, spec.adapter.alpha = wanted.rank, float(wanted.rank)
    spec.optimizer.name, spec.hardware.fp8_weights = wanted.optimizer, wanted.fp8
    spec.objective.kind = wanted.objective
    return spec


Row = dict[str, Any]  # Any: JSON values


@dataclass(frozen=True, slots=True)
class Memory:
    """The most that PyTorch has allocated and reserved on the GPU; zeros without one."""

    allocated_bytes: int
    reserved_bytes: int

    @classmethod
    def peak_so_far(cls) -> Memory:
        """Return the peak since the last call and begin to count anew."""
        if not torch.cuda.is_available():
            return cls(0, 0)
        peak = cls(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()
        return peak


class Session:
    """A base model with a new adapter, or trained itself."""

    def __init__(self, wanted: BenchSpec) -> None:
        """Load the model."""
        self.wanted, self.spec = wanted, run_spec(wanted)
        self.compute = choose_compute(self.spec)
        self.on_gpu = self.compute.device.type == "cuda"
        start_s = time.perf_counter()
        method = method_of(self.spec.objective.kind)
        self.model = method.load(Path(wanted.model), self.spec, self.compute)
        self.model.train()
        no_rows = PreparedData([], [], DataStats())
        self._parts = Parts(self.spec, self.compute, method, Path(wanted.model), None, no_rows, self.model)
        self.load_s = time.perf_counter() - start_s
        self.load_peak_bytes = torch.cuda.max_memory_allocated() if self.on_gpu else 0
        # On the host: the device's memory is measured.
        self._first_weights = {name: weight.detach().cpu().clone() for name, weight in trainable(self.model).items()}

    def run(self, workload: Workload) -> Row:
        """Time one workload. What goes wrong is said in the row, under "error"."""
        return self.facts(workload) | self._guarded(workload, lambda: self._measure(workload))

    def try_out(self, workload: Workload) -> Row:
        """Train a workload's steps, to learn whether they fit.

        What is planned not to fit is not tried: lacking memory again and again would take longer than the search.
        """
        return self._guarded(workload, lambda: self._train_and_measure(workload, believe_plan=True))

    def _guarded(self, workload: Workload, work: Callable[[], Row]) -> Row:
        self._start_over(workload.vram_gib)
        try:
            row = work()
        except Exception as error:
            # As text: the exception itself would keep the tensors of its frames.
            row = {"error": translate(error).to_dict()}
        self._start_over(None)
        return row

    def facts(self, workload: Workload) -> Row:
        """Return what is known of a timing before it begins."""
        wanted = self.wanted
        return {
            "program": "tunesmith",
            "model": Path(wanted.model).name,
            "method": wanted.method,
            "objective": wanted.objective,
            "rank": wanted.rank,
            "optimizer": wanted.optimizer,
            "device": self.compute.name if not self.on_gpu else torch.cuda.get_device_name(self.compute.device),
            "dtype": self.compute.dtype_name,
            "versions": _versions(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "workload": workload.name,
            "batch": workload.batch_size,
            "sequence_length": workload.sequence_length,
            "varied": workload.varied,
            "packed": workload.packed,
            "vram_gib": workload.vram_gib,
            "load_s": round(self.load_s, 1),
            "load_peak_gib": _gib(self.load_peak_bytes),
        }

    def _measure(self, workload: Workload) -> Row:
        row = self._train_and_measure(workload)
        # What a pass of the reference costs at least is not measured, nor the gradients of whole weights.
        is_plain_sft = self.wanted.objective not in PREFERENCES | STORED and self.spec.adapter.kind != FULL
        return row | self._share_of_floor(workload, row["step_ms"]) if is_plain_sft else row

    def _train_and_measure(self, workload: Workload, believe_plan: bool = False) -> Row:
        steps, num_warmups, warnings = self.steps(workload), workload.num_warmup_steps, []

        def warn(code: str, words: str) -> None:
            # A report says what is not fused.
            if code != "not-fused":
                warnings.append(words)

        ladder = MemoryLadder(max(map(len, steps)), warn)
        start = Memory.peak_so_far()
        assembly = self._assemble(workload, steps, warn)
        path = ladder.path = assembly.path
        attach = Memory.peak_so_far()
        try:
            if believe_plan and (path.plan_bytes or 0) > (workload.vram_gib or math.inf) * GIB:
                raise TunesmithError("cuda-oom", "{gib} GiB are planned.", gib=_gib(path.plan_bytes or 0))
            reports, seconds = self._train(assembly, ladder, steps, num_warmups)
            losses = {"loss_first": reports[0].loss, "loss_last": reports[-1].loss, "warnings": warnings}
            row = {"path": path.name, "report": path.report} | speed(reports[num_warmups:], seconds) | losses
            return row | (self._memory(path, start, attach) if self.on_gpu else {})
        finally:
            # What lay in the computer's memory comes back.
            self._limit_memory(None)
            path.close()

    def steps(self, workload: Workload) -> list[list[Example]]:
        """Return the rows of each step; every token counts for the loss, of pairs those behind the question."""
        num_token_ids = self.model.config.get_text_config().vocab_size
        make = _pair if self.wanted.objective in PREFERENCES else _row
        if self.wanted.objective in STORED:
            make = partial(_stored_row, num_token_ids)
        return [[make(np.asarray(row, np.int32)) for row in rows] for rows in workload.steps(num_token_ids)]

    def _assemble(
        self, workload: Workload, steps: Sequence[list[Example]], warn: Callable[[str, str], None]
    ) -> Assembly:
        """Make ready to train on these steps, one micro-batch each, with the first weights again."""
        parameters = trainable(self.model)
        with torch.no_grad():
            for name, weight in self._first_weights.items():
                parameters[name].copy_(weight)
        rows = [example for examples in steps for example in examples]
        computed = [sum(example.num_computed_tokens for example in examples) for examples in steps]
        longest = max(row.num_computed_tokens for row in rows)
        lengths = RowLengths.of_steps(longest, computed, most_spread(rows))
        memory_bytes = round(workload.vram_gib * GIB * PLANNED_SHARE) if workload.vram_gib else None
        parts = replace(self._parts, data=PreparedData(rows, [], DataStats()))
        self.spec.hardware.activation_checkpointing = workload.checkpointing
        path = parts.open_path(max(map(len, steps)), warn, Timing(lengths, workload.policy, memory_bytes))
        return Assembly(parts, path)

    def _train(
        self, assembly: Assembly, ladder: MemoryLadder, steps: Sequence[list[Example]], num_warmups: int
    ) -> tuple[list[StepReport], float]:
        """Train as a run does: the host reads a step's numbers when the next one is under way.

        Returns:
            The reports of all steps; seconds of the steps after the warm-up, all together.
        """
        lr, meter, start_s = self.spec.optimizer.learning_rate, StepMeter(self.compute.device, self._parts.metrics), 0.0
        reports: list[StepReport] = []
        for number, examples in enumerate(steps):
            if number == num_warmups:
                reports += meter.flush()
                self._wait()
                meter.restart_clock()
                start_s = time.perf_counter()
            losses, norm = ladder.fit(
                lambda: assembly.update(examples, lr),  # noqa: B023 - called at once
                f"Step {number + 1}",
                assembly.updater.drop_gradients,
            )
            reports += meter.submit(
                step=number,
                epoch=0.0,
                lr=lr,
                num_tokens=0,
                tokens_in_step=_num_tokens(examples),
                losses=losses,
                grad_norm=norm,
            )
        reports += meter.flush()
        self._wait()
        return reports, time.perf_counter() - start_s

    def _memory(self, path: LossPath, start: Memory, attach: Memory) -> Row:
        """Return what was allocated before, at most while getting ready, and at most in the steps."""
        steps = Memory.peak_so_far()
        row: Row = {
            "start_gib": _gib(start.allocated_bytes),
            "attach_peak_gib": _gib(attach.allocated_bytes),
            "step_peak_gib": _gib(steps.allocated_bytes),
            "peak_gib": _gib(max(attach.allocated_bytes, steps.allocated_bytes)),
            "reserved_gib": _gib(max(attach.reserved_bytes, steps.reserved_bytes)),
        }
        if path.plan_bytes:
            over_plan = round(steps.allocated_bytes / path.plan_bytes, 4)
            row |= {"plan_gib": _gib(path.plan_bytes), "peak_over_plan": over_plan}
        return row

    def _share_of_floor(self, workload: Workload, step_ms: float) -> Row:
        """Compare with a step of as many tokens; attention gets equally long documents that are as much work."""
        steps = self.steps(workload)[workload.num_warmup_steps :]
        lengths = [len(example.input_ids) for examples in steps for example in examples]
        num_tokens = round(sum(lengths) / len(steps))
        num_documents = max(1, round(len(lengths) / len(steps)))
        mean_square = sum(length**2 for length in lengths) / len(lengths)
        self._start_over(None)
        try:
            least = floor.measure(
                self.model,
                self.compute.device,
                self.compute.dtype,
                num_tokens,
                num_documents,
                round(mean_square**0.5),
            )
        except RuntimeError as error:
            return {"floor_problem": str(error).partition("\n")[0]}
        return {
            "floor_replay_all_ms": round(least.replay_all_ms, 2),
            "floor_replay_none_ms": round(least.replay_none_ms, 2),
            "share_of_replay_all": round(least.replay_all_ms / step_ms, 4),
            "share_of_replay_none": round(least.replay_none_ms / step_ms, 4),
        }

    def _start_over(self, vram_gib: float | None) -> None:
        """Give memory back, set its limit and begin to count anew."""
        gc.collect()
        if self.on_gpu:
            self._wait()
            torch.cuda.empty_cache()
            self._limit_memory(vram_gib)
            torch.cuda.reset_peak_memory_stats()

    def _limit_memory(self, vram_gib: float | None) -> None:
        if self.on_gpu:
            total = torch.cuda.get_device_properties(self.compute.device).total_memory
            share = min(1.0, vram_gib * GIB / total) if vram_gib else 1.0
            torch.cuda.set_per_process_memory_fraction(share, self.compute.device)

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


def speed(reports: Sequence[StepReport], seconds: float) -> Row:
    """Return what timed steps tell: tokens per second over all of them, and the median step.

    Args:
        reports: the timed steps, one at least.
        seconds: how long all of them took together.
    """
    num_tokens = sum(report.tokens_in_step for report in reports)
    return {
        "tokens_per_s": round(num_tokens / seconds, 1),
        "tokens_per_step": round(num_tokens / len(reports)),
        "step_ms": round(statistics.median(report.step_s for report in reports) * 1000, 2),
        "num_steps": len(reports),
    }


def _num_tokens(examples: Sequence[Example]) -> int:
    return sum(example.num_tokens for example in examples)


def _row(ids: NDArray[np.int32]) -> Example:
    return Example(ids, ids)


def _stored_row(num_token_ids: int, ids: NDArray[np.int32]) -> Example:
    """Return a row at whose tokens as many are stored as this program stores at most, none of them the written one."""
    count = KEPT_TOKENS + 1
    likely: NDArray[np.int32] = np.mod(ids[1:, None] + np.arange(count, dtype=np.int32), num_token_ids, dtype=np.int32)
    shares = np.full(likely.shape, 1 / KEPT_TOKENS, np.float32)
    shares[:, 0] = 0.0
    counts = np.full(len(likely), count, np.int32)
    return Example(ids, ids, soft=SoftTargets(counts, likely.flatten(), shares.flatten(), count))


def _pair(ids: NDArray[np.int32]) -> Example:
    """Return a pair of which a quarter is the question, and the worse answer is the better one backwards."""
    question, answer = np.split(ids, [len(ids) // 4])
    untrained = np.full_like(question, IGNORED_LABEL)
    worse = answer[::-1]
    return Example(
        ids,
        np.concatenate([untrained, answer]),
        Example(np.concatenate([question, worse]), np.concatenate([untrained, worse])),
    )


def _gib(num_bytes: int) -> float:
    return round(num_bytes / GIB, 3)


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
