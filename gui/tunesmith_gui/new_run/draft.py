"""What the form of a new run has written down for its next start, read again."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from tunesmith_core.datafmt.unsuited import IN_ONE_WAY
from tunesmith_core.errors import UserError
from tunesmith_core.spec import RunSpec, usual_format

DRAFT_VERSION = 2


def from_1(draft: dict[str, Any]) -> dict[str, Any]:  # Any: JSON values
    """A draft of version 1 as one of today: a warm-up of 5 was the default then, and an empty one means that now."""
    draft = copy.deepcopy(draft)
    for spec in (draft.get(name) for name in ("spec", "before_sample", "sample")):
        schedule = spec.get("schedule") if isinstance(spec, dict) else None
        if isinstance(schedule, dict) and schedule.get("warmup_steps") == 5:
            schedule["warmup_steps"] = None
    return draft


def lenient_spec(values: object) -> RunSpec | None:
    """A spec from a draft, field by field: what does not fit keeps its default; None where nothing is known of it."""
    if not isinstance(values, dict):
        return None
    with contextlib.suppress(UserError):
        return _read_in_its_way(RunSpec.salvage(values))
    return None


def _read_in_its_way(spec: RunSpec) -> RunSpec:
    """A spec whose rows are read as its objective learns them: no setting of the window would put that right."""
    usual = usual_format(spec.objective.kind)
    for source in spec.data.sources:
        if source.format != usual and not IN_ONE_WAY.keys().isdisjoint((source.format, usual)):
            source.format, source.columns = usual, {}
    return spec
