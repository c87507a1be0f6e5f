"""What full fine-tuning takes on the fused path: one layer's gradients or all, weights in 32 bits, old GPUs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tunesmith_core import full_memory
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.planner import CUDA_RUNTIME_BYTES, Hardware, Plan, plan
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.trained_parts import state_bytes

GIB = 2**30
HIDDEN, WIDE, KEYS, VOCABULARY, LAYERS = 2048, 8192, 512, 128256, 16
LAYER = {
    **{f"self_attn.{name}_proj.weight": (rows, HIDDEN) for name, rows in (("q", HIDDEN), ("k", KEYS), ("v", KEYS))},
    "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
    **{f"mlp.{name}_proj.weight": (WIDE, HIDDEN) for name in ("gate", "up")},
    "mlp.down_proj.weight": (HIDDEN, WIDE),
}
NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight")
IN_LAYER = sum(map(math.prod, LAYER.values())) + 2 * HIDDEN
EMBEDDING = VOCABULARY * HIDDEN


def card(tied: bool = True) -> ModelCard:
    """The shape of Llama 3.2 1B."""
    linear = {f"model.layers.{index}.{name}": shape for index in range(LAYERS) for name, shape in LAYER.items()}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), **linear}
    shapes |= {f"model.layers.{index}.{name}": (HIDDEN,) for index in range(LAYERS) for name in NORMS}
    shapes["model.norm.weight"] = (HIDDEN,)
    if not tied:
        shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    size = sum(map(math.prod, shapes.values()))
    numbers = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 64, "intermediate_size": WIDE}
    words: dict[str, Any] = {"path": "", "name": "m", "model_type": "llama", "dtype": "bfloat16", "licence": ""}
    return ModelCard(
        **words,
        **numbers,
        num_parameters=size,
        hidden_size=HIDDEN,
        num_layers=LAYERS,
        vocab_size=VOCABULARY,
        tied=tied,
        has_chat_template=True,
        size_bytes=2 * size,
        linear_shapes=linear,
        expert_shapes={},
        shapes=shapes,
    )


def spec(**changes: Any) -> RunSpec:
    made = RunSpec()
    made.adapter.kind, made.adapter.weights, made.optimizer.name = "full", "bfloat16", "adamw_8bit"
    made.optimizer.max_grad_norm = 0.0
    usual = {"micro_batch_size": 8, "gradient_accumulation_steps": 1}
    made = with_changes(made, {f"schedule.{key}": value for key, value in usual.items()})
    return with_changes(made, {key.replace("__", "."): value for key, value in changes.items()})


def planned(wanted: RunSpec, free_gib: float = 80, capability: tuple[int, int] = (9, 0), tied: bool = True) -> Plan:
    gpu = Hardware("cuda", "GPU", 80 * GIB, int(free_gib * GIB), 64 * GIB, 64 * GIB, 0, capability)
    return plan(wanted, gpu, card=card(tied), longest_tokens=2048)


def states(optimizer: str = "adamw_8bit", tied: bool = True) -> int:
    return state_bytes(optimizer, card(tied).shapes)


@pytest.mark.parametrize(
    ("changes", "tied", "numbers"),
    [
        # A head that is the embedding has its gradient beside those of the layer at hand.
        ({}, True, EMBEDDING + IN_LAYER),
        ({}, False, EMBEDDING + HIDDEN),
        ({"adapter__parts": ["layers", "norms"]}, True, IN_LAYER),
        ({"optimizer__max_grad_norm": 1.0}, True, EMBEDDING + LAYERS * IN_LAYER + HIDDEN),
        ({"schedule__gradient_accumulation_steps": 2}, True, EMBEDDING + LAYERS * IN_LAYER + HIDDEN),
    ],
)
def test_gradients_of_a_layer_or_of_all(changes: dict[str, Any], tied: bool, numbers: int) -> None:
    wanted = spec(**changes)
    trained = card(tied).shapes
    if wanted.adapter.parts != "all":
        trained = {name: shape for name, shape in trained.items() if "embed" not in name}
    parts = planned(wanted, tied=tied).parts
    assert parts["training"] == numbers * 2 + state_bytes("adamw_8bit", trained)
    assert parts["weights"] == card(tied).num_parameters * 2


def test_the_target_of_a_small_gpu_is_planned_to_fit() -> None:
    found = planned(spec(), 8.6)
    assert found.verdict == "tight"
    assert found.total_bytes < 8.1 * GIB
    clipped = planned(spec(optimizer__max_grad_norm=1.0), 8.6)
    assert 1.0 * GIB < clipped.least_bytes - found.least_bytes < 1.8 * GIB
    (saving,) = [fix for fix in clipped.fixes if fix.changes == {"optimizer.max_grad_norm": 0.0}]
    assert saving.saved_bytes == clipped.least_bytes - found.least_bytes
    assert saving.label == "no gradient clipping, with updates layer by layer"


def test_weights_in_32_bits_are_rounded_two_products_at_a_time() -> None:
    parts = planned(spec(adapter__weights="float32")).parts
    assert parts["weights"] == card().num_parameters * 4 + (EMBEDDING + HIDDEN * WIDE) * 2
    gradients = (EMBEDDING + IN_LAYER) * 4 + full_memory.ROUNDED_NUMBERS * 2
    assert parts["training"] == gradients + states()
    exact = planned(spec(adapter__weights="float32", model__dtype="float32")).parts
    assert exact["weights"] == card().num_parameters * 4
    assert exact["training"] == (EMBEDDING + IN_LAYER) * 4 + states()


def test_a_frozen_embedding_leaves_the_gpu_where_not_everything_is_kept() -> None:
    layers = spec(adapter__parts=["layers"])
    kept, moved = (planned(layers, free, tied=False).parts["weights"] for free in (80, 9))
    assert kept - moved == EMBEDDING * 2
    assert planned(spec(), 8.6, tied=False).parts["weights"] == kept


@pytest.mark.parametrize("optimizer", ["adafactor", "muon"])
def test_optimizers_that_need_a_matrix_as_a_whole(optimizer: str) -> None:
    training = planned(spec(optimizer__name=optimizer)).parts["training"]
    assert training == (EMBEDDING + IN_LAYER) * 2 + states(optimizer) + 4 * 8 * EMBEDDING


def test_the_least_is_the_smaller_of_all_rows_at_once_and_all_gradients() -> None:
    # One row at a time takes less than eight, unless all gradients take more than that.
    together, alone = (planned(spec(schedule__micro_batch_size=rows)) for rows in (8, 1))
    assert together.least_bytes > alone.least_bytes
    whole = planned(spec(optimizer__max_grad_norm=1.0))
    assert together.least_bytes <= whole.least_bytes


@pytest.mark.parametrize(
    ("changes", "capability", "is_fused"),
    [
        ({}, (9, 0), True),
        ({}, (0, 0), True),
        ({}, (7, 5), False),
        ({"model__dtype": "float32", "adapter__weights": "float32"}, (7, 5), True),
        ({"model__dtype": "float16", "adapter__weights": "float32"}, (9, 0), False),
        ({"hardware__kernels": False}, (9, 0), False),
    ],
)
def test_float16_is_plain(changes: dict[str, Any], capability: tuple[int, int], is_fused: bool) -> None:
    runtime = planned(spec(**changes), capability=capability).parts["runtime"]
    assert (runtime > CUDA_RUNTIME_BYTES) == is_fused


@pytest.mark.parametrize(("optimizer", "updated"), [("adamw", 1 << 22), ("adafactor", EMBEDDING)])
def test_the_plain_path_holds_all_gradients_and_what_an_update_computes(optimizer: str, updated: int) -> None:
    parts = planned(spec(optimizer__name=optimizer, hardware__kernels=False)).parts
    gradients = (EMBEDDING + LAYERS * IN_LAYER + HIDDEN) * 2
    assert parts["training"] == gradients + states(optimizer) + 4 * 8 * updated
