"""What is told of a run that learned from pairs: its plan, its card, the verdict and an evaluation."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.engine.conftest import events, train
from tests.engine.preference.test_preference_runs import MakeSpec, NewRun, pair_spec
from tests.engine.prepared import checked, conduct_here
from tunesmith_core.operations.kinds.evaluate import EVALUATE, EvaluateSpec
from tunesmith_core.report.facts import read, verdict_on
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.preview import preview
from tunesmith_engine.evaluation.evaluate import _preferred
from tunesmith_engine.export.merged_card import merged_card
from tunesmith_engine.model.folder import load_tokenizer

__all__ = ["pair_spec"]


def trained(kind: str, pair_spec: MakeSpec, new_run: NewRun, folder: Path) -> Run:
    """Train on pairs of which the better answer ends with a smile, and no row is like another."""
    draw, path = random.Random(3), folder / "smiles.jsonl"
    answers = ["".join(draw.choices("abcdefgh", k=8)) for _ in range(12)]
    rows = [{"prompt": f"Say {text[::-1]}.", "chosen": f"{text} :)", "rejected": f"{text} :("} for text in answers]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run = new_run(
        pair_spec(
            kind,
            data={"path": str(path)},
            schedule={"max_steps": 40, "micro_batch_size": 3, "gradient_accumulation_steps": 1, "warmup_steps": 0},
            evaluation={"percent": 50.0, "every_steps": 40},
        )
    )
    assert train(run) == 0
    return run


def measured(run: Run) -> dict[str, Any]:
    spec = EvaluateSpec(str(run.path))  # type: ignore[arg-type]
    found: dict[str, Any] = conduct_here(
        EVALUATE, spec, on_event=lambda _: None, take=lambda _folder, answer: answer
    ).get()
    return found


def test_a_run_is_judged_described_and_measured_by_its_pairs(
    pair_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    run = trained("dpo", pair_spec, new_run, tmp_path)
    verdict = verdict_on(read(run))
    told = "In 100% of the held-out pairs the model leans more toward the better answer than its reference does."
    assert verdict.sentence == f"Improved, but 6 held-out rows are too few to say by how much. {told}"
    assert "The reward margin, by how much it rates the better answer above the worse one, is" in verdict.evidence
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    method = "- Method: Direct preference optimization (DPO), Rafailov et al. 2023, arXiv:2305.18290; beta: 0.1, loss:"
    for words in (f"{method} sigmoid\n\nHeld-out loss: 0.693 before", "mean over pairs.", told, "| Beta | 0.1 |"):
        assert words in card
    assert "nats per token" not in card
    status = SimpleNamespace(step=40, first_eval_loss=0.693, eval_loss=0.1)
    finished: Any = SimpleNamespace(
        run=run, spec=run.load_spec(), status=status, step=40, is_full=False, quantized_bits=lambda _: 0
    )
    merged = merged_card(finished, tiny_model, "float32", None)
    assert method in merged
    assert told in merged
    found = measured(run)
    accuracy, figure = events(run, "eval")[-1].data["reward_accuracy"], found["metrics"][0]
    assert (figure["name"], figure["before"], figure["after"]) == ("preferred", 0.5, accuracy)
    assert figure["gain"] == {"mean": 0.5, "low": 0.5, "high": 0.5, "rows": 6}
    assert figure["p"] == pytest.approx(2 / 2**6)
    assert found["losses"]["rows"] == 6
    chosen = [event.data["logp_chosen"] for event in (events(run, "eval")[0], events(run, "eval")[-1])]
    tokens = events(run, "eval")[0].data["num_tokens"]
    assert found["losses"]["before"] == pytest.approx(-6 * chosen[0] / tokens, rel=1e-4)
    assert found["losses"]["after"] == pytest.approx(-6 * chosen[1] / tokens, rel=1e-4)


@pytest.mark.parametrize("kind", ["simpo", "orpo", "cpo"])
def test_a_run_without_a_reference_says_what_the_base_model_prefers(
    kind: str, pair_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    run = trained(kind, pair_spec, new_run, tmp_path)
    verdict = verdict_on(read(run))
    assert "(before: " in verdict.sentence
    assert measured(run)["metrics"][0]["after"] == 1.0, "relative to the base model, length is no matter"
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert f"; beta: {2 if kind == 'simpo' else 0.1:g}\n" in card


def test_a_pair_that_both_models_tell_apart_alike_counts_half() -> None:
    figure = _preferred(np.array([2.0, 1.0, 1.0, 1.0, 0.0, 3.0, 4.0, 1.0]))
    assert (figure["before"], figure["after"]) == (0.5, 0.625)


def test_a_plan_counts_both_answers(pair_spec: MakeSpec, new_run: NewRun, tiny_model: Path) -> None:
    spec: RunSpec = pair_spec("dpo", schedule={"max_steps": 3, "micro_batch_size": 4, "gradient_accumulation_steps": 3})
    looked = preview(spec, load_tokenizer(tiny_model), 1)
    run = new_run(spec)
    assert train(run) == 0
    tokens = events(run, "step")[-1].data["tokens"]
    # Each step takes all 12 pairs.
    assert looked["num_tokens"] / looked["num_rows"] == tokens / 3 / 12
    assert checked(spec)["longest_tokens"] == looked["longest_tokens"]


def test_pairs_are_untrained_only_where_their_answers_are(
    pair_spec: MakeSpec, tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "long.jsonl"
    rows = [{"prompt": prompt, "chosen": "yes", "rejected": "no"} for prompt in ("Q", "word " * 200)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    looked = preview(pair_spec("dpo", data={"path": str(path)}), load_tokenizer(tiny_model), 1)
    assert (looked["num_rows"], looked["num_untrained"]) == (2, 1), "a run learns from one of two"


def test_a_preview_shows_both_answers_of_as_many_pairs_as_were_asked_for(
    pair_spec: MakeSpec, tiny_model: Path
) -> None:
    shown = preview(pair_spec("simpo"), load_tokenizer(tiny_model), 2)["rows"]
    assert [(row["line"], row["answer"]) for row in shown] == [
        *((1, "better"), (1, "worse")),
        *((2, "better"), (2, "worse")),
    ]
    texts = ["".join(part["text"] for part in row["segments"] if part["trained"]) for row in shown]
    assert [":)" in text for text in texts] == [True, False, True, False]
    shown = preview(pair_spec("sft"), load_tokenizer(tiny_model), 2)["rows"]
    assert [(row["line"], row["answer"]) for row in shown] == [(1, ""), (2, "")]
