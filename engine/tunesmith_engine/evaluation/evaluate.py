"""Compares what a run has trained with its base model: losses, answers, and what it may have forgotten."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tunesmith_core import evaluations
from tunesmith_core.checkpoint_manifest import read_manifest
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import MessageError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.evaluate import EvaluateSpec
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import Example, PreparedData
from tunesmith_engine.data.asked import Asked, question_in
from tunesmith_engine.decode import end_tokens, open_decoder
from tunesmith_engine.device import Compute
from tunesmith_engine.evaluation import general, harness, pattern
from tunesmith_engine.evaluation.difference import Values, difference
from tunesmith_engine.evaluation.metrics import metrics_for
from tunesmith_engine.evaluation.ratings import scores
from tunesmith_engine.export.trained import find_trained
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.folder import model_folder, padding_id
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.model.other_weights import before_run
from tunesmith_engine.model.trained_model import inference_compute, load_trained
from tunesmith_engine.preparation import Preparation
from tunesmith_engine.train.assembly import Parts
from tunesmith_engine.train.comparison import Floats, interval
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.loss_paths import PlainPath

MOST_LOSS_ROWS = 256
MAX_TEXT_CHARACTERS = 2000
OFFLINE = "HF_HUB_OFFLINE"
TEXTS = ("prompt", "expected", "before", "after")


def evaluate(host: Host, spec: EvaluateSpec) -> Values:
    """Measure a run, keep the result in its folder and return it.

    Raises:
        TunesmithError: `usage` without rows to measure on, `nothing-to-export` before anything was trained,
            `base-model-differs` with another base model than the run's, and what loading data and model finds.
    """
    run = Run(Path(spec.run))
    trained = find_trained(run, spec.checkpoint)
    _check_writes(trained.spec, spec)
    was_offline = os.environ.get(OFFLINE)
    folder = model_folder(trained.spec.model)
    trained.check_base(folder)
    if spec.harness and was_offline is None:
        # Its data sets may come from the hub, even where the model does not.
        os.environ.pop(OFFLINE, None)
    asked_spec = _asked_spec(trained.spec, spec.data, spec.read_as)
    host.phase("data")
    with Preparation(asked_spec) as preparation:
        preparation.begin(folder)
        preparation.fingerprint = _fingerprint(run)
        data = preparation.data()
    if data is None or not data.eval:
        raise _nothing_held_out(run)
    tokenizer = trained.tokenizer(folder)
    method = method_of(trained.spec.objective.kind)
    questions = _questions(data, spec.rows) if method.writes else []
    expected = [_text(tokenizer, each.expected) for each in questions]
    # A pattern that is of no use is refused before anything takes long.
    reason = pattern.reason(spec.matches, expected) if spec.matches else ""
    host.phase("model")
    compute = inference_compute(trained.spec)
    model = load_trained(trained, folder, compute)
    bench = _Bench(host, model, tokenizer, compute, asked_spec)
    tasks = harness.measured(host, spec, model, trained.tokenizer(folder)) if spec.harness else []
    parts = Parts(trained.spec, compute, method, folder, tokenizer, data, model)
    losses, preferred, of_sources = bench.losses(data) if method.writes else (*scores(host, parts), [])
    before, after = bench.answers(questions)
    found = {
        "step": trained.step,
        "data": {"path": spec.data or asked_spec.evaluation.path, "held_out": data.held_out_hash()},
        "at": round(time.time(), 3),
        "losses": losses,
        "sources": of_sources,
        "metrics": [
            *_matched(host, spec.matches, reason, before, after),
            *preferred,
            *_compared(expected, before, after),
            *tasks,
        ],
        "answers": [
            {name: text[:MAX_TEXT_CHARACTERS] for name, text in zip(TEXTS, texts, strict=True)}
            for texts in zip(bench.prompts(questions), expected, before, after, strict=True)
        ],
        "general": bench.general(data.prompts) if method.writes else None,
    }
    return found | {"path": str(evaluations.save(run, found))}


def _nothing_held_out(run: Run) -> TunesmithError:
    return TunesmithError(
        "usage",
        "The run {run} holds out no rows.",
        hint="Name a file of rows to measure on, or hold out a share of them and train again.",
        run=run.id,
    )


def _check_writes(run: RunSpec, spec: EvaluateSpec) -> None:
    """Refuse what looks at answers where the model writes none. Raises UserError `usage`."""
    if (spec.matches or spec.harness) and not method_of(run.objective.kind).writes:
        raise TunesmithError("usage", "This model rates texts and writes none, so it has no answers to look at.")


def _fingerprint(run: Run) -> Mapping[str, Any]:  # Any: JSON values
    """Return what a checkpoint of a run says about its rows, nothing where none can be read."""
    for folder in sorted(run.checkpoints_path.glob("step-*"), reverse=True):
        with contextlib.suppress(MessageError):
            return read_manifest(folder).fingerprint
    return {}


def _asked_spec(spec: RunSpec, path: str, read_as: Mapping[str, Any]) -> RunSpec:  # Any: values of a source
    """Return the spec of a run with the general questions, and with other held-out rows where a file is named."""
    prompts = [question for question, _ in general.QUESTIONS]
    evaluation = replace(spec.evaluation, sample_prompts=prompts, path=path or spec.evaluation.path)
    if not read_as:
        return replace(spec, evaluation=evaluation)
    # Held-out rows are read as the first file of a run; one that is read in another way is that file too.
    first = replace(spec.data.sources[0], path=path, sheet="", weight=0.0, most_rows=None, reviewed_only=False)
    if "columns" in read_as or "format" in read_as:
        first = replace(first, format="auto", columns={})
    return replace(spec, data=replace(spec.data, sources=[replace(first, **read_as)]), evaluation=evaluation)


def _questions(data: PreparedData, most: int) -> list[Asked]:
    """Return the held-out rows that are answered, spread over all of them."""
    asked = [question_in(data.eval[place], text) for place, text in data.questions.items()]
    found = [each for each in asked if each is not None]
    step = max(1, -(-len(found) // max(1, most)))
    return found[::step]


def _text(tokenizer: Any, tokens: Sequence[int]) -> str:  # Any: a transformers tokenizer
    return str(tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()


def _compared(expected: Sequence[str], before: Sequence[str], after: Sequence[str]) -> list[Values]:
    """Return the figures that suit the data, none without an expected answer."""
    found = []
    for metric in metrics_for(expected) if expected else ():
        scores = [
            [metric.score(answer, wanted) for answer, wanted in zip(answers, expected, strict=True)]
            for answers in (before, after)
        ]
        found.append({"name": metric.name, "reason": metric.reason, **difference(*scores)})
    return found


def _matched(host: Host, words: str, reason: str, before: Sequence[str], after: Sequence[str]) -> list[Values]:
    """Return the share of answers that match a pattern; nothing, with a warning, where one takes too long for it."""
    if not words:
        return []
    try:
        found = pattern.matches(words, [*before, *after])
    except TunesmithError as error:
        # The other figures may have taken an hour.
        host.warning(error.code, error.message)
        return []
    return [{"name": "matches", "reason": reason, **difference(found[: len(before)], found[len(before) :])}]


def _loss_figures(rows: Sequence[Example], before: Floats, after: Floats) -> Values:
    """Return what is told of the rows' losses, each summed over trained tokens, [rows]."""
    weights = np.array([row.num_trained_tokens for row in rows], dtype=np.float64)
    means = (float(before.sum() / weights.sum()), float(after.sum() / weights.sum()))
    return {
        "rows": len(rows),
        "before": means[0],
        "after": means[1],
        "perplexity_before": float(np.exp(min(means[0], 700.0))),
        "perplexity_after": float(np.exp(min(means[1], 700.0))),
        "gain": interval(before - after, weights),
        "p": difference(-before / weights, -after / weights)["p"],
    }


def _source_figures(
    data: PreparedData, rows: Sequence[Example], step: int, before: Floats, after: Floats
) -> list[Values]:
    """Return the mean losses of the held-out rows of each data file or document, nothing where they are of one.

    Args:
        data: of the run.
        rows: every so many of the held-out rows.
        step: how many that is.
        before, after: the rows' losses, each summed over trained tokens, [rows].
    """
    parts = data.held_out_parts
    numbers = np.repeat(np.arange(len(parts)), [num for _, num in parts])[::step]
    present = np.unique(numbers).tolist()
    if len(numbers) != len(rows) or len(present) < 2:
        return []
    weights = np.array([row.num_trained_tokens for row in rows], dtype=np.float64)
    return [
        {
            "path": parts[number][0],
            "rows": int(own.sum()),
            "before": float(before[own].sum() / weights[own].sum()),
            "after": float(after[own].sum() / weights[own].sum()),
        }
        for number in present
        for own in [numbers == number]
    ]


def _preferred(gains: Floats) -> Values:
    """Return in how many pairs the better answer gained more than the worse one: DPO's accuracy of rewards.

    The base model beside itself prefers neither, which counts as half a pair; p is then that of the sign test.

    Args:
        gains: of log-probabilities over the base model in nats, each better answer before its worse one, [2 * pairs].
    """
    better, worse = gains.reshape(-1, 2).T
    return {
        "name": "preferred",
        "reason": evaluations.PREFERRED_HELP,
        **difference(np.full(len(better), 0.5), 0.5 + 0.5 * np.sign(better - worse)),
    }


@dataclass(frozen=True, slots=True)
class _Bench:
    """A loaded model and what it is measured with."""

    host: Host
    model: Any  # Any: PEFT's model
    tokenizer: Any  # Any: a transformers tokenizer
    compute: Compute
    spec: RunSpec

    def losses(self, data: PreparedData) -> tuple[Values, list[Values], list[Values]]:
        """Measure losses row by row: of good answers, in how many pairs these are preferred, and of each data file."""
        examples = [example for example in data.eval if not example.is_bad] or data.eval
        step = max(1, -(-len(examples) // MOST_LOSS_ROWS))
        rows = examples[::step]
        sequences = [sequence for row in rows for sequence in row.sequences]
        pad = padding_id(self.tokenizer, self.model.get_base_model().config)
        path = PlainPath(self.model, self.compute, pad, 1, False, "", method_of("sft"))
        losses: dict[bool, list[float]] = {False: [], True: []}
        with untouched_training(self.model, self.compute.device):
            for with_adapter, found in losses.items():
                # Switched once: full fine-tuning has to exchange all weights for it.
                with contextlib.nullcontext() if with_adapter else before_run(self.model):
                    for sequence in sequences:
                        done = sum(map(len, losses.values()))
                        self.host.phase(evaluations.COMPARING, done // 2, len(sequences), "rows")
                        found.append(float(path.losses([sequence], Totals(1, 1), True)))
        before, after = (np.array(found) for found in losses.values())
        if len(sequences) == len(rows):
            of_sources = _source_figures(data, rows, step, before, after) if len(examples) == len(data.eval) else []
            return _loss_figures(rows, before, after), [], of_sources
        return _loss_figures(rows, before[::2], after[::2]), [_preferred(before - after)], []

    def answers(self, questions: Sequence[Asked]) -> tuple[list[str], list[str]]:
        """Answer questions without the adapter and with it."""
        prompts = [list(each.prompt) for each in questions]
        most = max((each.max_tokens for each in questions), default=0)
        before, after = (
            self._generate(prompts, most, with_adapter, evaluations.ANSWERING) for with_adapter in (False, True)
        )
        return before, after

    def prompts(self, questions: Sequence[Asked]) -> list[str]:
        """Return what is asked, as text."""
        return [each.question or _text(self.tokenizer, each.prompt) for each in questions]

    def general(self, prompts: dict[str, list[int]]) -> Values | None:
        """Ask the general questions; None where the chat template takes none of them."""
        asked = [(question, pattern) for question, pattern in general.QUESTIONS if prompts.get(question)]
        if not asked:
            return None
        rows = [prompts[question] for question, _ in asked]
        scores = []
        for with_adapter in (False, True):
            answers = self._generate(rows, general.MAX_TOKENS, with_adapter, evaluations.ASKING)
            scores.append(
                [general.is_right(pattern, text) for (_, pattern), text in zip(asked, answers, strict=True)]
            )
        return {"rows": len(asked), **difference(*scores)}

    def _generate(self, prompts: list[list[int]], most: int, with_adapter: bool, phases: Sequence[str]) -> list[str]:
        if not prompts:
            return []
        phase, num_done = phases[with_adapter], 0
        self.host.phase(phase, num_done, len(prompts), "rows")
        decoder = open_decoder(self.model, self.compute)

        def count(_row: int) -> None:
            nonlocal num_done
            num_done += 1
            # Whole is told by what comes next: a full bar would stand while the libraries clean up.
            if num_done < len(prompts):
                self.host.phase(phase, num_done, len(prompts), "rows")

        ends = end_tokens(self.model.get_base_model(), self.tokenizer)
        found = decoder.generate(prompts, Sampling(most), ends, with_adapter=with_adapter, on_end=count)
        return [_text(self.tokenizer, tokens) for tokens in found]
