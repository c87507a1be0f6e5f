"""The sections of a RunSpec about what is trained on what: every field with its default, unit, range and meaning.

What it aims at is in spec_objective.py, how training goes in spec_training.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.adapter_ranks import alpha_problem, layers_problem, rank_problem
from tunesmith_core.chat_templates import CHAT_TEMPLATES, OWN
from tunesmith_core.declared import declared
from tunesmith_core.trained_parts import ALL, FULL, LORA

ALL_LINEAR = "all-linear"
FROZEN_EMBEDDINGS, NEW_EMBEDDINGS, ALL_EMBEDDINGS = "frozen", "new", "all"
"""What of embeddings and output layer is trained beside an adapter."""
MOST_SOURCES = 1000

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
    "multiple-choice": "Multiple choice",
    "alpaca": "Instruction and response (Alpaca)",
    "prompt-completion": "Prompt and response",
    "prompt-completion-raw": "Prompt and response as plain text",
    "preference": "Preference pairs",
    "text": "Plain text",
    "tokens": "Tokens",
    "labeled": "Text with label",
    "prompt-only": "Prompts without answers",
    "steps": "Solution steps with labels",
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
    "dpo": "Preferences (DPO)",
    "simpo": "Preferences (SimPO)",
    "orpo": "Preferences (ORPO)",
    "cpo": "Preferences (CPO)",
    "kto": "Good and bad answers (KTO)",
    "apo_zero_unpaired": "APO-zero, unpaired",
    "grpo": "Rewards (GRPO)",
    "rloo": "Rewards (RLOO)",
    "gkd": "Bigger model (GKD)",
    "kd": "Stored probabilities (KD)",
    "dapo": "DAPO, per token",
    "dr_grpo": "Dr. GRPO",
    "cispo": "CISPO",
    "sapo": "SAPO",
    "luspo": "LUSPO",
    "vespo": "VESPO",
    "token": "Each token",
    "answer": "The answer",
    "usual": "Usual",
    "group": "Answers to one prompt",
    "batch": "All answers of a step",
    "right": "Right answer",
    "exact": "Exactly the answer",
    "number": "Right number",
    "pattern": "Pattern found",
    "json": "Valid JSON",
    "length": "Length",
    "language": "Language",
    "tool-call": "Valid tool call",
    "task": "The task's own scoring",
    "schema": "JSON schema",
    "model": "Reward model",
    "python": "Your Python file",
    "each-step": "Each step",
    "once": "Once before the first step",
    "reward": "Scores (reward model)",
    "prm": "Scores of steps (process reward model)",
    "classify": "Classes or numbers",
    "sigmoid": "Sigmoid",
    "sigmoid_norm": "Sigmoid, per token",
    "hinge": "Hinge",
    "ipo": "IPO, per token",
    "exo_pair": "EXO",
    "nca_pair": "NCA",
    "robust": "Robust",
    "bco_pair": "BCO",
    "sppo_hard": "SPPO",
    "apo_zero": "APO-zero",
    "apo_down": "APO-down",
    "discopop": "DiscoPOP",
    "none": "None",
    "lora_only": "LoRA layers only",
    "frozen": "Frozen",
    "new": "New words only",
    "default": "Usual",
    "gaussian": "Gaussian",
    "orthogonal": "Orthogonal",
    "pissa": "PiSSA",
    "pissa_niter_16": "PiSSA, fast",
    "olora": "OLoRA",
    "eva": "EVA, from the data",
    **{name: kind.title for name, kind in KINDS.items()},
    "nf4": "4-bit (NF4)",
    "lora": "LoRA adapter",
    "full": "Full fine-tuning",
    "int8": "8-bit (LLM.int8)",
    "adamw": "AdamW",
    "adamw_8bit": "AdamW, 8-bit",
    "adafactor": "Adafactor",
    "muon": "Muon",
    "linear": "Linear",
    "cosine": "Cosine",
    "constant": "Constant",
    "native": "This system",
    "wsl": "WSL",
}
"""Choices of settings as a person reads them; one that is not here is its own word."""


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
    new_tokens: list[str] = declared(
        [],
        label="New words",
        meaning=(
            "Words and markers, such as a technical term or <|cite|>, that become one token each. Each begins as the "
            "mean of the pieces it was written with before, and needs to occur often in the data to be learned."
        ),
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
            "multiple-choice",
            "alpaca",
            "prompt-completion",
            "prompt-completion-raw",
            "preference",
            "text",
            "tokens",
            "labeled",
            "prompt-only",
            "steps",
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
    replay: float = declared(
        0.0,
        label="Replay share",
        meaning=(
            "Share of an epoch that comes from this file so that the model keeps what it knew, such as chats or "
            "general texts beside the documents that it reads. The files without a share are taken as before and set "
            "the length. 5 to 25 is usual, 0 is no replay."
        ),
        unit="%",
        minimum=0.0,
        maximum=90.0,
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

    def examples_used(self, num_rows: int, num_examples: int) -> int:
        """Return how many examples its used rows make, about: all its rows make `num_examples`, for long ones split."""
        return round(self.num_used(num_rows) * num_examples / max(1, num_rows))


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
class AdapterSpec:
    """What is trained: an adapter on the frozen model, or the model itself."""

    kind: str = declared(
        LORA,
        label="What is trained",
        meaning=(
            "LoRA trains a small adapter beside the model, which stays as it is. Full fine-tuning trains the model's "
            "own weights, which can learn more and needs much more memory and disk space. The others are kinds of "
            "adapters that run in plain PyTorch. Very small ones such as VeRA and IA3 usually need a learning rate "
            "of 0.001 or more."
        ),
        choices=(LORA, FULL, *KINDS),
    )
    parts: str | list[str] = declared(
        ALL,
        label="Trained parts",
        meaning=(
            'Which weights are trained: "all", or a list of embeddings, norms, layers, numbers of layers such as '
            "20-31, and module names such as up_proj."
        ),
        effect="Fewer parts need less memory and learn less.",
    )
    weights: str = declared(
        "float32",
        label="Trained weights",
        meaning=(
            "Number format in which trained weights are kept. float32 is exact. bfloat16 rounds each update up or "
            "down at random, so that small updates still count on average."
        ),
        choices=("float32", "bfloat16"),
        effect="bfloat16 needs half the memory for weights and gradients.",
    )
    start_from: str = declared(
        "",
        label="Start from",
        meaning=(
            "Folder of a LoRA adapter to continue training, such as one from an earlier run on this base model. Rank, "
            "alpha, modules, layers, rsLoRA, DoRA and bias come from that adapter. Empty starts with a new adapter."
        ),
    )
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
            "data, 0 is fastest. Above 0, a mixture's experts get no adapter."
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
    layers: list[str] = declared(
        [],
        label="Layers",
        meaning="Numbers of the layers that get an adapter, such as 0-7, 20. Empty takes all layers.",
        rule=layers_problem,
        takes_numbers=True,
        effect="Fewer layers need less memory and learn less.",
    )
    rank_pattern: list[str] = declared(
        [],
        label="Rank per module",
        meaning=(
            "Modules with another rank than the others, such as q_proj = 32, layers.0.*.up_proj = 8. The end of a "
            "module's name is enough, and * stands for anything."
        ),
        rule=rank_problem,
    )
    alpha_pattern: list[str] = declared(
        [],
        label="Alpha per module",
        meaning=(
            "Modules with another alpha than the others, written like their ranks. It is divided by the module's own "
            "rank."
        ),
        rule=alpha_problem,
    )
    rslora: bool = declared(
        False, label="rsLoRA", meaning="Scale by alpha / sqrt(rank), which keeps high ranks effective."
    )
    dora: bool = declared(
        False,
        label="DoRA",
        meaning=(
            "Also learns how strong each weight row is, which can come closer to full fine-tuning. Together with "
            "dropout it runs in plain PyTorch. With DoRA, a mixture's experts get no adapter."
        ),
        effect="Learns a little more, is slower and needs more memory.",
    )
    initial_values: str = declared(
        "default",
        label="Initial values",
        meaning=(
            "What the adapter starts with. The usual random numbers suit most runs. Orthogonal makes the directions "
            "of the adapter independent from the start. It needs an even rank and frozen weights at 16 bits. PiSSA "
            "and OLoRA start from the strongest parts of the frozen weights and often learn faster. EVA starts from "
            "what the layers see in your data."
        ),
        choices=("default", "gaussian", "orthogonal", "pissa", "pissa_niter_16", "olora", "eva"),
        effect="PiSSA and OLoRA save an adapter of twice the rank.",
    )
    bias: str = declared(
        "none",
        label="Bias",
        meaning="Which bias vectors are trained too. None suits most models.",
        choices=("none", "all", "lora_only"),
    )
    embeddings: str = declared(
        FROZEN_EMBEDDINGS,
        label="Embeddings and output layer",
        meaning=(
            "Whether the tables that turn tokens into numbers and back are trained whole beside the adapter. New words "
            "only trains the rows of the new words. All suits a new language or a field with a vocabulary of its own, "
            "and much text."
        ),
        choices=(FROZEN_EMBEDDINGS, NEW_EMBEDDINGS, ALL_EMBEDDINGS),
        effect="All needs several GiB more and makes checkpoints and the adapter as large as these tables.",
    )
    modules_to_save: list[str] = declared(
        [],
        label="Other modules trained whole",
        meaning=(
            "Names of further modules that are trained whole and saved with the adapter, such as norm or "
            "input_layernorm. Training then runs in plain PyTorch."
        ),
        effect="Each needs memory for its weights, gradients and optimizer.",
    )

    @property
    def keeps_base(self) -> bool:
        """Whether the base model can still be asked while its training is under way."""
        has_biases = self.kind == LORA and self.bias != "none"
        return self.kind != FULL and (not has_biases or bool(self.start_from))


@dataclass(kw_only=True, slots=True)
class QuantizationSpec:
    """How the frozen weights are stored."""

    kind: str = declared(
        "none",
        label="Frozen weights",
        meaning=(
            "None keeps the model at 16 bits (LoRA). NF4 stores its linear layers and experts in 4 bits "
            "(QLoRA). Int8 stores its linear layers in 8 bits (LLM.int8), closer to the original, and trains in plain "
            "PyTorch."
        ),
        choices=("none", "nf4", "int8"),
        effect="NF4 needs about a quarter of the weight memory and is a little slower. Int8 needs half and is slower.",
    )
