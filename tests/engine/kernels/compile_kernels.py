"""Compiles every kernel for a GPU that need not be there: CAPABILITY JOURNAL MODEL:DTYPE:CASE....

The cases of the proof run on tensors of the processor up to each launch, with Triton believing in a GPU of the wanted
architecture, and every launch compiles without starting. So what is compiled are the specialisations, constants and
options that the launchers choose for real widths. The journal gets a line of JSON before each case, for a pair that
the compiler can't serve may end this process, and one for each program.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from tests.engine.kernels.model_sizes import sizes_of_model
from tunesmith_core.hardware import DOT_CAPABILITY
from tunesmith_engine.kernels import registry
from tunesmith_engine.proof.cases import CASES
from tunesmith_engine.proof.inputs import Inputs

ABORT = "abort"
"""A case that ends the process, as the compiler does on a pair that it can't serve."""

SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def main() -> None:
    """Compile the cases of the command line."""
    capability, journal = int(sys.argv[1]), Path(sys.argv[2])
    believe_in_gpu(capability)
    with journal.open("a") as lines:
        recorder = Recorder(lines)
        for case in sys.argv[3:]:
            recorder.write(case=case)
            recorder.case = case
            model, dtype, name = case.split(":")
            sizes = sizes_of_model(model, dtype)
            if name == ABORT:
                os.abort()
            cpu = torch.device("cpu")
            if not CASES[name].runs(sizes, cpu):
                recorder.write(case=case, declined=True)
                continue
            try:
                CASES[name].compute(sizes, Inputs(sizes, cpu, getattr(torch, dtype)))
            except Exception as error:
                recorder.write(case=case, error=f"{type(error).__name__}: {error}"[-1000:])


class Recorder:
    """Compiles instead of launching, and writes down what ptxas says about each program."""

    def __init__(self, lines: Any) -> None:
        self.lines, self.case, self.log = lines, "", ""
        run, ptxas, seen = JITFunction.run, subprocess.run, set()

        def compile_only(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            started_s, self.log = time.monotonic(), ""
            compiled = run(function, *args, grid=grid, warmup=True, **options)
            if compiled.hash not in seen:
                seen.add(compiled.hash)
                self.write_program(function, compiled, time.monotonic() - started_s)
            return compiled

        def listen(command: list[str], **options: Any) -> Any:
            ended = ptxas(command, **options)
            self.log += Path(options["stderr"].name).read_text()
            return ended

        JITFunction.run = compile_only
        # The compiler's own name alone: nothing else hears of it. Triton 3.2 holds a copy of the importable module.
        backends["nvidia"].compiler.make_cubin.__globals__["subprocess"] = SimpleNamespace(
            **{**vars(subprocess), "run": listen}
        )

    def write(self, **values: Any) -> None:
        self.lines.write(json.dumps(values) + "\n")
        self.lines.flush()

    def write_program(self, function: Any, compiled: Any, seconds: float) -> None:
        self.write(
            case=self.case,
            kernel=function.__name__,
            seconds=round(seconds, 2),
            num_registers=max(int(found) for found in REGISTERS.findall(self.log)),
            spilled_bytes=max(int(a) + int(b) for a, b in SPILLS.findall(self.log)),
            num_threads=32 * compiled.metadata.num_warps,
            shared_bytes=compiled.metadata.shared,
            uses_dot="tt.dot" in compiled.asm["ttir"],
            uses_bf16="bf16" in compiled.asm["ttir"],
            fuses_products="fma.rn.f32" in compiled.asm["ptx"],
        )


def believe_in_gpu(capability: int) -> None:
    """Let Triton and the launchers see a GPU of a compute capability, 90 for 9.0."""
    target = GPUTarget("cuda", capability, 32)
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_current_stream=lambda _device: 0,
        )
    )
    pair = divmod(capability, 10)
    registry.capability = lambda _device: pair
    registry.reason_off = lambda _name, _device, needs_dot=False: (
        "too old" if pair < (DOT_CAPABILITY if needs_dot else registry.OLDEST_CAPABILITY) else None
    )


if __name__ == "__main__":
    main()
