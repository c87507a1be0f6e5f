"""The settings of a new run by their dotted paths, and which of them have a control of their own."""

from __future__ import annotations

import dataclasses
import re

from tunesmith_core import presets
from tunesmith_core.spec import Setting, iter_settings

SETTINGS: dict[str, Setting] = {setting.path: setting for setting in iter_settings()}
CHOSEN_ABOVE = ("model.path", "data.sources[0].path")
"""Settings with a control of their own; the list of all settings leaves them out."""

WEIGHT, MOST_ROWS, REPLAY = "weight", "most_rows", "replay"
"""What is set for each of several data files, on a card of its own."""

OF_REWARDS = tuple(path for path in SETTINGS if path.startswith("rollouts.rewards["))
"""What is set for each of several rewards, on a card of its own."""

OF_FILES = tuple(f"data.sources[0].{name}" for name in (WEIGHT, MOST_ROWS, REPLAY))
TEACHER = "teacher.path"
"""The bigger model that is learned from, chosen on a card of its own."""

LISTED = tuple(path for path in SETTINGS if path not in (*CHOSEN_ABOVE, *OF_FILES, *OF_REWARDS, TEACHER))
PRESET_PATHS = frozenset(path for changes in presets.PRESETS.values() for path in changes)
MAPPING = ("data.sources[0].format", "data.sources[0].columns", "data.sources[0].sheet")
"""Set beside the data file, so not counted as changed settings."""

READING = tuple(path for path in SETTINGS if path.startswith("data.sources[0].") and path not in CHOSEN_ABOVE)
"""How the data file is read."""

FORGOTTEN_WITH_DATA = (*READING, "data.skip_bad_rows")

REWARDS = "rollouts.rewards"
"""The path of the rewards as a whole."""

SOURCES = "data.sources"
"""The path of the data files as a whole."""

GROUPS = "evaluation.group_column"
"""The column whose groups stay whole."""

OBJECTIVE = "objective.kind"
ADAPTER = "adapter.kind"
OF_CHATS = frozenset({"data.train_on", "data.system_prompt", "data.special_tokens", "model.chat_template"})
"""Settings that change nothing where texts are read."""

SMOOTHING = "objective.label_smoothing"


def source_path(number: int, name: str = "path") -> str:
    """The dotted path of a setting of a data file."""
    return f"data.sources[{number}].{name}"


def reward_path(number: int, name: str) -> str:
    """The dotted path of a setting of a reward."""
    return f"{REWARDS}[{number}].{name}"


def setting_of(path: str) -> Setting:
    """The setting of a dotted path; every data file has those of the first.

    Raises:
        KeyError: there is no such setting.
    """
    return dataclasses.replace(SETTINGS[of_first(path)], name=path.partition(".")[2])


def of_first(path: str) -> str:
    """The path of the same setting of the first data file or reward."""
    return re.sub(r"\[\d+\]", "[0]", path)
