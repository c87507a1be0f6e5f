"""Number formats of GGUF files: which weight gets which, and how its numbers are rounded."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize
from libgguf import GGMLQuantizationType as LibggufFormat
from libgguf.libgguf_numpy import libgguf_numpy
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.export.gguf.types import FILE_TYPES, encoded, formats_of, rounded_input
from tunesmith_engine.export.proof import Answer
from tunesmith_engine.export.rounding import Rounding, rounded_reference

Q = gguf.GGMLQuantizationType


def test_bits_are_mixed_as_llama_cpp_mixes_them() -> None:
    names = [f"blk.{layer}.{name}.weight" for layer in range(16) for name in ("attn_v", "ffn_down", "attn_q")]
    shapes = dict.fromkeys(names, (256, 512)) | {"token_embd.weight": (300, 256), "output_norm.weight": (256,)}
    formats = formats_of(FILE_TYPES["q4_k_m"], shapes, 16)
    finer = {layer for layer in range(16) if formats[f"blk.{layer}.attn_v.weight"] is Q.Q6_K}
    assert finer == {0, 1, 4, 7, 10, 13, 14, 15}
    assert {layer for layer in range(16) if formats[f"blk.{layer}.ffn_down.weight"] is Q.Q6_K} == finer
    assert {formats[f"blk.{layer}.attn_q.weight"] for layer in range(16)} == {Q.Q4_K}
    assert (formats["token_embd.weight"], formats["output_norm.weight"]) == (Q.Q6_K, Q.F32)
    untied = formats_of(FILE_TYPES["q5_k_m"], shapes | {"output.weight": (300, 256)}, 16)
    assert (untied["token_embd.weight"], untied["output.weight"]) == (Q.Q5_K, Q.Q6_K)
    fused = formats_of(FILE_TYPES["q4_k_m"], {"blk.0.attn_qkv.weight": (9, 256)}, 16)
    assert fused["blk.0.attn_qkv.weight"] is Q.Q5_K
    narrow = {f"blk.0.{name}.weight": (8, size) for name, size in (("attn_q", 288), ("attn_v", 288), ("ffn_up", 300))}
    found = formats_of(FILE_TYPES["q4_k_m"], narrow, 16)
    assert list(found.values()) == [Q.Q5_0, Q.Q8_0, Q.F16]


@pytest.mark.parametrize("number_format", [Q.Q4_K, Q.Q6_K, Q.Q8_0])
def test_bits_are_those_of_the_reference_quantizer(number_format: Any) -> None:
    weight = torch.randn(16, 512, generator=torch.Generator().manual_seed(0)) * 0.05
    weight[3, 7] = 2.0
    expected = libgguf_numpy.quantize(weight.numpy(), LibggufFormat(int(number_format)))
    assert encoded("w", weight, number_format).tobytes() == np.asarray(expected).tobytes()


def test_a_weight_that_is_too_large_is_named() -> None:
    with pytest.raises(TunesmithError, match="F16"):
        encoded("w", torch.full((1, 32), 1e6), Q.F16)
    with pytest.raises(TunesmithError, match="Q8_0"):
        encoded("w", torch.full((1, 32), torch.nan), Q.Q8_0)


def _numbers(rows: int = 4, columns: int = 512) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(3)) * 5


@pytest.mark.parametrize("number_format", [Q.Q8_0, Q.Q5_0, Q.Q5_1])
def test_what_a_matrix_is_multiplied_with_is_rounded_in_blocks_of_32(number_format: Any) -> None:
    numbers = _numbers()
    numbers[1] = 0
    expected = dequantize(quantize(numbers.numpy(), Q.Q8_0), Q.Q8_0)
    assert np.array_equal(rounded_input(numbers, number_format).numpy(), expected)


@pytest.mark.parametrize("number_format", [Q.Q4_K, Q.Q5_K, Q.Q6_K])
def test_what_a_matrix_is_multiplied_with_is_rounded_in_blocks_of_256(number_format: Any) -> None:
    numbers = _numbers()
    blocks, told = numbers.view(-1, 256), rounded_input(numbers, number_format).view(-1, 256)
    steps = blocks.abs().amax(1, keepdim=True) / 127
    assert bool(((told - blocks).abs() <= steps * 0.5001).all())
    assert bool((told - blocks).abs().max() > steps.min() * 0.4)
    torch.testing.assert_close(told / steps, (told / steps).round(), rtol=0, atol=1e-3)


def test_what_a_matrix_of_16_or_32_bits_is_multiplied_with() -> None:
    numbers = _numbers()
    assert torch.equal(rounded_input(numbers, Q.F16), numbers.half().float())
    assert torch.equal(rounded_input(numbers, Q.BF16), numbers.bfloat16().float())
    assert torch.equal(rounded_input(numbers, Q.F32), numbers)


@pytest.mark.parametrize("tied", [True, False])
def test_the_reference_rounds_weights_and_what_they_are_multiplied_with(tied: bool) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=40, num_key_value_heads=2, tie_word_embeddings=tied, **sizes)
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=2, target_modules=["q_proj"])).eval()
    seen: dict[str, int] = {}

    def inputs(name: str, values: torch.Tensor) -> torch.Tensor:
        seen[name] = seen.get(name, 0) + 1
        return values * 0

    with torch.no_grad():
        expected = model(input_ids=torch.tensor([[1, 2, 3]])).logits[0, 1:].log_softmax(-1)
    answers = [Answer([1, 2, 3, 4], 2, expected)]
    rounding = Rounding(lambda _, weight: weight, inputs)
    figures = rounded_reference(answers, model, rounding, as_llama_cpp=False)
    assert figures.mean_kl > 1e-4
    head = "model.embed_tokens.weight" if tied else "lm_head.weight"
    layers = [f"self_attn.{side}_proj" for side in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    assert seen == {f"model.layers.0.{layer}.weight": 1 for layer in layers} | {head: 1}
