"""Rows that a run leaves out: the plan counts without them, and plan and run say how many and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import events, train
from tunesmith_core import held_out, planner
from tunesmith_core.hardware import Hardware
from tunesmith_core.rows_look import RowsLook
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.preview import preview
from tunesmith_engine.model.folder import load_tokenizer

MakeSpec, NewRun = Callable[..., RunSpec], Callable[[RunSpec], Run]

CPU = Hardware("cpu", "", 1 << 40, 1 << 40, 1 << 40, 1 << 40)


def rows_of(kind: str) -> list[dict[str, Any]]:
    """Return 20 rows, of which 6 have nothing to learn within 64 tokens: their questions are longer."""
    questions = ["word " * 30 if number % 3 == 1 and number < 18 else f"Q{number}" for number in range(20)]
    if kind == "dpo":
        return [{"prompt": text, "chosen": f"yes {text[:3]}", "rejected": "no"} for text in questions]
    return [{"prompt": text, "completion": f"yes {text[:3]}"} for text in questions]


@pytest.mark.parametrize(
    ("kind", "overlong", "code", "words"),
    [
        ("sft", "truncate", "dataset-rows-unlearned", "answers begin beyond the context length of 64 tokens: 6 of 20."),
        ("dpo", "truncate", "dataset-rows-unlearned", "begin or differ beyond the context length of 64 tokens: 6 of"),
        ("sft", "skip", "dataset-rows-unlearned", "longer than the context length of 64 tokens are skipped: 6 of 20."),
        ("dpo", "skip", "dataset-rows-unlearned", "longer than the context length of 64 tokens are skipped: 6 of 20."),
        ("sft", "bad", "dataset-rows-bad", "Bad rows left out: 3. The first: "),
    ],
)
def test_a_plan_counts_the_steps_of_its_run_and_both_say_what_is_left_out(
    tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path, kind: str, overlong: str, code: str, words: str
) -> None:
    path, rows = tmp_path / "long.jsonl", rows_of(kind)
    if overlong == "bad":
        rows = [{"completion": "a"}] * 3 + rows[:1] + rows[-13:]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    data = {"path": str(path), "context_length": 64, "overlong": overlong}
    if overlong == "bad":
        data |= {"context_length": 512, "overlong": "truncate", "skip_bad_rows": True}
    schedule = {"max_steps": 0, "epochs": 1.0, "micro_batch_size": 1, "gradient_accumulation_steps": 1}
    spec = tiny_spec(data=data, schedule=schedule | {"warmup_steps": 0}, evaluation={"percent": 20.0})
    spec.objective.kind = kind
    looked = preview(spec, load_tokenizer(Path(spec.model.path)), 1)
    look = RowsLook.of(looked)
    assert look.is_exact(spec.data.sources)
    (num_rows,) = look.examples(spec.data.sources, [len(rows)])
    assert num_rows == 14
    run = new_run(spec)
    assert train(run) == 0
    setup = events(run, "setup")[-1].data
    assert setup["total_steps"] == planner.plan(spec, CPU, num_rows=num_rows).total_steps == 11
    assert setup["num_eval_rows"] == held_out.num_held_out(num_rows, 20.0) == 3
    # Beside bad rows there are long ones, of which some are held out.
    near = 0.2 if overlong == "bad" else 0.02
    assert look.row_tokens == pytest.approx(events(run, "step")[-1].data["tokens"] / setup["num_train_rows"], near)
    (told,) = [event.data["message"] for event in events(run, "warning") if event.data["code"] == code]
    assert words in told
    assert told in looked["notes"]
    advice = " ".join(looked["notes"]).lower().count("raise the context length")
    assert advice == (1 if overlong == "truncate" else 0), "one advice is enough"


def test_of_rows_that_were_not_all_looked_at_the_plan_says_so(
    tiny_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunesmith_engine.data.preview.MAX_ROWS", 10)
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of("sft")), encoding="utf-8")
    spec = tiny_spec(data={"path": str(path), "context_length": 64})
    looked = preview(spec, load_tokenizer(Path(spec.model.path)), 1)
    look, left_out = RowsLook.of(looked), looked["notes"][0]
    assert (look.examples(spec.data.sources, [200]), look.is_exact(spec.data.sources)) == ([140], False)
    assert "64 tokens: 3 of 10." in left_out
    assert left_out.endswith("Rows that were looked at: 10.")
