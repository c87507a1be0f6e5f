"""Names in settings that the files of the base model do not have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import cli, preflight
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.unmatched_names import linear_ends, unmatched

Make = Callable[..., RunSpec]
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (16, 8),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.1.mlp.up_proj.weight": (12, 8),
}
EXPERTS = {**SHAPES, "model.layers.1.mlp.experts.0.w1.weight": (12, 8)}


def found(shapes: dict[str, tuple[int, ...]] = SHAPES, **changes: Any) -> list[tuple[str, bool]]:
    spec = with_changes(RunSpec(), {f"adapter.{path}": value for path, value in changes.items()})
    return [(each.path.removeprefix("adapter."), each.is_certain) for each in unmatched(spec, shapes)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"layers": ["0-1"], "target_modules": ["q_proj", "mlp.up_proj", "embed_tokens", "lm_head"]}, []),
        ({"layers": ["1-2"]}, [("layers", True)]),
        ({"target_modules": ["q_proj", "nosuch_proj"]}, [("target_modules", False)]),
        ({"target_modules": ["input_layernorm"]}, [("target_modules", False)]),
        ({"modules_to_save": ["input_layernorm", "lm_head"]}, []),
        ({"modules_to_save": ["nosuch"]}, [("modules_to_save", False)]),
        ({"rank_pattern": ["q_proj = 4"], "alpha_pattern": ["layers.1.*.up_proj = 2"]}, []),
        ({"rank_pattern": ["nosuch = 4"]}, [("rank_pattern", False)]),
        ({"alpha_pattern": ["up = 2"]}, [("alpha_pattern", False)]),
        ({"rank_pattern": ["up_proj = 4"], "target_modules": ["q_proj"]}, [("rank_pattern", False)]),
        ({"rank_pattern": ["up_proj = 4"], "layers": ["0"]}, [("rank_pattern", False)]),
        ({"kind": "oft", "target_modules": ["nosuch"]}, [("target_modules", False)]),
        ({"kind": "oft", "rank_pattern": ["nosuch = 4"]}, []),
        ({"kind": "full", "parts": ["norms", "embeddings", "0", "up_proj", "model"]}, []),
        ({"kind": "full", "parts": ["up_proj", "nosuchpart"]}, [("parts", True)]),
        ({"kind": "full", "parts": ["2-3"], "target_modules": ["nosuch"]}, [("parts", True)]),
    ],
)
def test_names_that_the_model_has_not(changes: dict[str, Any], expected: list[tuple[str, bool]]) -> None:
    assert found(**changes) == expected


def test_of_experts_only_numbers_are_told() -> None:
    # transformers gives some of their weights other names than the files have.
    assert found(EXPERTS, target_modules=["gate_up_proj"], rank_pattern=["gate_up_proj = 4"]) == []
    assert found(EXPERTS, kind="full", parts=["gate_up_proj"]) == []
    assert found(EXPERTS, kind="full", parts=["7"]) == [("parts", True)]
    assert found(EXPERTS, layers=["7"]) == [("layers", True)]


def test_an_unknown_model_and_a_continued_adapter_are_left_alone() -> None:
    assert found({}, layers=["99"]) == []
    assert found(layers=["99"], start_from="/a") == []
    assert linear_ends(SHAPES) == ["q_proj", "up_proj"]


def test_a_run_does_not_start_with_a_part_that_is_not_there(make_spec: Make, fake_engine: object) -> None:
    spec = make_spec()
    preflight.check(spec)
    spec.adapter.layers = ["99"]
    with pytest.raises(TunesmithError, match=r"no layer 99\. Its layers are 0 to 0") as raised:
        preflight.check(spec)
    assert raised.value.code == "spec-invalid"
    spec = with_changes(spec, {"adapter.layers": [], "adapter.kind": "full", "adapter.parts": ["nosuch"]})
    with pytest.raises(TunesmithError, match="no part named nosuch") as raised:
        preflight.check(spec)
    assert raised.value.code == "trained-parts-missing"


def test_a_plan_names_what_is_not_there(make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.json"

    def noted(changes: dict[str, Any], code: int = 0) -> str:
        path.write_text(json.dumps(with_changes(make_spec(), changes).to_dict()))
        assert cli.main(["plan", str(path)]) == code
        shown = capsys.readouterr()
        assert bool(shown.out) == (code == 0)
        return shown.err

    assert "The model has no layer named nosuch_proj. Its linear layers are q_proj." in noted(
        {"adapter.target_modules": ["nosuch_proj"]}
    )
    teacher = {"objective.kind": "gkd", "teacher.path": str(tmp_path / "nowhere")}
    assert "nowhere" in noted(teacher, 2)
    assert "The model has no layer 99. Its layers are 0 to 0." in noted({"adapter.layers": ["99"]}, 2)
    assert "nosuch" in noted({"adapter.start_from": str(tmp_path / "nosuch")}, 2)
