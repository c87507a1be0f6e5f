"""What a new run still lacks, and what was found out about model and data beside the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tunesmith_core.errors import TunesmithError


class Missing(StrEnum):
    """What Start still lacks, the first thing first."""

    NOTHING = "nothing"
    ENVIRONMENT = "environment"
    MODEL = "model"
    MODEL_BROKEN = "model_broken"
    TEACHER = "teacher"
    DATA = "data"
    COLUMNS = "columns"
    PAIRS = "pairs"
    LABELS = "labels"
    PROMPTS = "prompts"
    DATA_BROKEN = "data_broken"
    SETTING = "setting"
    LEARNS_NOTHING = "learns_nothing"
    TOO_LONG = "too_long"
    MEMORY = "memory"
    ROOM = "room"
    DOWNLOADING = "downloading"
    STARTING = "starting"


BY_PLAN = (Missing.LEARNS_NOTHING, Missing.TOO_LONG, Missing.MEMORY)
"""What the plan tells."""


@dataclass(slots=True)
class Surroundings:
    """What was found out beside the form, by worker threads.

    Attributes:
        environment_missing: no training environment is installed.
        model_broken, data_broken: the chosen one can't be used.
        teacher_problem: why the chosen bigger model can't be learned from; None where it can, or that is not known.
        encoding: of the first data file, as it was recognized; "" while there is none, or a person has said it.
        columns: that all data files have, None where they are not known.
        columns_unknown: of the data, which column holds what.
        is_unsuited: no columns of the data are what is to be learned from.
        is_pairs, is_text: whether every data file holds preference pairs, or plain text; None where that is not known.
        has_stored: whether every data file holds what a bigger model found likely at each token.
        labels_problem: why the labels of the first data file can't be learned from; None where they can, or that is not
            known.
        reward_problems: what is wrong with rewards: kind and path, and words about it.
        packages_missing: a reward needs packages that are not installed.
        unmatched: setting path to what it names and the model certainly does not have.
        learns_nothing: a data file has no token to learn within the context length.
        rows_too_long: the model has no positions for the longest rows.
        does_not_fit: the plan says that memory will not suffice.
        no_room: the chosen model of a hub doesn't fit on the drive.
        downloading: a run waits for its model.
        starting: a start is under way.
    """

    environment_missing: bool = False
    model_broken: bool = False
    data_broken: bool = False
    teacher_problem: TunesmithError | None = None
    encoding: str = ""
    columns: tuple[str, ...] | None = None
    columns_unknown: bool = False
    is_unsuited: bool = False
    is_pairs: bool | None = None
    labels_problem: TunesmithError | None = None
    is_text: bool | None = None
    has_stored: bool = False
    reward_problems: Mapping[tuple[str, str], str] = field(default_factory=dict)
    packages_missing: bool = False
    unmatched: Mapping[str, str] = field(default_factory=dict)
    learns_nothing: bool = False
    rows_too_long: bool = False
    does_not_fit: bool = False
    no_room: bool = False
    downloading: bool = False
    starting: bool = False
