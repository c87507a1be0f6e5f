"""Specs of every shape that a release wrote open and mean the same; each was written by the program of its time."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core.errors import UserError
from tunesmith_core.runs import Run
from tunesmith_core.spec import SPEC_VERSION, RunSpec
from tunesmith_core.spec_migrations import MIGRATIONS
from tunesmith_core.spec_objective import ObjectiveSpec
from tunesmith_core.spec_sections import AdapterSpec, SourceSpec

GOLDEN = sorted((Path(__file__).parents[1] / "data" / "specs").glob("*.json"))
ADDED = {"system": "native", "kernels": True, "fp8_weights": False}
"""Settings of the hardware that the first release lacked, and what it did."""


def migrated(**sections: dict[str, Any]) -> RunSpec:
    """A version 1 spec with a model, data and these sections."""
    base: dict[str, Any] = {"version": 1, "model": {"path": "m/n"}, "data": {"path": "rows.jsonl"}}
    return RunSpec.from_dict(base | sections)


def test_every_earlier_version_has_a_step_and_a_golden_spec() -> None:
    assert sorted(MIGRATIONS) == list(range(1, SPEC_VERSION))
    assert {json.loads(path.read_text())["version"] for path in GOLDEN} == {1}
    assert len(GOLDEN) == 3


def test_zero_stood_for_the_usual_value_in_version_2() -> None:
    base: dict[str, Any] = {"version": 2, "model": {"path": "m/n"}, "data": {"sources": [{"path": "rows.jsonl"}]}}

    def read(**objective: object) -> tuple[float | None, float | None]:
        found = RunSpec.from_dict(base | {"objective": {"kind": "cpo", **objective}}).objective
        return found.beta, found.sft_weight

    assert read() == read(beta=0.0, sft_weight=0) == (None, None)
    assert read(beta=0.3, sft_weight=2.0) == (0.3, 2.0)
    assert RunSpec.from_dict(base) == RunSpec.from_dict(RunSpec.from_dict(base).to_dict())
    with pytest.raises(UserError, match=r"objective must be"):
        RunSpec.from_dict(base | {"objective": "cpo"})


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_spec_of_an_earlier_release_means_the_same(path: Path, tmp_path: Path) -> None:
    old = json.loads(path.read_text())
    (tmp_path / "spec.json").write_text(path.read_text())
    spec = Run(tmp_path).load_spec()
    new = spec.to_dict()
    assert spec.problems() == []
    assert spec.data.sources == [
        SourceSpec(path="/data/rows.jsonl", format="prompt-completion", columns={"prompt": "q", "completion": "a"})
    ]
    data = {name: value for name, value in new["data"].items() if name not in ("sources", "special_tokens")}
    assert {name: old["data"][name] for name in data} == data
    assert new["adapter"] == asdict(AdapterSpec()) | {
        name: value for name, value in old["method"].items() if name != "kind"
    }
    assert new["quantization"] == {"kind": "nf4"}
    assert new["objective"] == asdict(ObjectiveSpec())
    assert new["objective"]["kind"] == "sft"
    hardware = {name: value for name, value in old["hardware"].items() if name not in ("device", "gpu_index")}
    assert new["hardware"] == ADDED | hardware | {"devices": ["cuda:1"]}
    assert new["model"] == {"chat_template": "own", "new_tokens": []} | old["model"]
    assert new["evaluation"] == {"group_column": ""} | old["evaluation"]
    added = {"lora_plus_ratio": 1.0, "neftune_alpha": 0.0, "embedding_rate": 0.2}
    assert new["optimizer"] == added | old["optimizer"]
    for section in ("name", "schedule", "saving"):
        assert new[section] == old[section]
    assert RunSpec.from_dict(new) == spec


@pytest.mark.parametrize(
    ("hardware", "devices", "device", "index"),
    [
        ({}, ["auto"], "auto", 0),
        ({"gpu_index": 3}, ["auto:3"], "auto", 3),
        ({"device": "cuda"}, ["cuda"], "cuda", 0),
        ({"device": "cpu", "gpu_index": 3}, ["cpu"], "cpu", 0),
    ],
)
def test_a_device_keeps_its_number(hardware: dict[str, Any], devices: list[str], device: str, index: int) -> None:
    found = migrated(hardware=hardware).hardware
    assert (found.devices, found.device, found.gpu_index) == (devices, device, index)


def test_a_short_spec_keeps_the_defaults_of_its_time() -> None:
    spec = migrated()
    assert spec == migrated(method={"kind": "lora"})
    assert spec.to_dict() == RunSpec.from_dict(spec.to_dict()).to_dict()


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"method": []}, "adapter must be an object"),
        ({"method": {"kind": "full"}}, "quantization.kind must be one of none, nf4"),
        ({"method": {"kind": ["lora"]}}, "quantization.kind must be a text"),
        ({"method": {"surprise": 1}}, "adapter.surprise is not a setting"),
        ({"data": 3}, "data must be an object"),
        ({"data": {"path": 3}}, "data.sources[0].path must be a text"),
        ({"hardware": 3}, "hardware must be an object"),
        ({"hardware": {"device": "tpu"}}, "hardware.devices must be auto, cpu"),
        ({"hardware": {"gpu_index": 64}}, "hardware.devices must be auto, cpu"),
    ],
)
def test_what_was_wrong_is_still_wrong(sections: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        migrated(**sections)
    assert words in caught.value.message


def test_what_is_wrong_in_a_salvaged_spec_takes_its_default() -> None:
    spec = RunSpec.salvage({"version": 1, "method": {"rank": "many", "alpha": 5.0}, "data": {"path": "rows.jsonl"}})
    assert (spec.adapter.rank, spec.adapter.alpha, spec.data.sources[0].path) == (16, 5.0, "rows.jsonl")
