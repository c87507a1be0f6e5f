"""What a run has trained so far: its adapter or one of its checkpoints, on a base model without weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel, get_peft_model, load_peft_weights, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import nn

from tunesmith_core import files, unquantized
from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.base_model import BaseModel, FileNote
from tunesmith_core.checkpoint_manifest import damage, newest_noted, weight_files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import QUANTIZED_BITS, chosen_weights, made_weights
from tunesmith_core.messages import Message
from tunesmith_core.objectives import FROM_LABELS, HEADS
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run, RunStatus
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.device import Compute
from tunesmith_engine.export.restoring import PREFIX
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.full import FullModel, choose_parts
from tunesmith_engine.model.heads import Head, head_of, kind_of_model
from tunesmith_engine.model.load import load_config, load_model
from tunesmith_engine.model.lora import attach_adapter, trainable
from tunesmith_engine.model.saved_modules import retie
from tunesmith_engine.model.vocabulary import Growth, grown, growth_of, words_of


@dataclass(frozen=True, slots=True)
class Trained:
    """Trained weights in a file.

    Attributes:
        run: that they are of.
        spec: of the run.
        status: where the run stands.
        step: after which they were saved.
        folder: of the adapter or the whole model that the run made, or of the checkpoint.
    """

    run: Run
    spec: RunSpec
    status: RunStatus
    step: int
    folder: Path

    @property
    def is_adapter(self) -> bool:
        """Whether it is what the run made: the adapter that plain PEFT loads, or the whole model."""
        return self.folder == self.run.adapter_path

    @property
    def is_full(self) -> bool:
        """Whether the weights of the model itself were trained."""
        return self.spec.adapter.kind == FULL

    @property
    def rates(self) -> bool:
        """Whether the model rates texts and writes none."""
        return self.spec.objective.kind in HEADS

    @property
    def weights_paths(self) -> list[Path]:
        """The files that hold the weights."""
        return made_weights(self.folder) if self.is_adapter else weight_files(self.folder)

    @property
    def num_bytes(self) -> int:
        """Bytes of these files."""
        return sum(path.stat().st_size for path in self.weights_paths)

    def put_into(self, model: Any, put: Callable[[str, torch.Tensor], None]) -> None:  # Any: PEFT's model or FullModel
        """Put the trained weights into a model that was made as the run's was.

        Args:
            model: on any device.
            put: puts a weight in its place, by the name that it has in the model.
        """
        if self.is_adapter and not self.is_full:
            set_peft_model_state_dict(model, load_peft_weights(str(self.folder), device="cpu"))
            return
        for name, weight in self._weights():
            put(name, weight)

    def _weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        if self.is_adapter:
            for name, weight in load_base(self.folder).named_parameters():
                yield PREFIX + name, weight.detach()
            return
        for path in self.weights_paths:
            yield from load_file(path).items()

    def tokenizer(self, folder: Path) -> Any:  # Any: a transformers tokenizer
        """Return the tokenizer of the base model in a folder, with the chat template that was trained."""
        return load_tokenizer(folder, self.spec.model.chat_template, words_of(self.spec))

    def config(self, folder: Path) -> Any:  # Any: transformers' config of this model
        """Return the config of the base model in a folder, with the new words that were trained."""
        config = load_config(folder)
        if growth := growth_of(folder, self.spec):
            growth.configure(config)
        return config

    def quantized_bits(self, folder: Path) -> int:
        """Return the bits of the weights that were trained on, 0 where they are those in the base model's folder."""
        was_packed = unquantized.format_in(folder) is not None
        return 0 if was_packed else QUANTIZED_BITS.get(self.spec.quantization.kind, 0)

    def noted_base(self) -> Mapping[str, FileNote]:
        """Return what the newest checkpoint noted of the base model's files, nothing where there is none."""
        noted = newest_noted(self.run.checkpoints_path)
        return (noted.base_model if noted else None) or {}

    def check_base(self, folder: Path) -> BaseModel:
        """Return notes of the base model's files.

        Raises:
            UserError: `base-model-differs` when they are not those that the run was trained on.
        """
        noted = newest_noted(self.run.checkpoints_path)
        base = BaseModel(folder, noted.base_model if noted else None)
        try:
            base.check_samples()
        except TunesmithError as error:
            hint = Message("Restore the named files, then try again.")
            raise TunesmithError(error.code, error.message, hint=hint) from error
        return base

    def load(self, folder: Path) -> Any:  # Any: PEFT's model or FullModel
        """Return the model with its trained weights in float32 on the CPU; those of the base model are on no device.

        Args:
            folder: of the base model.

        Raises:
            RunFailure: `adapter-not-restored` when the file does not hold every trained weight.
        """
        head, config = head_of(self.spec), self.config(folder)
        if self.spec.adapter.kind in KINDS:
            # Other kinds than LoRA compute something from the frozen weights, or have frozen parts of their own.
            return self.load_whole(folder)
        if head:
            head.configure(config, folder)
        with torch.device("meta"):
            base = kind_of_model(head).from_config(config)
            base.config._name_or_path = base.name_or_path = str(folder)
            model = self._attached(base, folder)
        return self._filled(model)

    def load_whole(self, folder: Path) -> Any:  # Any: PEFT's model or FullModel
        """Return the whole model in float32 on the CPU, its adapter beside its weights; see `load`."""
        growth = growth_of(folder, self.spec)
        return self._filled(self._attached(load_base(folder, head_of(self.spec), growth), folder))

    def _attached(self, base: Any, folder: Path) -> Any:  # Any: a transformers model; PEFT's or FullModel
        if self.is_full:
            choose_parts(base, self.spec)
            return FullModel(base, dict)
        if self.is_adapter:
            return _with_adapter(base, self.folder)
        growth = growth_of(folder, self.spec)
        return attach_adapter(base, self.spec, growth.new_rows if growth else ())

    def _filled(self, model: Any) -> Any:  # Any: PEFT's model or FullModel
        """Put the trained weights into a model and return it."""
        names = trainable(model)
        for name, value in names.items():
            _set(model, name, torch.full_like(value, torch.nan, device="cpu", dtype=torch.float32))
        if not self.is_full:
            retie(model)

        def put(name: str, weight: torch.Tensor) -> None:
            if name in names:
                _set(model, name, weight.float())

        self.put_into(model, put)
        if self.is_full:
            model.get_base_model().tie_weights()
        else:
            retie(model)
        missing = [name for name, value in trainable(model).items() if not bool(value.isfinite().all())]
        if missing:
            raise TunesmithError(
                "adapter-not-restored",
                "{path} does not hold the trained weight {name}.",
                hint="Choose another checkpoint of the run.",
                path=self.folder,
                name=missing[0],
            )
        return model.eval()


def find_trained(run: Run, step: int) -> Trained:
    """Return what a run has trained.

    Args:
        run: in any state.
        step: of a checkpoint; 0 for the finished adapter, or for the newest checkpoint where there is none.

    Raises:
        UserError: `nothing-to-export`, or `checkpoint-missing` with the steps that there are.
        EnvironmentProblem: `checkpoint-damaged`.
    """
    chosen, folder = chosen_weights(run, step)
    if folder != run.adapter_path and (problem := damage(folder)):
        raise TunesmithError(
            "checkpoint-damaged",
            "{path}: {problem}",
            hint="Choose another checkpoint of the run.",
            path=folder,
            problem=problem,
        )
    return Trained(run, _with_classes(run), run.status(), chosen, folder)


def _with_classes(run: Run) -> RunSpec:
    """Return the settings of a run, with the classes that it found in its data."""
    spec = run.load_spec()
    if spec.objective.kind in FROM_LABELS:
        setups = (event.data for event in read_journal(run.journal_path) if event.type == "setup")
        spec.objective.classes = next((list(setup.get("classes") or []) for setup in setups), [])
    return spec


def load_base(folder: Path, head: Head | None = None, growth: Growth | None = None) -> Any:  # Any: a transformers model
    """Return a base model in float32 on the CPU, with a new head and room for new words where these are given."""
    compute = Compute(torch.device("cpu"), torch.float32, "", torch.get_num_threads())
    return grown(load_model(folder, compute, four_bit=False, head=head), growth)


def _with_adapter(base: Any, folder: Path) -> PeftModel:  # Any: a transformers model
    config = PeftConfig.from_pretrained(str(folder))
    config.inference_mode = False
    model: PeftModel = get_peft_model(base, config)
    return model


def _set(model: nn.Module, name: str, value: torch.Tensor) -> None:
    module, _, role = name.rpartition(".")
    setattr(model.get_submodule(module), role, nn.Parameter(value))


def digest(trained: Trained) -> str:
    """Return the SHA-256 of the file with the weights as hex; of several files that of theirs."""
    sums = [files.sha256_file(path) for path in trained.weights_paths]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()
