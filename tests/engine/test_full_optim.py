"""The optimizers of full fine-tuning beside those of PyTorch, transformers and the papers, and stochastic rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import Adafactor

from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.kernels import full_adamw
from tunesmith_engine.kernels.rounding import key_of, random_bits, store_rounded
from tunesmith_engine.train import full_optim
from tunesmith_engine.train.full_optim import FullOptimizer, orthogonal
from tunesmith_engine.train.optim import Updater

SHAPES = {"model.layers.0.up_proj.weight": (96, 64), "model.embed_tokens.weight": (80, 64), "model.norm.weight": (64,)}
NUM_STEPS = 12
CPU = torch.device("cpu")


def made(dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for name, shape in SHAPES.items()
    }


def gradients(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return {name: torch.randn(shape, generator=generator) * 0.1 for name, shape in SHAPES.items()}


def settings(name: str, **changed: float) -> OptimizerSpec:
    return OptimizerSpec(name=name, learning_rate=1e-2, max_grad_norm=0.0, **changed)  # type: ignore[arg-type]


def ours(wanted: OptimizerSpec, dtype: torch.dtype = torch.float32, seed: int = 1) -> dict[str, torch.nn.Parameter]:
    weights = made(dtype)
    updater = Updater(weights, wanted, CPU, dtype, full=FullOptimizer(weights, wanted, seed))
    for step in range(NUM_STEPS):
        for name, gradient in gradients(step).items():
            weights[name].grad = gradient.to(dtype)
        updater.update(1e-2)
    return weights


def theirs(make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    """Return what another optimizer makes of the same gradients, in float64."""
    weights = {name: torch.nn.Parameter(weight.double()) for name, weight in made().items()}
    optimizer = make(list(weights.values()))
    for step in range(NUM_STEPS):
        for name, gradient in gradients(step).items():
            weights[name].grad = gradient.double()
        optimizer.step()
    return {name: weight.detach() for name, weight in weights.items()}


def compare(found: dict[str, torch.nn.Parameter], wanted: dict[str, torch.Tensor], within: float) -> None:
    for name, weight in found.items():
        assert (weight.double() - wanted[name]).abs().max() < within, name


def test_adamw_is_pytorchs() -> None:
    decay = 0.1

    def make(weights: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{"params": weights[:2], "weight_decay": decay}, {"params": weights[2:], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-2)

    compare(ours(settings("adamw", weight_decay=decay)), theirs(make), 2e-6)


def test_adafactor_is_that_of_transformers() -> None:
    def make(weights: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return Adafactor(weights, lr=1e-2, scale_parameter=False, relative_step=False)

    compare(ours(settings("adafactor")), theirs(make), 5e-6)


def test_8_bit_adamw_stays_near_adamw_and_small_weights_are_exact() -> None:
    exact, found = ours(settings("adamw")), ours(settings("adamw_8bit"))
    start = made()
    for name, weight in found.items():
        moved = (exact[name] - start[name]).norm()
        off = float((weight - exact[name]).norm() / moved)
        assert off < (1e-6 if weight.numel() < full_optim.LEAST_IN_8_BITS else 0.05), name


def test_parts_of_a_weight_are_updated_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ours(settings("adamw_8bit"))
    monkeypatch.setattr(full_adamw, "TRANSIENT_WEIGHTS", 1024)
    parts = ours(settings("adamw_8bit"))
    for name, weight in whole.items():
        assert torch.equal(weight, parts[name])


def reference_muon(weight: torch.Tensor, steps: list[torch.Tensor]) -> torch.Tensor:
    """Jordan's Muon in float64, its update scaled to AdamW's as Liu et al. do."""
    momentum = torch.zeros_like(weight)
    for gradient in steps:
        momentum = 0.95 * momentum + 0.05 * gradient
        update = 0.05 * gradient + 0.95 * momentum
        value = update.T if update.shape[0] > update.shape[1] else update
        value = value / (value.norm() + 1e-7)
        for _ in range(5):
            square = value @ value.T
            value = 3.4445 * value + (-4.7750 * square + 2.0315 * square @ square) @ value
        value = value.T if update.shape[0] > update.shape[1] else value
        weight = weight - 1e-2 * 0.2 * max(weight.shape) ** 0.5 * value
    return weight


def test_muon_is_jordans_for_matrices_and_adamw_for_the_rest() -> None:
    found, plain = ours(settings("muon")), ours(settings("adamw"))
    name = "model.layers.0.up_proj.weight"
    steps = [gradients(step)[name].double() for step in range(NUM_STEPS)]
    assert (found[name].double() - reference_muon(made()[name].double(), steps)).abs().max() < 1e-5
    for other in SHAPES.keys() - {name}:
        assert torch.equal(found[other], plain[other])


def test_the_orthogonal_matrix_has_singular_values_near_one() -> None:
    values = torch.linalg.svdvals(orthogonal(torch.randn(48, 32, generator=torch.Generator().manual_seed(3))))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_gradients_are_clipped_to_the_longest_norm_of_all() -> None:
    weights, wanted = made(), settings("adafactor")
    optimizer = FullOptimizer(weights, wanted, 0)
    for name, gradient in gradients(0).items():
        weights[name].grad = gradient
    norm = optimizer.measure(0.5)
    flat = torch.cat([gradient.flatten() for gradient in gradients(0).values()]).double()
    assert abs(float(norm) - float(flat.norm())) < 1e-5
    assert abs(float(optimizer._factor) - 0.5 / float(flat.norm())) < 1e-6


@pytest.mark.parametrize("name", ["adamw", "adamw_8bit", "adafactor", "muon"])
def test_a_gradient_that_is_not_finite_changes_nothing(name: str) -> None:
    weights, wanted = made(), settings(name)
    updater = Updater(weights, wanted, CPU, torch.float32, full=FullOptimizer(weights, wanted, 0))
    for each, gradient in gradients(0).items():
        weights[each].grad = gradient
    next(iter(weights.values())).grad[0, 0] = torch.inf  # type: ignore[index]
    assert not torch.isfinite(updater.update(1e-2))
    for each, weight in made().items():
        assert torch.equal(weights[each], weight)
    tensors, numbers = updater.state()
    assert not any(bool(value.any()) for value in tensors.values())
    assert set(numbers.values()) == {0}


def test_a_lack_of_memory_in_an_update_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, wanted = made(), settings("adamw")
    updater = Updater(weights, wanted, CPU, torch.float32, full=FullOptimizer(weights, wanted, 0))
    for each, gradient in gradients(0).items():
        weights[each].grad = gradient

    def fail(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(full_adamw, "store_rounded", fail)
    with pytest.raises(TunesmithError, match="not enough memory to apply an update") as failure:
        updater.update(1e-2)
    assert failure.value.code == "cuda-oom"


# Stochastic rounding


def test_rounded_numbers_are_right_on_average_and_neighbors() -> None:
    value = torch.tensor(1.0 + 2.0**-7 * 0.3)
    target = torch.empty(200_000, dtype=torch.bfloat16)
    store_rounded(target, value.expand(200_000), key_of(0, 1, 0), 0)
    assert set(target.unique().tolist()) == {1.0, 1.0 + 2.0**-7}
    share = (target.double().mean() - 1.0) / 2.0**-7
    assert abs(share - 0.3) < 0.004
    store_rounded(target, -value.expand(200_000), key_of(0, 2, 0), 0)
    assert abs((-target.double().mean() - 1.0) / 2.0**-7 - 0.3) < 0.004


def test_what_bfloat16_holds_is_not_rounded() -> None:
    exact = torch.randn(5000, generator=torch.Generator().manual_seed(0)).bfloat16()
    target = torch.empty_like(exact)
    store_rounded(target, exact.float(), key_of(3, 2, 1), 0)
    assert torch.equal(target, exact)


def test_the_random_bits_depend_on_seed_step_tensor_and_place_alone() -> None:
    whole = random_bits(key_of(7, 3, 2), 0, 10_000, CPU)
    assert torch.equal(random_bits(key_of(7, 3, 2), 4000, 100, CPU), whole[4000:4100])
    for other in (key_of(8, 3, 2), key_of(7, 4, 2), key_of(7, 3, 1)):
        same = (random_bits(other, 0, 10_000, CPU) == whole).sum()
        assert same < 3
    for bit in range(32):
        assert abs(float(((whole >> bit) & 1).double().mean()) - 0.5) < 0.03


def test_small_updates_count_in_bfloat16_and_get_lost_without_it() -> None:
    weights = {"a.weight": torch.nn.Parameter(torch.ones(64, 64, dtype=torch.bfloat16))}
    wanted = settings("adamw")
    updater = Updater(weights, wanted, CPU, torch.bfloat16, full=FullOptimizer(weights, wanted, 5))
    nearest = torch.ones(64, 64, dtype=torch.bfloat16)
    for _ in range(100):
        weights["a.weight"].grad = torch.ones(64, 64, dtype=torch.bfloat16)
        updater.update(1e-4)
        nearest -= 1e-4
    assert torch.equal(nearest, torch.ones_like(nearest))
    assert abs(float(weights["a.weight"].double().mean()) - (1.0 - 100 * 1e-4)) < 5e-4
