"""Whole runs that learn from pairs: what they learn and say, that they resume to the bit, and what bad pairs cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import events, result_of, train
from tests.engine.exact_resume import goes_on_to_the_bit
from tests.engine.preference.test_trl_runs import write_labels, write_pairs
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
KINDS = ["dpo", "simpo", "orpo", "cpo", "kto"]


@pytest.fixture
def pair_spec(tiny_spec: MakeSpec, tmp_path: Path) -> MakeSpec:
    """Make a spec of 12 pairs in steps of 4."""

    def make(kind: str, **sections: dict[str, Any]) -> RunSpec:
        path = tmp_path / "pairs.jsonl"
        if not path.exists():
            (write_labels if kind == "kto" else write_pairs)(path)
        sections["data"] = {"path": str(path), **sections.get("data", {})}
        spec = tiny_spec(**sections)
        spec.objective.kind = kind
        return spec

    return make


@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_goes_on_to_the_bit(
    kind: str, kernels: bool, pair_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = pair_spec(
        kind,
        hardware={"kernels": kernels},
        method={"dropout": 0.0 if kernels else 0.3},
        evaluation={"percent": 25.0, "every_steps": 2, "sample_prompts": ["Hi"], "sample_max_tokens": 3},
    )
    whole, halves = new_run(spec), new_run(spec)
    goes_on_to_the_bit(whole, halves)
    assert [event.data for event in events(whole, "eval")][-1]["loss"] == result_of(halves)["eval_loss_after"]
    setup = events(whole, "setup")[-1].data
    assert (setup["num_train_rows"], setup["num_eval_rows"]) == (9, 3)
    assert any("layers run on" in line for line in setup["kernels"]) == kernels
    capsys.readouterr()


@pytest.mark.parametrize("kind", KINDS)
def test_held_out_pairs_are_told_apart_after_training(kind: str, pair_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(
        pair_spec(
            kind,
            schedule={"max_steps": 40, "micro_batch_size": 3, "gradient_accumulation_steps": 1, "warmup_steps": 0},
            evaluation={"percent": 25.0, "every_steps": 40},
        )
    )
    assert train(run) == 0
    before, after = (event.data for event in (events(run, "eval")[0], events(run, "eval")[-1]))
    assert after["reward_margin"] > before["reward_margin"]
    assert after["loss"] < before["loss"]
    if kind == "kto":
        assert (before["loss"], before["kl"]) == (pytest.approx(0.5, abs=1e-4), 0.0)
        return
    # A short answer is the likelier one, which CPO's sums show and SimPO's means don't.
    assert after["reward_accuracy"] == (0.0 if kind == "cpo" else 1.0)
    if kind == "dpo":
        assert before["loss"] == pytest.approx(0.6931, abs=1e-3)
        assert before["reward_margin"] == pytest.approx(0.0, abs=1e-4)
    step = events(run, "step")[-1].data
    assert step["reward_margin"] == pytest.approx(step["reward_chosen"] - step["reward_rejected"], abs=1e-5)


def _fails(run: Run) -> str:
    assert train(run) == 2
    return str(events(run, "error")[-1].data["message"])


def test_data_without_pairs_is_refused_by_name_and_kind(pair_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"prompt": "a", "completion": "b"}\n' * 4, encoding="utf-8")
    words = _fails(new_run(pair_spec("dpo", data={"path": str(path)})))
    assert words.startswith(f"{path}: this objective learns from preference pairs")
    assert words.endswith("They are read as: Prompt and response.")


def test_a_pair_without_a_difference_is_named_or_skipped(pair_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "same.jsonl"
    rows = [{"prompt": f"Q{n}", "chosen": f"yes {n}", "rejected": f"no {n}" if n != 2 else "yes 2"} for n in range(6)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    words = _fails(new_run(pair_spec("dpo", data={"path": str(path)})))
    assert words.startswith(f'{path}, line 3: the answers in the columns "chosen" and "rejected" are the same')
    skipping = pair_spec("dpo", data={"path": str(path), "skip_bad_rows": True})
    run = new_run(skipping)
    assert train(run) == 0
    assert events(run, "setup")[-1].data["num_train_rows"] == 5


def test_pairs_whose_difference_is_cut_off_are_left_out(pair_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    same = "word " * 200
    rows = [{"prompt": "Q", "chosen": f"{same}yes", "rejected": f"{same}no"}] * 3
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    spec = pair_spec("dpo", data={"path": str(path)})
    assert "no row has a token to learn within 128 tokens" in _fails(new_run(spec))
    rows += [{"prompt": "Q", "chosen": "yes", "rejected": "no"}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run = new_run(pair_spec("dpo", data={"path": str(path)}))
    assert train(run) == 0
    setup = events(run, "setup")[-1].data
    assert (setup["num_train_rows"], setup["num_skipped_rows"]) == (1, 3)


@pytest.mark.parametrize("overlong", ["skip", "truncate"])
def test_a_pair_with_a_long_answer_is_skipped_whole_or_cut(
    overlong: str, pair_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    path = tmp_path / "long.jsonl"
    rows = [{"prompt": "Q", "chosen": "yes", "rejected": "no " * 300}, {"prompt": "Q", "chosen": "a", "rejected": "b"}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run = new_run(pair_spec("simpo", data={"path": str(path), "overlong": overlong}))
    assert train(run) == 0
    assert events(run, "setup")[-1].data["num_train_rows"] == (1 if overlong == "skip" else 2)


def _labels(path: Path, *labels: object) -> str:
    rows = [{"prompt": f"Q{n}", "completion": f"answer {n}", "label": label} for n, label in enumerate(labels)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def test_labels_that_can_t_be_learned_from_are_named(pair_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    for labels, words in (
        ([True] * 4, "Every answer is labeled good (4)"),
        (["bad"] * 5, "Every answer is labeled bad (5)"),
        ([1, 2, 3], 'the column "label" holds numbers from 1 to 3'),
        ([True, None, False], 'labels.jsonl, line 2, column "label": the label is missing'),
        ([1] * 60 + [0, 4], 'line 62, column "label": 4 is not a label'),
    ):
        assert words in _fails(new_run(pair_spec("kto", data={"path": _labels(path, *labels)})))
    skipping = {"path": _labels(path, True, None, False, True), "skip_bad_rows": True}
    run = new_run(pair_spec("kto", data=skipping, schedule={"max_steps": 2}))
    assert train(run) == 0
    setup = events(run, "setup")[-1].data
    assert (setup["num_train_rows"], setup["num_skipped_rows"]) == (3, 1)


def test_a_heavy_side_is_told(pair_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = _labels(tmp_path / "labels.jsonl", *[True] * 9, False)
    run = new_run(pair_spec("kto", data={"path": path}, schedule={"max_steps": 2}))
    assert train(run) == 0
    told = [event.data["message"] for event in events(run, "warning")]
    assert any(words.startswith("9 answers are labeled good and 1 bad.") for words in told)
    weighed = pair_spec("kto", data={"path": path}, schedule={"max_steps": 2})
    weighed.objective.bad_weight = 8.0
    run = new_run(weighed)
    assert train(run) == 0
    assert not any("labeled good" in event.data["message"] for event in events(run, "warning"))


def test_pairs_are_taken_apart_and_stay_on_one_side(pair_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "pairs-of-labels.jsonl"
    write_pairs(path)
    run = new_run(pair_spec("kto", data={"path": str(path)}, evaluation={"percent": 25.0, "every_steps": 5}))
    assert train(run) == 0
    setup = events(run, "setup")[-1].data
    assert (setup["num_train_rows"], setup["num_eval_rows"]) == (18, 6)
    held_out = events(run, "eval")[-1].data
    assert "reward_margin" in held_out, "each question is there with both answers"

