"""The page of a run that learns from rewards: rewards in place of losses, and the newest answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QPushButton

from tests.gui.layout_checks import clipped
from tunesmith_core.outcome import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.rewards import METRICS
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard.banners import make_banner
from tunesmith_gui.dashboard.charts import DashboardCharts
from tunesmith_gui.dashboard.header import DashboardHeader
from tunesmith_gui.dashboard.model import DashboardModel, pack
from tunesmith_gui.dashboard.rollouts_pane import RolloutsPane
from tunesmith_gui.dashboard.tables import SettingsUsedTable
from tunesmith_gui.widgets.safe_label import SafeLabel

GROUP = {
    "step": 3,
    "prompt": "2 + 2?",
    "expected": "4",
    "group": [{"text": "5", "reward": 0.0, "is_cut": True}, {"text": "4", "reward": 1.0, "is_cut": False}],
}


def model_of(*after: tuple[str, dict[str, Any]], kl: float = 0.0) -> DashboardModel:
    """A run of three steps with rewards 0.1, 0.2 and 0.3, held out 0.2 and 0.6."""
    events: list[tuple[str, dict[str, Any]]] = [("hello", {}), ("setup", {"total_steps": 3, "num_eval_rows": 50})]
    events.append(("eval", {"step": 0, "loss": -0.2, "reward": 0.2}))
    others = dict.fromkeys(METRICS[1:], 0.5) | {"kl": kl, "clip_share": 0.0}
    for n in range(1, 4):
        events.append(("step", {"step": n, "loss": 0.0, "reward": n / 10, **others, "reward_highest": n % 2}))
    events.append(("eval", {"step": 3, "loss": -0.6, "reward": 0.6}))
    model = DashboardModel()
    model.apply(pack([Event(n, 1000.0 + n, kind, data) for n, (kind, data) in enumerate([*events, *after])]))
    return model


def words_of(pane: RolloutsPane) -> list[str]:
    return [label.text() for label in pane._content.findChildren(SafeLabel)]


def test_the_head_tells_rewards(qtbot: Any) -> None:
    header = DashboardHeader()
    qtbot.addWidget(header)
    header.show_model("run", model_of())
    assert header.loss.accessibleName().startswith("Reward")
    assert "0.300" in header.loss.accessibleName()
    assert "0.600" in header.eval_loss.accessibleName()
    header.show_model("run", model_of(("eval", {"step": 3, "loss": -0.5, "reward": 0.5})))
    assert "best 0.600" in header.eval_loss.accessibleName()
    header.show_model("other", DashboardModel())
    assert header.loss.accessibleName().startswith("Loss")


def test_charts_of_rewards_stand_in_place_of_the_loss(qtbot: Any) -> None:
    charts = DashboardCharts()
    qtbot.addWidget(charts)
    charts.resize(1000, 800)
    charts.show()
    charts.show_model(model_of())
    assert charts.reward.isVisible()
    assert not charts.loss.isVisible()
    names = ["training", "smoothed", "held out", "lowest", "highest"]
    assert [line.name for line in charts.reward.plot.lines] == names
    assert charts.reward.plot.lines[-1].y.tolist() == [1.0, 0.0, 1.0]
    titles = [card.heading.text() for card in charts.rounds if card.isVisible()]
    assert titles == ["Answer length", "Cut answers", "Prompts that teach nothing", "Entropy"]
    assert charts.chart_under_focus() is charts.reward
    charts.show_model(model_of(kl=0.1))
    shown = [card.heading.text() for card in charts.rounds if card.isVisible()]
    assert "Distance from the start" in shown
    distance = next(card for card in charts.rounds if card.heading.text().startswith("Distance"))
    assert [line.name for line in distance.plot.lines] == ["training", "smoothed"]
    charts.show_model(DashboardModel())
    assert charts.loss.isVisible()
    assert not any(card.isVisible() for card in (charts.reward, *charts.rounds))


def test_the_newest_answers_are_shown_best_first(qtbot: Any) -> None:
    pane = RolloutsPane()
    qtbot.addWidget(pane)
    pane.resize(600, 500)
    pane.show()
    pane.show_model(model_of())
    assert "No answers yet." in [label.text() for label in pane.findChildren(SafeLabel)]
    pane.show_model(model_of(("rollouts", GROUP)))
    words = words_of(pane)
    assert words.index("4") < words.index("5")
    assert {"2 + 2?", "Expected: 4", "Step 3"} <= set(words)
    assert clipped(pane) == []
    same = GROUP | {"step": 4, "group": [{"text": "5", "reward": 0.0}, {"text": "6", "reward": 0.0}]}
    pane.show_model(model_of(("rollouts", same)))
    assert "All answers got the same reward, so this prompt teaches nothing." in words_of(pane)


def test_answers_after_the_checkpoint_are_forgotten() -> None:
    assert model_of(("rollouts", GROUP)).group == GROUP
    assert model_of(("rollouts", GROUP), ("hello", {"resumed_from_step": 2})).group == {}


def test_the_verdict_is_about_rewards() -> None:
    verdict = model_of().verdict()
    assert verdict.outcome is Outcome.MUCH
    assert "the mean reward for held-out prompts rose from 0.200 to 0.600" in verdict.sentence


def test_the_log_tells_the_reward_of_an_evaluation() -> None:
    texts = [line.text for line in model_of().log.since(0)]
    assert "held-out reward 0.600 at step 3" in texts
    assert not any("loss" in text for text in texts)


def test_collapsed_rewards_lead_to_the_answers(qtbot: Any, tmp_path: Path) -> None:
    warning = {"code": "rewards-collapsed", "message": "Step 3: all the same.", "hint": ""}
    model, asked = model_of(("phase", {"name": "training"}), ("warning", warning)), []
    banner = make_banner(model, None, tmp_path, None, asked.append, None)  # type: ignore[arg-type]
    assert banner is not None
    qtbot.addWidget(banner)
    (button,) = [each for each in banner.findChildren(QPushButton) if each.text() == "Show the answers"]
    button.click()
    assert asked == ["show_rollouts"]


@pytest.mark.parametrize(("kind", "is_told"), [("grpo", True), ("sft", False)])
def test_settings_used_tell_rewards_where_they_have_an_effect(kind: str, is_told: bool, qtbot: Any) -> None:
    table, spec = SettingsUsedTable(), RunSpec()
    qtbot.addWidget(table)
    spec.objective.kind = kind
    table.set_spec(spec, {})
    groups = [table.topLevelItem(place) for place in range(table.topLevelItemCount())]
    told = [group.child(row).text(1) for group in groups if group for row in range(group.childCount())]
    assert ("Right answer" in told) is is_told
