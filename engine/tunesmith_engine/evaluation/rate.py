"""A text of one's own rated by a model with a head: read as the run has read its data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tunesmith_core.answering import check_room
from tunesmith_core.datafmt import Labeled, PromptCompletion, Stepped, Text
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.objectives import FROM_LABELS, FROM_STEPS
from tunesmith_core.operations.kinds.rate import READ_TEXT, RateSpec
from tunesmith_core.operations.limits import Portions
from tunesmith_core.operations.runner import conduct
from tunesmith_core.rated import check_rates
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Answer = dict[str, Any]  # Any: JSON values


def read_text(
    spec: RunSpec, asked: RateSpec, tokenizer: PreTrainedTokenizerBase, portions: Portions | None = None
) -> Answer:
    """Return how a text reads as a row of the run's data.

    Returns:
        ids: its tokens; ends: where its steps end, of a solution; num_cut: tokens behind the context length.

    Raises:
        UserError: `usage` without a text; what the chat template can't write.
    """
    from tunesmith_engine.data.example import IGNORED_LABEL
    from tunesmith_engine.data.render import Renderer

    renderer = Renderer(tokenizer, spec.data, portions)
    (tokenised,) = renderer.tokenise([renderer.render(_as_row(spec, asked), "")])
    ids, labels = tokenised.example.input_ids, tokenised.example.labels
    limit = spec.data.context_length
    ends = np.flatnonzero(labels[:limit] != IGNORED_LABEL) if spec.objective.kind in FROM_STEPS else ()
    return {
        "ids": ids[:limit].tolist(),
        "ends": [int(end) for end in ends],
        "num_cut": max(0, len(ids) - limit),
    }


def _as_row(spec: RunSpec, asked: RateSpec) -> Labeled | PromptCompletion | Stepped:
    steps = tuple(filter(str.strip, asked.text.splitlines()))
    if not steps:
        raise TunesmithError("usage", "There is no text to rate.")
    if spec.objective.kind in FROM_STEPS:
        return Stepped(asked.prompt, steps, (True,) * len(steps))
    answer = PromptCompletion(asked.prompt, asked.text)
    if spec.objective.kind in FROM_LABELS:
        return Labeled(answer if asked.prompt else Text(asked.text), "")
    return answer


def rate(asked: RateSpec) -> Answer:
    """Return what the model of a run says of a text.

    Returns:
        One of score, number, classes (each with its probability, the likeliest first) and steps (how likely each is
        right); step: after which its weights were saved; num_cut: see `read_text`.

    Raises:
        UserError: `usage` for a model that writes or without a text, `gpu-busy`, `nothing-to-export`.
    """
    spec = asked.answering()
    check_rates(spec)
    read: Answer = conduct(READ_TEXT, asked).get()
    # PyTorch is loaded once the text can be read.
    from tunesmith_engine.export.trained import find_trained
    from tunesmith_engine.model.folder import model_folder
    from tunesmith_engine.model.trained_model import inference_compute, load_trained

    trained = find_trained(Run(Path(asked.run)), asked.checkpoint)
    folder = model_folder(spec.model)
    check_room(spec, read_model_card(folder))
    trained.check_base(folder)
    compute = inference_compute(spec, spec.hardware.device)
    told = _rated(load_trained(trained, folder, compute), compute, trained.spec, read)
    return {**told, "step": trained.step, "num_cut": read["num_cut"]}


def _rated(model: Any, compute: Any, spec: RunSpec, read: Answer) -> Answer:  # Any: PEFT's model or FullModel, Compute
    import torch

    ids = torch.tensor([read["ids"]], device=compute.device)
    with torch.inference_mode(), compute.autocast():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[0].float()
    if spec.objective.kind in FROM_STEPS:
        return {"steps": logits[read["ends"]].softmax(-1)[:, 1].tolist()}
    if spec.objective.kind not in FROM_LABELS:
        return {"score": float(logits[0])}
    if spec.objective.regression:
        return {"number": float(logits[0])}
    shares = zip(spec.objective.classes, logits.softmax(-1).tolist(), strict=True)
    return {"classes": sorted(map(list, shares), key=lambda each: -each[1])}
