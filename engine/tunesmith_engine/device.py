"""Where and in which number format a run computes."""

from __future__ import annotations

import contextlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BF16_CAPABILITY = (8, 0)
MOST_THREADS = 64
"""Of processors with fewer; more are of no use there."""


@dataclass(frozen=True, slots=True)
class Compute:
    """The device of a run and the number format of its frozen weights and arithmetic."""

    device: torch.device
    dtype: torch.dtype
    name: str
    num_threads: int

    def autocast(self) -> torch.autocast | contextlib.nullcontext[None]:
        """Return the context in which the model computes in `dtype` while the adapter's weights stay float32."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    @property
    def dtype_name(self) -> str:
        """Name as in a spec, such as "bfloat16"."""
        return str(self.dtype).removeprefix("torch.")


def choose_compute(spec: RunSpec) -> Compute:
    """Choose device and number format, and set the number of threads.

    Raises:
        EnvironmentProblem: `torch-cpu-build` or `driver-missing` when a GPU is asked for and can't be used.
    """
    if spec.hardware.cpu_threads:
        # Where the system refuses so many, the library behind them ends this process.
        torch.set_num_threads(min(spec.hardware.cpu_threads, max(MOST_THREADS, psutil.cpu_count() or 1)))
    wanted = spec.hardware.device
    if wanted == "cuda" and not torch.cuda.is_available():
        if torch.version.cuda is None:
            raise TunesmithError(
                "torch-cpu-build", "The run needs a GPU, but the installed PyTorch was built without CUDA."
            )
        raise TunesmithError("driver-missing", "The run needs a GPU, but PyTorch finds none.")
    if wanted == "cpu" or not torch.cuda.is_available():
        dtype = DTYPES.get(spec.model.dtype, torch.float32)
        return Compute(torch.device("cpu"), dtype, _processor_name(), torch.get_num_threads())
    # The supervisor shows this process one GPU only, so it is number 0 whatever its number in the spec.
    capability = torch.cuda.get_device_capability(0)
    best = torch.bfloat16 if capability >= BF16_CAPABILITY else torch.float16
    dtype = DTYPES.get(spec.model.dtype, best)
    if dtype == torch.bfloat16:
        dtype = best
    return Compute(torch.device("cuda", 0), dtype, torch.cuda.get_device_name(0), torch.get_num_threads())


def _processor_name() -> Message:
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        name = found[1] if found else name
    return Message("{name}, {count} threads", name=name, count=psutil.cpu_count() or 1)
