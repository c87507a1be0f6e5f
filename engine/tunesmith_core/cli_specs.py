"""Commands of the command line that look at a spec before a run: plan, check, preview, and the presets."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith_core import (
    adapter_folders,
    cli_sources,
    datafmt,
    devices,
    held_out,
    measured,
    model_notes,
    planner,
    preflight,
    presets,
    rewards,
    terminal,
)
from tunesmith_core.errors import EXIT_DONE, TunesmithError, UserError
from tunesmith_core.hardware import Hardware, detect_hardware
from tunesmith_core.measured import Time
from tunesmith_core.messages import Message, joined, said
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.model_folder import base_folder
from tunesmith_core.objectives import REINFORCEMENT
from tunesmith_core.operations.kinds.engine import (
    MODEL_CHECK,
    PLAN_CHECK,
    PREVIEW,
    WORKBOOK_HEAD,
    HeadSpec,
    PreviewSpec,
)
from tunesmith_core.operations.kinds.words import WORDS
from tunesmith_core.operations.runner import conduct
from tunesmith_core.rows_look import RowsLook
from tunesmith_core.spec import RunSpec, idle_note
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_core.teachers import teacher_note

VERDICTS = {
    "fits": Message("The run fits."),
    "tight": Message("The run fits, but only just."),
    "exceeds": Message("The run does not fit."),
    "unmeasured": Message("Examples as long as the whole context do not fit. How long yours are is not known yet."),
}
PARTS = {
    "weights": Message("base model"),
    "adapter": Message("adapter and optimizer"),
    "training": Message("gradients and optimizer"),
    "activations": Message("intermediate results (activations)"),
    "logits": Message("predictions (logits)"),
    "teacher": Message("bigger model"),
    "answers": Message("answers while they are written"),
    "scoring": Message("reward models"),
    "runtime": Message("libraries"),
}
"""Words for the parts of the memory that a plan counts."""

REFUSALS = ("unknown_token", "too_long", "nothing_left")
"""What PREVIEW answers of rows that would stop a run, errors."""

ANSWERED_ITSELF = Message(
    "The model answers each prompt itself. What stands between [[ and ]] is what its answers should be."
)

TRAINED_ROW = Message("--- {place}: {num_trained_tokens} of {num_tokens} tokens are trained on")
SKIPPED_ROW = Message("--- {place}: skipped, {num_lost_tokens} tokens more than the context length")
ROW_FACTS = ("num_trained_tokens", "num_tokens", "num_lost_tokens")


def plan(arguments: Namespace) -> int:
    """Estimate memory, time and disk of a run without starting anything."""
    spec = cli_sources.read_spec(arguments.spec)
    sniffed = [
        datafmt.sniff(
            Path(source.path), encoding=source.encoding, format_name=source.format, columns=source.columns
        )
        for source in spec.data.sources
    ]
    preflight.check_run(spec)
    card = read_model_card(base_folder(spec.model.path, spec.model.revision))
    looked = _looked_at(spec)
    _check_weights(spec)
    rows = RowsLook.of(looked)
    file_rows = rows.examples(spec.data.sources, list(map(_num_rows, spec.data.sources, sniffed)))
    num_rows = _joined(file_rows, sum)
    is_measured, is_counted = rows.is_complete, rows.is_exact(spec.data.sources)
    longest = _joined([each.max_tokens(spec.data.system_prompt) for each in sniffed], max)
    hardware = hardware_of(spec)
    row_tokens = rows.row_tokens if is_measured else None
    found = measured.by_run(spec, hardware)
    time = measured.time_of(spec, hardware, card, found, num_rows, row_tokens)
    estimate = planner.plan(
        spec,
        hardware,
        card=card,
        num_rows=num_rows,
        file_rows=[num for num in file_rows if num is not None],
        longest_tokens=looked["longest_tokens"] if is_measured else longest,
        step_s=time.step_s,
        other_s=time.other_s,
    )
    possible = (
        preflight.raw_text_note(spec),
        adapter_folders.other_base(spec),
        planner.warmup_note(spec, estimate.total_steps),
        held_out.note(spec, num_rows, is_exact=is_counted),
        idle_note(spec),
        *preflight.pair_notes(spec),
        *preflight.class_notes(spec),
        teacher_note(spec),
        *model_notes.notes(card, spec),
        *looked.get("notes", ()),
    )
    notes = list(dict.fromkeys(note for note in possible if note))
    if arguments.json:
        terminal.say_json({**dataclasses.asdict(estimate), "notes": notes, "are_rows_counted": is_counted})
        return EXIT_DONE
    for note in notes:
        terminal.note(note)
    _say_plan(estimate, time, are_steps_exact=is_counted or spec.schedule.max_steps > 0)
    if spec.objective.kind in REINFORCEMENT:
        terminal.say(rewards.round_words(spec))
        terminal.say(Message("Rewards: {rewards}", rewards=rewards.described(spec.rollouts.rewards)))
    return EXIT_DONE


def _say_plan(estimate: planner.Plan, time: Time, *, are_steps_exact: bool) -> None:
    sizes = {name: terminal.gib(size) for name, size in estimate.parts.items()}
    disk = terminal.gib(estimate.disk_bytes)
    if not estimate.adapter_is_exact:
        sizes["adapter"], disk = _about(sizes["adapter"]), _about(disk)
    rows = [(said(PARTS[name]), said(size)) for name, size in sizes.items()]
    rows += [
        (said(Message("total")), terminal.gib(estimate.total_bytes)),
        (said(Message("free")), terminal.gib(estimate.available_bytes)),
    ]
    terminal.say(terminal.table((said(Message("Memory")), ""), rows))
    if estimate.least_bytes < estimate.total_bytes:
        terminal.say(
            Message(
                "Minimum, row by row and with activation checkpointing: {least_bytes}",
                least_bytes=terminal.gib(estimate.least_bytes),
            )
        )
    terminal.say(_verdict(estimate))
    if estimate.total_steps is not None:
        words = Message("Steps: {steps}") if are_steps_exact else Message("Steps: about {steps}")
        terminal.say(Message(words.template, steps=estimate.total_steps))
    terminal.say(_time(estimate, time))
    terminal.say(Message("Disk: {disk_bytes}", disk_bytes=disk))
    for fix in estimate.fixes:
        changes = ", ".join(f"{path} = {value}" for path, value in fix.changes.items())
        terminal.say(
            Message("Saves {saved_bytes}: {changes}", saved_bytes=terminal.gib(fix.saved_bytes), changes=changes)
        )


def _time(estimate: planner.Plan, time: Time) -> Message:
    """Return how long training takes and how that is known, or why it is not known."""
    if estimate.total_steps is None:
        return Message("Time: not known, because the number of rows is not.")
    if estimate.seconds is None:
        return Message(
            "Time: not known yet, because no run like this one has finished on this device. To measure a step: "
            "tunesmith check SPEC.json"
        )
    low, high = map(terminal.duration, estimate.seconds)
    words = Message("Time: {low} to {high}", low=low, high=high)
    if low == high:
        words = Message("Time: about {time}", time=low)
    if time.other_s is None:
        return Message("{time} for the steps, without loading, evaluation and saving", time=words)
    if not time.run:
        return words
    return Message('{time}, by the run "{run}" with the same model and method', time=words, run=time.run)


def _looked_at(spec: RunSpec) -> dict[str, Any]:  # Any: JSON values
    """Return the answer of PREVIEW. Without a training environment there is none.

    Raises:
        UserError: why the rows don't become tokens, that the model has no embedding for one or too few positions for
            them, or that a file has nothing to learn.
    """
    try:
        found: dict[str, Any] = conduct(PREVIEW, PreviewSpec(spec, num_rows=1)).get()  # Any: JSON values
    except UserError:
        raise
    except TunesmithError:
        return {}
    if problem := next(filter(None, map(found.get, REFUSALS)), None):
        raise TunesmithError.from_dict(problem)
    return found


def _check_weights(spec: RunSpec) -> None:
    """Refuse a model whose files hold other weights than it has. Without a training environment nobody can tell."""
    try:
        conduct(MODEL_CHECK, spec).get()
    except UserError:
        raise
    except TunesmithError:
        return


def _verdict(estimate: planner.Plan) -> Message:
    """Return whether a run fits, and how to know for certain."""
    return joined(
        [VERDICTS[estimate.verdict], Message("This is an estimate. To measure it: tunesmith check SPEC.json")]
    )


def _about(size: str) -> Message:
    return Message("about {size}", size=size)


def _num_rows(source: SourceSpec, sniffed: datafmt.Sniffed) -> int | None:
    """Return how many rows a file has, about; None where that can't be told."""
    estimate = sniffed.num_rows_estimate
    if estimate is None:
        # Only libraries can count its rows; what is wrong with them is told by PREVIEW.
        with contextlib.suppress(TunesmithError):
            estimate = conduct(WORKBOOK_HEAD, HeadSpec.of(source, num_rows=1)).get()["num_rows"]
    return estimate


def _joined(numbers: list[int | None], join: Callable[[list[int]], int]) -> int | None:
    """Return what the numbers of all files come to; None where that of one is unknown."""
    known = [number for number in numbers if number is not None]
    return join(known) if len(known) == len(numbers) else None


def hardware_of(spec: RunSpec) -> Hardware:
    """Return the device of this computer that a spec asks for. Raises EnvironmentProblem `driver-missing`."""
    found = detect_hardware()
    wanted = devices.device_of(spec).gpu_index
    for hardware in found:
        if hardware.gpu_index == wanted:
            return hardware
    if spec.hardware.device == "auto":
        return found[-1]
    raise TunesmithError("driver-missing", "There is no GPU {wanted} in this computer.", wanted=wanted)


def check(arguments: Namespace) -> int:
    """Check a spec as the start of a run does, then measure one real step of it."""
    spec = cli_sources.read_spec(arguments.spec)
    preflight.check(spec)
    found = conduct(PLAN_CHECK, spec).get()
    if arguments.json:
        terminal.say_json(found)
    else:
        terminal.say(
            Message(
                "One step on {device} took {time} and {memory} of memory.",
                device=found.get("device"),
                time=terminal.duration(found.get("step_s") or 0),
                memory=terminal.gib(found.get("peak_bytes") or 0),
            )
        )
        for note in found.get("notes", []):
            terminal.note(note)
    return EXIT_DONE


def preview(arguments: Namespace) -> int:
    """Show how rows of the data are rendered; what counts for the loss stands between [[ and ]]."""
    spec = PreviewSpec(cli_sources.read_spec(arguments.spec), arguments.rows, arguments.tokens)
    if spec.run.objective.kind in REINFORCEMENT and not arguments.json:
        terminal.note(ANSWERED_ITSELF)
    return show_preview(conduct(PREVIEW, spec).get(), as_json=arguments.json)


ANSWERS = {
    "worse": Message("{place}, worse answer"),
    "good": Message("{place}, good answer"),
    "bad": Message("{place}, bad answer"),
}
"""What stands above the answers that people have called something."""


def _marked(segment: dict[str, Any]) -> str:  # Any: JSON values
    """Return a text as it is, or with marks where it is trained; at the end of a step whether that is right."""
    if "is_right" in segment:
        # What is trained there is a line break.
        return f" [[{'+' if segment['is_right'] else '-'}]]{segment['text']}"
    return f"[[{segment['text']}]]" if segment["trained"] else str(segment["text"])


def show_preview(found: dict[str, Any], *, as_json: bool) -> int:  # Any: JSON values
    """Print the answer of PREVIEW."""
    if as_json:
        terminal.say_json(found)
        return EXIT_DONE
    are_several = len(found.get("reasons", [])) > 1
    for row in found.get("rows", []):
        words = SKIPPED_ROW if row.get("is_skipped") else TRAINED_ROW
        place = row["place"] if are_several else Message("line {line}", line=row["line"])
        if words_of_answer := ANSWERS.get(row.get("answer")):
            place = Message(words_of_answer.template, place=place)
        facts = {name: row[name] for name in ROW_FACTS if name in row}
        terminal.say(Message(words.template, place=place, **facts))
        terminal.say("".join(map(_marked, row["segments"])))
        if row.get("label"):
            terminal.say(Message("Label: {label}", label=row["label"]))
        if row.get("tokens"):
            terminal.say(_token_table(row["tokens"]))
    if found.get("pairs") == "chat":
        terminal.say(Message("Prompts and responses are trained as chats, by the chat template of the model."))
    for note in found.get("notes", []):
        terminal.note(note)
    for problem in found.get("problems", []):
        terminal.note(Message("line {line}: {message}", line=problem["line"], message=problem["message"]))
    return EXIT_DONE


def _token_table(tokens: list[dict[str, Any]]) -> str:  # Any: JSON values
    header = [said(Message("number")), said(Message("token")), said(Message("trained")), said(Message("control token"))]
    yes = said(Message("yes"))
    lines = (
        (str(each["id"]), json.dumps(each["text"], ensure_ascii=False), yes if each["trained"] else "", each["special"])
        for each in tokens
    )
    return terminal.table(header, lines)


def words(arguments: Namespace) -> int:
    """List words of the data that the model writes in many pieces, those first that would save most tokens."""
    found = conduct(WORDS, cli_sources.read_spec(arguments.spec)).get()
    if arguments.json:
        terminal.say_json(found)
        return EXIT_DONE
    if not found["words"]:
        terminal.say(Message("No word of the data is both frequent and written in many pieces."))
        return EXIT_DONE
    header = [said(Message("word")), said(Message("pieces")), said(Message("times"))]
    lines = ((each["word"], str(each["pieces"]), str(each["count"])) for each in found["words"])
    terminal.say(terminal.table(header, lines))
    terminal.say(Message("To teach some of them, list them in model.new_tokens and set adapter.embeddings to new."))
    return EXIT_DONE


def list_presets(arguments: Namespace) -> int:
    """List the presets with the settings that each changes."""
    found = {name: dict(presets.changes_of_method(arguments.method, name)) for name in presets.PRESETS}
    if arguments.json:
        terminal.say_json(found)
        return EXIT_DONE
    for name, changes in found.items():
        terminal.say(Message("{name} (default)", name=name) if name == presets.DEFAULT else name)
        for path, value in changes.items():
            terminal.say(Message("  {path} = {value}", path=path, value=value))
        rates = {kind: presets.changes_of_method(kind, name)[presets.LEARNING_RATE] for kind in presets.METHODS}
        others = ", ".join(f"{kind} {rate:g}" for kind, rate in sorted(rates.items()) if kind != arguments.method)
        terminal.say(Message("  learning rates of other methods: {rates}", rates=others))
    return EXIT_DONE
