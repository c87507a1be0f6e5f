"""Whole weights on the fused path: autograd's gradients for every parameter, whatever is kept, and layer by layer."""

from __future__ import annotations

import pytest
import torch

from tests.engine.fused.families import FUSED, MLP_UNFUSED, NOT_WHOLE, SPARSE
from tests.engine.fused.full_models import (
    Gradients,
    full_model,
    fused_gradients,
    plain_gradients,
    side_by_side,
)
from tests.engine.fused.test_model import CPU, compute, num_trained, rows
from tests.engine.numerics import judge, mutants_fail
from tunesmith_core.errors import TunesmithError
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.fused.memory import MemoryPlanner, WholeWeights
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.model.full import FullModel, choose_parts
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import NotFusableError
from tunesmith_engine.train.full_optim import FullOptimizer
from tunesmith_engine.train.fused_path import FusedPath, RowLengths, compute_of_weights
from tunesmith_engine.train.kernel_check import check_kernels
from tunesmith_engine.train.memory_trial import try_longest
from tunesmith_engine.train.oom import MemoryLadder
from tunesmith_engine.train.optim import Updater

BF16 = torch.bfloat16
USUAL = ("llama", "llama-biases", "qwen3", "gemma2", "cohere", "olmo2", "granite")
# Where experts are trained whole, all mixtures run as written.
MIXTURES = {"mixtral", "gpt-oss", "glm4-moe-lite", "laguna", "axk1", "gemma4-a4b"}
OTHERS = sorted({*FUSED, *MLP_UNFUSED} - {*USUAL, *NOT_WHOLE, *SPARSE} | MIXTURES)
LENGTHS = (23, 1, 17, 2, 31)


@pytest.mark.parametrize("name", [*USUAL, "qwen3-moe", *(pytest.param(n, marks=pytest.mark.long) for n in OTHERS)])
def test_gradients_of_every_weight_are_those_of_float64(name: str) -> None:
    exact_loss, exact = plain_gradients(full_model(name, torch.float64), rows(LENGTHS))
    _, loss, found = fused_gradients(full_model(name), rows(LENGTHS), compute())
    assert torch.isclose(loss, exact_loss, rtol=1e-5)
    _compare(found, exact, plain_gradients(full_model(name), rows(LENGTHS))[1])


def _compare(found: Gradients, exact: Gradients, plain: Gradients | None = None) -> None:
    """Hold gradients to those of float64: to a limit, or to what plain PyTorch errs by in the same number format."""
    assert found.keys() == exact.keys()
    # A bias of keys that are not rotated moves all scores alike: its gradient is nothing but rounding.
    least = 1e-4 * max(gradient.norm() for gradient in exact.values())
    for name, gradient in exact.items():
        allowed = 1e-5 * gradient.norm().clamp_min(least)
        if plain is not None:
            # Where norms stand behind sums, gradients of queries and keys are small beside what they are sums of.
            allowed = torch.maximum(allowed, 1.5 * (plain[name] - gradient).norm())
        assert (found[name] - gradient).norm() <= allowed, name


@pytest.mark.parametrize("name", ["llama3", "qwen3", pytest.param("gemma2", marks=pytest.mark.long)])
@pytest.mark.parametrize("weights", [BF16, torch.float32])
def test_in_16_bits_they_are_as_good_as_autograds(name: str, weights: torch.dtype) -> None:
    stored = full_model(name, weights).double()
    stored.get_base_model().set_attn_implementation("eager")
    exact_loss, exact = plain_gradients(stored, rows(LENGTHS))
    usual_loss, usual = plain_gradients(full_model(name, BF16), rows(LENGTHS), BF16)
    _, loss, ours = fused_gradients(full_model(name, weights), rows(LENGTHS), compute(BF16))
    assert ours.keys() == exact.keys()
    vectors = [side_by_side(some, exact) for some in (ours, usual, exact)]
    judge("gradients", *vectors, BF16)
    mutants_fail(lambda mutant: judge("gradients", mutant, *vectors[1:], BF16), vectors[0])
    judge("loss", loss, usual_loss, exact_loss, BF16)


@pytest.mark.parametrize("policy", ["mlp", "smart", "full"])
def test_no_policy_changes_a_bit(policy: str) -> None:
    _, _, kept = fused_gradients(full_model("gemma2"), rows(LENGTHS), compute(), "none")
    _, _, found = fused_gradients(full_model("gemma2"), rows(LENGTHS), compute(), policy)
    assert all(torch.equal(found[name], gradient) for name, gradient in kept.items())


@pytest.mark.parametrize("weights", [BF16, torch.float32])
def test_micro_batches_add_up(weights: torch.dtype) -> None:
    whole = fused_gradients(full_model("llama3", weights), rows(LENGTHS), compute(weights))[2]
    fused, _, parts = fused_gradients(full_model("llama3", weights), rows(LENGTHS), compute(weights), portions=2)
    for name, gradient in whole.items():
        assert (parts[name] - gradient).norm() < (2e-2 if weights == BF16 else 1e-5) * gradient.norm(), name
    # The memory serves again, and what was in it does not count.
    again = fused.loss_and_gradients(make_packed_batch(rows(LENGTHS), CPU), num_trained(rows(LENGTHS)))
    assert torch.isfinite(again)
    for name, weight in fused._model.named_parameters():
        assert torch.allclose(weight.grad.double(), whole[name], rtol=0.1, atol=1e-3), name  # type: ignore[union-attr]


@pytest.mark.parametrize("parts", [["norms"], ["1"], ["k_proj", "down_proj"], ["embeddings"], ["layers"]])
def test_chosen_parts_alone_get_gradients(parts: list[str]) -> None:
    spec = RunSpec()
    spec.adapter.parts = parts
    models = [full_model("llama-biases", dtype) for dtype in (torch.float64, torch.float32)]
    for model in models:
        choose_parts(model.get_base_model(), spec)
    _, exact = plain_gradients(models[0], rows(LENGTHS))
    _, _, found = fused_gradients(models[1], rows(LENGTHS), compute())
    _compare(found, exact)


def test_padding_gets_no_gradient_as_in_pytorch() -> None:
    models = [full_model("llama", dtype, pad_token_id=5) for dtype in (torch.float64, torch.float32)]
    examples = rows(LENGTHS)
    for example in examples:
        example.input_ids[::3] = 5
    _, exact = plain_gradients(models[0], examples)
    _, _, found = fused_gradients(models[1], examples, compute())
    _compare(found, exact)


# Layer by layer


def _trained(
    optimizer: str, weights: torch.dtype, by_layer: bool, name: str = "llama3", steps: int = 3
) -> tuple[dict[str, torch.Tensor], list[float], FusedModel]:
    """Return the weights after some steps and the norms of their gradients."""
    model = full_model(name, weights)
    fused = FusedModel.attach(model, compute(weights), sum(LENGTHS))
    updater = _updater(model, optimizer, by_layer)
    batch, norms = make_packed_batch(rows(LENGTHS), CPU), []
    for _ in range(steps):
        norms.append(_step(fused, updater, batch, by_layer))
    return {key: weight.detach() for key, weight in trainable(model).items()}, norms, fused


def _updater(model: FullModel, optimizer: str, by_layer: bool) -> Updater:
    parameters = trainable(model)
    settings = OptimizerSpec(name=optimizer, max_grad_norm=0.0)  # type: ignore[arg-type]
    return Updater(parameters, settings, CPU, BF16, None, FullOptimizer(parameters, settings, 3), by_layer)


def _step(fused: FusedModel, updater: Updater, batch: object, by_layer: bool) -> float:
    gradients = fused.assembly.gradients
    assert gradients is not None
    count = num_trained(rows(LENGTHS))
    if by_layer:
        with updater.by_layer(1e-3), gradients.by_layer(updater.consume):
            fused.loss_and_gradients(batch, count)  # type: ignore[arg-type]
        return float(updater.norm)
    fused.loss_and_gradients(batch, count)  # type: ignore[arg-type]
    return float(updater.update(1e-3))


@pytest.mark.parametrize("weights", [BF16, torch.float32])
@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit", "adafactor", "muon"])
def test_layer_by_layer_is_the_same_update_to_the_bit(optimizer: str, weights: torch.dtype) -> None:
    whole, whole_norms, _ = _trained(optimizer, weights, False)
    found, norms, fused = _trained(optimizer, weights, True)
    assert norms == pytest.approx(whole_norms, rel=1e-5)
    for name, weight in whole.items():
        assert torch.equal(found[name], weight), name
    gradients = fused.assembly.gradients
    assert gradients is not None
    assert gradients._region is not None
    assert not gradients._own
    assert gradients._region.numel() * weights.itemsize == gradients.num_bytes(True)
    assert all(parameter.grad is None for parameter in fused._model.parameters())


@pytest.mark.parametrize("name", ["llama", "qwen3-moe"])
def test_untied_models_and_experts_go_layer_by_layer_too(name: str) -> None:
    whole, _, _ = _trained("adamw", torch.float32, False, name)
    found, _, fused = _trained("adamw", torch.float32, True, name)
    assert all(torch.equal(found[key], weight) for key, weight in whole.items())
    gradients = fused.assembly.gradients
    assert gradients is not None
    assert gradients.num_bytes(True) < gradients.num_bytes(False)


def test_the_head_and_the_largest_layer_need_the_memory() -> None:
    tied, untied = (
        FusedModel.attach(full_model(name, BF16), compute(BF16), 64).assembly.gradients for name in ("llama3", "llama")
    )
    assert tied is not None
    assert untied is not None
    embedding, layer = 160 * 64, 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 256
    assert tied.num_bytes(True) == 2 * (embedding + layer)
    assert untied.num_bytes(True) == 2 * max(embedding + 256, layer)
    assert untied.num_bytes(False) == 2 * (2 * embedding + 256 + 2 * layer)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit", "adafactor", "muon"])
def test_gradients_that_are_not_finite_change_nothing(optimizer: str) -> None:
    model = full_model("llama3")
    fused, updater = FusedModel.attach(model, compute(), sum(LENGTHS)), _updater(model, optimizer, True)
    before = {name: weight.detach().clone() for name, weight in trainable(model).items()}
    gradients = fused.assembly.gradients
    assert gradients is not None
    scale = torch.tensor(float("inf"))
    with updater.by_layer(1e-3), gradients.by_layer(updater.consume):
        fused.loss_and_gradients(make_packed_batch(rows(LENGTHS), CPU), 1, scale)
    assert not torch.isfinite(updater.norm)
    for name, weight in trainable(model).items():
        assert torch.equal(weight, before[name]), name


def test_a_lack_of_memory_behind_the_first_update_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = full_model("llama3")
    fused, updater = FusedModel.attach(model, compute(), sum(LENGTHS)), _updater(model, "adamw", True)
    batch = make_packed_batch(rows(LENGTHS), CPU)
    layer = fused._layers[0]

    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(layer, "backward", fail)
    with pytest.raises(TunesmithError, match="not enough memory to apply an update"):
        _step(fused, updater, batch, True)
    # Before it, the ladder may take a rung and begin the step again.
    monkeypatch.setattr(fused._layers[-1], "backward", fail)
    untied = FusedModel.attach(full_model("llama"), compute(), sum(LENGTHS))
    monkeypatch.setattr(untied, "_forward", fail)
    with pytest.raises(torch.OutOfMemoryError):
        _step(untied, _updater(untied._model, "adamw", True), batch, True)  # type: ignore[arg-type]


def test_the_trial_goes_through_all_layers_and_changes_nothing() -> None:
    model = full_model("llama3")
    before = {name: weight.detach().clone() for name, weight in trainable(model).items()}
    path = FusedPath(model, compute(), RowLengths.of_steps(max(LENGTHS), [sum(LENGTHS)]), len(LENGTHS))  # type: ignore[arg-type]
    assert path.can_go_by_layer
    updater = _updater(model, "adamw", True)
    ladder = MemoryLadder(len(LENGTHS), lambda _code, _words: None)
    ladder.path = path
    try_longest(path, updater, ladder, rows(LENGTHS), len(LENGTHS), CPU)
    gradients = path._gradients
    assert gradients is not None
    assert gradients._region is not None
    assert updater.consume is None
    assert updater.state()[1] == dict.fromkeys(updater.state()[1], 0)
    for name, weight in trainable(model).items():
        assert torch.equal(weight, before[name]), name
        assert weight.grad is None
    # With less memory several micro-batches add up, and nothing is applied before all are there.
    path.use_micro_batch_size(1)
    try_longest(path, updater, ladder, rows(LENGTHS), len(LENGTHS), CPU)
    assert gradients._region is None
    assert gradients._own


def test_only_an_unclipped_run_goes_layer_by_layer() -> None:
    model = full_model("llama3")
    parameters, clipped = trainable(model), OptimizerSpec(name="adamw")
    assert clipped.max_grad_norm
    full = FullOptimizer(parameters, clipped, 0)
    assert not Updater(parameters, clipped, CPU, BF16, None, full, True).goes_by_layer
    assert _updater(model, "adamw", True).goes_by_layer
    assert not _updater(model, "adamw", False).goes_by_layer


def test_the_report_says_which_way_it_goes() -> None:
    for by_layer, words in ((True, "Each layer is updated as soon"), (False, "The gradients of all layers are held")):
        whole = WholeWeights(0, 0, by_layer, 64)
        fused = FusedModel.attach(full_model("llama3"), compute(), 64, whole=whole)
        assert any(words in line for line in fused.report)


@pytest.mark.parametrize(
    ("dtype", "weights", "used"), [("float32", "bfloat16", BF16), ("float32", "float32", torch.float32)]
)
def test_16_bit_weights_are_computed_with_in_16_bits(dtype: str, weights: str, used: torch.dtype) -> None:
    spec = RunSpec()
    spec.adapter.weights = weights
    assert compute_of_weights(spec, compute(getattr(torch, dtype))).dtype == used
    with pytest.raises(NotFusableError, match="float16 runs in plain PyTorch"):
        compute_of_weights(spec, compute(torch.float16))


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_the_kernels_of_whole_weights_are_named(optimizer: str) -> None:
    spec = RunSpec()
    spec.adapter.kind, spec.optimizer.name = "full", optimizer
    named = " ".join(check_kernels(recognise(full_model("llama3")), compute(), spec, 64).twins)
    assert "norm_gradient" in named
    assert ("full_adamw" in named) == (optimizer == "adamw")
    assert "adamw_8bit" not in named
    assert "dropout" not in named


# Around it


def test_the_plan_counts_all_gradients_or_those_of_a_layer() -> None:
    fused = FusedModel.attach(full_model("llama", BF16), compute(BF16), 64)
    gradients = fused.assembly.gradients
    assert gradients is not None

    def peak(by_layer: bool, step_tokens: int) -> int:
        whole = WholeWeights(1000, 10, by_layer, step_tokens)
        return MemoryPlanner(fused.assembly, 64, None, 8.0, 64, whole=whole).plan("none").peak_bytes

    apart = gradients.num_bytes(False) - gradients.num_bytes(True)
    assert peak(False, 64) - peak(True, 64) == apart
    # Several micro-batches add to the same gradients.
    assert peak(True, 65) == peak(False, 64)


def test_answers_are_those_of_the_weights_and_of_the_base_model() -> None:
    base = {name: weight.detach().clone() for name, weight in full_model("llama3").get_base_model().named_parameters()}
    model = full_model("llama3", seed=1)
    model._base_weights = lambda: {name: weight.clone() for name, weight in base.items()}
    fused = FusedModel.attach(model, compute(), 64)
    decoder = FusedDecoder(model, fused.assembly)
    assert decoder.name == "fused"
    other = FusedModel.attach(full_model("llama3"), compute(), 64)
    wanted = [
        FusedDecoder(each._model, each.assembly).generate([[3, 4, 5]], Sampling(9), set())  # type: ignore[arg-type]
        for each in (fused, other)
    ]
    assert wanted[0] != wanted[1]
    for with_adapter in (True, False, True):
        answer = decoder.generate([[3, 4, 5]], Sampling(9), set(), with_adapter=with_adapter)
        assert answer == wanted[not with_adapter]
    batch = make_packed_batch(rows(LENGTHS[:1]), CPU)
    own, of_base = fused.loss(batch), fused.loss(batch, with_adapter=False)
    assert torch.equal(of_base, other.loss(batch))
    assert torch.equal(fused.loss(batch), own)
    assert not torch.equal(own, of_base)


def test_the_model_has_its_own_weights_again_afterwards() -> None:
    model = full_model("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    FusedModel.attach(model, compute(), 64).detach()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_is_trained_and_sees_no_text_is_refused() -> None:
    model = full_model("llama")
    model.get_base_model().model.extra = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(NotFusableError, match="extra is trained"):
        FusedModel.attach(model, compute(), 64)
