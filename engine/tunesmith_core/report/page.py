"""The report of a run as one HTML page that needs no other file and no network."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import tunesmith_core
from tunesmith_core import adapter_folders, evaluations, files, kernel_words, rewards, sorting, terminal, votes
from tunesmith_core.adapter_kinds import papers
from tunesmith_core.answered import Answered
from tunesmith_core.checkpoint_manifest import newest_noted
from tunesmith_core.declared import Declaration
from tunesmith_core.messages import LISTED, Message, joined, language, said
from tunesmith_core.objectives import (
    DISTILLATION,
    DIVERGENCES,
    FROM_LABELS,
    FROM_PAIRS,
    FROM_STEPS,
    HEADS,
    LABELS,
    ORIGINS,
    PREFERENCES,
    REINFORCEMENT,
    STORED,
)
from tunesmith_core.outcome import Verdict
from tunesmith_core.plain_text import visible
from tunesmith_core.preferences import Preferences, are_whole, share
from tunesmith_core.redact import redact
from tunesmith_core.report.curves import REWARDS, curves
from tunesmith_core.report.facts import Facts, read, verdict_on
from tunesmith_core.runs import ADAPTER_FILES, CONFIG_FILE, Run, display_name
from tunesmith_core.source_losses import perplexity
from tunesmith_core.spec import RunSpec, in_force, told_settings
from tunesmith_core.spec_sections import CHOICE_WORDS

MAX_ANSWER_CHARACTERS = 4000

STYLE = """
:root{color-scheme:light dark;--ink:#1a1c1e;--soft:#5c6166;--paper:#fff;--line:#d9dde1;--one:#0b6bcb;--two:#b3450b}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--soft:#a3a9af;--paper:#17191b;--line:#3a3f44;--one:#6db3f8;
--two:#f0a36b}}
body{font:15px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:52rem;margin:2rem auto;
padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.25rem;margin-top:2.2rem}h3{font-size:1rem;margin:1.4rem 0 .2rem}
p.soft,td.soft{color:var(--soft)}td.soft,th:first-child:nth-last-child(2){width:9rem}
.verdict{border-left:4px solid var(--one);padding:.4rem 1rem;font-size:1.1rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;
border-bottom:1px solid var(--line)}th{font-weight:600}td.text{white-space:pre-wrap}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--soft)}polyline,path.axis{fill:none;stroke-width:1.6}
path.axis{stroke:var(--line)}polyline.training{stroke:var(--one)}
polyline.heldout{stroke:var(--two);stroke-dasharray:5 3}
circle.heldout{fill:var(--two)}.legend i{display:inline-block;width:1.4rem;height:.2rem;margin:0 .4rem .25rem 1rem}
.legend i.training{background:var(--one)}.legend i.heldout{background:var(--two)}
"""


def write(run: Run, target: Path) -> Verdict:
    """Write the report of a run, in the language in force, and return what it says on top.

    Raises:
        UserError: when the run's settings can't be read.
        OSError: when the file can't be written.
    """
    spec, facts = run.load_spec(), read(run)
    verdict = verdict_on(facts)
    files.atomic_write_text(target, page(run, spec, facts, verdict))
    return verdict


def page(run: Run, spec: RunSpec, facts: Facts, verdict: Verdict) -> str:
    """Return the report as HTML. Secrets and the name of the person's home folder are taken out."""
    name = display_name(run)
    made = Message(
        "Made by Tunesmith {version} on {date}.", version=tunesmith_core.__version__, date=datetime.date.today()
    )
    body = "".join(
        (
            f"<h1>{_text(name)}</h1><p class=soft>{_text(made)}</p>",
            f"<p class=verdict>{'<br>'.join(map(_text, verdict.told))}</p>",
            _section(Message("Reward"), _reward(facts)) or _section(Message("Loss"), _loss(spec, facts)),
            _section(Message("Evaluation"), _evaluation(spec, evaluations.newest(run))),
            _section(Message("Blind votes"), _votes(run)),
            _section(Message("Answers before and after"), "" if spec.objective.kind in HEADS else _answers(facts)),
            _section(Message("Samples"), _samples(facts)),
            _section(Message("What was trained"), _rows(_trained(run, spec, facts))),
            _section(Message("Settings"), _rows(_settings(spec))),
            _section(Message("Where it ran"), _rows(_place(facts))),
            _section(Message("Warnings"), "".join(f"<p>{_text(text)}</p>" for text in facts.warnings)),
            _section(Message("Files"), _rows(_files(run, spec))),
            _details(facts),
        )
    )
    head = f'<meta charset="utf-8"><title>{_text(name)}</title><style>{STYLE}</style>'
    lang = language().replace("_", "-")
    return f'<!doctype html><html lang="{lang}"><head>{head}</head><body>{body}</body></html>\n'


def _text(text: str) -> str:
    return escape(redact(visible(said(text))))


def _label(text: str) -> str:
    """What stands beside or over values, beginning with a capital, unless it is a file's name or a single letter."""
    words = said(text)
    return _text(words[:1].upper() + words[1:] if isinstance(text, Message) and len(words) > 1 else words)


def _section(title: Message, content: str) -> str:
    return f"<h2>{_text(title)}</h2>{content}" if content else ""


def _rows(rows: Iterable[tuple[str, object]]) -> str:
    cells = "".join(
        f"<tr><th>{_label(label)}</th><td>{_text(_value_text(value))}</td></tr>"
        for label, value in rows
        if value not in (None, "")
    )
    return f"<table>{cells}</table>" if cells else ""


def _value_text(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else str(value)


def _reward(facts: Facts) -> str:
    """The rewards of a run that learns from them, and how its answers changed; "" for others."""
    if not facts.rewards:
        return ""
    training = {step: each["reward"] for step, each in facts.rewards.items()}
    held_out = {step: -loss for step, loss in facts.held_out.items()}
    words = f"<p class=soft>{_text(rewards.REWARD_HELP)}</p>"
    table = _figures(
        (Message("step"), Message("held-out reward")),
        ((str(step), rewards.shown(reward)) for step, reward in sorted(held_out.items())),
    )
    labels = (Message("step"), Message("reward in training"), Message("tokens per answer"), Message("cut answers"))
    some = sorted(facts.rewards)
    rows = [
        (
            str(step),
            rewards.shown(facts.rewards[step]["reward"]),
            f"{facts.rewards[step].get('answer_tokens', math.nan):.0f}",
            f"{facts.rewards[step].get('cut_answers', math.nan):.0%}",
        )
        for step in sorted({some[0], some[-1]})
    ]
    return words + curves(training, held_out, REWARDS) + table + _figures(labels, rows)


def _loss(spec: RunSpec, facts: Facts) -> str:
    kind = spec.objective.kind
    if kind in FROM_PAIRS | LABELS:
        table = _pair_losses(facts, spec)
    else:
        table = _label_losses(facts) if kind in FROM_LABELS | FROM_STEPS else _losses(facts)
    if kind in DISTILLATION:
        table = _teacher_losses(facts)
    if kind in STORED:
        rows = ((str(step), evaluations.shown("loss", loss)) for step, loss in sorted(facts.held_out.items()))
        table = _figures((Message("step"), Message("held-out loss")), rows)
    shown = curves(facts.training, facts.held_out) + table
    words = evaluations.loss_help(spec.objective)
    return f"<p class=soft>{_text(words)}</p>{shown}" if shown else ""


def _losses(facts: Facts) -> str:
    labels = (Message("step"), Message("held-out loss"), Message("perplexity"))
    losses = sorted(facts.held_out.items())
    rows = ((str(step), evaluations.shown("loss", loss), perplexity(loss)) for step, loss in losses)
    return _figures(labels, rows) + _source_losses(facts)


def _source_losses(facts: Facts) -> str:
    """The perplexity of the held-out rows of each data file at every evaluation."""
    found = sorted(facts.source_losses.items())
    if not found:
        return ""
    newest = found[-1][1]
    head = "".join(f"<th>{_text(each.name)}</th>" for each in newest)
    rows = "".join(
        f"<tr><td>{step}</td>{''.join(f'<td>{_text(each.perplexity)}</td>' for each in losses)}</tr>"
        for step, losses in found
    )
    words = _text(Message("Held-out perplexity of each data file:"))
    return f"<p class=soft>{words}</p><table><tr><th>{_label(Message('step'))}</th>{head}</tr>{rows}</table>"


def _label_losses(facts: Facts) -> str:
    told = set().union(*facts.labels.values())
    right = Message("right steps") if "step_accuracy" in told else Message("right class")
    names: tuple[Message, ...] = (right, Message("macro F1"), Message("calibration error"))
    if "rmse" in told:
        names = (Message("RMSE"), Message("correlation"))
    rows = [
        (str(step), evaluations.shown("loss", facts.held_out[step]), *sorting.shown(each))
        for step, each in sorted(facts.labels.items())
        if step in facts.held_out
    ]
    return _figures((Message("step"), Message("held-out loss"), *names), rows)


def _teacher_losses(facts: Facts) -> str:
    labels = (Message("step"), Message("held-out loss"), Message("agrees with the bigger model"))
    rows = [
        (str(step), evaluations.shown("loss", facts.held_out[step]), f"{each['agreement']:.0%}")
        for step, each in sorted(facts.teacher.items())
        if step in facts.held_out
    ]
    return _figures(labels, rows)


def _pair_losses(facts: Facts, spec: RunSpec) -> str:
    are_labels = spec.objective.kind in LABELS
    told_apart = Message("rated on the right side") if are_labels else Message("better answer preferred")
    labels = (Message("step"), Message("held-out loss"), told_apart, Message("reward margin"))
    found = Preferences.of(facts.pairs)
    # A model that is compared with itself prefers nothing.
    unsaid = found is not None and found.is_relative
    rows = []
    for step, loss in sorted(facts.held_out.items()):
        each = facts.pairs.get(step, {}) if step or not unsaid else {}
        told = (share(each["reward_accuracy"]), f"{each['reward_margin']:.2f}") if are_whole(each) else ()
        rows.append((str(step), evaluations.shown("loss", loss), *(told or ("–", "–"))))
    return _figures(labels, rows)


def _figures(labels: Iterable[Message], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{_label(label)}</th>" for label in labels)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if body else ""


def _evaluation(spec: RunSpec, found: evaluations.Values) -> str:
    """The figures of the newest evaluation, and why they were chosen."""
    if not found:
        return ""
    head = "".join(f"<th>{_label(label)}</th>" for label in evaluations.HEADER)
    rows = "".join(
        f"<tr><td>{_text(_metric(name))}</td>"
        f"{''.join(f'<td>{_text(cell)}</td>' for cell in values)}</tr>"
        for name, *values in evaluations.figures(found)
    )
    reasons = "".join(
        f"<p class=soft>{_text(Message('{name}: {reason}', name=_metric(each['name']), reason=each['reason']))}</p>"
        for each in found["metrics"]
    )
    # What the loss is stands beside its curve, but where that one is of pairs, rewards or a teacher.
    first = 0 if spec.objective.kind in PREFERENCES | LABELS | REINFORCEMENT | DIVERGENCES else 1
    notes = "".join(f"<p class=soft>{_text(note)}</p>" for note in evaluations.notes(found)[first:])
    step = f"<p class=soft>{_label(Message('step {step}', step=found['step']))}</p>"
    return f"<p>{_text(evaluations.conclusion(found))}</p>{step}<table><tr>{head}</tr>{rows}</table>{notes}{reasons}"


def _metric(name: str) -> str:
    return evaluations.METRICS.get(name, name)


def _votes(run: Run) -> str:
    """What a person found better without knowing whose answers they were."""
    kept = votes.load(run)
    texts = [" ".join(map(said, count.words)) for count in kept.counts()]
    heads = [f"<h3>{_text(count.title)}</h3>" for count in kept.counts()]
    parts = [f"{head}<p>{_text(text)}</p>" for head, text in zip(heads, texts, strict=True)]
    if kept.warning:
        parts.append(f"<p class=soft>{_text(kept.warning)}</p>")
    return "".join(parts)


def _answers(facts: Facts) -> str:
    """What the model answered to questions that it was not trained on."""
    if not facts.answers:
        words = Message("None. Only held-out rows are asked, and this run has asked none.")
        return f"<p class=soft>{_text(words)}</p>"
    parts = []
    for asked in facts.answers:
        labels = (_at(asked, 0), _at(asked, asked.last_step) if asked.last_step else None, Message("expected"))
        texts = (asked.before, asked.now, asked.expected)
        rows = "".join(
            f"<tr><td class=soft>{_label(label)}</td><td class=text>{_text(text)}</td></tr>"
            for label, text in zip(labels, texts, strict=True)
            if label and text is not None
        )
        parts.append(f"<h3>{_text(asked.prompt)}</h3><table>{rows}</table>")
    return "".join(parts)


def _at(asked: Answered, step: int) -> Message:
    """Return at which step a text was written, whether it is right and where it was cut."""
    label = Message("step {step}", step=step) if step else Message("before training")
    if (is_right := asked.right.get(step)) is not None:
        label = Message("{label}: right", label=label) if is_right else Message("{label}: wrong", label=label)
    if cut_at := asked.cuts.get(step):
        label = Message("{label}, cut at {num_tokens:,} tokens", label=label, num_tokens=cut_at)
    return label


def _samples(facts: Facts) -> str:
    parts = []
    for written in facts.samples.values():
        rows = "".join(
            f"<tr><td class=soft>{_label(_at(written, step))}</td>"
            f"<td class=text>{_text(written.texts[step][:MAX_ANSWER_CHARACTERS])}</td></tr>"
            for step in sorted({min(written.texts), max(written.texts)})
        )
        parts.append(f"<h3>{_text(written.prompt[:MAX_ANSWER_CHARACTERS])}</h3><table>{rows}</table>")
    return "".join(parts)


def _trained(run: Run, spec: RunSpec, facts: Facts) -> list[tuple[str, object]]:
    status, setup = facts.status, facts.setup
    seconds = status.lasted_s(status.last_event_at or 0.0)
    created = run.created_at
    return [
        (Message("method"), ORIGINS.get(spec.objective.kind)),
        (Message("trained with"), "; ".join(papers(spec)) or None),
        (Message("classes"), joined(setup.get("classes") or (), LISTED) or None),
        (Message("rewards"), _rewarded(spec)),
        (Message("base model"), spec.model.path),
        (Message("bigger model"), spec.teacher.path if spec.objective.kind in DISTILLATION else None),
        (Message("continues"), adapter_folders.lineage(spec) or None),
        (Message("compared with"), adapter_folders.reference_name(spec) or None),
        (Message("data"), joined((source.path for source in spec.data.sources), LISTED)),
        (Message("training rows"), setup.get("num_train_rows")),
        (Message("held-out rows"), setup.get("num_eval_rows")),
        (Message("skipped rows"), setup.get("num_skipped_rows")),
        (Message("system prompt"), setup.get("system_prompt") or None),
        *_sources(setup),
        (Message("state"), said(Message(status.state.value))),
        (Message("steps"), f"{status.step} / {status.total_steps}"),
        (Message("epochs"), _epochs(status.step, setup.get("steps_per_epoch"))),
        (Message("started"), datetime.datetime.fromtimestamp(created).isoformat(" ", "minutes") if created else None),
        (Message("duration"), terminal.duration(seconds) if seconds else None),
        (Message("trained parameters"), setup.get("num_trainable_parameters")),
    ]


def _rewarded(spec: RunSpec) -> str | None:
    return rewards.described(spec.rollouts.rewards) if spec.objective.kind in REINFORCEMENT else None


def _epochs(step: int, steps_per_epoch: int | None) -> str | None:
    """How often the training rows were in fact taken."""
    return f"{step / steps_per_epoch:.3g}" if steps_per_epoch else None


def _sources(setup: dict[str, Any]) -> list[tuple[str, object]]:  # Any: JSON values
    """Which rows come from which file, where there are several."""
    sources = setup.get("sources") or []
    if len(sources) < 2:
        return []
    return [
        (
            Path(each["path"]).name,
            Message(
                "{trained:,} training rows, {held_out:,} held out, {examples:,} examples in each epoch",
                trained=each["num_train_rows"],
                held_out=each["num_eval_rows"],
                examples=each["num_epoch_rows"],
            ),
        )
        for each in sources
    ]


def _settings(spec: RunSpec) -> list[tuple[str, object]]:
    return [
        (setting.declaration.label, _shown(setting.get(in_force(spec)), setting.declaration))
        for setting in told_settings(spec)
    ]


def _shown(value: object, declaration: Declaration) -> object:
    if isinstance(value, bool):
        return Message("yes") if value else Message("no")
    if value is None and declaration.unset:
        return Message(declaration.unset)
    if declaration.zero and value == 0:
        return Message(declaration.zero)
    if declaration.unit == "%":
        return f"{value:g}%"
    if isinstance(value, str):
        return CHOICE_WORDS.get(value, value)
    return joined(value, LISTED) if isinstance(value, list) else value


def _place(facts: Facts) -> list[tuple[str, object]]:
    engine, setup = facts.engine, facts.setup
    return [
        (Message("device"), engine.get("device_name")),
        (Message("number format"), setup.get("dtype")),
        ("Tunesmith", engine.get("version")),
        ("Python", engine.get("python")),
        ("PyTorch", engine.get("torch")),
        (Message("fast kernels"), joined(kernel_words.summary(setup.get("kernels") or ()))),
    ]


def _details(facts: Facts) -> str:
    """What only somebody who looks for the reason of something wants to know, folded."""
    told = "".join(f"<p class=soft>{_text(sentence)}</p>" for sentence in facts.setup.get("kernels") or ())
    return f"<details><summary>{_text(Message('Technical details'))}</summary>{told}</details>" if told else ""


def _files(run: Run, spec: RunSpec) -> list[tuple[str, object]]:
    """The adapter's files and those of the data with their SHA-256, as they are now."""
    data = [Path(source.path) for source in spec.all_sources()]
    made = [*(run.adapter_path / name for name in (*ADAPTER_FILES, CONFIG_FILE)), *run.model_path.glob("*.safetensors")]
    paths = [*sorted(made), *data]
    return [(path.name, f"SHA-256 {files.sha256_file(path)}") for path in paths if path.is_file()] + _base_files(run)


def _base_files(run: Run) -> list[tuple[str, object]]:
    """The base model's files as they were when the newest checkpoint was saved: large ones by samples of them."""
    noted = newest_noted(run.checkpoints_path)
    notes = noted.base_model if noted else {}
    return [(name, f"SHA-256 {note.sampled}") for name, note in sorted(notes.items())]
