"""One small random case of every kernel, forwards and backwards, through the launchers that a run calls.

Three readers share them: the proof before step 0 compares each with its twin on this machine, a test compiles each for
every architecture that a launcher may choose, and another runs them under NVIDIA's compute-sanitizer. So what they
prove are the programs, settings and number formats that a run launches, not a copy of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tunesmith_core.packed_weights import MXFP4_GROUP
from tunesmith_engine.kernels import registry
from tunesmith_engine.proof import expert_cases, mixer_cases
from tunesmith_engine.proof.attention_case import BACKEND_CASES, BackendCase
from tunesmith_engine.proof.inputs import NUM_ROWS, PADDING, Inputs, Results, Sizes

if TYPE_CHECKING:
    from tunesmith_engine.kernels.nf4 import FourBitWeight

NUM_WEIGHTS = 5 * 256
"""Of an optimizer's step: whole blocks of 8-bit states."""


@dataclass(frozen=True, slots=True)
class KernelCase:
    """How a kernel is tried.

    Attributes:
        name: in the kernel registry.
        launch: run the launchers and return what they write.
        in_float32: it computes in float32 in every run.
        wanted: whether a model of these sizes uses the kernel.
        exact_dtype: the most exact format that its twin computes in.
        needs_dot: it runs on tensor cores alone.
    """

    name: str
    launch: Callable[[Sizes, Inputs], Results]
    in_float32: bool = False
    wanted: Callable[[Sizes], bool] = lambda _: True
    exact_dtype: torch.dtype = torch.float64
    needs_dot: bool = False

    def runs(self, sizes: Sizes, device: torch.device) -> bool:
        """Return whether a run would use the kernel and not its twin."""
        return self.wanted(sizes) and registry.runs(self.name, device, self.needs_dot)

    def compute(self, sizes: Sizes, inputs: Inputs, twin: bool = False) -> Results:
        """Return what the kernel computes, or its twin, which the launchers choose from then on."""
        if twin:
            registry.switch_off(self.name, "Its twin is computed.")
        return self.launch(sizes, inputs)


def _rms_norm(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.rms_norm import add_norm, norm_backward

    x, y, gradient, residual = (inputs.rows(sizes.hidden) for _ in range(4))
    norm = inputs.norm(sizes.hidden)
    first, out, total, slope = (inputs.empty(NUM_ROWS, sizes.hidden) for _ in range(4))
    add_norm(x, None, norm, first)
    statistics = add_norm(x, y, norm, out, total, sizes.residual_scale)
    norm_backward(gradient, total, norm, statistics, slope, residual)
    return {"first": first, "out": out, "total": total, "gradient": slope}


def _rope(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.rope import rotate, rotate_backward
    from tunesmith_engine.mixer_shapes import Norm

    widths = [sizes.num_heads * sizes.head_dim, sizes.num_key_value_heads * sizes.head_dim]
    q, k, dq, dk = (inputs.rows(width) for width in widths * 2)
    angle = inputs.random(NUM_ROWS, sizes.rotary // 2 or 1)
    angle = angle.repeat_interleave(2, 1) if sizes.interleaved else angle.repeat(1, 2)
    cos, sin = (angle.cos(), angle.sin()) if sizes.rotary else (None, None)
    norms = [inputs.norm(sizes.head_dim) if sizes.head_norms else None for _ in range(2)]
    form = (cos, sin, sizes.head_dim, sizes.interleaved, norms[0], norms[1])
    out = [inputs.empty(NUM_ROWS, width) for width in widths * 2]
    rotate(q, k, *form, out[0], out[1])
    rotate_backward(dq, dk, q, k, *form, out[2], out[3])
    found = dict(zip(("query", "key", "query gradient", "key gradient"), out, strict=True))
    if sizes.value_norm:
        # The values' norm has no weight, and there are no keys beside.
        norm, none = Norm(None, 1e-6), slice(0, 0)
        form = (None, None, sizes.head_dim, False, norm, norm)
        values, slopes = (inputs.empty(NUM_ROWS, widths[1]) for _ in range(2))
        rotate(k, k[:, none], *form, values, values[:, none])
        rotate_backward(dk, dk[:, none], k, k[:, none], *form, slopes, slopes[:, none])
        found |= {"value": values, "value gradient": slopes}
    return found


def _copy_rows(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.copy_rows import copy_rows

    out = inputs.empty(NUM_ROWS, sizes.hidden)
    copy_rows(inputs.rows(sizes.hidden), out)
    return {"copy": out}


def _adapter_gradients(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.adapter_gradients import AdapterGradients, Part

    ranks, widths = (8, 16), (NUM_ROWS, sizes.hidden)
    dtype = torch.promote_types(inputs.dtype, torch.float32)
    found: Results = {}
    parts, row, column = [], 0, 0
    for number, (rank, width) in enumerate(zip(ranks, widths, strict=True)):
        b, a = (inputs.random(*shape).to(dtype) for shape in ((width, rank), (rank, sizes.hidden)))
        parts.append(Part(b, a, slice(row, row + width), slice(column, column + rank), 2.0))
        found |= {f"b {number}": b, f"a {number}": a}
        row, column = row + width, column + rank
    to_b, to_a = inputs.random(row, column), inputs.random(column, sizes.hidden)
    AdapterGradients().add(to_b, to_a, parts)
    return found


def _glu(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.glu import gate_and_multiply, gate_backward

    found: Results = {}
    if sizes.mlp:
        gate, up, gradient = (inputs.rows(sizes.mlp) for _ in range(3))
        out, gate_slope, up_slope, again = (inputs.empty(NUM_ROWS, sizes.mlp) for _ in range(4))
        other, other_slope = (up, up_slope) if sizes.mlp_gated else (None, None)
        gate_and_multiply(gate, other, sizes.activation, out)
        gate_backward(gradient, gate, other, sizes.activation, gate_slope, other_slope, again)
        found = {"out": out, "gate gradient": gate_slope, "hidden": again}
        if sizes.mlp_gated:
            found["up gradient"] = up_slope
    if sizes.output_gate:
        width = sizes.num_heads * sizes.head_dim
        gate, heads, slope = (inputs.rows(width) for _ in range(3))
        found["gated heads"], gate_slope = (inputs.empty(NUM_ROWS, width) for _ in range(2))
        gate_and_multiply(gate, heads, "sigmoid", found["gated heads"])
        gate_backward(slope, gate, heads, "sigmoid", gate_slope, slope)
        found |= {"heads gradient": slope, "heads' gate gradient": gate_slope}
    return found


def _embedding(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.embedding import embed

    # The first and the last rows of a table of many: an offset that overflows would miss the last.
    table = inputs.random(64, sizes.hidden)
    input_ids = inputs.integers(0, len(table), NUM_ROWS)
    out = {"out": inputs.empty(NUM_ROWS, sizes.hidden)}
    embed(input_ids, table, sizes.embedding_scale, out["out"])
    if inputs.device.type == "cuda":
        out["from main memory"] = inputs.empty(NUM_ROWS, sizes.hidden)
        embed(input_ids, table.cpu().pin_memory(), sizes.embedding_scale, out["from main memory"])
    return out


def _nf4(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.nf4 import dequantise

    found = {}
    for nested in (False, True):
        out = inputs.empty(NUM_ROWS, sizes.hidden + PADDING)[:, : sizes.hidden]
        dequantise(_four_bit(inputs, NUM_ROWS, nested), out)
        found["nested" if nested else "plain"] = out
    if sizes.magnitudes:
        found["scaled"] = inputs.empty(NUM_ROWS, sizes.hidden + PADDING)[:, : sizes.hidden]
        scales = inputs.random(NUM_ROWS).float().abs() + 0.5
        dequantise(_four_bit(inputs, NUM_ROWS, True), found["scaled"], scales)
    if sizes.expert_width:
        weight = _experts_in_mxfp4(inputs)
        found["mxfp4"] = dequantise(weight, inputs.empty(*weight.shape))
        # As if each row were an expert; what no token needs may be anything.
        counts = torch.arange(weight.shape[0], dtype=torch.int32, device=inputs.device) % 2
        found["chosen"] = dequantise(weight, inputs.empty(*weight.shape), counts=counts)[1::2]
    return found


def _column_dots(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.column_dots import column_dots, gated_column_dots

    found = {"dots": column_dots(inputs.rows(sizes.hidden), inputs.rows(sizes.hidden))}
    if sizes.mlp:
        both = gated_column_dots(inputs.rows(sizes.mlp), inputs.rows(2 * sizes.mlp), sizes.activation)
        found |= {"gate": both[: sizes.mlp], "up": both[sizes.mlp :]}
    return found


def _noise(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.noise import add_noise

    x = inputs.rows(sizes.hidden)
    numbers = torch.arange(len(x), device=inputs.device, dtype=torch.int32) + 7
    seed = torch.tensor([2**40 + 3], device=inputs.device)
    add_noise(x, seed, numbers, torch.linspace(0.0, 1.0, len(x), device=inputs.device))
    return {"noisy": x}


def _dropout(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.dropout import Mask, add_input_gradient, shrink, weight_gradient

    found: Results = {}
    for name, width, num_ranks in (("hidden", sizes.hidden, 16), ("mlp", sizes.mlp, 64)):
        if not width:
            continue
        x, a, slope = inputs.rows(width), inputs.random(num_ranks, width), inputs.rows(num_ranks)
        seed = torch.tensor([2**40 + 7], device=inputs.device)
        mask = Mask(seed, sizes.dropout, first_row=5)
        found[f"{name} shrunk"] = inputs.empty(NUM_ROWS, num_ranks)
        shrink(x, a, mask, found[f"{name} shrunk"])
        found[f"{name} input gradient"] = inputs.rows(width)
        add_input_gradient(slope, a, mask, found[f"{name} input gradient"])
        found[f"{name} weight gradient"] = weight_gradient(slope, x, mask)
    return found


def _four_bit(inputs: Inputs, num_rows: int, nested: bool) -> FourBitWeight:
    """Return a random matrix of the model's width in NF4."""
    from bitsandbytes.nn import Params4bit

    from tunesmith_engine.kernels.nf4 import FourBitWeight

    values = inputs.random(num_rows, inputs.sizes.hidden).cpu()
    weight = Params4bit(values, requires_grad=False, quant_type="nf4", compress_statistics=nested)
    return FourBitWeight.of(weight.to(inputs.device))


def _experts_in_mxfp4(inputs: Inputs) -> FourBitWeight:
    """Return a random matrix of the model's width in MXFP4."""
    from tunesmith_engine.kernels.nf4 import FourBitWeight
    from tunesmith_engine.model import mxfp4
    from tunesmith_engine.model.packed import FP4_E2M1

    values = inputs.random(1, MXFP4_GROUP * (inputs.sizes.hidden // MXFP4_GROUP), NUM_ROWS).float()
    table = torch.tensor(FP4_E2M1, device=values.device)
    sized = table[torch.bucketize(2 * values.abs(), table).clamp(max=len(table) - 1)]
    return FourBitWeight.of(mxfp4.packed(torch.copysign(sized, values)))


def _matvec(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.matvec import FEW_ROWS, multiply_row, multiply_row_gated

    x, gated = inputs.random(sizes.hidden), inputs.empty(NUM_ROWS - 1)
    # A program for the vocabulary is compiled by whether 16 divides it, and is the same for fewer rows.
    found = {"few": inputs.empty(NUM_ROWS), "many": inputs.empty(FEW_ROWS + 16 + sizes.vocabulary % 16)}
    for out in found.values():
        multiply_row(x, inputs.rows(sizes.hidden, len(out)), out)
    multiply_row_gated(x, inputs.rows(sizes.hidden, 2 * len(gated)), sizes.activation, gated)
    return found | {"gated": gated}


def _nf4_matvec(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.matvec import WORD, multiply_row
    from tunesmith_engine.kernels.nf4_matvec import multiply_row_nf4

    x = inputs.random(sizes.hidden)
    planes = inputs.empty(WORD, sizes.hidden // WORD, dtype=torch.float32)
    multiply_row(x, x.new_empty(0, sizes.hidden), x.new_empty(0), planes)
    found: Results = {"planes": planes}
    adapter = inputs.rows(16, 16), inputs.random(16)
    for name, nested in (("nested", True), ("plain", False)):
        weights = [_four_bit(inputs, 8, nested) for _ in range(2)]
        found[f"{name} out"], found[f"{name} gated"] = inputs.empty(16), inputs.empty(8)
        multiply_row_nf4(planes, weights, adapter, found[f"{name} out"])
        multiply_row_nf4(planes, weights, adapter, found[f"{name} gated"], sizes.activation)
    return found


def _nf4_rows(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.nf4_rows import OUTPUTS, multiply_rows_nf4, num_splits

    found: Results = {}
    for name, num_rows, nested in (("nested", 32, True), ("plain", 3, False)):
        weights = [_four_bit(inputs, OUTPUTS, nested) for _ in range(2)]
        found[name] = inputs.empty(num_rows, 2 * OUTPUTS)
        sums = inputs.empty(num_splits(weights), *found[name].shape, dtype=torch.float32)
        x, beside = inputs.random(num_rows, sizes.hidden + 16), inputs.rows(16, 2 * OUTPUTS)
        multiply_rows_nf4(x, weights, beside, found[name], sums)
    return found


def _argmax(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.argmax import argmax

    x = inputs.rows(sizes.vocabulary, 3)
    # Numbers, not places: of equal ones any is right. Where programs are only compiled, the places hold anything.
    places = argmax(x).clamp(0, sizes.vocabulary - 1)
    return {"largest": x.gather(1, places[:, None])}


def _cached_attention(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.cached_attention import attend

    num_rows, capacity, count = 3, 128, 2
    lengths = torch.tensor([0, 70, capacity - 1], dtype=torch.int32, device=inputs.device)
    shapes = {"out": inputs.attention(None, None)}
    if sizes.window:
        shapes["window"] = inputs.attention(8, None)
    if sizes.chunk:
        shapes["chunk"] = inputs.attention(None, 8)
    if sizes.wide_heads:
        shapes["wide heads"] = inputs.attention(None, None, wide=True)
    found: Results = {}
    for label, shape in shapes.items():
        heads, groups, width = shape.num_heads, shape.num_key_value_heads, shape.value_dim
        keys, values = (inputs.random(num_rows, groups, capacity, size) for size in (shape.head_dim, width))
        parts = inputs.empty(num_rows, heads, count, width + 2, dtype=torch.float32)
        found[label] = out = inputs.empty(num_rows, heads * width)
        num_columns = (heads + groups) * shape.head_dim + groups * width
        attend(inputs.rows(num_columns, num_rows), keys, values, lengths, shape, parts, out)
        found |= {f"keys ({label})": keys, f"values ({label})": values}
    return found


def _fp8(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.fp8 import quantise_rows

    found = {}
    for name, width in (("hidden", sizes.hidden), ("mlp", sizes.mlp)):
        out = inputs.empty(NUM_ROWS, width, dtype=torch.float8_e4m3fn)
        found[f"{name} scales"] = inputs.empty(NUM_ROWS, 1, dtype=torch.float32)
        quantise_rows(inputs.rows(width), out, found[f"{name} scales"])
        found[name] = out.float()
    return found


def _cross_entropy(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.cross_entropy import cross_entropy

    num_rows = 5
    logits = inputs.rows(sizes.vocabulary, num_rows)
    targets = inputs.integers(0, sizes.vocabulary, num_rows)
    targets[1] = -100
    losses, evaluated = (inputs.empty(num_rows, dtype=torch.float32) for _ in range(2))
    form = (sizes.logit_scale, sizes.softcap)
    cross_entropy(logits, targets, evaluated, None, *form)
    weighted = logits.clone()
    # A gradient of about 1, which no format loses.
    scale = torch.tensor(float(num_rows), device=inputs.device)
    cross_entropy(logits, targets, losses, scale, *form)
    weights = scale * torch.tensor([1.0, 1.0, -1.0, 0.5, 0.0], device=inputs.device)
    cross_entropy(weighted, targets, losses, weights, *form)
    return {"loss": losses, "loss alone": evaluated, "gradient": logits, "weighted gradient": weighted}


def _adamw(_sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.adamw import adamw_step, gradient_norm

    weights, gradients, mean = (inputs.random(NUM_WEIGHTS) for _ in range(3))
    square, norm = inputs.random(NUM_WEIGHTS).square(), inputs.empty()
    gradient_norm(gradients, norm)
    faster = (weights.clone(), gradients.clone(), mean.clone(), square.clone())
    adamw_step(*faster, _control(inputs), (0.9, 0.999), 1e-8, None, _rates(inputs))
    adamw_step(weights, gradients, mean, square, _control(inputs), (0.9, 0.999), 1e-8)
    moments = {"mean": mean, "square": square}
    return {"norm": norm, "weights": weights, **moments, "emptied": gradients, "faster": faster[0]}


def _adamw_8bit(_sizes: Sizes, inputs: Inputs) -> Results:
    from bitsandbytes.functional import create_dynamic_map

    from tunesmith_engine.kernels.adamw_8bit import State, adamw_8bit_step

    mean, square = (
        State.zeros(NUM_WEIGHTS, create_dynamic_map(signed=signed).to(inputs.device)) for signed in (True, False)
    )
    weights = inputs.random(NUM_WEIGHTS)
    for _ in range(2):
        # Few different numbers, none of which leads between two codes, where a rounding would choose.
        gradients = inputs.random(NUM_WEIGHTS).sign() / 2 ** inputs.integers(0, 3, NUM_WEIGHTS)
        adamw_8bit_step(weights, gradients, mean, square, _control(inputs), (0.5, 0.5), 1e-8)
    return {"weights": weights, "mean": mean.read(), "square": square.read(), "emptied": gradients}


def _norm_gradient(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.norm_gradient import norm_weight_gradient

    gradient, total = inputs.rows(sizes.hidden), inputs.rows(sizes.hidden)
    statistics = torch.stack([total.float().mean(1), total.float().std(1).reciprocal()], dim=1).to(inputs.dtype)
    found = {"weight": norm_weight_gradient(gradient, total, inputs.norm(sizes.hidden), statistics)}
    if sizes.head_norms:
        slope, heads = (inputs.rows(sizes.num_heads * sizes.head_dim) for _ in range(2))
        found["heads"] = norm_weight_gradient(slope, heads, inputs.norm(sizes.head_dim))
    return found


def _embedding_gradient(sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.kernels.embedding_gradient import add_embedding_gradient

    table = inputs.random(8, sizes.hidden)
    ids, gradient = inputs.integers(0, 8, NUM_ROWS), inputs.rows(sizes.hidden)
    add_embedding_gradient(ids, gradient, sizes.embedding_scale, 3, table)
    return {"table": table}


def _full_adamw(_sizes: Sizes, inputs: Inputs) -> Results:
    from tunesmith_engine.proof.full_adamw_case import updated_weights

    return updated_weights(inputs)


def _rates(inputs: Inputs) -> torch.Tensor:
    """Return factors of the learning rate as LoRA+ has them."""
    return torch.tensor([1.0, 16.0], device=inputs.device).repeat(NUM_WEIGHTS // 512 + 1)[: NUM_WEIGHTS // 256]


def _control(inputs: Inputs) -> torch.Tensor:
    """Return the numbers of an update: apply, factor, decay, step size and root correction; see `adamw.CONTROL`."""
    return torch.tensor([1.0, 0.5, 0.01, 0.1, 0.9], device=inputs.device)


KERNEL_CASES = (
    KernelCase("rms_norm", _rms_norm),
    KernelCase("rope", _rope, wanted=lambda sizes: sizes.rotary > 0 or sizes.head_norms),
    KernelCase("glu", _glu, wanted=lambda sizes: sizes.mlp > 0 or sizes.output_gate),
    KernelCase("embedding", _embedding),
    KernelCase("copy_rows", _copy_rows),
    KernelCase("adapter_gradients", _adapter_gradients, wanted=lambda sizes: not sizes.whole),
    # bitsandbytes has no float64.
    KernelCase("nf4", _nf4, wanted=lambda sizes: sizes.four_bit, exact_dtype=torch.float32),
    KernelCase("column_dots", _column_dots, wanted=lambda sizes: sizes.magnitudes),
    KernelCase("noise", _noise, wanted=lambda sizes: sizes.noise),
    KernelCase("dropout", _dropout, wanted=lambda sizes: sizes.dropout > 0, needs_dot=True),
    KernelCase("matvec", _matvec),
    KernelCase(
        "nf4_matvec",
        _nf4_matvec,
        # Rows of whole blocks: see `nf4_matvec.problem`.
        wanted=lambda sizes: sizes.four_bit and sizes.hidden % 64 == 0,
        exact_dtype=torch.float32,
    ),
    KernelCase(
        "nf4_rows",
        _nf4_rows,
        # See `nf4_rows.problem`.
        wanted=lambda sizes: sizes.four_bit and sizes.hidden % 64 == 0 and sizes.dtype != "float32",
        exact_dtype=torch.float32,
        needs_dot=True,
    ),
    KernelCase(
        "grouped_product",
        expert_cases.grouped_product,
        wanted=lambda sizes: sizes.expert_width > 0,
        needs_dot=True,
    ),
    KernelCase("expert_rows", expert_cases.expert_rows, wanted=lambda sizes: sizes.expert_width > 0),
    KernelCase("argmax", _argmax),
    KernelCase("cached_attention", _cached_attention, wanted=lambda sizes: sizes.num_heads > 0),
    KernelCase("fp8", _fp8, wanted=lambda sizes: sizes.eight_bit and sizes.mlp > 0),
    KernelCase("cross_entropy", _cross_entropy),
    KernelCase("adamw", _adamw, in_float32=True),
    KernelCase("adamw_8bit", _adamw_8bit, in_float32=True),
    KernelCase("norm_gradient", _norm_gradient, wanted=lambda sizes: sizes.whole),
    KernelCase("embedding_gradient", _embedding_gradient, wanted=lambda sizes: sizes.embeds),
    # Its twin computes in float32, too.
    KernelCase(
        "full_adamw",
        _full_adamw,
        in_float32=True,
        wanted=lambda sizes: sizes.whole,
        exact_dtype=torch.float32,
    ),
    KernelCase("short_convolution", mixer_cases.short_convolution, wanted=lambda sizes: bool(sizes.convolution)),
    KernelCase("latent_heads", mixer_cases.latent_heads, wanted=lambda sizes: bool(sizes.latent)),
    KernelCase(
        "gated_convolution",
        mixer_cases.gated_convolution,
        wanted=lambda sizes: bool(sizes.gated_convolution),
    ),
    KernelCase(
        "state_space",
        mixer_cases.state_space,
        # See `state_space.runs`.
        wanted=lambda sizes: bool(sizes.scan) and sizes.dtype != "float32",
        needs_dot=True,
    ),
    KernelCase("state_step", mixer_cases.state_step, wanted=mixer_cases.has_states),
    KernelCase("gated_norm", mixer_cases.gated_norms, wanted=mixer_cases.has_gated_norm),
    KernelCase(
        "delta_rule",
        mixer_cases.delta_rule,
        # See `delta_rule.runs`.
        wanted=lambda sizes: bool(sizes.delta_heads) and sizes.dtype == "bfloat16",
        needs_dot=True,
    ),
    KernelCase(
        "channel_delta",
        mixer_cases.channel_delta,
        wanted=lambda sizes: bool(sizes.channel_delta) and sizes.dtype == "bfloat16",
        needs_dot=True,
    ),
)

CASES: dict[str, KernelCase | BackendCase] = {
    **{case.name: case for case in KERNEL_CASES},
    **{case.name: case for case in BACKEND_CASES},
}
