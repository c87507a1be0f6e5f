"""What is said of runs that learn from rewards: right on measurements whose meaning is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.core.test_cli_specs import PLAN
from tunesmith_core import cli, cli_runs, cli_specs, files, judges
from tunesmith_core.answered import Answered
from tunesmith_core.errors import TunesmithError
from tunesmith_core.event_fields import CHECKS
from tunesmith_core.exports import saved_weights
from tunesmith_core.operations.kinds.score import ScoreSpec, scored
from tunesmith_core.operations.limits import Portions
from tunesmith_core.outcome import Outcome, Verdict
from tunesmith_core.preflight import check_rows
from tunesmith_core.protocol import Event, JournalWriter
from tunesmith_core.report.facts import read
from tunesmith_core.rewards import METRICS, described, in_brief, of_event, round_words
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec, has_effect, told_settings
from tunesmith_core.spec_rollouts import MOST_REWARDS, RewardSpec
from tunesmith_core.verdict import Measured, judge

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]
SETUP = {"num_train_rows": 1000, "num_distinct_rows": 990, "num_eval_rows": 50, "steps_per_epoch": 10}


def steps(*rewards: float, equal: float = 0.2) -> dict[int, dict[str, float]]:
    """Return numbers of steps with these mean rewards."""
    others = dict.fromkeys(METRICS[1:], 0.5) | {"equal_groups": equal}
    return {step: {"reward": reward, **others} for step, reward in enumerate(rewards, 1)}


def gain(low: float, mean: float, high: float) -> dict[str, Any]:
    return {"improvement": {"mean": mean, "low": low, "high": high, "rows": 50}}


def verdict_of(held_out: dict[int, float], **more: Any) -> Verdict:
    more = {"setup": SETUP, "rewards": steps(0.5, 0.5)} | more
    return judge(Measured({step: -reward for step, reward in held_out.items()}, **more))


@pytest.mark.parametrize(
    ("held_out", "comparison", "outcome", "words"),
    [
        ({}, {}, Outcome.UNMEASURED, "no held-out prompts were answered"),
        ({0: 0.2}, {}, Outcome.UNMEASURED, "no held-out prompts were answered"),
        ({0: 0.2, 10: 0.6}, gain(0.3, 0.4, 0.5), Outcome.MUCH, "a lot: the mean reward for held-out prompts rose from"),
        ({0: 0.60, 10: 0.63}, gain(0.01, 0.03, 0.05), Outcome.LITTLE, "a little: the mean reward for held-out prompts"),
        ({0: 0.2, 10: 0.3}, gain(-0.1, 0.1, 0.3), Outcome.NOTHING, "from 0.200 to 0.300, which may be chance."),
        ({0: 0.2, 10: 0.2}, gain(-0.1, 0.0, 0.1), Outcome.NOTHING, "was 0.200 and is 0.200."),
        ({0: 0.0, 10: 0.0}, {}, Outcome.NOTHING, "was 0.000 and is 0.000."),
        ({0: 0.6, 10: 0.2}, gain(-0.5, -0.4, -0.3), Outcome.WORSE, "got worse: the mean reward"),
        ({0: 0.6, 10: 0.5}, gain(-0.3, -0.1, 0.1), Outcome.NOTHING, "was 0.600 and is 0.500."),
        ({0: 0.6, 10: 0.2}, {}, Outcome.WORSE, "got worse: the mean reward"),
        ({0: 0.2, 10: 0.8, 20: 0.2}, gain(-0.05, 0.0, 0.05), Outcome.OVERFITTED, "Best at step 10"),
        ({0: -3.0, 10: -1.0}, gain(1.0, 2.0, 3.0), Outcome.MUCH, "rose from -3.000 to -1.000"),
    ],
)
def test_rewards_are_judged_by_their_interval(
    held_out: dict[int, float], comparison: dict[str, Any], outcome: Outcome, words: str
) -> None:
    verdict = verdict_of(held_out, comparison=comparison)
    assert verdict.outcome is outcome
    assert words in verdict.sentence
    assert verdict.advice.endswith(".")
    assert "loss" not in " ".join(verdict.told)


def test_what_turned_is_told_where_to_end() -> None:
    verdict = verdict_of({0: 0.2, 10: 0.8, 20: 0.3}, comparison=gain(0.05, 0.1, 0.15))
    assert (verdict.outcome, verdict.best_step) == (Outcome.OVERFITTED, 10)
    assert (verdict.next_steps[0].name, verdict.next_steps[0].step) == ("until-step", 10)


def test_too_few_prompts_tell_nothing() -> None:
    verdict = verdict_of({0: 0.2, 10: 0.8}, setup=SETUP | {"num_eval_rows": 4})
    assert verdict.outcome is Outcome.TOO_FEW
    assert "over 4 of them the mean reward went from 0.200 to 0.800" in verdict.sentence


def test_repeated_and_leaked_rows_come_first() -> None:
    assert verdict_of({0: 0.2, 9: 0.8}, setup=SETUP | {"num_leaked_rows": 40}).outcome is Outcome.LEAKED


def test_the_evidence_is_in_rewards_and_right_answers() -> None:
    right, texts = {0: False, 10: True}, {0: "no", 10: "yes"}
    answers = [Answered(f"{n} + 1?", str(n + 1), texts, right) for n in range(5)]
    verdict = verdict_of({0: 0.2, 10: 0.6}, comparison=gain(0.3, 0.4, 0.5), answers=answers)
    assert verdict.evidence == (
        "Over 50 held-out prompts the reward rose by 0.40 (95% interval: 0.30 to 0.50). "
        "Right answers to 5 held-out questions: 0 before, 5 after."
    )


def test_a_reward_that_still_rises_or_never_differs_is_named() -> None:
    rising = steps(*[0.1 * step for step in range(10)])
    for held_out, comparison in (({0: 0.2, 9: 0.2}, gain(-0.1, 0.0, 0.1)), ({0: 0.6, 9: 0.63}, gain(0.01, 0.03, 0.05))):
        verdict = verdict_of(held_out, comparison=comparison, rewards=rising)
        assert verdict.advice == "The reward in training was still rising at the end. Train for more steps."
    verdict = verdict_of({0: 0.0, 9: 0.0}, rewards=steps(*[0.0] * 9, equal=1.0))
    assert verdict.advice.startswith("All answers to a prompt got the same reward for 100% of the prompts")


def test_rewards_are_described_with_their_details_and_weights() -> None:
    rewards = [
        RewardSpec(), RewardSpec(kind="pattern", pattern="^A", weight=0.5), RewardSpec(kind="python", path="/a/own.py"),
        RewardSpec(kind="language", language="de"), RewardSpec(kind="length", shortest=2, longest=9, weight=-1.0),
    ]  # fmt: skip
    assert described(rewards) == (
        "Right answer, Pattern found: ^A (weight 0.5), Your Python file: /a/own.py, Language: de, "
        "Length: 2 to 9 tokens (weight -1)"
    )


def test_numbers_of_an_event() -> None:
    assert of_event({"reward": 1, "kl": 0.5, "loss": 2.0, "entropy": None}) == {"reward": 1.0, "kl": 0.5}
    assert in_brief({"reward": 0.42}) == "reward 0.420"
    assert in_brief({"reward": None}) is None


@pytest.mark.parametrize(
    ("value", "is_good"),
    [
        ([{"text": "4", "reward": 1.0, "is_cut": False}], True), ([], True), ({}, False), (["4"], False),
        ([{"text": 4, "reward": 1.0}], False), ([{"text": "4", "reward": "much"}], False),
    ],
)  # fmt: skip
def test_a_group_of_an_event_is_checked(value: object, is_good: bool) -> None:
    assert CHECKS["group"](value) is is_good


class TestProblems:
    """Settings of rewards that don't go together."""

    @pytest.mark.parametrize(
        ("reward", "place", "words"),
        [
            (RewardSpec(weight=0.0), "rewards[0].weight", "must not be 0"),
            (RewardSpec(kind="pattern"), "rewards[0].pattern", "Enter one"),
            (RewardSpec(kind="python"), "rewards[0].path", "Choose one"),
            (RewardSpec(kind="schema"), "rewards[0].schema", "Choose one"),
            (RewardSpec(kind="model"), "rewards[0].model", "Choose one"),
            (RewardSpec(kind="language"), "rewards[0].language", "Choose one"),
            (RewardSpec(kind="language", language="qq"), "rewards[0].language", "must be one of"),
            (RewardSpec(kind="length", shortest=9, longest=3), "rewards[0].shortest", "must not be above"),
        ],
    )
    def test_what_a_reward_needs_is_named_at_its_field(
        self, make_spec: Make, reward: RewardSpec, place: str, words: str
    ) -> None:
        spec = make_spec("r")
        spec.rollouts.rewards = [reward]
        assert spec.problems() == []
        spec.objective.kind = "grpo"
        (problem,) = spec.problems()
        assert problem.path == f"rollouts.{place}"
        assert words in problem.problem

    def test_a_reward_that_has_what_it_needs_is_right(self, make_spec: Make) -> None:
        spec = make_spec("r")
        spec.objective.kind = "rloo"
        spec.rollouts.rewards = [
            RewardSpec(kind="pattern", pattern="A"), RewardSpec(kind="python", path="own.py"),
            RewardSpec(kind="language", language="en"), RewardSpec(kind="length"),
        ]  # fmt: skip
        assert spec.problems() == []

    def test_settings_that_contradict_each_other(self, make_spec: Make) -> None:
        spec = make_spec("r")
        spec.objective.kind, spec.objective.reward_scale = "rloo", "group"
        assert [each.path for each in spec.problems()] == ["objective.reward_scale"]
        spec.objective.kind, spec.objective.policy_loss = "grpo", "luspo"
        assert [each.path for each in spec.problems()] == ["objective.ratio_of"]
        spec.objective.ratio_of, spec.objective.clip_most = "answer", 1.1
        assert [each.path for each in spec.problems()] == ["objective.clip_most"]
        spec.objective.clip_most = 2.0
        assert spec.problems() == []
        spec.data.sources[0].format = "prompt-only"
        assert [each.path for each in spec.problems()] == ["rollouts.rewards[0].kind"]
        spec.rollouts.rewards = [RewardSpec(kind="json")]
        assert spec.problems() == []
        spec.objective.kind = "sft"
        assert [each.path for each in spec.problems()] == ["data.sources[0].format"]
        spec.objective.kind, spec.data.sources[0].format = "grpo", "auto"
        spec.rollouts.rewards = [RewardSpec() for _ in range(MOST_REWARDS + 1)]
        assert [each.path for each in spec.problems()] == ["rollouts.rewards"]
        spec.rollouts.rewards = []
        assert [each.path for each in spec.problems()] == ["rollouts.rewards"]

    def test_settings_of_rewards_are_told_of_their_runs_alone(self, make_spec: Make) -> None:
        spec = make_spec("r")
        assert not any(each.section == "rollouts" for each in told_settings(spec))
        spec.objective.kind = "rloo"
        told = {each.path for each in told_settings(spec)}
        assert "rollouts.group_size" in told
        assert "objective.policy_loss" not in told
        assert not any(path.startswith("rollouts.rewards") for path in told)
        assert not {"data.train_on", "data.overlong"} & told, "no answer of the data is trained"

    def test_a_setting_that_a_loss_does_not_know_is_not_told(self, make_spec: Make) -> None:
        spec = make_spec("r")
        spec.objective.kind = "grpo"
        assert all(has_effect(spec, f"objective.{name}") for name in ("clip", "clip_high", "clip_most", "ratio_of"))
        spec.objective.policy_loss = "vespo"
        assert not any(has_effect(spec, f"objective.{name}") for name in ("clip", "clip_high", "clip_most", "ratio_of"))


class TestOwnFile:
    """A person's own Python file."""

    def scored(self, tmp_path: Path, text: str, **columns: object) -> list[float]:
        path = tmp_path / "own.py"
        path.write_text(text, encoding="utf-8")
        rows = [
            {"prompt": prompt, "answer": answer, "expected": expected, "columns": columns}
            for prompt, answer, expected in (("a", "x", "x"), ("b", "yy", "z"))
        ]
        return scored(judges.own_file(str(path)), rows, ScoreSpec("python", str(path)), Portions())

    def test_its_numbers_are_taken(self, tmp_path: Path) -> None:
        text = "def reward(prompt, answer, expected):\n    return len(answer) + (answer == expected) * 0.5\n"
        assert self.scored(tmp_path, text) == [1.5, 2.0]

    @pytest.mark.parametrize(
        ("parameters", "value"),
        [
            ("a, b, c, level", "level"),
            ("a, b, c, *, level", "level"),
            ("a, b, c, level=1, other=2", "level + other - 2"),
            ("a, b, c, **columns", "columns['level']"),
            ("*all, **columns", "columns['level'] + len(all) - 3"),
        ],
    )
    def test_it_gets_the_other_columns_by_their_names(self, tmp_path: Path, parameters: str, value: str) -> None:
        assert self.scored(tmp_path, f"def reward({parameters}):\n    return {value}\n", level=7, more=0) == [7.0, 7.0]

    def test_a_column_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(TunesmithError, match='reward asks for "level", but the data has no such column'):
            self.scored(tmp_path, "def reward(a, b, c, level):\n    return 1\n")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("def reward(a, b, c):\n    return 1 / 0\n", "own.py, line 2: ZeroDivisionError"),
            ("import nothing_like_this\n", "own.py, line 1: ModuleNotFoundError"),
            ("def reward(:\n", "own.py, line 1: SyntaxError"),
            ("def score(a, b, c):\n    return 1\n", "no function reward(prompt, answer, expected)"),
            ("def reward(a, b, c):\n    return True\n", "must return a number, but returned True (bool)"),
            ("def reward(a, b, c):\n    return 'much'\n", "must return a number, but returned 'much' (str)"),
            ("def reward(a, b):\n    return 1\n", "own.py: TypeError"),
        ],
    )
    def test_what_is_wrong_with_it_is_named_with_its_line(self, tmp_path: Path, text: str, words: str) -> None:
        with pytest.raises(TunesmithError) as caught:
            self.scored(tmp_path, text)
        assert caught.value.code == "reward-failed"
        assert words in caught.value.message

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(TunesmithError, match=r"missing\.py"):
            judges.own_file(str(tmp_path / "missing.py"))


class TestToldByTheCommandLine:
    """Rewards in place of a loss that says nothing."""

    def test_a_run_tells_its_rewards(
        self, make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_engine: Script
    ) -> None:
        spec, path = make_spec("c").to_dict(), tmp_path / "spec.json"
        spec["objective"] = {"kind": "grpo"}
        files.atomic_write_json(path, spec)
        fake_engine(
            {
                "*": [
                    ["hello"], ["event", "setup", {"total_steps": 1}],
                    ["event", "eval", {"step": 0, "loss": -0.25, "reward": 0.25}],
                    ["event", "step", {"step": 1, "loss": 0.001, "reward": 0.5}],
                    ["event", "eval", {"step": 1, "loss": -0.75, "reward": 0.75}], ["result", "finished"],
                ]
            }
        )  # fmt: skip
        assert cli.main(["train", str(path)]) == 0
        out = capsys.readouterr().out
        for words in ("step 0: held-out reward 0.250\n", "step 1/1  reward 0.500\n", "step 1: held-out reward 0.750\n"):
            assert words in out
        assert cli.main(["show", "c-01"]) == 0
        out = capsys.readouterr().out
        assert "reward:          0.500\nheld-out reward: 0.750\n" in out
        assert "loss" not in out
        assert cli.main(["runs"]) == 0
        assert "reward 0.500" in capsys.readouterr().out
        assert cli.main(["runs", "--json"]) == 0
        (told,) = json.loads(capsys.readouterr().out)
        assert (told["reward"], told["eval_reward"]) == (0.5, 0.75)

    def test_a_run_in_progress_tells_it_when_it_is_asked(
        self, make_spec: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = create_run(make_spec("e"))
        answer = Event(1, 0.0, "eval", {"loss": -0.5, "step": 3, "reward": 0.5})
        monkeypatch.setattr(cli_runs, "_ask", lambda *_: answer)
        monkeypatch.setattr(Run, "is_supervised", lambda _run: True)
        assert cli.main(["evaluate", run.id]) == 0
        assert capsys.readouterr().out == "reward 0.500 at step 3\n"


def test_plan_and_preview_say_what_is_done(
    make_spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, path = make_spec("r"), tmp_path / "spec.json"
    spec.objective.kind, spec.rollouts.group_size = "grpo", 4
    files.atomic_write_json(path, spec.to_dict())
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **__: PLAN)
    assert cli.main(["plan", str(path)]) == 0
    out = capsys.readouterr().out
    assert "prompts, 4 answers to each, of at most 256 tokens.\nRewards: Right answer\n" in out
    monkeypatch.setattr(cli_specs, "conduct", lambda *_: SimpleNamespace(get=dict))
    assert cli.main(["preview", str(path)]) == 0
    assert "The model answers each prompt itself." in capsys.readouterr().err


@pytest.fixture
def run(make_spec: Make) -> Run:
    """A finished run that learned from rewards."""
    spec = make_spec("told")
    spec.objective.kind = "grpo"
    run = create_run(spec)
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("setup", total_steps=4, num_train_rows=95, num_eval_rows=50)
        journal.write("eval", step=0, loss=-0.2, reward=0.2)
        for step, numbers in steps(0.2, 0.3, 0.4, 0.5).items():
            journal.write("step", step=step, loss=0.0, **numbers)
        journal.write("eval", step=4, loss=-0.6, reward=0.6)
        journal.write("comparison", step=4, **gain(0.3, 0.4, 0.5), dependence=None)
        journal.write("result", status="finished", step=4, artifacts={"adapter": "adapter"})
    return run


def test_the_report_tells_rewards_and_no_loss(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", run.id]) == 0
    capsys.readouterr()
    text = run.report_path.read_text(encoding="utf-8")
    for words in (
        "Improved a lot: the mean reward for held-out prompts rose from 0.200 to 0.600.",
        "<h2>Reward</h2>",
        "<td>4</td><td>0.600</td>",
        "<td>4</td><td>0.500</td><td>0</td><td>50%</td>",
        "<th>Rewards</th><td>Right answer</td>",
        "<th>Answers per prompt</th><td>8</td>",
    ):
        assert words in text
    assert "<h2>Loss</h2>" not in text
    assert "held-out loss" not in text


def test_what_came_after_the_checkpoint_is_forgotten(run: Run) -> None:
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("hello", resumed_from_step=2)
    assert sorted(read(run).rewards) == [1, 2]


def test_weights_to_export_are_told_by_their_reward(run: Run, tmp_path: Path) -> None:
    run.adapter_path.mkdir()
    (run.adapter_path / "adapter_model.safetensors").write_bytes(b"weights")
    (run.adapter_path / "adapter_config.json").write_bytes(b"{}")
    assert [(each.step, each.eval_reward) for each in saved_weights(run)] == [(4, 0.6)]


def test_a_file_of_rewards_that_is_missing_is_named_before_the_run(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "1 + 1?", "completion": "2"}\n' * 3, encoding="utf-8")
    own = tmp_path / "own.py"
    values = {"model": {"path": "m"}, "data": {"sources": [{"path": str(data)}]}, "objective": {"kind": "grpo"}}
    rewards = [{"kind": "right"}, {"kind": "python", "path": str(own)}]
    spec = RunSpec.from_dict({"version": 3, **values, "rollouts": {"rewards": rewards}})
    with pytest.raises(TunesmithError, match=r"own\.py: No such file or directory") as error:
        check_rows(spec)
    assert error.value.code == "reward-failed"
    own.write_text("def reward(prompt, answer, expected):\n    return 1\n", encoding="utf-8")
    check_rows(spec)
    own.write_text("def score(prompt, answer, expected):\n    return 1\n", encoding="utf-8")
    with pytest.raises(TunesmithError, match="there is no function"):
        check_rows(spec)


def test_an_answer_longer_than_the_context_is_explained() -> None:
    spec = RunSpec()
    spec.objective.kind = "grpo"
    assert "context length" not in round_words(spec)
    spec.data.context_length = 128
    assert round_words(spec).endswith(
        "The context length of 128 tokens is for the rows of the data. What the model writes may be longer."
    )
