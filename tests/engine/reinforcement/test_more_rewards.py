"""Rewards by columns, schemas, tasks and reward models, prompts without answers, and what is told without a beta."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.conftest import after_step, events, step_losses, train
from tests.engine.fused.test_model import CPU, adapted, compute
from tests.engine.preference.pairs import pairs
from tests.engine.preference.test_trl_runs import write_pairs
from tests.engine.reinforcement.test_reward_runs import reward_spec
from tests.tiny_model import build_tiny_model
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_rollouts import RewardSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.reinforcement import reward_model
from tunesmith_engine.reinforcement.scoring import Answered
from tunesmith_engine.train.fused_path import FusedPath, RowLengths
from tunesmith_engine.train.loss_paths import PlainPath

__all__ = ["reward_spec"]

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]

BY_LEVEL = """
def reward(prompt, answer, expected, level, **others):
    assert expected == "" and others == {"kind": "sum"} and prompt.startswith("Add ")
    return level
"""


def test_prompts_alone_are_answered_and_columns_reach_the_reward(
    reward_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    spec = reward_spec("grpo", BY_LEVEL, schedule={"max_steps": 2})
    rows = [{"prompt": f"Add {n} and {n}.", "level": 3, "kind": "sum"} for n in range(6)]
    (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    spec.data.sources[0].format = "prompt-only"
    run = new_run(spec)
    assert train(run) == 0
    told = [event.data for event in events(run, "step")]
    assert [(each["reward_lowest"], each["reward"], each["reward_highest"]) for each in told] == [(3.0, 3.0, 3.0)] * 2
    assert events(run, "rollouts")[-1].data["expected"] == ""


def test_the_distance_from_the_base_model_is_told_without_a_beta(reward_spec: MakeSpec, new_run: NewRun) -> None:
    found = []
    for beta in (0.0, 1e-12):
        spec = reward_spec("grpo", optimizer={"learning_rate": 2e-2})
        # No more answers a step than are compared without a beta: both tell the same.
        spec.rollouts.group_size, spec.objective.beta = 2, beta
        spec.schedule.micro_batch_size, spec.schedule.gradient_accumulation_steps = 2, 1
        run = new_run(spec)
        assert train(run) == 0
        found.append([event.data["kl"] for event in events(run, "step")])
    assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-6)
    assert found[0][0] == pytest.approx(0.0, abs=1e-6)
    assert found[0][-1] > 1e-4


@pytest.mark.parametrize("kernels", [True, pytest.param(False, marks=pytest.mark.long)], ids=["fused", "plain"])
def test_temperature_divides_what_is_trained(kernels: bool) -> None:
    model = adapted("llama")
    rows = [replace(each, rejected=None) for pair in pairs([(3, 5, 9), (4, 8, 2)]) for each in pair.sequences]
    lengths = RowLengths.of_steps(24, [64])
    path: Any = (
        FusedPath(model, compute(torch.float32), lengths, 4, temperature=0.7)
        if kernels
        else PlainPath(model, compute(torch.float32), 0, 4, False, "", method_of("grpo"), temperature=0.7)
    )
    found = path.log_probabilities(rows)
    path.close()
    expected = []
    for row in rows:
        logits = model(input_ids=torch.from_numpy(row.input_ids).long()[None].to(CPU)).logits[0, :-1].double() / 0.7
        labels = torch.from_numpy(row.labels).long()[1:]
        expected.append(logits.log_softmax(1).gather(1, labels.clamp(min=0)[:, None])[:, 0][labels >= 0])
    torch.testing.assert_close(found.double(), torch.cat(expected), rtol=1e-5, atol=1e-5)


def save_reward_model(folder: Path, num_labels: int = 1) -> Path:
    """Write a tiny model that scores texts."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    build_tiny_model(folder, seed=3)
    config = LlamaConfig.from_pretrained(folder, num_labels=num_labels)
    torch.manual_seed(3)
    LlamaForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_a_reward_model_scores_as_trl_has_it(reward_spec: MakeSpec, tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification
    from trl import GRPOTrainer

    spec = reward_spec("grpo")
    spec.rollouts.rewards = [RewardSpec(kind="model", model=str(save_reward_model(tmp_path / "scores")))]
    tokenizer = load_tokenizer(tiny_model)
    parts: Any = SimpleNamespace(
        spec=spec, compute=choose_compute(spec), folder=tiny_model, tokenizer=tokenizer
    )
    ours = reward_model.load_reward_models(parts)[0]
    said = [("What is 1?", "One."), ("And 22, please?", "It is twenty-two!"), ("3", "3"), ("4?", "no"), ("5", "a b")]
    prompts = [[{"role": "user", "content": question}] for question, _ in said]
    completions = [[{"role": "assistant", "content": answer}] for _, answer in said]
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "scores")
    theirs_tokenizer = load_tokenizer(tmp_path / "scores")
    model.config.pad_token_id = theirs_tokenizer.pad_token_id
    trainer = GRPOTrainer.__new__(GRPOTrainer)
    vars(trainer).update(
        accelerator=SimpleNamespace(device=torch.device("cpu"), gather=lambda values: values, is_main_process=False),
        reward_funcs=[model.eval()],
        reward_processing_classes=[theirs_tokenizer],
        reward_func_names=["model"],
        chat_template_kwargs={},
        state=SimpleNamespace(global_step=0),
        environments=None,
        _log_completion_extra=None,
        _log_metric=None,
        args=SimpleNamespace(device=torch.device("cpu"), report_to=[], past_index=-1),
        is_deepspeed_enabled=False,
    )
    theirs = trainer._calculate_rewards([{"prompt": each} for each in prompts], prompts, completions, [[1]] * len(said))
    answers = []
    for prompt, completion in zip(prompts, completions, strict=True):
        text = tokenizer.apply_chat_template([*prompt, *completion], tokenize=False)
        answers.append(Answered("", "", "", 1, {}, tokenizer(text, add_special_tokens=False)["input_ids"]))
    assert ours(answers) == pytest.approx(theirs[:, 0].tolist(), rel=1e-5)
    spec.rollouts.rewards[0].squash = True
    squashed = reward_model.load_reward_models(parts)[0](answers)
    assert squashed == pytest.approx([1 / (1 + math.exp(-each)) for each in theirs[:, 0].tolist()], rel=1e-5)


@pytest.mark.long
def test_a_run_that_learned_to_score_rewards_another_and_resumes_to_the_bit(
    reward_spec: MakeSpec,
    tiny_spec: MakeSpec,
    new_run: NewRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scored = tiny_spec(data={"path": str(write_pairs(tmp_path / "pairs.jsonl") or tmp_path / "pairs.jsonl")})
    scored.objective.kind, scored.schedule.max_steps = "reward", 2
    teacher = new_run(scored)
    assert train(teacher) == 0
    spec = reward_spec("grpo", schedule={"max_steps": 3})
    spec.rollouts.rewards = [RewardSpec(kind="model", model=str(teacher.path)), RewardSpec(kind="json")]
    spec.rollouts.temperature = 1.3
    seen: list[Answered] = []
    call = reward_model.RewardScores.__call__

    def noted(scores: reward_model.RewardScores, answers: Any) -> list[float]:
        seen.extend(answers)
        return call(scores, answers)

    monkeypatch.setattr(reward_model.RewardScores, "__call__", noted)
    whole, halves = new_run(spec), new_run(spec)
    assert train(whole) == 0
    text = load_tokenizer(Path(spec.model.path)).decode(seen[-1].tokens)
    assert text.startswith("<|im_start|>user\n")
    assert text.endswith("<|im_end|>\n")
    assert text.count("<|im_end|>") >= 2
    assert train(halves, lambda host: after_step(host, 2, host.on_signal)) == 5
    assert train(halves) == 0
    assert step_losses(halves) == step_losses(whole)
    assert len({event.data["reward"] for event in events(whole, "step")}) == 3


@pytest.mark.parametrize("fault", ["classes", "no template", "tokens"])
def test_a_reward_model_that_does_not_fit_is_named(
    fault: str, reward_spec: MakeSpec, new_run: NewRun, tmp_path: Path
) -> None:
    folder = save_reward_model(tmp_path / "scores", 3 if fault == "classes" else 1)
    if fault == "no template":
        (folder / "chat_template.jinja").unlink()
    if fault == "tokens":
        path = folder / "tokenizer.json"
        values = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = values["model"]["vocab"]
        vocabulary["!"], vocabulary["A"] = vocabulary["A"], vocabulary["!"]
        path.write_text(json.dumps(values), encoding="utf-8")
    spec = reward_spec("grpo")
    spec.rollouts.rewards = [RewardSpec(kind="model", model=str(folder))]
    run = new_run(spec)
    assert train(run) == 2
    words = {"classes": "into 3 classes", "no template": "no chat template", "tokens": "other tokens"}[fault]
    assert words in str(events(run, "error")[-1].data["message"])


def test_memory_that_lacks_scores_fewer_at_once() -> None:
    class Short(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
            if len(input_ids) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return SimpleNamespace(logits=input_ids.float().sum(dim=1, keepdim=True))

    model: Any = Short()
    model.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(pad_token_id=0))
    scores = reward_model.RewardScores(model, compute(torch.float32), False)
    answers = [Answered("", "", "", 1, {}, [n, 1]) for n in range(3)]
    assert scores(answers) == [1.0, 2.0, 3.0]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_thirty_kills_lose_nothing(kind: str, reward_spec: MakeSpec, new_run: NewRun) -> None:
    class Killed(BaseException):
        """Nobody catches this, as nobody catches SIGKILL."""

    def die_after(num_events: int) -> Callable[[Any], None]:
        def prepare(host: Any) -> None:
            write, left = host.event, [num_events]

            def watched(name: str, /, **data: Any) -> None:
                write(name, **data)
                left[0] -= 1
                if not left[0]:
                    raise Killed

            host.event = watched

        return prepare

    spec = reward_spec(kind, saving={"every_steps": 1}, schedule={"max_steps": 24}, evaluation={"percent": 25.0})
    spec.rollouts.temperature, spec.rollouts.group_size, spec.rollouts.max_tokens = 1.2, 2, 6
    whole, killed = new_run(spec), new_run(spec)
    assert train(whole) == 0
    random, num_kills = Random(kind), 0
    while num_kills < 30:
        try:
            code = train(killed, die_after(random.randint(3, 22)))
        except Killed:
            num_kills += 1
        else:
            # It came to its end before: once more from the start.
            assert code == 0
            assert step_losses(killed)[-1] == step_losses(whole)[-1]
            killed = new_run(spec)
    assert train(killed) == 0
    assert step_losses(killed)[-1] == step_losses(whole)[-1]
    weights = [(run.adapter_path / "adapter_model.safetensors").read_bytes() for run in (whole, killed)]
    assert weights[0] == weights[1]
