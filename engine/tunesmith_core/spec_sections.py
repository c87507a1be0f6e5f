"""The sections of a RunSpec: every field with its default, unit, range and meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tunesmith_core import objectives
from tunesmith_core.chat_templates import CHAT_TEMPLATES, OWN
from tunesmith_core.declared import declared
from tunesmith_core.messages import Message

ALL_LINEAR = "all-linear"
MOST_STEPS = 10_000_000
"""A step takes milliseconds at best, so these take days on any device."""

MOST_SOURCES = 1000
MOST_PROMPTS = 100
"""The model answers them all each time that samples are taken, while training waits."""
USUAL_WARMUP_STEPS = 5
MOST_HELD_OUT_PERCENT = 50.0
NATIVE, WSL = "native", "wsl"

CHOICE_WORDS = {
    "utf-8": "UTF-8",
    "windows-1252": "Windows-1252 (Western European)",
    "gb18030": "GB18030 and GBK (Chinese)",
    "cp950": "Big5 (Traditional Chinese)",
    "cp932": "Shift JIS (Japanese)",
    "euc_jp": "EUC-JP (Japanese)",
    "cp949": "EUC-KR (Korean)",
    "windows-1251": "Windows-1251 (Cyrillic)",
    "auto": "Automatic",
    "messages": "Chat",
    "sharegpt": "Chat (ShareGPT)",
    "alpaca": "Instruction and response (Alpaca)",
    "prompt-completion": "Prompt and response",
    "prompt-completion-raw": "Prompt and response as plain text",
    "preference": "Preference pairs",
    "text": "Plain text",
    "tokens": "Tokens",
    "own": "The model's own",
    "plain": "Plain turns",
    "chatml": "ChatML",
    "llama-3": "Llama 3",
    "gemma": "Gemma",
    "mistral": "Mistral",
    "phi-3": "Phi-3",
    "control": "Control tokens",
    "assistant": "Answers only",
    "all": "All",
    "truncate": "Cut",
    "split": "Split",
    "skip": "Skip",
    "sft": "Supervised (SFT)",
    "none": "None",
    "lora_only": "LoRA layers only",
    "nf4": "4-bit (NF4)",
    "adamw": "AdamW",
    "adamw_8bit": "AdamW, 8-bit",
    "linear": "Linear",
    "cosine": "Cosine",
    "constant": "Constant",
    "native": "This system",
    "wsl": "WSL",
}
"""Choices of settings as a person reads them; one that is not here is its own word."""


def device_problem(name: str) -> str | None:
    """Say what is wrong with the name of a device, or return None."""
    return (
        None
        if re.fullmatch(r"cpu|(auto|cuda)(:[1-5]?\d|:6[0-3])?", name)
        else Message("must be auto, cpu, cuda or cuda:1")
    )


@dataclass(kw_only=True, slots=True)
class ModelSpec:
    """The base model."""

    path: str = declared(
        "",
        label="Base model",
        meaning="Folder of a Hugging Face model on this computer, or a hub id such as org/name.",
    )
    revision: str = declared(
        "", label="Revision", meaning="Commit, tag or branch of a hub model. Empty uses the newest."
    )
    chat_template: str = declared(
        OWN,
        label="Chat template",
        meaning=(
            "How chats become text. The model's own is right wherever it has one. For base models plain turns suit "
            "any; the others need the tokens of their family."
        ),
        choices=(OWN, *CHAT_TEMPLATES),
    )
    dtype: str = declared(
        "auto",
        label="Number format",
        meaning="Format of the frozen weights and the calculations. Automatic uses bfloat16 if the GPU supports it.",
        choices=("auto", "float32", "bfloat16", "float16"),
        effect="float32 doubles the memory of the weights and is slower on a GPU.",
    )


@dataclass(kw_only=True, slots=True)
class SourceSpec:
    """A file of rows and how it is laid out."""

    path: str = declared(
        "",
        label="Data",
        meaning="File with one example per row: JSONL, JSON, CSV, Excel, Parquet, Arrow. Or text: TXT, Markdown, HTML, "
        "Word, PDF. A folder, ZIP, gz or zst of these works too.",
    )
    format: str = declared(
        "auto",
        label="Row format",
        meaning="What a row contains. Automatic looks at the columns of the first rows.",
        choices=(
            "auto",
            "messages",
            "sharegpt",
            "alpaca",
            "prompt-completion",
            "prompt-completion-raw",
            "preference",
            "text",
            "tokens",
        ),
    )
    columns: dict[str, str] = declared(
        {},
        label="Column mapping",
        meaning="Which column holds what, if the names differ from the usual ones.",
    )
    encoding: str = declared(
        "utf-8",
        label="Text encoding",
        meaning="Encoding of the file. The wrong one garbles accents and Chinese. UTF-16 is recognized automatically.",
        choices=("utf-8", "windows-1252", "gb18030", "cp950", "cp932", "euc_jp", "cp949", "windows-1251"),
    )
    sheet: str = declared(
        "",
        label="Sheet",
        meaning="Name of the sheet of a workbook that is read. Empty reads the first whose columns are recognized.",
    )
    weight: float = declared(
        0.0,
        label="Weight",
        meaning=(
            "How much of an epoch comes from this file, compared with the other files that have a weight: with 3 and "
            "1, three quarters and one quarter. An epoch stays as long as all files together, so rows of a small file "
            "repeat and rows of a large file take turns. 0 takes every row once."
        ),
        minimum=0.0,
        maximum=1e6,
    )
    most_rows: int | None = declared(
        None,
        label="Most rows",
        meaning=(
            "Most rows of this file that are used, held-out rows included. The seed chooses which. Repeats by weight "
            "don't count. Empty uses all rows."
        ),
        unit="rows",
    )
    reviewed_only: bool = declared(
        False,
        label="Only reviewed rows",
        meaning=(
            "Leaves out rows that a model wrote and nobody has reviewed. They may be wrong. Rows that no model wrote "
            "count as reviewed."
        ),
    )

    def num_used(self, num_rows: int) -> int:
        """Return how many of its rows are used."""
        return num_rows if self.most_rows is None else min(num_rows, self.most_rows)


@dataclass(kw_only=True, slots=True)
class DataSpec:
    """The training data and how rows become tokens."""

    sources: list[SourceSpec] = field(default_factory=lambda: [SourceSpec()])
    """Their rows together are an epoch. Held-out rows from a file of their own are laid out as those of the first."""
    system_prompt: str = declared("", label="System prompt", meaning="Added to every chat that has no system message.")
    train_on: str = declared(
        "assistant",
        label="Loss on",
        meaning="Which tokens count for the loss: the assistant's answers only, or every token.",
        choices=("assistant", "all"),
    )
    special_tokens: str = declared(
        "text",
        label="Special tokens in chats",
        meaning="What a special token such as <|im_end|> inside a message becomes. As control token it can end a turn.",
        choices=("text", "control"),
    )
    context_length: int = declared(
        2048,
        label="Context length",
        meaning="Most tokens per example.",
        unit="tokens",
        minimum=8,
        maximum=1_048_576,
        effect="Higher needs more memory.",
    )
    overlong: str = declared(
        "truncate",
        label="Longer examples",
        meaning=(
            "What happens to examples that are longer than the context length. Split makes several examples of a long "
            "text, at a heading, paragraph or sentence. Chats and responses are cut instead, because a part would "
            "miss its question."
        ),
        choices=("truncate", "split", "skip"),
    )
    skip_bad_rows: bool = declared(
        False,
        label="Skip bad rows",
        meaning="Skips rows that can't be read or are missing a column, and counts them. Off stops at the first one.",
    )


@dataclass(kw_only=True, slots=True)
class ObjectiveSpec:
    """What training aims at."""

    kind: str = declared(
        "sft",
        label="Objective",
        meaning="What the model learns. SFT learns to write the answers in the data.",
        choices=objectives.names(),
    )


@dataclass(kw_only=True, slots=True)
class AdapterSpec:
    """What is trained: a LoRA adapter on the frozen model."""

    rank: int = declared(
        16,
        label="Rank",
        meaning="Size of the adapter. Too low can't learn the task, too high can overfit. 8 to 32 suits most data.",
        minimum=1,
        maximum=4096,
        effect="Higher learns more and needs more memory.",
    )
    alpha: float = declared(
        32.0,
        label="Alpha",
        meaning=(
            "How strongly the adapter acts: its output is multiplied by alpha / rank. Once or twice the rank "
            "suits most runs."
        ),
        above=0.0,
    )
    dropout: float = declared(
        0.0,
        label="Dropout",
        meaning=(
            "Share of adapter inputs that training ignores at random. 0.05 to 0.1 limits overfitting on little "
            "data, 0 is fastest."
        ),
        minimum=0.0,
        maximum=0.95,
    )
    target_modules: str | list[str] = declared(
        ALL_LINEAR,
        label="Target modules",
        meaning='Layers that get an adapter: "all-linear", or a list of module names such as q_proj, v_proj.',
        effect="Fewer modules need less memory and learn less.",
    )
    rslora: bool = declared(
        False, label="rsLoRA", meaning="Scale by alpha / sqrt(rank), which keeps high ranks effective."
    )
    dora: bool = declared(
        False,
        label="DoRA",
        meaning="Also learns how strong each weight row is, which can come closer to full fine-tuning.",
        effect="Learns a little more, is slower and needs more memory.",
    )
    bias: str = declared(
        "none",
        label="Bias",
        meaning="Which bias vectors are trained too. None suits most models.",
        choices=("none", "all", "lora_only"),
    )


@dataclass(kw_only=True, slots=True)
class QuantizationSpec:
    """How the frozen weights are stored."""

    kind: str = declared(
        "none",
        label="Frozen weights",
        meaning="None keeps the model at 16 bits (LoRA). NF4 stores its linear layers in 4 bits (QLoRA).",
        choices=("none", "nf4"),
        effect="NF4 needs about a quarter of the weight memory and is a little slower.",
    )


@dataclass(kw_only=True, slots=True)
class OptimizerSpec:
    """How gradients become updates."""

    name: str = declared(
        "adamw",
        label="Optimizer",
        meaning="AdamW in 32 bits, or with 8-bit states by bitsandbytes.",
        choices=("adamw", "adamw_8bit"),
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
            "turns it off."
        ),
        minimum=0.0,
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
