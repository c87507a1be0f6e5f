"""The attention backends on a GPU: numerics, no waiting, CUDA graphs, and thousands of random batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from tests.engine.attention_cases import SMALL, Attention, Values, check_independence, judge_all, run
from tunesmith_engine.attention import BACKENDS, Backend, Operands
from tunesmith_engine.attention.backend import Case, aligned
from tunesmith_engine.attention.cudnn import GROUPED
from tunesmith_engine.kernels import registry
from tunesmith_engine.packed.batch import Documents

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda", 0)
BY_NAME = {backend.name: backend for backend in BACKENDS}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
BLOCKS = Attention((128, 128, 128), 8, 2, 128, num_empty=2, scale=0.1)

CASES = {
    **{name: replace(case, head_dim=64, scale=case.scale / 2) for name, case in SMALL.items()},
    "whole blocks": BLOCKS,
    "whole blocks, one head per key": replace(BLOCKS, num_key_value_heads=8, head_dim=64),
    "whole blocks under a longer window": replace(BLOCKS, lengths=(256, 256), window=256, head_dim=64),
    "one long document": Attention((1024,), 4, 4, 64, scale=0.125),
    "wide heads": Attention((300, 77, 129), 4, 2, 256, scale=0.06),
    "wide heads, softcap, window": Attention((300, 77, 129), 4, 2, 256, softcap=5.0, window=100, scale=0.06),
    "heads of 512": Attention((700, 77, 129), 4, 2, 512, num_empty=2, scale=0.04),
    "heads of 512, window": Attention((700, 77, 129), 4, 1, 512, window=100, scale=0.04),
    "heads of 96": Attention((200, 56), 4, 2, 96, scale=0.1),
    "window over many blocks": Attention((777, 20, 400), 4, 2, 128, window=200, scale=0.09),
    "many short documents": Attention(tuple(1 + (37 * i) % 90 for i in range(100)), 4, 1, 64, num_empty=28),
}
FEW = ("softcap", "many short documents", "window over many blocks", "whole blocks", "wide heads", "heads of 512")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    registry.switch_on_all()
    torch.cuda.set_sync_debug_mode("default")
    torch.use_deterministic_algorithms(False)


def skip_unless_served(backend: Backend, case: Attention, dtype: torch.dtype) -> None:
    """Skip what `choose` would not give to a backend."""
    equal_length = case.documents(torch.device("cpu")).equal_length
    asked = Case(case.shape(), GPU, dtype, equal_length, case.num_tokens, len(case.lengths) + case.num_empty)
    if problem := backend.problem(asked):
        pytest.skip(problem)


def combinations() -> list[tuple[str, str, torch.dtype]]:
    """Every case in bfloat16, and a few in the other formats: each costs our kernels a compilation."""
    found = [(backend, name, BF16) for backend in BY_NAME for name in CASES]
    return found + [(backend, name, dtype) for backend in BY_NAME for name in FEW for dtype in (FP16, FP32)]


@pytest.mark.parametrize(("backend_name", "name", "dtype"), combinations())
def test_output_and_gradients(backend_name: str, name: str, dtype: torch.dtype) -> None:
    backend, case = BY_NAME[backend_name], CASES[name]
    skip_unless_served(backend, case, dtype)
    inputs = case.inputs(GPU, dtype)
    judge_all(case, run(backend, case, inputs), inputs)


@pytest.mark.parametrize(
    ("backend_name", "name"),
    [("flash", "window"), ("efficient", "window"), ("triton", "softcap"), ("wide", "heads of 512, window")],
)
def test_documents_never_see_each_other(backend_name: str, name: str) -> None:
    case = replace(CASES[name], lengths=(3, 90, 1, 200, 64, 7))
    skip_unless_served(BY_NAME[backend_name], case, BF16)
    check_independence(BY_NAME[backend_name], case, case.inputs(GPU, BF16))


@pytest.mark.parametrize("backend_name", BY_NAME)
def test_same_bits_where_promised(backend_name: str) -> None:
    """A backend that keeps the order of its sums only when asked for is asked, if it can be."""
    backend, case = BY_NAME[backend_name], replace(BLOCKS, lengths=(1024, 1024))
    skip_unless_served(backend, case, BF16)
    if not backend.deterministic:
        if backend_name == "cudnn":
            pytest.skip("passed over where determinism is wanted")
        torch.use_deterministic_algorithms(True)
    inputs = case.inputs(GPU, BF16)
    first = run(backend, case, inputs)
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, run(backend, case, inputs), strict=True))


def test_cudnn_repeats_heads_when_told_to() -> None:
    skip_unless_served(BY_NAME["cudnn"], BLOCKS, BF16)
    inputs = BLOCKS.inputs(GPU, BF16)
    registry.switch_off(GROUPED, "for this test")
    judge_all(BLOCKS, run(BY_NAME["cudnn"], BLOCKS, inputs), inputs)


@pytest.mark.parametrize("offset", [0, 1])
def test_rows_that_start_anywhere_are_copied(offset: int) -> None:
    case = replace(BLOCKS, head_dim=64)
    inputs = case.inputs(GPU, BF16)
    shifted = []
    for tensor in inputs:
        room = torch.zeros(tensor.numel() + offset, dtype=BF16, device=GPU)[offset:].view(tensor.shape)
        shifted.append(room.copy_(tensor))
    assert (aligned(shifted[0]) is shifted[0]) == (offset == 0)
    for name in ("cudnn", "flash", "efficient", "triton"):
        skip_unless_served(BY_NAME[name], case, BF16)
        judge_all(case, run(BY_NAME[name], case, tuple(shifted)), inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend_name", [name for name, backend in BY_NAME.items() if backend.capturable])
def test_host_never_waits(backend_name: str) -> None:
    skip_unless_served(BY_NAME[backend_name], BLOCKS, BF16)
    q, k, v, do = BLOCKS.inputs(GPU, BF16)
    shape, documents = BLOCKS.shape(), BLOCKS.documents(GPU)
    for mode in ("default", "error"):
        torch.cuda.set_sync_debug_mode(mode)
        operands = Operands(q, k, v, documents, shape)
        o, saved = BY_NAME[backend_name].forward(operands)
        BY_NAME[backend_name].backward(do, operands, o, saved)


@pytest.mark.parametrize("backend_name", [name for name, backend in BY_NAME.items() if backend.capturable])
def test_captured_graph_serves_other_batches(backend_name: str) -> None:
    backend = BY_NAME[backend_name]
    skip_unless_served(backend, BLOCKS, BF16)
    others = (
        ((128, 128, 128), (5, 300, 79), (384,), (100, 100, 100, 83, 1)) if backend.reads_bounds else (BLOCKS.lengths,)
    )
    batch = BLOCKS.inputs(GPU, BF16)
    bounds = BLOCKS.documents(GPU).bounds
    documents = Documents(bounds, BLOCKS.lengths, BLOCKS.num_tokens if backend.reads_bounds else 128)

    def step() -> Values:
        operands = Operands(*batch[:3], documents, BLOCKS.shape())
        o, saved = backend.forward(operands)
        return o, *backend.backward(batch[3], operands, o, saved)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for seed, lengths in enumerate(others):
        case = replace(BLOCKS, lengths=lengths, num_empty=5 - len(lengths))
        fresh = case.inputs(GPU, BF16, seed)
        for held, tensor in zip(batch, fresh, strict=True):
            held.copy_(tensor)
        bounds.copy_(case.documents(GPU).bounds)
        graph.replay()
        judge_all(case, results, fresh)


# Random batches

NUM_BATCHES = 10_000
BATCHES_PER_PART = 500


@pytest.mark.long
@pytest.mark.parametrize("part", range(NUM_BATCHES // BATCHES_PER_PART))
def test_random_batches(part: int) -> None:
    """Compare backends with one masked dense formula; results stay on the GPU until many batches are through."""
    generator = random.Random(5)
    cases = [random_case(generator, number) for number in range(NUM_BATCHES)]
    tried: list[tuple[int, str, Attention, torch.Tensor]] = []
    for number in range(part * BATCHES_PER_PART, (part + 1) * BATCHES_PER_PART):
        case = cases[number]
        inputs = case.inputs(GPU, BF16, number)
        served = [backend for name, backend in BY_NAME.items() if name != "plain" and serves(backend, case)]
        oracle, same = dense_formula(case, inputs, FP32), dense_formula(case, inputs, BF16)
        tried += [(number, backend.name, case, excess(run(backend, case, inputs), same, oracle)) for backend in served]
    largest = torch.stack([found for *_, found in tried]).amax(1).tolist()
    # Written so that a NaN fails.
    wrong = [one for one, most in zip(tried, largest, strict=True) if not most <= 1]
    assert not wrong, wrong


def serves(backend: Backend, case: Attention) -> bool:
    """Return whether `choose` could give a case to a backend."""
    equal_length = case.lengths[0] if len(set(case.lengths)) == 1 else None
    return backend.problem(Case(case.shape(), GPU, BF16, equal_length, case.num_tokens, 32)) is None


def random_case(generator: random.Random, number: int) -> Attention:
    """Return a few documents of random lengths, at times equal ones; every fourth has a softcap."""
    heads = generator.choice([(4, 4), (4, 2), (6, 1)])
    if number % 10 == 0:
        lengths = (generator.choice([128, 256]),) * generator.randint(1, 3)
    else:
        longest = generator.choice([3, 40, 300])
        lengths = tuple(generator.randint(1, longest) for _ in range(generator.randint(1, 20)))
    window = generator.choice([None, None, 1, 17, 64, 150])
    softcap = 3.0 if number % 4 == 3 else None
    return Attention(lengths, *heads, 64, softcap, window, generator.choice([0, 0, 1, 9]), 0.125)


def dense_formula(case: Attention, inputs: Values, dtype: torch.dtype) -> Values:
    """Return output and gradients with one mask over the whole batch, by autograd."""
    q, k, v = (tensor.to(dtype).clone().requires_grad_() for tensor in inputs[:3])
    owner = torch.repeat_interleave(torch.tensor(case.lengths), output_size=case.num_tokens).to(GPU)
    place = torch.arange(case.num_tokens, device=GPU)
    age = place[:, None] - place
    seen = (age >= 0) & (owner[:, None] == owner) & (age < (case.window or case.num_tokens))
    group = case.num_heads // case.num_key_value_heads
    keys, values = (tensor.repeat_interleave(group, 1).transpose(0, 1) for tensor in (k, v))
    scores = q.transpose(0, 1) @ keys.mT * case.scale
    if case.softcap is not None:
        scores = torch.tanh(scores / case.softcap) * case.softcap
    weights = torch.softmax(scores.masked_fill(~seen, torch.finfo(dtype).min), -1, dtype=FP32).to(dtype)
    output = (weights @ values).transpose(0, 1)
    return output.detach(), *torch.autograd.grad(output, (q, k, v), inputs[3].to(dtype))


def excess(ours: Values, same: Values, oracle: Values) -> torch.Tensor:
    """Return errors by what is allowed, on the GPU: of output and gradients, the largest and the root mean square.

    Of the largest a step of the format at the value itself is taken off, on both sides: the vendors' kernels, as
    transformers, round the gradients of keys and values for each query head before they add them up, so a sum may come
    out one step beside the nearest number. Whether it does is chance, and often one value is by far the largest.
    """
    found = []
    step = torch.finfo(BF16).eps
    for part in (slice(0, 1), slice(1, 4)):
        result, usual, exact = (torch.cat(values[part], 1).float() for values in (ours, same, oracle))
        scale = exact.square().mean().sqrt() * step
        for error in (
            lambda x, e=exact: ((x - e).abs() - e.abs() * step).max().clamp_min(0),
            lambda x, e=exact: (x - e).square().mean().sqrt(),
        ):
            found.append(error(result) / (1.5 * error(usual) + 8 * scale))
    return torch.stack(found)
