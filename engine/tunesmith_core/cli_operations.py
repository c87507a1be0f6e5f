"""What the commands of operations say at the end: sentences and tables for a person, nothing more with `--json`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from tunesmith_core import export_proof, exports, rated, terminal
from tunesmith_core.errors import EXIT_DONE
from tunesmith_core.hub import checked_id
from tunesmith_core.messages import Message, joined, said
from tunesmith_core.operations.command import do, run, spec_of
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.export import EXPORT
from tunesmith_core.operations.kinds.hub import PUSH, PushSpec

Answer = Mapping[str, Any]  # Any: JSON values


def say_export(answer: Answer) -> None:
    """Say what was exported, how near it is to the trained model, and what uses it."""
    proof = answer["proof"]
    terminal.say(joined([export_proof.title(proof), Message("{path} ({size})", **_place(answer))], ": "))
    if proof:
        terminal.say(joined([export_proof.figures(proof), export_proof.NATS_HELP]))
    for line in exports.facts(answer):
        terminal.say(line)
    for command in answer["commands"]:
        terminal.say(Message("to use it: {command}", command=command))


def export(arguments: Namespace) -> int:
    """Export a run, and bring the export to a hub where a repository is named."""
    hub_id = arguments.push and checked_id(arguments.push)
    answer = do(EXPORT, spec_of(EXPORT, arguments), say_export, as_json=arguments.json)
    if not hub_id:
        return EXIT_DONE
    if not arguments.json:
        values = {"size": terminal.size(answer["bytes"]), "id": hub_id}
        private = Message("uploading {size} to {id}, private", **values)
        terminal.say(Message("uploading {size} to {id}, public", **values) if arguments.public else private)
    spec = PushSpec(AbsolutePath(answer["path"]), hub_id, arguments.public)
    return run(PUSH, spec, lambda told: terminal.say(exports.on_the_hub(told)), as_json=arguments.json)


def say_import(answer: Answer) -> None:
    """Say which model folder a GGUF file became."""
    terminal.say(Message("{path} ({size})", **_place(answer)))


def say_libraries(answer: Answer) -> None:
    """Say which versions there are and what they see of this computer."""
    missing = said(Message("not installed"))
    memory = {"free": terminal.gib(answer["host_available_bytes"]), "all": terminal.gib(answer["host_total_bytes"])}
    rows = [
        ("Python", answer["python"]),
        (said(Message("System")), answer["system"]),
        *((name, version or missing) for name, version in answer["packages"].items()),
        ("CUDA", answer["cuda"] or said(Message("none"))),
        (said(Message("CPU threads")), str(answer["cpu_threads"])),
        (said(Message("Memory")), said(Message("{free} of {all} free", **memory))),
        *((said(Message("GPU {number}", number=gpu["index"])), said(_gpu(gpu))) for gpu in answer["gpus"]),
    ]
    terminal.say(terminal.table((said(Message("what")), said(Message("found"))), rows))


def say_selftest(answer: Answer) -> None:
    """Say of each step whether it works here."""
    for step in answer["steps"]:
        terminal.say(Message("{step}: {outcome}", step=Message(step["title"]), outcome=_outcome(step)))
    if answer["state"] == "ok":
        device = Message("the GPU") if answer["device"] == "cuda" else Message("the CPU")
        terminal.say(Message("Training works on {device}. It took {time}.", device=device, time=_seconds(answer)))


def say_bench(_answer: Answer) -> None:
    """Say nothing: each workload was told when it was done."""


def say_rating(answer: Answer) -> None:
    """Say what a model says of a text."""
    for sentence in rated.words(answer):
        terminal.say(sentence)


def say_problems(answer: Answer) -> None:
    """Say where the problems are, how many there are, and whether that is fewer than were asked for."""
    for name, words in (
        ("train", Message("{num:,} problems to train on: {path}", num=answer["num_train"], path=answer["train"])),
        ("held_out", Message("{num:,} problems held out: {path}", num=answer["num_held_out"], path=answer["held_out"])),
    ):
        if answer[name]:
            terminal.say(words)
    for note in answer["notes"]:
        terminal.note(note)


SAY: Mapping[str, Callable[[Any], None]] = {  # Any: JSON values
    "import-gguf": say_import,
    "libraries": say_libraries,
    "selftest": say_selftest,
    "bench": say_bench,
    "rate": say_rating,
    "problems": say_problems,
}
"""By the name of the kind; the answer of any other is printed as JSON."""


def _place(answer: Answer) -> dict[str, str]:
    return {"path": answer["path"], "size": terminal.size(answer["bytes"])}


def _gpu(gpu: Answer) -> Message:
    free, total = terminal.gib(gpu["free_bytes"]), terminal.gib(gpu["total_bytes"])
    words = "{name}, compute capability {capability}, {free} of {total} free"
    return Message(words, name=gpu["name"], capability=gpu["capability"], free=free, total=total)


def _outcome(step: Answer) -> Message:
    match step["state"]:
        case "ok":
            return Message("works ({time})", time=_seconds(step))
        case "skipped":
            return Message("not needed here: {reason}", reason=step["details"]["reason"])
        case "failed":
            return Message("fails: {problem}", problem=step["error"]["message"])
        case _:
            return Message("not tried")


def _seconds(values: Answer) -> str:
    return f"{values['seconds']:.1f} s"
