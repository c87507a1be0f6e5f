"""AdamW over flat tensors: torch.optim.AdamW's numbers, skipped steps, weight decay of some, and states in 8 bits."""

from __future__ import annotations

import pytest
import torch

from tests.engine.numerics import FACTOR, REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.adamw import adamw_step, gradient_norm
from tunesmith_engine.kernels.adamw_8bit import State, adamw_8bit_step

NUM_WEIGHTS = 256 * 9
LEARNING_RATE, BETAS, EPSILON, DECAY = 3e-3, (0.9, 0.999), 1e-8, 0.1
NUM_STEPS = 5


def _random(seed: int, device: torch.device, num: int = NUM_WEIGHTS) -> torch.Tensor:
    return torch.randn(num, generator=torch.Generator().manual_seed(seed)).to(device)


def _gradient(step: int, device: torch.device) -> torch.Tensor:
    """Return gradients of very different sizes."""
    return _random(100 + step, device) * torch.logspace(-6, 1, NUM_WEIGHTS).to(device)


def _control(step: int, device: torch.device, factor: float = 1.0, apply: bool = True) -> torch.Tensor:
    corrections = [1.0 - beta**step for beta in BETAS]
    numbers = [float(apply), factor, LEARNING_RATE * DECAY, LEARNING_RATE / corrections[0], corrections[1] ** 0.5]
    return torch.tensor(numbers, device=device)


def _by_torch(dtype: torch.dtype, device: torch.device, factor: float = 1.0) -> torch.Tensor:
    """Return the weights after some steps of PyTorch's own optimizer."""
    weight = torch.nn.Parameter(_random(0, device).to(dtype))
    optimizer = torch.optim.AdamW([weight], LEARNING_RATE, BETAS, EPSILON, DECAY, fused=dtype == torch.float32)
    for step in range(1, NUM_STEPS + 1):
        weight.grad = _gradient(step, device).to(dtype) * factor
        optimizer.step()
    return weight.detach()


def _tables(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    functional = pytest.importorskip("bitsandbytes.functional")
    return tuple(functional.create_dynamic_map(signed=signed).to(device) for signed in (True, False))


@pytest.mark.parametrize("factor", [1.0, 0.125])
def test_same_as_torch(factor: float, device: torch.device) -> None:
    exact = _by_torch(torch.float64, torch.device("cpu"), factor)
    usual = _by_torch(torch.float32, device, factor)
    weights, mean, square = _random(0, device), *torch.zeros(2, NUM_WEIGHTS, device=device)
    start = weights.double().cpu()
    for step in range(1, NUM_STEPS + 1):
        gradients = _gradient(step, device)
        adamw_step(weights, gradients, mean, square, _control(step, device, factor), BETAS, EPSILON)
        assert not gradients.any()
    judge("weights", weights, usual, exact, torch.float32)

    def call(change: torch.Tensor) -> None:
        judge("change", change, usual.cpu().double() - start, exact - start, torch.float32, REDUCTION)

    # The weights' own rounding is the largest error of a change, so the change needs room.
    mutants_fail(call, weights.cpu().double() - start)


def test_skipped_step_leaves_all_but_the_gradients(device: torch.device) -> None:
    weights, mean, square = _random(0, device), _random(1, device), _random(2, device).abs()
    before = [value.clone() for value in (weights, mean, square)]
    gradients = torch.full((NUM_WEIGHTS,), float("inf"), device=device)
    control = torch.tensor([0.0, float("nan"), float("nan"), float("inf"), 0.0], device=device)
    adamw_step(weights, gradients, mean, square, control, BETAS, EPSILON)
    assert all(torch.equal(old, new) for old, new in zip(before, (weights, mean, square), strict=True))
    assert not gradients.any()


def test_zeros_stay_zeros(device: torch.device) -> None:
    """The gaps between parameters hold zeros and must keep them."""
    flats = torch.zeros(4, NUM_WEIGHTS, device=device)
    adamw_step(*flats, _control(1, device), BETAS, EPSILON)
    assert not flats.any()


def test_some_blocks_do_not_decay(device: torch.device) -> None:
    weights, mean, square = _random(0, device), *torch.zeros(2, NUM_WEIGHTS, device=device)
    before = weights.clone()
    decayed = torch.tensor([1, 0, 0, 1, 1, 0, 1, 1, 0], dtype=torch.uint8, device=device)
    gradients = torch.zeros_like(weights)
    adamw_step(weights, gradients, mean, square, _control(1, device), BETAS, EPSILON, decayed)
    changed = (weights != before).view(9, 256).float().mean(1)
    assert torch.equal(changed > 0.9, decayed.bool())
    assert torch.equal(changed == 0.0, ~decayed.bool())
    states = [State.zeros(NUM_WEIGHTS, table) for table in _tables(device)]
    in_8_bits = before.clone()
    adamw_8bit_step(in_8_bits, gradients, *states, _control(1, device), BETAS, EPSILON, decayed)
    assert torch.equal(in_8_bits, weights)


def test_blocks_have_rates_of_their_own(device: torch.device) -> None:
    rates = torch.tensor([1.0, 16.0, 0.0, 2.0, 1.0, 1.0, 4.0, 0.5, 1.0], device=device)
    changes = []
    for factors in (None, rates):
        weights, (mean, square) = torch.zeros(NUM_WEIGHTS, device=device), torch.zeros(2, NUM_WEIGHTS, device=device)
        gradients = torch.full_like(weights, 0.5)
        adamw_step(weights, gradients, mean, square, _control(1, device), BETAS, EPSILON, None, factors)
        changes.append(weights.view(9, 256))
        states = [State.zeros(NUM_WEIGHTS, table) for table in _tables(device)]
        in_8_bits, gradients = torch.zeros(NUM_WEIGHTS, device=device), torch.full_like(weights, 0.5)
        adamw_8bit_step(in_8_bits, gradients, *states, _control(1, device), BETAS, EPSILON, None, factors)
        assert torch.equal(in_8_bits, weights)
    assert torch.allclose(changes[1], changes[0] * rates[:, None], rtol=1e-6)


@pytest.mark.parametrize("num", [1, 255, 8192, 20_001])
def test_norm(num: int, device: torch.device) -> None:
    gradients = _random(3, device, num) * torch.logspace(-6, 3, num).to(device)
    exact = gradients.cpu().double().norm()
    norm = gradient_norm(gradients, torch.empty((), device=device))
    judge("norm", norm, gradients.norm(), exact, torch.float32, REDUCTION)
    assert torch.equal(norm, gradient_norm(gradients, torch.empty((), device=device)))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", [0, 8192, 16383])
def test_norm_shows_what_is_no_number(value: float, place: int, device: torch.device) -> None:
    gradients = _random(3, device, 16384)
    gradients[place] = value
    assert not gradient_norm(gradients, torch.empty((), device=device)).isfinite()


def test_norm_of_more_parts_than_one_turn_takes(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunesmith_engine.kernels.adamw.NORM_SPAN", 4)
    monkeypatch.setattr("tunesmith_engine.kernels.adamw.PARTS_SPAN", 16)
    gradients = _random(3, device, 101)
    norm = gradient_norm(gradients, torch.empty((), device=device))
    judge("norm", norm, gradients.norm(), gradients.cpu().double().norm(), torch.float32, REDUCTION)


def test_8_bit_state_takes_the_nearest_value(device: torch.device) -> None:
    values = _random(4, device)
    values[256:512] = 0.0
    for table, given in zip(_tables(device), (values, values.abs()), strict=True):
        state = State.zeros(NUM_WEIGHTS, table)
        assert not state.read().any()
        state.write(given)
        shares = given.view(-1, 256) / state.scales[:, None].clamp(min=1e-30)
        nearest = (shares.view(-1, 1) - table).abs().amin(1)
        assert torch.equal((shares.view(-1) - table[state.codes.int()]).abs(), nearest)
        assert torch.equal(state.scales, given.view(-1, 256).abs().amax(1))


@pytest.mark.parametrize("of_squares", [False, True])
def test_8_bit_codes_at_every_border_of_the_table(device: torch.device, of_squares: bool) -> None:
    """A kernel guesses the code by the table's formula: at each value, each bound and beside them the search agrees."""
    table = _tables(device)[of_squares]
    bounds = (table[:-1] + table[1:]) / 2
    borders = 10.0 ** torch.arange(-8, 1, device=device)
    near = torch.cat([table, bounds, *([borders] if of_squares else [borders, -borders])])
    infinity = torch.full_like(near, torch.inf)
    given = torch.cat([near, near.nextafter(infinity), near.nextafter(-infinity)]).clamp(min=table[0], max=1.0)
    # Each block begins with 1, so a value is its own share; a state that was zero takes the gradient as its mean.
    rows = torch.nn.functional.pad(given, (0, -len(given) % 255)).view(-1, 255)
    values = torch.cat([torch.ones_like(rows[:, :1]), rows], 1).flatten()
    betas = (0.0, 0.0)
    states = [State.zeros(values.numel(), each) for each in _tables(device)]
    gradients = values.sqrt() if of_squares else values.clone()
    made = gradients * gradients if of_squares else gradients
    adamw_8bit_step(torch.zeros_like(values), gradients.clone(), *states, _control(1, device), betas, EPSILON)
    wanted = State.zeros(values.numel(), table)
    wanted.write(made)
    assert torch.equal(states[of_squares].codes, wanted.codes)


def test_8_bit_step_is_a_step_between_rounded_states(device: torch.device) -> None:
    """Read the states, make the 32-bit step, write the states: kernel and that agree but for ties in the rounding."""
    tables = _tables(device)
    weights, states = _random(0, device), [State.zeros(NUM_WEIGHTS, table) for table in tables]
    for step in range(1, NUM_STEPS + 1):
        control = _control(step, device, 0.5)
        values = [state.read() for state in states]
        expected, gradients = weights.clone(), _gradient(step, device)
        adamw_step(expected, gradients.clone(), *values, control, BETAS, EPSILON)
        adamw_8bit_step(weights, gradients, *states, control, BETAS, EPSILON)
        assert not gradients.any()
        judge("weights", weights, expected, expected.cpu().double(), torch.float32)
        for state, value, table in zip(states, values, tables, strict=True):
            wanted = State.zeros(NUM_WEIGHTS, table)
            wanted.write(value)
            judge("scales", state.scales, wanted.scales, wanted.scales.cpu().double(), torch.float32)
            distance = (state.codes.int() - wanted.codes.int()).abs()
            assert distance.max() <= 1
            assert distance.float().mean() < 0.005


def test_8_bit_skipped_step(device: torch.device) -> None:
    weights = _random(0, device)
    states = [State.zeros(NUM_WEIGHTS, table) for table in _tables(device)]
    for seed, state in enumerate(states):
        state.write(_random(seed, device).abs())
    before = [weights.clone(), *(part.clone() for state in states for part in (state.codes, state.scales))]
    gradients = torch.full((NUM_WEIGHTS,), float("nan"), device=device)
    adamw_8bit_step(weights, gradients, *states, _control(1, device, float("nan"), False), BETAS, EPSILON)
    after = [weights, *(part for state in states for part in (state.codes, state.scales))]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert not gradients.any()


def test_8_bit_is_as_near_as_bitsandbytes(device: torch.device) -> None:
    """The same weights from AdamW8bit, from ours, and from 32-bit states: ours is no farther off than theirs."""
    optim = pytest.importorskip("bitsandbytes.optim")
    theirs = torch.nn.Parameter(_random(0, device))
    optimizer = optim.AdamW8bit([theirs], LEARNING_RATE, BETAS, EPSILON, DECAY, min_8bit_size=256)
    weights, states = _random(0, device), [State.zeros(NUM_WEIGHTS, table) for table in _tables(device)]
    # On the CPU bitsandbytes would compile its plain PyTorch code first.
    with torch.compiler.set_stance("force_eager"):
        for step in range(1, NUM_STEPS + 1):
            theirs.grad = _gradient(step, device)
            optimizer.step()
    for step in range(1, NUM_STEPS + 1):
        adamw_8bit_step(weights, _gradient(step, device), *states, _control(step, device), BETAS, EPSILON)
    start = _random(0, torch.device("cpu")).double()
    exact = _by_torch(torch.float64, torch.device("cpu")) - start
    ours, usual = (value.detach().cpu().double() - start for value in (weights, theirs))
    # Not the judge: a tie in the rounding of one state decides about the largest error.
    assert (ours - exact).norm() <= FACTOR * (usual - exact).norm()
    assert (usual - exact).norm() < 0.1 * exact.norm()
