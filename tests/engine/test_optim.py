"""Which optimizer a run has, how float16 gradients are kept from vanishing, and what a checkpoint holds of both."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.fused.arena import AdapterArena
from tunesmith_engine.train.optim import Updater, optimizer_of

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def scaler_devices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a GPU's loss scale be computed here; holds for which devices one was made."""
    made: list[str] = []
    real = torch.amp.GradScaler

    def on_cpu(device: str) -> torch.amp.GradScaler:
        made.append(device)
        return real("cpu")

    monkeypatch.setattr(torch.amp, "GradScaler", on_cpu)
    return made


def made(device: torch.device, dtype: torch.dtype, in_arena: bool = False, **settings: Any) -> Updater:
    parameters = {"a": torch.nn.Parameter(torch.linspace(-1, 1, 300)), "bias": torch.nn.Parameter(torch.ones(7))}
    arena = AdapterArena(parameters) if in_arena else None
    return Updater(parameters, OptimizerSpec(**settings), device, dtype, arena)


def train(updater: Updater, factors: tuple[float, ...] = (1.0, 3.0)) -> list[float]:
    """Make some steps by autograd and return the norms."""
    norms = []
    for factor in factors:
        loss = sum(((parameter - 2.0) ** 2).sum() for parameter in updater.parameters.values()) * factor
        updater.backward(loss)
        norms.append(updater.update(1e-2).item())
        assert all(parameter.grad is None for parameter in updater.parameters.values())
    return norms


@pytest.mark.parametrize("in_arena", [True, False])
@pytest.mark.parametrize(
    ("device", "dtype", "scaled"),
    [
        (GPU, torch.float16, True),
        (GPU, torch.bfloat16, False),
        (CPU, torch.float16, False),
        (CPU, torch.float32, False),
    ],
)
def test_float16_gradients_are_scaled_on_a_gpu_alone(
    in_arena: bool, device: torch.device, dtype: torch.dtype, scaled: bool, scaler_devices: list[str]
) -> None:
    updater = made(device, dtype, in_arena)
    assert (updater.loss_scale() is not None) == (scaled and in_arena)
    assert (updater.scaler is not None) == (scaled and not in_arena)
    assert scaler_devices == ["cuda"] * (scaled and not in_arena)
    if scaled and in_arena:
        assert updater.loss_scale().item() == 65536.0  # type: ignore[union-attr]


def test_a_scaled_update_is_that_without_a_scale_and_skips_what_overflows() -> None:
    scaled, plain = made(GPU, torch.float16), made(CPU, torch.float32)
    assert train(scaled) == pytest.approx(train(plain))
    assert all(torch.equal(scaled.parameters[name], plain.parameters[name]) for name in plain.parameters)
    train(scaled, (float("inf"), 1.0))
    train(plain, (1.0,))
    assert all(torch.equal(scaled.parameters[name], plain.parameters[name]) for name in plain.parameters)
    tensors, numbers = scaled.state()
    assert (numbers["scaler:scale"], numbers["scaler:_growth_tracker"]) == (32768.0, 1)
    resumed = made(GPU, torch.float16)
    resumed.load_state(tensors, numbers)
    assert resumed.state()[1] == numbers
    assert all(torch.equal(resumed.state()[0][key], value) for key, value in tensors.items())


@pytest.mark.parametrize("in_arena", [True, False])
def test_a_scale_is_taken_over_where_there_is_one(in_arena: bool) -> None:
    """A run may go on in another number format."""
    saved = {**torch.amp.GradScaler("cpu").state_dict(), "scale": 512.0}
    numbers = {f"scaler:{key}": value for key, value in saved.items()}
    unscaled, scaled = made(CPU, torch.float32, in_arena), made(GPU, torch.float16, in_arena)
    for updater in (unscaled, scaled):
        updater.load_state({}, {})
        assert ("scaler:scale" in updater.state()[1]) == (updater is scaled)
    assert scaled.state()[1]["scaler:scale"] == 65536.0
    for updater in (unscaled, scaled):
        updater.load_state({}, numbers)
    assert not unscaled.state()[1]
    assert scaled.state()[1]["scaler:scale"] == 512.0


@pytest.mark.parametrize("longest", [0.0, 1.0])
def test_gradients_are_clipped_and_biases_do_not_decay(longest: float) -> None:
    updater = made(CPU, torch.float32, max_grad_norm=longest, weight_decay=0.5)
    start = {name: parameter.detach().clone() for name, parameter in updater.parameters.items()}
    usual = torch.optim.AdamW(
        [
            {"params": [weight := torch.nn.Parameter(start["a"].clone())], "weight_decay": 0.5},
            {"params": [bias := torch.nn.Parameter(start["bias"].clone())], "weight_decay": 0.0},
        ]
    )
    norms = train(updater, (1.0, 5.0))
    for factor in (1.0, 5.0):
        usual.zero_grad()
        ((((weight - 2.0) ** 2).sum() + ((bias - 2.0) ** 2).sum()) * factor).backward()
        norm = torch.nn.utils.clip_grad_norm_([weight, bias], longest or float("inf"))
        for group in usual.param_groups:
            group["lr"] = 1e-2
        usual.step()
        assert norms.pop(0) == pytest.approx(norm.item())
    for name, parameter in (("a", weight), ("bias", bias)):
        torch.testing.assert_close(updater.parameters[name], parameter)


def test_a_saved_state_tells_its_optimizer() -> None:
    names = {"adamw": ("a:step", "a:exp_avg"), "adamw_8bit": ("a:state1", "a:qmap1"), None: ("a:step",)}
    for name, keys in names.items():
        assert optimizer_of(dict.fromkeys(keys, torch.zeros(()))) == name
