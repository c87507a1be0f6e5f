"""`tunesmith models`: the models on this computer, and those of a hub."""

from __future__ import annotations

import dataclasses
import math
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from typing import Any

from tunesmith_core import downloads, hub, model_library, terminal, trash
from tunesmith_core.command_line import Parser
from tunesmith_core.curated_models import CuratedModel, curated_models, has_words, own_list_path
from tunesmith_core.errors import EXIT_DONE, TunesmithError
from tunesmith_core.hardware import Hardware, detect_hardware
from tunesmith_core.hub_repository import HubModel
from tunesmith_core.messages import Message, said
from tunesmith_core.model_library import Shelved
from tunesmith_core.operations.kinds.hub import SearchSpec

LIST_HEADER = (
    Message("Model"),
    Message("Parameters"),
    Message("Size"),
    Message("License"),
    Message("Context"),
    Message("Chat template"),
    Message("QLoRA"),
    Message("LoRA"),
    Message("Runs"),
    Message("Kept by"),
)
SEARCH_HEADER = (Message("Model"), Message("Parameters"), Message("License"), Message("Access"), Message("Downloads"))
CURATED_HEADER = (Message("Model"), Message("Parameters"), Message("License"), Message("Context"))
ASKING = Message("Asking the model hub. Ctrl+C cancels.")
PLAN_HEADER = (Message("File"), Message("Size"))
FITS = {
    "fits": Message("fits"),
    "tight": Message("only just"),
    "exceeds": Message("too large"),
    "unmeasured": Message("depends on the data"),
}
MOST_FOUND = 1000
ID_HELP = Message("hub id of a model, such as org/name")
LICENSE_HELP = Message("license, such as apache-2.0")
NAME_HELP = Message("name of a model, as `tunesmith models list` shows it, or its folder")


def add_commands(parser: Parser) -> None:
    """Declare what can be done with models."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, command: Callable[[Namespace], int], help_text: str) -> Parser:
        sub: Parser = commands.add_parser(name, prog=f"tunesmith models {name}", help=help_text, description=help_text)
        sub.set_defaults(command=command)
        sub.add_argument("--json", action="store_true", help="print JSON for programs")
        return sub

    find = add("search", search, "search the model hub")
    find.add_argument("text", nargs="?", default="", metavar="TEXT", help="in the names of models")
    find.add_argument("--family", default="", metavar="NAME", help="kind of the model, such as qwen3")
    find.add_argument("--license", "--licence", dest="licence", default="", metavar="NAME", help=LICENSE_HELP)
    find.add_argument("--smallest", type=billions, default=0.0, metavar="B", help="parameters in billions, at least")
    find.add_argument("--largest", type=billions, default=0.0, metavar="B", help="parameters in billions, at most")
    find.add_argument("--limit", type=count, default=30, metavar="N", help="how many at most (30)")
    find.add_argument("--curated", action="store_true", help="search the list that ships with Tunesmith, offline")
    fetch = add("get", get, "download a model, or continue an interrupted download")
    fetch.add_argument("id", metavar="ORG/NAME", help=ID_HELP)
    fetch.add_argument("--revision", default="", metavar="NAME", help="commit, tag or branch (the newest)")
    fetch.add_argument("--dry-run", action="store_true", help="only show the files and their sizes")
    add("list", list_models, "list the models on this computer")
    add("verify", verify, "compare a downloaded model with the hashes of the hub").add_argument(
        "name", metavar="MODEL", help=NAME_HELP
    )
    away = add("remove", remove, "move a model to the trash")
    away.add_argument("name", metavar="MODEL", help=NAME_HELP)
    away.add_argument("--force", action="store_true", help="also a model that runs need")


def search(arguments: Namespace) -> int:
    """Show the models of the hub that fit, or those of our list."""
    if arguments.curated:
        return _search_curated(arguments)
    names = [field.name for field in dataclasses.fields(SearchSpec)]
    terminal.note(ASKING)
    found = hub.search(SearchSpec(**{name: getattr(arguments, name) for name in names}))
    if arguments.json:
        terminal.say_json([model.to_dict() for model in found])
    elif not found:
        terminal.note("The hub has no such model.")
    else:
        rows = [
            (each.id, parameters(each.num_parameters), each.licence, said(_access(each)), str(each.downloads))
            for each in found
        ]
        terminal.say(terminal.table(list(map(said, SEARCH_HEADER)), rows))
    return EXIT_DONE


def billions(text: str) -> float:
    """Return a number of parameters in billions. Raises ArgumentTypeError for what is none."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < math.inf:
        raise ArgumentTypeError(Message("{text} is not a number of billions, such as 1.5", text=text))
    return number


def count(text: str) -> int:
    """Return how many of something. Raises ArgumentTypeError for what is no such number."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_FOUND:
        raise ArgumentTypeError(Message("{text} is not a number from 1 to {most}", text=text, most=MOST_FOUND))
    return int(text)


def _search_curated(arguments: Namespace) -> int:
    curated = curated_models()
    found = [model for model in curated.models if _is_wanted(model, arguments)][: arguments.limit]
    if curated.problem:
        terminal.show_error(curated.problem)
    if arguments.json:
        terminal.say_json({"date": curated.date, "models": [dataclasses.asdict(model) for model in found]})
        return EXIT_DONE
    if not found:
        terminal.note("No model of the list matches.")
        return EXIT_DONE
    rows = [(each.id, parameters(each.num_parameters), each.licence, str(each.context_length or "")) for each in found]
    terminal.say(terminal.table(list(map(said, CURATED_HEADER)), rows))
    terminal.note(Message("As of {date}. To add models of your own: {path}", date=curated.date, path=own_list_path()))
    return EXIT_DONE


def _is_wanted(model: CuratedModel, wanted: Namespace) -> bool:
    size = model.num_parameters / 1e9
    return (
        has_words(wanted.text, *model.places)
        and wanted.family in ("", model.model_type)
        and wanted.licence.casefold() in ("", model.licence.casefold())
        and wanted.smallest <= size <= (wanted.largest or size)
    )


def _access(model: HubModel) -> Message:
    return Message("on request") if model.gated or model.private else Message("open")


def parameters(number: int) -> str:
    """Return a number of parameters as people write it, "" when it is not known."""
    if not number:
        return ""
    if number >= 999.5e6:  # that and more would be 1000M
        return f"{number / 1e9:.1f}B"
    return f"{number / 1e6:.0f}M" if number >= 999.5e3 else f"{max(1, number / 1e3):.0f}K"


def get(arguments: Namespace) -> int:
    """Download a model, or tell how large it is."""
    hub.checked_id(arguments.id)
    terminal.note(ASKING)
    if arguments.dry_run:
        return _tell_plan(hub.look_up(arguments.id, arguments.revision), arguments.json)
    progress = terminal.Progress(to_error=True)
    on_event = terminal.say_event if arguments.json else progress.show
    try:
        folder = hub.get(arguments.id, arguments.revision, on_event=on_event)
    finally:
        progress.close()
    if not arguments.json:
        terminal.say(terminal.cell(str(folder)))
    return EXIT_DONE


def _tell_plan(plan: downloads.Download, as_json: bool) -> int:
    plan.check_owner()
    is_here = plan.folder.is_dir()
    missing = 0 if is_here else plan.total_bytes - plan.done_bytes()
    if as_json:
        terminal.say_json(
            {
                "model": plan.model.to_dict(),
                "files": [file.path for file in plan.files],
                "total_bytes": plan.total_bytes,
                "missing_bytes": missing,
                "folder": str(plan.folder),
            }
        )
    else:
        rows = [(file.path, terminal.size(file.size_bytes)) for file in plan.files]
        terminal.say(terminal.table(list(map(said, PLAN_HEADER)), rows))
        total = terminal.size(plan.total_bytes)
        terminal.say(Message("To download: {missing} of {total}", missing=terminal.size(missing), total=total))
    if is_here:
        terminal.note(Message("It is on this computer: {folder}", folder=plan.folder))
    else:
        plan.check_space()
    return EXIT_DONE


def list_models(arguments: Namespace) -> int:
    """List the models on this computer and the downloads that are not whole."""
    hardware = model_library.training_hardware(detect_hardware())
    models = [*model_library.own_models(), *model_library.foreign_models()]
    named, unfinished = model_library.base_models(), list(downloads.unfinished())
    if arguments.json:
        waiting = [
            {"id": each.asked, "revision": each.revision}
            | {"done_bytes": each.done_bytes(), "total_bytes": each.total_bytes}
            for each in unfinished
        ]
        terminal.say_json({"models": [_values(model, hardware, named) for model in models], "unfinished": waiting})
        return EXIT_DONE
    if models:
        terminal.say(terminal.table(list(map(said, LIST_HEADER)), [_row(model, hardware, named) for model in models]))
        terminal.note(model_library.fits_note(hardware))
    else:
        terminal.note("There are no models yet.")
    for model in models:
        if model.problem:
            terminal.note(Message("{name}: {problem}", name=model.name, problem=model.problem.message))
    for each in unfinished:
        done, total = terminal.size(each.done_bytes()), terminal.size(each.total_bytes)
        terminal.note(Message("Not whole yet: {id}, {done} of {total}", id=each.asked, done=done, total=total))
    return EXIT_DONE


def _values(model: Shelved, hardware: Hardware, named: Mapping[str, str]) -> dict[str, Any]:  # Any: JSON values
    card = model.card
    return {
        "name": model.name,
        "path": str(model.path),
        "kept_by": model.keeper,
        "size_bytes": model.size_bytes,
        "num_parameters": card.num_parameters if card else 0,
        "licence": card.licence if card else "",
        "context_length": model.context_length,
        "has_chat_template": card.has_chat_template if card else None,
        "fits": dict(model_library.fits(card, hardware)) if card else {},
        "runs": model_library.users(model, named),
        "problem": model.problem.to_dict() if model.problem else None,
        "commit": model.download.model.commit if model.download else "",
    }


def _row(model: Shelved, hardware: Hardware, named: Mapping[str, str]) -> tuple[str, ...]:
    values = _values(model, hardware, named)
    template = {True: Message("yes"), False: Message("no"), None: Message("")}[values["has_chat_template"]]
    return (
        model.name,
        parameters(values["num_parameters"]),
        terminal.size(model.size_bytes),
        values["licence"],
        str(model.context_length or ""),
        said(template),
        *(said(FITS[verdict]) if (verdict := values["fits"].get(method)) else "" for method in model_library.METHODS),
        str(len(values["runs"]) or ""),
        model.keeper,
    )


def verify(arguments: Namespace) -> int:
    """Read a downloaded model whole and compare it with what the hub said."""
    model = model_library.find(arguments.name)
    if model.download is None:
        raise TunesmithError(
            "model-hashes-unknown",
            "{name} was not downloaded by Tunesmith, so its hashes are not known.",
            name=model.name,
        )
    changed = list(downloads.changed_files(model.path, model.download))
    if arguments.json:
        terminal.say_json({"path": str(model.path), "files": len(model.download.files), "changed": changed})
    if changed:
        raise TunesmithError(
            "model-files-missing-or-corrupt",
            "{path}: these files are missing or changed: {names}.",
            hint="Remove the model and download it again.",
            path=model.path,
            names=", ".join(changed),
        )
    if not arguments.json:
        terminal.say(Message("All {number} files are as the hub has them.", number=len(model.download.files)))
    return EXIT_DONE


def remove(arguments: Namespace) -> int:
    """Move a model to the trash; one that runs need only when that is asked for."""
    if begun := next((each for each in downloads.unfinished() if each.asked == arguments.name), None):
        downloads.discard(begun)
        if arguments.json:
            terminal.say_json({"path": str(begun.staging), "runs": []})
        else:
            terminal.say(Message("Deleted what was downloaded of {id}.", id=begun.asked))
        return EXIT_DONE
    model = model_library.find(arguments.name)
    runs = model_library.users(model, model_library.base_models())
    if runs and not arguments.force:
        named = ", ".join(runs[:5]) + (" …" if len(runs) > 5 else "")
        words = (
            Message("{name} is the base model of 1 run: {runs}.", name=model.name, runs=named)
            if len(runs) == 1
            else Message(
                "{name} is the base model of {number} runs: {runs}.", name=model.name, number=len(runs), runs=named
            )
        )
        raise TunesmithError("model-needed", words)
    return _tell_removed(model_library.remove(model), runs, arguments.json)


def _tell_removed(deleted: trash.Deleted, runs: list[str], as_json: bool) -> int:
    if as_json:
        terminal.say_json({"path": str(deleted.origin), "runs": runs})
    else:
        terminal.say(Message("Moved to the trash: {folder}", folder=deleted.origin))
        terminal.note(Message("To bring it back: tunesmith restore {id}", id=deleted.id))
    return EXIT_DONE
