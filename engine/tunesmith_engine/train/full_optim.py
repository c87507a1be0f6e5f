"""Optimizers of full fine-tuning: every weight is updated in float32 and stored in its own format.

AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101), the same with 8-bit states (Dettmers et al. 2022,
arXiv:2110.02861), Adafactor (Shazeer and Stern 2018, arXiv:1804.04235) and Muon (Jordan et al. 2024,
kellerjordan.github.io/posts/muon). Large weights are updated part by part, so that what is computed on the way stays
small; Adafactor and Muon need a matrix as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_core.trained_parts import TRANSIENT_WEIGHTS, by_muon
from tunesmith_engine.kernels import full_adamw
from tunesmith_engine.kernels.adamw import BLOCK_SIZE
from tunesmith_engine.kernels.adamw_8bit import State
from tunesmith_engine.kernels.rounding import key_of, signed, store_rounded
from tunesmith_engine.train.arena_adamw import CLIP_EPSILON, table_of_8_bits
from tunesmith_engine.train.oom import is_out_of_memory

LEAST_IN_8_BITS = 4096
"""Weights of the smallest parameter with 8-bit states, as in bitsandbytes; smaller ones, such as norms, are the most
sensitive and take next to no memory."""

MOMENTS, MOMENTS_IN_8_BITS = ("exp_avg", "exp_avg_sq"), ("state1", "state2")
"""Names of AdamW's states in PyTorch and in bitsandbytes."""

MUON_MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
MUON_RMS = 0.2
"""Root mean square of AdamW's updates, to which Muon's are scaled (Liu et al. 2025, arXiv:2502.16982), so that one
learning rate suits both."""

ADAFACTOR_DECAY = -0.8
ADAFACTOR_EPSILON = 1e-30
ADAFACTOR_CLIPPING = 1.0

States = dict[str, Any]  # Any: tensors, and the number of steps


class FullOptimizer(torch.optim.Optimizer):
    """Updates weights of any format.

    Args:
        parameters: what is trained, by name.
        settings: of the optimizer.
        seed: of the stochastic rounding of bfloat16 weights.
    """

    def __init__(self, parameters: dict[str, torch.nn.Parameter], settings: OptimizerSpec, seed: int) -> None:
        super().__init__([{"params": list(parameters.values())}], {"lr": settings.learning_rate})
        self._parameters, self._settings, self._seed = parameters, settings, seed
        self._factor = torch.ones((), device=next(iter(parameters.values())).device)
        self._places = {id(weight): (number, name) for number, (name, weight) in enumerate(parameters.items())}
        self._norms: list[torch.Tensor] = []
        if settings.name == "adamw_8bit":
            device = next(iter(parameters.values())).device
            self._tables = [table_of_8_bits(signed).to(device) for signed in (True, False)]
        # All of them now: too little memory shows before the first step, not half-way through an update.
        for name, weight in parameters.items():
            self.state[weight] |= {"step": 0, **self._fresh_states(name, weight)}

    def _fresh_states(self, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        kind, size = self._settings.name, weight.numel()

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, device=weight.device)

        if kind == "adafactor" and weight.dim() > 1:
            rows, columns = weight.shape[:-1], (*weight.shape[:-2], weight.shape[-1])
            return {"exp_avg_sq_row": zeros(*rows), "exp_avg_sq_col": zeros(*columns)}
        if kind == "adafactor":
            return {"exp_avg_sq": zeros(*weight.shape)}
        if kind == "muon" and by_muon(name, weight.shape):
            return {"momentum_buffer": zeros(*weight.shape)}
        if kind != "adamw_8bit":
            return {key: zeros(*weight.shape) for key in MOMENTS}
        if size < LEAST_IN_8_BITS:
            return {key: zeros(*weight.shape) for key in MOMENTS_IN_8_BITS}
        padded = -(-size // BLOCK_SIZE) * BLOCK_SIZE
        states = [State.zeros(padded, table) for table in self._tables]
        codes = {f"state{place}": state.codes for place, state in enumerate(states, 1)}
        return codes | {f"absmax{place}": state.scales for place, state in enumerate(states, 1)}

    @torch.no_grad()
    def measure(self, longest: float) -> torch.Tensor:
        """Return the norm of all gradients, float32 on the device; the next step clips them to the longest."""
        norm = _norm(self._parameters.values())
        self._factor = (longest / (norm + CLIP_EPSILON)).clamp(max=1.0)
        return norm

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update all weights that have a gradient.

        Raises:
            RunFailure: `cuda-oom` when memory ends on the way: some weights are updated then, so the step can't be
                tried again.
        """
        del closure
        control = torch.stack([torch.ones_like(self._factor), self._factor])
        with no_half_updates():
            for weight in self._parameters.values():
                if weight.grad is not None:
                    self._update(weight, control)

    # Layer by layer

    @contextlib.contextmanager
    def by_layer(self) -> Iterator[None]:
        """Make the context of a step in which `consume` is called for weights as their gradients come.

        Raises:
            RunFailure: `cuda-oom` when memory ends behind the first update, as in `step`.
        """
        self._norms = []
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if self._norms and is_out_of_memory(error):
                raise half_updated() from error
            raise

    @torch.no_grad()
    def consume(self, weights: Sequence[torch.nn.Parameter]) -> None:
        """Update weights by their whole gradients, unless those aren't all finite, and drop these.

        A step that is left out counts for the correction of the moments; that is known to the host.
        """
        norm = _norm(weights)
        self._norms.append(norm)
        control = torch.stack([torch.isfinite(norm).float(), torch.ones_like(norm)])
        with no_half_updates():
            for weight in weights:
                self._update(weight, control, may_be_left_out=True)
                weight.grad = None

    @property
    def norm(self) -> torch.Tensor:
        """The norm of all gradients that were consumed in the last step, float32 on the device."""
        return torch.linalg.vector_norm(torch.stack(self._norms))

    def _update(self, weight: torch.nn.Parameter, control: torch.Tensor, may_be_left_out: bool = False) -> None:
        """Update a weight, or only its number of steps where `control` says so."""
        number, name = self._places[id(weight)]
        states = self.state[weight]
        states["step"] += 1
        key = key_of(self._seed, states["step"], number)
        rate = self.param_groups[0]["lr"]
        rule = self._rule(name, weight)
        # AdamW reads it on the device; the others wait for it.
        if may_be_left_out and rule in (_adafactor, _muon) and not bool(control[0]):
            return
        rule(_Turn(weight, states, key, control, rate, self._settings))

    def _rule(self, name: str, weight: torch.Tensor) -> Callable[[_Turn], None]:
        kind = self._settings.name
        if kind == "adafactor":
            return _adafactor
        if kind == "muon" and by_muon(name, weight.shape):
            return _muon
        return self._adamw_8bit if kind == "adamw_8bit" else _adamw

    def _adamw_8bit(self, turn: _Turn) -> None:
        """Do AdamW with states as bitsandbytes has them, under its names."""
        states = turn.states
        if turn.weight.numel() < LEAST_IN_8_BITS:
            _adamw(turn, MOMENTS_IN_8_BITS)
            return
        mean, square = (
            State(states[f"state{place}"], states[f"absmax{place}"], table, (table[:-1] + table[1:]) / 2)
            for place, table in enumerate(self._tables, 1)
        )
        full_adamw.full_adamw_8bit(turn.flat, turn.flat_gradient, mean, square, turn.control, turn.numbers())


def _norm(weights: Iterable[torch.nn.Parameter]) -> torch.Tensor:
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in gradients]
    return torch.linalg.vector_norm(torch.stack(norms))


@contextlib.contextmanager
def no_half_updates() -> Iterator[None]:
    """Make the context of updates that can't be tried again."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise half_updated() from error


def half_updated() -> Exception:
    """Return the failure of a step of which a part is applied already."""
    return TunesmithError(
        "cuda-oom",
        "There was not enough memory to apply an update.",
        hint="Resume the run with 8-bit states or smaller micro-batches.",
    )


class _Turn:
    """The update of one weight.

    Attributes:
        weight: any shape.
        states: of it.
        control: as `full_adamw` wants it; the second number is the factor of the gradient.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        states: States,
        key: int,
        control: torch.Tensor,
        rate: float,
        settings: OptimizerSpec,
    ) -> None:
        self.weight, self.states, self.rate, self.settings = weight, states, rate, settings
        self._key, self.control = signed(key), control
        self.flat = weight.view(-1)
        assert weight.grad is not None
        self.flat_gradient = weight.grad.reshape(-1)
        # Gains of norms and biases are not pulled toward zero.
        self.decay = settings.weight_decay if weight.dim() > 1 else 0.0

    def parts(self) -> Iterator[slice]:
        """Yield the parts that the weight is updated by."""
        for start in range(0, self.flat.numel(), TRANSIENT_WEIGHTS):
            yield slice(start, min(start + TRANSIENT_WEIGHTS, self.flat.numel()))

    def gradient(self, places: slice) -> torch.Tensor:
        """Return the clipped gradient in float32, flat."""
        return self.flat_gradient[places].float() * self.control[1]

    def numbers(self) -> full_adamw.Numbers:
        """Return the numbers of AdamW's step."""
        settings, step = self.settings, self.states["step"]
        step_size, root = self.rate / (1.0 - settings.beta1**step), (1.0 - settings.beta2**step) ** 0.5
        kept, key = 1.0 - self.rate * self.decay, self._key
        return full_adamw.Numbers(settings.beta1, settings.beta2, settings.epsilon, kept, step_size, root, key)

    def whole_gradient(self) -> torch.Tensor:
        """Return the clipped gradient in float32, in the weight's shape."""
        return self.gradient(slice(0, self.flat.numel())).view(self.weight.shape)

    def decayed(self, places: slice) -> torch.Tensor:
        """Return weights after their decay, flat float32."""
        return self.flat[places].float() * (1.0 - self.rate * self.decay)

    def store(self, places: slice, values: torch.Tensor) -> None:
        """Write new weights, flat float32."""
        store_rounded(self.flat[places], values, self._key, places.start)

    def subtract(self, update: torch.Tensor) -> None:
        """Take an update times the learning rate from the weight, float32 in its shape."""
        for places in self.parts():
            self.store(places, self.decayed(places) - self.rate * update.reshape(-1)[places])


def _adamw(turn: _Turn, names: tuple[str, str] = MOMENTS) -> None:
    mean, square = (turn.states[name].view(-1) for name in names)
    full_adamw.full_adamw(turn.flat, turn.flat_gradient, mean, square, turn.control, turn.numbers())


def _adafactor(turn: _Turn) -> None:
    """Do Adafactor without momentum at a given learning rate, as in transformers."""
    gradient, states = turn.whole_gradient(), turn.states
    square = gradient.square().add_(ADAFACTOR_EPSILON)
    keep = 1.0 - states["step"] ** ADAFACTOR_DECAY
    if gradient.dim() < 2:
        update = _running(states, "exp_avg_sq", square, keep).rsqrt()
    else:
        rows = _running(states, "exp_avg_sq_row", square.mean(-1), keep)
        columns = _running(states, "exp_avg_sq_col", square.mean(-2), keep)
        of_row = (rows / rows.mean(-1, keepdim=True)).rsqrt().unsqueeze(-1)
        update = of_row * columns.rsqrt().unsqueeze(-2)
    update *= gradient
    root_mean_square = update.norm() / update.numel() ** 0.5
    turn.subtract(update / (root_mean_square / ADAFACTOR_CLIPPING).clamp(min=1.0))


def _running(states: States, name: str, value: torch.Tensor, keep: float) -> torch.Tensor:
    mean: torch.Tensor = states[name].mul_(keep).add_(value, alpha=1.0 - keep)
    return mean


def _muon(turn: _Turn) -> None:
    gradient = turn.whole_gradient()
    momentum = turn.states["momentum_buffer"].lerp_(gradient, 1.0 - MUON_MOMENTUM)
    update = orthogonal(gradient.lerp_(momentum, MUON_MOMENTUM))
    turn.subtract(update * (MUON_RMS * max(update.shape) ** 0.5))


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Return about the nearest matrix with singular values of one, by Newton-Schulz iterations, in float32.

    On a GPU the products are those of bfloat16, which suffices (Jordan et al. 2024).
    """
    linear, cubic, quintic = NEWTON_SCHULZ
    value = matrix.to(torch.bfloat16) if matrix.is_cuda else matrix
    is_tall = value.shape[0] > value.shape[1]
    value = value.T if is_tall else value
    value = value / (value.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = value @ value.T
        value = linear * value + (cubic * square + quintic * square @ square) @ value
    return (value.T if is_tall else value).float()
