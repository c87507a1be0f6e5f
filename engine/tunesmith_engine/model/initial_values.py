"""Initial values that are computed: from the frozen weights (PiSSA, OLoRA) or from rows of the data (EVA), by PEFT.

PEFT takes what PiSSA and OLoRA put into an adapter away from the frozen weights. Here these stay as they are, so that
without the adapter the model is the base model: an adapter has twice the rank, [A | A0] and [B | -B0] with A = A0 and
B = B0 at first, and the second half is never updated. That is the form in which PEFT saves such an adapter for the
untouched base model (`path_initial_model_for_weight_conversion`), and so is what a checkpoint holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from peft import EvaConfig, LoraConfig, PeftModel, get_eva_state_dict, inject_adapter_in_model
from peft.tuners.lora.layer import Linear, LoraLayer
from peft.utils.integrations import dequantize_module_weight
from torch import nn

from tunesmith_core.adapter_problems import FROM_DATA
from tunesmith_core.adapter_ranks import FROM_WEIGHTS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import LORA
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.device import Compute

ADAPTER = "default"
ROWS_OF_BATCH = 4
MOST_BATCHES = 32
"""Of which EVA sees the inputs of all layers; PEFT goes through them until its directions stand still."""


def has_still_half(spec: RunSpec) -> bool:
    """Return whether half of the adapter is never updated."""
    return spec.adapter.kind == LORA and spec.adapter.initial_values in FROM_WEIGHTS


def begin(model: PeftModel, spec: RunSpec, compute: Compute, rows: Sequence[Example]) -> None:
    """Put computed initial values into an adapter that has not been trained yet, where a run wants some.

    Raises:
        UserError: `spec-invalid` for a rank that the values of a layer, or the rows, are too few for.
    """
    values = spec.adapter.initial_values
    if spec.adapter.kind != LORA or values not in FROM_WEIGHTS | {FROM_DATA}:
        return
    with torch.no_grad(), _seeded(spec.schedule.seed, compute.device):
        if values == FROM_DATA:
            _start_from_data(model, compute, rows, spec.schedule.seed)
        else:
            for name, layer in model.named_modules():
                if isinstance(layer, Linear):
                    _start_from_weights(name, layer, values)


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw numbers by a seed, and none of the run's."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _start_from_weights(name: str, layer: Any, values: str) -> None:  # Any: a layer of PEFT
    """Put the parts of a layer's weights into the first half of its adapter and, once more, into the second."""
    base, rank, scale = layer.get_base_layer(), layer.r[ADAPTER] // 2, layer.scaling[ADAPTER]
    weight = dequantize_module_weight(base).detach()
    weight = weight.T if layer.fan_in_fan_out else weight
    if rank > min(weight.shape):
        raise _too_few(rank, name, min(weight.shape))
    alone = nn.ModuleDict({"layer": nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")})
    # A copy, of which PEFT takes the parts away; in 32 bits, as it computes.
    alone["layer"].weight = nn.Parameter(weight.to(torch.float32, copy=True), requires_grad=False)
    config = LoraConfig(r=rank, lora_alpha=scale * rank, target_modules=["layer"], init_lora_weights=values)
    started = inject_adapter_in_model(config, alone).layer
    a, b = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
    first_a, first_b = started.lora_A[ADAPTER].weight, started.lora_B[ADAPTER].weight
    a.copy_(torch.cat([first_a, first_a]))
    b.copy_(torch.cat([first_b, -first_b], dim=1))


def _start_from_data(model: PeftModel, compute: Compute, rows: Sequence[Example], seed: int) -> None:
    """Let the A of each layer be the directions in which the inputs of the layer vary most; B stays zero."""
    rank = max(layer.r[ADAPTER] for layer in model.modules() if isinstance(layer, LoraLayer))
    batches = _batches(rows, rank, compute.device, seed)
    known = model.peft_config[ADAPTER]
    # All layers keep their rank: another one each would be another adapter than the one that was planned.
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=known.r,
        rank_pattern=known.rank_pattern,
        target_modules=known.target_modules,
        init_lora_weights="eva",
        eva_config=EvaConfig(rho=1.0),
    )
    with compute.autocast():
        found = get_eva_state_dict(model, batches, config, show_progress_bar=False)
    for name, layer in model.named_modules():
        if isinstance(layer, LoraLayer) and name in found:
            layer.lora_A[ADAPTER].weight.copy_(found[name])


def _batches(
    rows: Sequence[Example], rank: int, device: torch.device, seed: int
) -> list[dict[str, torch.Tensor]]:
    """Return rows in a random order, by so many that each batch has as many trained tokens as the rank, or more."""
    generator = torch.Generator().manual_seed(seed)
    batches: list[dict[str, torch.Tensor]] = []
    batch: list[Example] = []
    for number in torch.randperm(len(rows), generator=generator).tolist():
        batch.append(rows[number])
        if len(batch) >= ROWS_OF_BATCH and sum(row.num_trained_tokens for row in batch) > rank:
            batches.append(_batch(batch, device))
            batch = []
        if len(batches) == MOST_BATCHES:
            break
    if not batches:
        num_tokens = sum(row.num_trained_tokens for row in batch)
        if num_tokens <= rank:
            raise TunesmithError(
                "spec-invalid",
                "adapter.initial_values: EVA needs more trained tokens than the rank, {rank}. "
                "The data has {num_tokens}.",
                hint="Choose the usual initial values, a lower rank, or more data.",
                rank=rank,
                num_tokens=num_tokens,
            )
        batches.append(_batch(batch, device))
    return batches


def _batch(rows: Sequence[Example], device: torch.device) -> dict[str, torch.Tensor]:
    sequences = [sequence for row in rows for sequence in row.sequences]
    longest = max(len(sequence.input_ids) for sequence in sequences)
    ids = torch.zeros(len(sequences), longest, dtype=torch.int64)
    labels = torch.full((len(sequences), longest), IGNORED_LABEL)
    for place, sequence in enumerate(sequences):
        ids[place, : len(sequence.input_ids)] = torch.from_numpy(sequence.input_ids).long()
        labels[place, : len(sequence.input_ids)] = torch.from_numpy(sequence.labels).long()
    return {"input_ids": ids.to(device), "labels": labels.to(device)}


def _too_few(rank: int, name: str, most: int) -> TunesmithError:
    return TunesmithError(
        "spec-invalid",
        "adapter.rank: {rank} is too high for {name}, whose smaller side is {most}.",
        hint=Message("Set the rank to {most} or less.", most=most),
        rank=rank,
        name=name.removeprefix("base_model.model."),
        most=most,
    )


class StillHalf:
    """The second half of adapters that start from frozen weights: no update changes it."""

    def __init__(
        self, parameters: dict[str, nn.Parameter], arena: Any | None, decays: bool
    ) -> None:  # Any: an AdapterArena
        """Look at trained parameters.

        Args:
            parameters: by name.
            arena: where they lie, None where each is a tensor of its own.
            decays: whether an update pulls weights toward zero that have no gradient.
        """
        self._decays = decays
        self._parameters, self._arena = parameters, arena
        self._moving = {name: _moving(name, parameter) for name, parameter in parameters.items()}
        if arena is not None:
            flat = torch.ones_like(arena.weights, dtype=torch.bool)
            for name, mask in self._moving.items():
                arena.view(flat, name).copy_(mask)
            self._moving = {"": flat}
        self._still: dict[str, torch.Tensor] = {}
        self.weights_were_set()

    def weights_were_set(self) -> None:
        """Take note of the half that shall stay as it is."""
        if self._decays:
            self._still = {name: weight * ~self._moving[name] for name, weight in self._weights()}

    def before_update(self) -> None:
        """Leave nothing of the gradients of the half."""
        for name, gradient in self._gradients():
            gradient.mul_(self._moving[name])

    def after_update(self) -> None:
        """Undo what weight decay did to it."""
        for name, weight in self._weights() if self._decays else ():
            weight.mul_(self._moving[name]).add_(self._still[name])

    def _weights(self) -> list[tuple[str, torch.Tensor]]:
        if self._arena is not None:
            return [("", self._arena.weights)]
        return [(name, parameter.data) for name, parameter in self._parameters.items()]

    def _gradients(self) -> list[tuple[str, torch.Tensor]]:
        if self._arena is not None:
            return [("", self._arena.gradients)]
        known = self._parameters.items()
        return [(name, parameter.grad) for name, parameter in known if parameter.grad is not None]


def _moving(name: str, parameter: nn.Parameter) -> torch.Tensor:
    """Return which numbers are updated, in the parameter's shape."""
    mask = torch.ones_like(parameter.data, dtype=torch.bool)
    if ".lora_A." in name:
        mask[len(mask) // 2 :] = False
    elif ".lora_B." in name:
        mask[:, mask.shape[1] // 2 :] = False
    return mask
