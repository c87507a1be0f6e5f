"""What the export sheet asks and tells, without widgets: choices, sizes, progress and the end in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from tunesmith_core import export_proof, gguf_types
from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import (
    FORMATS,
    Saved,
    Size,
    base_layout,
    base_without_gguf,
    base_without_merged,
    export_folder,
    folder_name,
    formats_of,
    needs_base,
    saved_weights,
    size_of,
    whole_sizes,
)
from tunesmith_core.model_folder import is_hub_id
from tunesmith_core.operations.folder import OperationStatus
from tunesmith_core.operations.kind import AbsolutePath, RunFolder
from tunesmith_core.operations.kinds.export import ExportFormat, ExportSpec, GgufType
from tunesmith_core.other_programs import find_lm_studio, find_ollama, ollama_name
from tunesmith_core.packed_weights import Layout
from tunesmith_core.runs import Run, display_name
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL
from tunesmith_gui.tr import core_text, fill, number, size, translate

TYPES: tuple[GgufType, ...] = tuple(sorted(get_args(GgufType), key=list(gguf_types.FILE_TYPES).index))
PROGRAMS = {"llama-cli": "llama.cpp", "ollama": "Ollama", "vllm": "vLLM"}
"""Whose commands an export brings with it, by their first word."""

Answer = Mapping[str, Any]  # Any: JSON values


OF_ADAPTER: tuple[ExportFormat, ...] = ("adapter", "gguf-adapter")
"""Formats of an adapter, which a model that was trained as a whole doesn't have."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a run before it is exported.

    Attributes:
        spec: of the run.
        saved: trained weights to choose from.
        sizes: see `whole_sizes`.
        recommended: type of a GGUF file.
        has_ollama, has_lm_studio: whether these programs are on this computer.
        base_problem: why the base model can't be read, None when it can.
        formats: that the run can be exported in.
        is_full: whether the whole model was trained, which has no adapter.
        without_gguf: type of the model where that is why there is no GGUF, else "".
        without_merged: type of the model where that is why there is no merged model, else "".
    """

    run: Run
    spec: RunSpec
    name: str
    saved: list[Saved]
    sizes: Mapping[str, int]
    recommended: GgufType
    has_ollama: bool
    has_lm_studio: bool
    base_problem: TunesmithError | None = None
    formats: tuple[ExportFormat, ...] = FORMATS
    is_full: bool = False
    without_gguf: str = ""
    without_merged: str = ""


def _left_out(adapter: str, without_gguf: str) -> tuple[ExportFormat, ...]:
    """Return the formats that there are not for what was trained; llama.cpp knows LoRA adapters alone."""
    if without_gguf:
        return (*_left_out(adapter, ""), "gguf", "gguf-adapter")
    return OF_ADAPTER if adapter == FULL else ("gguf-adapter",) if adapter in KINDS else ()


def look(run: Run) -> Facts:
    """Look at a run; call it on a worker thread.

    Raises:
        TunesmithError: what of the run can't be read.
    """
    spec = run.load_spec()
    is_full = spec.adapter.kind == FULL
    layout, problem, without_gguf, without_merged = Layout({}), None, "", ""
    try:
        layout = base_layout(run)
        without_gguf, without_merged = base_without_gguf(run), base_without_merged(run)
    except TunesmithError as error:
        problem = error
    sizes = whole_sizes(layout)
    # Two bytes a number, but for an unknown model, which is taken for a large one.
    num_parameters = sizes.get("gguf-f16", 2 * gguf_types.SMALL_PARAMETERS) // 2
    recommended = gguf_types.recommended_type(num_parameters)
    saved = saved_weights(run)
    formats = formats_of(spec.objective.kind)
    left_out = (*_left_out(spec.adapter.kind, without_gguf), *(["merged"] if without_merged else []))
    return Facts(
        run,
        spec,
        display_name(run),
        saved,
        sizes,
        recommended,
        bool(find_ollama()),
        find_lm_studio() is not None,
        problem,
        tuple(each for each in formats if each not in left_out),
        is_full,
        without_gguf if "gguf" in formats else "",
        without_merged,
    )


@dataclass(frozen=True, slots=True)
class Push:
    """A repository that an export is uploaded to.

    Attributes:
        id: OWNER/NAME.
        public: whether everybody may see it.
    """

    id: str
    public: bool = False

    def words(self) -> list[str]:
        """Return what of a command does the same."""
        return ["--push", self.id, *(["--public"] if self.public else [])]


@dataclass(slots=True)
class Draft:
    """What the person has chosen so far.

    Attributes:
        parent: the folder that the export's folder is made in, None for the run's own.
        hub, hub_id, public: whether it is uploaded, to which repository, and who may see it.
    """

    facts: Facts
    saved: Saved
    format: ExportFormat
    type: GgufType
    parent: Path | None = None
    ollama: bool = False
    lm_studio: bool = False
    hub: bool = False
    hub_id: str = ""
    public: bool = False

    @property
    def push(self) -> Push | None:
        """Where the export is uploaded to, None for nowhere."""
        return Push(self.hub_id, self.public) if self.hub else None

    @property
    def problem(self) -> TunesmithError | None:
        """Why this can't be exported without another base model, None when it can."""
        needed = needs_base(self.format, is_finished=not self.saved.checkpoint)
        return self.facts.base_problem if needed else None

    @property
    def names_no_repository(self) -> bool:
        """Whether it is to be uploaded, but not yet said where to."""
        return self.hub and not is_hub_id(self.hub_id)

    @classmethod
    def of(cls, facts: Facts, refused: frozenset[ExportFormat] = frozenset()) -> Draft:
        """Return what is chosen before anybody has chosen; formats that were refused come last."""
        return cls(facts, facts.saved[0], min(facts.formats, key=refused.__contains__), facts.recommended)

    def spec(self) -> ExportSpec:
        """Return what is started."""
        run = self.facts.run
        spec = ExportSpec(RunFolder(str(run.path)), self.saved.checkpoint, self.format)
        if self.format == "gguf":
            name = ollama_name(run, self.type) if self.ollama else ""
            spec = replace(spec, type=self.type, ollama=name, lm_studio=self.lm_studio)
        if self.parent is None:
            return spec
        place = self.parent / folder_name(run, self.saved, spec.label)
        return replace(spec, to=AbsolutePath(str(place)))

    def folder(self) -> Path:
        """Return the folder that the export becomes."""
        spec = self.spec()
        return Path(spec.to) if spec.to else export_folder(self.facts.run, self.saved.step, spec.label)

    def size(self) -> Size | None:
        """Return how large the export becomes, None where that is not known."""
        return size_of(self.spec(), self.facts.sizes, self.saved.num_bytes)


def format_words(name: ExportFormat, *, is_full: bool = False) -> str:
    """Return what a format is called; full fine-tuning has nothing to merge."""
    return {
        "gguf": translate("Export", "GGUF"),
        "merged": translate("Export", "Whole model") if is_full else translate("Export", "Merged model"),
        "adapter": translate("Export", "Adapter"),
        "gguf-adapter": translate("Export", "GGUF adapter"),
    }[name]


def format_help(name: ExportFormat, *, is_full: bool = False) -> str:
    """Return what a format is good for."""
    if is_full and name == "merged":
        return translate("Export", "A folder with the trained model, for vLLM and Transformers.")
    return {
        "gguf": translate("Export", "One file with everything, for llama.cpp, Ollama and LM Studio."),
        "merged": translate("Export", "A folder with the adapter in the weights, for vLLM and Transformers."),
        "adapter": translate("Export", "The trained weights alone, for PEFT and vLLM. They need the base model."),
        "gguf-adapter": translate("Export", "The trained weights alone, for llama.cpp and a base model in GGUF."),
    }[name]


def type_help(name: GgufType) -> str:
    """Return what a number format of a GGUF file means, in a few words."""
    return {
        "q4_k_m": translate("Export", "4 bits: smallest, answers can change"),
        "q5_k_m": translate("Export", "5 bits: small, slightly closer"),
        "q6_k": translate("Export", "6 bits: close to the trained model"),
        "q8_0": translate("Export", "8 bits: hardly any difference"),
        "f16": translate("Export", "16 bits: no loss that matters"),
        "bf16": translate("Export", "16 bits: as most models are published"),
        "f32": translate("Export", "32 bits: exact, largest"),
    }[name]


def type_words(name: GgufType, facts: Facts) -> str:
    """Return a number format as it stands in the list: name, size, meaning, and whether it is the one to take."""
    parts = [name.upper()]
    if (num_bytes := facts.sizes.get(f"gguf-{name}")) is not None:
        parts.append(size(num_bytes))
    parts.append(type_help(name))
    words = " · ".join(parts)
    return fill(translate("Export", "%1 (recommended)"), words) if name == facts.recommended else words


def saved_words(saved: Saved) -> str:
    """Return trained weights as they stand in the list."""
    step = number(saved.step)
    words = fill(translate("Export", "Final, step %1"), step)
    if saved.checkpoint:
        words = fill(translate("Export", "Checkpoint of step %1"), step)
    if saved.eval_reward is not None:
        words = fill(translate("Export", "%1 · held-out reward %2"), words, number(saved.eval_reward, 3))
    elif saved.eval_loss is not None:
        words = fill(translate("Export", "%1 · evaluation loss %2"), words, number(saved.eval_loss, 3))
    return fill(translate("Export", "%1 (best)"), words) if saved.is_best else words


def room_words(size_: Size | None, free_bytes: int) -> tuple[str, bool]:
    """Return size and free space in words, and whether there is too little of it."""
    free = size(free_bytes)
    if size_ is None:
        return fill(translate("Export", "%1 free on this drive"), free), False
    if size_.needed_bytes > free_bytes:
        words = translate("Export", "Needs %1, but only %2 are free. Choose another folder or a smaller format.")
        return fill(words, size(size_.needed_bytes), free), True
    return fill(translate("Export", "About %1 · %2 free on this drive"), size(size_.num_bytes), free), False


def progress_words(status: OperationStatus) -> str:
    """Return what an export does now, and how far it is with that."""
    words = {
        "starting": translate("Export", "Starting"),
        "merging": translate("Export", "Merging the adapter into the weights"),
        "converting": translate("Export", "Writing the file"),
        "saving": translate("Export", "Saving the adapter"),
        "verifying": translate("Export", "Comparing with the trained model"),
        "uploading": translate("Export", "Uploading to the model hub"),
        "publishing": translate("Export", "Finishing the files"),
        "handing over": translate("Export", "Handing over to the other programs"),
    }.get(status.phase, core_text(status.phase) or translate("Export", "Starting"))
    if status.share is None:
        return words
    return fill(translate("Export", "%1: %2%"), words, number(100 * status.share))


@dataclass(frozen=True, slots=True)
class Ending:
    """How an export is told of that was written."""

    tone: Literal["ok", "warn"]
    title: str
    text: str


def ending(answer: Answer, warnings: Sequence[str] = ()) -> Ending:
    """Return what is said of an export that was written; of one that is not verified the first warning says why."""
    proof = answer["proof"]
    title = core_text(export_proof.title(proof))
    if not proof:
        why = next(iter(warnings), translate("Export", "It was not compared with the trained model."))
        return Ending("warn", title, why)
    if changed := export_proof.changed_answers(proof):
        return Ending("warn", title, core_text(changed))
    told = core_text(export_proof.figures(proof))
    if export_proof.title(proof) == export_proof.TITLES["rounded"]:
        told = fill(translate("Export", "%1 That is what rounding to fewer bits costs."), told)
    return Ending("ok", title, told)


def notice(name: str, label: str, answer: Answer | None, error: TunesmithError | None) -> tuple[str, str]:
    """Return tone and words for the end of an export that nobody watches."""
    if answer is not None:
        said = ending(answer)
        return said.tone, fill(translate("Export", "Exported %1 as %2: %3"), name, label, said.title)
    assert error is not None
    return "error", fill(translate("Export", "Export of %1 as %2: %3"), name, label, core_text(error.title))


def command_words(command: str) -> str:
    """Return what the button is called that copies a command."""
    program = command.split()[0]
    return fill(translate("Export", "Copy command for %1"), PROGRAMS.get(program, program))
