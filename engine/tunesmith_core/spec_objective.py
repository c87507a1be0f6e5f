"""The section of a RunSpec about what training aims at: every field with its default, unit, range and meaning."""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core import objectives
from tunesmith_core.declared import declared

DPO_LOSSES = (
    *("sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
    *("apo_zero", "apo_down", "discopop"),
)
"""TRL's names of losses that are functions of one pair's log-probabilities."""

KTO_LOSSES = ("kto", "apo_zero_unpaired")
"""TRL's names of losses of one labeled answer."""

POLICY_LOSSES = ("dapo", "grpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo")
"""TRL's names of losses of what a model wrote itself."""

SMOOTHED = ("sigmoid", "sigmoid_norm", "exo_pair", "robust")
"""Those that know of labels the wrong way round."""


@dataclass(kw_only=True, slots=True)
class ObjectiveSpec:
    """What training aims at."""

    kind: str = declared(
        "sft",
        label="Objective",
        meaning=(
            "What the model learns. SFT learns to write the answers in the data. DPO, SimPO, ORPO and CPO learn from "
            "pairs to prefer one answer over another, KTO from single answers that are labeled good or bad. GRPO and "
            "RLOO learn from rewards for what the model writes, GKD from a bigger model, KD from what a bigger model "
            "found likely when it wrote the answers in the data. A reward model learns from pairs to score answers "
            "and writes none, a process reward model scores each step of one. Classes or numbers are learned from "
            "texts with a label."
        ),
        choices=objectives.names(),
    )
    dpo_loss: str = declared(
        "sigmoid",
        label="DPO loss",
        meaning=(
            "How DPO compares the two answers. Sigmoid is the original. IPO and the losses per token suit answers of "
            "very different lengths, robust suits labels that are often wrong."
        ),
        choices=DPO_LOSSES,
    )
    kto_loss: str = declared(
        "kto",
        label="KTO loss",
        meaning=(
            "How KTO rates an answer. The original compares it with how far the model has moved on other answers, "
            "which takes more time. APO-zero does without, and suits good answers that are better than what the model "
            "writes."
        ),
        choices=KTO_LOSSES,
    )
    good_weight: float = declared(
        1.0,
        label="Weight of good answers",
        meaning=(
            "How much each good answer counts. With fewer good than bad answers, raise it until both sides count "
            "about the same in total."
        ),
        minimum=0.0,
        maximum=1000.0,
    )
    bad_weight: float = declared(
        1.0,
        label="Weight of bad answers",
        meaning=(
            "How much each bad answer counts. With fewer bad than good answers, raise it until both sides count "
            "about the same in total."
        ),
        minimum=0.0,
        maximum=1000.0,
    )
    beta: float | None = declared(
        None,
        label="Beta",
        unset="usual value",
        meaning=(
            "How strictly preferences are followed. In DPO and KTO, higher stays closer to the base model. Empty takes "
            "the usual value: 0.1, for SimPO 2."
        ),
        minimum=0.0,
        maximum=1000.0,
    )
    reference: str = declared(
        "each-step",
        label="Base model beside",
        meaning=(
            "When DPO and KTO ask the model as it was before the run how likely it finds the answers. Each step does "
            "that again. Once does it before the first step and keeps the numbers, also for later runs on the same "
            "data, which makes steps shorter and pays off from the second epoch on."
        ),
        choices=("each-step", "once"),
    )
    reference_adapter: str = declared(
        "",
        label="Reference adapter",
        meaning=(
            "Folder of another LoRA adapter on the same base model, with which answers are compared. Empty compares "
            "with the model as it was before the run, which suits almost every run."
        ),
    )
    label_smoothing: float = declared(
        0.0,
        label="Label smoothing",
        meaning="Share of pairs that you expect to be labeled the wrong way round. 0 trusts every pair.",
        minimum=0.0,
        maximum=0.49,
    )
    margin: float = declared(
        0.5,
        label="Margin",
        meaning="By how much SimPO wants the better answer to be rated higher than the worse one.",
        minimum=0.0,
        maximum=1000.0,
    )
    sft_weight: float | None = declared(
        None,
        label="Weight of the SFT loss",
        unset="usual value",
        meaning=(
            "How much learning to write the better answer counts beside preferring it. Empty takes the usual value: 1 "
            "for CPO and ORPO, else 0, which is none of it. DPO alone learns to tell the answers apart, but may "
            "never write a style that is new to the model. With 1 it learns to write it as well."
        ),
        minimum=0.0,
        maximum=1000.0,
    )
    policy_loss: str = declared(
        "dapo",
        label="GRPO loss",
        meaning=(
            "How GRPO averages over tokens and limits updates. DAPO counts every token alike. GRPO is the original, "
            "which favors short answers among good ones."
        ),
        choices=POLICY_LOSSES,
    )
    ratio_of: str = declared(
        "token",
        label="Ratio of",
        meaning="What is compared with the model that wrote the answers. The answer as a whole is called GSPO.",
        choices=("token", "answer"),
    )
    reward_scale: str = declared(
        "usual",
        label="Rewards divided by the spread of",
        meaning=(
            "Makes strong and weak rewards comparable. Usual divides by the spread of the answers to one prompt for "
            "GRPO, and not at all for RLOO."
        ),
        choices=("usual", "group", "batch", "none"),
    )
    clip: float = declared(
        0.2,
        label="Clipping",
        meaning=(
            "How far the probability of a token may move in one round before it is left alone: 0.2 for a fifth. It "
            "has an effect with several updates per round."
        ),
        above=0.0,
        maximum=1000.0,
    )
    clip_high: float = declared(
        0.0,
        label="Clipping upward",
        zero="like downward",
        meaning="The same for tokens that become more likely. DAPO recommends 0.28. 0 takes the value of Clipping.",
        minimum=0.0,
        maximum=1000.0,
    )
    clip_most: float = declared(
        0.0,
        label="Largest ratio",
        zero="no bound",
        meaning=(
            "How many times likelier a token of a bad answer may count at most, such as 4. It keeps single tokens from "
            "ruling a step. 0 sets no bound. It has an effect with several updates per round."
        ),
        minimum=0.0,
        maximum=1000.0,
    )
    written_share: float = declared(
        0.0,
        label="Share of the written answer",
        meaning=(
            "How much the answer as it was written counts beside what the bigger model found likely. With 0 the model "
            "learns from the probabilities alone, with 1 from the answer alone, as in SFT."
        ),
        minimum=0.0,
        maximum=1.0,
    )
    regression: bool = declared(
        False,
        label="Labels are numbers",
        meaning="Predict a number, such as a rating, instead of sorting into classes.",
    )
    classes: list[str] = declared(
        [],
        label="Classes",
        meaning="Names of the classes, in their order. Empty takes them from the data as they come.",
    )
