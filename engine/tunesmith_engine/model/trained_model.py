"""What a run has trained on its device, ready to answer: for chat, evaluation and answers before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import PeftModel, load_peft_weights, set_peft_model_state_dict
from safetensors.torch import load_file

from tunesmith_core.devices import answering_on
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import Compute, choose_compute
from tunesmith_engine.methods import method_of
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


def load_trained(trained: Trained, folder: Path, compute: Compute) -> PeftModel:
    """Return the base model on its device, in the run's number format or 4 bits, with the trained adapter beside it.

    Args:
        trained: which weights of which run.
        folder: of the base model.
        compute: from `inference_compute`.

    Raises:
        RunFailure: `adapter-not-restored` when the file does not hold every trained weight.
        TunesmithError: what loading a base model finds.
    """
    model = method_of(trained.spec.objective.kind).load(folder, trained.spec, compute)
    switch_to(model, trained)
    model.eval()
    return model


def switch_to(model: PeftModel, trained: Trained) -> None:
    """Put other trained weights of the same run into a model, in place: nothing is allocated that would stay.

    Raises:
        RunFailure: `adapter-not-restored` when the file does not hold every trained weight.
    """
    names = trainable(model)
    with torch.no_grad():
        for value in names.values():
            value.fill_(torch.nan)
        if trained.is_adapter:
            set_peft_model_state_dict(model, load_peft_weights(str(trained.folder), device="cpu"))
        else:
            weights = load_file(trained.weights_path)
            for name in names.keys() & weights.keys():
                names[name].copy_(weights[name])
        missing = [name for name, value in names.items() if not bool(value.isfinite().all())]
    if missing:
        raise TunesmithError(
            "adapter-not-restored",
            "{path} does not hold the trained weight {name}.",
            hint="Choose another checkpoint of the run.",
            path=trained.weights_path,
            name=missing[0],
        )
