"""The sections of a RunSpec about how training goes: every field with its default, unit, range and meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunesmith_core.declared import declared
from tunesmith_core.messages import Message

MOST_STEPS = 10_000_000
"""A step takes milliseconds at best, so these take days on any device."""

MOST_PROMPTS = 100
"""The model answers them all each time that samples are taken, while training waits."""
USUAL_WARMUP_STEPS = 5
MOST_HELD_OUT_PERCENT = 50.0
NATIVE, WSL = "native", "wsl"


def device_problem(name: str) -> str | None:
    """Say what is wrong with the name of a device, or return None."""
    return (
        None
        if re.fullmatch(r"cpu|(auto|cuda)(:[1-5]?\d|:6[0-3])?", name)
        else Message("must be auto, cpu, cuda or cuda:1")
    )


@dataclass(kw_only=True, slots=True)
class OptimizerSpec:
    """How gradients become updates."""

    name: str = declared(
        "adamw",
        label="Optimizer",
        meaning=(
            "AdamW in 32 bits, or with 8-bit states. Full fine-tuning can also take Adafactor, whose states need next "
            "to no memory, and Muon, which makes the update of each matrix even in all directions."
        ),
        choices=("adamw", "adamw_8bit", "adafactor", "muon"),
        effect="8-bit states need a quarter of the optimizer memory.",
    )
    learning_rate: float = declared(
        2e-4,
        label="Learning rate",
        meaning=(
            "How fast the model learns, at the peak of the schedule. Too high makes the loss jump, too low "
            "learns little."
        ),
        above=0.0,
        maximum=1.0,
        effect="Higher learns faster and breaks down sooner.",
    )
    lora_plus_ratio: float = declared(
        1.0,
        label="LoRA+ ratio",
        meaning=(
            "How many times faster the second matrix of each adapter (B) learns than the first (A). 1 is usual. With "
            "LoRA+, 4 to 16 can learn hard tasks sooner, best at half the learning rate. Too high makes the loss jump."
        ),
        minimum=1.0,
        maximum=1000.0,
    )
    embedding_rate: float = declared(
        0.2,
        label="Rate of embeddings",
        meaning=(
            "By what the learning rate is multiplied for trained embeddings and the output layer. They learn best 2 to "
            "10 times slower than the adapter, so 0.1 to 0.5."
        ),
        above=0.0,
        maximum=10.0,
    )
    weight_decay: float = declared(
        0.0,
        label="Weight decay",
        meaning="Pulls the trained weights toward zero, which limits overfitting. 0 turns it off.",
        minimum=0.0,
        maximum=1.0,
    )
    beta1: float = declared(
        0.9,
        label="Beta 1",
        meaning=(
            "First-moment decay: how long past gradients count. Higher is smoother and slower to react. 0.9 "
            "suits most runs."
        ),
        minimum=0.0,
        maximum=0.9999,
    )
    beta2: float = declared(
        0.999,
        label="Beta 2",
        meaning="Second-moment decay: how long the size of past gradients counts. 0.999 suits most runs.",
        minimum=0.0,
        maximum=0.999999,
    )
    epsilon: float = declared(
        1e-8,
        label="Epsilon",
        meaning="Keeps tiny gradients from causing huge updates. Rarely worth changing.",
        # Below, float32 has 0 for it, and a gradient of 0 would make the update NaN.
        minimum=1e-30,
        maximum=1.0,
    )
    max_grad_norm: float = declared(
        1.0,
        label="Gradient clipping",
        meaning=(
            "Maximum gradient norm. Lower tames jumps in the loss, too low slows learning. 1 suits most runs. 0 "
            "turns it off. Full fine-tuning with 0 and without gradient accumulation updates each layer as soon as "
            "its gradient is known, which saves memory."
        ),
        minimum=0.0,
    )
    neftune_alpha: float = declared(
        0.0,
        label="NEFTune noise",
        zero="none",
        meaning=(
            "Adds random noise to the embeddings of the training rows, which can make answers better after little "
            "data. 5 to 15 are usual. Evaluations see no noise."
        ),
        minimum=0.0,
        maximum=1000.0,
    )


@dataclass(kw_only=True, slots=True)
class ScheduleSpec:
    """How long training lasts and in which portions."""

    epochs: float = declared(
        3.0,
        label="Epochs",
        meaning=(
            "Passes over the data, when no number of steps is set. With weights, one pass takes as many examples as "
            "all files have rows together."
        ),
        above=0.0,
        maximum=10_000.0,
    )
    max_steps: int = declared(
        0,
        label="Steps",
        zero="by epochs",
        meaning="Number of optimizer steps. 0 uses epochs instead.",
        unit="steps",
        minimum=0,
        maximum=MOST_STEPS,
    )
    micro_batch_size: int = declared(
        2,
        label="Micro-batch size",
        meaning="Examples that go through the model together.",
        unit="examples",
        minimum=1,
        maximum=4096,
        effect="Higher needs more memory and is faster on a GPU.",
    )
    gradient_accumulation_steps: int = declared(
        4,
        label="Gradient accumulation",
        meaning="Micro-batches per step. Times the micro-batch size, this is the batch size.",
        unit="micro-batches",
        minimum=1,
        maximum=4096,
    )
    scheduler: str = declared(
        "linear",
        label="Scheduler",
        meaning="How the learning rate changes after the warm-up.",
        choices=("linear", "cosine", "constant"),
    )
    warmup_steps: int | None = declared(
        None,
        label="Warm-up",
        unset="5, fewer in short runs",
        meaning=(
            "Steps in which the learning rate rises from zero, so that the first step changes nothing. Empty takes 5 "
            "steps, a tenth of the run at most, and none in a run of fewer than 20 steps."
        ),
        unit="steps",
        minimum=0,
        maximum=MOST_STEPS,
    )
    seed: int = declared(42, label="Seed", meaning="The same seed gives the same run.", minimum=0, maximum=2**31 - 1)
    shuffle: bool = declared(True, label="Shuffle", meaning="Take the rows in a new random order in each epoch.")

    def num_warmup_steps(self, total_steps: int) -> int:
        """Return the steps of the warm-up in a run of so many steps."""
        share = min(USUAL_WARMUP_STEPS, total_steps // 10)
        usual = share if share > 1 else 0  # the rate of a single step would be zero, which wastes it
        return usual if self.warmup_steps is None else self.warmup_steps


@dataclass(kw_only=True, slots=True)
class EvaluationSpec:
    """Held-out loss and sample texts along the way."""

    path: str = declared(
        "",
        label="Evaluation data",
        meaning="Separate file for evaluation (validation or test set). Empty holds out a share of the training data.",
    )
    percent: float = declared(
        5.0,
        label="Held-out share",
        meaning=(
            "Rows to hold out from training and evaluate on (validation or test set), when there is no separate file. "
            "0 turns evaluation off."
        ),
        unit="%",
        minimum=0.0,
        maximum=MOST_HELD_OUT_PERCENT,
    )
    group_column: str = declared(
        "",
        label="Group column",
        meaning=(
            "Rows with the same value in this column, such as a customer or a document, are all trained or all held "
            "out. Use it when rows of a group give each other's answers away. Applies to the held-out share only."
        ),
    )
    every_steps: int = declared(
        0,
        label="Evaluate every",
        zero="ten times per run",
        meaning="Steps between evaluations. 0 evaluates ten times per run.",
        unit="steps",
        minimum=0,
        maximum=MOST_STEPS,
    )
    early_stopping: int = declared(
        0,
        label="Early stopping",
        zero="never",
        meaning="Stops after this many evaluations without a better loss. 0 never stops early.",
        unit="evaluations",
        minimum=0,
        maximum=MOST_STEPS,
    )
    sample_prompts: list[str] = declared(
        [],
        label="Sample prompts",
        meaning=(
            "Questions that the model answers during training. Held-out rows are asked without being named here: "
            "before and after training, and in between while that takes at most a tenth of the time."
        ),
    )
    sample_every_steps: int = declared(
        0,
        label="Sample every",
        zero="with each evaluation",
        meaning=(
            "Steps between answers to the sample prompts. 0 takes them with each evaluation. Questions of held-out "
            "rows don't follow this setting."
        ),
        unit="steps",
        minimum=0,
        maximum=MOST_STEPS,
    )
    sample_max_tokens: int = declared(
        64, label="Sample length", meaning="Most tokens of a sample.", unit="tokens", minimum=1, maximum=4096
    )

    @property
    def groups_by(self) -> str:
        """The column whose groups stay whole, "" where no share of the rows is held out."""
        return self.group_column if self.percent and not self.path else ""


@dataclass(kw_only=True, slots=True)
class SavingSpec:
    """Checkpoints."""

    every_minutes: float = declared(
        10.0,
        label="Longest time between saves",
        meaning="A checkpoint is saved at least this often.",
        unit="minutes",
        above=0.0,
        maximum=1440.0,
    )
    every_steps: int = declared(
        0,
        label="Save every",
        zero="ten times per run",
        meaning="Steps between checkpoints. 0 saves ten times per run.",
        unit="steps",
        minimum=0,
        maximum=MOST_STEPS,
    )
    keep: int = declared(
        2,
        label="Keep",
        meaning="Number of verified checkpoints that are kept.",
        unit="checkpoints",
        minimum=2,
        maximum=1000,
    )


@dataclass(kw_only=True, slots=True)
class HardwareSpec:
    """Where the run computes."""

    devices: list[str] = declared(
        ["auto"],
        label="Device",
        meaning="auto uses the GPU if there is one. cpu, cuda or cuda:1 chooses a device, numbered as in nvidia-smi.",
        rule=device_problem,
    )
    system: str = declared(
        NATIVE,
        label="System",
        meaning="Where the engine runs: this system, or Linux inside Windows (WSL) after it was set up.",
        choices=(NATIVE, WSL),
    )
    kernels: bool = declared(
        True,
        label="Fused kernels",
        meaning="Trains with Tunesmith's own fused kernels. Off trains in plain PyTorch.",
        effect="Off is slower and needs more memory. The results are the same.",
    )
    fp8_weights: bool = declared(
        False,
        label="8-bit products",
        meaning="Multiply with frozen weights in 8-bit floating point if a test finds this model accurate enough.",
        effect="Faster on RTX 40, RTX 50 and H100 class GPUs. Costs a little accuracy and more memory.",
    )
    activation_checkpointing: bool = declared(
        False,
        label="Activation checkpointing",
        meaning="Recomputes activations instead of storing them. Use it when a run does not fit.",
        effect="Needs much less memory and is about a third slower.",
    )
    cpu_threads: int = declared(
        0,
        label="CPU threads",
        zero="all cores",
        meaning="CPU threads for training. 0 uses all cores.",
        minimum=0,
        maximum=1024,
    )

    @property
    def device(self) -> str:
        """The first device without its number: "auto", "cuda" or "cpu"."""
        return (self.devices or ["auto"])[0].partition(":")[0]

    @property
    def gpu_index(self) -> int:
        """Number of the GPU, as nvidia-smi counts."""
        return int((self.devices or ["auto"])[0].partition(":")[2] or 0)
