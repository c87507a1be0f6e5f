"""Whatever changes between a stop and a resume is named or refused; a run never begins again by itself."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.engine.conftest import after_step, events, train
from tests.engine.resume_changes import CHANGES, WORST, Change, Place, spec_of
from tests.tiny_model import build_tiny_model, write_chats
from tunesmith_core.runs import create_run

SEED = 12
NUM_SAMPLED = 8


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The stopped run as it was left, and the folder where a copy of it is changed."""
    place = Place(tmp_path_factory.mktemp("sweep") / "place")
    place.folder.mkdir()
    build_tiny_model(place.model)
    write_chats(place.data, 16)
    for name, rank in (("r", 4), ("twin", 4), ("wide", 8)):
        spec = spec_of(place.folder)
        spec.name, spec.adapter.rank = name, rank
        run = create_run(spec, place.folder / "runs")
        assert train(run, lambda host: after_step(host, 4, host.on_signal)) == 5
    shutil.copytree(place.folder, place.folder.with_name("pristine"))
    return place


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Take back what a change of threads does to this process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def outcome(place: Place, change: Change) -> str:
    """Make a change, resume, and return "named" or what is wrong with the way in which the run took it."""
    shutil.rmtree(place.folder)
    shutil.copytree(place.folder.with_name("pristine"), place.folder)
    change.make(place)
    run, seen = place.run, len(events(place.run))
    adapter = (run.adapter_path / "adapter_model.safetensors").read_bytes()
    code = train(run)
    told = events(run)[seen:]
    errors = [event.data for event in told if event.type == "error"]
    warnings = [
        event.data
        for event in told
        if event.type == "warning" and event.data["code"] in ("resume-differs", "checkpoint-damaged")
    ]
    text = " ".join(str(data["message"]) for data in errors + warnings)
    if any(error["code"] == "bug" for error in errors):
        return f"bug: {text}"
    if code and (run.adapter_path / "adapter_model.safetensors").read_bytes() != adapter:
        return "the adapter was replaced"
    if not code and [event.data["resumed_from_step"] for event in told if event.type == "hello"] == [None]:
        return "began again"
    if not text:
        return "silent"
    return "named" if any(word in text for word in change.words) else f"not named: {text}"


def _sample() -> list[Change]:
    others = [change for change in CHANGES if change.name not in WORST]
    worst = [change for change in CHANGES if change.name in WORST]
    assert len(worst) == len(WORST), "a change of that name is gone"
    return worst + random.Random(SEED).sample(others, NUM_SAMPLED)


@pytest.mark.parametrize("change", _sample(), ids=lambda change: change.name)
def test_a_change_is_named(stopped: Place, home: Path, change: Change) -> None:
    assert home.is_dir()
    assert outcome(stopped, change) == "named"


def test_no_change_says_nothing(stopped: Place, home: Path) -> None:
    assert home.is_dir()
    assert outcome(stopped, Change("nothing", lambda _: None, ("",))) == "silent"


@pytest.mark.long
def test_every_change_is_named(stopped: Place, home: Path) -> None:
    assert home.is_dir()
    found = {change.name: outcome(stopped, change) for change in CHANGES}
    counts = Counter(how.partition(":")[0] for how in found.values())
    assert {name: how for name, how in found.items() if how != "named"} == {}, f"of {len(found)} changes: {counts}"
