"""Commands of the command line that work on runs: train, follow, stop, resume, ask, list and delete."""

from __future__ import annotations

import dataclasses
import signal
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tunesmith_core import cli_sources, files, hub, launch, paths, terminal, trash
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED, TunesmithError
from tunesmith_core.messages import Message, said
from tunesmith_core.preferences import Numbers, in_brief
from tunesmith_core.protocol import Event, JournalReader
from tunesmith_core.report import facts, page, pdf
from tunesmith_core.runs import Run, RunState, RunStatus, display_name, open_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library

ANSWER_POLL_S = 0.1
RUNS_HEADER = (
    *(Message("Run"), Message("State"), Message("Step"), Message("Loss or reward"), Message("Model"), Message("Data")),
)

TRASH_HEADER = (
    Message("Id"),
    Message("Kind"),
    Message("Deleted at"),
    Message("Size"),
    Message("Name"),
    Message("Folder"),
)
TRASH_KINDS = {"run": Message("run"), "model": Message("model")}

_ARTIFACTS = {"adapter": Message("adapter"), "model": Message("model")}
"""What the folders that a run made are called."""


def train(arguments: Namespace) -> int:
    """Start a run and follow it to its end."""
    spec = cli_sources.read_spec(arguments.spec)
    if arguments.no_kernels:
        spec.hardware.kernels = False
    _fetch_base_model(spec, arguments.json)
    run = launch.start(spec)
    if arguments.detach:
        return _tell_id(run, arguments.json)
    return follow_run(run, as_json=arguments.json)


def resume(arguments: Namespace) -> int:
    """Continue an ended run and follow it to its end."""
    run = open_run(arguments.run)
    offset = run.journal_path.stat().st_size if run.journal_path.exists() else 0
    _fetch_base_model(run.load_spec(), arguments.json)
    launch.resume(run)
    if arguments.detach:
        return _tell_id(run, arguments.json)
    return follow_run(run, as_json=arguments.json, offset=offset)


def _fetch_base_model(spec: RunSpec, as_json: bool) -> None:
    """Download a base model that a spec names by its hub id and that is not here yet: training needs no network."""
    progress = terminal.Progress()
    try:
        hub.fetch_base_model(spec.model, terminal.say_event if as_json else progress.show)
    finally:
        progress.close()


def follow(arguments: Namespace) -> int:
    """Follow a run that was started elsewhere; Ctrl-C here stops it like one of our own."""
    return follow_run(open_run(arguments.run), as_json=arguments.json)


def _tell_id(run: Run, as_json: bool) -> int:
    if as_json:
        terminal.say_json({"run": run.id, "path": str(run.path)})
    else:
        terminal.say(terminal.cell(run.id))
    return EXIT_DONE


def follow_run(run: Run, *, as_json: bool, offset: int = 0) -> int:
    """Show a run's events until it ends and return the exit code of its end."""
    progress = terminal.Progress()
    terminal.note(Message("run {run} in {path}", run=run.id, path=run.path))
    try:
        with _stopping_on_interrupt(run):
            status = launch.wait(run, terminal.say_event if as_json else progress.show, offset)
    except KeyboardInterrupt:
        progress.close()
        terminal.note(
            Message(
                "Detached. The run continues in the background. To see it again: tunesmith follow {run}", run=run.id
            )
        )
        return EXIT_DONE
    progress.close()
    return _end(run, status, as_json)


@contextmanager
def _stopping_on_interrupt(run: Run) -> Iterator[None]:
    """Turn the first Ctrl-C into a stop that saves, and the second into leaving."""
    asked = False

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        try:
            launch.stop(run, "save")
        except TunesmithError:
            # It has just ended by itself; the follower sees that too.
            return
        terminal.note()
        terminal.note(
            "Stopping after this step and saving. Press Ctrl-C again to let the run continue in the background."
        )

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(run: Run, status: RunStatus, as_json: bool) -> int:
    if status.state is RunState.FINISHED:
        if not as_json:
            for name, path in status.artifacts.items():
                terminal.say(Message("{name}: {path}", name=_ARTIFACTS.get(path, name), path=run.path / path))
            terminal.say(facts.verdict_on(facts.read(run)).sentence)
            several = Message("finished after {step} steps", step=status.step)
            terminal.say(Message("finished after 1 step") if status.step == 1 else several)
        return EXIT_DONE
    if status.state is RunState.STOPPED:
        terminal.note(
            Message("stopped at step {step}. To continue: tunesmith resume {run}", step=status.step, run=run.id)
        )
        return EXIT_STOPPED
    error = end_error(run, status)
    terminal.show_error(error)
    return error.exit_code


def end_error(run: Run, status: RunStatus) -> TunesmithError:
    """Return why a run failed or was interrupted."""
    if status.state is RunState.FAILED and status.error:
        return TunesmithError.from_dict(status.error)
    words = Message(
        "The processes of the run {run} ended without a result. See {log_path}.",
        run=run.id,
        log_path=run.supervisor_log_path,
    )
    if status.step > status.last_checkpoint_step > 0:
        saved = status.last_checkpoint_step
        words = Message("{reason} Steps after {step} were not saved.", reason=words, step=saved)
    return TunesmithError("engine-killed", words)


def stop(arguments: Namespace) -> int:
    """Ask a run to stop."""
    run = open_run(arguments.run)
    launch.stop(run, "discard" if arguments.discard else "save")
    terminal.say(Message("asked {run} to stop", run=run.id))
    return EXIT_DONE


def sample(arguments: Namespace) -> int:
    """Ask the model being trained a question."""
    run = open_run(arguments.run)

    def is_answer(event: Event) -> bool:
        return event.type == "sample" and event.data.get("prompt") == arguments.prompt

    terminal.say(str(_ask(run, "sample", is_answer, prompt=arguments.prompt).data.get("text")))
    return EXIT_DONE


def checkpoint(arguments: Namespace) -> int:
    """Ask for a checkpoint now."""
    answer = _ask(open_run(arguments.run), "checkpoint", lambda event: event.type == "checkpoint")
    terminal.say(Message("saved step {step} in {path}", step=answer.data.get("step"), path=answer.data.get("path")))
    return EXIT_DONE


def evaluate(run: Run) -> int:
    """Ask a run in progress for an evaluation now."""
    answer = _ask(run, "evaluate", lambda event: event.type == "eval")
    data = answer.data
    if "reward" in data:
        terminal.say(
            Message("reward {reward} at step {step}", reward=terminal.number(data["reward"]), step=data.get("step"))
        )
        return EXIT_DONE
    terminal.say(Message("loss {loss} at step {step}", loss=terminal.number(data.get("loss")), step=data.get("step")))
    if preferred := in_brief(data):
        terminal.say(preferred)
    return EXIT_DONE


def _ask(run: Run, command: str, is_answer: Callable[[Event], bool], **data: Any) -> Event:  # Any: JSON values
    """Send a command and wait for what comes of it.

    Raises:
        UserError: `run-not-live` when the run is not going, ends meanwhile or refuses the command.
    """
    offset = run.journal_path.stat().st_size if run.journal_path.exists() else 0
    identifier = launch.send(run, command, **data)
    reader = JournalReader(run.journal_path, offset)
    while True:
        supervised = run.is_supervised()
        for event in reader.read_all():
            if is_answer(event):
                return event
            if event.type == "ack" and event.data.get("id") == identifier and event.data.get("ok") is False:
                raise TunesmithError(
                    "run-not-live", "The run did not accept the command: {reason}", reason=event.data.get("message")
                )
        if not supervised:
            raise TunesmithError("run-not-live", "The run {run} ended before it answered.", run=run.id)
        time.sleep(ANSWER_POLL_S)


def _fields(status: RunStatus) -> dict[str, Any]:  # Any: JSON values
    # `asdict` copies what is in them, too, which takes a quarter of the time of a long list.
    return {field.name: getattr(status, field.name) for field in dataclasses.fields(status)}


def runs(arguments: Namespace) -> int:
    """List all runs, newest first."""
    with closing(Library(paths.library_path())) as library:
        library.refresh_all()
        summaries = library.list_runs()
    if arguments.json:
        terminal.say_json(
            [
                {"run": entry.run.id, "name": entry.name, "path": str(entry.run.path), "model": entry.model}
                | {"data": entry.data, "created": entry.created, "size_bytes": entry.size_bytes}
                | _fields(entry.status)
                for entry in summaries
            ]
        )
    elif not summaries:
        terminal.note("There are no runs yet.")
    else:
        rows = [
            (
                entry.run.id,
                said(_state(entry.status)),
                str(entry.status.step),
                _measured(entry.status),
                Path(entry.model).name,
                Path(entry.data).name,
            )
            for entry in summaries
        ]
        terminal.say(terminal.table(list(map(said, RUNS_HEADER)), rows))
    if problem := paths.read_only_problem():
        terminal.note(problem.message)
    return EXIT_DONE


def _state(status: RunStatus) -> str:
    """Return where a run stands, and of one that is paused what for."""
    if status.state is not RunState.PAUSED or not status.obstacle:
        return Message(status.state.value)
    full = status.obstacle == "disk-full"
    return Message("paused: the disk is full") if full else Message("paused: the disk can't be written")


def _measured(status: RunStatus) -> str:
    if status.reward is None:
        return terminal.number(status.loss)
    return said(Message("reward {reward}", reward=terminal.number(status.reward)))


def _skipped_rows(status: RunStatus) -> Message:
    return Message("{num_skipped} of {num_rows}", num_skipped=status.num_skipped_rows, num_rows=status.num_rows)


def _preferred(numbers: Numbers) -> list[tuple[str, str]]:
    """Return the line about how well held-out pairs or labels are told apart; none where nobody knows."""
    told = in_brief(numbers)
    label = Message("held-out answers") if "kl" in numbers else Message("held-out pairs")
    return [(label, said(told))] if told else []


def show(arguments: Namespace) -> int:
    """Say where one run stands."""
    run = open_run(arguments.run)
    status = run.status()
    if arguments.json:
        found = facts.read(run)
        outcome = {"verdict": facts.verdict_on(found).to_dict(), "answers": [each.to_dict() for each in found.answers]}
        terminal.say_json({"run": run.id, "path": str(run.path), **_fields(status), **outcome})
        return EXIT_DONE
    steps = f"{status.step} / {status.total_steps}" if status.total_steps else str(status.step)
    saved = status.last_checkpoint_step
    adapter_problem = run.adapter_problem(status)
    lines = [
        (Message("name"), display_name(run)),
        (Message("state"), said(_state(status))),
        (Message("step"), steps),
        *([(Message("skipped rows"), said(_skipped_rows(status)))] if status.num_skipped_rows else []),
        *_measurements(status),
        (Message("last checkpoint"), said(Message("step {step}", step=saved) if saved else Message("none"))),
        (Message("folder"), str(run.path)),
        *(
            (_ARTIFACTS.get(path, name), _artifact(run.path / path, adapter_problem))
            for name, path in status.artifacts.items()
        ),
    ]
    terminal.say("\n".join(f"{terminal.cell(said(label)) + ':':17}{terminal.cell(value)}" for label, value in lines))
    if status.state in (RunState.FINISHED, RunState.STOPPED):
        terminal.say(facts.verdict_on(facts.read(run)).sentence)
    if status.state is RunState.PAUSED:
        terminal.note(terminal.paused(status.pause_reason))
    damage = run.damage()
    if not damage and status.state is RunState.DAMAGED and status.error:
        damage = TunesmithError.from_dict(status.error)
    for problem in filter(None, (damage, adapter_problem)):
        terminal.show_error(problem)
    if status.state in (RunState.FAILED, RunState.INTERRUPTED):
        terminal.show_error(end_error(run, status))
    return EXIT_DONE


def _measurements(status: RunStatus) -> list[tuple[Message, str]]:
    """Return what a run has measured: of one that learns from rewards these, since its loss says nothing."""
    if status.reward is not None or status.eval_reward is not None:
        return [
            (Message("reward"), terminal.number(status.reward)),
            (Message("held-out reward"), terminal.number(status.eval_reward)),
        ]
    preferred = in_brief(status.preferences)
    return [
        (Message("loss"), terminal.number(status.loss)),
        (Message("evaluation loss"), terminal.number(status.eval_loss)),
        *([(Message("held-out pairs"), said(preferred))] if preferred else []),
    ]


def _artifact(path: Path, adapter_problem: TunesmithError | None) -> str:
    is_adapter = path.name == Run(path.parent).adapter_path.name
    return said(Message("{path} (missing)", path=path)) if adapter_problem and is_adapter else str(path)


def report(arguments: Namespace) -> int:
    """Write the report of a run and say what came of it."""
    run = open_run(arguments.run)
    path = arguments.to or run.report_path
    if path.suffix.lower() not in (".html", ".htm", pdf.SUFFIX):
        raise TunesmithError("usage", "{path}: a report is an .html or a .pdf file.", path=path)
    if not path.absolute().parent.is_dir():
        raise TunesmithError("usage", "The folder {path} does not exist.", path=path.absolute().parent)
    if path.is_dir():
        raise TunesmithError("usage", "{path} is a folder. Name a file.", path=path)
    write = pdf.write_pdf if path.suffix.lower() == pdf.SUFFIX else page.write
    verdict = write(run, path)
    if arguments.json:
        terminal.say_json({"run": run.id, "path": str(path), **verdict.to_dict()})
    else:
        terminal.say("\n".join(map(said, verdict.told)))
        terminal.say(Message("report: {path}", path=path))
    return EXIT_DONE


def spec(arguments: Namespace) -> int:
    """Print the frozen spec of a run, to be saved and started again."""
    terminal.say_json(open_run(arguments.run).load_spec().to_dict())
    return EXIT_DONE


def delete(arguments: Namespace) -> int:
    """Move a run's folder with checkpoints and adapter to the trash."""
    run = open_run(arguments.run)
    num_bytes = files.folder_bytes(run.path)
    deleted = trash.delete(run, force=arguments.force)
    terminal.say(Message("Moved to the trash: {path} ({size})", path=deleted.origin, size=terminal.size(num_bytes)))
    terminal.note(Message("To bring it back: tunesmith restore {id}", id=deleted.id))
    return EXIT_DONE


def restore(arguments: Namespace) -> int:
    """Bring a deleted run or model back from the trash."""
    terminal.say(Message("restored {path}", path=trash.restore(trash.find(arguments.item))))
    return EXIT_DONE


def show_trash(arguments: Namespace) -> int:
    """List what is in the trash, or delete it for good."""
    found = list(trash.contents())
    if arguments.json:
        terminal.say_json([_trash_values(each) for each in found])
    elif found:
        terminal.say(terminal.table(list(map(said, TRASH_HEADER)), map(_trash_row, found)))
    else:
        terminal.say(Message("The trash is empty."))
    if arguments.empty:
        for each in found:
            trash.erase(each)
        terminal.note(Message("Deleted for good: {count}.", count=len(found)))
    return EXIT_DONE


def _trash_values(deleted: trash.Deleted) -> dict[str, Any]:  # Any: JSON values
    return {
        "id": deleted.id,
        "kind": deleted.kind,
        "name": deleted.name,
        "path": str(deleted.origin),
        "deleted_at": deleted.deleted_at,
    }


def _trash_row(deleted: trash.Deleted) -> tuple[str, ...]:
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(deleted.deleted_at))
    size = terminal.size(files.folder_bytes(deleted.path))
    return (deleted.id, said(TRASH_KINDS[deleted.kind]), moment, size, deleted.name, str(deleted.origin))
