"""The two ways to gradients by themselves: how rows are divided, what the plain one says, what is given back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from tests.engine.fused.test_model import adapted, compute, rows
from tunesmith_core.errors import UserError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import DataStats, Example, PreparedData
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.methods.sft import METHOD
from tunesmith_engine.model.causality import check_looks_back_only
from tunesmith_engine.model.row_lengths import RotarySwitches
from tunesmith_engine.shapes import NotFusableError
from tunesmith_engine.train import fused_path, kernel_check, loss_paths
from tunesmith_engine.train.fused_path import FusedPath, RowLengths, open_fused
from tunesmith_engine.train.kernel_check import check_kernels
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.loss_paths import LossPath, PlainPath, open_path

MakeSpec = Callable[..., RunSpec]


def plain(model: Any, size: int = 2, checkpointing: bool = False, **options: bool) -> PlainPath:
    return PlainPath(model, compute(), 0, size, checkpointing, "A test.", METHOD, **options)


def lengths_of(portions: list[list[Example]]) -> list[list[int]]:
    return [[len(example.input_ids) for example in portion] for portion in portions]


def test_rows_are_divided_in_their_order_and_by_length_where_padding_counts() -> None:
    model, examples = adapted("llama"), rows((5, 7, 5, 7, 5))
    path = plain(model)
    assert lengths_of(path.portions(examples)) == [[5, 7], [5, 7], [5]]
    assert path.report == ["The model runs in plain PyTorch. A test."]
    apart = plain(model, equal_lengths=True)
    assert lengths_of(apart.portions(examples)) == [[5, 5], [5], [7, 7]]
    assert apart.report[1:] == [
        "Padding changes what this model computes, so only examples of one length share a micro-batch."
    ]
    for changing, is_less in ((2, False), (3, False), (1, True)):
        assert path.use_micro_batch_size(changing) is is_less
    assert lengths_of(path.portions(examples)) == [[5], [7], [5], [7], [5]]


def test_activation_checkpointing_is_the_one_rung_of_the_plain_way_and_is_taken_back() -> None:
    base = (model := adapted("llama")).get_base_model()
    path = plain(model)
    path.close()
    assert not base.is_gradient_checkpointing
    assert path.keep_less() == "Continuing with activation checkpointing."
    assert base.is_gradient_checkpointing
    assert path.keep_less() is None
    path.close()
    assert not base.is_gradient_checkpointing
    asked = plain(model, checkpointing=True)
    assert base.is_gradient_checkpointing
    assert (asked.keep_less(), len(asked.report)) == (None, 1)
    asked.close()
    base.supports_gradient_checkpointing = False
    path = plain(model, checkpointing=True)
    assert path.keep_less() is None
    assert path.report[1:] == ["Activation checkpointing is off: transformers does not support it for this model."]
    assert len(plain(model).report) == 1
    path.close()


def test_a_plain_loss_is_its_share_and_the_base_model_is_there_without_the_adapter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, examples = adapted("llama").eval(), rows()
    path = plain(model)
    forgotten: list[object] = []
    monkeypatch.setattr(RotarySwitches, "forget_lengths", lambda switches: forgotten.append(switches))
    whole = path.losses(examples, Totals(1, 1), True)
    assert not whole.requires_grad
    with model.disable_adapter():
        base = path.losses(examples, Totals(1, 1), True)
    assert path.losses(examples, Totals(1, 1), False).item() == base.item() != whole.item()
    given: list[torch.Tensor] = []
    share = path.add_gradients(examples, Totals(1, 8), SimpleNamespace(backward=given.append))  # type: ignore[arg-type]
    assert given[0].requires_grad
    assert (share.requires_grad, share.item()) == (False, pytest.approx(whole.item() / 8))
    assert len(forgotten) == 4, "each batch begins with the rotary tables of short texts"


def test_the_fused_way_is_less_only_below_its_room() -> None:
    path = FusedPath(adapted("llama"), compute(), RowLengths(10, 40), 4)
    assert not any("8 bits" in line for line in path.report), "nobody asked for products in 8 bits"
    assert [path.use_micro_batch_size(size) for size in (4, 9, 2, 2, 1)] == [False, False, True, False, True]
    assert lengths_of(path.portions(rows((5, 5, 5)))) == [[5, 5], [5]]
    path.close()


def test_the_plan_of_the_fused_way_has_room_for_two_float32_states_of_each_weight() -> None:
    planned = []
    for options in ({}, {"optimizer_bytes_per_weight": 0.0}):
        path = FusedPath(adapted("llama"), compute(), RowLengths(10, 40), 4, **options)
        assert path.arena is not None
        planned.append(path.plan_bytes)
        num_weights = path.arena.weights.numel()
        path.close()
    assert planned[0] - planned[1] == 2 * 4 * num_weights


@pytest.mark.parametrize(
    ("steps", "vary"), [((4, 2), False), ((4, 1), True), ((4, 4, 4), False), ((9, 1, 1), True), ((5,), False)]
)
def test_steps_vary_below_three_quarters_of_the_longest(steps: tuple[int, ...], vary: bool) -> None:
    assert RowLengths.of_steps(7, steps) == RowLengths(7, max(steps), vary)
    assert not RowLengths(7, 9).steps_vary


def test_a_run_has_room_for_held_out_rows_and_its_first_steps() -> None:
    asked: list[int] = []

    def rows_of(step: int) -> list[int]:
        asked.append(step)
        return [0, 1] if step == 99_999 else [0]

    data = PreparedData(rows((5, 3)), rows((9,)), DataStats())
    plan = SimpleNamespace(total_steps=10**12, rows=rows_of)
    assert RowLengths.of(data, plan) == RowLengths(9, 8, True)  # type: ignore[arg-type]
    assert (len(asked), asked[-1]) == (100_000, 99_999)
    plan.total_steps = 2
    assert RowLengths.of(data, plan) == RowLengths(9, 5, False)  # type: ignore[arg-type]


def data_of(*lengths: int) -> PreparedData:
    return PreparedData(rows(lengths), [], DataStats())


def opened(spec: RunSpec, model: Any, warned: list[str], lengths: tuple[int, ...] = (9, 4), **kinds: Any) -> LossPath:
    used = kinds.get("compute", compute())

    def warn(code: str, text: str) -> None:
        warned.append(f"{code}: {text}")

    return open_path(model, spec, used, data_of(*lengths), 0, 2, warn, METHOD)


def test_what_cannot_be_fused_runs_plainly_and_says_why(tiny_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec()
    monkeypatch.setattr(RotarySwitches, "table_of", lambda _, num_tokens: (num_tokens > 20,))
    assert opened(spec, adapted("llama"), told := []).name == "fused"
    assert told == []
    half = Compute(torch.device("cpu"), torch.float16, "CPU", 1)
    other = SimpleNamespace(fused=False)
    slow = "On a processor, PyTorch multiplies the fused path's float16 buffers too slowly."
    tables = "The model's rotary table depends on the length of an example, and these examples need several tables."
    with pytest.raises(NotFusableError, match="does not support this objective"):
        open_fused(adapted("llama"), spec, compute(), data_of(9), 2, lambda *_: None, other, None)  # type: ignore[arg-type]
    for model, options, reason in (
        (adapted("llama").half(), {"compute": half}, slow),
        (adapted("llama"), {"lengths": (20, 21)}, tables),
    ):
        path = opened(spec, model, told := [], **options)
        assert (path.name, told) == ("plain", [f"not-fused: {reason}"])
        assert path.report[0] == f"The model runs in plain PyTorch. {reason}"
    assert opened(spec, adapted("llama"), [], (21, 22)).name == "fused"
    brain = Compute(torch.device("cpu"), torch.bfloat16, "CPU", 1)
    fused_path._check_possible(brain, METHOD)
    fused_path._check_possible(Compute(torch.device("cuda"), torch.float16, "GPU", 1), METHOD)


def test_a_plain_way_looks_first_at_what_the_model_sees(tiny_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that looks ahead would learn to copy, and one that feels padding gets rows of one length; none is fused."""
    spec = tiny_spec(hardware={"kernels": False})
    monkeypatch.setattr(loss_paths, "feels_padding", lambda *_: True)
    assert "examples of one length" in opened(spec, adapted("llama"), []).report[1]

    def refuse(*_: object) -> None:
        raise ZeroDivisionError("It looks ahead.")

    monkeypatch.setattr(loss_paths, "check_looks_back_only", refuse)
    with pytest.raises(ZeroDivisionError):
        opened(spec, adapted("llama"), [])
    assert opened(tiny_spec(), adapted("llama"), []).name == "fused"


def test_a_model_without_a_prediction_for_each_token_is_named() -> None:
    """XLNet with `bi_data` takes a text as half of a pair and gives nothing."""
    config = AutoConfig.for_model("xlnet", vocab_size=160, d_model=32, n_layer=1, n_head=2, d_inner=32, bi_data=True)
    model = get_peft_model(AutoModelForCausalLM.from_config(config), LoraConfig(target_modules=["layer_1"]))
    with pytest.raises(UserError, match="gives no prediction for each token"):
        check_looks_back_only(model, compute(), rows())


def test_activation_checkpointing_by_wish_keeps_the_least(tiny_spec: MakeSpec) -> None:
    levels = []
    for wished in (False, True):
        path = opened(tiny_spec(hardware={"activation_checkpointing": wished}), adapted("llama"), [])
        assert isinstance(path, FusedPath)
        levels.append({policy.level for policy in path._fused.plan.policies})
    assert levels[0] != levels[1] == {"full"}


@pytest.mark.parametrize(
    ("sections", "names"),
    [
        (
            {},
            "rms_norm, rope, glu, embedding, copy_rows, adapter_gradients, matvec, argmax, cached_attention, "
            "cross_entropy, adamw",
        ),
        (
            {"method": {"kind": "qlora"}, "optimizer": {"name": "adamw_8bit"}},
            "rms_norm, rope, glu, embedding, copy_rows, adapter_gradients, nf4, matvec, nf4_matvec, argmax, "
            "cached_attention, cross_entropy, adamw_8bit",
        ),
        (
            {"method": {"dropout": 0.1}},
            "rms_norm, rope, glu, embedding, copy_rows, adapter_gradients, dropout, matvec, argmax, "
            "cached_attention, cross_entropy, adamw",
        ),
        # With DoRA, dropout runs in plain PyTorch by design.
        (
            {"method": {"dropout": 0.1, "dora": True}},
            "rms_norm, rope, glu, embedding, copy_rows, adapter_gradients, column_dots, matvec, argmax, "
            "cached_attention, cross_entropy, adamw",
        ),
    ],
)
def test_kernels_that_a_run_needs_are_named(
    tiny_spec: MakeSpec, sections: dict[str, Any], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = recognise(adapted("llama"))
    checked = check_kernels(shape, compute(), tiny_spec(**sections), 64)
    (twins,) = checked.twins
    assert twins.startswith(f"In plain PyTorch: {names}. ")
    assert [line.partition(":")[0] for line in checked.running] == ["Attention"]

    def prove(*_: object) -> dict[str, str | None]:
        raise ZeroDivisionError("only a GPU has kernels to prove")

    monkeypatch.setattr(kernel_check, "prove", prove)
    with pytest.raises(ZeroDivisionError):
        check_kernels(shape, Compute(torch.device("cuda"), torch.float32, "GPU", 1), tiny_spec(**sections), 64)
    why = {"rope": "Its proof failed.", "glu": "Its proof failed."}
    monkeypatch.setattr(kernel_check, "registry", SimpleNamespace(reason_off=lambda name, _: why.get(name)))
    checked = check_kernels(shape, compute(), tiny_spec(**sections), 64)
    assert checked.running[0] == f"Triton kernels: {names.replace('rope, glu, ', '')}."
    assert checked.twins == ["In plain PyTorch: rope, glu. Its proof failed."]
