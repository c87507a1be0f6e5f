"""Taking a trained model out of its run; `tunesmith_engine.operations` holds what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tunesmith_core.messages import Message
from tunesmith_core.operations.kind import AbsolutePath, Kind, RunFolder
from tunesmith_core.operations.kinds.chat import CHECKPOINT_HELP
from tunesmith_core.spec import RunSpec

ExportFormat = Literal["merged", "adapter", "gguf", "gguf-adapter"]
GgufType = Literal["f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m"]


@dataclass(frozen=True, slots=True)
class ExportSpec:
    """What of a run is exported, and where to.

    Attributes:
        run: its folder.
        checkpoint: step of a checkpoint; 0 for the finished adapter, or the newest checkpoint where there is none.
        format: "merged" is the base model with the adapter in its weights, "gguf" the same as one file for llama.cpp,
            "adapter" the adapter alone, "gguf-adapter" the same for llama.cpp.
        type: number format of a GGUF file.
        to: the folder to be, "" for one inside the run.
        ollama: name of a model that Ollama makes of a GGUF file, "" for none.
        lm_studio: whether a GGUF file is put where LM Studio finds it.
    """

    run: RunFolder
    checkpoint: int = 0
    format: ExportFormat = "merged"
    type: GgufType = "q8_0"
    to: AbsolutePath = AbsolutePath("")
    ollama: str = ""
    lm_studio: bool = False

    @property
    def label(self) -> str:
        """The format and, of a GGUF file, its number format."""
        return f"gguf-{self.type}" if self.format == "gguf" else self.format


GGUF_CHECK = Kind(
    name="check-gguf",
    title="Checking the export",
    spec=RunSpec,
    function="tunesmith_engine.operations:check_gguf",
    grace_s=1.0,
)
EXPORT = Kind(
    name="export",
    title="Exporting",
    cut_short="What has been written is deleted. The next export starts from the beginning.",
    spec=ExportSpec,
    function="tunesmith_engine.operations:export",
    help="export the trained model of a run",
    options={
        "checkpoint": CHECKPOINT_HELP,
        "format": Message(
            "merged: base model with the adapter in its weights; gguf: the same in one file for llama.cpp"
        ),
        "type": Message("number format of a GGUF file"),
        "to": Message("folder that is made; without it, one inside the run"),
        "ollama": Message("also make a model of this name in Ollama, of a GGUF file"),
        "lm_studio": Message("also put a GGUF file where LM Studio finds it"),
    },
    # A product of large matrices is not interrupted, and the staging folder is deleted.
    grace_s=30.0,
)
