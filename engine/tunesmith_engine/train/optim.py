"""AdamW, fused where PyTorch has it, and one update that leaves the weights alone when the gradient is not finite."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.train.lora_plus import rate_factor

if TYPE_CHECKING:
    from tunesmith_engine.fused.arena import AdapterArena
    from tunesmith_engine.fused.weight_gradients import Consume
    from tunesmith_engine.train.arena_adamw import ArenaAdamW
    from tunesmith_engine.train.full_optim import FullOptimizer


class Updater:
    """Clips gradients and applies them.

    A gradient with NaN or infinity is skipped on the device itself: the fused AdamW takes a flag for that, so that the
    host need not wait for the GPU. bitsandbytes' 8-bit optimizer and those of full fine-tuning have no such flag and
    wait. Parameters that lie in an arena are updated all at once by our own kernels, which never wait.

    Attributes:
        goes_by_layer: whether a step of one micro-batch applies gradients as they come.
        consume: takes the gradients of weights as they come, in a step that goes layer by layer; else None.
    """

    def __init__(
        self,
        parameters: dict[str, torch.nn.Parameter],
        settings: OptimizerSpec,
        device: torch.device,
        dtype: torch.dtype,
        arena: AdapterArena | None = None,
        full: FullOptimizer | None = None,
        by_layer: bool = False,
    ) -> None:
        """Make the optimizer and, for float16 on a GPU, the scale of the loss.

        Args:
            parameters: what is trained, by name.
            settings: of the optimizer.
            device: where they are.
            dtype: number format of the run.
            arena: where all of the parameters lie, or None when each is a tensor of its own.
            full: the optimizer of full fine-tuning, None for that of an adapter.
            by_layer: whether gradients may come layer by layer.
        """
        self.parameters = parameters
        self._settings = settings
        half = dtype == torch.float16 and device.type == "cuda"
        self._arena = _in_arena(arena, settings, half) if arena is not None else None
        self.scaler = torch.amp.GradScaler(device.type) if half and self._arena is None else None
        # Any: an arena needs none, and only our code that has no arena asks for it.
        self.optimizer: Any = full or (self._build() if self._arena is None else None)
        self._full = full
        # A norm of all gradients is known too late for that.
        self.goes_by_layer = by_layer and not settings.max_grad_norm
        self.consume: Consume | None = None

    def _build(self) -> torch.optim.Optimizer:
        settings = self._settings
        members: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
        for name, parameter in self.parameters.items():
            decay = 0.0 if "bias" in name else settings.weight_decay
            members.setdefault((decay, rate_factor(name, parameter.ndim, settings)), []).append(parameter)
        groups = [
            {"params": group, "weight_decay": decay, "rate_factor": factor}
            for (decay, factor), group in members.items()
        ]
        arguments = {
            "lr": settings.learning_rate,
            "betas": (settings.beta1, settings.beta2),
            "eps": settings.epsilon,
        }
        if settings.name == "adamw":
            return torch.optim.AdamW(groups, fused=True, **arguments)
        try:
            from bitsandbytes.optim import AdamW8bit
        except (ImportError, OSError, RuntimeError) as error:
            raise TunesmithError(
                "bnb-cuda-lib-missing", "bitsandbytes can't be loaded: {error}", error=error
            ) from error
        return AdamW8bit(groups, **arguments)

    def loss_scale(self) -> torch.Tensor | None:
        """Return what gradients in the arena must be multiplied by, a scalar on the device; None for nothing."""
        return self._arena.loss_scale.scale if self._arena and self._arena.loss_scale else None

    def backward(self, loss: torch.Tensor) -> None:
        """Add a loss's gradient to what is there; gradients in an arena are not made by this."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def update(self, learning_rate: float) -> torch.Tensor:
        """Apply the gathered gradients and drop them.

        Returns:
            The gradient's norm before clipping, a scalar on the device.
        """
        if self._arena is not None:
            return self._arena.update(learning_rate)
        optimizer = self.optimizer
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group.get("rate_factor", 1.0)
        if self.scaler:
            self.scaler.unscale_(optimizer)
        # Clipping at infinity measures the norm and multiplies by one.
        longest = self._settings.max_grad_norm or float("inf")
        if self._full is not None:
            norm = self._full.measure(longest)
        else:
            norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), longest)
        if self.scaler:
            self.scaler.step(optimizer)
            self.scaler.update()
        elif self._settings.name == "adamw" and self._full is None:
            optimizer.found_inf = (~torch.isfinite(norm)).float()
            optimizer.step()
        elif torch.isfinite(norm):
            optimizer.step()
        self.drop_gradients()
        return norm

    # Layer by layer

    @contextlib.contextmanager
    def by_layer(self, learning_rate: float) -> Iterator[None]:
        """Make the context of a step that applies gradients as they come."""
        full = self._full
        assert full is not None
        full.param_groups[0]["lr"] = learning_rate
        self.consume = full.consume
        try:
            with full.by_layer():
                yield
        finally:
            self.consume = None

    @contextlib.contextmanager
    def trial(self, by_layer: bool) -> Iterator[None]:
        """Make the context of a trial: gradients that come layer by layer are dropped."""
        self.consume = _drop if by_layer else None
        try:
            yield
        finally:
            self.consume = None

    @property
    def norm(self) -> torch.Tensor:
        """The norm of all gradients of the last step that went layer by layer, a scalar on the device."""
        assert self._full is not None
        return self._full.norm

    def drop_gradients(self) -> None:
        """Forget gathered gradients."""
        if self._arena is not None:
            self._arena.drop_gradients()
            return
        self.optimizer.zero_grad()

    # The state as tensors, for checkpoints

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return the optimizer's state: tensors and plain numbers, both under "parameter name:key"."""
        if self._arena is not None:
            return self._arena.state()
        tensors: dict[str, torch.Tensor] = {}
        numbers: dict[str, float] = {}
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    tensors[f"{name}:{key}"] = value
                else:
                    numbers[f"{name}:{key}"] = value
        if self.scaler:
            numbers |= {f"scaler:{key}": value for key, value in self.scaler.state_dict().items()}
        return tensors, numbers

    def load_state(self, tensors: dict[str, torch.Tensor], numbers: dict[str, float]) -> None:
        """Take over a state that `state` returned, whichever way the parameters lay."""
        if self._arena is not None:
            self._arena.load_state(tensors, numbers)
            return
        scaler_state = {}
        for full_name, value in [*tensors.items(), *numbers.items()]:
            name, _, key = full_name.rpartition(":")
            if name == "scaler":
                scaler_state[key] = value
                continue
            parameter = self.parameters[name]
            if isinstance(value, torch.Tensor):
                value = value.to(parameter.device)
            self.optimizer.state[parameter][key] = value
        if self.scaler and scaler_state:
            self.scaler.load_state_dict(scaler_state)


def _drop(weights: Sequence[torch.nn.Parameter]) -> None:
    for weight in weights:
        weight.grad = None


def optimizer_of(tensors: dict[str, torch.Tensor]) -> str | None:
    """Return the name of the optimizer whose saved state that is, None for one that has made no step yet."""
    keys = {name.rpartition(":")[2] for name in tensors}
    return "adamw_8bit" if "state1" in keys else "adamw" if "exp_avg" in keys else None


def _in_arena(arena: AdapterArena, settings: OptimizerSpec, half: bool) -> ArenaAdamW:
    """Return our own optimizer, whose kernels are not imported where nothing is fused."""
    from tunesmith_engine.train.arena_adamw import ArenaAdamW

    return ArenaAdamW(arena, settings, half)
