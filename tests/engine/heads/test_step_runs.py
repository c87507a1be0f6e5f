"""Process reward models: transformers' own loop, what they learn, leave and say, and bad steps by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForTokenClassification, AutoTokenizer, Trainer, TrainingArguments

from tests.engine.conftest import events, step_losses, train
from tests.engine.exact_resume import goes_on_to_the_bit
from tests.engine.prepared import conduct_here
from tests.engine.test_oracle import GivenOrder, prepare
from tests.engine.trl_settings import settings_of
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath, RunFolder
from tunesmith_core.operations.kinds.evaluate import EvaluateSpec
from tunesmith_core.operations.kinds.export import ExportSpec
from tunesmith_core.operations.kinds.rate import RateSpec
from tunesmith_core.report.facts import read, verdict_on
from tunesmith_core.report.page import page
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.collate import collate
from tunesmith_engine.data.preview import preview
from tunesmith_engine.device import choose_compute
from tunesmith_engine.evaluation import rate as rate_module
from tunesmith_engine.evaluation.evaluate import evaluate
from tunesmith_engine.evaluation.rate import rate
from tunesmith_engine.export.export_run import export_run
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.train.schedule import StepPlan

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
NUM_STEPS, BATCH_SIZE = 30, 4


def write_steps(path: Path, num_rows: int = 32) -> None:
    """Write solutions of two or three steps; a wrong one says so."""
    rows = []
    for number in range(num_rows):
        labels = [(number + place) % 3 > 0 for place in range(2 + number % 2)]
        steps = [f"Step {place}: {'yes' if label else 'no!!'}" for place, label in enumerate(labels)]
        rows.append({"prompt": f"What is {number}?", "completions": steps, "labels": labels})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


@pytest.fixture
def step_spec(tiny_spec: MakeSpec, tmp_path: Path) -> MakeSpec:
    """Make a spec of 32 solutions with labeled steps."""

    def make(**sections: Any) -> RunSpec:
        path = tmp_path / "steps.jsonl"
        if not path.exists():
            write_steps(path)
        sections["data"] = {"path": str(path), **sections.get("data", {})}
        values = tiny_spec(**sections).to_dict()
        values["objective"] = {"kind": "prm"}
        return RunSpec.from_dict(values)

    return make


def test_rows_are_those_of_trl(step_spec: MakeSpec) -> None:
    spec = step_spec()
    tokenizer = load_tokenizer(Path(spec.model.path))
    first = prepare(spec, tokenizer).train[0]

    def tokens(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    # TRL's PRMTrainer.tokenize_row: prompt, then each step with the separator, whose last token has the label.
    ids, labels = tokens("What is 0?"), [-100] * len(tokens("What is 0?"))
    for step, label in (("Step 0: no!!", 0), ("Step 1: yes", 1)):
        part = [*tokens(step), *tokens("\n")]
        ids, labels = ids + part, labels + [-100] * (len(part) - 1) + [label]
    assert first.input_ids.tolist() == ids
    assert first.labels.tolist() == labels


def test_a_preview_says_of_each_step_whether_it_is_right(step_spec: MakeSpec) -> None:
    spec = step_spec()
    rows = preview(spec, load_tokenizer(Path(spec.model.path)), 2)["rows"]
    said = [[(part["text"], part.get("is_right")) for part in row["segments"]] for row in rows]
    first = [("What is 0?Step 0: no!!", None), ("\n", False), ("Step 1: yes", None), ("\n", True)]
    assert said[0] == first
    assert [part for part in said[1] if part[1] is not None] == [("\n", True), ("\n", True), ("\n", False)]


def _oracle_log(spec: RunSpec, folder: Path, out: Path) -> list[dict[str, float]]:
    """Train by transformers' own loop and loss, as TRL's trainer did, and return its log of the steps."""
    examples = prepare(spec, load_tokenizer(folder)).train
    plan = StepPlan(spec.schedule, len(examples))

    class Oracle(Trainer):
        def _get_train_sampler(self, *_: object) -> GivenOrder:
            return GivenOrder(plan, NUM_STEPS)

    trainer = Oracle(
        model=method_of("prm").load(folder, spec, choose_compute(spec)),
        args=TrainingArguments(**settings_of(spec, out, NUM_STEPS), remove_unused_columns=False),
        train_dataset=list(range(len(examples))),
        data_collator=lambda rows: collate([examples[row] for row in rows], 0),
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.timeout(600)
def test_thirty_steps_are_those_of_transformers(
    step_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = step_spec(
        optimizer={"learning_rate": 5e-3, "weight_decay": 0.1, "max_grad_norm": 1.0},
        schedule={
            "max_steps": NUM_STEPS,
            "micro_batch_size": BATCH_SIZE,
            "gradient_accumulation_steps": 1,
            "seed": 5,
        },
    )
    run = new_run(spec)
    assert train(run) == 0
    theirs = _oracle_log(spec, tiny_model, tmp_path / "oracle")
    capsys.readouterr()
    ours = [event.data for event in events(run, "step")]
    assert len(ours) == len(theirs) == NUM_STEPS
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in theirs], rel=2e-4, abs=2e-5)
    norms = [step["grad_norm"] for step in theirs]
    assert [step["grad_norm"] for step in ours] == pytest.approx(norms, rel=5e-3, abs=1e-4)
    assert ours[-1]["loss"] < 0.5 * ours[0]["loss"], "it learns"
    assert ours[-1]["step_accuracy"] > 0.9


def test_portions_of_a_step_add_up_to_the_whole_step(step_spec: MakeSpec, new_run: NewRun) -> None:
    losses = []
    for size in (4, 1):
        schedule = {"max_steps": 3, "micro_batch_size": size, "gradient_accumulation_steps": 4 // size}
        run = new_run(step_spec(schedule=schedule))
        assert train(run) == 0
        losses.append(step_losses(run))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_stopped_run_goes_on_to_the_bit(
    step_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = step_spec(method={"dropout": 0.3}, evaluation={"percent": 25.0, "every_steps": 2})
    whole, halves = new_run(spec), new_run(spec)
    goes_on_to_the_bit(whole, halves)
    capsys.readouterr()


def _verdicts(model: Any, tokenizer: Any) -> list[float]:  # Any: of transformers or PEFT
    """What a card shows: how likely each step of a solution is right."""
    tokens, ends = tokenizer("What is 7?")["input_ids"], []
    for step in ("Step 0: yes", "Step 1: no!!"):
        for part in (step, "\n"):
            tokens = tokens + tokenizer(part, add_special_tokens=False)["input_ids"]
        ends.append(len(tokens) - 1)
    with torch.no_grad():
        found: list[float] = model(torch.tensor([tokens])).logits[0, ends].softmax(-1)[:, 1].tolist()
    return found


@pytest.mark.usefixtures("few_prompts")
def test_steps_are_judged_by_plain_libraries_as_by_the_run(
    step_spec: MakeSpec,
    new_run: NewRun,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schedule = {"max_steps": 40, "micro_batch_size": 4, "gradient_accumulation_steps": 1, "warmup_steps": 0}
    run = new_run(step_spec(schedule=schedule, evaluation={"percent": 25.0, "every_steps": 40}))
    assert train(run) == 0
    first, last = events(run, "eval")[0].data, events(run, "eval")[-1].data
    assert last["step_accuracy"] > max(0.8, first["step_accuracy"])
    assert last["macro_f1"] > 0.8
    assert 0 <= last["calibration_error"] <= 1
    facts = read(run)
    verdict = verdict_on(facts)
    assert "steps in held-out solutions are judged rightly" in f"{verdict.sentence} {verdict.evidence}"
    html = page(run, run.load_spec(), facts, verdict)
    assert "Right steps" in html
    assert "Lightman et al. 2023" in html
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert "AutoModelForTokenClassification" in card
    (tmp_path / "operation").mkdir()
    with Host(Operation(tmp_path / "operation")) as host:
        spec = ExportSpec(RunFolder(str(run.path)), format="merged", to=AbsolutePath(str(tmp_path / "merged")))
        assert export_run(host, spec)["proof"]["passed"]
        found = evaluate(host, EvaluateSpec(RunFolder(str(run.path))))
    assert found["metrics"][0]["name"] == "right_steps"
    assert found["metrics"][0]["after"] > 0.8
    monkeypatch.setattr(rate_module, "conduct", conduct_here)
    merged = AutoModelForTokenClassification.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
    right, wrong = _verdicts(merged, AutoTokenizer.from_pretrained(tmp_path / "merged"))
    assert right > 0.5 > wrong
    asked = RateSpec(RunFolder(str(run.path)), "Step 0: yes\n\nStep 1: no!!", "What is 7?")
    assert rate(asked)["steps"] == pytest.approx([right, wrong], abs=2e-2)
    assert merged.config.id2label == {0: "wrong", 1: "right"}
    base = AutoModelForTokenClassification.from_pretrained(
        tiny_model, num_labels=2, dtype=torch.float32
    )
    adapted = PeftModel.from_pretrained(base, str(run.adapter_path)).eval()
    assert _verdicts(adapted, load_tokenizer(tiny_model)) == pytest.approx([right, wrong], abs=2e-2)
    card = (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: token-classification" in card
    assert "how likely each step is right" in card
    capsys.readouterr()


def _error(run: Run) -> str:
    assert train(run) in (2, 4)
    return str(events(run, "error")[-1].data["message"])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "p", "completions": ["a"], "labels": [True, False]}, "Labels: 2, steps: 1"),
        ({"prompt": "p", "completions": "a", "labels": [True]}, 'column "completions": must be a list of texts'),
        ({"prompt": "p", "completions": [], "labels": []}, 'column "completions": is empty'),
        ({"prompt": "p", "completions": ["a"], "labels": [0.5]}, 'column "labels": must be a list of true or false'),
    ],
)
def test_bad_steps_are_named_at_their_line(
    row: dict[str, Any], words: str, step_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    path = tmp_path / "steps.jsonl"
    good = {"prompt": "p", "completions": ["a", "b"], "labels": [True, False]}
    path.write_text("\n".join(map(json.dumps, [good, row])), encoding="utf-8")
    message = _error(new_run(step_spec()))
    assert message.startswith(f"{path}, line 2")
    assert words in message


def test_steps_that_are_all_right_teach_nothing(step_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    row = {"prompt": "p", "completions": ["a", "b"], "labels": ["+", 1]}
    (tmp_path / "steps.jsonl").write_text("\n".join([json.dumps(row)] * 8), encoding="utf-8")
    assert "Every step of the training rows is right" in _error(new_run(step_spec()))
