"""What a run has trained on its device, ready to answer: for chat, evaluation and answers before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tunesmith_core.devices import answering_on
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import Compute, choose_compute
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.full import load_full
from tunesmith_engine.model.lora import trainable

if TYPE_CHECKING:
    from tunesmith_engine.export.trained import Trained


def inference_compute(spec: RunSpec, device: str = "auto") -> Compute:
    """Return where the model of a run answers, in the number format of the run.

    Args:
        spec: the run.
        device: "auto", "cuda" or "cpu"; "auto" is the GPU where there is one, wherever the run was trained.

    Raises:
        EnvironmentProblem: `torch-cpu-build` or `driver-missing` when a GPU is asked for and can't be used.
    """
    return choose_compute(answering_on(spec, device))


def load_trained(trained: Trained, folder: Path, compute: Compute) -> Any:  # Any: PEFT's model or FullModel
    """Return the base model on its device, in the run's number format or 4 bits, with the trained adapter beside it.

    Args:
        trained: which weights of which run.
        folder: of the base model.
        compute: from `inference_compute`.

    Raises:
        RunFailure: `adapter-not-restored` when the file does not hold every trained weight.
        TunesmithError: what loading a base model finds.
    """
    if trained.is_full:
        # Answers need no 32-bit weights.
        model: Any = load_full(folder, trained.spec, compute, compute.dtype)
    else:
        model = method_of(trained.spec.objective.kind).load(folder, trained.spec, compute)
    switch_to(model, trained)
    model.eval()
    return model


def switch_to(model: Any, trained: Trained) -> None:  # Any: PEFT's model or FullModel
    """Put other trained weights of the same run into a model, in place: nothing is allocated that would stay.

    Raises:
        RunFailure: `adapter-not-restored` when the file does not hold every trained weight.
    """
    names = trainable(model)
    with torch.no_grad():
        for value in names.values():
            value.fill_(torch.nan)

        def put(name: str, weight: torch.Tensor) -> None:
            if name in names:
                names[name].copy_(weight)

        trained.put_into(model, put)
        missing = [name for name, value in names.items() if not bool(value.isfinite().all())]
    if missing:
        raise TunesmithError(
            "adapter-not-restored",
            "{path} does not hold the trained weight {name}.",
            hint="Choose another checkpoint of the run.",
            path=trained.folder,
            name=missing[0],
        )
