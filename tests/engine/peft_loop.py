"""A plain loop around PEFT as the oracle: the rows of a run in its order, PyTorch's AdamW, no part of ours."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from tests.engine.prepared import prepare
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.collate import collate
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.train.schedule import StepPlan


def losses_of(model: torch.nn.Module, spec: RunSpec, folder: Path) -> list[float]:
    """Train a PEFT model and return the loss of each step, the mean over its trained tokens."""
    examples = prepare(spec, load_tokenizer(folder)).train
    plan = StepPlan(spec.schedule, len(examples))
    settings = spec.optimizer
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, weight_decay=settings.weight_decay, eps=settings.epsilon)
    model.train()
    losses = []
    for step in range(plan.total_steps):
        batch = collate([examples[row] for row in plan.rows(step)], 0)
        logits = model(input_ids=batch["input_ids"], use_cache=False).logits.float()
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, settings.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * plan.learning_rate_factor(step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
