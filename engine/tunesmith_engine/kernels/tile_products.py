"""Matrix products of tiles, by how many digits of float32 they keep: what tensor cores do with float32 is TF32.

TF32 has the range of float32 and 11 of its 24 binary digits, as float16 has; it holds float16 and bfloat16 exactly.
Tensor cores take float32 numbers and cut them off.
"""

from __future__ import annotations

from tunesmith_engine.kernels.triton_import import jit, tl


@jit
def product(a, b):
    """Return a product of float32 tiles in TF32, or of tiles of 16-bit inputs, which is exact but for its sums."""
    return tl.dot(a, b, input_precision="tf32")


@jit
def nearest_tf32(x):
    """Return float32 numbers rounded to the nearest that TF32 holds, so that a product takes them as they are."""
    return ((x.to(tl.int32, bitcast=True) + (1 << 12)) & -(1 << 13)).to(tl.float32, bitcast=True)


@jit
def fine_product(a, b):
    """Return a product of float32 tiles by three in TF32, whose rounding is nearly that of float32."""
    a_large, b_large = nearest_tf32(a), nearest_tf32(b)
    return product(a_large, b - b_large) + product(a - a_large, b_large) + product(a_large, b_large)


# Below, `like_ptr` points at inputs. Others than bfloat16 only Triton's interpreter has, where float32 stays exact.


@jit
def as_taken(x, like_ptr):
    """Return float32 numbers as `product` is to take them: the nearest in TF32."""
    return nearest_tf32(x) if like_ptr.dtype.element_ty == tl.bfloat16 else x


@jit
def product_in_full(a, b, like_ptr):
    """Return a product of float32 tiles, whose rounding is nearly that of float32."""
    return fine_product(a, b) if like_ptr.dtype.element_ty == tl.bfloat16 else product(a, b)


@jit
def thirds(a, like_ptr):
    """Return a float32 tile as a sum of three in bfloat16 that `product_by` takes."""
    if like_ptr.dtype.element_ty == tl.bfloat16:
        large = a.to(tl.bfloat16)
        left = a - large.to(tl.float32)
        middle = left.to(tl.bfloat16)
        small = (left - middle.to(tl.float32)).to(tl.bfloat16)
    else:
        large = a
        middle = tl.zeros_like(a)
        small = middle
    return large, middle, small


@jit
def product_by(large, middle, small, x):
    """Return the product of a float32 tile in thirds and a tile of inputs, whose rounding is nearly that of float32.

    Three products of bfloat16 take tensor cores as long as one and a half in TF32, whose operands are twice as large.
    """
    x = x.to(large.dtype)
    return product(small, x) + product(middle, x) + product(large, x)
