"""RunSpec: the frozen configuration of one run, as JSON with a version.

A spec is what `tunesmith train` takes, what the window writes into a run folder, and what every view of a run reads.
Reading reports every wrong field at once, by its dotted path.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tunesmith_core import files, paths
from tunesmith_core import spec_distillation as distillation
from tunesmith_core import spec_rollouts as rollouts
from tunesmith_core import spec_sections as sections
from tunesmith_core import spec_training as training
from tunesmith_core.datafmt.formats import LABELED, STEPS
from tunesmith_core.declared import Declaration, FieldProblem, get_field, iter_declarations, read_section, set_field
from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import brief, quoted, shortened
from tunesmith_core.messages import Message, joined, json_problem
from tunesmith_core.objectives import (
    FROM_LABELS,
    FROM_STEPS,
    LEARNING_RATE_DIVISORS,
    ORIGINS,
    REINFORCEMENT,
    WITHOUT_EFFECT,
    uses,
)
from tunesmith_core.spec_migrations import migrated
from tunesmith_core.spec_objective import ObjectiveSpec
from tunesmith_core.spec_problems import cross_problems
from tunesmith_core.spec_sections import FROZEN_EMBEDDINGS
from tunesmith_core.trained_parts import FULL, LEARNING_RATE_DIVISOR, LORA, matters

SPEC_VERSION = 3

MOST_BYTES = 16 << 20
"""Of a spec file; one with a thousand data files has a hundredth of it."""

MOST_TOLD = 20
"""Wrong fields that one message lists."""

AUTO = "auto"
"""The format of rows that is recognized by their columns."""

SECTIONS: dict[str, type[Any]] = {
    "model": sections.ModelSpec,
    "data": sections.DataSpec,
    "objective": ObjectiveSpec,
    "rollouts": rollouts.RolloutSpec,
    "teacher": distillation.TeacherSpec,
    "adapter": sections.AdapterSpec,
    "quantization": sections.QuantizationSpec,
    "optimizer": training.OptimizerSpec,
    "schedule": training.ScheduleSpec,
    "evaluation": training.EvaluationSpec,
    "saving": training.SavingSpec,
    "hardware": training.HardwareSpec,
}
"""Section names in the order in which forms and documents show them."""


@dataclass(kw_only=True, slots=True)
class RunSpec:
    """Everything that decides the outcome of a run."""

    name: str = ""
    """Name of the run; empty means that one is made from model and data."""
    model: sections.ModelSpec = field(default_factory=sections.ModelSpec)
    data: sections.DataSpec = field(default_factory=sections.DataSpec)
    objective: ObjectiveSpec = field(default_factory=ObjectiveSpec)
    rollouts: rollouts.RolloutSpec = field(default_factory=rollouts.RolloutSpec)
    teacher: distillation.TeacherSpec = field(default_factory=distillation.TeacherSpec)
    adapter: sections.AdapterSpec = field(default_factory=sections.AdapterSpec)
    quantization: sections.QuantizationSpec = field(default_factory=sections.QuantizationSpec)
    optimizer: training.OptimizerSpec = field(default_factory=training.OptimizerSpec)
    schedule: training.ScheduleSpec = field(default_factory=training.ScheduleSpec)
    evaluation: training.EvaluationSpec = field(default_factory=training.EvaluationSpec)
    saving: training.SavingSpec = field(default_factory=training.SavingSpec)
    hardware: training.HardwareSpec = field(default_factory=training.HardwareSpec)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values, version first."""
        return {"version": SPEC_VERSION, **dataclasses.asdict(self)}

    def problems(self) -> list[FieldProblem]:
        """Return what is wrong with the values of this spec, as `from_dict` would find it."""
        return _read(self.to_dict())[1]

    @staticmethod
    def salvage(values: object) -> RunSpec:
        """Build a spec from JSON values; what is wrong in them takes its default.

        Raises:
            UserError: `spec-too-new` for a newer version.
        """
        return _read(values)[0]

    @staticmethod
    def from_dict(values: object, source: str = "run spec") -> RunSpec:
        """Build a spec from JSON values.

        Args:
            values: the parsed JSON.
            source: file or place, named in the error.

        Raises:
            UserError: `spec-too-new` for a newer version, `spec-invalid` with every wrong field listed.
        """
        spec, problems = _read(values, source)
        if problems:
            lines = told(problems, "\n  ")
            raise TunesmithError("spec-invalid", "{source}:\n  {lines}", source=source, lines=lines)
        return spec

    @staticmethod
    def load(path: Path) -> RunSpec:
        """Read a spec file; relative paths inside it are taken from the file's folder.

        Raises:
            UserError: `file-unreadable` when it can't be opened or is no JSON, `spec-invalid` when it is wrong,
                `spec-too-new` for a newer version.
        """
        try:
            values = files.read_foreign_json(path, MOST_BYTES)
        except OSError as error:
            raise TunesmithError(
                "file-unreadable",
                "{path}: {reason}.",
                path=path,
                reason=Message(str(error.strerror)),
            ) from error
        except UnicodeDecodeError as error:
            raise TunesmithError("file-unreadable", "{path}: the file is not UTF-8 text.", path=path) from error
        except json.JSONDecodeError as error:
            raise TunesmithError(
                "file-unreadable",
                "{path}, line {line}, column {column}: not valid JSON: {msg}.",
                path=path,
                line=error.lineno,
                column=error.colno,
                msg=json_problem(error.msg),
            ) from error
        except ValueError as error:
            raise TunesmithError("file-unreadable", "{path}: {reason}.", path=path, reason=error.args[0]) from error
        spec = RunSpec.from_dict(values, str(path))
        spec.resolve_paths(path.parent)
        return spec

    def all_sources(self) -> list[sections.SourceSpec]:
        """Return the files of rows; one of held-out rows comes last, is laid out as the first and used as a whole."""
        first = self.data.sources[0]
        sheet = first.sheet if first.path == self.evaluation.path else ""
        held_out = dataclasses.replace(
            first, path=self.evaluation.path, sheet=sheet, weight=0.0, most_rows=None, reviewed_only=False
        )
        return [*self.data.sources, *([held_out] if self.evaluation.path else [])]

    def resolve_paths(self, folder: Path) -> None:
        """Make the paths of model and data absolute, relative ones against a folder; a hub id stays as it is.

        A name that is no path there is looked for among the models of the library.
        """
        self.model.path = _model_path(self.model.path, folder)
        self.teacher.path = _model_path(self.teacher.path, folder)
        holders: list[sections.SourceSpec | training.EvaluationSpec | rollouts.RewardSpec] = [
            *self.data.sources,
            self.evaluation,
            *self.rollouts.rewards,
        ]
        for holder in holders:
            for name in PATHS:
                if path := getattr(holder, name, ""):
                    setattr(holder, name, _resolved(path, folder))
        self.adapter.start_from = _resolved(self.adapter.start_from, folder)
        self.objective.reference_adapter = _resolved(self.objective.reference_adapter, folder)


PATHS = ("path", "schema", "model")
"""Settings of data files and rewards that are paths."""


def _resolved(path: str, folder: Path) -> str:
    # Not Path.expanduser, which raises for the home of an unknown person.
    return str((folder / os.path.expanduser(path)).absolute()) if path else ""  # noqa: PTH111


def _model_path(text: str, folder: Path) -> str:
    """Return the absolute path of a model, see `RunSpec.resolve_paths`."""
    if text and (text.startswith(".") or os.path.lexists(folder / text)):
        return str((folder / text).absolute())
    in_library = paths.models_dir() / text
    # Not Path.is_dir, which raises for a name that no file can have.
    if text and Path(text).name == text and os.path.isdir(in_library):  # noqa: PTH112
        return str(in_library)
    return text


def usual_format(objective: str) -> str:
    """Return how rows of an objective are read where nobody has said it."""
    return LABELED if objective in FROM_LABELS else STEPS if objective in FROM_STEPS else AUTO


def told(problems: Sequence[FieldProblem], separator: str) -> Message:
    """Return what is wrong with fields as one message, which counts the rest where there are very many."""
    parts = [problem.message for problem in problems[:MOST_TOLD]]
    if len(problems) > MOST_TOLD:
        parts.append(Message("and {count} more", count=len(problems) - MOST_TOLD))
    return joined(parts, separator)


def _read(values: object, source: str = "run spec") -> tuple[RunSpec, list[FieldProblem]]:
    problems: list[FieldProblem] = []
    if not isinstance(values, dict):
        return RunSpec(), [FieldProblem(Message("the content"), "must be a JSON object")]
    version = values.get("version")
    if isinstance(version, int) and not isinstance(version, bool) and version > SPEC_VERSION:
        raise TunesmithError(
            "spec-too-new",
            "{source}: version {version} is newer than {spec_version}, the newest version that this program reads.",
            source=source,
            version=brief(version),
            spec_version=SPEC_VERSION,
        )
    values = migrated(values, SPEC_VERSION)
    if values.get("version") != SPEC_VERSION:
        problems.append(
            FieldProblem(
                "version", Message("must be {wanted}, not {value}", wanted=SPEC_VERSION, value=quoted(version))
            )
        )
    name = values.get("name", "")
    if isinstance(name, str) and "\0" in name:
        problems.append(FieldProblem("name", Message("must not contain a NUL character")))
    if not isinstance(name, str):
        problems.append(
            FieldProblem(
                "name", Message("must be {wanted}, not {value}", wanted=Message("a text"), value=quoted(name))
            )
        )
        name = ""
    unknown = values.keys() - SECTIONS.keys() - {"version", "name"}
    problems.extend(FieldProblem(shortened(key), "is not a section of this version") for key in sorted(unknown))
    built = {
        section: read_section(kind, values.get(section, {}), section, problems) for section, kind in SECTIONS.items()
    }
    spec = RunSpec(name=name, **built)
    given = values.get("optimizer", {})
    if isinstance(given, dict) and "learning_rate" not in given:
        spec.optimizer.learning_rate /= LEARNING_RATE_DIVISORS.get(spec.objective.kind, 1)
        spec.optimizer.learning_rate /= LEARNING_RATE_DIVISOR if spec.adapter.kind == FULL else 1
    for each in spec.data.sources:
        each.format = usual_format(spec.objective.kind) if each.format == AUTO else each.format
    problems.extend(cross_problems(spec))
    return spec, problems


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a spec, as a form needs it."""

    section: str
    name: str
    type: object
    default: object
    declaration: Declaration

    @property
    def path(self) -> str:
        """Dotted path such as "adapter.rank" or "data.sources[0].path"."""
        return f"{self.section}.{self.name}"

    def get(self, spec: RunSpec) -> Any:  # Any: the setting's type
        """Return this setting's value in a spec."""
        return get_field(getattr(spec, self.section), self.name)

    def set(self, spec: RunSpec, value: object) -> None:
        """Store a value of the setting's type in a spec, unchecked."""
        set_field(getattr(spec, self.section), self.name, value)


TOLD_SECTIONS = ("objective", "rollouts", "teacher", "adapter", "quantization", "optimizer", "schedule")
"""What a card or a report tells of the settings; what they say of files and computers is told apart."""

TOLD_OF_DATA = ("data.train_on", "data.context_length", "data.overlong", "evaluation.percent")
"""What decides which tokens are learned, and from which rows."""


def told_settings(spec: RunSpec) -> list[Setting]:
    """Return the settings that cards and reports show of a run, without those that have no effect in it."""
    unused = {"schedule.epochs"} if spec.schedule.max_steps else set()
    # Told as a sentence of their own, see `lineage` and `rewards.described`.
    unused |= {"adapter.start_from", "objective.reference_adapter", "teacher.path"}
    unused |= {each.path for each in iter_settings() if each.path.startswith("rollouts.rewards[")}
    unused |= {each.path for each in iter_settings() if each.section in TOLD_SECTIONS and each.get(spec) == []}
    if spec.evaluation.path:
        unused.add("evaluation.percent")
    told = [each for each in iter_settings() if each.section in TOLD_SECTIONS or each.path in TOLD_OF_DATA]
    return [each for each in told if each.path not in unused and has_effect(spec, each.path)]


def has_effect(spec: RunSpec, path: str) -> bool:
    """Return whether a setting of a dotted path has an effect on a run."""
    if spec.optimizer.name == "adafactor" and path in ("optimizer.beta1", "optimizer.beta2", "optimizer.epsilon"):
        return False
    # A value that has to be taken back is shown.
    if path == "quantization.kind" and spec.quantization.kind != "none" and spec.adapter.kind != FULL:
        return True
    if spec.objective.kind == "grpo" and path in WITHOUT_EFFECT.get(spec.objective.policy_loss, ()):
        return False
    if path == "teacher.max_tokens" and not spec.teacher.own_answers:
        return False
    if path == "adapter.initial_values" and continues(spec):
        return spec.adapter.initial_values != "default"
    if path == "objective.reference_adapter":
        return compares(spec) and (spec.adapter.kind == LORA or bool(spec.objective.reference_adapter))
    if path == "optimizer.embedding_rate" and spec.adapter.embeddings == FROZEN_EMBEDDINGS:
        return False
    return uses(spec.objective.kind, path) and matters(spec.adapter.kind, path)


def idle_note(spec: RunSpec) -> Message | None:
    """Return a sentence that names settings with a value of their own and no effect on the run; None for no such."""
    usual = RunSpec()
    idle = [
        each.path
        for each in iter_settings()
        if "[" not in each.path and each.get(spec) != each.get(usual) and not has_effect(spec, each.path)
    ]
    return Message("Without effect in this run: {settings}.", settings=", ".join(idle)) if idle else None


def continues(spec: RunSpec) -> bool:
    """Return whether a run trains an adapter further that there is already."""
    path = "adapter.start_from"
    return bool(spec.adapter.start_from) and uses(spec.objective.kind, path) and matters(spec.adapter.kind, path)


def compares(spec: RunSpec) -> bool:
    """Return whether a run compares its model with a reference while it trains."""
    kind = spec.objective.kind
    if kind in REINFORCEMENT:
        return bool(strength_of(spec)[0])
    return uses(kind, "objective.reference_adapter") and spec.adapter.kind != FULL


def in_force(spec: RunSpec) -> RunSpec:
    """Return a spec that says what its run does where the values of the objective's paper are taken."""
    origin, objective = ORIGINS.get(spec.objective.kind), spec.objective
    if origin is None:
        return spec
    own = {name: getattr(objective, name) for name in ("beta", "sft_weight")}
    values = {name: getattr(origin, name) if value is None else value for name, value in own.items()}
    return replace(spec, objective=replace(objective, **values))


def strength_of(spec: RunSpec) -> tuple[float, float]:
    """Return the beta and the weight of the SFT loss that a run of an objective with a paper has."""
    objective = in_force(spec).objective
    return objective.beta or 0.0, objective.sft_weight or 0.0


def iter_settings() -> Iterator[Setting]:
    """Yield every setting of a RunSpec in the order of forms and documents."""
    for section, kind in SECTIONS.items():
        for name, kind_of_value, default, declaration in iter_declarations(kind):
            yield Setting(section, name, kind_of_value, default, declaration)
