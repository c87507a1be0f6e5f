"""What a run with a head leaves: an adapter and a merged model that plain libraries read, and refusals by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.engine.conftest import events, train
from tests.engine.preference.test_trl_runs import write_pairs
from tests.engine.prepared import conduct_here, prepare
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.export import ExportSpec
from tunesmith_core.operations.kinds.rate import RateSpec
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes
from tunesmith_engine.evaluation import rate as rate_module
from tunesmith_engine.evaluation.rate import rate
from tunesmith_engine.export.export_run import export_run
from tunesmith_engine.export.own_texts import own_texts
from tunesmith_engine.model.folder import load_tokenizer

TEXTS = ("Say red. red green :)", "Say blue. no", "你好")


@pytest.fixture
def reward_run(tiny_spec: Callable[..., RunSpec], new_run: Callable[[RunSpec], Run], tmp_path: Path) -> Run:
    """A reward model after six steps."""
    path = tmp_path / "pairs.jsonl"
    write_pairs(path)
    spec = tiny_spec(data={"path": str(path)}, evaluation={"percent": 25.0})
    spec.objective.kind = "reward"
    run = new_run(spec)
    assert train(run) == 0
    return run


def _scores(model: Any, folder: Path) -> list[float]:  # Any: a model of transformers or PEFT
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return [float(model(**tokenizer(text, return_tensors="pt")).logits) for text in TEXTS]


def _export(run: Run, tmp_path: Path, format: str, **more: Any) -> dict[str, Any]:
    folder = tmp_path / f"operation-{format}"
    folder.mkdir()
    with Host(Operation(folder)) as host:
        return export_run(host, ExportSpec(run=str(run.path), format=format, to=str(tmp_path / format), **more))


@pytest.mark.usefixtures("few_prompts")
def test_adapter_and_merged_model_score_alike_in_plain_libraries(
    reward_run: Run, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(reward_run.adapter_path)
    base = AutoModelForSequenceClassification.from_pretrained(
        tiny_model, num_labels=1, pad_token_id=tokenizer.pad_token_id, dtype=torch.float32
    )
    adapted = PeftModel.from_pretrained(base, str(reward_run.adapter_path)).eval()
    wanted = _scores(adapted, reward_run.adapter_path)
    assert len({round(score, 4) for score in wanted}) == len(TEXTS)
    found = _export(reward_run, tmp_path, "merged")
    assert found["proof"]["passed"]
    # Both answers of ten pairs, not prompts of any kind.
    assert (found["proof"]["rates"], found["proof"]["num_prompts"]) == (True, 20)
    merged = AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
    assert merged.config.architectures == [type(merged).__name__]
    assert _scores(merged, tmp_path / "merged") == pytest.approx(wanted, abs=2e-2)
    card = (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")
    assert "AutoModelForSequenceClassification" in card
    assert "Bradley-Terry" in card
    assert "vllm" not in card
    assert "rates 100.0% of 20 texts alike" in card
    card = (reward_run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert "num_labels=1" in card
    assert not [word for word in ("loss on", "Loss on", "beta") if word in card]
    assert not events(reward_run, "warning")
    capsys.readouterr()


def test_what_is_compared_are_texts_of_the_data(
    reward_run: Run, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec, tokenizer = reward_run.load_spec(), load_tokenizer(tiny_model)
    rows = prepare(with_changes(spec, {"evaluation.percent": 0.0}), tokenizer).train
    # Between the better answers of two pairs stands the worse one of the first.
    assert own_texts(spec, tokenizer, 3)[::2] == [row.input_ids.tolist() for row in rows[:2]]
    Path(spec.data.sources[0].path).unlink()
    assert own_texts(spec, tokenizer, 3) == []
    assert "can't be read" in caplog.text
    caplog.clear()


def test_an_answer_of_ones_own_is_scored_as_the_rows_of_the_data_are(
    reward_run: Run, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rate_module, "conduct", conduct_here)
    spec = reward_run.load_spec()
    pair = json.loads(Path(spec.data.sources[0].path).read_text(encoding="utf-8").splitlines()[0])
    asked = RateSpec(RunFolder(str(reward_run.path)), pair["chosen"], pair["prompt"])
    found = rate(asked)
    tokenizer = load_tokenizer(tiny_model)
    whole = prepare(with_changes(spec, {"evaluation.percent": 0.0}), tokenizer).train[0].input_ids
    base = AutoModelForSequenceClassification.from_pretrained(
        tiny_model, num_labels=1, pad_token_id=tokenizer.pad_token_id, dtype=torch.float32
    )
    adapted = PeftModel.from_pretrained(base, str(reward_run.adapter_path)).eval()
    with torch.no_grad():
        wanted = float(adapted(torch.tensor([whole.tolist()])).logits)
    assert found == {"score": pytest.approx(wanted, abs=1e-4), "step": 6, "num_cut": 0}
    assert rate(replace(asked, text=pair["rejected"]))["score"] != found["score"]
    assert rate(replace(asked, text="red " * 2000))["num_cut"] > 0
    with pytest.raises(TunesmithError, match="There is no text to rate"):
        rate(replace(asked, text=" \n"))
    capsys.readouterr()


@pytest.mark.usefixtures("few_prompts")
def test_the_adapter_is_exported_with_its_proof(reward_run: Run, tmp_path: Path) -> None:
    assert _export(reward_run, tmp_path, "adapter")["proof"]["mean_kl"] < 1e-6


def test_programs_that_write_get_no_file(reward_run: Run, tmp_path: Path) -> None:
    with pytest.raises(TunesmithError, match="rates texts and writes none") as found:
        _export(reward_run, tmp_path, "gguf", type="f16")
    assert found.value.code == "export-unsupported"
