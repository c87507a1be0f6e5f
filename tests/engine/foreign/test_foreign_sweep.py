"""Whatever model or spec a person brings: it trains, or it is refused by name, with a next step, in seconds.

A mutant may end in an error with a code that is not `bug`, a message that names the file or the setting, a next step
and an exit code of 2, 3 or 4. It may neither reach for the network nor for code of its own, and what is known to be
wrong may not train in silence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.foreign.sweep import prepare, sweep

NUM_MODELS, NUM_SPECS = 6, 12
"""Of the sample; most of its seconds go by while its processes import PyTorch."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign") / "place"
    prepare(folder)
    return folder


@pytest.mark.parametrize(("kind", "count"), [("model", NUM_MODELS), ("spec", NUM_SPECS)])
def test_what_a_person_brings_trains_or_is_refused_by_name(place: Path, kind: str, count: int) -> None:
    assert sweep(place, kind, list(range(count))) == {}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["model", "spec"])
def test_a_thousand_of_each(place: Path, kind: str) -> None:
    assert sweep(place, kind, list(range(1000))) == {}
