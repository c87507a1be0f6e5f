"""The size of an adapter, from the names and sizes of a model's tensors."""

from __future__ import annotations

import pytest

from tunesmith_core.adapter_shapes import num_adapter_parameters

LINEAR = {"layers.0.attn.q_proj.weight": (16, 8), "layers.0.mlp.up_proj.weight": (32, 8), "m.out_proj.weight": (8, 8)}
EXPERTS = {
    "layers.1.mlp.gate.weight": (4, 8),
    **{f"layers.1.mlp.experts.{n}.{leaf}.weight": (16, 8) for n in range(4) for leaf in ("gate_proj", "up_proj")},
    **{f"layers.1.mlp.experts.{n}.down_proj.weight": (8, 16) for n in range(4)},
}
STACKED = {"layers.1.mlp.experts.gate_up_proj": (4, 32, 8), "layers.1.mlp.experts.down_proj": (4, 8, 16)}
GATE, GATE_UP, DOWN = 4 + 8, 4 * (32 + 8), 4 * (8 + 16)


@pytest.mark.parametrize(
    ("kind", "targets", "expected"),
    [
        ("llama", None, 24 + 40 + 16),
        ("llama", ["q_proj"], 24),
        ("mamba", None, 24 + 40),
        # Where experts are adapted, up_proj means theirs, also in layers without experts.
        ("qwen3_moe", None, 24 + 16 + GATE + GATE_UP + DOWN),
        ("qwen3_moe", ["q_proj", "gate_up_proj"], 24 + GATE_UP),
        ("qwen3_moe", ["gate_proj", "up_proj", "down_proj"], GATE_UP + DOWN),
    ],
)
def test_size_of_an_adapter(kind: str, targets: list[str] | None, expected: int) -> None:
    assert num_adapter_parameters(kind, LINEAR, EXPERTS, targets, 2) == 2 * expected


def test_experts_that_lie_together_count_like_experts_apart() -> None:
    apart = {name: shape for name, shape in EXPERTS.items() if "experts" in name}
    sizes = [num_adapter_parameters("qwen3_moe", {}, experts, None, 4) for experts in (apart, STACKED)]
    assert sizes == [4 * (GATE_UP + DOWN)] * 2
