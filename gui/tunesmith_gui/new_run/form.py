"""The form of a new run without widgets: values, texts that are no values, problems, preset, and what Start lacks.

A text that can't be read as its setting's value is kept and told about; the spec keeps the last good value meanwhile,
so a plan can still be made.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QObject, Signal

from tunesmith_assets import samples
from tunesmith_core import objectives, presets
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import AUTO, RunSpec, has_effect, usual_format
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.spec_objective import SMOOTHED
from tunesmith_core.spec_rollouts import READ, RewardSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_core.trained_parts import FULL, LORA, OPTIMIZERS_OF_FULL
from tunesmith_gui.new_run.draft import DRAFT_VERSION, from_1, lenient_spec
from tunesmith_gui.new_run.setting_paths import (
    ADAPTER,
    CHOSEN_ABOVE,
    FORGOTTEN_WITH_DATA,
    GROUPS,
    LISTED,
    MAPPING,
    OBJECTIVE,
    OF_CHATS,
    PRESET_PATHS,
    REWARDS,
    SETTINGS,
    SMOOTHING,
    SOURCES,
    TEACHER,
    WEIGHT,
    of_first,
    reward_path,
    setting_of,
)
from tunesmith_gui.new_run.setting_text import SettingProblem, parse, value_text
from tunesmith_gui.new_run.surroundings import Missing, Surroundings
from tunesmith_gui.tr import core_text

SAMPLE_FILES = frozenset(
    str(samples.sample_folder(language) / f"{name}.jsonl")
    for language in samples.LANGUAGES
    for name in ("train", "pairs", "labels", "classes", "sums", "documents", "questions", "steps")
)
BY_EXAMPLE, BY_PREFERENCE, BY_LABEL, BY_REWARD, BY_SCORE, BY_CLASS = "sft", "dpo", "kto", "grpo", "reward", "classify"
BY_TEACHER, BY_STEPS = "gkd", "prm"
FROM_STORED = "kd"
"""The objective of BY_TEACHER where the data holds what a bigger model found likely."""
BY_READING, BY_FULL = "documents", "full"
WAYS = (BY_EXAMPLE, BY_READING, BY_PREFERENCE, BY_LABEL, BY_REWARD, BY_TEACHER, BY_SCORE, BY_STEPS, BY_CLASS, BY_FULL)
"""The ways to teach, each by the objective that it begins with; reading documents is SFT on whole texts, and full
fine-tuning trains the whole model by example."""

EARLY_STOPPING_EVALUATIONS = 3
EVALUATION_PERCENT = 5.0


@dataclass(slots=True)
class _WrongText:
    text: str
    problem: str


@dataclass(slots=True)
class _State:
    spec: RunSpec = field(default_factory=RunSpec)
    wrong: dict[str, _WrongText] = field(default_factory=dict)
    proposed: set[str] = field(default_factory=set)
    """Settings whose values were proposed for this data, not chosen."""
    reads: bool = False
    """Whether the model is taught by reading documents."""

    def wrong_texts(self) -> dict[str, str]:
        return {path: each.text for path, each in self.wrong.items()}


@dataclass(slots=True)
class _Sample:
    """The sample that fills the form, and what the form held before."""

    before: _State
    spec: RunSpec


def _sentence(phrase: str) -> str:
    """A phrase such as "must be at least 1", which follows a setting's name elsewhere, as it begins a sentence."""
    return phrase[:1].upper() + phrase[1:]


class NewRunForm(QObject):
    """The form's state.

    Signals:
        changed: the dotted path of the setting (or "name") that changed, "" when everything may have.
    """

    changed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.surroundings = Surroundings()
        self.is_weighing = False
        """Whether a person is giving weights to data files: until the second is there, the first has no effect."""
        self._state = _State()
        self._objectives: dict[str, str] = {}
        self._take_preset(presets.DEFAULT, RunSpec())
        self._sample: _Sample | None = None

    @property
    def spec(self) -> RunSpec:
        """A copy of the form's last good values."""
        return copy.deepcopy(self._state.spec)

    def value(self, path: str) -> Any:  # Any: the setting's type
        """The last good value of a setting."""
        return setting_of(path).get(self._state.spec)

    def text(self, path: str) -> str:
        """What the input of a setting shows."""
        wrong = self._state.wrong.get(path)
        return wrong.text if wrong else value_text(setting_of(path), self.value(path))

    def set_text(self, path: str, text: str) -> None:
        """Takes what a person typed."""
        try:
            value = parse(setting_of(path), text)
        except SettingProblem as problem:
            self._state.wrong[path] = _WrongText(text, str(problem))
            # On the way to 100 stood a 1, which nobody meant.
            setting_of(path).set(self._state.spec, copy.deepcopy(self.baseline(path)))
            self.changed.emit(path)
        else:
            self.set_value(path, value)

    def set_value(self, path: str, value: object) -> None:
        """Takes a value of the setting's type."""
        if path == OBJECTIVE:
            reads = self._state.reads and value == BY_EXAMPLE
            self._choose(str(value), self.value(ADAPTER), reads=reads)
            return
        if path == ADAPTER:
            self._choose(self.value(OBJECTIVE), str(value), reads=self._state.reads and value != FULL)
            return
        if path.endswith("].format") and value == AUTO:
            value = self._usual_format
        was_wrong = self._state.wrong.pop(path, None) is not None
        self._state.proposed.discard(path)
        if was_wrong or value != self.value(path):
            setting_of(path).set(self._state.spec, copy.deepcopy(value))
            self.changed.emit(path)

    def add_source(self, source: SourceSpec) -> None:
        """Takes one more data file."""
        usual = self._usual_format if source.format == AUTO else source.format
        self._state.spec.data.sources.append(dataclasses.replace(source, format=usual))
        self.changed.emit(SOURCES)

    def remove_source(self, number: int) -> None:
        """Lets go of a data file, not the first; weights that say nothing without it, too."""
        sources = self._state.spec.data.sources
        del sources[number]
        self._forget_texts("data.sources[")
        if len(sources) == 1:
            sources[0].weight, sources[0].most_rows, sources[0].replay = 0.0, None, 0.0
        self.changed.emit(SOURCES)

    def _forget_texts(self, start: str) -> None:
        # Refused ones belong to numbers that are others now.
        self._state.wrong = {path: each for path, each in self._state.wrong.items() if not path.startswith(start)}

    def add_reward(self) -> None:
        """Takes one more reward."""
        self._state.spec.rollouts.rewards.append(RewardSpec())
        self.changed.emit(REWARDS)

    def remove_reward(self, number: int) -> None:
        """Lets go of a reward."""
        del self._state.spec.rollouts.rewards[number]
        self._forget_texts(f"{REWARDS}[")
        self.changed.emit(REWARDS)

    @property
    def name(self) -> str:
        """The run's name; empty lets the program make one."""
        return self._state.spec.name

    def set_name(self, name: str) -> None:
        """Takes the run's name."""
        if name.strip() != self._state.spec.name:
            self._state.spec.name = name.strip()
            self.changed.emit("name")

    # Problems

    def problem(self, path: str) -> str:
        """What is wrong with a setting, for the person; empty when nothing is."""
        return self.told_problems().get(path, "")

    def told_problems(self) -> dict[str, str]:
        """The problems, without one that is only there until the next weight is typed."""
        found = self.problems()
        if not self.is_weighing:
            return found
        wrong = self._state.wrong
        return {path: words for path, words in found.items() if not path.endswith(f".{WEIGHT}") or path in wrong}

    def problems(self) -> dict[str, str]:
        """Dotted path -> words for every setting that is wrong; a missing model or data is not counted here."""
        found = self.reward_problems()
        found |= {problem.path: _sentence(core_text(problem.problem)) for problem in self._state.spec.problems()}
        column, columns = self._state.spec.evaluation.groups_by, self.surroundings.columns
        if column and columns is not None and column not in columns:
            found[GROUPS] = self.tr("The data has no such column. Choose another one, or none.")
        found |= {path: wrong.problem for path, wrong in self._state.wrong.items() if self.uses(path)}
        found |= {path: core_text(words) for path, words in self.surroundings.unmatched.items() if path not in found}
        missing = [path for path in (*CHOSEN_ABOVE, TEACHER) if not self.value(path).strip()]
        return {path: words for path, words in found.items() if path not in missing}

    def reward_problems(self) -> dict[str, str]:
        """Dotted path -> sentence for each reward that can't be computed here: by its file, model or packages."""
        rewards = self._state.spec.rollouts.rewards if self.way == BY_REWARD else []
        known = self.surroundings.reward_problems
        asked = {reward_path(number, READ.get(each.kind, "kind")): each.read for number, each in enumerate(rewards)}
        return {path: known[read] for path, read in asked.items() if read in known}

    def know_rewards(self, problems: Mapping[tuple[str, str], str], *, packages_missing: bool) -> None:
        """Takes what was found out about rewards, each by its kind and path, and whether their packages are missing."""
        self.surroundings.reward_problems, self.surroundings.packages_missing = problems, packages_missing
        self.changed.emit(REWARDS)

    def missing(self) -> Missing:
        """What Start still lacks."""
        around = self.surroundings
        checks = (
            (around.downloading, Missing.DOWNLOADING),
            (around.starting, Missing.STARTING),
            (around.environment_missing, Missing.ENVIRONMENT),
            (not self.value("model.path").strip(), Missing.MODEL),
            (around.model_broken, Missing.MODEL_BROKEN),
            (self.lacks_teacher, Missing.TEACHER),
            (not self.value("data.sources[0].path").strip(), Missing.DATA),
            (around.columns_unknown, Missing.COLUMNS),
            (self.lacks_pairs, Missing.PAIRS),
            (self.lacks_labels is not None, Missing.LABELS),
            (self.lacks_prompts, Missing.PROMPTS),
            (around.data_broken, Missing.DATA_BROKEN),
            (bool(self.problems()), Missing.SETTING),
            (around.no_room, Missing.ROOM),
            (around.learns_nothing, Missing.LEARNS_NOTHING),
            (around.rows_too_long, Missing.TOO_LONG),
            (around.does_not_fit, Missing.MEMORY),
        )
        return next((missing for lacks, missing in checks if lacks), Missing.NOTHING)

    # The way to teach

    @property
    def way(self) -> str:
        """How the model is taught: one of WAYS."""
        kind = self.value(OBJECTIVE)
        if kind in objectives.REINFORCEMENT:
            return BY_REWARD
        if kind in objectives.PREFERENCES:
            return BY_PREFERENCE
        if kind in objectives.DIVERGENCES:
            return BY_TEACHER
        if kind in WAYS and kind != BY_EXAMPLE:
            return str(kind)
        if self.value(ADAPTER) == FULL:
            return BY_FULL
        return BY_READING if self._state.reads else BY_EXAMPLE

    @property
    def lacks_pairs(self) -> bool:
        """Whether the objective learns from preference pairs, and data has none."""
        return self.value(OBJECTIVE) in objectives.FROM_PAIRS and self.surroundings.is_pairs is False

    @property
    def lacks_labels(self) -> TunesmithError | None:
        """Why the labels of data can't be learned from where that is wanted, None for nothing."""
        return self.surroundings.labels_problem if self.way in (BY_LABEL, BY_CLASS) else None

    @property
    def lacks_prompts(self) -> bool:
        """Whether the model is to answer prompts, and the data is plain text."""
        return self.way == BY_REWARD and self.surroundings.is_text is True

    @property
    def lacks_teacher(self) -> bool:
        """Whether a bigger model is to be loaded, and none is chosen that suits the base model."""
        if self.value(OBJECTIVE) != BY_TEACHER:
            return False
        return not self.value(TEACHER).strip() or self.surroundings.teacher_problem is not None

    @property
    def lacking_words(self) -> str:
        """Why nothing is planned although every setting may be valid; "" where the way to teach has what it needs."""
        if self.lacks_teacher:
            return self.tr("The plan appears once a bigger model is chosen.")
        if self.lacks_pairs or self.lacks_labels or self.lacks_prompts or self.surroundings.is_unsuited:
            return self.tr("The plan appears once the data suits the way to teach.")
        return ""

    def know_teacher(self, problem: TunesmithError | None) -> None:
        """Takes what was found out about the bigger model: why it can't be learned from, None where it can."""
        self.surroundings.teacher_problem = problem
        self.changed.emit(TEACHER)

    def know_stored(self, has_stored: bool | None) -> None:
        """Takes whether the data holds what a bigger model found likely: then none has to be loaded beside."""
        if has_stored is None or has_stored == self.surroundings.has_stored:
            return
        self.surroundings.has_stored = has_stored
        if self.way == BY_TEACHER:
            self._choose(self._begun_with(BY_TEACHER), self.value(ADAPTER))

    def _begun_with(self, way: str) -> str:
        """The objective that a way to teach begins with."""
        if way in (BY_READING, BY_FULL):
            return BY_EXAMPLE
        return FROM_STORED if way == BY_TEACHER and self.surroundings.has_stored else way

    @property
    def could_prefer(self) -> bool:
        """Whether the data has preference pairs of which only the better answers are learned."""
        learns_one = self.value(OBJECTIVE) in (BY_EXAMPLE, BY_TEACHER)
        return learns_one and self.surroundings.is_pairs is True

    def choose_way(self, way: str) -> None:
        """Takes a way to teach; an objective that belongs to it stays, and comes back with it."""
        if way == self.way:
            return
        self._objectives[self.way] = self.value(OBJECTIVE)
        usual = self._begun_with(way)
        objective = usual if way in (BY_READING, BY_FULL, BY_TEACHER) else self._objectives.get(way, usual)
        self._choose(objective, FULL if way == BY_FULL else LORA, reads=way == BY_READING)

    @property
    def _usual_format(self) -> str:
        """How rows are read where nobody has said it."""
        return usual_format(self.value(OBJECTIVE))

    def uses(self, path: str) -> bool:
        """Whether a setting has an effect with what else is chosen."""
        if path == SMOOTHING and self.value(OBJECTIVE) == "dpo" and self.value("objective.dpo_loss") not in SMOOTHED:
            # A value that has to be taken back is shown.
            return bool(self.value(path)) or path in self._state.wrong
        if path in OF_CHATS and self.way == BY_READING:
            return self.is_changed(path)
        return has_effect(self._state.spec, path)

    def _choose(self, objective: str, adapter: str, *, reads: bool = False) -> None:
        """Takes what suits an objective and what is trained, where the person has not chosen other values.

        Args:
            objective: what is learned.
            adapter: what is trained.
            reads: whether documents are learned.
        """
        if (objective, adapter, reads) == (self.value(OBJECTIVE), self.value(ADAPTER), self._state.reads):
            return
        untouched = [path for path in PRESET_PATHS | presets.DOCUMENTS.keys() if not self.is_changed(path)]
        before, spec = self._usual_format, self._state.spec
        spec.objective.kind, spec.adapter.kind, self._state.reads = objective, adapter, reads
        if adapter == FULL:
            # Weights in 4 bits can't be trained, and the setting is not shown then.
            spec.quantization.kind = "none"
        elif spec.optimizer.name in OPTIMIZERS_OF_FULL:
            spec.optimizer.name = RunSpec().optimizer.name
        for source in spec.data.sources if before != self._usual_format else ():
            # Columns that were said belong to the rows of the other way.
            source.format, source.columns = self._usual_format, {}
        self._take_preset(self._base_preset, self._baseline)
        for path in untouched:
            setting_of(path).set(self._state.spec, copy.deepcopy(self.baseline(path)))
        self.changed.emit("")

    # Presets, changes and resets

    @property
    def preset(self) -> str:
        """The preset from which the form comes; what differs from it is counted as changed."""
        return self._base_preset

    def choose_preset(self, name: str) -> None:
        """Applies a preset; what it does not name stays."""
        for path in PRESET_PATHS:
            self._state.wrong.pop(path, None)
        self._state.spec = presets.apply(self._state.spec, name)
        self._take_preset(name, self._baseline)
        self.changed.emit("")

    def _take_preset(self, name: str, baseline: RunSpec) -> None:
        """Counts changes from a preset for what is learned and trained, beside other values to go back to."""
        baseline = copy.deepcopy(baseline)
        baseline.objective.kind, baseline.adapter.kind = self.value(OBJECTIVE), self.value(ADAPTER)
        if baseline.adapter.kind == FULL:
            baseline.quantization.kind = "none"
        for path in presets.DOCUMENTS:
            setting_of(path).set(baseline, setting_of(path).get(RunSpec()))
        baseline = with_changes(baseline, presets.DOCUMENTS if self._state.reads else {})
        self._base_preset, self._baseline = name, presets.apply(baseline, name)
        # The way to teach is no change of a preset, and Reset goes back to the objective that it begins with.
        self._baseline.objective.kind = self._begun_with(self.way)
        self._baseline.adapter.kind = FULL if self.way == BY_FULL else LORA
        self._baseline.data.sources[0].format = self._usual_format

    def suggest_memory_settings(self, changes: presets.Changes) -> None:
        """Takes the settings that suit this model on this computer, where the person has not chosen others."""
        untouched = {path: value for path, value in changes.items() if not self.is_changed(path)}
        self._baseline = with_changes(self._baseline, changes)
        self._state.spec = with_changes(self._state.spec, untouched)
        self.changed.emit("")

    def baseline(self, path: str) -> Any:  # Any: the setting's type
        """The value that Reset brings back."""
        return setting_of(of_first(path)).get(self._baseline)

    def is_changed(self, path: str) -> bool:
        """Whether a setting differs from its preset's value, or holds a wrong text."""
        return path in self._state.wrong or self.value(path) != self.baseline(path)

    def changed_paths(self) -> list[str]:
        """The settings that a person changed from the preset, and from the sample, in the order of the list."""
        listed = (path for path in LISTED if path not in MAPPING and self.is_own_change(path))
        return [path for path in listed if self.uses(path)]

    def is_own_change(self, path: str) -> bool:
        """Whether a person changed a setting from the preset: it came neither with the sample nor with the data."""
        if path in self._state.wrong:
            return True
        sample = self._sample.spec if self._sample else self._baseline
        is_counted = path not in MAPPING and self.is_changed(path)
        return is_counted and (path in self._state.proposed or self.value(path) != setting_of(path).get(sample))

    def reset(self, path: str) -> None:
        """Brings one setting back."""
        self.set_value(path, self.baseline(path))

    def reset_all(self) -> None:
        """Brings every listed setting back."""
        # First of all, because the other values that are gone back to depend on it.
        self._choose(self.baseline(OBJECTIVE), self.baseline(ADAPTER), reads=self._state.reads)
        for path in LISTED:
            if path not in MAPPING:
                self._state.wrong.pop(path, None)
                SETTINGS[path].set(self._state.spec, copy.deepcopy(self.baseline(path)))
        self.changed.emit("")

    # Goals

    @property
    def keeps_evaluation_split(self) -> bool:
        """Whether rows are held out (or an own evaluation file is named)."""
        return self.value("evaluation.percent") > 0

    def set_keeps_evaluation_split(self, keeps: bool) -> None:
        """Holds out five percent of the rows, or none; without evaluation nothing can stop early."""
        if not keeps and not self.value("evaluation.path"):
            self.set_value("evaluation.early_stopping", 0)
        self.set_value("evaluation.percent", EVALUATION_PERCENT if keeps else 0.0)

    @property
    def can_stop_early(self) -> bool:
        """Whether there is anything to evaluate on."""
        return bool(self.value("evaluation.path")) or self.keeps_evaluation_split

    @property
    def stops_early(self) -> bool:
        """Whether training ends after evaluations without gain."""
        return self.value("evaluation.early_stopping") > 0

    def set_stops_early(self, stops: bool) -> None:
        """Stops after three evaluations without a better loss, or never."""
        self.set_value("evaluation.early_stopping", EARLY_STOPPING_EVALUATIONS if stops else 0)

    # Whole specs and drafts

    def load_spec(self, spec: RunSpec, proposed: Iterable[str] = ()) -> None:
        """Fills the form from a spec: a dropped file, a run to repeat, the sample; `proposed` as in a Proposal."""
        before = self._sample.before if self._sample else self._state
        self._sample = _Sample(before, copy.deepcopy(spec)) if spec.data.sources[0].path in SAMPLE_FILES else None
        self._fill(_State(copy.deepcopy(spec), proposed=set(proposed), reads=presets.reads_documents(spec)))

    def leave_sample(self) -> None:
        """Brings back what the sample replaced, refused texts too; what was changed since stays."""
        if self._sample is None:
            return
        before, sample = self._sample.before, self._sample.spec
        self._sample = None
        spec, objective, adapter = self._state.spec, self.value(OBJECTIVE), self.value(ADAPTER)
        reads = self._state.reads
        for path, setting in SETTINGS.items():
            if path not in (*CHOSEN_ABOVE, *self._state.wrong) and setting.get(spec) == setting.get(sample):
                setting.set(spec, copy.deepcopy(setting.get(before.spec)))
                if path in before.wrong:
                    self._state.wrong[path] = before.wrong[path]
        spec.name = before.spec.name if spec.name == sample.name else spec.name
        self._state.reads = before.reads
        self._fill(self._state)
        # The way to teach was chosen, not brought by the sample.
        self._choose(objective, adapter, reads=reads)

    def forget_data(self) -> None:
        """Empties what belongs to the data: its files, how they are read, held-out rows in a file, what was proposed.
        """
        spec = self._state.spec
        spec.data.sources = spec.data.sources[:1]
        self.surroundings.encoding = ""
        for path in (*FORGOTTEN_WITH_DATA, *self._state.proposed):
            self.reset(path)
        if self.value("evaluation.path"):
            self.reset("evaluation.path")
            self.reset("evaluation.percent")

    def _fill(self, state: _State) -> None:
        self._state = state
        self.is_weighing = False
        self.surroundings.encoding = ""
        self._take_preset(presets.matching(state.spec) or presets.DEFAULT, RunSpec())
        self.changed.emit("")

    def to_draft(self) -> dict[str, Any]:  # Any: JSON values
        """The form as JSON values, wrong texts included."""
        spec, wrong = self._state.spec.to_dict(), self._state.wrong_texts()
        draft = {"version": DRAFT_VERSION, "preset": self._base_preset, "spec": spec, "wrong_texts": wrong}
        draft["proposed"], draft["reads"] = sorted(self._state.proposed), self._state.reads
        if self._sample is not None:
            before = self._sample.before
            draft |= {"before_sample": before.spec.to_dict(), "wrong_before_sample": before.wrong_texts()}
            draft["sample"], draft["read_before_sample"] = self._sample.spec.to_dict(), before.reads
        return draft

    def load_draft(self, draft: object) -> bool:
        """Fills the form from `to_draft`; a draft that can't be understood is left alone, with False."""
        if not isinstance(draft, dict) or draft.get("version") not in (1, DRAFT_VERSION):
            return False
        if draft["version"] == 1:
            draft = from_1(draft)
        spec = lenient_spec(draft.get("spec"))
        if spec is None:
            return False
        preset = draft["preset"] if draft.get("preset") in presets.PRESETS else presets.DEFAULT
        before, sample = lenient_spec(draft.get("before_sample")), lenient_spec(draft.get("sample"))
        self._sample = None
        if before and sample:
            # Each of the two in its turn is the form's own, so that its texts are judged in one way.
            self._state = _State(before, reads=draft.get("read_before_sample") is True)
            self._take_preset(preset, RunSpec())
            self._take_texts(draft.get("wrong_before_sample"))
            self._sample = _Sample(self._state, sample)
        proposed = draft.get("proposed") or []
        proposals = {path for path in SETTINGS if path in proposed}
        self._state = _State(spec, proposed=proposals, reads=draft.get("reads") is True)
        self._take_preset(preset, RunSpec())
        self._take_texts(draft.get("wrong_texts"))
        self.changed.emit("")
        return True

    def _take_texts(self, texts: object) -> None:
        for path, text in texts.items() if isinstance(texts, dict) else ():
            if path in SETTINGS and isinstance(text, str):
                self.set_text(path, text)
