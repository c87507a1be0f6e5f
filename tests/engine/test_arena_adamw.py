"""Updates over the adapter arena beside those of PyTorch and bitsandbytes: same weights, and one form of checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.engine.numerics import judge
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.fused.arena import AdapterArena
from tunesmith_engine.train.arena_adamw import ArenaAdamW, LossScale
from tunesmith_engine.train.optim import Updater

CPU = torch.device("cpu")
SHAPES = {"lora_A.weight": (4, 70), "lora_B.weight": (70, 4), "base.bias": (7,), "large.weight": (65, 64)}
"""The last has more than 4,096 elements: bitsandbytes has states in 8 bits for it alone."""
RATES = [1e-2, 2e-2, 5e-3, 1e-2, 3e-2]
STOP = 3

Made = tuple[Updater, dict[str, torch.nn.Parameter]]


def _settings(name: str) -> OptimizerSpec:
    return OptimizerSpec(name=name, weight_decay=0.1, max_grad_norm=1.0)


def _make(name: str, with_arena: bool, dtype: torch.dtype = torch.float32) -> Made:
    generator = torch.Generator().manual_seed(1)
    parameters = {
        key: torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for key, shape in SHAPES.items()
    }
    arena = AdapterArena(parameters) if with_arena else None
    return Updater(parameters, _settings(name), CPU, dtype, arena), parameters


def _give_gradients(parameters: dict[str, torch.nn.Parameter], step: int, size: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(50 + step)
    for parameter in parameters.values():
        gradient = (torch.randn(parameter.shape, generator=generator) * size).to(parameter.dtype)
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad += gradient


def _train(made: Made, steps: range) -> list[torch.Tensor]:
    """Make some steps, of which the second isn't clipped, and return the norms."""
    norms = []
    for step in steps:
        _give_gradients(made[1], step, 1e-3 if step == 1 else 1.0)
        norms.append(made[0].update(RATES[step]))
    return norms


def _weights(made: Made) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in made[1].values()])


def _handed_over(old: Made, new: Made) -> Made:
    """Give a new updater what a checkpoint of an old one holds."""
    tensors, numbers = old[0].state()
    new[0].load_state({key: value.clone() for key, value in tensors.items()}, dict(numbers))
    for name, parameter in new[1].items():
        parameter.data.copy_(old[1][name].detach())
    return new


@pytest.fixture(autouse=True)
def _no_compiler() -> Iterator[None]:
    """On the CPU bitsandbytes would compile its plain PyTorch code first."""
    with torch.compiler.set_stance("force_eager"):
        yield


def test_same_weights_and_norms_as_torch() -> None:
    ours, usual, exact = _make("adamw", True), _make("adamw", False), _make("adamw", False, torch.float64)
    norms = [torch.stack(_train(made, range(5))) for made in (ours, usual, exact)]
    judge("norms", *norms, torch.float32)
    judge("weights", _weights(ours), _weights(usual), _weights(exact), torch.float32)
    assert norms[0][1] < 1.0 < norms[0][0]


def test_norm_stays_after_the_next_step() -> None:
    """It is read later, so that the host needn't wait."""
    made = _make("adamw", True)
    (first,) = _train(made, range(1))
    kept = first.clone()
    _train(made, range(1, 2))
    assert first == kept


def test_8_bit_weights_are_near_those_of_32_bits() -> None:
    exact, ours, theirs = _make("adamw", False, torch.float64), _make("adamw_8bit", True), _make("adamw_8bit", False)
    start = _weights(exact)
    for made in (exact, ours, theirs):
        _train(made, range(5))
    change = (_weights(exact) - start).norm()
    # All of ours are in 8 bits, but only one parameter of theirs.
    assert (_weights(ours) - _weights(exact)).norm() < 0.05 * change
    place = -65 * 64
    errors = [(_weights(made) - _weights(exact))[place:].norm() for made in (ours, theirs)]
    assert errors[0] < 1.25 * errors[1]


@pytest.mark.parametrize("name", ["adamw", "adamw_8bit"])
def test_resumed_in_the_arena_is_bit_exact(name: str) -> None:
    whole, part = _make(name, True), _make(name, True)
    _train(whole, range(5))
    _train(part, range(STOP))
    resumed = _handed_over(part, _make(name, True))
    _train(resumed, range(STOP, 5))
    assert torch.equal(_weights(resumed), _weights(whole))


@pytest.mark.parametrize("name", ["adamw", "adamw_8bit"])
@pytest.mark.parametrize("from_arena", [True, False])
def test_resumed_the_other_way(name: str, from_arena: bool) -> None:
    """A run goes on with the kernels switched on or off."""
    whole, part = _make(name, from_arena), _make(name, from_arena)
    _train(whole, range(5))
    _train(part, range(STOP))
    before = _weights(part)
    resumed = _handed_over(part, _make(name, not from_arena))
    _train(resumed, range(STOP, 5))
    change = (_weights(whole) - before).norm()
    assert (_weights(resumed) - _weights(whole)).norm() < (1e-5 if name == "adamw" else 2e-2) * change


@pytest.mark.parametrize("name", ["adamw", "adamw_8bit"])
def test_checkpoint_has_the_usual_keys(name: str) -> None:
    tensors, numbers = {}, {}
    for with_arena in (True, False):
        made = _make(name, with_arena)
        _train(made, range(1))
        found = made[0].state()
        large = "large.weight:"
        tensors[with_arena] = {k: (v.shape, v.dtype) for k, v in found[0].items() if k.startswith(large)}
        numbers[with_arena] = {k: v for k, v in found[1].items() if k.startswith(large)}
    assert tensors[True] == tensors[False]
    assert numbers[True] == numbers[False]


@pytest.mark.parametrize("name", ["adamw", "adamw_8bit"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_step_that_is_not_finite_never_was(name: str, value: float) -> None:
    made, calm = _make(name, True), _make(name, True)
    _train(calm, range(5))
    _train(made, range(2))
    _give_gradients(made[1], 77)
    made[1]["base.bias"].grad[3] = value
    assert not made[0].update(0.5).isfinite()
    _train(made, range(2, 5))
    assert torch.equal(_weights(made), _weights(calm))


def test_first_step_that_is_not_finite() -> None:
    made, calm = _make("adamw", True), _make("adamw", True)
    _train(calm, range(2))
    made[1]["base.bias"].grad[0] = float("inf")
    made[0].update(0.5)
    _train(made, range(2))
    assert torch.equal(_weights(made), _weights(calm))


def test_dropped_gradients_are_zeros_in_place() -> None:
    made = _make("adamw", True)
    views = {name: parameter.grad for name, parameter in made[1].items()}
    _give_gradients(made[1], 1)
    made[0].drop_gradients()
    for name, parameter in made[1].items():
        assert parameter.grad is views[name]
        assert not parameter.grad.any()


def test_no_clipping_when_none_is_asked_for() -> None:
    settings = OptimizerSpec(max_grad_norm=0.0)
    changes = []
    for size in (1.0, 1000.0):
        parameter = torch.nn.Parameter(torch.zeros(256))
        adamw = ArenaAdamW(AdapterArena({"a": parameter}), settings, scaled=False)
        for gradient in (1.0, size):
            parameter.grad.fill_(gradient)
            adamw.update(1e-2)
        changes.append(parameter.detach().clone())
    # With clipping a gradient of any size would look the same.
    assert not torch.allclose(*changes)


def test_tiny_gradients_are_clipped_as_torch_does() -> None:
    settings = OptimizerSpec(max_grad_norm=1e-6, epsilon=1e-6, learning_rate=1e-2)
    ours, theirs = (torch.nn.Parameter(torch.zeros(256)) for _ in range(2))
    adamw = ArenaAdamW(AdapterArena({"a": ours}), settings, scaled=False)
    usual = torch.optim.AdamW([theirs], lr=1e-2, eps=1e-6, weight_decay=0.0)
    for size in (1e-6 / 16, 1e-7, 1e-9):
        ours.grad.fill_(size)
        adamw.update(1e-2)
        theirs.grad = torch.full((256,), size)
        torch.nn.utils.clip_grad_norm_([theirs], 1e-6)
        usual.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=0.0)


class TestLossScale:
    """The rule of torch.amp.GradScaler, by the device alone."""

    def scaled(self) -> tuple[ArenaAdamW, torch.nn.Parameter]:
        """Return an optimizer with a scale and its parameter."""
        parameter = torch.nn.Parameter(torch.ones(300))
        return ArenaAdamW(AdapterArena({"a": parameter}), _settings("adamw"), scaled=True), parameter

    def test_update_is_that_without_a_scale(self) -> None:
        adamw, parameter = self.scaled()
        plain = torch.nn.Parameter(torch.ones(300))
        other = ArenaAdamW(AdapterArena({"a": plain}), _settings("adamw"), scaled=False)
        gradient = torch.linspace(-1, 1, 300)
        parameter.grad += gradient * 65536.0
        plain.grad += gradient
        assert torch.equal(adamw.update(0.1), other.update(0.1))
        assert torch.equal(parameter, plain)

    def test_overflow_halves_and_good_steps_double(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LossScale, "GROWTH_INTERVAL", 2)
        adamw, parameter = self.scaled()
        scales = []
        for gradient in (float("inf"), 1.0, 1.0, 1.0, float("nan"), 1.0, 1.0):
            parameter.grad.fill_(gradient)
            adamw.update(1e-3)
            scales.append(adamw.loss_scale.scale.item() / 65536.0)
        assert scales == [0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 1.0]

    def test_state_is_that_of_grad_scaler(self) -> None:
        adamw, _ = self.scaled()
        adamw.load_state({}, {"scaler:scale": 512.0, "scaler:_growth_tracker": 17})
        numbers = adamw.state()[1]
        usual = torch.amp.GradScaler("cpu").state_dict()
        assert {key.removeprefix("scaler:") for key in numbers} == set(usual)
        assert (numbers["scaler:scale"], numbers["scaler:_growth_tracker"]) == (512.0, 17)
        assert all(numbers[f"scaler:{key}"] == usual[key] for key in usual if "factor" in key or "interval" in key)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["adamw", "adamw_8bit"])
def test_host_never_waits_and_a_captured_step_is_the_same(name: str) -> None:
    """Three steps as they are, and three by a CUDA graph of one."""
    results = []
    for captured in (False, True):
        generator = torch.Generator().manual_seed(1)
        parameter = torch.nn.Parameter(torch.randn(5000, generator=generator).cuda())
        arena = AdapterArena({"a": parameter})
        adamw = ArenaAdamW(arena, _settings(name), scaled=True)
        gradient = torch.randn(5000, generator=generator).cuda() * 65536.0

        def step(
            parameter: torch.nn.Parameter = parameter, adamw: ArenaAdamW = adamw, given: torch.Tensor = gradient
        ) -> None:
            parameter.grad.add_(given)
            adamw.update(1e-2)

        # The first compiles the kernels.
        step()
        torch.cuda.synchronize()
        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(3):
                graph.replay() if captured else step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        results.append(parameter.detach().clone())
    assert torch.equal(*results)
