"""What a run's page knows, folded from the journal: state, curves, samples, checkpoints, log, time left. No widgets.

Packing (turning events into arrays) happens on the tailing thread, folding on the UI thread: a flood of steps then
costs the window one array append per thousand events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from tunesmith_core import agreement, preferences, rewards, sorting, source_losses
from tunesmith_core.answered import Answered, forget_answers, take_answers
from tunesmith_core.error_codes import SYMPTOMS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.outcome import Verdict
from tunesmith_core.protocol import Event
from tunesmith_core.runs import FIRST_SAVED_STEP, PAUSED_PHASE, RunState, RunStatus
from tunesmith_core.source_losses import SourceLoss
from tunesmith_core.verdict import Measured, judge
from tunesmith_gui.models.log_lines import LogLine, LogLines
from tunesmith_gui.models.metric_series import Floats, MetricSeries
from tunesmith_gui.models.run_words import phase_word, state_word
from tunesmith_gui.tr import core_text, fill, number, size, translate

REWARD_COLUMNS = ("reward_margin", "reward_accuracy", "kl")
"""Of runs that learn from preference pairs or labels, means over those of a step; NaN in other runs. Of evaluations all
of preferences.LABEL_METRICS are kept, by which the verdict judges."""

STEP_COLUMNS = (
    *("step", "t", "tokens", "loss", "lr", "grad_norm", "tokens_per_s", "epoch", "vram_peak_bytes"),
    *REWARD_COLUMNS,
    *("accuracy", "step_accuracy", *agreement.METRICS),
    *(name for name in rewards.METRICS if name not in REWARD_COLUMNS),
)
EVAL_COLUMNS = (
    *("step", "t", "tokens", "loss", *preferences.LABEL_METRICS, *sorting.ALL, "reward"),
    *agreement.METRICS,
)
MEMORY_COLUMNS = (
    "t",
    "device_bytes",
    "process_bytes",
    "host_used_bytes",
    "utilization_percent",
    "temperature_c",
    "power_w",
    "cpu_percent",
    "cpu_machine_percent",
)
_AVERAGED = ("utilization_percent", "power_w", "cpu_percent", "cpu_machine_percent")

HEARTBEAT_LIMIT_S = 15.0
_RATE_WINDOW_STEPS = 300
MAX_SAMPLES = 500


@dataclass(slots=True)
class EventBatch:
    """A stretch of a journal that no resume cuts through.

    Attributes:
        steps: shape (n, len(STEP_COLUMNS)).
        memory: shape (m, len(MEMORY_COLUMNS)).
        others: every other event in order, and of the steps those that stand right before one of them or last.
        last_reading: fields of the newest gpu event and the memory in use on the device, or None.
    """

    steps: Floats
    memory: Floats
    others: list[Event]
    last_reading: dict[str, Any] | None  # Any: JSON values


def pack(events: Sequence[Event]) -> list[EventBatch]:
    """Turn events into batches, cut before each `hello`."""
    starts = [place for place, event in enumerate(events) if event.type == "hello" and place]
    bounds = [0, *starts, len(events)]
    return [_pack_one(events[first:end]) for first, end in pairwise(bounds) if end > first]


def _pack_one(events: Sequence[Event]) -> EventBatch:
    steps: list[tuple[object, ...]] = []
    memory: list[tuple[object, ...]] = []
    others: list[Event] = []
    reading, step = None, None
    for event in events:
        data = event.data
        if event.type == "step":
            step = event
            steps.append((data.get("step"), event.t, *(data.get(name) for name in STEP_COLUMNS[2:])))
        elif event.type == "gpu":
            device = sum(data.get(name) or 0 for name in ("reserved_bytes", "used_by_others_bytes")) or None
            reading = data | {"device_bytes": device}
            memory.append((event.t, *(reading.get(name) for name in MEMORY_COLUMNS[1:])))
        else:
            if step is not None:
                others.append(step)
                step = None
            others.append(event)
    if step is not None:
        others.append(step)
    return EventBatch(
        np.array(steps, dtype=np.float64).reshape(-1, len(STEP_COLUMNS)),
        np.array(memory, dtype=np.float64).reshape(-1, len(MEMORY_COLUMNS)),
        others,
        reading,
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """A text the model wrote at a step.

    Attributes:
        cut_at: tokens at which it was cut, 0 where the model ended it.
        expected: what the data answers, "" where nothing is expected.
        is_right: whether it is that; None where it is a matter of wording.
    """

    step: int
    prompt: str
    text: str
    cut_at: int = 0
    expected: str = ""
    is_right: bool | None = None


@dataclass(slots=True)
class SampleRequest:
    """A prompt that the person sent to the model in training, and what became of it."""

    prompt: str
    outcome: Literal["waiting", "answered", "failed"] = "waiting"
    step: int = 0
    reason: str = ""

    def fail(self, reason: str) -> None:
        """There will be no answer."""
        self.outcome, self.reason = "failed", reason


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved state of a run; `path` is relative to the run folder."""

    step: int
    path: str
    num_bytes: int
    seconds: float
    t: float


@dataclass
class DashboardModel:
    """The state of a run's page.

    Attributes:
        unreadable: why the run's settings can't be read, None when they can or nobody has looked yet.
        adapter_problem: see `Run.adapter_problem`.
        answers: to questions of held-out rows, in the order in which they were first asked.
        damage: what of the run's folder is damaged, see `set_damage`.
        pace: fields of the phase event that said last how fast rows are read; empty in every other phase.
    """

    status: RunStatus = field(default_factory=RunStatus)
    steps: MetricSeries = field(default_factory=lambda: MetricSeries(STEP_COLUMNS))
    evals: MetricSeries = field(default_factory=lambda: MetricSeries(EVAL_COLUMNS))
    memory: MetricSeries = field(default_factory=lambda: MetricSeries(MEMORY_COLUMNS))
    log: LogLines = field(default_factory=LogLines)
    samples: list[Sample] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    comparison: dict[str, Any] = field(default_factory=dict)  # Any: fields of the comparison event
    source_losses: list[SourceLoss] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)  # Any: fields of warning events
    setup: dict[str, Any] = field(default_factory=dict)  # Any: fields of the setup event
    reading: dict[str, Any] = field(default_factory=dict)  # Any: fields of the newest gpu event
    result: dict[str, Any] = field(default_factory=dict)  # Any: fields of the result event
    group: dict[str, Any] = field(default_factory=dict)  # Any: fields of the newest rollouts event
    sample_request: SampleRequest | None = None
    unreadable: TunesmithError | None = None
    adapter_problem: TunesmithError | None = None
    damage: TunesmithError | None = None
    resumed_from_step: int = 0
    pause_reason: str = ""
    pace: dict[str, Any] = field(default_factory=dict)  # Any: JSON values
    _session_row: int = 0
    _phase: str = ""

    def apply(self, batches: list[EventBatch]) -> None:
        """Take batches of `pack` into account, in the order of the journal."""
        for batch in batches:
            if batch.others and batch.others[0].type == "hello":
                self._begin_session(batch.others[0].data)
            self.steps.extend(batch.steps)
            self.memory.extend(batch.memory)
            self.reading = batch.last_reading or self.reading
            for event in batch.others:
                self.status.fold(event)
                handler = _HANDLERS.get(event.type)
                if handler is not None:
                    handler(self, event)
        self._mark_damage()

    def set_damage(self, damage: TunesmithError | None) -> None:
        """Note what is damaged beside the journal; a run that nobody works on is then damaged, however it ended."""
        self.damage = damage
        self._mark_damage()

    def end_unattended(self) -> None:
        """Nobody works on a run any more whose journal has no end."""
        self.status.state = RunState.INTERRUPTED
        self._mark_damage()

    def _mark_damage(self) -> None:
        if self.damage is not None and not self.status.state.live:
            self.status.state = RunState.DAMAGED

    def _begin_session(self, data: dict[str, Any]) -> None:  # Any: JSON values
        resumed = data.get("resumed_from_step") or 0
        self.resumed_from_step = resumed
        for series in (self.steps, self.evals):
            series.truncate_after(resumed)
        self.samples = [sample for sample in self.samples if sample.step <= resumed]
        self.answers, self.comparison = forget_answers(self.answers, resumed), {}
        self.source_losses = []
        self.checkpoints = [checkpoint for checkpoint in self.checkpoints if checkpoint.step <= resumed]
        self.group = self.group if (self.group.get("step") or 0) <= resumed else {}
        self._session_row, self.result = len(self.steps), {}

    def _on_phase(self, event: Event) -> None:
        phase = str(event.data.get("name") or "")
        self.pause_reason = core_text(event.data.get("message") or "") if phase == PAUSED_PHASE else ""
        if self.pause_reason:
            self._say(event.t, "warn", fill(translate("RunLog", "paused: %1"), self.pause_reason))
        elif phase != self._phase:
            self._say(event.t, "info", fill(translate("RunLog", "phase: %1"), phase_word(phase)))
        self._phase = phase
        self.pace = event.data if event.data.get("rows_per_s") else {}

    def _on_setup(self, event: Event) -> None:
        self.setup = data = event.data
        for sentence in data.get("kernels") or ():
            self._say(event.t, "info", str(sentence))
        planned, tried = data.get("planned_bytes"), data.get("tried_bytes")
        if planned and tried:
            words = translate("RunLog", "memory: %1 planned, %2 taken by the largest micro-batch")
            self._say(event.t, "info", fill(words, size(planned), size(tried)))

    def _on_eval(self, event: Event) -> None:
        step, loss = event.data.get("step"), event.data.get("loss")
        tokens = self.steps.last("tokens") if len(self.steps) else 0.0
        row = (step, event.t, tokens, loss, *(event.data.get(name) for name in EVAL_COLUMNS[4:]))
        self.evals.extend(np.array([row], dtype=np.float64))
        if isinstance(reward := event.data.get("reward"), float | int):
            words = fill(translate("RunLog", "held-out reward %1 at step %2"), number(reward, 3), step)
            self._say(event.t, "info", words)
            return
        shown = translate("RunLog", "not a number") if loss is None else number(loss, 3)
        self._say(event.t, "info", fill(translate("RunLog", "evaluation loss %1 at step %2"), shown, step))
        self.source_losses = source_losses.of_event(event.data)
        if of_sources := source_losses.in_brief(self.source_losses):
            self._say(event.t, "info", core_text(of_sources))

    def _on_answers(self, event: Event) -> None:
        take_answers(self.answers, event)

    def _on_rollouts(self, event: Event) -> None:
        self.group = event.data

    def _on_comparison(self, event: Event) -> None:
        self.comparison = event.data

    def _on_sample(self, event: Event) -> None:
        data = event.data
        prompt, text = (str(data.get(name) or "") for name in ("prompt", "text"))
        sample = Sample(int(data.get("step") or 0), prompt, text, int(data.get("cut_at_tokens") or 0))
        self.samples = [*self.samples, sample][-MAX_SAMPLES:]
        request = self.sample_request
        if request is not None and request.prompt == sample.prompt:
            request.outcome, request.step = "answered", sample.step

    def _on_ack(self, event: Event) -> None:
        """A command was carried out: a sample that has not come by now does not come."""
        request = self.sample_request
        if request is not None and request.outcome == "waiting" and event.data.get("command") == "sample":
            request.fail(event.data.get("message") or request.reason)

    def _on_checkpoint(self, event: Event) -> None:
        data = event.data
        step, path, num_bytes = int(data.get("step") or 0), str(data.get("path") or ""), int(data.get("bytes") or 0)
        self.checkpoints.append(Checkpoint(step, path, num_bytes, float(data.get("seconds") or 0), event.t))
        if isinstance(data.get("kept"), list):
            self.checkpoints = [each for each in self.checkpoints if each.step in data["kept"]]
        self._say(event.t, "info", fill(translate("RunLog", "checkpoint %1 (%2)"), path, size(num_bytes)))

    def _on_log(self, event: Event) -> None:
        self._say(event.t, str(event.data.get("level") or "info"), str(event.data.get("text") or ""))

    def _on_warning(self, event: Event) -> None:
        self.warnings.append(event.data)
        if self.sample_request is not None and self.sample_request.outcome == "waiting":
            self.sample_request.reason = event.data.get("message") or ""
        self._say(event.t, "warning", core_text(event.data.get("message") or event.data.get("code") or ""))

    def _on_error(self, event: Event) -> None:
        self._say(event.t, "error", core_text(event.data.get("message") or event.data.get("code") or ""))
        if event.data.get("context"):
            # Of an engine that is gone it is whatever was printed last, which need not be an error.
            level = "info" if event.data.get("code") in SYMPTOMS - {"bug"} else "error"
            self._say(event.t, level, str(event.data["context"]))

    def _on_result(self, event: Event) -> None:
        self.result = event.data
        self._say(event.t, "info", fill(translate("RunLog", "result: %1"), state_word(self.status.state)))

    def _say(self, t: float, level: str, text: str) -> None:
        self.log.extend(LogLine(t, level, line) for line in text.splitlines() or [""])

    def written(self) -> list[Sample]:
        """What the model wrote, the newest last: samples, or answers to held-out rows where no samples were asked for.
        """
        if self.samples:
            return self.samples
        steps = sorted({step for each in self.answers for step in each.texts})
        return [
            Sample(
                step, each.prompt, each.texts[step], each.cuts.get(step, 0), each.expected, each.right.get(step)
            )
            for step in steps
            for each in reversed(self.answers)
            if step in each.texts
        ]

    @property
    def fraction(self) -> float:
        """Share of the steps that are done, 0 to 1."""
        total = self.status.total_steps
        return min(self.status.step / total, 1.0) if total else 0.0

    @property
    def began_at(self) -> float:
        """When the first session began, in seconds since 1970: its greeting, or a reading or step before it."""
        firsts = [series.column("t")[0] for series in (self.steps, self.memory) if len(series)]
        if self.status.started_at is not None:
            firsts.append(self.status.started_at)
        return float(min(firsts, default=0.0))

    @property
    def heard_at(self) -> float | None:
        """When the newest event was written, readings included, in seconds since 1970."""
        read_at = self.memory.last("t") if len(self.memory) else 0.0
        return max(self.status.last_event_at or 0.0, read_at) or None

    @property
    def known_s(self) -> float:
        """Seconds from `began_at` to the newest event."""
        lasts = [series.column("t")[-1] for series in (self.steps, self.memory) if len(series)]
        return float(max(*lasts, self.status.last_event_at or 0.0, self.began_at) - self.began_at)

    @property
    def on_cpu(self) -> bool:
        """Whether the newest reading comes from a run without a GPU."""
        return self.reading.get("device", "cpu") == "cpu" and not self.reading.get("total_bytes")

    @property
    def used(self) -> dict[str, str]:
        """What automatic settings came to, by their paths; empty where not known yet."""
        return {
            "model.dtype": str(self.setup.get("dtype") or ""),
            "data.sources[0].format": str(self.setup.get("row_format") or ""),
            "hardware.devices": core_text(self.status.device_name),
        }

    def taken(self) -> dict[str, Any]:  # Any: JSON values
        """What the run took over all its readings: averages of shares and power, the highest of everything else."""
        result = {name: value for name, value in self.reading.items() if name.endswith("total_bytes")}
        for name in MEMORY_COLUMNS[1:]:
            values = self.memory.column(name)
            values = values[np.isfinite(values)]
            if len(values):
                result[name] = float(values.mean() if name in _AVERAGED else values.max())
        return result

    def step_s(self) -> float | None:
        """Seconds per step over the last steps of this session, pauses for evaluation included.

        Not from its first step on: after that one the base model is evaluated and sampled, which never comes again.
        """
        times = self.steps.column("t")[self._session_row + 1 :][-_RATE_WINDOW_STEPS:]
        numbers = self.steps.column("step")[self._session_row + 1 :][-_RATE_WINDOW_STEPS:]
        if len(times) < 2 or numbers[-1] <= numbers[0]:
            return None
        return float((times[-1] - times[0]) / (numbers[-1] - numbers[0]))

    def eta_s(self, now: float) -> float | None:
        """Seconds that training still needs at `now` (seconds since 1970), None when that can't be said."""
        rate, total = self.step_s(), self.status.total_steps
        if rate is None or self.status.step >= total or self.status.state is not RunState.RUNNING:
            return None
        since_last = max(now - float(self.steps.column("t")[-1]), 0.0)
        return max(rate * (total - self.status.step) - since_last, 0.0)

    def silent_since(self, now: float, heartbeat_at: float | None) -> float | None:
        """When a live run gave its last sign of life, if that is too long ago; else None. Times since 1970."""
        if not self.status.state.live or self.status.state in (RunState.QUEUED, RunState.PAUSED):
            return None
        last = max(heartbeat_at or 0.0, self.status.last_event_at or 0.0)
        return last if last and now - last > HEARTBEAT_LIMIT_S else None

    @property
    def can_resume(self) -> bool:
        """Whether the run ended early and left a checkpoint, or was interrupted with nothing to lose yet."""
        early = (RunState.STOPPED, RunState.FAILED, RunState.INTERRUPTED)
        saved = self.status.last_checkpoint_step > 0
        begun = self.status.state is not RunState.INTERRUPTED or self.status.step > FIRST_SAVED_STEP
        return self.status.state in early and (saved or not begun)

    @property
    def num_rows(self) -> int:
        """Rows that were trained and held out."""
        return sum(int(self.setup.get(name) or 0) for name in ("num_train_rows", "num_eval_rows"))

    @property
    def lost_ends(self) -> bool:
        """Whether most rows lost the end of what is learned to the context length: the model doesn't know to stop."""
        return int(self.setup.get("num_open_rows") or 0) * 2 > self.num_rows

    def verdict(self) -> Verdict:
        """What came of the run by what it has measured."""
        held_out, training = (
            {int(step): loss for step, loss in zip(*(series.column(name).tolist() for name in names), strict=True)}
            for series, names in ((self.evals, ("step", "loss")), (self.steps, ("step", "loss")))
        )
        finite = {step: loss for step, loss in held_out.items() if math.isfinite(loss)}
        labels = self._told(sorting.ALL) if not self.writes else {}
        pairs = self._told(preferences.LABEL_METRICS) if self.has_pairs else {}
        told = (finite, training, self.setup, self.comparison, self.answers, pairs)
        teacher = self._told(agreement.METRICS) if self.has_teacher else {}
        return judge(Measured(*told, labels=labels, rewards=self._rewards(), teacher=teacher))

    def _rewards(self) -> dict[int, dict[str, float]]:
        """What the answers of each step were worth; nothing for other runs."""
        if not self.has_rewards:
            return {}
        rows = zip(*(self.steps.column(name).tolist() for name in ("step", *rewards.METRICS)), strict=True)
        return {int(step): dict(zip(rewards.METRICS, values, strict=True)) for step, *values in rows}

    @property
    def has_rewards(self) -> bool:
        """Whether the run learns from rewards, as far as its journal tells."""
        known = [series.column("reward") for series in (self.steps, self.evals)]
        return any(len(values) and np.isfinite(values[0]) for values in known)

    @property
    def best_reward(self) -> float | None:
        """The highest held-out reward of the trained model, None where none was measured."""
        found = self.evals.column("reward")[self.evals.column("step") > 0]
        return float(np.nanmax(found)) if np.isfinite(found).any() else None

    def reward_change(self) -> tuple[float, float] | None:
        """First and newest reward in training, None before there are any."""
        found = self.steps.column("reward")
        return (float(found[0]), float(found[-1])) if len(found) else None

    def _told(self, names: tuple[str, ...]) -> dict[int, dict[str, float]]:
        """Numbers of the evaluations by step, without those that a run doesn't tell."""
        rows = zip(*(self.evals.column(name).tolist() for name in ("step", *names)), strict=True)
        return {
            int(step): {name: value for name, value in zip(names, values, strict=True) if math.isfinite(value)}
            for step, *values in rows
        }

    @property
    def has_pairs(self) -> bool:
        """Whether the run learns from preference pairs, as far as its journal tells."""
        known = [series.column("reward_accuracy") for series in (self.steps, self.evals)]
        return any(len(values) and np.isfinite(values[0]) for values in known)

    @property
    def has_labels(self) -> bool:
        """Whether the run learns from answers labeled good or bad, as far as its journal tells."""
        known = [series.column("kl") for series in (self.steps, self.evals)]
        return self.has_pairs and any(len(values) and np.isfinite(values[0]) for values in known)

    @property
    def has_teacher(self) -> bool:
        """Whether the run learns from a bigger model, as far as its journal tells."""
        known = [series.column("agreement") for series in (self.steps, self.evals)]
        return any(len(values) and np.isfinite(values[0]) for values in known)

    @property
    def has_steps(self) -> bool:
        """Whether the run judges steps of solutions, as far as its journal tells."""
        known = [series.column("step_accuracy") for series in (self.steps, self.evals)]
        return any(len(values) and np.isfinite(values[0]) for values in known)

    @property
    def has_classes(self) -> bool:
        """Whether the run sorts texts into classes, as far as its journal tells."""
        known = [series.column("accuracy") for series in (self.steps, self.evals)]
        return any(len(values) and np.isfinite(values[0]) for values in known)

    @property
    def writes(self) -> bool:
        """Whether the model writes texts; one that scores them can't be asked anything."""
        return self.setup.get("writes") is not False

    @property
    def has_weights(self) -> bool:
        """Whether there is something trained that can be used."""
        made = self.status.state is RunState.FINISHED and "adapter" in self.status.artifacts
        return self.status.last_checkpoint_step > 0 or (made and self.adapter_problem is None)

    def loss_change(self) -> tuple[float, float] | None:
        """First and newest finite training loss, None before there are any."""
        losses = self.steps.column("loss")
        finite = losses[np.isfinite(losses)] if len(losses) < 1000 else losses[[0, -1]]
        if not len(finite) or not all(math.isfinite(value) for value in (finite[0], finite[-1])):
            return None
        return float(finite[0]), float(finite[-1])


_HANDLERS: dict[str, Callable[[DashboardModel, Event], None]] = {
    "phase": DashboardModel._on_phase,
    "setup": DashboardModel._on_setup,
    "eval": DashboardModel._on_eval,
    "sample": DashboardModel._on_sample,
    "answers": DashboardModel._on_answers,
    "rollouts": DashboardModel._on_rollouts,
    "comparison": DashboardModel._on_comparison,
    "ack": DashboardModel._on_ack,
    "checkpoint": DashboardModel._on_checkpoint,
    "log": DashboardModel._on_log,
    "warning": DashboardModel._on_warning,
    "error": DashboardModel._on_error,
    "result": DashboardModel._on_result,
}
