"""Runs that sort texts into classes or predict numbers: what they learn, leave and say, and bad labels by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import pipeline

from tests.engine.conftest import events, train
from tests.engine.exact_resume import goes_on_to_the_bit
from tests.engine.prepared import conduct_here
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath, RunFolder
from tunesmith_core.operations.kinds.export import ExportSpec
from tunesmith_core.operations.kinds.rate import RateSpec
from tunesmith_core.operations.limits import Portions
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import DataStats
from tunesmith_engine.data.preview import preview
from tunesmith_engine.data.rows_file import RowsWriter, read_rows
from tunesmith_engine.evaluation import rate as rate_module
from tunesmith_engine.evaluation.class_figures import class_figures, number_figures
from tunesmith_engine.evaluation.rate import rate
from tunesmith_engine.export.export_run import export_run
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.folder import load_tokenizer

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
MOODS = {"good": "nice great fine lovely", "bad": "awful poor sad broken", "none": "table chair door floor"}
NUMBERS = {"good": 1.0, "bad": -1.0, "none": 0.0}


def write_labels(path: Path, num_rows: int = 60, *, numbers: bool = False, **more: Any) -> None:
    """Write short texts whose words tell their label."""
    rows = []
    for number in range(num_rows):
        mood = list(MOODS)[number % 3]
        words = MOODS[mood].split()
        text = f"{number}: {words[number % 4]} {words[(number // 3) % 4]}"
        rows.append({"text": text, "label": NUMBERS[mood] if numbers else mood, **more})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


@pytest.fixture
def class_spec(tiny_spec: MakeSpec, tmp_path: Path) -> MakeSpec:
    """Make a spec of 60 texts in three classes."""

    def make(*, numbers: bool = False, **sections: Any) -> RunSpec:
        path = tmp_path / "labels.jsonl"
        if not path.exists():
            write_labels(path, numbers=numbers)
        sections["data"] = {"path": str(path), **sections.get("data", {})}
        values = tiny_spec(**sections).to_dict()
        values["objective"] = {"kind": "classify", "regression": numbers}
        return RunSpec.from_dict(values)

    return make


def test_a_preview_says_the_label_of_each_text(class_spec: MakeSpec) -> None:
    spec = class_spec()
    rows = preview(spec, load_tokenizer(Path(spec.model.path)), 3)["rows"]
    assert [row["label"] for row in rows] == ["good", "bad", "none"]


LONG = {"max_steps": 60, "micro_batch_size": 4, "gradient_accumulation_steps": 1, "warmup_steps": 0}


@pytest.mark.usefixtures("few_prompts")
def test_classes_are_learned_and_read_by_a_pipeline(
    class_spec: MakeSpec, new_run: NewRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(class_spec(schedule=LONG, evaluation={"percent": 20.0, "every_steps": 60}))
    assert train(run) == 0
    last = events(run, "eval")[-1].data
    assert last["accuracy"] > 0.8
    assert last["macro_f1"] > 0.8
    assert 0 <= last["calibration_error"] <= 1
    assert events(run, "step")[-1].data["accuracy"] > 0.7
    assert events(run, "setup")[-1].data["classes"] == ["good", "bad", "none"]
    assert {event.type for event in events(run)}.isdisjoint({"sample", "answers", "warning"})
    (tmp_path / "operation").mkdir()
    with Host(Operation(tmp_path / "operation")) as host:
        spec = ExportSpec(RunFolder(str(run.path)), format="merged", to=AbsolutePath(str(tmp_path / "merged")))
        assert export_run(host, spec)["proof"]["passed"]
    sort = pipeline("text-classification", model=str(tmp_path / "merged"), device="cpu", dtype=torch.float32)
    texts = {"1: nice great": "good", "7: awful sad": "bad", "5: chair floor": "none"}
    assert [each["label"] for each in sort(list(texts))] == list(texts.values())
    monkeypatch.setattr(rate_module, "conduct", conduct_here)
    found = rate(RateSpec(RunFolder(str(run.path)), "7: awful sad"))["classes"]
    assert sum(share for _, share in found) == pytest.approx(1.0, abs=1e-5)
    assert found[0] == ["bad", pytest.approx(sort("7: awful sad")[0]["score"], abs=2e-2)]
    config = json.loads((tmp_path / "merged" / "config.json").read_text(encoding="utf-8"))
    assert config["id2label"] == {"0": "good", "1": "bad", "2": "none"}
    assert config["problem_type"] == "single_label_classification"


def test_a_pipeline_reads_the_tokens_that_were_trained(class_spec: MakeSpec, tmp_path: Path) -> None:
    spec = class_spec()
    tokenizer = load_tokenizer(Path(spec.model.path))
    with RowsWriter(tmp_path) as rows:
        method_of("classify").prepare(spec, tokenizer, rows, Portions())
    first = read_rows(tmp_path)[0]
    assert first.input_ids.tolist() == tokenizer("0: nice nice")["input_ids"]


@pytest.mark.parametrize("numbers", [False, True])
def test_columns_of_any_name_and_order_are_read(numbers: bool, class_spec: MakeSpec, tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    labels = ("0.5", "-1") if numbers else ("Sales", "Care")
    path.write_text("Abteilung,Beschwerde\n" + f"{labels[0]},No parcel\n{labels[1]},Wrong bill\n" * 5)
    columns = {"text": "Beschwerde", "class": "Abteilung"}
    spec = class_spec(data={"path": str(path), "columns": columns}, evaluation={"percent": 0.0})
    spec.objective.regression = numbers
    tokenizer = load_tokenizer(Path(spec.model.path))
    with RowsWriter(tmp_path) as rows:
        prepared = method_of("classify").prepare(spec, tokenizer, rows, Portions())
    assert (len(prepared.train), prepared.classes) == (10, [] if numbers else ["Sales", "Care"])
    assert read_rows(tmp_path)[1].input_ids.tolist() == tokenizer("Wrong bill")["input_ids"]


def test_longer_texts_are_cut_or_skipped_and_counted(class_spec: MakeSpec, tmp_path: Path) -> None:
    def prepared(**data: Any) -> tuple[list[int], list[int], DataStats]:
        spec = class_spec(data=data)
        with RowsWriter(tmp_path / "rows") as rows:
            stats = method_of("classify").prepare(spec, load_tokenizer(Path(spec.model.path)), rows, Portions()).stats
        written = read_rows(tmp_path / "rows")
        return [len(row.input_ids) for row in written], [int(row.labels[-1]) for row in written], stats

    (tmp_path / "rows").mkdir()
    lengths, labels, _ = prepared()
    limit = sorted(lengths)[len(lengths) // 2]
    num_longer = sum(length > limit for length in lengths)
    assert 0 < num_longer < len(lengths)
    cut, labels_of_cut, stats = prepared(context_length=limit)
    assert (cut, labels_of_cut) == ([min(length, limit) for length in lengths], labels)
    assert (stats.num_truncated_rows, stats.num_overlong_rows) == (num_longer, 0)
    left, labels_of_left, stats = prepared(context_length=limit, overlong="skip")
    fitting = [(length, label) for length, label in zip(lengths, labels, strict=True) if length <= limit]
    assert list(zip(left, labels_of_left, strict=True)) == fitting
    assert (stats.num_truncated_rows, stats.num_overlong_rows) == (0, num_longer)


def test_numbers_are_predicted(class_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(class_spec(numbers=True, schedule=LONG, evaluation={"percent": 20.0, "every_steps": 60}))
    assert train(run) == 0
    first, last = events(run, "eval")[0].data, events(run, "eval")[-1].data
    assert last["rmse"] < 0.7 * first["rmse"]
    assert last["rmse"] == pytest.approx(last["loss"] ** 0.5, rel=1e-4)
    assert last["correlation"] > 0.7
    assert "accuracy" not in last
    monkeypatch.setattr(rate_module, "conduct", conduct_here)
    high, low = (rate(RateSpec(RunFolder(str(run.path)), text))["number"] for text in ("1: nice great", "7: awful sad"))
    assert high > 0.3 > -0.3 > low


@pytest.mark.parametrize("numbers", [False, True])
def test_a_stopped_run_goes_on_to_the_bit(
    numbers: bool, class_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = class_spec(numbers=numbers, method={"dropout": 0.3}, evaluation={"percent": 25.0, "every_steps": 2})
    whole, halves = new_run(spec), new_run(spec)
    goes_on_to_the_bit(whole, halves)
    capsys.readouterr()


def _error(run: Run) -> str:
    assert train(run) == 2
    return str(events(run, "error")[-1].data["message"])


def _rows(path: Path, *labels: object) -> None:
    rows = [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def test_bad_labels_are_named_at_their_line(class_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    _rows(path, "a", "b", ["a"], "b")
    assert _error(new_run(class_spec())) == f'{path}, line 3, column "label": must hold a single label.'
    _rows(path, "a", "b", None, "b")
    assert _error(new_run(class_spec())) == f'{path}, line 3, column "label": must hold a single label.'
    _rows(path, "a", "a", "a")
    assert _error(new_run(class_spec())) == (
        f'{path}, line 1: this row and all others have the label "a". Sorting needs at least two classes.'
    )
    _rows(path, 1, "two", 3)
    assert _error(new_run(class_spec(numbers=True))) == f'{path}, line 2: the label "two" is not a number.'
    _rows(path, 2, 2, 2)
    assert "Every training row has the number 2" in _error(new_run(class_spec(numbers=True)))


def test_an_unseen_label_in_held_out_data_is_named(class_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    held_out = tmp_path / "held_out.jsonl"
    _rows(held_out, "good", "bad", "ugly")
    spec = class_spec(evaluation={"path": str(held_out)})
    assert _error(new_run(spec)) == (
        f'{held_out}, line 3: no training row has the label "ugly", so the model can\'t learn it.'
    )
    spec.data.skip_bad_rows = True
    run = new_run(spec)
    assert train(run) == 0
    assert events(run, "setup")[-1].data["num_eval_rows"] == 2


def test_a_class_with_one_row_is_trained_and_named(class_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    _rows(path, *["a", "b"] * 10, "c")
    for seed in range(3):
        run = new_run(class_spec(evaluation={"percent": 50.0}, schedule={"max_steps": 1, "seed": seed}))
        assert train(run) == 0
        (warning,) = [event.data for event in events(run, "warning") if event.data["code"] == "dataset-classes"]
        assert f'"c" ({path}, line 21)' in warning["message"]


def test_classes_keep_the_order_that_was_named(class_spec: MakeSpec, new_run: NewRun) -> None:
    spec = class_spec()
    spec.objective.classes = ["none", "good", "bad"]
    run = new_run(spec)
    assert train(run) == 0
    assert events(run, "setup")[-1].data["classes"] == ["none", "good", "bad"]
    spec.objective.classes = ["none", "good"]
    assert "no training row has" in _error(new_run(spec))


def test_an_answer_is_sorted_with_its_question(class_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    rows = [{"prompt": f"Q{n}?", "answer": "yes" if n % 2 else "no", "label": bool(n % 2)} for n in range(12)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run = new_run(class_spec())
    assert train(run) == 0
    assert events(run, "setup")[-1].data["classes"] == ["false", "true"]


def test_figures_are_those_of_their_definitions() -> None:
    right = np.array([0, 0, 1, 1, 2, 2.0])
    logits = np.log(np.array([[8, 1, 1], [1, 8, 1], [1, 8, 1], [1, 8, 1], [1, 1, 8], [8, 1, 1]]) / 10.0)
    found = class_figures(logits, right)
    # Per class: 2 * hits / (told + right).
    assert found["macro_f1"] == pytest.approx((2 * 1 / 4 + 2 * 2 / 5 + 2 * 1 / 3) / 3)
    assert found["calibration_error"] == pytest.approx(abs(4 / 6 - 0.8))
    told = np.array([1.0, 2.0, 4.0])
    assert number_figures(told, np.array([1.0, 2.0, 3.0])) == pytest.approx(
        {"rmse": (1 / 3) ** 0.5, "correlation": float(np.corrcoef(told, [1, 2, 3])[0, 1])}
    )
    assert number_figures(told, np.array([1.0, 1.0, 1.0]))["correlation"] == 0.0
