"""What the page of runs decides without widgets: differing settings, the CSV of a selection."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Sequence
from typing import NamedTuple

from tunesmith_core.spec import RunSpec, iter_settings
from tunesmith_gui.models.run_row import RunRow
from tunesmith_gui.models.run_spec import value_text


class SettingDifference(NamedTuple):
    """A setting that is not the same in all compared runs; `values` in the order of the runs."""

    path: str
    label: str
    values: tuple[str, ...]


def differing_settings(specs: Sequence[RunSpec]) -> list[SettingDifference]:
    """The settings that differ between specs, in the order of the forms."""
    found = []
    for setting in iter_settings():
        values = [setting.get(spec) for spec in specs]
        if any(value != values[0] for value in values):
            texts = tuple(value_text(value) for value in values)
            found.append(SettingDifference(setting.path, setting.declaration.label, texts))
    return found


def runs_csv(rows: Sequence[RunRow]) -> str:
    """The rows as CSV with a header; times in ISO 8601, sizes in bytes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = "id name state model data step best_eval_loss duration_s created size_bytes best_reward"
    writer.writerow([*names.split(), "eval_loss", "eval_reward"])
    for row in rows:
        created = datetime.datetime.fromtimestamp(row.created_at, datetime.UTC).isoformat(timespec="seconds")
        values: list[object] = [row.id, row.name, row.state.value, row.model, row.data, row.step, row.best_eval_loss]
        values += [row.duration_s, created, row.size_bytes, row.best_reward, row.eval_loss, row.eval_reward]
        writer.writerow([_inert(value) for value in values])
    return out.getvalue()


def _inert(value: object) -> object:
    # A spreadsheet runs a text that starts like a formula; a name comes from outside.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
