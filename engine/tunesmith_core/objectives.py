"""The objectives that this program can train for, told without loading it: each is a file of the engine's `methods`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

METHODS = Path(__file__).parent.parent / "tunesmith_engine" / "methods"

PREFERENCES = frozenset({"cpo", "dpo", "orpo", "simpo"})
"""Objectives that learn from pairs to write: of two answers to a question the one that people like better."""

HEADS = frozenset({"classify", "prm", "reward"})
"""Objectives that train a head beside the adapter: the model rates texts and writes none."""

FROM_PAIRS = PREFERENCES | {"reward"}
"""Objectives whose rows are pairs."""

LABELS = frozenset({"kto"})
"""Objectives that learn from single answers, each of which people called good or bad."""

DISTILLATION = frozenset({"gkd"})
"""Objectives that learn from a bigger model: at every token, what it finds how likely."""

STORED = frozenset({"kd"})
"""Objectives that learn from what a bigger model found likely at every token when it wrote the answers of the data."""

DIVERGENCES = DISTILLATION | STORED
"""Objectives whose loss is how far the model is from a bigger one."""

REINFORCEMENT = frozenset({"grpo", "rloo"})
"""Objectives that learn from rewards: of answers that the model writes itself, how good each one is."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an objective comes from.

    Attributes:
        title: its name, the same in every language.
        paper: who described it where.
        beta, sft_weight: the paper's values, which an empty value in a spec stands for.
    """

    title: str
    paper: str
    beta: float = 0.0
    sft_weight: float = 0.0

    def __str__(self) -> str:
        return f"{self.title}, {self.paper}"


ORIGINS = {
    "dpo": Origin("Direct preference optimization (DPO)", "Rafailov et al. 2023, arXiv:2305.18290", 0.1),
    "simpo": Origin("Simple preference optimization (SimPO)", "Meng et al. 2024, arXiv:2405.14734", 2.0),
    "orpo": Origin("Odds ratio preference optimization (ORPO)", "Hong et al. 2024, arXiv:2403.07691", 0.1, 1.0),
    "cpo": Origin("Contrastive preference optimization (CPO)", "Xu et al. 2024, arXiv:2401.08417", 0.1, 1.0),
    "kto": Origin("Kahneman-Tversky optimization (KTO)", "Ethayarajh et al. 2024, arXiv:2402.01306", 0.1),
    "grpo": Origin("Group relative policy optimization (GRPO)", "Shao et al. 2024, arXiv:2402.03300", 0.0),
    "rloo": Origin("REINFORCE leave-one-out (RLOO)", "Ahmadian et al. 2024, arXiv:2402.14740", 0.05),
    "gkd": Origin("Generalized knowledge distillation (GKD)", "Agarwal et al. 2024, arXiv:2306.13649"),
    "kd": Origin("Knowledge distillation from stored probabilities", "Hinton et al. 2015, arXiv:1503.02531"),
    "prm": Origin("Process reward model", "Lightman et al. 2023, arXiv:2305.20050"),
    "reward": Origin("Reward model (Bradley-Terry)", "Ouyang et al. 2022, arXiv:2203.02155"),
}
"""Of the objectives that learn from pairs, labels, rewards or a bigger model. ORPO's paper calls beta lambda. GRPO's
beta is TRL's: newer papers, such as DAPO (Yu et al. 2025, arXiv:2503.14476), leave the base model out."""

USED_BY = {
    "dpo_loss": frozenset({"dpo"}),
    "kto_loss": LABELS,
    "reference": LABELS | {"dpo"},
    "reference_adapter": LABELS | REINFORCEMENT | {"dpo"},
    "good_weight": LABELS,
    "bad_weight": LABELS,
    "beta": PREFERENCES | LABELS | REINFORCEMENT,
    "label_smoothing": frozenset({"cpo", "dpo", "simpo"}),
    "margin": frozenset({"simpo"}),
    "sft_weight": PREFERENCES,
    "policy_loss": frozenset({"grpo"}),
    "ratio_of": frozenset({"grpo"}),
    "reward_scale": REINFORCEMENT,
    "clip": REINFORCEMENT,
    "clip_high": REINFORCEMENT,
    "clip_most": frozenset({"grpo"}),
    "written_share": STORED,
    "regression": frozenset({"classify"}),
    "classes": frozenset({"classify"}),
}
"""Which objectives a setting of the section "objective" is for."""

WITHOUT_EFFECT = {
    "cispo": ("objective.clip", "objective.clip_most"),
    "sapo": ("objective.clip", "objective.clip_high", "objective.clip_most"),
    "vespo": ("objective.clip", "objective.clip_high", "objective.clip_most", "objective.ratio_of"),
}
"""Settings that losses of GRPO don't know."""

OF_WRITING = frozenset(
    {
        *("data.train_on", "hardware.kernels", "hardware.fp8_weights"),
        *("model.new_tokens", "adapter.embeddings", "adapter.modules_to_save", "optimizer.embedding_rate"),
        *("evaluation.sample_prompts", "evaluation.sample_every_steps", "evaluation.sample_max_tokens"),
        "adapter.start_from",
    }
)
"""Settings of other sections that are for all objectives but HEADS."""

ONLY_FOR = {"optimizer.neftune_alpha": frozenset({"sft"})}
"""Settings of other sections that are for some objectives only: others would compare probabilities under noise."""

OF_DATA_ANSWERS = frozenset({"data.train_on", "data.overlong"})
"""Settings of other sections that are for all objectives but REINFORCEMENT: no answer in the data is trained there."""

OF_KERNELS = frozenset({"hardware.kernels", "hardware.fp8_weights"})
"""Settings of the fused path, by which no DISTILLATION runs."""

FROM_LABELS = frozenset({"classify"})
"""Objectives whose rows are texts with labels."""

FROM_STEPS = frozenset({"prm"})
"""Objectives whose rows are solutions in steps, each of which is right or wrong."""

LEARNING_RATE_DIVISORS = {
    **dict.fromkeys(("cpo", "dpo", "grpo", "kto", "orpo", "rloo"), 4),
    **dict.fromkeys(("prm", "reward"), 2),
    "simpo": 10,
}
"""By how much the learning rate of an objective is usually smaller than that of SFT: 5e-5, or 2e-5 where it is 10, and
of reward models TRL's own 1e-4.

TRL takes 1e-6 for all weights of a model and names about 1e-5 for adapters (its page about DPO), for data sets of tens
of thousands of pairs. The few hundred steps of a run here need the upper end of what is in use, 5e-6 to 5e-5.
"""


def uses(kind: str, path: str) -> bool:
    """Return whether the setting of a dotted path has an effect on runs of an objective."""
    section, _, name = path.partition(".")
    if section == "rollouts":
        return kind in REINFORCEMENT
    if section == "teacher":
        return kind in DISTILLATION
    if (path in OF_DATA_ANSWERS and kind in REINFORCEMENT) or (path in OF_KERNELS and kind in DISTILLATION):
        return False
    if path in OF_WRITING:
        return kind not in HEADS
    if path in ONLY_FOR:
        return kind in ONLY_FOR[path]
    return section != "objective" or kind in USED_BY.get(name, (kind,))


def sequences_per_row(kind: str) -> int:
    """Return how many sequences of a row pass through the model: of a pair both answers."""
    return 2 if kind in FROM_PAIRS else 1


def names() -> tuple[str, ...]:
    """Return the names that `objective.kind` may have."""
    return tuple(sorted(path.stem for path in METHODS.glob("[a-z]*.py")))
