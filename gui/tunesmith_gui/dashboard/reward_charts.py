"""The charts of runs that learn from pairs, rewards, labels or a bigger model, in place of a loss that says less.

Importing this module imports pyqtgraph.
"""

from __future__ import annotations

import numpy as np
from PySide6.QtWidgets import QWidget

from tunesmith_gui.dashboard.chart_card import ChartCard
from tunesmith_gui.dashboard.model import EVAL_COLUMNS, STEP_COLUMNS, DashboardModel
from tunesmith_gui.models.metric_series import smooth
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.tr import translate
from tunesmith_gui.widgets.metric_plot import Line

_SMOOTHING = 0.6
_PERCENT = 100.0


class RewardCard(ChartCard):
    """One number of a run, in training and, where it is measured there too, held out.

    Args:
        title, y_title: see ChartCard.
        column: of a run's steps and evaluations.
        unit: what the number is multiplied by.
        help_words: what it means.
        height_px: of the chart.
        bounds: columns of the lowest and the highest number of a step, drawn beside the mean.
    """

    def __init__(
        self,
        title: str,
        y_title: str,
        column: str,
        unit: float,
        help_words: str,
        parent: QWidget | None = None,
        height_px: int = 140,
        bounds: tuple[str, ...] = (),
    ) -> None:
        super().__init__(title, y_title, height_px=height_px, parent=parent)
        self._bounds = bounds
        self._column, self._unit = column, unit
        self.describe(help_words)

    def describe(self, help_words: str) -> None:
        """Says what the number means."""
        set_tip(self.heading, help_words)
        self.setAccessibleDescription(help_words)

    def is_told_by(self, model: DashboardModel) -> bool:
        """Whether a run has measured anything but 0."""
        values = model.steps.column(self._column)
        return bool(np.nan_to_num(values).any())

    def show_model(self, model: DashboardModel) -> None:
        """Draw the curves of a run."""
        self.set_scale(self.scale, model.status.total_steps if model.status.state.live else 0)
        lines = []
        if self._column in STEP_COLUMNS:
            steps, values = (model.steps.column(name) for name in ("step", self._column))
            lines = [
                Line(self.tr("training"), steps, values * self._unit, "raw"),
                Line(self.tr("smoothed"), steps, smooth(values, _SMOOTHING) * self._unit, "smooth", filled=True),
            ]
        at = model.evals.column("step")
        held_out = model.evals.column(self._column) if self._column in EVAL_COLUMNS else at[:0]
        if np.isfinite(held_out).any():
            lines.append(Line(self.tr("held out"), at, held_out * self._unit, "dots", 1))
        for name, words in zip(self._bounds, (self.tr("lowest"), self.tr("highest")), strict=False):
            found = model.steps.column(name)
            if np.isfinite(found).any():
                lines.append(Line(words, steps, found * self._unit, "line", 2, dashed=True))
        self.plot.set_lines(lines)


def margin_words(are_labels: bool) -> str:
    """What the margin means where answers are labeled, or come in pairs."""
    if are_labels:
        return translate(
            "RewardCharts",
            "By how much the model rates good answers above bad ones, on average. It should rise above 0.",
        )
    return translate(
        "RewardCharts",
        "By how much the model rates the better answer above the worse one, on average. It should rise above 0.",
    )


def accuracy_words(are_labels: bool) -> str:
    """What the accuracy means where answers are labeled, or come in pairs."""
    if are_labels:
        return translate(
            "RewardCharts",
            "Share of answers on the right side: compared with answers in general, good ones have become likelier and "
            "bad ones less likely.",
        )
    return translate(
        "RewardCharts", "Share of pairs whose better answer the model rates higher. Guessing would be right in 50%."
    )


def margin_card(parent: QWidget) -> RewardCard:
    """By how much the better answers are rated higher."""
    title = translate("RewardCharts", "Reward margin")
    return RewardCard(title, "", "reward_margin", 1.0, margin_words(False), parent)


def class_card(parent: QWidget) -> RewardCard:
    """How many texts are sorted rightly."""
    words = translate("RewardCharts", "Share of texts that the model sorts into the right class.")
    return RewardCard(translate("RewardCharts", "Right class"), "%", "accuracy", _PERCENT, words, parent)


def class_cards(parent: QWidget) -> tuple[RewardCard, ...]:
    """How texts are sorted, and what the share of right ones leaves out, which only evaluations measure."""
    f1 = translate(
        "RewardCharts",
        "How well each class is found and kept apart, where every class counts the same. It falls behind the share of "
        "right ones when rare classes are missed.",
    )
    gap = translate(
        "RewardCharts", "By how much the model's confidence is off, on average. At 0 it is right as often as it says."
    )
    return (
        class_card(parent),
        RewardCard(translate("RewardCharts", "Macro F1"), "", "macro_f1", 1.0, f1, parent),
        RewardCard(translate("RewardCharts", "Calibration error"), "%", "calibration_error", _PERCENT, gap, parent),
    )


def step_card(parent: QWidget) -> RewardCard:
    """How many steps are judged rightly."""
    words = translate("RewardCharts", "Share of steps that the model judges rightly.")
    return RewardCard(translate("RewardCharts", "Right steps"), "%", "step_accuracy", _PERCENT, words, parent)


def agreement_card(parent: QWidget) -> RewardCard:
    """How often the model would write the same as its teacher."""
    words = translate(
        "RewardCharts", "Share of tokens at which the model and the bigger one find the same token most likely."
    )
    title = translate("RewardCharts", "Agrees with the bigger model")
    return RewardCard(title, "%", "agreement", _PERCENT, words, parent)


def accuracy_card(parent: QWidget) -> RewardCard:
    """How often the better answer is rated higher."""
    title = translate("RewardCharts", "Reward accuracy")
    card = RewardCard(title, "%", "reward_accuracy", _PERCENT, accuracy_words(False), parent)
    card.plot.y_span = 0.0, _PERCENT
    return card


def kl_card(parent: QWidget) -> RewardCard:
    """How far the model has moved from the base model."""
    words = translate(
        "RewardCharts",
        "How much likelier the model finds answers in general than the model before the run did, in nats. A rating "
        "counts from there. A steep rise means that it moves far away.",
    )
    return RewardCard(translate("RewardCharts", "Distance from the start"), "", "kl", 1.0, words, parent)


def reward_card(parent: QWidget) -> RewardCard:
    """What the answers are worth, the chart that tells whether the run learns."""
    words = translate(
        "RewardCharts",
        "Mean, lowest and highest reward of the answers. In training the model chooses words at random, held out it "
        "takes the likeliest.",
    )
    title, bounds = translate("RewardCharts", "Reward"), ("reward_lowest", "reward_highest")
    return RewardCard(title, "", "reward", 1.0, words, parent, height_px=260, bounds=bounds)


def round_cards(parent: QWidget) -> tuple[RewardCard, ...]:
    """What else is told of the answers and of how the model moves."""
    return (
        RewardCard(
            translate("RewardCharts", "Answer length"),
            translate("RewardCharts", "Tokens"),
            "answer_tokens",
            1.0,
            translate("RewardCharts", "Mean length of the answers. Growing without more reward is a warning sign."),
            parent,
        ),
        RewardCard(
            translate("RewardCharts", "Cut answers"),
            "%",
            "cut_answers",
            _PERCENT,
            translate("RewardCharts", "Share of answers that reached the longest length and were cut there."),
            parent,
        ),
        RewardCard(
            translate("RewardCharts", "Prompts that teach nothing"),
            "%",
            "equal_groups",
            _PERCENT,
            translate(
                "RewardCharts", "Share of prompts whose answers all got the same reward. Nothing is learned from them."
            ),
            parent,
        ),
        RewardCard(
            translate("RewardCharts", "Entropy"),
            "",
            "entropy",
            1.0,
            translate(
                "RewardCharts",
                "How undecided the model is about its next word. Near 0 it always writes the same and tries no more.",
            ),
            parent,
        ),
        RewardCard(
            translate("RewardCharts", "Distance from the start"),
            "",
            "kl",
            1.0,
            translate(
                "RewardCharts", "KL divergence per token. A sudden rise means that the model exploits the reward."
            ),
            parent,
        ),
        RewardCard(
            translate("RewardCharts", "Clipped tokens"),
            "%",
            "clip_share",
            _PERCENT,
            translate("RewardCharts", "Share of tokens whose update was left out because it went too far."),
            parent,
        ),
    )
