"""The form of a new run, without widgets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunesmith_assets import samples
from tunesmith_core import presets
from tunesmith_core.spec import RunSpec
from tunesmith_gui.new_run.form import Missing, NewRunForm
from tunesmith_gui.new_run.setting_paths import LISTED, MAPPING, SETTINGS


@pytest.fixture
def form(qapp: object) -> NewRunForm:
    del qapp
    return NewRunForm()


@pytest.fixture
def ready(form: NewRunForm) -> NewRunForm:
    form.set_value("model.path", "/models/a")
    form.set_value("data.sources[0].path", "/data/b.jsonl")
    return form


class TestMissing:
    def test_start_names_the_first_missing_piece(self, form: NewRunForm) -> None:
        assert form.missing() is Missing.MODEL
        form.set_value("model.path", "/models/a")
        assert form.missing() is Missing.DATA
        form.set_value("data.sources[0].path", "/data/b.jsonl")
        assert form.missing() is Missing.NOTHING

    @pytest.mark.parametrize(
        ("attribute", "missing"),
        [
            ("environment_missing", Missing.ENVIRONMENT),
            ("model_broken", Missing.MODEL_BROKEN),
            ("data_broken", Missing.DATA_BROKEN),
            ("does_not_fit", Missing.MEMORY),
            ("starting", Missing.STARTING),
        ],
    )
    def test_surroundings_keep_from_starting(self, ready: NewRunForm, attribute: str, missing: Missing) -> None:
        setattr(ready.surroundings, attribute, True)
        assert ready.missing() is missing

    def test_a_wrong_setting_comes_before_memory(self, ready: NewRunForm) -> None:
        ready.surroundings.does_not_fit = True
        ready.set_text("adapter.rank", "0")
        assert ready.missing() is Missing.SETTING


class TestTexts:
    def test_a_wrong_text_is_kept_and_the_last_good_value_serves(self, ready: NewRunForm) -> None:
        ready.set_text("optimizer.learning_rate", "abc")
        assert ready.text("optimizer.learning_rate") == "abc"
        assert "not “abc”" in ready.problem("optimizer.learning_rate")
        assert ready.spec.optimizer.learning_rate == 2e-4
        ready.set_text("optimizer.learning_rate", "1e-3")
        assert ready.problems() == {}
        assert ready.spec.optimizer.learning_rate == 1e-3

    def test_problems_between_settings_are_told(self, ready: NewRunForm) -> None:
        ready.set_value("evaluation.early_stopping", 3)
        ready.set_value("evaluation.percent", 0.0)
        assert "evaluation data" in ready.problem("evaluation.early_stopping")

    def test_changes_are_announced_once(self, form: NewRunForm) -> None:
        heard: list[str] = []
        form.changed.connect(heard.append)
        form.set_text("adapter.rank", "8")
        form.set_text("adapter.rank", "8")
        assert heard == ["adapter.rank"]


class TestPresets:
    @pytest.mark.parametrize("name", list(presets.PRESETS))
    def test_a_preset_shows_itself_and_counts_no_change(self, ready: NewRunForm, name: str) -> None:
        ready.choose_preset(name)
        assert ready.preset == name
        assert ready.changed_paths() == []
        assert ready.value("model.path") == "/models/a"

    @pytest.mark.parametrize("path", ["adapter.rank", "optimizer.learning_rate", "data.context_length"])
    def test_a_changed_setting_is_counted_and_the_preset_stays(self, ready: NewRunForm, path: str) -> None:
        ready.choose_preset("fast-try")
        ready.set_text(path, "")
        assert (ready.preset, ready.changed_paths()) == ("fast-try", [path])
        ready.reset(path)
        assert (ready.preset, ready.changed_paths()) == ("fast-try", [])

    def test_what_was_typed_halfway_is_no_setting(self, ready: NewRunForm) -> None:
        usual = ready.value("optimizer.learning_rate")
        for text in ("1", "10", "100"):
            ready.set_text("optimizer.learning_rate", text)
        assert ready.problem("optimizer.learning_rate")
        assert ready.spec.optimizer.learning_rate == usual
        data = ready.value("data.sources[0].path")
        ready.load_spec(RunSpec.from_dict(samples.example_spec("en", "/models/a")))
        ready.leave_sample()
        ready.set_value("data.sources[0].path", data)
        assert ready.spec.optimizer.learning_rate == usual

    def test_a_preset_corrects_a_wrong_text(self, ready: NewRunForm) -> None:
        ready.set_text("adapter.rank", "many")
        ready.choose_preset("fast-try")
        assert ready.problems() == {}
        assert ready.value("adapter.rank") == 8

    def test_memory_settings_leave_what_the_person_chose(self, ready: NewRunForm) -> None:
        ready.set_value("data.context_length", 512)
        ready.suggest_memory_settings({"data.context_length": 1024, "quantization.kind": "nf4"})
        assert ready.value("data.context_length") == 512
        assert ready.value("quantization.kind") == "nf4"
        assert ready.changed_paths() == ["data.context_length"]

    @given(st.lists(st.tuples(st.sampled_from(LISTED), st.text(max_size=6)), max_size=8))
    def test_reset_all_leaves_no_change_behind(self, changes: list[tuple[str, str]]) -> None:
        form = NewRunForm()
        for path, text in changes:
            if SETTINGS[path].type is not bool:
                form.set_text(path, text)
        form.reset_all()
        assert form.changed_paths() == []
        assert form.problems().keys() <= set(MAPPING)


class TestGoals:
    def test_without_evaluation_nothing_stops_early(self, ready: NewRunForm) -> None:
        ready.set_stops_early(True)
        assert ready.stops_early
        ready.set_keeps_evaluation_split(False)
        assert not ready.stops_early
        assert not ready.can_stop_early
        assert ready.problems() == {}

    def test_an_own_evaluation_file_serves_as_well(self, ready: NewRunForm) -> None:
        ready.set_value("evaluation.path", "/data/held.jsonl")
        ready.set_keeps_evaluation_split(False)
        assert ready.can_stop_early


class TestDraft:
    def test_a_draft_brings_everything_back(self, ready: NewRunForm) -> None:
        ready.choose_preset("best-quality")
        ready.set_name("mine")
        ready.set_text("optimizer.learning_rate", "abc")
        ready.set_value("adapter.target_modules", ["q_proj"])
        other = NewRunForm()
        assert other.load_draft(json.loads(json.dumps(ready.to_draft())))
        assert other.spec == ready.spec
        assert other.text("optimizer.learning_rate") == "abc"
        assert other.changed_paths() == ready.changed_paths()

    def test_the_warm_up_of_an_earlier_draft_was_its_default(self, ready: NewRunForm) -> None:
        draft = json.loads(json.dumps(ready.to_draft())) | {"version": 1}
        draft["spec"]["schedule"]["warmup_steps"] = 5
        form = NewRunForm()
        assert form.load_draft(draft)
        assert (form.value("schedule.warmup_steps"), form.changed_paths()) == (None, ready.changed_paths())
        assert draft["spec"]["schedule"]["warmup_steps"] == 5, "the draft itself stays"
        draft["spec"]["schedule"]["warmup_steps"] = 7
        assert form.load_draft(draft)
        assert form.value("schedule.warmup_steps") == 7
        form.set_value("schedule.warmup_steps", 5)
        again = NewRunForm()
        assert again.load_draft(json.loads(json.dumps(form.to_draft())))
        assert again.value("schedule.warmup_steps") == 5, "who says 5 today means it"

    @pytest.mark.parametrize("draft", [None, [], {}, {"version": 99}, {"version": 1, "spec": 3}])
    def test_a_strange_draft_is_left_alone(self, form: NewRunForm, draft: object) -> None:
        assert not form.load_draft(draft)
        assert form.missing() is Missing.MODEL

    def test_wrong_types_in_a_draft_keep_the_default(self, form: NewRunForm) -> None:
        spec = RunSpec().to_dict()
        spec["adapter"]["rank"] = "sixteen"
        spec["schedule"] = 7
        assert form.load_draft({"version": 1, "preset": "unheard", "spec": spec, "wrong_texts": {"no.such": "x"}})
        assert form.value("adapter.rank") == 16

    def test_a_spec_fills_the_form(self, form: NewRunForm) -> None:
        spec = presets.apply(RunSpec(name="again"), "fast-try")
        spec.adapter.dropout = 0.1
        form.load_spec(spec)
        assert form.spec == spec
        assert form.preset == "fast-try"
        assert form.changed_paths() == ["adapter.dropout"]


class TestSample:
    @pytest.fixture
    def sample(self) -> RunSpec:
        return RunSpec.from_dict(samples.example_spec("en", "/models/a"))

    def test_other_data_takes_nothing_of_it_along(self, ready: NewRunForm, sample: RunSpec) -> None:
        ready.set_value("optimizer.learning_rate", 5e-5)
        ready.set_name("mine")
        before = ready.spec
        ready.load_spec(sample)
        ready.load_spec(sample)
        assert ready.value("evaluation.path").endswith("heldout.jsonl")
        ready.leave_sample()
        ready.set_value("data.sources[0].path", before.data.sources[0].path)
        assert ready.spec.to_dict() == {**before.to_dict(), "model": sample.to_dict()["model"]}
        assert (ready.preset, ready.changed_paths()) == ("balanced", ["optimizer.learning_rate"])

    def test_what_was_changed_since_stays(self, ready: NewRunForm, sample: RunSpec) -> None:
        ready.load_spec(sample)
        ready.set_value("schedule.max_steps", 7)
        ready.set_text("adapter.rank", "many")
        ready.leave_sample()
        assert ready.value("schedule.max_steps") == 7
        assert ready.text("adapter.rank") == "many"
        assert ready.value("evaluation.sample_prompts") == []

    def test_a_restart_between_does_not_make_it_stay(self, ready: NewRunForm, sample: RunSpec) -> None:
        ready.load_spec(sample)
        again = NewRunForm()
        assert again.load_draft(json.loads(json.dumps(ready.to_draft())))
        again.leave_sample()
        assert again.value("evaluation.path") == ""

    @pytest.mark.parametrize("restarts", [False, True])
    def test_a_refused_text_comes_back_with_its_fault(self, ready: NewRunForm, sample: RunSpec, restarts: bool) -> None:
        ready.set_text("optimizer.learning_rate", "100")
        fault = ready.problem("optimizer.learning_rate")
        ready.load_spec(sample)
        assert not ready.problem("optimizer.learning_rate")
        form = NewRunForm() if restarts else ready
        assert form.load_draft(json.loads(json.dumps(ready.to_draft())))
        form.leave_sample()
        assert form.text("optimizer.learning_rate") == "100"
        assert form.problem("optimizer.learning_rate") == fault != ""

    def test_a_text_refused_since_stays_with_its_fault(self, ready: NewRunForm, sample: RunSpec) -> None:
        ready.set_text("optimizer.learning_rate", "100")
        ready.load_spec(sample)
        ready.set_text("optimizer.learning_rate", "200")
        ready.leave_sample()
        assert ready.text("optimizer.learning_rate") == "200"
        assert ready.problem("optimizer.learning_rate")

    def test_a_spec_of_other_data_is_no_sample(self, ready: NewRunForm) -> None:
        spec = RunSpec(name="again")
        spec.evaluation.path = "/data/held.jsonl"
        ready.load_spec(spec)
        ready.leave_sample()
        assert ready.value("evaluation.path") == "/data/held.jsonl"


class TestProposals:
    def test_a_proposed_value_does_not_stay_for_the_next_data(self, ready: NewRunForm) -> None:
        spec = ready.spec
        spec.evaluation.percent = 40.0
        ready.load_spec(spec, ("evaluation.percent",))
        draft = json.loads(json.dumps(ready.to_draft()))
        ready.load_draft(draft)
        assert ready.value("evaluation.percent") == 40.0
        ready.forget_data()
        assert ready.value("evaluation.percent") == ready.baseline("evaluation.percent")

    def test_a_chosen_value_stays(self, ready: NewRunForm) -> None:
        spec = ready.spec
        spec.evaluation.percent = 40.0
        ready.load_spec(spec, ("evaluation.percent",))
        ready.set_value("evaluation.percent", 30.0)
        ready.forget_data()
        assert ready.value("evaluation.percent") == 30.0
