"""The stalls of `test_stop_sweep` that come when steps have begun.

They have a file of their own so that both halves run beside each other.
"""

from __future__ import annotations

import pytest

from tests.engine.stalls import LATER, MakeSpec, NewRun, stop_all, whole_run
from tunesmith_core.runs import Run


@pytest.fixture
def whole(tiny_spec: MakeSpec, new_run: NewRun) -> Run:
    return whole_run(tiny_spec, new_run)


@pytest.mark.long
@pytest.mark.parametrize("place", LATER)
def test_every_later_stall_is_stopped(
    place: str,
    whole: Run,
    new_run: NewRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stop_all(place, whole, new_run, monkeypatch, capfd)
    del caplog
