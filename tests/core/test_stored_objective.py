"""Learning from stored probabilities without the engine: settings, plan, checks before a run, report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.test_teachers import hardware
from tests.tiny_run import make_tiny_run
from tunesmith_core import objectives, planner, preflight, presets
from tunesmith_core.datafmt.stored import stored_column
from tunesmith_core.errors import TunesmithError
from tunesmith_core.evaluations import loss_help
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.protocol import Event
from tunesmith_core.report.facts import Facts, verdict_on
from tunesmith_core.report.page import page
from tunesmith_core.spec import RunSpec, has_effect


@pytest.fixture
def kd_spec(make_spec: Callable[..., RunSpec], tmp_path: Path) -> RunSpec:
    """A spec on rows that keep probabilities."""
    path = tmp_path / "stored.jsonl"
    row = {"prompt": "Who?", "completion": "Me.", "logprobs": stored_column([5], [[(5, -0.1)]], "abc")}
    path.write_text((json.dumps(row) + "\n") * 20, encoding="utf-8")
    spec = make_spec()
    spec.objective.kind, spec.data.sources[0].path, spec.data.sources[0].format = "kd", str(path), "auto"
    return spec


def test_its_settings_are_those_of_sft_and_a_share(kd_spec: RunSpec) -> None:
    assert not kd_spec.problems()
    assert has_effect(kd_spec, "objective.written_share")
    assert has_effect(kd_spec, "hardware.kernels")
    assert not has_effect(kd_spec, "teacher.beta")
    assert not has_effect(kd_spec, "optimizer.neftune_alpha")
    assert not has_effect(RunSpec(), "objective.written_share")
    assert "kd" in objectives.names()
    assert presets.changes_for("kd", "balanced") == presets.changes_for("sft", "balanced")
    kd_spec.adapter.kind = "full"
    assert not kd_spec.problems(), "nothing is compared with the base model"


@pytest.mark.usefixtures("fake_engine")
def test_data_without_probabilities_is_named_before_the_run(kd_spec: RunSpec) -> None:
    preflight.check_rows(kd_spec)
    path = Path(kd_spec.data.sources[0].path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[2]["logprobs"] = None
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(TunesmithError, match='line 3, column "logprobs": the probabilities'):
        preflight.check_rows(kd_spec)
    kd_spec.data.skip_bad_rows = True
    preflight.check_rows(kd_spec)
    path.write_text('{"prompt": "Who?", "completion": "Me."}\n', encoding="utf-8")
    with pytest.raises(TunesmithError, match='There is no column "logprobs"'):
        preflight.check_rows(kd_spec)


@pytest.mark.parametrize("kernels", [True, False])
def test_the_plan_counts_the_stored_tokens(kernels: bool, kd_spec: RunSpec) -> None:
    kd_spec.hardware.kernels = kernels
    card = read_model_card(Path(kd_spec.model.path))
    supervised = replace(kd_spec, objective=RunSpec().objective)
    ours, usual = (planner.plan(each, hardware(), card=card, longest_tokens=100) for each in (kd_spec, supervised))
    tokens = 100 * kd_spec.schedule.micro_batch_size
    copied = 0 if kernels else 2 * tokens * card.vocab_size
    assert ours.parts["logits"] - usual.parts["logits"] == 17 * 12 * tokens + copied
    assert "teacher" not in ours.parts


def test_a_report_tells_the_divergence_and_no_perplexity(kd_spec: RunSpec, tmp_path: Path) -> None:
    facts = Facts()
    for step in (0, 9):
        facts.fold(Event(step, 0.0, "eval", {"step": step, "loss": 1.0 - step / 20}))
    html = page(make_tiny_run(tmp_path / "run"), kd_spec, facts, verdict_on(facts))
    assert "<td>0.550</td>" in html
    assert "divergence" in html
    assert "erplexity" not in html
    assert "Hinton et al. 2015" in html
    assert "the bigger one" in loss_help(kd_spec.objective)
