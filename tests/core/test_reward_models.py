"""The reward model of a run: what a folder may be, what is named before a run, and what the plan counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import write_safetensors
from tunesmith_core import environments, preflight, reward_models
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.planner import plan
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_rollouts import RewardSpec
from tunesmith_core.start_choices import reward_models_of_runs

Make = Callable[..., RunSpec]
TOKENIZER = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"content": "<e>", "id": 2}]}


@pytest.fixture
def scoring(tmp_path: Path) -> Path:
    """A folder of a reward model that reads what `model_folder` writes."""
    folder = tmp_path / "scoring"
    folder.mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    write_safetensors(folder / "model.safetensors", {"layers.0.q_proj.weight": [4, 8], "embed_tokens.weight": [16, 8]})
    return folder


@pytest.fixture
def rewarded(make_spec: Make, scoring: Path) -> RunSpec:
    """A run that learns from a reward model."""
    spec = make_spec("r")
    spec.objective.kind = "grpo"
    spec.rollouts.rewards = [RewardSpec(kind="model", model=str(scoring))]
    return spec


def test_a_model_that_scores_is_found_and_others_are_named(scoring: Path, model_folder: Path, tmp_path: Path) -> None:
    assert reward_models.find(str(scoring)).folder == scoring
    for folder, words in ((tmp_path / "none", "no reward model in this folder"), (model_folder, "writes texts")):
        with pytest.raises(TunesmithError, match=words) as caught:
            reward_models.find(str(folder))
        assert caught.value.code == "reward-failed"
    config = json.loads((scoring / "config.json").read_text())
    for labels, num in (({"0": "a", "1": "b", "2": "c"}, 3), ({}, 2)):
        (scoring / "config.json").write_text(json.dumps(config | {"id2label": labels}))
        with pytest.raises(TunesmithError, match=f"into {num} classes"):
            reward_models.find(str(scoring))
    (scoring / "config.json").write_text(json.dumps(config | {"architectures": None}))
    with pytest.raises(TunesmithError, match="writes texts"):
        reward_models.find(str(scoring))


def test_a_run_is_found_by_its_folder_and_its_adapter(make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec("scores")
    run = create_run(spec)
    with pytest.raises(TunesmithError, match="did not learn to score"):
        reward_models.find(str(run.path))
    spec.objective.kind = "reward"
    run = create_run(spec)
    with pytest.raises(TunesmithError, match="has not learned anything yet"):
        reward_models.find(str(run.path))
    monkeypatch.setattr(reward_models, "chosen_weights", lambda run, _step: (1, run.adapter_path))
    beside = run.path / "epochs"
    beside.mkdir()
    with pytest.raises(TunesmithError, match="no reward model in this folder"):
        reward_models.find(str(beside))
    for folder in (run.path, run.adapter_path):
        found = reward_models.find(str(folder))
        assert isinstance(found.run, Run)
        assert (found.path, str(found.folder)) == (run.path, spec.model.path)


def test_runs_that_have_learned_to_score_are_listed(make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec("writes")
    create_run(spec)
    spec.objective.kind, spec.name = "reward", "scores"
    run = create_run(spec)
    (create_run(spec).spec_path).write_text("{")
    assert reward_models_of_runs() == [], "nothing is learned yet"
    monkeypatch.setattr(reward_models, "chosen_weights", lambda run, _step: (1, run.adapter_path))
    assert [(each.name, each.path) for each in reward_models_of_runs()] == [("scores", str(run.path))]


def test_other_tokens_and_another_template_are_named(
    rewarded: RunSpec, scoring: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preflight.check_data(rewarded, preflight.check_model(rewarded))
    found = reward_models.find(str(scoring))
    (scoring / "tokenizer_config.json").write_text("{}")
    with pytest.raises(TunesmithError, match="no chat template"):
        reward_models.check_alike(found, rewarded, model_folder)
    (scoring / "chat_template.jinja").write_text("{{ other }}\n")
    with pytest.raises(TunesmithError, match="another chat template"):
        reward_models.check_alike(found, rewarded, model_folder)
    rewarded.model.chat_template = "chatml"
    other = RunSpec()
    other.model.chat_template = "chatml"
    monkeypatch.setattr(reward_models, "find", lambda _path: SimpleNamespace(folder=scoring, spec=other, path=scoring))
    reward_models.check_alike(reward_models.find(""), rewarded, model_folder)
    for folder, vocabulary in ((model_folder, {"a": 0, "b": 1}), (scoring, {"a": 1, "b": 0})):
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER | {"model": {"vocab": vocabulary}}))
    with pytest.raises(TunesmithError, match="other tokens"):
        reward_models.check_alike(found, rewarded, model_folder)


def test_a_vocabulary_is_told_by_its_numbers_or_its_bytes(tmp_path: Path) -> None:
    assert reward_models.vocabulary(tmp_path) is None
    (tmp_path / "tokenizer.model").write_bytes(b"pieces")
    assert reward_models.vocabulary(tmp_path) == b"pieces"
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(TOKENIZER))
    assert reward_models.vocabulary(tmp_path) == ({"a": 0, "b": 1}, {"<e>": 2})
    path.write_text("{")
    assert reward_models.vocabulary(tmp_path) == b"{"
    assert reward_models.template_of(tmp_path, None) is None


def test_the_plan_counts_it(rewarded: RunSpec, scoring: Path) -> None:
    device = Hardware("cpu", "CPU", 64 << 30, 64 << 30, 64 << 30, 64 << 30)
    parts = plan(rewarded, device, longest_tokens=50).parts
    # 160 weights of 4 bytes, and what the layers hold of four answers.
    least = 160 * 4 + 4 * (50 + 256) * 12 * 8 * 4
    assert least <= parts["scoring"] < 1.1 * least
    rewarded.rollouts.rewards = [RewardSpec(kind="model", model=str(scoring / "gone"))]
    assert plan(rewarded, device, longest_tokens=50).parts["scoring"] == 0
    rewarded.objective.kind = "sft"
    assert "scoring" not in plan(rewarded, device, longest_tokens=50).parts


def test_what_rewards_need_is_checked_before_a_run(rewarded: RunSpec, tmp_path: Path) -> None:
    def check(**values: Any) -> None:
        rewarded.rollouts.rewards = [RewardSpec(**values)]
        preflight.check_rows(rewarded)

    schema = tmp_path / "schema.json"
    schema.write_text("{\n oh")
    with pytest.raises(EnvironmentProblem) as caught:
        check(kind="task")
    assert caught.value.code == "environment-missing"
    (environments.paths.envs_dir()).mkdir(exist_ok=True)
    (environments.paths.envs_dir() / environments.REWARDS_POINTER).write_text("rewards-1\n")
    check(kind="task")
    with pytest.raises(TunesmithError, match=r"schema\.json, line 2"):
        check(kind="schema", schema=str(schema))
    with pytest.raises(TunesmithError, match="no reward model"):
        check(kind="model", model=str(tmp_path / "none"))
