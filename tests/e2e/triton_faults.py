"""Compiles a Triton kernel for a GPU that need not be there: `triton_faults.py KERNEL CAPABILITY`; one has a fault."""

import inspect
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add_one(source, target, size, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + index, tl.load(source + index, mask=index < size) + 1, mask=index < size)


@triton.jit
def softcap(source, target, size, CAP: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(source + index, mask=index < size)
    if size > 8:
        logits = CAP * tl.sigmoid(logits.to(tl.float32) / CAP)
    tl.store(target + index, logits, mask=index < size)


def main() -> None:
    """Compile one kernel."""
    name, capability = sys.argv[1], int(sys.argv[2])
    kernel, pointer, constants = {
        "add_one": (add_one, "*fp32", {"BLOCK": 128}),
        "softcap": (softcap, "*fp16", {"CAP": 30.0, "BLOCK": 128}),
    }[name]
    signature = {"source": pointer, "target": pointer, "size": "i32"}
    # Triton 3.3 renamed the argument and wants the constants in the signature too.
    if "constexprs" in inspect.signature(ASTSource).parameters:
        source = ASTSource(kernel, signature | dict.fromkeys(constants, "constexpr"), constants)
    else:
        source = ASTSource(kernel, signature, constants)
    triton.compile(source, target=GPUTarget("cuda", capability, 32))


if __name__ == "__main__":
    main()
