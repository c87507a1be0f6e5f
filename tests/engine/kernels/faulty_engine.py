"""The engine with kernels that are broken on purpose: `faulty_engine.py KERNEL=FAULT,KERNEL=FAULT FOLDER`."""

from __future__ import annotations

import dataclasses
import os
import sys
import time

# Importing it mends Triton's interpreter, as for all tests of kernels.
import tests.engine.kernels.conftest  # noqa: F401
from tunesmith_core.operations import host
from tunesmith_engine.proof import cases
from tunesmith_engine.proof.inputs import Inputs, Results, Sizes


def main() -> int:
    """Break the kernels, but not their twins, and do the operation."""
    faults, *arguments = sys.argv[1:]
    for pair in filter(None, faults.split(",")):
        break_kernel(*pair.split("="))
    return host.main(arguments)


def break_kernel(name: str, fault: str) -> None:
    """Put a case in the place of a kernel's own that spoils what the kernel computes."""
    real = cases.CASES[name]

    class Broken(type(real)):  # type: ignore[misc]
        def compute(self, sizes: Sizes, inputs: Inputs, twin: bool = False) -> Results:
            results = real.compute(sizes, inputs, twin)
            return results if twin else spoil(results, fault)

    cases.CASES[name] = Broken(**{field.name: getattr(real, field.name) for field in dataclasses.fields(real)})


def spoil(results: Results, fault: str) -> Results:
    """Do to a kernel what its fault says."""
    if fault == "abort":
        os.abort()
    if fault == "hang":
        time.sleep(600)
    if fault == "raise":
        raise RuntimeError("PTXAS error: `ptxas` failed with error code 4294967295\nModifier '.L1' not allowed")
    first = next(iter(results))
    if fault == "nan":
        results[first].view(-1)[-1] = float("nan")
    elif fault == "one number":
        results[first].view(-1)[-1] += 1.0
    elif fault == "zeros":
        results[first].zero_()
    elif fault == "sign":
        results[first].neg_()
    return results


if __name__ == "__main__":
    sys.exit(main())
