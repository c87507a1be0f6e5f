"""The memory plan's test: one real step on the longest batch tells the true peak."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.preparation import Preparation
from tunesmith_engine.train.assembly import Assembly, make_parts
from tunesmith_engine.train.memory_trial import longest_rows


def plan_check(spec: RunSpec, preparation: Preparation) -> dict[str, Any]:  # Any: JSON values
    """Train one step on the longest rows and return what it needed.

    Args:
        spec: the run.
        preparation: of its data.

    Returns:
        device, dtype, peak_bytes (allocator's peak on a GPU, the process's on the CPU), reserved_bytes (GPU only),
        micro_batch_size, longest_tokens, step_s, kernels (what runs fused, a sentence each), notes (how rows
        became tokens, a sentence each).

    Raises:
        TunesmithError: whatever a run would meet as well, `cuda-oom` among it.
    """
    compute = choose_compute(spec)
    parts = make_parts(spec, compute, preparation)
    assert parts is not None, "nobody asked to stop"
    parts.model.train()
    size = spec.schedule.micro_batch_size
    path = parts.open_path(size, lambda *_: None)
    assembly = Assembly(parts, path)
    longest = longest_rows(parts.data.train, size)
    started_s = time.monotonic()
    losses, _ = assembly.update(longest, spec.optimizer.learning_rate)
    # Waits for the GPU.
    losses.tolist()
    result = {
        "device": str(compute.device),
        "dtype": compute.dtype_name,
        "micro_batch_size": size,
        "longest_tokens": max(len(sequence.input_ids) for row in longest for sequence in row.sequences),
        "step_s": round(time.monotonic() - started_s, 4),
        "kernels": path.report,
        "notes": list(parts.data.notes.values()),
    }
    if compute.device.type == "cuda":
        reserved_bytes = torch.cuda.max_memory_reserved(compute.device)
        return {
            **result,
            "peak_bytes": torch.cuda.max_memory_allocated(compute.device),
            "reserved_bytes": reserved_bytes,
        }
    return {**result, "peak_bytes": _process_peak_bytes()}


def _process_peak_bytes() -> int:
    memory = psutil.Process().memory_info()
    if hasattr(memory, "peak_wset"):  # pragma: no cover - only on Windows
        return int(memory.peak_wset)
    # ru_maxrss would not do: a new process begins with its parent's.
    highest = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    return int(highest[1]) * 1024 if highest else int(memory.rss)
