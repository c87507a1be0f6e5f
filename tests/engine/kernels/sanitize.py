"""Every kernel once on the GPU, at small sizes, for NVIDIA's compute-sanitizer (memcheck, racecheck, initcheck).

    export PYTHONPATH=engine:. PYTORCH_NO_CUDA_MEMORY_CACHING=1
    compute-sanitizer --tool memcheck --error-exitcode 1 python3 -m tests.engine.kernels.sanitize
    compute-sanitizer --tool racecheck --error-exitcode 1 python3 -m tests.engine.kernels.sanitize rms_norm rope

Without names every kernel runs that can run on this GPU, each named on standard error before. PyTorch's cache of memory
must be off: in it a step over the end of a tensor is a step into another.
"""

from __future__ import annotations

import os
import sys

import torch

from tunesmith_engine.proof.cases import CASES
from tunesmith_engine.proof.inputs import Inputs, Sizes

MODELS = {
    "llama": {"mlp": 176, "head_dim": 64, "rotary": 64, "four_bit": True},
    "qwen3": {"mlp": 176, "head_dim": 128, "rotary": 128, "head_norms": True},
    "gemma": {
        "mlp": 100, "head_dim": 256, "rotary": 256, "activation": "gelu_tanh", "plus_one": True, "cast_last": True,
        "softcap": 30.0, "attention_softcap": 50.0, "window": 16, "embedding_scale": 8.0, "four_bit": True,
    },
    "cohere": {"mlp": 177, "head_dim": 64, "rotary": 64, "centred": True, "cast_last": True, "interleaved": True},
    "phi": {"mlp": 128, "head_dim": 96, "rotary": 72, "activation": "gelu"},
}  # fmt: skip
SHARED = {"hidden": 200, "num_heads": 4, "num_key_value_heads": 2, "vocabulary": 1003}
"""Widths that are no multiples of blocks."""


def main() -> None:
    """Run the kernels that the command line names, or all."""
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ:
        sys.exit("Set PYTORCH_NO_CUDA_MEMORY_CACHING=1, else a step over the end of a tensor is not seen.")
    wanted = sys.argv[1:] or list(CASES)
    device = torch.device("cuda", 0)
    formats = ["float32", "float16"] + (["bfloat16"] if torch.cuda.get_device_capability(0) >= (8, 0) else [])
    for model, values in MODELS.items():
        for dtype in formats:
            sizes = Sizes(dtype=dtype, **SHARED, **values)
            for name in wanted:
                case = CASES[name]
                if case.runs(sizes, device):
                    sys.stderr.write(f"{model} {dtype} {name}\n")
                    run_dtype = torch.float32 if case.in_float32 else getattr(torch, dtype)
                    case.compute(sizes, Inputs(sizes, device, run_dtype))
                    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
