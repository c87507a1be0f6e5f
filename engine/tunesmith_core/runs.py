"""Run folders: layout, creation, lease and state.

A run folder is the whole truth about a run and can be moved or copied. Its state is never stored: it is folded from
the journal and, where the journal has no end, decided by whether the supervisor that holds the lease still lives.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith_core import adapter_folders, files, paths
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.folder_switch import EARLIER_PREFIX, sweep_switches
from tunesmith_core.json_values import is_count, is_time
from tunesmith_core.locks import is_locked
from tunesmith_core.messages import LISTED, Message, joined
from tunesmith_core.operations.folder import Operation
from tunesmith_core.preferences import of_event
from tunesmith_core.process_identity import ProcessIdentity
from tunesmith_core.protocol import Event, JournalReader
from tunesmith_core.spec import RunSpec

MAX_NAME_CHARS = 60
STAGING_PREFIX = ".new-"

SILENT_S = 10.0
SILENT_FREE_BYTES = 1 << 16
"""A run that works writes a reading every other second: silent for so long, with so little space, it can't write."""

SUPERVISED = {"TUNESMITH_SUPERVISED": "1"}
"""Variable of an engine whose supervisor holds the run's lock; one that was started by hand takes it by itself."""

HEADERS = ("spec.json", "run.json")
"""What a run begins with; a folder with one of them is a run, damaged or not."""

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
"""Without each of them an adapter can't be loaded."""

CONFIG_FILE = "config.json"
"""Without it a whole model can't be loaded."""

CHECKPOINT_MANIFEST = "MANIFEST.json"
"""Written last into a checkpoint's folder: what it holds, with hashes."""


class RunState(enum.StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    PAUSED = "paused"
    """The disk can't be written: the run keeps all it has in memory and continues by itself once it can."""
    STOPPING = "stopping"
    FINALIZING = "finalizing"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DAMAGED = "damaged"
    """A file that says what the run is can't be read; see `Run.damage`."""

    @property
    def live(self) -> bool:
        """Whether processes work on the run or wait to do so."""
        return self in _LIVE


_LIVE = frozenset(
    {
        RunState.QUEUED,
        RunState.PREPARING,
        RunState.RUNNING,
        RunState.PAUSED,
        RunState.STOPPING,
        RunState.FINALIZING,
    }
)

PAUSED_PHASE = "paused"
"""Begins when the disk can't be written, and ends with the phase that continues."""

_PHASE_STATES = {
    "training": RunState.RUNNING,
    "evaluating": RunState.RUNNING,
    "saving": RunState.FINALIZING,
    PAUSED_PHASE: RunState.PAUSED,
}
"""State that a phase brings; every other phase is preparation."""

FIRST_SAVED_STEP = 1
"""A new run saves after this step already. Who never came further has nothing to lose by beginning again."""

QUEUED_PHASE = "queued"
"""Written by the supervisor when it takes a run over, so that a resumed run does not look ended while it waits."""


@dataclass(slots=True)
class RunStatus:
    """What the journal says about a run, for lists and headers.

    Times are seconds since 1970; losses are in nats per token, or per pair. `obstacle` is the code of what a paused run
    waits for, `pause_reason` the sentence about it.
    `preferences` are those of the newest evaluation of a run that learns from pairs, `reward` and `eval_reward` the
    means of the newest step and evaluation of one that learns from rewards.
    `num_rows` of the data files, of which `num_skipped_rows` are not trained on.
    """

    state: RunState = RunState.QUEUED
    phase: str = ""
    step: int = 0
    total_steps: int = 0
    num_rows: int = 0
    num_skipped_rows: int = 0
    loss: float | None = None
    eval_loss: float | None = None
    best_eval_loss: float | None = None
    first_eval_loss: float | None = None
    preferences: dict[str, float] = field(default_factory=dict)
    reward: float | None = None
    eval_reward: float | None = None
    tokens_per_s: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    last_event_at: float | None = None
    paused_since: float | None = None
    paused_s: float = 0.0
    last_checkpoint_step: int = 0
    device_name: str = ""
    obstacle: str = ""
    pause_reason: str = ""
    error: dict[str, Any] | None = None  # Any: the fields of an error event
    artifacts: dict[str, str] = field(default_factory=dict)

    def mark(self, run: Run, damage: TunesmithError | None) -> None:
        """Say that a run that nobody works on is damaged."""
        if damage and not run.is_supervised():
            self.state, self.error = RunState.DAMAGED, damage.to_dict()

    def fold(self, event: Event) -> None:
        """Take one event into account; events of one journal come in order."""
        data = event.data
        before, self.last_event_at = self.last_event_at, event.t
        match event.type:
            case "hello":
                self.state, self.phase, self.error, self.ended_at = RunState.PREPARING, "starting", None, None
                self.started_at = self.started_at or event.t
                self.paused_s += event.t - (self.paused_since or event.t)
                self.paused_since = None
                self.device_name = data.get("device_name") or self.device_name
                self.step = data.get("resumed_from_step") or self.step
            case "phase" if data.get("name") == QUEUED_PHASE:
                self.state, self.phase, self.error, self.ended_at = RunState.QUEUED, QUEUED_PHASE, None, None
                self.paused_since = self.paused_since or (before if self.started_at else None)
            case "phase":
                self.phase = data.get("name", "")
                if self.state is not RunState.STOPPING or self.phase == "saving":
                    self.state = _PHASE_STATES.get(self.phase, RunState.PREPARING)
                paused = self.phase == PAUSED_PHASE
                self.obstacle, self.pause_reason = (data.get(key, "") if paused else "" for key in ("code", "message"))
            case "setup":
                self.total_steps = data.get("total_steps") or 0
                self.num_rows, self.num_skipped_rows = counted_rows(data)
            case "step":
                if self.state is RunState.PAUSED:
                    # A pause that was only seen from outside has no end in the journal.
                    self.state, self.phase = RunState.RUNNING, "training"
                    self.obstacle = self.pause_reason = ""
                self.step, self.loss = data.get("step") or self.step, data.get("loss")
                self.reward = data.get("reward")
                self.tokens_per_s = data.get("tokens_per_s")
            case "eval":
                self._fold_eval(data.get("loss"), data.get("step") or 0)
                self.preferences, self.eval_reward = of_event(data), data.get("reward")
            case "checkpoint":
                self.last_checkpoint_step = data.get("step") or 0
            case "stopping" if self.state.live:
                self.state = RunState.STOPPING
            case "error":
                self.error = data
            case "result":
                self._fold_result(event)
        if self.state is RunState.RUNNING and self.phase == "training" and 0 < self.total_steps <= self.step:
            # Of training nothing is left; the engine saves, after it has asked its questions.
            self.state = RunState.FINALIZING

    @property
    def final_eval_loss(self) -> float | None:
        """The newest held-out loss of what was trained, which is what a run saves; None where that was not measured."""
        return self.eval_loss if self.best_eval_loss is not None else None

    def lasted_s(self, now: float) -> float | None:
        """Return for how many seconds an engine worked on the run, None before the first one.

        Args:
            now: seconds since 1970.
        """
        if self.started_at is None:
            return None
        end = self.paused_since or self.ended_at or (now if self.state.live else self.last_event_at) or now
        return end - self.started_at - self.paused_s

    def _fold_eval(self, loss: float | None, step: int) -> None:
        self.eval_loss = loss
        if loss is not None:
            self.first_eval_loss = loss if self.first_eval_loss is None else self.first_eval_loss
        # That of the untrained model is no result of the run.
        if loss is not None and step:
            self.best_eval_loss = loss if self.best_eval_loss is None else min(loss, self.best_eval_loss)

    def _fold_result(self, event: Event) -> None:
        status = event.data.get("status")
        self.state = RunState(status) if status in ("finished", "stopped", "failed") else RunState.FAILED
        self.phase = self.obstacle = self.pause_reason = ""
        self.step = event.data.get("step") or self.step
        self.ended_at = event.t
        self.artifacts = event.data.get("artifacts") or {}


def counted_rows(setup: dict[str, Any]) -> tuple[int, int]:  # Any: JSON values
    """Return how many rows the data of a run has and how many were skipped, by its event "setup"."""
    used, held_out, skipped = (setup.get(f"num_{name}_rows") or 0 for name in ("train", "eval", "skipped"))
    return used + held_out + skipped, skipped


@dataclass(frozen=True, slots=True)
class Run(Operation):
    """A run folder; its name is unique among the runs of a data root."""

    @property
    def lock_path(self) -> Path:
        """Locked by the supervisor as long as it works on the run."""
        return self.path / "run.lock"

    @property
    def heartbeat_path(self) -> Path:
        """Touched once a second by the engine; its modification time is the last sign of life."""
        return self.path / "heartbeat"

    @property
    def engine_log_path(self) -> Path:
        """What the engine printed, capped."""
        return self.path / "engine.log"

    @property
    def supervisor_log_path(self) -> Path:
        """What the supervisor printed; empty unless it broke."""
        return self.path / "supervisor.log"

    @property
    def checkpoints_path(self) -> Path:
        """The folder of checkpoints, `step-000060` each."""
        return self.path / "checkpoints"

    @property
    def adapter_path(self) -> Path:
        """The product: a PEFT adapter folder; of full fine-tuning, once it is there, the folder of the whole model."""
        return self.model_path if self.model_path.is_dir() else self.path / "adapter"

    @property
    def model_path(self) -> Path:
        """The product of full fine-tuning: a transformers folder."""
        return self.path / "model"

    @property
    def report_path(self) -> Path:
        """The page about the run, once somebody asked for one."""
        return self.path / "report.html"

    @property
    def tmp_path(self) -> Path:
        """Where the adapter is made before it takes its place."""
        return self.path / "tmp"

    def adapter_problem(self, status: RunStatus) -> TunesmithError | None:
        """Return what is missing of the adapter that a run has made, None when it is whole; looks at sizes only.

        Args:
            status: where the run stands.
        """
        made = status.state is RunState.FINISHED or self.adapter_path.name in status.artifacts.values()
        is_whole = self.adapter_path == self.model_path
        needed = (CONFIG_FILE,) if is_whole else ADAPTER_FILES
        missing = [name for name in needed if not _has_content(self.adapter_path / name)] if made else []
        if made and is_whole and not any(map(_has_content, self.model_path.glob("*.safetensors"))):
            missing.append("model.safetensors")
        if not missing:
            return None
        hint = Message("Restore the folder from a backup, or duplicate the run to train again.")
        saved = sorted(self.checkpoints_path.glob(f"step-*/{CHECKPOINT_MANIFEST}"))
        if saved:
            hint = Message("{hint} Its newest checkpoint is {path}.", hint=hint, path=saved[-1].parent)
        path = self.adapter_path / missing[-1]
        return TunesmithError("run-damaged", "{path} is missing or empty.", hint=hint, path=path)

    def saved_files(self) -> set[tuple[str, int]]:
        """Return names and sizes in bytes of the files that are being saved now; empty when nothing is."""
        found = set()
        for folder in (*self.checkpoints_path.glob(".*"), *self.tmp_path.glob("*")):
            # It may get its final name, or be gone, while it is looked at.
            with contextlib.suppress(OSError):
                found |= {(str(path), path.stat().st_size) for path in (folder, *folder.iterdir())}
        return found

    def sweep(self) -> None:
        """Bring to an end what a killed engine left; only while nobody works on the run. Raises OSError."""
        was_model = (self.tmp_path / f"{EARLIER_PREFIX}{self.model_path.name}").exists()
        sweep_switches(self.tmp_path, self.model_path if was_model else self.adapter_path)

    @property
    def created_at(self) -> float:
        """When the run was created, in seconds since 1970; 0 when the header is damaged."""
        try:
            created_at = files.read_json(self.path / "run.json")["created_at"]
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0
        return float(created_at) if is_time(created_at) else 0.0

    def is_proven(self) -> bool:
        """Return whether Tunesmith surely made this folder as a run: header and settings are as it writes them."""
        try:
            header, spec = files.read_json(self.path / "run.json"), files.read_json(self.spec_path)
            versions = is_count(header["version"]) and is_count(spec["version"])
            return bool(versions and header["version"] and spec["version"] and self.created_at)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def damage(self) -> TunesmithError | None:
        """Return what keeps the run from being read or resumed, None when its header and settings are sound."""
        return self.examined(self.created_at)[1]

    def examined(self, created_at: float) -> tuple[RunSpec | None, TunesmithError | None]:
        """Return the settings, None when they can't be read, and what is damaged; see `created_at` and `damage`."""
        try:
            spec = self.load_spec()
        except TunesmithError as error:
            # Values that this version does not take may be another version's, or those of a method that it lacks.
            sound = error.code == "spec-too-new" or (error.code == "spec-invalid" and self.is_proven())
            return None, None if sound else error
        if created_at:
            return spec, None
        return spec, TunesmithError("run-damaged", "{path} is missing or damaged.", path=self.path / "run.json")

    def load_spec(self) -> RunSpec:
        """Return the frozen spec, with the copies of adapters that the run keeps.

        Raises:
            UserError: when it is missing or damaged.
        """
        spec = RunSpec.load(self.spec_path)
        adapter_folders.kept_in(self.path, spec)
        return spec

    def supervisor(self) -> ProcessIdentity | None:
        """Return the supervisor named by the lease, alive or not, or None when there is no readable lease."""
        return self.leased("supervisor")

    def is_supervised(self) -> bool:
        """Return whether a supervisor works on this run now."""
        supervisor = self.supervisor()
        return is_locked(self.lock_path) or (supervisor is not None and supervisor.alive())

    def status(self) -> RunStatus:
        """Read the whole journal and return where the run stands; an index may cache the folding, see `settle`."""
        status = RunStatus()
        reader = JournalReader(self.journal_path)
        for event in reader.read_all():
            status.fold(event)
        status.mark(self, self.damage() or reader.damage())
        return settle(self, status)


def _has_content(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def settle(run: Run, folded: RunStatus) -> RunStatus:
    """Turn a live state into `interrupted` when nobody works on the run, into `paused` when its disk silences it."""
    if folded.state.live and not run.is_supervised():
        folded.state = RunState.INTERRUPTED
    elif silence := silenced(run, folded, time.time()):
        folded.fold(silence)
    return folded


def silenced(run: Run, status: RunStatus, now: float) -> Event | None:
    """Return the pause that a live run can't write into its journal because the disk takes nothing, None without one.

    Args:
        run: the run.
        status: where it stands by its journal.
        now: seconds since 1970.
    """
    working = status.state.live and status.state not in (RunState.QUEUED, RunState.PAUSED)
    if not working or now - (status.last_event_at or now) < SILENT_S:
        return None
    problem = _disk_problem(run.path)
    return Event(0, status.last_event_at or now, "phase", pause_fields(problem)) if problem else None


def _disk_problem(folder: Path) -> TunesmithError | None:
    if not os.access(folder, os.W_OK):
        exists = folder.exists()
        return TunesmithError("permission-or-antivirus", "{path} can't be written.", path=folder) if exists else None
    if files.free_bytes(folder) < SILENT_FREE_BYTES:
        return wrap(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)))
    return None


def pause_fields(problem: TunesmithError) -> dict[str, Any]:  # Any: JSON values
    """Return the fields of the phase that begins when a problem with the disk makes a run wait."""
    return {"name": PAUSED_PHASE, "code": problem.code, "message": problem.message}


def unsaved(problem: TunesmithError, saved_step: int, step: int | None = None) -> TunesmithError:
    """Return how a run ends that was stopped while its disk took nothing.

    Args:
        problem: with the disk.
        saved_step: of the newest checkpoint, 0 without one.
        step: which the run has reached, where that is known.
    """
    code, reason = problem.code, problem.message
    if saved_step and saved_step == step:
        words = Message("{reason} Step {step} is saved, but the adapter isn't.", reason=reason, step=step)
    elif saved_step:
        words = Message("{reason} Steps after {step} were not saved.", reason=reason, step=saved_step)
    else:
        words = Message("{reason} Nothing was saved.", reason=reason)
    full = code == "disk-full"
    if saved_step:
        free, other = Message("Free some space, then resume the run."), Message(
            "Make the folder writable, then resume the run."
        )
    else:
        free, other = Message("Free some space, then start the run again."), Message(
            "Make the folder writable, then start the run again."
        )
    return TunesmithError(code, words, hint=free if full else other)


def slug(text: str) -> str:
    """Return a name that is safe as a folder name on every system."""
    safe = re.sub(r"[^\w.-]+", "-", text.strip(), flags=re.UNICODE).strip("-. ").lower()[:MAX_NAME_CHARS].rstrip("-. ")
    reserved = re.fullmatch(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", safe)
    return f"run-{safe}" if reserved or not safe else safe


def default_name(spec: RunSpec) -> str:
    """Return a run name made from data and model."""
    return f"{Path(spec.data.sources[0].path).stem}-{Path(spec.model.path).name}"


def create_run(spec: RunSpec, runs_dir: Path | None = None) -> Run:
    """Create a run folder with a frozen spec and return it.

    Raises:
        OSError: when the folder can't be written; nothing is left behind.
    """
    parent = runs_dir or paths.runs_dir()
    files.private_folder(parent)
    base = slug(spec.name or default_name(spec))
    staging = parent / f"{STAGING_PREFIX}{base}-{time.time_ns():x}"
    files.private_folder(staging)
    try:
        adapter_folders.keep(spec, staging)
        for attempt in range(1, 10_000):
            name = paths.numbered(base, attempt)
            if (parent / name).exists():
                continue
            # A person tells runs apart by their names wherever several stand together, also beside their folders.
            shown = paths.numbered(spec.name, attempt) if attempt > 1 else spec.name
            _write_header(staging, spec, shown if spec.name else name)
            try:
                files.publish_folder(staging, parent / name)
            except OSError:
                # Another process took the name meanwhile, or the disk failed; only the first is worth another try.
                if not (parent / name).exists():
                    raise
                continue
            return Run(parent / name)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    raise AssertionError("ten thousand runs of one name")  # pragma: no cover


def _write_header(folder: Path, spec: RunSpec, name: str) -> None:
    files.private_folder(folder / "control")
    now = datetime.datetime.now(datetime.UTC)
    files.atomic_write_json(folder / "spec.json", {**spec.to_dict(), "name": name})
    files.atomic_write_json(
        folder / "run.json", {"version": 1, "created_at": now.timestamp(), "created": now.isoformat(timespec="seconds")}
    )


def iter_runs(runs_dir: Path | None = None) -> Iterator[Run]:
    """Yield the runs of a data root, oldest first."""
    yield from (run for _, run in dated_runs(runs_dir))


def dated_runs(runs_dir: Path | None = None) -> list[tuple[float, Run]]:
    """Return when the runs of a data root were created, and the runs, oldest first."""
    found = [(run.created_at, run) for run in map(Run, _run_folders(runs_dir or paths.runs_dir()))]
    return sorted(found, key=lambda each: (each[0], each[1].id))


def _run_folders(parent: Path) -> Iterator[Path]:
    """Yield the folders that hold at least one of the two files that every run begins with."""
    try:
        names = [name for name in os.listdir(parent) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        folder = os.path.join(parent, name)  # noqa: PTH118 - twice as fast as Path, for five thousand of them
        if any(os.path.lexists(f"{folder}/{each}") for each in HEADERS):
            yield Path(folder)


LATEST = "latest"
"""Stands for the run that was created last, where none has this for its id."""


def open_run(name: str, runs_dir: Path | None = None) -> Run:
    """Return the run of an id, of a folder path or of a name that a person gave it, or the latest.

    A bare name is an id and never a folder that happens to lie where the person is.

    Raises:
        UserError: `run-not-found`, `run-ambiguous` for the name of several.
    """
    parent = runs_dir or paths.runs_dir()
    path = parent / name if Path(name).name == name != ".." else Path(name)
    if name and "\0" not in name and any(os.path.lexists(path / each) for each in HEADERS):
        return Run(path.absolute())
    newest_first = [run for _, run in reversed(dated_runs(parent))]
    wanted = newest_first[:1] if name == LATEST else called(name, newest_first)
    if not wanted:
        raise TunesmithError("run-not-found", "There is no run named {name!r} in {parent}.", name=name, parent=parent)
    return Run(wanted[0].path.absolute())


def called(name: str, runs: Iterable[Run]) -> list[Run]:
    """Return the one run of a name that a person gave it; [] where none has it.

    Raises:
        UserError: `run-ambiguous`, with the ids in the order of the runs.
    """
    found = [run for run in runs if display_name(run) == name]
    if len(found) > 1:
        raise TunesmithError(
            "run-ambiguous",
            "{num} runs are named {name!r}, newest first: {ids}.",
            num=len(found),
            name=name,
            ids=joined((run.id for run in found), LISTED),
        )
    return found


def enter(run: Run) -> Run:
    """Make a run's folder the working folder of this process and return the run as it is named from there.

    So everything stays together when a person renames the folder meanwhile, and nothing goes to a run that took its
    name. (Windows refuses to rename it.)

    Raises:
        OSError: when the folder is gone.
    """
    os.chdir(run.path)
    return Run(Path())


def display_name(run: Run) -> str:
    """Return the name a person gave the run, or its id when the spec can't be read."""
    try:
        return run.load_spec().name or run.id
    except TunesmithError:
        return run.id
