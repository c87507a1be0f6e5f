"""What the window reads of run folders that went wrong: an error with words, or what is left of them."""

from __future__ import annotations

import pytest

from tests.run_mutations import mutants
from tests.tiny_run import GOOD
from tunesmith_core import paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run
from tunesmith_gui.context import Context
from tunesmith_gui.dashboard.model import DashboardModel, pack
from tunesmith_gui.dashboard.report import diagnostics, engine_output
from tunesmith_gui.dashboard.tables import list_files
from tunesmith_gui.runs.compare import load_compared
from tunesmith_gui.runs.model import runs_csv


def _read(run: Run) -> None:
    list_files(run.path)
    engine_output(run.path)
    model = DashboardModel()
    try:
        model.apply(pack(read_journal(run.journal_path)))
        load_compared([("run", run)])
    except TunesmithError:
        # Told with its words; anything else is a fault.
        return
    model.taken()
    model.eta_s(2e9)
    diagnostics(model, run.path)


def _sweep(context: Context, count: int) -> list[str]:
    faults = []
    paths.runs_dir().mkdir()
    for what, run in mutants(paths.runs_dir(), count):
        try:
            rows = context.library._read()
            assert GOOD in [row.id for row in rows]
            runs_csv(rows)
            _read(run)
        except Exception as error:
            faults.append(f"{what}: {type(error).__name__}: {error}")
    return faults


def test_the_window_reads_bad_run_folders(context: Context, caplog: pytest.LogCaptureFixture) -> None:
    assert _sweep(context, 150) == []


@pytest.mark.long
def test_the_window_reads_five_thousand_bad_run_folders(context: Context, caplog: pytest.LogCaptureFixture) -> None:
    assert _sweep(context, 5000) == []
