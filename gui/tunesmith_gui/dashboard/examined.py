"""What a run's folder says beside its journal: name, settings, and what of it can't be read."""

from __future__ import annotations

from typing import NamedTuple

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import deleted_base
from tunesmith_core.runs import Run, RunStatus
from tunesmith_core.spec import RunSpec
from tunesmith_core.trash import Deleted


class Examined(NamedTuple):
    """What a look into a run's folder found.

    Attributes:
        run: the run.
        name: what its page is called.
        spec: its settings, None when they can't be read.
        unreadable: why they can't be read.
        adapter_problem: see `Run.adapter_problem`.
        damage: see `Run.damage`.
        deleted_base: its base model where that is in the trash, else None.
    """

    run: Run
    name: str
    spec: RunSpec | None
    unreadable: TunesmithError | None
    adapter_problem: TunesmithError | None
    damage: TunesmithError | None
    deleted_base: Deleted | None


def examine(run: Run, status: RunStatus) -> Examined:
    """Look into a run's folder; call it on a worker thread.

    Args:
        run: the run.
        status: where it stands.
    """
    spec, unreadable, deleted = None, None, None
    try:
        spec = run.load_spec()
        deleted = deleted_base(run)
    except TunesmithError as error:
        unreadable = error
    name = spec.name if spec is not None else ""
    return Examined(run, name or run.id, spec, unreadable, run.adapter_problem(status), run.damage(), deleted)
