"""A tiny model, a tiny spec and in-process runs for the engine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import masking_utils, modeling_utils

from tests.engine import causal_types
from tests.engine.prepared import conduct_here
from tests.tiny_model import build_tiny_model, write_chats
from tunesmith_core.operations import host as host_module
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_engine import phases, preparation
from tunesmith_engine.data import token_cache
from tunesmith_engine.export import proof, verifying
from tunesmith_engine.host import Host


@pytest.fixture(scope="session", autouse=True)
def _quiet_threads() -> None:
    # The suite shares two cores with other workers; a tiny model gains nothing from threads.
    torch.set_num_threads(1)


PATCHED = ((masking_utils, "find_packed_sequence_indices"), (modeling_utils, "caching_allocator_warmup"))
UNPATCHED = [(module, name, getattr(module, name)) for module, name in PATCHED if hasattr(module, name)]


@pytest.fixture(autouse=True)
def transformers_as_it_is() -> Iterator[None]:
    """Take back what a run inside this process changes in transformers: references for packed rows come out wrong."""
    yield
    for module, name, function in UNPATCHED:
        setattr(module, name, function)


@pytest.fixture(autouse=True)
def _drawn_alike_in_any_order() -> None:
    # PEFT draws an adapter's first numbers from the process's own state, which the tests before have moved.
    torch.manual_seed(0)


@pytest.fixture
def token_cache_in_use() -> None:
    """Ask for tokens that are kept from one preparation to the next."""


@pytest.fixture(autouse=True)
def _nothing_kept_between_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise a test that changes how rows become tokens could get those of another test.
    if "token_cache_in_use" not in request.fixturenames:
        monkeypatch.setattr(token_cache, "key_of", lambda *_: "")


@pytest.fixture(autouse=True)
def _commands_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tiny steps are shorter than the pause between two looks into the control folder.
    monkeypatch.setattr(host_module, "POLL_INTERVAL_S", 0.0)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny model; tests must not change it."""
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def tiny_spec(tiny_model: Path, tmp_path: Path) -> Callable[..., RunSpec]:
    """Make a spec of 6 steps on 16 rows; sections are changed by keyword, such as method={"rank": 2}."""

    def make(**sections: dict[str, Any]) -> RunSpec:
        data = tmp_path / "rows.jsonl"
        if not data.exists():
            write_chats(data, 16)
        values: dict[str, Any] = {
            "version": 1,
            "model": {"path": str(tiny_model)},
            "data": {"path": str(data), "context_length": 128},
            "method": {"rank": 4, "alpha": 8.0},
            "optimizer": {"learning_rate": 1e-2},
            "schedule": {
                "max_steps": 6,
                "micro_batch_size": 2,
                "gradient_accumulation_steps": 2,
                "warmup_steps": 2,
            },
            "evaluation": {"percent": 0},
            "saving": {"every_steps": 1000},
            "hardware": {"device": "cpu", "cpu_threads": 1},
        }
        for name, changes in sections.items():
            values[name] = {**values.get(name, {}), **changes}
        return RunSpec.from_dict(values)

    return make


@pytest.fixture
def new_run(home: Path) -> Callable[[RunSpec], Run]:
    """Create a run folder in the test's data root."""
    assert home.is_dir()
    return create_run


@pytest.fixture(autouse=True)
def _prepare_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare most tests the start of a child for the data; those in `limits` and end to end have the real one."""
    if "limits" not in request.path.parts:
        monkeypatch.setattr(preparation, "conduct", conduct_here)


def train(run: Run, during: Callable[[Host], None] | None = None) -> int:
    """Run the engine in this process and return its exit code; `during` is called before the first phase."""
    with Host(run) as host:
        if during:
            during(host)
        return phases.run(host)


def events(run: Run, *types: str) -> list[Event]:
    """Return the events of some types, or of all."""
    return [event for event in read_journal(run.journal_path) if not types or event.type in types]


def step_losses(run: Run) -> list[float]:
    """Return the losses of the steps in the order of the journal."""
    return [event.data["loss"] for event in events(run, "step")]


def result_of(run: Run) -> dict[str, Any]:
    """Return the fields of the last result event."""
    return events(run, "result")[-1].data


def after_step(host: Host, step: int, act: Callable[[], object]) -> None:
    """Make a host do something right after a step was published, as the outside world might."""
    write = host.event

    def watched(kind: str, /, **data: Any) -> None:
        write(kind, **data)
        if kind == "step" and data["step"] == step:
            act()

    host.event = watched  # type: ignore[method-assign]


@pytest.fixture
def whole_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give small models of every type a vocabulary for all tokens of the small tokenizer."""
    for name in ("vocab_size", "vocab_size_per_layer_input"):
        monkeypatch.setitem(causal_types.SMALL, name, 272)


@pytest.fixture
def few_prompts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask fewer prompts where they only take time: all are asked where figures are judged and in the long tier."""
    if not (request.node.get_closest_marker("long") or "all_prompts" in request.fixturenames):
        monkeypatch.setattr(proof, "PROMPTS", proof.PROMPTS[:2])


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave exports unproven, as on a computer without memory for a whole model."""
    monkeypatch.setattr(verifying, "SPARE_FACTOR", 1e12)


@pytest.fixture
def all_prompts() -> None:
    """Makes a test ask every prompt."""
