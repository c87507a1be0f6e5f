"""What the window does with the spec of a run: values as a person reads them, specs for another try."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.adapter_folders import take_settings
from tunesmith_core.datafmt.formats import LABELED, STEPS
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import CHOICE_WORDS, SourceSpec
from tunesmith_gui.tr import core_text, translate

_LOWER_RATE = 3


@dataclass(frozen=True, slots=True)
class Proposal:
    """A spec for the Train page, and the settings that are proposed for this run and its data only.

    Attributes:
        settings: paths; the form opens at the first.
    """

    spec: RunSpec
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AtSetting:
    """The Train page, opened at a setting that a person is to change.

    Attributes:
        path: of the setting.
        spec: what the form is filled with first; None to leave it as it is.
    """

    path: str
    spec: RunSpec | None = None


@dataclass(frozen=True, slots=True)
class ChosenData:
    """A data file for the Train page, or for the Data page, and the model that it was looked at with.

    Attributes:
        model: "" for none; the Train page takes it where it has none itself.
        part: what the Data page shows of it, "rows" or "problems".
    """

    source: SourceSpec
    model: str = ""
    part: str = "problems"


def to_look_at(spec: RunSpec, part: str) -> ChosenData:
    """The first data file of a run, for the Data page."""
    source = copy.deepcopy(spec.data.sources[0])
    if source.format in (LABELED, STEPS):
        # The Data page knows rows that are written, not labels.
        source.format, source.columns = "auto", {}
    return ChosenData(source, spec.model.path, part)


def value_text(value: object) -> str:
    """A setting's value as a person reads it, "" for none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return translate("SettingText", "on") if value else translate("SettingText", "off")
    if isinstance(value, (list, tuple)):
        return ", ".join(value_text(each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return core_text(CHOICE_WORDS.get(str(value), str(value)))


def duplicate_spec(spec: RunSpec) -> RunSpec:
    """A copy to start another run from, under a name that is made anew."""
    other = copy.deepcopy(spec)
    other.name = ""
    return other


def continued_spec(spec: RunSpec, adapter: Path) -> RunSpec:
    """A copy that starts another run from the adapter that a run has made."""
    other = duplicate_spec(spec)
    other.adapter.start_from = str(adapter)
    take_settings(other)
    return other


def fixed_spec(spec: RunSpec, action: str) -> RunSpec:
    """A duplicate that does what an action of the diagnosis names, as far as a setting can; else a plain one."""
    other = duplicate_spec(spec)
    if action == "use-cpu":
        other.hardware.devices = ["cpu"]
    elif action == "use-pytorch-kernels":
        other.hardware.kernels = False
    elif action == "lower-learning-rate":
        other.optimizer.learning_rate = spec.optimizer.learning_rate / _LOWER_RATE
    return other
