"""AdamW, fused where PyTorch has it, and one update that leaves the weights alone when the gradient is not finite."""

from __future__ import annotations

import torch

from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.spec_sections import OptimizerSpec


class Updater:
    """Clips gradients and applies them.

    A gradient with NaN or infinity is skipped on the device itself: the fused AdamW takes a flag for that, so that the
    host need not wait for the GPU. The 8-bit optimizer has no such flag and waits.
    """

    def __init__(
        self,
        parameters: dict[str, torch.nn.Parameter],
        settings: OptimizerSpec,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.parameters = parameters
        self._settings = settings
        self._device = device
        self.optimizer = self._build()
        half = dtype == torch.float16 and device.type == "cuda"
        self.scaler = torch.amp.GradScaler(device.type) if half else None

    def _build(self) -> torch.optim.Optimizer:
        settings = self._settings
        decayed = [p for name, p in self.parameters.items() if "bias" not in name]
        plain = [p for name, p in self.parameters.items() if "bias" in name]
        groups = [
            {"params": group, "weight_decay": decay}
            for group, decay in ((decayed, settings.weight_decay), (plain, 0.0))
            if group
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
            raise EnvironmentProblem("bnb-cuda-lib-missing", f"bitsandbytes can't be loaded: {error}") from error
        return AdamW8bit(groups, **arguments)

    def backward(self, loss: torch.Tensor) -> None:
        """Add a loss's gradient to what is there."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def update(self, learning_rate: float) -> torch.Tensor:
        """Apply the gathered gradients and drop them.

        Returns:
            The gradient's norm before clipping, a scalar on the device.
        """
        optimizer = self.optimizer
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        if self.scaler:
            self.scaler.unscale_(optimizer)
        # Clipping at infinity measures the norm and multiplies by one.
        longest = self._settings.max_grad_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), longest)
        if self.scaler:
            self.scaler.step(optimizer)
            self.scaler.update()
        elif self._settings.name == "adamw":
            optimizer.found_inf = (~torch.isfinite(norm)).float()
            optimizer.step()
        elif torch.isfinite(norm):
            optimizer.step()
        self.drop_gradients()
        return norm

    def drop_gradients(self) -> None:
        """Forget gathered gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    # The state as tensors, for checkpoints

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return the optimizer's state: tensors and plain numbers, both under "parameter name:key"."""
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
        """Take over a state that `state` returned."""
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
