"""NEFTune: the noise of transformers, the same fused and plain, exact after a resume, none where it is not meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers.integrations.neftune import neftune_post_forward_hook

from tests.engine.conftest import step_losses, train
from tests.engine.exact_resume import check_resume
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter
from tunesmith_engine.train.neftune import alpha_of, noisy

Make = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
ALPHA = 30.0


def noise_of(spec: RunSpec, folder: Path, lengths: list[int], training: bool = True) -> torch.Tensor:
    """Return what is added to the embedded tokens of padded rows, [rows, length, width]."""
    model = attach_adapter(load_model(folder, choose_compute(spec), False), spec).train(training)
    embedding = model.get_base_model().get_input_embeddings()
    ids = torch.full((len(lengths), max(lengths)), 5)
    torch.manual_seed(3)
    with torch.no_grad(), noisy(model, ALPHA, lengths):
        found: torch.Tensor = embedding(ids)
    assert not embedding._forward_hooks
    with torch.no_grad():
        return found - embedding(ids)


def test_noise_is_as_large_as_that_of_transformers(tiny_spec: Make, tiny_model: Path) -> None:
    lengths = [40, 10]
    ours = noise_of(tiny_spec(), tiny_model, lengths)
    assert not ours[1, 10:].any()
    for row, length in zip(ours, lengths, strict=True):
        like = torch.zeros(1, length, row.shape[-1])
        module = SimpleNamespace(training=True, neftune_noise_alpha=torch.tensor(ALPHA))
        theirs = torch.stack([neftune_post_forward_hook(module, (), like) for _ in range(10)])
        bound = ALPHA / (length * row.shape[-1]) ** 0.5
        assert 0.97 * bound < theirs.abs().max() <= bound * 1.0001
        assert 0.97 * bound < row.abs().max() <= bound * 1.0001
        assert row[:length].std().item() == pytest.approx(theirs.std().item(), rel=0.05)
        assert abs(row[:length].mean()) < 0.05 * bound
    assert not torch.equal(ours[0, :10] / 2, ours[1, :10])
    assert not noise_of(tiny_spec(), tiny_model, lengths, training=False).any()


def test_fused_and_plain_runs_meet_the_same_noise(tiny_spec: Make, new_run: NewRun) -> None:
    losses = {}
    for kernels, alpha in ((True, ALPHA), (False, ALPHA), (True, 0.0)):
        spec = tiny_spec(schedule={"micro_batch_size": 1, "gradient_accumulation_steps": 1})
        spec.hardware.kernels, spec.optimizer.neftune_alpha = kernels, alpha
        run = new_run(spec)
        assert train(run) == 0
        losses[kernels, alpha] = step_losses(run)
        card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
        assert ("NEFTune, Jain et al. 2023" in card) == bool(alpha)
    assert losses[True, ALPHA] == pytest.approx(losses[False, ALPHA], rel=1e-4)
    assert losses[True, ALPHA][0] != pytest.approx(losses[True, 0.0][0], rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_resume_is_exact_and_evaluations_see_no_noise(
    kernels: bool, dropout: float, tiny_spec: Make, new_run: NewRun
) -> None:
    spec = tiny_spec(method={"dropout": dropout}, evaluation={"percent": 20, "every_steps": 2})
    spec.hardware.kernels, spec.optimizer.neftune_alpha = kernels, ALPHA
    check_resume(spec, new_run)


@pytest.mark.long
def test_full_fine_tuning_has_it_too(tiny_spec: Make, new_run: NewRun) -> None:
    found = {}
    for kernels, alpha in ((True, 0.0), (True, ALPHA), (False, ALPHA)):
        spec = tiny_spec(schedule={"max_steps": 3, "micro_batch_size": 1, "gradient_accumulation_steps": 1})
        spec.adapter.kind, spec.optimizer.neftune_alpha, spec.hardware.kernels = "full", alpha, kernels
        run = new_run(spec)
        assert train(run) == 0
        found[kernels, alpha] = step_losses(run)
    assert found[True, ALPHA] == pytest.approx(found[False, ALPHA], rel=1e-4)
    assert found[True, ALPHA][0] != pytest.approx(found[True, 0.0][0], rel=1e-4)


def test_other_objectives_have_none(tiny_spec: Make) -> None:
    spec = tiny_spec()
    spec.optimizer.neftune_alpha = ALPHA
    assert alpha_of(spec) == ALPHA
    spec.objective.kind = "dpo"
    assert alpha_of(spec) == 0.0
