"""Short operations in the training environment; `tunesmith_engine.operations` holds what they do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith_core.datafmt.encoding import UTF_8
from tunesmith_core.operations.kind import AbsolutePath, Kind, Place
from tunesmith_core.operations.limits import Limits
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec

TOKENIZER_LOADED = "rows"
"""Phase of PREPARE from which on rows are read: the tokenizer was loaded within its limits."""


@dataclass(frozen=True, slots=True)
class PreviewSpec:
    """Which rows are shown, and whether token by token."""

    run: RunSpec
    num_rows: int = 5
    tokens: bool = False

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        return {"run": self.run.to_dict(), "num_rows": self.num_rows, "tokens": self.tokens}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> PreviewSpec:  # Any: JSON values
        """Rebuild a spec from `to_dict`."""
        return PreviewSpec(RunSpec.from_dict(values["run"]), int(values["num_rows"]), bool(values["tokens"]))


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """A file that libraries read, how many of its first rows are wanted, and how they are read.

    Attributes:
        sheet: of a workbook; "" for the one that a run reads.
        encoding: of text in an archive.
        format, columns: what was said about the rows.
        in_pairs, in_labels, has_stored: what is learned from rows, by which they are checked; see `check_head`.
        counts: whether all rows are counted.
    """

    path: AbsolutePath
    num_rows: int
    sheet: str = ""
    encoding: str = UTF_8
    format: str = "auto"
    columns: dict[str, str] = field(default_factory=dict)
    in_pairs: bool = False
    in_labels: bool = False
    has_stored: bool = False
    counts: bool = True

    @staticmethod
    def of(
        source: SourceSpec,
        num_rows: int,
        *,
        in_pairs: bool = False,
        in_labels: bool = False,
        has_stored: bool = False,
        counts: bool = True,
    ) -> HeadSpec:
        """Return what is asked about a data file of a run."""
        path = AbsolutePath(str(Path(source.path).absolute()))
        said = (source.sheet, source.encoding, source.format, source.columns)
        return HeadSpec(path, num_rows, *said, in_pairs, in_labels, has_stored, counts)


@dataclass(frozen=True, slots=True)
class PrepareSpec:
    """The run whose data is prepared, the folder of its model, and a prompt when only that is to become tokens."""

    run: RunSpec
    folder: str
    prompt: str = ""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        return {"run": self.run.to_dict(), "folder": self.folder, "prompt": self.prompt}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> PrepareSpec:  # Any: JSON values
        """Rebuild a spec from `to_dict`."""
        return PrepareSpec(RunSpec.from_dict(values["run"]), values["folder"], values["prompt"])


@dataclass(frozen=True, slots=True)
class ImportSpec:
    """A GGUF file and the model folder that it becomes."""

    source: AbsolutePath
    target: AbsolutePath


@dataclass(frozen=True, slots=True)
class SelftestSpec:
    """The device that is proven: auto, cuda or cpu."""

    device: str = "auto"


@dataclass(frozen=True, slots=True)
class KernelsSpec:
    """Kernels to compare with their twins, for tensors of these sizes on a device."""

    sizes: dict[str, Any]  # Any: JSON values
    device: str
    kernels: list[str]


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """Training steps on random rows that are timed; alpha is the rank, so adapters are not scaled.

    Attributes:
        model: a folder; a tokenizer is not needed.
        workloads: NAME:BATCH:SEQ[:varied][:packed][:vram-gib=X][:policy=P][:warmup=N][:steps=N], separated by spaces.
        method: "lora", "qlora" or "full", whose weights are bfloat16.
        optimizer: as in a run's spec.
        device: "auto", "cuda" or "cpu".
        fp8: whether it multiplies with frozen weights in 8 bits.
        longest: whether the longest row that trains is searched, from the length of each workload on.
        decode: whether answers to the rows of each workload are timed instead of training.
        objective: what is trained for; one that learns from pairs makes a pair of each row, with one question,
            and one that learns from stored probabilities has as many at each token as this program stores at most.
    """

    model: str
    workloads: str
    method: str = "lora"
    rank: int = 16
    optimizer: str = "adamw_8bit"
    device: str = "auto"
    fp8: bool = False
    longest: bool = False
    decode: bool = False
    objective: str = "sft"


@dataclass(frozen=True, slots=True)
class NoSpec:
    """Nothing to choose."""


PREVIEW = Kind(
    name="preview",
    title="Previewing the data",
    spec=PreviewSpec,
    function="tunesmith_engine.operations:preview",
    grace_s=1.0,
    limits=Limits(),
)
DOUBTS = Kind(
    name="doubts",
    title="Checking the data",
    cut_short="The run that waits for it does not start.",
    spec=RunSpec,
    function="tunesmith_engine.operations:doubts",
    grace_s=1.0,
    limits=Limits(),
)
WORKBOOK_HEAD = Kind(
    name="workbook-head",
    title="Reading the first rows",
    spec=HeadSpec,
    function="tunesmith_engine.operations:workbook_head",
    grace_s=1.0,
    limits=Limits(),
)
PREPARE = Kind(
    name="prepare-data",
    title="Preparing the data",
    spec=PrepareSpec,
    function="tunesmith_engine.operations:prepare",
    # What is done is kept, also when it is killed.
    grace_s=0.5,
    limits=Limits(),
)
PROMPT = Kind(
    name="prepare-prompt",
    title="Preparing a sample prompt",
    spec=PrepareSpec,
    function="tunesmith_engine.operations:prompt",
    grace_s=1.0,
    limits=Limits(),
)
PLAN_CHECK = Kind(
    name="check",
    title="Checking the plan",
    cut_short="The next check starts from the beginning.",
    spec=RunSpec,
    function="tunesmith_engine.operations:check",
)
MODEL_CHECK = Kind(
    name="check-model",
    title="Checking the model",
    spec=RunSpec,
    function="tunesmith_engine.operations:check_model",
    grace_s=1.0,
)
IMPORT = Kind(
    name="import-gguf",
    title="Importing a GGUF file",
    cut_short="What has been converted is deleted. The next import starts from the beginning.",
    spec=ImportSpec,
    function="tunesmith_engine.operations:import_gguf",
    help="convert a GGUF file into a model folder",
)
LIBRARIES = Kind(
    name="libraries",
    title="Reading the training environment",
    spec=NoSpec,
    function="tunesmith_engine.operations:libraries",
    help="show what the training libraries see of this computer",
)
SELFTEST = Kind(
    name="selftest",
    title="Testing the training environment",
    spec=SelftestSpec,
    function="tunesmith_engine.operations:selftest",
    help="prove that the training environment works on this computer",
)
PROVE_KERNELS = Kind(
    name="prove-kernels",
    title="Testing the kernels",
    spec=KernelsSpec,
    function="tunesmith_engine.proof.prove:prove_here",
    place=Place.SAME,
)
BENCH = Kind(
    name="bench",
    title="Timing training steps",
    spec=BenchSpec,
    function="tunesmith_engine.bench.command:bench",
    help="time training steps on random rows",
)
