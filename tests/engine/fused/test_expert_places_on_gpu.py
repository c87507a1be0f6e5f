"""Experts in 4 bits in pinned memory, read by a GPU over the bus: the same bits, and its memory is free."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from bitsandbytes.nn import Params4bit
from peft import PeftModel

from tests.engine.fused import families
from tests.engine.fused.test_gpu_fused import BF16, GPU, attach, compute, examples, step, with_adapter
from tests.engine.fused.test_gpu_fused import _as_before as _as_before
from tests.engine.fused.test_gpu_fused import equal_bits as equal_bits
from tests.engine.fused.test_model import num_trained
from tests.packed_models import with_experts_in_mxfp4
from tunesmith_engine.kernels import nf4
from tunesmith_engine.model import mxfp4
from tunesmith_engine.model.expert_places import ExpertPlaces, HostRoom, bring_back, put_out
from tunesmith_engine.model.load import load_model
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.packed.pack import make_packed_batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

ALLOCATED_AT_ONCE = 512
"""Bytes to which CUDA's allocator in PyTorch rounds."""

SIZES = {"vocab_size": 1000, "hidden_size": 256, "moe_intermediate_size": 256, "intermediate_size": 256}


def written(folder: Path, name: str) -> Path:
    """Write a model with experts; those of gpt-oss in MXFP4."""
    families.make(name, **SIZES).bfloat16().save_pretrained(folder)
    if name == "gpt-oss":
        with_experts_in_mxfp4(folder)
    return folder


def adapted(folder: Path, host_room: HostRoom | None = None) -> PeftModel:
    return with_adapter(load_model(folder, compute(BF16), four_bit=True, host_room=host_room))


def packed(kind: str) -> Params4bit:
    """Return a stack of 8 experts, 512 x 256, on the GPU."""
    whole = torch.randn(8, 256, 512, device=GPU).to(BF16)
    if kind == "nf4":
        return Params4bit(whole, requires_grad=False, quant_type="nf4").to(GPU)
    values = torch.tensor([0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], device=GPU)
    found = mxfp4.packed(values[torch.randint(0, 7, whole.shape, device=GPU)].to(BF16))
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["nf4", "mxfp4"])
def test_codes_are_unpacked_from_the_hosts_memory(kind: str) -> None:
    codes = packed(kind)

    def unpacked() -> torch.Tensor:
        weight = nf4.FourBitWeight.of(codes)
        return nf4.dequantise(weight, torch.empty(weight.shape, dtype=BF16, device=GPU))

    expected, before = unpacked(), torch.cuda.memory_allocated()
    put_out(codes)
    assert before - torch.cuda.memory_allocated() == codes.nbytes
    assert codes.is_cuda
    assert torch.equal(unpacked(), expected)
    bring_back(codes)
    assert torch.cuda.memory_allocated() == before
    assert torch.equal(unpacked(), expected)


@pytest.mark.usefixtures("equal_bits")
@pytest.mark.parametrize("name", ["qwen2-moe", "gpt-oss"])
def test_steps_from_the_hosts_memory_change_no_bit(tmp_path: Path, name: str) -> None:
    twin = attach(adapted(written(tmp_path, name)), BF16)
    batch, total = twin_batch()
    kept, ids = step(twin, batch, total), torch.arange(3, 90, device=GPU)[None]
    with torch.no_grad():
        said = twin._model(input_ids=ids).logits
    for number in (1, 2, 0):
        twin._change(dataclasses.replace(twin.plan, experts_on_host=number))
        for ours, expected in zip(step(twin, batch, total), kept, strict=True):
            assert torch.equal(ours, expected), number
        with torch.no_grad():
            assert torch.equal(twin._model(input_ids=ids).logits, said), number


def twin_batch() -> tuple[PackedBatch, int]:
    return make_packed_batch(examples(), GPU), num_trained(examples())


def test_memory_is_free_when_experts_have_left(tmp_path: Path) -> None:
    twin = attach(adapted(written(tmp_path, "qwen2-moe")), BF16)
    places = twin.assembly.places.experts
    before = torch.cuda.memory_allocated()
    for number in (1, 2):
        places.place(number)
        assert before - torch.cuda.memory_allocated() == places.bytes_of(number) == places.host_bytes
    places.place(0)
    assert torch.cuda.memory_allocated() == before


def test_experts_leave_as_they_are_read(tmp_path: Path) -> None:
    folder = written(tmp_path, "qwen2-moe")
    taken, models = [], []
    for room in (HostRoom(0), HostRoom(1 << 30)):
        before = torch.cuda.memory_allocated()
        models.append(load_model(folder, compute(BF16), four_bit=True, host_room=room))
        taken.append(torch.cuda.memory_allocated() - before)
    places = ExpertPlaces(models[1], GPU)
    # Each of a layer's two stacks may leave up to one block of the allocator more, as on PyTorch 2.6.
    spare = taken[0] - taken[1] - sum(places.layer_bytes)
    assert 0 <= spare <= 2 * len(places.layer_bytes) * ALLOCATED_AT_ONCE
    assert places.num_on_host == len(places.layer_bytes) == 2


def test_little_memory_puts_experts_out(tmp_path: Path) -> None:
    model = adapted(written(tmp_path, "qwen2-moe"))
    roomy = attach(model, BF16, "full")
    least = roomy._planner._sized(roomy.plan.policies, roomy.plan.capacity_tokens, roomy.plan.tiling, True).peak_bytes
    roomy.detach()
    tight = attach(model, BF16, "auto", memory_bytes=least // 2)
    assert tight.plan.experts_on_host == 2
    assert "The experts of 2 of 2 layers are kept in system memory." in tight.report
    batch, total = twin_batch()
    assert torch.isfinite(step(tight, batch, total)[0])
