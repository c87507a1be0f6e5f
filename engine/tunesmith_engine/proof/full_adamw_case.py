"""AdamW of whole weights, beside its twin: in float32, and in bfloat16 by an update that float32 holds exactly."""

from __future__ import annotations

import torch

from tunesmith_core.hardware import DOT_CAPABILITY
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.adamw_8bit import State
from tunesmith_engine.kernels.full_adamw import Numbers, full_adamw, full_adamw_8bit
from tunesmith_engine.proof.inputs import Inputs, Results

NUM_WEIGHTS = 5 * 256 + 9
"""The last block is not full."""
KEY = -987654321


def updated_weights(inputs: Inputs) -> Results:
    """Return what two updates make of random weights."""
    from bitsandbytes.functional import create_dynamic_map

    usual = Numbers(0.9, 0.999, 1e-8, 0.999, 0.1, 0.9, KEY)
    # Any gradient comes to its sign, and the step to a power of two.
    exact = Numbers(0.0, 0.0, 0.0, 1.0, 2.0**-10, 1.0, KEY)
    control = torch.tensor([1.0, 0.5], device=inputs.device)
    signs = inputs.random(NUM_WEIGHTS).sign() + (inputs.random(NUM_WEIGHTS) == 0)
    found: Results = {}
    # GPUs before Ampere have no bfloat16, nor weights in it; the processor's twin has.
    is_old = (0, 0) < registry.capability(inputs.device) < DOT_CAPABILITY
    cases = [("float32", usual, torch.float32), ("bfloat16", exact, torch.bfloat16)]
    for name, numbers, dtype in cases[: 1 if is_old else 2]:
        weight, gradient = inputs.random(NUM_WEIGHTS).to(dtype), inputs.random(NUM_WEIGHTS).to(dtype)
        if numbers is exact:
            weight, gradient = weight.sign(), signs.to(dtype)
        mean, square = (torch.zeros(NUM_WEIGHTS, device=inputs.device) for _ in range(2))
        padded = -(-NUM_WEIGHTS // 256) * 256
        tables = (create_dynamic_map(signed=each).to(inputs.device) for each in (True, False))
        mean_in_8_bits, square_in_8_bits = (State.zeros(padded, table) for table in tables)
        other = weight.clone()
        full_adamw(weight, gradient, mean, square, control, numbers)
        full_adamw_8bit(other, signs.to(dtype), mean_in_8_bits, square_in_8_bits, control, numbers)
        full_adamw(weight, gradient, mean, square, control * 0, numbers)
        found |= {f"{name} weights": weight, f"{name} mean": mean, f"{name} square": square}
        found |= {f"{name} weights by 8 bits": other, f"{name} mean in 8 bits": mean_in_8_bits.read()}
        found |= {f"{name} square in 8 bits": square_in_8_bits.read()}
    return found
