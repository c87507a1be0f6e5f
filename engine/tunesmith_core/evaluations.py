"""Evaluations of a run: files in its folder, one for each time it was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.agreement import DIVERGENCE_HELP
from tunesmith_core.messages import LISTED, Message, joined, packed, restored
from tunesmith_core.objectives import DIVERGENCES, FROM_LABELS, FROM_PAIRS, FROM_STEPS, LABELS
from tunesmith_core.runs import Run
from tunesmith_core.sorting import CLASS_LOSS_HELP, NUMBER_LOSS_HELP, STEP_LOSS_HELP
from tunesmith_core.source_losses import perplexity, shown_names
from tunesmith_core.spec_objective import ObjectiveSpec

VERSION = 1
GENERAL = "general"
"""The figure of questions that do not come from the data."""

FOLDER = "evaluations"

METRICS = {
    "loss": Message("loss"),
    "exact_match": Message("exact match"),
    "token_f1": Message("word F1"),
    "rouge_l": Message("ROUGE-L"),
    "chrf": Message("chrF"),
    "matches": Message("matches the pattern"),
    "number_match": Message("right number"),
    "json_valid": Message("valid JSON"),
    "json_equal": Message("right JSON"),
    "choice": Message("right choice"),
    "preferred": Message("better answer preferred"),
    "right_class": Message("right class"),
    "right_steps": Message("right steps"),
    GENERAL: Message("general questions"),
}
"""What the figures are called; those of tasks of lm-evaluation-harness have names of their own."""

CONCLUSIONS = {
    (True, True): Message("Better than before the run: {better}. Worse: {worse}."),
    (True, False): Message("Better than before the run: {better}."),
    (False, True): Message("Nothing improved. Worse than before the run: {worse}."),
    (False, False): Message("Nothing changed by more than chance."),
}
"""What is said by whether something became better, and worse."""

HEADER = (Message("measured"), Message("before"), Message("after"), Message("difference, 95% interval"), Message("p"))
"""Over the columns of `figures`; p is that of the paired permutation test."""

LOSS_HELP = Message(
    "The loss is in nats per token and tells how unexpected the right tokens are: 0.7 less makes each of them twice as "
    "likely, on average."
)

PAIR_LOSS_HELP = Message(
    "The loss is the mean over pairs. The lower it is, the more clearly the better answers are preferred. With DPO's "
    "original loss it begins at 0.693, where neither answer is preferred."
)

LABEL_LOSS_HELP = Message(
    "The loss is the mean over answers. The lower it is, the more clearly good answers are preferred and bad ones "
    "avoided. Where every answer counts alike it begins at 0.5."
)

CLASS_HELP = Message("The share of texts that are sorted into the right class. Before training the head is arbitrary.")

STEP_HELP = Message("The share of steps that are judged rightly. Before training the head is arbitrary.")

SCORED_HELP = Message(
    "The data holds preference pairs: in so many, the better answer scores higher. 50% is chance. Before training the "
    "scores are arbitrary."
)

GENERAL_HELP = Message(
    "General questions are simple ones that come with Tunesmith, such as for the capital of France. When fewer answers "
    "are right than before, and chance alone hardly gives as much (p below 0.05), training made the model forget."
)
RIGHT_OR_WRONG = ("number_match", "json_equal", "choice")
"""Figures under which an answer is right however it is worded, or wrong."""

NONE_RIGHT = Message("{names}: no answer is right after training, however far the loss fell.")
UNSURE = Message(
    "{names}: the interval leaves out 0, but chance alone gives as much more often than once in 20 times (p). More "
    "rows would tell."
)

PREFERRED_HELP = Message(
    "The data holds preference pairs: in so many, training made the better answer likelier compared with the worse "
    "one. 50% is chance."
)

COMPARING = Message("Comparing the loss before and after")
ANSWERING = (Message("Answers before training"), Message("Answers after training"))
ASKING = (Message("General questions before training"), Message("General questions after training"))
"""What an evaluation does, in the words that a person is told; of answers without and with what was trained."""

FEWEST_ROWS = 6
"""With fewer nobody can tell a difference from chance: even where all rows became better, chance alone makes all of
them better or all of them worse twice in 2 to the power of their number, 6 % for five and 3 % for six. MOST_CHANCE lies
between the two."""

MOST_CHANCE = 0.05
"""The p above which a difference is taken for chance."""

Values = dict[str, Any]  # Any: JSON values


def loss_help(objective: ObjectiveSpec) -> Message:
    """Return what the loss of an objective is."""
    if objective.kind in FROM_LABELS:
        return NUMBER_LOSS_HELP if objective.regression else CLASS_LOSS_HELP
    if objective.kind in FROM_STEPS:
        return STEP_LOSS_HELP
    if objective.kind in DIVERGENCES:
        return DIVERGENCE_HELP
    if objective.kind in LABELS:
        return LABEL_LOSS_HELP
    return PAIR_LOSS_HELP if objective.kind in FROM_PAIRS else LOSS_HELP


def save(run: Run, found: Values) -> Path:
    """Write an evaluation into the folder of a run and return its path. Raises OSError."""
    folder = run.path / FOLDER
    files.private_folder(folder)
    number = 1 + max((int(path.stem.rpartition("-")[2]) for path in _saved(run)), default=0)
    path = folder / f"step-{found['step']:06d}-{number:03d}.json"
    files.atomic_write_json(path, {"version": VERSION, **packed(found)})
    return path


def newest(run: Run) -> Values:
    """Return the newest evaluation of a run; {} where there is none that can be read."""
    for path in sorted(_saved(run), key=lambda path: path.stem.rpartition("-")[2], reverse=True):
        try:
            values = files.read_json(path)
            figures(values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        return dict(restored(values))
    return {}


def _saved(run: Run) -> list[Path]:
    return [path for path in (run.path / FOLDER).glob("step-*.json") if path.stem.rpartition("-")[2].isdecimal()]


def figures(values: Values) -> list[tuple[str, str, str, str, str]]:
    """Return name, before, after, the gain with its interval, and p of each figure of an evaluation, as texts."""
    return [
        (name, shown(name, each["before"]), shown(name, each["after"]), _gain(name, each), _chance(each["p"]))
        for name, each in _measured(values)
    ]


def _measured(values: Values) -> list[tuple[str, Values]]:
    rows = [("loss", values["losses"]), *((str(each["name"]), each) for each in values["metrics"])]
    return [*rows, (GENERAL, values["general"])] if values.get("general") else rows


def conclusion(values: Values) -> Message:
    """Return in one sentence which figures of an evaluation became better or worse by more than chance.

    Interval and test must agree: over few rows the interval alone is too sure.
    """
    gains = {name: each["gain"] for name, each in _measured(values) if each["gain"]}
    sure = {name: gain for name, each in _measured(values) if (gain := each["gain"]) and each["p"] < MOST_CHANCE}
    better = [METRICS.get(name, name) for name, gain in sure.items() if gain["low"] > 0]
    worse = [METRICS.get(name, name) for name, gain in sure.items() if gain["high"] < 0]
    num_rows = max((gain["rows"] for name, gain in gains.items() if name != GENERAL), default=0)
    if num_rows < FEWEST_ROWS and not better and not worse:
        return Message("There are too few rows to tell a difference from chance.")
    sentence = CONCLUSIONS[bool(better), bool(worse)]
    return Message(sentence.template, better=joined(better, LISTED), worse=joined(worse, LISTED))


def notes(values: Values) -> list[Message]:
    """Return what a person needs to know to read the figures of an evaluation."""
    gains = [(name, each["gain"], each["p"]) for name, each in _measured(values) if each["gain"]]
    unsure = [name for name, gain, p in gains if p >= MOST_CHANCE and not gain["low"] <= 0 <= gain["high"]]
    wrong = [each["name"] for each in values["metrics"] if each["name"] in RIGHT_OR_WRONG and not each["after"]]
    found = [values["losses"].get("help") or LOSS_HELP, *_of_sources(values.get("sources") or [])]
    if wrong:
        found.append(Message(NONE_RIGHT.template, names=joined([METRICS[name] for name in wrong], LISTED)))
    if unsure:
        found.append(Message(UNSURE.template, names=joined([METRICS.get(name, name) for name in unsure], LISTED)))
    if values.get("general"):
        found.append(GENERAL_HELP)
    return found


MOST_SOURCES_TOLD = 20
"""Of documents there can be many."""


def _of_sources(sources: list[Values]) -> list[Message]:
    """Return how well each data file is predicted, where rows of several are held out."""
    names = shown_names([each["path"] for each in sources])
    return [
        Message(
            "Held-out perplexity of {name}: {before} before, {after} after training. Rows: {rows:,}.",
            name=name,
            before=perplexity(each["before"]),
            after=perplexity(each["after"]),
            rows=each["rows"],
        )
        for name, each in zip(names[:MOST_SOURCES_TOLD], sources, strict=False)
    ]


def shown(name: str, value: float) -> str:
    """Return a figure as text: a share in percent, a loss in nats."""
    return f"{value:z.3f}" if name == "loss" else f"{value:.0%}"


def differences(*losses: float, sign: str = "") -> list[str]:
    """Return a difference of losses and its bounds as texts, with the same digits wherever they are told."""
    digits = 2 if max(map(abs, losses)) >= 0.1 else 3
    return [f"{value:{sign}z.{digits}f}" for value in losses]


def _chance(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def _gain(name: str, each: Values) -> str:
    gain = each["gain"]
    if not gain:
        return ""
    if name == "loss":
        low, mean, high = differences(-gain["high"], -gain["mean"], -gain["low"], sign="+")
        return f"{mean} ({low} … {high})"
    # The points between the two shares as they are shown: a reader subtracts them.
    points = round(each["after"] * 100) - round(each["before"] * 100)
    low, high = min(points, round(gain["low"] * 100)), max(points, round(gain["high"] * 100))
    return Message("{mean} points ({low} … {high})", mean=f"{points:+}", low=f"{low:+}", high=f"{high:+}")
