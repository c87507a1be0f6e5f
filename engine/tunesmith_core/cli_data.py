"""`tunesmith data`: check, show, convert, split and mix data files, questions about documents, the library."""

from __future__ import annotations

import dataclasses
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith_core import cli_sources, cli_specs, data_library, model_library, objectives, terminal
from tunesmith_core.command_line import Parser, finite
from tunesmith_core.data_library import DataSet
from tunesmith_core.datafmt import READ_BY_ENGINE, Row, file_kind, recognition, resolve_layout
from tunesmith_core.datafmt.encoding import row_place
from tunesmith_core.datafmt.sniffing import head_rows
from tunesmith_core.datafmt.spoken import is_chat, spoken
from tunesmith_core.errors import EXIT_DONE, TunesmithError, UserError
from tunesmith_core.language_names import language_name
from tunesmith_core.messages import LISTED, Message, joined, said
from tunesmith_core.operations.kind import AbsolutePath, Kind
from tunesmith_core.operations.kinds.answers import ANSWERS, AnswersSpec
from tunesmith_core.operations.kinds.data import (
    CHECK_DATA,
    CONVERT_DATA,
    MIX_DATA,
    SPLIT_DATA,
    CheckDataSpec,
    ConvertDataSpec,
    MixDataSpec,
    SplitDataSpec,
)
from tunesmith_core.operations.kinds.engine import PREVIEW, WORKBOOK_HEAD, HeadSpec, PreviewSpec
from tunesmith_core.operations.kinds.questions import QUESTIONS, QuestionsSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.spec_sections import SourceSpec

FILES_HELP = Message("data files, or names of data sets of the library")
MODEL_HELP = Message("folder or name of the base model")
TARGET_HELP = Message("the file to write: its name ends in .jsonl, .csv or .parquet")
SEVERITIES = {"error": Message("Error"), "warning": Message("Warning"), "note": Message("Note")}
ACTIONS = {
    "skip": Message("These rows are left out."),
    "stop": Message("A run stops there."),
    "keep": Message("These rows are kept."),
    "truncate": Message("These rows are cut."),
    "split": Message("These rows are split."),
    "drop": Message("These rows are left out."),
}
"""What a run does about a problem, as a check tells it."""

COPY_ACTIONS = {
    "skip": Message("A run keeps these rows; a repaired copy leaves them out."),
    "repair": Message("A run keeps it; a repaired copy replaces it."),
    "keep": ACTIONS["keep"],
}
"""The same about what no run looks at."""

LEFT_OUT_QUESTIONS = {
    "unread": Message("Passages whose reply could not be read: {number:,}"),
    "empty": Message("Questions without words or answer that were left out: {number:,}"),
    "duplicates": Message("Questions that were asked before and were left out: {number:,}"),
    "unread_rows": Message("Rows or pages of the documents that could not be read: {number:,}"),
}
LEFT_OUT_ANSWERS = {
    "left_out": Message("Rows without a prompt of their own that were left out: {number:,}"),
    "silent": Message("Prompts without room for an answer that were left out: {number:,}"),
    "unread": Message("Answers that were cut at the longest length and left out: {number:,}"),
    "empty": Message("Empty answers that were left out: {number:,}"),
}
ROWS_SHOWN = 5
LIST_HEADER = (
    Message("Data set"),
    Message("Files"),
    Message("Size"),
    Message("Format"),
    Message("Version"),
    Message("Added"),
    Message("Runs"),
)


def add_commands(parser: Parser) -> None:
    """Declare what can be done with data."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=cli_sources.FilesParser)

    def add(name: str, command: Callable[[Namespace], int], help_text: str, *, takes_files: bool = True) -> Parser:
        sub: Parser = commands.add_parser(name, prog=f"tunesmith data {name}", help=help_text, description=help_text)
        sub.set_defaults(command=cli_sources.with_hints(command))
        sub.add_argument("--json", action="store_true", help="print JSON for programs")
        if takes_files:
            sub.add_argument("files", nargs="+", metavar="FILE", help=FILES_HELP)
            cli_sources.add_options(sub)
        return sub

    look = add("check", check, "find problems in data files")
    look.add_argument("--evaluation", default="", metavar="FILE", help="evaluation data, which must not be trained on")
    look.add_argument("--model", default="", metavar="MODEL", help=MODEL_HELP)
    look.add_argument("--context-length", type=int, metavar="N", help="tokens of a row at most, with --model (2048)")
    kinds = objectives.names()
    look.add_argument("--objective", choices=kinds, default="sft", help="what a run would learn from (sft)")
    look.add_argument("--rows", type=int, default=ROWS_SHOWN, metavar="N", help="rows to show of each problem (5)")
    view = add("show", show, "show rows as they are read, or token by token as training sees them")
    view.add_argument("--model", default="", metavar="MODEL", help="base model whose tokens are shown")
    view.add_argument("--rows", type=int, default=ROWS_SHOWN, metavar="N", help="number of rows to show (5)")
    turn = add("convert", convert, "write rows into a file of another kind")
    turn.add_argument("--to", type=Path, required=True, metavar="FILE", help=TARGET_HELP)
    turn.add_argument("--messages", action="store_true", help="make each row a chat of messages")
    cut = add("split", split, "split rows into training and evaluation data, with copies of a row on one side")
    cut.add_argument("--to", type=Path, required=True, metavar="FILE", help="the training file to write")
    cut.add_argument("--evaluation", type=Path, required=True, metavar="FILE", help="the evaluation file to write")
    cut.add_argument("--percent", type=finite, default=5.0, metavar="P", help="share of rows for evaluation (5)")
    cut.add_argument("--count", type=int, default=0, metavar="N", help="number of rows for evaluation instead")
    cut.add_argument("--column", default="", metavar="NAME", help="keep rows with the same value here on one side")
    cut.add_argument("--seed", type=int, default=0, metavar="N", help="another seed picks other rows (0)")
    blend = add("mix", mix, "mix rows of several files into one")
    blend.add_argument("--to", type=Path, required=True, metavar="FILE", help=TARGET_HELP)
    blend.add_argument("--weights", type=finite, nargs="+", default=[], metavar="W", help="share of each file")
    blend.add_argument("--caps", type=int, nargs="+", default=[], metavar="N", help="rows of each file at most")
    blend.add_argument("--count", type=int, default=0, metavar="N", help="rows of the mixture (as many as there are)")
    blend.add_argument("--seed", type=int, default=0, metavar="N", help="another seed picks other rows (0)")
    asks = add("questions", questions, "let a local model write questions and answers about documents")
    asks.add_argument("--model", required=True, metavar="MODEL", help="folder or name of an instruct model")
    asks.add_argument("--to", type=Path, required=True, metavar="FILE", help="the .jsonl file to write or continue")
    asks.add_argument("--number", type=int, default=3, metavar="N", help="questions per passage at most (3)")
    asks.add_argument("--seed", type=int, default=0, metavar="N", help="another seed gives other questions (0)")
    replies = add("answers", answers, "let a local model answer the prompts of data, to learn from it")
    replies.add_argument("--model", required=True, metavar="MODEL", help="folder or name of an instruct model")
    replies.add_argument("--to", type=Path, required=True, metavar="FILE", help="the .jsonl file to write or continue")
    replies.add_argument("--max-tokens", type=int, default=512, metavar="N", help="tokens of an answer at most (512)")
    replies.add_argument(
        "--logprobs", action="store_true", help="keep what the model finds likely at each token, to learn from (kd)"
    )
    for writer in (turn, cut, blend, asks, replies):
        writer.add_argument("--overwrite", action="store_true", help="replace a file that is already there")
    add("list", list_sets, "list the data sets of the library", takes_files=False)
    keep = add("add", add_set, "add files to the library under a name")
    keep.add_argument("--name", required=True, metavar="NAME", help="name of the data set")
    keep.add_argument("--overwrite", action="store_true", help="replace the files of a data set of this name")
    away = add("remove", remove_set, "take a data set out of the library; its files stay", takes_files=False)
    away.add_argument("name", metavar="NAME", help="name of the data set")


def _model_folder(text: str) -> Path:
    """Return the folder of a model by its path, hub id or name. Raises UserError `model-not-downloaded`."""
    folder = Path(text).expanduser()
    return folder.absolute() if folder.is_dir() else model_library.find(text).path


def check(arguments: Namespace) -> int:
    """Show what is wrong with data; rows that a run can't train on are bad input."""
    run = cli_sources.run_of(arguments)
    run.objective.kind = arguments.objective
    if arguments.context_length is not None:
        if not arguments.model:
            raise TunesmithError("usage", "--context-length needs --model, whose tokens are counted.")
        run.data.context_length = arguments.context_length
    if arguments.evaluation:
        evaluation = Path(arguments.evaluation).expanduser().absolute()
        cli_sources.check_exists(evaluation)
        run.evaluation.path = str(evaluation)
    folder = str(_model_folder(arguments.model)) if arguments.model else ""
    found = _conducted(CHECK_DATA, CheckDataSpec(run, folder), as_json=arguments.json)
    if arguments.json:
        terminal.say_json(found)
    else:
        _say_found(found, arguments.rows)
    has_errors = any(problem["severity"] == "error" for problem in found["problems"])
    return UserError.exit_code if has_errors else EXIT_DONE


def _conducted(kind: Kind, spec: Any, *, as_json: bool) -> dict[str, Any]:  # Any: of kind.spec; JSON values
    progress = terminal.Progress(to_error=True)
    try:
        answer: dict[str, Any] = conduct(  # Any: JSON values
            kind, spec, on_event=(lambda _event: None) if as_json else progress.show
        ).get()
    finally:
        progress.close()
    return answer


def _say_found(found: dict[str, Any], num_rows: int) -> None:  # Any: JSON values
    said_below = {row["path"] for problem in found["problems"] for row in problem["rows"][:num_rows]}
    for path, reason in found["reasons"].items():
        # Why a file is not recognized is a problem, which is told with the others.
        if path in found["formats"] or path not in said_below:
            terminal.say(_placed(path, path, reason))
    num_bad = found["num_rows"] - found["num_left_out_rows"] - found["num_good_rows"]
    if found["num_rows"]:
        terminal.say(
            Message(
                "{rows}. {good:,} can be trained on ({remarked:,} of them with a remark), {bad:,} can't.",
                rows=terminal.rows(found["num_rows"]),
                good=found["num_good_rows"],
                remarked=found["num_problem_rows"] - num_bad,
                bad=num_bad,
            )
        )
    for problem in found["problems"]:
        title = Message(
            "{severity}: {title} ({number:,}).",
            severity=SEVERITIES[problem["severity"]],
            title=problem["title"],
            number=problem["count"],
        )
        terminal.say()
        terminal.say(joined([title, what_is_done(problem)]))
        for row in problem["rows"][:num_rows]:
            place = ":".join(str(each) for each in (row["path"], row["line"], row["column"]) if each)
            terminal.say(Message("  {line}", line=_placed(row["path"], place, row["message"])))
        hints = (cli_sources.hint_of(row["message"]) for row in problem["rows"][:num_rows])
        for hint in dict.fromkeys(filter(None, hints)):
            terminal.say(Message("  {line}", line=hint))
    if counts := found.get("languages"):
        total = sum(counts.values())
        named = [
            Message("{language} {share:.0%}", language=language_name(code), share=number / total)
            for code, number in counts.items()
        ]
        terminal.say()
        terminal.say(Message("Languages: {languages}", languages=joined(named, LISTED)))
    if not found["problems"]:
        terminal.say(Message("No problems found."))
    for note in found["notes"]:
        terminal.note(note)


def what_is_done(problem: dict[str, Any]) -> Message:  # Any: JSON values
    """Return what a run does about a problem of a check, or about what no run looks at, a copy."""
    by_run = problem["severity"] == "error" or problem["rule"] in ("over-long", "unlearned")
    return (ACTIONS if by_run else COPY_ACTIONS)[problem["action"]]


def _placed(path: str, place: str, words: str) -> str:
    """Return what is said of a file or a place in it; some sentences name the file themselves."""
    return words if said(words).startswith(path) else Message("{place}: {message}", place=place, message=words)


def show(arguments: Namespace) -> int:
    """Show rows as the trainer sees them, without a model as they are read."""
    run = cli_sources.run_of(arguments)
    if not arguments.model:
        return _show_rows(run.data.sources, arguments)
    run.model.path = str(_model_folder(arguments.model))
    run.data.skip_bad_rows = True
    found = conduct(PREVIEW, PreviewSpec(run, arguments.rows, tokens=True)).get()
    return cli_specs.show_preview(found, as_json=arguments.json)


def _show_rows(sources: list[SourceSpec], arguments: Namespace) -> int:
    found = {each.path: _head(each, arguments.rows) for each in sources}
    reasons = [_reason(found[each.path]["rows"], each) for each in sources]
    if arguments.json:
        terminal.say_json({path: head["rows"] for path, head in found.items()})
        return EXIT_DONE
    for path, head in found.items():
        if head.get("sheet"):
            terminal.say(Message('{path}: sheet "{sheet}"', path=path, sheet=head["sheet"]))
        for number, row in enumerate(head["rows"], 1):
            place = Message("row {row}", row=number) if len(found) == 1 else row_place(Path(path), "json", number)
            terminal.say(Message("--- {place}", place=place))
            for column, value in row.items():
                words = spoken(value, column=column)
                terminal.say(words if is_chat(value, column) else f"{column}: {words}")
    for note in (*filter(None, reasons), *(each for head in found.values() for each in head.get("notes", {}).values())):
        terminal.note(note)
    terminal.note(Message("To see them as tokens, name a model: --model MODEL"))
    return EXIT_DONE


def _reason(rows: list[Row], source: SourceSpec) -> Message | None:
    """Return as what rows are read and which columns are not used; None where they are not recognized.

    Raises:
        UserError: columns were named, and the rows can't be read by them.
    """
    try:
        return recognition(resolve_layout(rows, source.format, source.columns, source.path), rows)
    except UserError:
        if source.columns:
            raise
        return None


def _head(source: SourceSpec, num_rows: int) -> dict[str, Any]:  # Any: JSON values
    """Return the first rows of a file that can be read, and what the engine says of one that it reads.

    Raises:
        UserError: what is wrong with the file.
    """
    if file_kind(Path(source.path)) not in READ_BY_ENGINE:
        return {"rows": head_rows(Path(source.path), num_rows, lambda _line, _error: None, source.encoding)}
    answer: dict[str, Any] = conduct(WORKBOOK_HEAD, HeadSpec.of(source, num_rows)).get()  # Any: JSON values
    if answer["problem"]:
        raise TunesmithError.from_dict(answer["problem"])
    return answer


def convert(arguments: Namespace) -> int:
    """Write rows into a file of another kind."""
    target, run = _absolute(arguments.to), cli_sources.run_of(arguments)
    spec = ConvertDataSpec(run, target, arguments.messages, arguments.overwrite)
    answer = _conducted(CONVERT_DATA, spec, as_json=arguments.json)
    return _tell_written(answer, arguments.json)


def split(arguments: Namespace) -> int:
    """Split rows into training and evaluation data."""
    percent = 0.0 if arguments.count else arguments.percent
    targets = _absolute(arguments.to), _absolute(arguments.evaluation)
    chosen = arguments.count, arguments.column, arguments.seed, arguments.overwrite
    spec = SplitDataSpec(cli_sources.run_of(arguments), *targets, percent, *chosen)
    answer = _conducted(SPLIT_DATA, spec, as_json=arguments.json)
    return _tell_written(answer, arguments.json)


def mix(arguments: Namespace) -> int:
    """Mix rows of several files."""
    chosen = arguments.weights, arguments.caps, arguments.count, arguments.seed, arguments.overwrite
    spec = MixDataSpec(cli_sources.run_of(arguments), _absolute(arguments.to), *chosen)
    answer = _conducted(MIX_DATA, spec, as_json=arguments.json)
    return _tell_written(answer, arguments.json)


def questions(arguments: Namespace) -> int:
    """Let a local model write questions about documents; what is done when it is stopped stays and is continued."""
    run, target = cli_sources.run_of(arguments), _absolute(arguments.to)
    run.model.path = str(_model_folder(arguments.model))
    spec = QuestionsSpec(run, target, arguments.number, arguments.seed, arguments.overwrite)
    try:
        answer = _conducted(QUESTIONS, spec, as_json=arguments.json)
    except KeyboardInterrupt:
        terminal.note(
            Message("The questions so far are kept in {path}. Run the same command again to continue.", path=target)
        )
        raise
    if arguments.json:
        terminal.say_json(answer)
        return EXIT_DONE
    terminal.say(
        Message(
            "Questions written: {number:,}. Passages: {passages:,}. They are in {path}",
            number=answer["rows"],
            passages=answer["passages"],
            path=answer["path"],
        )
    )
    for name, words in LEFT_OUT_QUESTIONS.items():
        if answer[name]:
            terminal.note(Message(words.template, number=answer[name]))
    terminal.note("Review them on the Data page before you train on them. A model can be wrong.")
    return EXIT_DONE


def answers(arguments: Namespace) -> int:
    """Let a local model answer the prompts of data; what is done when it is stopped stays and is continued."""
    run, target = cli_sources.run_of(arguments), _absolute(arguments.to)
    run.model.path = str(_model_folder(arguments.model))
    spec = AnswersSpec(run, target, arguments.max_tokens, arguments.overwrite, arguments.logprobs)
    try:
        answer = _conducted(ANSWERS, spec, as_json=arguments.json)
    except KeyboardInterrupt:
        terminal.note(
            Message("The answers so far are kept in {path}. Run the same command again to continue.", path=target)
        )
        raise
    if arguments.json:
        terminal.say_json(answer)
        return EXIT_DONE
    words = Message(
        "Answers written: {number:,}. Prompts: {prompts:,}. They are in {path}",
        number=answer["rows"],
        prompts=answer["prompts"],
        path=answer["path"],
    )
    terminal.say(words)
    for name, template in LEFT_OUT_ANSWERS.items():
        if answer[name]:
            terminal.note(Message(template.template, number=answer[name]))
    terminal.note("Train on them as on any prompts with responses. A model can be wrong: review them first.")
    if spec.keeps_logprobs:
        terminal.note("With the objective kd, a model learns from what this one found likely at each token.")
    return EXIT_DONE


def _absolute(path: Path) -> AbsolutePath:
    return AbsolutePath(str(path.expanduser().absolute()))


def _tell_written(answer: dict[str, Any], as_json: bool) -> int:  # Any: JSON values
    if as_json:
        terminal.say_json(answer)
        return EXIT_DONE
    for path, number in answer["files"].items():
        terminal.say(Message("Wrote {rows}: {path}", rows=terminal.rows(number), path=path))
    if answer["num_skipped_rows"]:
        number = answer["num_skipped_rows"]
        terminal.note(Message("Rows that could not be read and were left out: {number:,}", number=number))
    if number := answer.get("num_unanswered_left_out"):
        terminal.note(Message("Rows without an answer were left out: {number:,}", number=number))
    if number := answer.get("num_unanswered_kept"):
        words = Message("Rows without an answer were kept: {number:,}. A run can't train on them.", number=number)
        terminal.note(words)
    if number := answer.get("num_left_out_rows"):
        words = Message("Rows whose label is false or whose vote is a tie were left out: {number:,}", number=number)
        terminal.note(words)
    if answer.get("are_chats"):
        terminal.note(
            Message("The files are laid out differently, so every row was written as a chat of messages.")
        )
    if lost := answer.get("lost_columns"):
        named = [Message("{column} ({number:,})", column=f'"{name}"', number=number) for name, number in lost.items()]
        terminal.note(
            Message(
                "A chat has no place for these columns, so they were left out of as many rows: {columns}.",
                columns=joined(named, LISTED),
            )
        )
    return EXIT_DONE


def list_sets(arguments: Namespace) -> int:
    """List the data sets of the library."""
    sets = data_library.sets()
    if arguments.json:
        terminal.say_json([_values(each) for each in sets])
    elif sets:
        terminal.say(terminal.table(list(map(said, LIST_HEADER)), map(_row, sets)))
    else:
        terminal.note("There are no data sets yet.")
    for each in sets:
        for path in each.missing:
            terminal.note(Message("{name}: the file {path} is missing.", name=each.name, path=path))
    return EXIT_DONE


def _values(data_set: DataSet) -> dict[str, Any]:  # Any: JSON values
    uses = [dataclasses.asdict(use) for use in data_library.users(data_set)]
    told = {"missing": data_set.missing, "synthetic": data_set.is_synthetic, "runs": uses}
    return {**dataclasses.asdict(data_set), **told}


def _row(data_set: DataSet) -> tuple[str, ...]:
    version = data_set.versions[-1] if data_set.versions else None
    return (
        data_set.name,
        str(len(data_set.sources)),
        terminal.size(version.size_bytes) if version else "",
        said(Message("{format}, synthetic", format=data_set.format)) if data_set.is_synthetic else data_set.format,
        f"{len(data_set.versions)} ({version.hash[:8]})" if version else "",
        time.strftime("%Y-%m-%d", time.localtime(data_set.created)),
        str(len(data_library.users(data_set)) or ""),
    )


def add_set(arguments: Namespace) -> int:
    """Add files to the library."""
    sources = cli_sources.run_of(arguments).data.sources
    added = data_library.add(arguments.name, sources, overwrite=arguments.overwrite)
    if arguments.json:
        terminal.say_json(_values(added))
    else:
        number = len(added.versions)
        terminal.say(Message("{name} is in the library, version {number}.", name=added.name, number=number))
    return EXIT_DONE


def remove_set(arguments: Namespace) -> int:
    """Take a data set out of the library."""
    data_library.remove(arguments.name)
    if arguments.json:
        terminal.say_json({"name": arguments.name})
    else:
        terminal.say(Message("{name} is no longer in the library. Its files are unchanged.", name=arguments.name))
    return EXIT_DONE
