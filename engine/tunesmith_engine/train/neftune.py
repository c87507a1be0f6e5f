"""NEFTune (Jain et al. 2023, arXiv:2310.05914): even noise on the embedded tokens of training rows.

A row of L tokens whose embedding is d wide gets numbers between minus and plus alpha / sqrt(L d), other ones each time.
They follow from a seed that is drawn for each micro-batch on the CPU, where every checkpoint keeps the generator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tunesmith_core.objectives import uses
from tunesmith_core.spec import RunSpec

HIGHEST_SEED = 2**62


def alpha_of(spec: RunSpec) -> float:
    """Return the alpha of a run, 0 where there is no noise."""
    return spec.optimizer.neftune_alpha if uses(spec.objective.kind, "optimizer.neftune_alpha") else 0.0


@contextlib.contextmanager
def noisy(model: Any, alpha: float, lengths: Sequence[int]) -> Iterator[None]:  # Any: PEFT's model or FullModel
    """Let a model in training add noise to a padded batch that passes through it meanwhile.

    Args:
        model: whose embedding it is.
        alpha: of the run; nothing happens where it is 0.
        lengths: tokens of each row without padding.
    """
    if not alpha or not model.training:
        yield
        return
    # Other runs load no kernels for it.
    from tunesmith_engine.kernels.noise import add_noise

    seed = torch.randint(HIGHEST_SEED, (1,))

    def add(_module: object, _given: object, embedded: torch.Tensor) -> torch.Tensor:
        num_rows, longest, width = embedded.shape
        own = torch.tensor(lengths)[:, None]
        places = torch.arange(longest)[None, :]
        # As if the rows lay behind each other, as they do where they are packed.
        numbers = (own.cumsum(0) - own + places).flatten()
        magnitudes = torch.where(places < own, alpha / (own * width).sqrt(), 0.0).flatten()
        noise = torch.zeros(num_rows * longest, width, device=embedded.device)
        on_device = (each.to(embedded.device) for each in (seed, numbers.int(), magnitudes.float()))
        add_noise(noise, *on_device)
        return embedded + noise.view_as(embedded).to(embedded.dtype)

    handle = model.get_base_model().get_input_embeddings().register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()
