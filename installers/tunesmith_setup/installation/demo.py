"""Trains the bundled example headless, through the same supervisor and engine as the window, and says what came out."""

from __future__ import annotations

from pathlib import Path

from tunesmith_assets.samples import example_spec
from tunesmith_core import launch
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED, RunFailure, TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, RunState, RunStatus, display_name, iter_runs
from tunesmith_core.spec import RunSpec
from tunesmith_setup.progress import Progress, duration_text

STEPS_PER_LINE = 10
MAX_SAMPLE_CHARS = 120


def run(model: Path, progress: Progress, language: str = "en") -> int:
    """Train the example and print the held-out loss before and after, and where the adapter is.

    Returns:
        The exit code: 0 when the run finished, 5 when it was stopped.

    Raises:
        TunesmithError: what stopped the run.
    """
    started = _begin(RunSpec.from_dict(example_spec(language, str(model))))
    progress.note(Message("run {run} in {path}", run=started.id, path=started.path))
    phases: list[str] = []
    status = launch.wait(started, lambda event: _tell(event, phases, progress))
    if status.error:
        raise TunesmithError.from_dict(status.error)
    if status.state is RunState.STOPPED:
        progress.note("The run was stopped.")
        return EXIT_STOPPED
    if status.state is not RunState.FINISHED:
        raise RunFailure(
            "engine-crashed", "The run {run} ended without a result: {path}.", run=started.id, path=started.path
        )
    for line in summary(status, started.path):
        progress.note(line)
    return EXIT_DONE


def _begin(spec: RunSpec) -> Run:
    """Return the newest run of the example if it goes or can go on, else a new one."""
    for run in reversed(list(iter_runs())):
        if display_name(run) != spec.name:
            continue
        status = run.status()
        if status.state.live:
            return run
        if status.state is RunState.INTERRUPTED and launch.has_checkpoint(run):
            launch.resume(run)
            return run
        break
    return launch.start(spec)


def summary(status: RunStatus, run_path: Path) -> list[Message]:
    """Return the lines that say how a finished run went."""
    adapter = run_path / status.artifacts.get("adapter", "adapter")
    lines = [Message("adapter: {path}", path=adapter)]
    if status.first_eval_loss is not None and status.eval_loss is not None:
        before, after = f"{status.first_eval_loss:.3f}", f"{status.eval_loss:.3f}"
        lines.append(Message("evaluation loss: {before} before, {after} after", before=before, after=after))
    if status.started_at and status.ended_at:
        time = duration_text(status.ended_at - status.started_at)
        lines.append(Message("trained {step} steps in {time}", step=status.step, time=time))
    return lines


def _tell(event: Event, phases: list[str], progress: Progress) -> None:
    """Print what a person who waits wants to see of a journal; each phase once."""
    data = event.data
    if event.type == "phase" and data.get("name") not in phases:
        phases.append(str(data.get("name")))
        progress.note(Message("{phase} ...", phase=Message(str(data.get("name")))))
    elif event.type == "step" and data["step"] % STEPS_PER_LINE == 0:
        progress.note(Message("step {step}: loss {loss:.3f}", step=data["step"], loss=data.get("loss") or float("nan")))
    elif event.type == "eval":
        progress.note(
            Message(
                "step {step}: evaluation loss {loss:.3f}", step=data.get("step"), loss=data.get("loss") or float("nan")
            )
        )
    elif event.type == "sample":
        progress.note(
            Message(
                "step {step}: {prompt} -> {text}",
                step=data.get("step"),
                prompt=data.get("prompt"),
                text=str(data.get("text"))[:MAX_SAMPLE_CHARS],
            )
        )
    elif event.type == "warning":
        progress.note(Message("warning: {message}", message=data.get("message")))
