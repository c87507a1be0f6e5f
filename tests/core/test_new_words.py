"""New words, trained embeddings and replay as the program checks, plans and tells them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_planner import CARD, CPU, gpu
from tests.core.test_trained_parts import SHAPES, WHOLE
from tests.fake_engine import FakeEngine
from tunesmith_core import cli, preflight, presets
from tunesmith_core.errors import UserError
from tunesmith_core.messages import said
from tunesmith_core.mixing import with_replay
from tunesmith_core.planner import plan
from tunesmith_core.saved_modules import num_saved, saved_bytes
from tunesmith_core.source_losses import MOST_BRIEF, SourceLoss, in_brief
from tunesmith_core.spec import RunSpec, has_effect, told_settings
from tunesmith_core.spec_changes import check_resumable, with_changes
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_core.trained_parts import FULL

VOCABULARY, WIDTH = CARD.vocab_size, CARD.hidden_size


def spec_with(**changes: Any) -> RunSpec:
    spec = with_changes(RunSpec(), {path.replace("__", "."): value for path, value in changes.items()})
    spec.model.path = spec.data.sources[0].path = "x"
    return spec


def problems(spec: RunSpec) -> list[str]:
    return [str(problem) for problem in spec.problems()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a", " "], "must not hold an empty word"),
        (["glow "], "must not begin or end with a space: 'glow '"),
        (["x" * 65], "must be words of at most 64 characters"),
        (["glow", "hum", "glow"], "holds glow twice"),
        ([str(number) for number in range(20_001)], "must be at most 20000 words"),
    ],
)
def test_wrong_words_are_named(words: list[str], expected: str) -> None:
    (found,) = problems(spec_with(model__new_tokens=words, adapter__embeddings="new"))
    assert found.startswith("model.new_tokens ")
    assert expected in found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model__new_tokens": ["glow"]}, "adapter.embeddings must be New words only or All"),
        ({"model__new_tokens": ["glow"], "adapter__kind": "oft"}, "model.new_tokens must be empty for OFT"),
        ({"adapter__embeddings": "new"}, "adapter.embeddings has nothing to train without new words"),
        ({"adapter__modules_to_save": ["norm", " "]}, "adapter.modules_to_save must not hold an empty name"),
        (
            {"model__new_tokens": ["glow"], "adapter__kind": FULL, "adapter__parts": ["layers"]},
            "adapter.parts must hold embeddings",
        ),
        (
            {
                "model__new_tokens": ["glow"],
                "adapter__embeddings": "all",
                "objective__kind": "gkd",
                "teacher__path": "big",
            },
            "model.new_tokens can't be used here, because the bigger model doesn't know them",
        ),
    ],
)
def test_words_need_what_learns_them(changes: dict[str, Any], expected: str) -> None:
    (found,) = problems(spec_with(**changes))
    assert found.startswith(expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"model__new_tokens": ["glow"], "adapter__embeddings": "all"},
        {"model__new_tokens": ["glow"], "adapter__kind": FULL},
        {"model__new_tokens": ["glow"], "adapter__kind": FULL, "adapter__parts": ["embeddings", "layers"]},
        {"adapter__embeddings": "new", "objective__kind": "reward"},
        {"adapter__embeddings": "new", "adapter__kind": "oft"},
    ],
)
def test_what_goes_together_is_no_problem(changes: dict[str, Any]) -> None:
    assert problems(spec_with(**changes)) == []


def test_settings_show_where_they_have_an_effect() -> None:
    assert not has_effect(RunSpec(), "optimizer.embedding_rate")
    spec = spec_with(adapter__embeddings="all")
    assert has_effect(spec, "optimizer.embedding_rate")
    told = {each.path for each in told_settings(spec)}
    assert {"adapter.embeddings", "optimizer.embedding_rate", "model.new_tokens"} & told >= {"adapter.embeddings"}
    for changed in (spec_with(adapter__kind=FULL), spec_with(objective__kind="classify")):
        paths = ("adapter.embeddings", "adapter.modules_to_save", "optimizer.embedding_rate")
        assert not any(has_effect(changed, path) for path in paths)


def test_a_checkpoint_belongs_to_its_words() -> None:
    with pytest.raises(UserError, match=r"model\.new_tokens"):
        check_resumable(RunSpec(), spec_with(model__new_tokens=["glow"]))
    (sentence,) = check_resumable(spec_with(), spec_with(optimizer__embedding_rate=0.5))
    assert said(sentence).startswith("optimizer.embedding_rate: 0.2 -> 0.5.")


class TestPlan:
    """Memory and disk of what is trained whole."""

    def test_each_table_counts(self) -> None:
        table = VOCABULARY * WIDTH
        assert num_saved(spec_with(), WHOLE) == 0
        assert num_saved(spec_with(adapter__embeddings="all"), WHOLE) == 2 * table
        assert num_saved(spec_with(adapter__embeddings="all"), replace(WHOLE, tied=True)) == table
        rows = spec_with(adapter__embeddings="new", model__new_tokens=["glow", "hum"])
        assert num_saved(rows, WHOLE) == 2 * 2 * WIDTH
        norms = spec_with(adapter__modules_to_save=["input_layernorm"])
        assert num_saved(norms, WHOLE) == sum(shape[0] for name, shape in SHAPES.items() if "layernorm" in name)
        assert num_saved(spec_with(adapter__embeddings="all", adapter__kind=FULL), WHOLE) == 0

    @pytest.mark.parametrize("fused", [True, False])
    def test_weights_gradients_states_and_a_copy_take_memory(self, fused: bool) -> None:
        spec = spec_with(adapter__embeddings="all")
        number = num_saved(spec, WHOLE)
        assert saved_bytes(RunSpec(), WHOLE, 2, 8, fused=fused) == 0
        found = saved_bytes(spec, WHOLE, 2, 8, fused=fused)
        assert number * 18 < found <= number * 22
        assert saved_bytes(spec, WHOLE, 2, 2, fused=fused) == found - number * 6
        in_32_bits = saved_bytes(spec, WHOLE, 4, 8, fused=False)
        assert in_32_bits == number * 16 + number // 2 * 8

    @pytest.mark.parametrize("hardware", [gpu(140), CPU])
    def test_a_plan_knows_them(self, hardware: Any) -> None:
        spec, frozen = spec_with(adapter__embeddings="all"), spec_with()
        plans = [plan(each, hardware, card=WHOLE) for each in (frozen, spec)]
        more = plans[1].parts["adapter"] - plans[0].parts["adapter"]
        assert more >= 16 * num_saved(spec, WHOLE)
        assert plans[1].disk_bytes - plans[0].disk_bytes == num_saved(spec, WHOLE) * (12 * 3 + 4)

    def test_other_modules_run_in_plain_pytorch(self) -> None:
        plain = plan(spec_with(hardware__kernels=False), gpu(140), card=WHOLE)
        named = plan(spec_with(adapter__modules_to_save=["input_layernorm"]), gpu(140), card=WHOLE)
        assert named.parts["activations"] == plain.parts["activations"]

    def test_rows_keep_their_table_on_the_device(self) -> None:
        rows = spec_with(adapter__embeddings="new", model__new_tokens=["glow"])
        small = [plan(each, gpu(18), card=WHOLE).parts["weights"] for each in (spec_with(), rows)]
        assert small[1] - small[0] == VOCABULARY * WIDTH * 2

    def test_the_disk_has_room_for_them(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(preflight, "read_model_card", lambda _path: WHOLE)

        class Folder:
            path = tmp_path

            @staticmethod
            def adapter_bytes(rank: int) -> int:
                return rank

        spec = spec_with(adapter__embeddings="all")
        expected = (spec.adapter.rank + 4 * num_saved(spec, WHOLE)) * preflight.COPIES_PER_CHECKPOINT
        assert preflight._checkpoint_bytes(spec, Folder()) == expected  # type: ignore[arg-type]


class TestReplay:
    """A share of an epoch from a file of what the model knew."""

    @pytest.mark.parametrize(
        ("taken", "replay", "expected"),
        [
            ([90, 500], [0, 10], [90, 10]),
            ([90, 500], [0, 0], [90, 500]),
            ([60, 30, 7, 7], [0, 0, 5, 5], [60, 30, 5, 5]),
            ([3, 500], [0, 1], [3, 1]),
        ],
    )
    def test_an_epoch_is_longer_by_the_share(
        self, taken: list[int], replay: list[float], expected: list[int]
    ) -> None:
        assert with_replay(taken, replay) == expected

    @pytest.mark.parametrize(
        ("sources", "expected"),
        [
            ([{"replay": 10.0}], "data.sources[0].replay needs a file without a share"),
            ([{}, {"replay": 50.0}, {"replay": 45.0}], "data.sources[2].replay must be at most 90 %"),
            (
                [{"weight": 1.0}, {"weight": 1.0, "replay": 5.0}],
                "data.sources[1].replay must be 0 beside a weight. x can have one of both",
            ),
            ([{}, {"replay": 10.0}], ""),
        ],
    )
    def test_shares_that_make_no_epoch_are_named(self, sources: list[dict[str, Any]], expected: str) -> None:
        spec = spec_with()
        spec.data.sources = [SourceSpec(path="x", **each) for each in sources]
        found = problems(spec)
        assert found[0].startswith(expected) if expected else found == []


class TestPresets:
    """Presets of every method."""

    def test_documents_are_read_at_their_own_rates(self) -> None:
        spec = presets.apply(with_changes(RunSpec(), presets.DOCUMENTS), presets.DEFAULT)
        assert (spec.optimizer.learning_rate, spec.optimizer.embedding_rate) == (1e-4, 0.1)
        assert presets.matching(spec) == presets.DEFAULT

    def test_the_command_line_tells_every_method(self, capsys: pytest.CaptureFixture[str]) -> None:
        for method in presets.METHODS:
            assert cli.main(["presets", "--method", method, "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert found.keys() == presets.PRESETS.keys()
            spec = with_changes(RunSpec(), found["best-quality"])
            assert presets.matching(spec) == "best-quality"
            assert presets.reads_documents(spec) == (method == "documents")
            assert (spec.adapter.kind == FULL) == (method == "full")
        assert cli.main(["presets", "--method", "documents"]) == 0
        assert "sft 0.0002" in capsys.readouterr().out


def test_suggested_words_are_listed(
    fake_engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(spec_with().to_dict()), encoding="utf-8")
    word = {"word": "glowmill", "pieces": 4, "count": 12}
    fake_engine({"words": {"words": [word]}})
    assert cli.main(["words", str(spec)]) == 0
    out = capsys.readouterr().out
    assert "glowmill  4" in out
    assert "model.new_tokens" in out
    assert cli.main(["words", str(spec), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["words"] == [word]
    fake_engine({"words": {"words": []}})
    assert cli.main(["words", str(spec)]) == 0
    assert "No word of the data" in capsys.readouterr().out


def test_only_some_documents_stand_in_a_line() -> None:
    found = [SourceLoss(f"{number}.md", 0.0) for number in range(MOST_BRIEF + 3)]
    assert said(in_brief(found) or "").endswith("5.md 1.00, 3 more")
