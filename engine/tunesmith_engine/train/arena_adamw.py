"""AdamW over the adapter arena: norm, clipping, loss scale and skipped steps are numbers on the device.

A checkpoint holds what the plain optimizers would hold, under "parameter name:key", so a run goes on with the kernels
switched on or off: each parameter starts a block of 256, and its part of a flat state is its own state.
"""

from __future__ import annotations

from typing import Any

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.fused.arena import AdapterArena
from tunesmith_engine.kernels.adamw import BLOCK_SIZE, adamw_step, gradient_norm
from tunesmith_engine.kernels.adamw_8bit import State, adamw_8bit_step
from tunesmith_engine.train.lora_plus import rate_factor

CLIP_EPSILON = 1e-6
"""Added to the norm by `torch.nn.utils.clip_grad_norm_`."""

MOMENTS = {"exp_avg": True, "exp_avg_sq": False}
"""AdamW's states as PyTorch names them, and whether their values have a sign."""


class LossScale:
    """The factor that keeps float16 gradients from vanishing: `torch.amp.GradScaler`'s rule and defaults.

    Attributes:
        scale: 0-dim float32 on the device.
    """

    GROWTH_FACTOR, BACKOFF_FACTOR, GROWTH_INTERVAL = 2.0, 0.5, 2000

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.tensor(65536.0, device=device)
        self._num_good_steps = torch.zeros((), dtype=torch.int32, device=device)

    def update(self, finite: torch.Tensor) -> None:
        """Halve the scale after a step that was not finite, double it after enough good ones."""
        torch._amp_update_scale_(
            self.scale,
            self._num_good_steps,
            (~finite).float(),
            self.GROWTH_FACTOR,
            self.BACKOFF_FACTOR,
            self.GROWTH_INTERVAL,
        )

    def state(self) -> dict[str, float]:
        """Return what GradScaler's `state_dict` has."""
        return {
            "scale": self.scale.item(),
            "growth_factor": self.GROWTH_FACTOR,
            "backoff_factor": self.BACKOFF_FACTOR,
            "growth_interval": self.GROWTH_INTERVAL,
            "_growth_tracker": self._num_good_steps.item(),
        }

    def load_state(self, state: dict[str, float]) -> None:
        """Take over what `state` returned."""
        self.scale.fill_(state["scale"])
        self._num_good_steps.fill_(int(state["_growth_tracker"]))


class ArenaAdamW:
    """Clips the arena's gradients and applies them; the host never waits.

    With 8-bit states every parameter has them; bitsandbytes leaves those below 4,096 elements in 32 bits.

    Attributes:
        loss_scale: None unless asked for.
    """

    def __init__(self, arena: AdapterArena, settings: OptimizerSpec, scaled: bool) -> None:
        self._arena = arena
        self._settings = settings
        device, num_weights = arena.weights.device, arena.weights.numel()
        self.loss_scale = LossScale(device) if scaled else None
        self._num_steps = torch.zeros((), dtype=torch.float64, device=device)
        self._betas = torch.tensor([settings.beta1, settings.beta2], dtype=torch.float64, device=device)
        self._learning_rate = torch.zeros((), dtype=torch.float64, device=device)
        self._decayed = self._decayed_blocks() if settings.weight_decay else None
        self._rates = self._rates_of_blocks()
        self._in_8_bits = in_8_bits = settings.name == "adamw_8bit"
        # Any: flat tensors, or their states in 8 bits
        self._moments: dict[str, Any] = {key: torch.zeros_like(arena.weights) for key in MOMENTS if not in_8_bits} or {
            key: State.zeros(num_weights, table_of_8_bits(signed).to(device)) for key, signed in MOMENTS.items()
        }

    def _decayed_blocks(self) -> torch.Tensor | None:
        """Return which blocks take part in weight decay, or None when all do: biases don't."""
        biases = [name for name in self._arena.parameters if "bias" in name]
        if not biases:
            return None
        decayed = torch.ones(self._arena.weights.numel() // BLOCK_SIZE, dtype=torch.uint8)
        for name in biases:
            places = self._arena.slices[name]
            decayed[places.start // BLOCK_SIZE : -(-places.stop // BLOCK_SIZE)] = 0
        return decayed.to(self._arena.weights.device)

    def _rates_of_blocks(self) -> torch.Tensor | None:
        """Return by what the learning rate is multiplied in each block, or None when by nothing."""
        factors = {name: rate_factor(name, p.ndim, self._settings) for name, p in self._arena.parameters.items()}
        if set(factors.values()) == {1.0}:
            return None
        rates = torch.ones(self._arena.weights.numel() // BLOCK_SIZE)
        for name, factor in factors.items():
            places = self._arena.slices[name]
            rates[places.start // BLOCK_SIZE : -(-places.stop // BLOCK_SIZE)] = factor
        return rates.to(self._arena.weights.device)

    def update(self, learning_rate: float) -> torch.Tensor:
        """Apply the gathered gradients unless they aren't finite, and set them to zero.

        Returns:
            The gradient's norm before clipping and without the loss scale, a scalar on the device.
        """
        arena, settings = self._arena, self._settings
        norm = gradient_norm(arena.gradients, torch.empty((), device=arena.gradients.device))
        inverse_scale = 1.0 if self.loss_scale is None else 1.0 / self.loss_scale.scale
        norm = norm * inverse_scale
        # Not isfinite, which is four launches.
        finite = norm < float("inf")
        self._learning_rate.fill_(learning_rate)
        control = self._control(norm, finite, inverse_scale)
        step = adamw_8bit_step if self._in_8_bits else adamw_step
        mean, square = self._moments.values()
        betas = (settings.beta1, settings.beta2)
        step(arena.weights, arena.gradients, mean, square, control, betas, settings.epsilon, self._decayed, self._rates)
        if self.loss_scale is not None:
            self.loss_scale.update(finite)
        return norm

    def _control(self, norm: torch.Tensor, finite: torch.Tensor, inverse_scale: torch.Tensor | float) -> torch.Tensor:
        """Count the step and return its numbers as `kernels.adamw.CONTROL` names them."""
        self._num_steps += finite
        corrections = 1.0 - self._betas**self._num_steps
        longest = self._settings.max_grad_norm
        clipping = (longest / (norm + CLIP_EPSILON)).clamp(max=1.0) if longest else torch.ones_like(norm)
        numbers = [
            finite,
            clipping * inverse_scale,
            self._learning_rate * self._settings.weight_decay,
            self._learning_rate / corrections[0],
            corrections[1].sqrt(),
        ]
        return torch.stack(numbers).float()

    def drop_gradients(self) -> None:
        """Forget gathered gradients."""
        self._arena.gradients.zero_()

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return the state as the plain optimizer would: tensors and plain numbers under "parameter name:key"."""
        tensors: dict[str, torch.Tensor] = {}
        numbers: dict[str, float] = {}
        for name in self._arena.parameters:
            if self._in_8_bits:
                for place, moment in enumerate(self._moments.values(), 1):
                    tensors[f"{name}:state{place}"] = self._arena.view(moment.codes, name)
                    tensors[f"{name}:qmap{place}"] = moment.table
                    tensors[f"{name}:absmax{place}"] = moment.part(self._arena.slices[name]).scales
                numbers[f"{name}:step"] = int(self._num_steps.item())
            else:
                tensors[f"{name}:step"] = self._num_steps.float()
                for key, moment in self._moments.items():
                    tensors[f"{name}:{key}"] = self._arena.view(moment, name)
        if self.loss_scale is not None:
            numbers |= {f"scaler:{key}": value for key, value in self.loss_scale.state().items()}
        return tensors, numbers

    def load_state(self, tensors: dict[str, torch.Tensor], numbers: dict[str, float]) -> None:
        """Take over a state that this or the plain optimizer returned."""
        for name in self._arena.parameters:
            step = tensors.get(f"{name}:step", numbers.get(f"{name}:step"))
            if step is None:
                # The plain optimizer has no state before its first step.
                continue
            self._num_steps.fill_(float(step))
            for place, (key, moment) in enumerate(self._moments.items(), 1):
                if self._in_8_bits:
                    scales = tensors.get(f"{name}:absmax{place}")
                    self._load_8_bits(name, moment, tensors[f"{name}:state{place}"], scales)
                else:
                    self._arena.view(moment, name).copy_(tensors[f"{name}:{key}"])
        if self.loss_scale is not None and "scaler:scale" in numbers:
            self.loss_scale.load_state(
                {key.removeprefix("scaler:"): value for key, value in numbers.items() if key.startswith("scaler:")}
            )

    def _load_8_bits(self, name: str, moment: State, values: torch.Tensor, scales: torch.Tensor | None) -> None:
        part = moment.part(self._arena.slices[name])
        if scales is None:
            # A small parameter, which bitsandbytes keeps in 32 bits.
            padded = torch.zeros(part.codes.numel(), device=part.codes.device)
            padded[: values.numel()] = values.flatten()
            part.write(padded)
            return
        self._arena.view(moment.codes, name).copy_(values)
        part.scales.copy_(scales)


def table_of_8_bits(signed: bool) -> torch.Tensor:
    """Return bitsandbytes' table of 8-bit values."""
    try:
        from bitsandbytes.functional import create_dynamic_map
    except (ImportError, OSError, RuntimeError) as error:
        raise TunesmithError("bnb-cuda-lib-missing", "bitsandbytes can't be loaded: {error}", error=error) from error
    table: torch.Tensor = create_dynamic_map(signed=signed)
    return table
