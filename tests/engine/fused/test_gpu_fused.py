"""The fused model on a GPU, with its Triton programs: numerics, equal bits, graphs, a host that never waits, memory."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from tests.engine.fused import families, plain_forward
from tests.engine.fused.test_model import num_trained, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.activations import LayerPolicy
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.host_memory import HostTable
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.embedding import embed
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.packed.pack import make_packed_batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GPU = torch.device("cuda", 0)
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LENGTHS = (300, 1, 157, 64, 178)
EQUAL = (256, 256)
VOCABULARY = 1000
FAMILIES = ("llama", "qwen2", "qwen3", "gemma2", "phi3", "granite", "cohere", "olmo2")
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 2048,
}
HEADS = {"qwen3": {"head_dim": 128}, "gemma2": {"head_dim": 64, "sliding_window": 100}, "phi3": {"sliding_window": 100}}
LOSS_SCALE = 1024.0
MIB = 2**20

MOST_LAUNCHES = 66
"""Kernels and copies of a Llama layer with 16-bit weights and adapters on all seven projections, nothing computed
again; what cuBLAS adds to sum up parts of a product isn't counted. Forward 16: 2 norms, 8 products, rotation, gate,
attention with its copy and bookkeeping. Backward 50: 4 norms, 19 products, 14 sums into the arena, rotation, gate, and
attention with its copies.
"""
PARTS_OF_PRODUCTS = "splitKreduce"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    registry.switch_on_all()
    torch.cuda.set_sync_debug_mode("default")
    gc.collect()
    torch.cuda.empty_cache()


@pytest.fixture
def equal_bits() -> None:
    """Leave out the attentions whose backward adds up in any order: with cuDNN and flash no run repeats bit for bit."""
    for name in ("cudnn", "flash"):
        registry.switch_off(f"attention-{name}", "It adds up in any order.")


def adapted(name: str, dtype: torch.dtype, **overrides: Any) -> PeftModel:
    """Return a family's model on the GPU with a random adapter, both of its matrices unlike zero."""
    base = families.make(name, **{**SIZES, **HEADS.get(name, {}), **overrides}).to(dtype)
    return with_adapter(base).to(GPU)


def with_adapter(base: Any) -> PeftModel:  # Any: a transformers model
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=12, target_modules="all-linear", task_type="CAUSAL_LM"))
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = (torch.randn(parameter.shape, generator=generator) * 0.1).to(parameter.device)
    return model


def examples(lengths: tuple[int, ...] = LENGTHS) -> list[Example]:
    return rows(lengths, VOCABULARY)


def compute(dtype: torch.dtype) -> Compute:
    return Compute(GPU, dtype, "GPU", 1)


def attach(model: PeftModel, dtype: torch.dtype, policy: str = "none", capacity: int = 1024, **more: Any) -> FusedModel:
    return FusedModel.attach(model, compute(dtype), capacity, policy, **more)


def scale() -> torch.Tensor:
    return torch.full((), LOSS_SCALE, device=GPU)


def step(twin: FusedModel, batch: PackedBatch, total: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loss and gradients of a step, all in one tensor."""
    twin.arena.gradients.zero_()
    loss = twin.loss_and_gradients(batch, total, scale())
    return loss, twin.arena.gradients.clone()


def first_step(model: PeftModel, policy: str = "none", lengths: tuple[int, ...] = LENGTHS) -> list[torch.Tensor]:
    twin = attach(model, BF16, policy)
    return list(step(twin, make_packed_batch(examples(lengths), GPU), num_trained(examples(lengths))))


def assert_same_bits(ours: list[torch.Tensor], other: list[torch.Tensor], what: str) -> None:
    for name, a, b in zip(("loss", "gradients"), ours, other, strict=True):
        different = (a != b).sum().item()
        assert not different, f"{what}: {name} differ at {different} of {a.numel()}, by {(a - b).abs().max().item():g}"


# Numerics


Step = tuple[torch.Tensor, dict[str, torch.Tensor]]
"""Loss and gradients."""


def rows_alone(model: PeftModel, batch: list[Example], dtype: torch.dtype) -> dict[str, Step]:
    """Return a step by transformers, PEFT and autograd, a row at a time."""
    return {"rows alone": _usual_step(model, [(row, np.arange(len(row.input_ids))) for row in batch], dtype)}


def usual(model: PeftModel, batch: list[Example], dtype: torch.dtype) -> dict[str, Step]:
    """Return a step by transformers, PEFT and autograd in each of their ways: rows alone, and as TRL packs them."""
    whole = Example(*(np.concatenate([getattr(row, part) for row in batch]) for part in ("input_ids", "labels")))
    places = np.concatenate([np.arange(len(row.input_ids)) for row in batch])
    whole.labels[places == 0] = IGNORED_LABEL
    base = model.get_base_model()
    found = rows_alone(model, batch, dtype)
    # "sdpa" leaves Gemma 2's soft cap out in some versions of transformers.
    for attention in ("eager",) if getattr(base.config, "attn_logit_softcapping", None) else ("eager", "sdpa"):
        base.set_attn_implementation(attention)
        found[f"packed, {attention}"] = _usual_step(model, [(whole, places)], dtype)
    return found


def _usual_step(model: PeftModel, rows: list[tuple[Example, np.ndarray]], dtype: torch.dtype) -> Step:
    total, count = torch.zeros((), device=GPU), num_trained([row for row, _ in rows])
    for row, places in rows:
        ids, positions, labels = (torch.from_numpy(values).to(GPU) for values in (row.input_ids, places, row.labels))
        with compute(dtype).autocast():
            logits = model(input_ids=ids[None], position_ids=positions[None], use_cache=False).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(
            logits.float(), labels[1:], ignore_index=IGNORED_LABEL, reduction="sum"
        )
        (loss * LOSS_SCALE / count).backward()
        total += loss.detach() / count
    return total, taken_gradients(model)


def taken_gradients(model: PeftModel) -> dict[str, torch.Tensor]:
    """Return gradients; those of keys and values for which another layer's stand are zeros, or none, and left out."""
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    found = {name: grad / LOSS_SCALE for name, grad in gradients.items() if grad is not None and grad.any()}
    model.zero_grad()
    return found


def plain_step(
    model: PeftModel, batch: list[Example], autocast: AbstractContextManager[None] | None = None
) -> Step:
    """Return loss and gradients by plain operations, all rows packed."""
    packed = make_packed_batch(batch, GPU)
    shape = recognise(model)
    with torch.device(GPU), autocast or contextlib.nullcontext():
        hidden = plain_forward.hidden_numbers(shape, packed.input_ids, packed.documents.lengths)
        logits = plain_forward.logits(shape, hidden[packed.trained_rows])
        wide = logits if logits.dtype == torch.float64 else logits.float()
        loss = torch.nn.functional.cross_entropy(wide, packed.targets, reduction="sum") / num_trained(batch)
        (loss * LOSS_SCALE).backward()
    return loss.detach(), taken_gradients(model)


def side_by_side(values: dict[str, torch.Tensor], oracle: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return all gradients in one vector, those of each parameter measured by their own size."""
    assert values.keys() >= oracle.keys()
    assert not any(values[name].any() for name in values.keys() - oracle.keys())
    return torch.cat([(values[name] / exact.square().mean().sqrt()).flatten() for name, exact in oracle.items()])


def judge_step(
    name: str,
    model: PeftModel,
    oracle_model: PeftModel,
    dtype: torch.dtype,
    batch: list[Example] | None = None,
    ways: Callable[[PeftModel, list[Example], torch.dtype], dict[str, Step]] = usual,
    c: float = REDUCTION,
) -> None:
    """Judge loss and gradients of a packed step; the model is attached afterwards."""
    batch = examples() if batch is None else batch
    exact_loss, oracle = plain_step(oracle_model, batch)
    references = ways(model, batch, dtype)
    twin = attach(model, dtype)
    loss = twin.loss_and_gradients(make_packed_batch(batch, GPU), num_trained(batch), scale())
    ours = {key: parameter.grad / LOSS_SCALE for key, parameter in twin.arena.parameters.items()}
    judge(f"{name} loss", loss, tuple(usual_loss for usual_loss, _ in references.values()), exact_loss, dtype)
    usual_vectors = tuple(side_by_side(values, oracle) for _, values in references.values())
    vector, exact_vector = (side_by_side(values, oracle) for values in (ours, oracle))

    def judge_gradients(vector: torch.Tensor) -> None:
        judge(f"{name} gradients", vector, usual_vectors, exact_vector.double(), dtype, c)

    try:
        judge_gradients(vector)
    except AssertionError as error:
        steps = {"ours": ours, **{way: values for way, (_, values) in references.items()}}
        raise AssertionError(f"{error}\n{worst(steps, oracle)}") from error
    mutants_fail(judge_gradients, vector)


def worst(steps: dict[str, dict[str, torch.Tensor]], oracle: dict[str, torch.Tensor]) -> str:
    """Return the relative errors of the parameters that are farthest off, in each way."""
    errors = {
        name: [((values[name].double() - exact).norm() / exact.norm()).item() for values in steps.values()]
        for name, exact in oracle.items()
    }
    first = sorted(errors, key=lambda name: -errors[name][0])[:6]
    return "\n".join(
        f"{name}: " + ", ".join(f"{way} {error:.2e}" for way, error in zip(steps, errors[name], strict=True))
        for name in first
    )


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32], ids=["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("name", FAMILIES)
def test_step_is_as_exact_as_that_of_transformers(name: str, dtype: torch.dtype) -> None:
    if dtype == FP16 and name in ("gemma2", "cohere", "olmo2", "granite"):
        pytest.skip("Two families in float16 say enough about the format.")
    model = adapted(name, dtype)
    judge_step(name, model, copy.deepcopy(model).double(), dtype)


def four_bit(base: Any) -> tuple[Any, Any]:  # Any: transformers models
    """Return a model on the GPU with NF4 weights in its layers, and one in float64 with the weights that they hold."""
    bitsandbytes = pytest.importorskip("bitsandbytes")
    exact_base = copy.deepcopy(base).to(GPU)
    for name, module in list(base.model.layers.named_modules()):
        if not isinstance(module, torch.nn.Linear):
            continue
        linear = bitsandbytes.nn.Linear4bit(
            module.in_features, module.out_features, module.bias is not None, compute_dtype=BF16, quant_type="nf4"
        )
        linear.weight = bitsandbytes.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4")
        linear.to(GPU)
        parent = base.model.layers.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], linear)
        whole = bitsandbytes.functional.dequantize_4bit(linear.weight.data, linear.weight.quant_state)
        exact_base.model.layers.get_submodule(name).weight.data = whole
    return base.to(GPU), exact_base.double()


def test_qlora_step_is_as_exact_as_that_of_transformers() -> None:
    base, exact_base = four_bit(families.make("llama", **SIZES).to(BF16))
    oracle_model = with_adapter(exact_base).double()
    judge_step("llama in NF4", with_adapter(base), oracle_model, BF16)


# Equal bits


@pytest.mark.parametrize("policy", ["mlp", "smart", "full", "offload", "saver"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
def test_no_policy_changes_a_bit(name: str, policy: str, equal_bits: None) -> None:
    layers = {"num_hidden_layers": 3}
    kept = first_step(adapted(name, BF16, **layers))
    assert_same_bits(first_step(adapted(name, BF16, **layers), policy), kept, f"{name} under {policy}")


@pytest.mark.parametrize("policy", ["none", "smart", "offload"])
def test_replayed_step_is_the_eager_one(policy: str, equal_bits: None) -> None:
    """The first time a size comes it runs eagerly, the second time it is captured, from then on replayed."""
    model = adapted("llama", BF16, num_hidden_layers=4)
    twin = attach(model, BF16, policy)
    if twin._graphs is None:
        pytest.skip("This plan is not captured.")
    others = [rows(LENGTHS, VOCABULARY), [Example(e.input_ids[::-1].copy(), e.labels) for e in examples()]]
    total = num_trained(examples())
    batches = [make_packed_batch(batch, GPU, num_trained=700) for batch in others]
    eager = [list(step(FusedModel.attach(model, compute(BF16), 1024, policy), batch, total)) for batch in batches]
    twin = attach(model, BF16, policy)
    for turn in range(3):
        for batch, expected in zip(batches, eager, strict=True):
            assert_same_bits(list(step(twin, batch, total)), expected, f"{policy}, turn {turn}")
    assert twin._graphs is not None
    assert twin._graphs._captured, "nothing was captured"


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_one_graph_serves_rows_of_other_lengths(name: str, equal_bits: None) -> None:
    model = adapted(name, BF16)
    twin = attach(model, BF16)
    batches, totals = [], []
    for lengths in ((300, 1, 157, 64, 178), (11, 500, 170), (90,) * 6 + (110, 40)):
        sizes = twin.fixed_sizes(examples(lengths))
        assert sizes, "graphs should pay here"
        batches.append(make_packed_batch(examples(lengths), GPU, **sizes))
        totals.append(num_trained(examples(lengths)))
    replayed = [list(step(twin, batch, total)) for _ in range(2) for batch, total in zip(batches, totals, strict=True)]
    assert twin._graphs is not None
    assert len(twin._graphs._captured) == 1, twin._graphs._captured.keys()
    twin._graphs = None
    for number, result in enumerate(replayed):
        eager = list(step(twin, batches[number % 3], totals[number % 3]))
        assert_same_bits(result, eager, f"batch {number}")


def test_replay_follows_refreshed_weights(equal_bits: None) -> None:
    model = adapted("llama", BF16)
    twin = attach(model, BF16)
    batch, total = make_packed_batch(examples(), GPU), num_trained(examples())
    for _ in range(3):
        before = list(step(twin, batch, total))
    for _ in range(3):
        twin.arena.weights.mul_(1.5)
        twin.refresh()
        replayed = list(step(twin, batch, total))
    eager = list(step(attach(model, BF16), batch, total))
    assert_same_bits(replayed, eager, "after three updates")
    assert not torch.equal(before[1], replayed[1])


def test_runs_repeat_bit_for_bit(equal_bits: None) -> None:
    twin = attach(adapted("qwen3", BF16), BF16)
    batch, total = make_packed_batch(examples(), GPU), num_trained(examples())
    first = list(step(twin, batch, total))
    for _ in range(4):
        assert_same_bits(list(step(twin, batch, total)), first, "another run")


def test_cudnn_repeats_the_loss_and_nearly_the_gradients() -> None:
    """Its backward pass adds up the queries' gradients in any order."""
    twin = attach(adapted("llama", BF16), BF16)
    batch, total = make_packed_batch(examples(EQUAL), GPU), num_trained(examples(EQUAL))
    loss, gradients = step(twin, batch, total)
    other_loss, other = step(twin, batch, total)
    assert torch.equal(loss, other_loss)
    # A float32 sum in another order, rounded to bfloat16: a step of the format where it falls on the other side.
    assert (gradients - other).norm() <= torch.finfo(BF16).eps * gradients.norm()


def test_packed_rows_are_the_separate_rows() -> None:
    """Only the order of sums over rows differs: the shares of rows add up in float32."""
    twin = attach(adapted("gemma2", FP32), FP32)
    batch = examples()
    loss, gradients = step(twin, make_packed_batch(batch, GPU), num_trained(batch))
    parts = [step(twin, make_packed_batch([example], GPU), num_trained(batch)) for example in batch]
    step_size = torch.finfo(FP32).eps * 16 * len(LENGTHS)
    assert abs(sum(part[0] for part in parts) - loss) <= step_size * loss
    summed = torch.stack([part[1] for part in parts]).sum(0)
    assert (summed - gradients).norm() <= 2 * step_size * gradients.norm()


def test_padding_changes_nothing_but_roundings() -> None:
    twin = attach(adapted("llama", FP32), FP32)
    batch, total = examples(), num_trained(examples())
    loss, gradients = step(twin, make_packed_batch(batch, GPU), total)
    sizes = {"num_tokens": 768, "num_documents": 64, "num_trained": 640, "max_length": 512}
    padded_loss, padded = step(twin, make_packed_batch(batch, GPU, **sizes), total)
    step_size = torch.finfo(FP32).eps * 64
    assert abs(padded_loss - loss) <= step_size * loss
    assert (padded - gradients).norm() <= step_size * gradients.norm()


def test_embedding_reads_the_hosts_memory() -> None:
    table = torch.randn(VOCABULARY, 256).to(BF16)
    ids = torch.randint(0, VOCABULARY, (700,), device=GPU)
    ours, expected = (torch.empty(700, 256, dtype=BF16, device=GPU) for _ in range(2))
    on_host = HostTable(table.to(GPU))
    embed(ids, on_host.view, 2.0, ours)
    embed(ids, table.to(GPU), 2.0, expected)
    assert torch.equal(ours, expected)


def send_tiles(twin: FusedModel, num_tiles: int) -> None:
    """Let layers send so many tiles of 256 rows each, of four in a batch of 1,024 tokens."""
    policies = (LayerPolicy("mlp", "host", num_tiles),) * len(twin.plan.policies)
    tiling = Tiling(mlp_tokens=256, head_rows=256, attention_numbers=2**22)
    twin._change(twin._planner._sized(policies, 1024, tiling, twin.plan.embedding_on_host))


def test_tiles_that_were_sent_change_no_bit(equal_bits: None) -> None:
    model = adapted("llama", BF16, num_hidden_layers=4)
    batch, total = make_packed_batch(examples(), GPU), num_trained(examples())
    twin = attach(model, BF16)
    send_tiles(twin, 0)
    kept = list(step(twin, batch, total))
    for num_tiles in (1, 3, 4):
        send_tiles(twin, num_tiles)
        # Eagerly, captured, and replayed.
        for turn in range(4):
            assert_same_bits(list(step(twin, batch, total)), kept, f"{num_tiles} tiles, turn {turn}")
    assert twin._graphs is not None
    assert twin._graphs._captured, "nothing was captured"
    loss_scale = scale()
    twin._graphs = None
    torch.cuda.set_sync_debug_mode("error")
    twin.loss_and_gradients(batch, total, loss_scale)


# Waiting, launches, memory


@pytest.mark.parametrize(
    ("policy", "lengths"), [("none", LENGTHS), ("none", EQUAL), ("full", LENGTHS), ("offload", EQUAL)]
)
def test_host_never_waits(policy: str, lengths: tuple[int, ...]) -> None:
    twin = attach(adapted("llama", BF16, num_hidden_layers=4), BF16, policy)
    batch, total = make_packed_batch(examples(lengths), GPU), num_trained(examples(lengths))
    for _ in range(3):
        step(twin, batch, total)
        twin.refresh()
    twin.loss(batch)
    loss_scale = scale()
    torch.cuda.set_sync_debug_mode("error")
    fresh = make_packed_batch(examples(lengths), GPU)
    twin.arena.gradients.zero_()
    twin.loss_and_gradients(fresh, total, loss_scale)
    # Another size, so one that no graph holds.
    twin.loss_and_gradients(make_packed_batch(examples((200, 31)), GPU), total, loss_scale)
    twin.loss(fresh)
    twin.refresh()


def launches(twin: FusedModel, batch: PackedBatch, total: int) -> Counter[str]:
    """Return how often each kernel and copy ran in an eager step."""
    twin._graphs = None
    step(twin, batch, total)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        twin.loss_and_gradients(batch, total)
        torch.cuda.synchronize()
    return Counter(event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA)


@pytest.mark.parametrize("lengths", [LENGTHS, EQUAL], ids=["varied", "equal"])
def test_layer_takes_few_launches(lengths: tuple[int, ...]) -> None:
    batch, total = make_packed_batch(examples(lengths), GPU), num_trained(examples(lengths))
    few, many = (
        launches(attach(adapted("llama", BF16, num_hidden_layers=number), BF16), batch, total) for number in (2, 6)
    )
    of_layer = {
        name: (many[name] - few[name]) / 4 for name in many if many[name] != few[name] and PARTS_OF_PRODUCTS not in name
    }
    number = sum(of_layer.values())
    listed = "\n".join(f"{count:5.2f} {name[:100]}" for name, count in sorted(of_layer.items(), key=lambda kv: -kv[1]))
    assert number <= MOST_LAUNCHES, f"{number} launches a layer:\n{listed}"
    assert number > MOST_LAUNCHES / 2, f"the profiler saw too little:\n{listed}"


@pytest.mark.parametrize(
    ("policy", "sends_tiles"),
    [("none", False), ("smart", False), ("full", False), ("saver", False), ("offload", False), ("saver", True)],
)
@pytest.mark.parametrize("lengths", [(2048,) * 2, (1500, 700, 1000, 896)], ids=["equal", "varied"])
def test_plan_foretells_the_peak(policy: str, sends_tiles: bool, lengths: tuple[int, ...]) -> None:
    gc.collect()
    held_before = torch.cuda.memory_allocated()
    model = adapted("llama", BF16, num_hidden_layers=6, hidden_size=1024, intermediate_size=2816, num_attention_heads=8)
    torch.cuda.empty_cache()
    # Nothing but the step: no optimizer's state is allocated here.
    twin = attach(model, BF16, policy, 4096, optimizer_bytes_per_weight=0.0)
    if sends_tiles:
        policies = tuple(replace(policy, sent_tiles=2) for policy in twin.plan.policies)
        tiling = replace(twin.plan.tiling, mlp_tokens=512)
        twin._change(twin._planner._sized(policies, 4096, tiling, twin.plan.embedding_on_host))
    batch, total = make_packed_batch(examples(lengths), GPU), num_trained(examples(lengths))
    twin._graphs = None
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        twin.loss_and_gradients(batch, total)
    # What earlier tests of this process still hold is no part of the plan.
    peak, planned = torch.cuda.max_memory_allocated() - held_before, twin.plan_bytes
    assert peak <= 1.05 * planned + 64 * MIB, f"{peak / MIB:.0f} MiB, planned {planned / MIB:.0f} MiB"
    # A plan that promises far too much room is no plan.
    assert peak >= 0.6 * planned - 192 * MIB, f"{peak / MIB:.0f} MiB, planned {planned / MIB:.0f} MiB"


def test_stepping_down_to_the_end_keeps_the_results(equal_bits: None) -> None:
    twin = attach(adapted("llama", BF16, num_hidden_layers=3), BF16)
    batch, total = make_packed_batch(examples(), GPU), num_trained(examples())
    kept = list(step(twin, batch, total))
    num_steps, planned = 0, [twin.plan_bytes]
    while (said := twin.step_down()) is not None:
        num_steps += 1
        assert num_steps < 50, said
        planned.append(twin.plan_bytes)
        assert_same_bits(list(step(twin, batch, total)), kept, said)
    assert num_steps
    assert planned[-1] < planned[0]
    assert all(later <= earlier for earlier, later in itertools.pairwise(planned)), planned


def test_step_after_running_out_of_memory_is_right(equal_bits: None) -> None:
    """The step that ran out leaves half-written gradients behind, which the caller zeroes."""
    twin = attach(adapted("llama", BF16, num_hidden_layers=3), BF16)
    batch, total = make_packed_batch(examples(), GPU), num_trained(examples())
    kept = list(step(twin, batch, total))
    layer = twin._layers[1]
    backward = layer.backward

    def runs_out(*arguments: Any, **named: Any) -> None:
        backward(*arguments, **named)
        raise torch.OutOfMemoryError("out of memory, for this test")

    layer.backward = runs_out  # type: ignore[method-assign]
    twin._graphs = None
    with pytest.raises(torch.OutOfMemoryError):
        step(twin, batch, total)
    said = twin.step_down()
    assert said
    assert_same_bits(list(step(twin, batch, total)), kept, said)
