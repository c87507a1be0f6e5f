"""The attention backends: every backend against the plain formula, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from tests.engine.attention_cases import SMALL, Attention, check_independence, judge_all, run
from tunesmith_core.errors import BugError, RunFailure
from tunesmith_engine import attention
from tunesmith_engine.attention import BACKENDS, Backend, Operands, backends_report, choose, flash
from tunesmith_engine.attention.efficient import packed, padded
from tunesmith_engine.attention.sinks import add_sinks, gradient_of_sinks
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import triton_problem
from tunesmith_engine.packed.batch import Documents

CPU = torch.device("cpu")
BY_NAME = {backend.name: backend for backend in BACKENDS}
PLAIN = BY_NAME["plain"]


@pytest.fixture(autouse=True)
def _nothing_switched_off() -> Iterator[None]:
    yield
    registry.switch_on_all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SMALL)
def test_plain_is_right(name: str, dtype: torch.dtype) -> None:
    inputs = SMALL[name].inputs(CPU, dtype)
    judge_all(SMALL[name], run(PLAIN, SMALL[name], inputs), inputs)


@pytest.mark.parametrize("name", ["window and softcap", "many documents"])
def test_blocks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = SMALL[name]
    inputs = case.inputs(CPU, torch.float64)
    whole = run(PLAIN, case, inputs)
    monkeypatch.setattr("tunesmith_engine.attention.plain.SCORES_PER_CPU_BLOCK", 100)
    for one, other in zip(whole, run(PLAIN, case, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["many documents", "window", "softcap"])
def test_documents_never_see_each_other(name: str) -> None:
    check_independence(PLAIN, SMALL[name], SMALL[name].inputs(CPU, torch.float32))


def test_gradients_may_replace_the_inputs() -> None:
    case = SMALL["many documents"]
    q, k, v, do = case.inputs(CPU, torch.float32)
    shape, documents = case.shape(), case.documents(CPU)
    operands = Operands(q, k, v, documents, shape)
    o, saved = PLAIN.forward(operands)
    wanted = PLAIN.backward(do, operands, o, saved)
    given = PLAIN.backward(do, operands, o, saved, (q, k, v))
    assert [out.data_ptr() for out in given] == [tensor.data_ptr() for tensor in (q, k, v)]
    assert all(torch.equal(out, result) for out, result in zip(given, wanted, strict=True))


@pytest.mark.parametrize(
    ("bounds", "lengths", "max_length"),
    [([0, 4, 9], (4, 5), 5), ([0, 4, 10], (4, 6), 5), ([0, 10, 10], (10, 0), 10), ([0, 10], (4, 6), 6), ([0], (), 1)],
)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_unsound_documents_reach_no_kernel(
    backend: Backend, bounds: list[int], lengths: tuple[int, ...], max_length: int
) -> None:
    q, k, v, _ = Attention((10,)).inputs(CPU, torch.float32)
    documents = Documents(torch.tensor(bounds, dtype=torch.int32), lengths, max_length)
    with pytest.raises(BugError, match="don't cover 10 tokens"):
        backend.forward(Operands(q, k, v, documents, Attention((10,)).shape()))


def test_sinks_behind_a_kernel_are_sinks_inside() -> None:
    case = SMALL["sinks and window"]
    q, k, v, do = case.inputs(CPU, torch.float64)
    operands = Operands(q, k, v, case.documents(CPU), case.shape())
    expected, _ = PLAIN.forward(operands)
    to_sinks = torch.empty(case.num_heads, dtype=torch.float64)
    PLAIN.backward(do, operands, expected, (), to_sinks=to_sinks)
    without = replace(operands, shape=replace(operands.shape, sinks=None))
    o, _ = PLAIN.forward(without)
    log_sums = _log_sums(case, q, k)
    sinks = case.sink_values(CPU).double()
    whole = add_sinks(o, log_sums, sinks)
    torch.testing.assert_close(o, expected)
    torch.testing.assert_close(whole, torch.logaddexp(log_sums, sinks[:, None]))
    torch.testing.assert_close(gradient_of_sinks(do, o, whole, sinks), to_sinks, rtol=1e-5, atol=1e-5)


def _log_sums(case: Attention, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return the log-sum-exp of each query's scores, [H, T]."""
    found = []
    for queries, keys in zip(q.split(case.lengths), k.split(case.lengths), strict=True):
        shared = keys.repeat_interleave(case.num_heads // case.num_key_value_heads, 1)
        scores = torch.einsum("qhd,khd->hqk", queries, shared) * case.scale
        age = torch.arange(len(queries))[:, None] - torch.arange(len(queries))
        seen = (age >= 0) & (age < (case.window or len(queries)))
        found.append(scores.masked_fill(~seen, -torch.inf).logsumexp(-1))
    return torch.cat(found, 1)


@pytest.mark.parametrize("name", ["many documents", "empty at the end"])
def test_sinks_take_their_share_in_either_layout_of_flash(name: str) -> None:
    case = replace(SMALL[name], sinks=True)
    documents, sinks = case.documents(CPU), case.sink_values(CPU)
    o = torch.randn(case.num_tokens, case.num_heads, case.head_dim)
    log_sums = torch.randn(case.num_heads, case.num_tokens)
    longest = max(case.lengths) + 3
    room = padded(log_sums.t(), documents.bounds, longest)[..., :longest].contiguous()
    outs = o.clone(), o.clone()
    whole = flash._with_sinks(outs[0], log_sums, sinks, documents)
    of_old = flash._with_sinks(outs[1], room, sinks, documents)
    torch.testing.assert_close(outs[0], outs[1])
    torch.testing.assert_close(whole, packed(of_old, documents.bounds, case.num_tokens).t())
    assert not torch.equal(outs[0], o)


@pytest.mark.parametrize("name", ["many documents", "empty at the end", "one document"])
def test_statistics_are_kept_without_padding(name: str) -> None:
    case = SMALL[name]
    bounds = case.documents(CPU).bounds
    rows = torch.randn(case.num_tokens, 3)
    room = padded(rows, bounds, max(case.lengths))
    assert room.shape == (len(case.lengths) + case.num_empty, 3, 32 * -(-max(case.lengths) // 32))
    assert torch.equal(packed(room, bounds, case.num_tokens), rows)
    for document, part in zip(room, rows.split(case.lengths), strict=False):
        assert torch.equal(document[:, : len(part)], part.T)
    assert room.isinf().sum() == room.numel() - rows.numel()


# The choice


def _on(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> torch.device:
    monkeypatch.setattr(registry, "capability", lambda device: capability if device.type == "cuda" else (0, 0))
    return torch.device("cuda", 0)


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LLAMA = Attention((1,), 32, 8, 128)
GEMMA = Attention((1,), 8, 4, 256, softcap=50.0)
WIDE = replace(LLAMA, head_dim=512)
OWN = "plain" if triton_problem else "triton"


@pytest.mark.parametrize(
    ("case", "capability", "dtype", "equal_length", "name"),
    [
        (LLAMA, (9, 0), BF16, 2048, "cudnn"),
        (LLAMA, (9, 0), BF16, None, "flash"),
        (LLAMA, (9, 0), BF16, 2000, "flash"),
        (LLAMA, (9, 0), FP32, 2048, "efficient"),
        (LLAMA, (8, 6), FP16, 2048, "cudnn"),
        (LLAMA, (7, 5), FP16, 2048, "efficient"),
        (LLAMA, (7, 0), FP16, 2048, "plain"),
        (replace(LLAMA, window=1024), (9, 0), BF16, 2048, "flash"),
        (replace(LLAMA, window=2048), (9, 0), BF16, 2048, "cudnn"),
        (replace(LLAMA, head_dim=256), (8, 9), BF16, 2048, "flash"),
        (replace(LLAMA, head_dim=200), (8, 9), BF16, 2048, "efficient"),
        (replace(LLAMA, head_dim=100), (9, 0), BF16, 2048, OWN),
        (GEMMA, (9, 0), BF16, 2048, OWN),
        (replace(LLAMA, sinks=True), (9, 0), BF16, 2048, "flash"),
        (replace(LLAMA, slopes=True), (9, 0), BF16, 2048, OWN),
        (replace(LLAMA, chunk=512), (9, 0), BF16, 2048, OWN),
        (replace(LLAMA, head_dim=192, value_size=128), (9, 0), BF16, 2048, "flash"),
        (replace(LLAMA, value_size=160), (9, 0), BF16, 2048, OWN),
        (GEMMA, (7, 5), FP16, 2048, "plain"),
        (WIDE, (8, 9), BF16, None, "efficient" if triton_problem else "wide"),
        (WIDE, (8, 9), FP32, 2048, "efficient"),
        (WIDE, (7, 5), FP16, 2048, "efficient"),
        (replace(WIDE, softcap=50.0), (9, 0), BF16, 2048, "plain"),
    ],
)
def test_fastest_rung_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
    case: Attention,
    capability: tuple[int, int],
    dtype: torch.dtype,
    equal_length: int | None,
    name: str,
) -> None:
    device = _on(monkeypatch, capability)
    assert choose(case.shape(), device, dtype, equal_length).name == name
    assert backends_report(case.shape(), device, dtype, equal_length).startswith(f"Attention: {name}.")


def test_cpu_has_the_plain_rung() -> None:
    report = backends_report(LLAMA.shape(), CPU, FP32, 2048)
    assert report.startswith("Attention: plain. Not cudnn: It needs an NVIDIA GPU")
    assert choose(GEMMA.shape(), CPU, FP32) is PLAIN


def test_rungs_are_switched_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _on(monkeypatch, (9, 0))
    for name, following in (("cudnn", "flash"), ("flash", "efficient"), ("efficient", OWN), ("triton", "plain")):
        registry.switch_off(f"attention-{name}", "It computed nonsense.")
        assert choose(LLAMA.shape(), device, BF16, 2048).name == following
        assert f"Not {name}: It computed nonsense." in backends_report(LLAMA.shape(), device, BF16, 2048)


def test_large_batches_leave_flash(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _on(monkeypatch, (9, 0))
    assert choose(LLAMA.shape(), device, BF16, None, (1 << 19) - 256, 1).name == "flash"
    assert choose(LLAMA.shape(), device, BF16, None, (1 << 19) - 128, 1).name == "efficient"
    documents = Documents(torch.zeros(1 << 13, dtype=torch.int32), (8,), 8)
    q, k, v, _ = replace(LLAMA, lengths=(8,)).inputs(CPU, BF16)
    with pytest.raises(RunFailure, match="too many"):
        BY_NAME["flash"].forward(Operands(q, k, v, documents, LLAMA.shape()))


def test_wanted_determinism_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _on(monkeypatch, (9, 0))
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert choose(LLAMA.shape(), device, BF16, 2048).name == "efficient"


def test_only_rungs_that_never_wait_are_captured() -> None:
    assert [backend.name for backend in BACKENDS if not backend.capturable] == ["plain"]
    assert [backend.name for backend in BACKENDS if not backend.reads_bounds] == ["cudnn", "wide", "plain"]
    assert attention.BACKENDS[-1] is PLAIN
