"""A trained model answers as the one that was trained, and takes another checkpoint's weights in place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel

from tests.engine.exports import STEP, save, trained_run
from tunesmith_core.errors import TunesmithError
from tunesmith_engine.export.trained import Trained, find_trained
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.model.trained_model import inference_compute, load_trained, switch_to

pytestmark = pytest.mark.usefixtures("home")

TOKENS = torch.tensor([[5, 6, 7, 8]])


def logits(model: PeftModel) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=TOKENS).logits


def loaded(trained: Trained, folder: Path) -> PeftModel:
    return load_trained(trained, folder, inference_compute(trained.spec, "cpu"))


def test_what_was_trained_is_loaded_to_the_bit(tiny_model: Path) -> None:
    run, model = trained_run(tiny_model)
    answers = loaded(find_trained(run, 0), tiny_model)
    assert torch.equal(logits(answers), logits(model))
    assert not answers.training
    with answers.disable_adapter():
        assert not torch.equal(logits(answers), logits(model))


def test_another_checkpoint_takes_its_place_in_the_same_memory(tiny_model: Path) -> None:
    run, model = trained_run(tiny_model)
    first = logits(model)
    for parameter in trainable(model).values():
        parameter.data += 0.05
    save(run, model, STEP + 2)
    answers = loaded(find_trained(run, STEP), tiny_model)
    places = {name: value.data_ptr() for name, value in answers.named_parameters()}
    for step, expected in ((STEP + 2, logits(model)), (STEP, first)):
        switch_to(answers, find_trained(run, step))
        assert torch.equal(logits(answers), expected)
    assert {name: value.data_ptr() for name, value in answers.named_parameters()} == places


def test_a_saved_adapter_is_taken_as_its_checkpoint_is(tiny_model: Path) -> None:
    run, model = trained_run(tiny_model)
    model.save_pretrained(run.adapter_path)
    from_checkpoint = find_trained(run, STEP)
    adapter = Trained(run, from_checkpoint.spec, from_checkpoint.status, STEP, run.adapter_path)
    answers = loaded(from_checkpoint, tiny_model)
    for parameter in trainable(model).values():
        parameter.data += 0.05
    model.save_pretrained(run.adapter_path)
    switch_to(answers, adapter)
    assert torch.equal(logits(answers), logits(model))


def test_a_weight_that_is_missing_is_named(tiny_model: Path) -> None:
    run, model = trained_run(tiny_model)
    weights = trainable(model)
    left_out = max(weights)
    weights[left_out].requires_grad_(False)
    save(run, model, STEP + 2)
    with pytest.raises(TunesmithError) as refusal:
        loaded(find_trained(run, STEP + 2), tiny_model)
    assert refusal.value.code == "adapter-not-restored"
    assert left_out in refusal.value.message
