"""Wizard, page and activity as data: random orders of events, states, ways, words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.machine import Driver, Gpu, GpuProcess, Machine
from tunesmith_core.protocol import Event
from tunesmith_core.setup_messages import Finding, Fix, Part, Plan, State
from tunesmith_gui.core_texts import CORE_TEXTS
from tunesmith_gui.environment.diagnosis_view import confidence_words
from tunesmith_gui.environment.model import (
    DiskUse,
    EnvironmentModel,
    Installed,
    Proof,
    Verdict,
    check_words,
    fix_words,
    gpu_notes,
    gpu_words,
    proof_words,
    state_words,
    verdict_words,
)
from tunesmith_gui.environment.report import environment_report
from tunesmith_gui.environment.setup_activity import Activity, Command, Stage
from tunesmith_gui.environment.setup_events import (
    ErrorEvent,
    NoteEvent,
    PhaseEvent,
    ProgressEvent,
    SetupEvent,
    parse,
)
from tunesmith_gui.environment.setup_flow import (
    BACK,
    COMPUTER,
    ENVIRONMENT,
    FOLDER,
    NEXT,
    STEPS,
    TRY,
    Place,
    SetupFlow,
)

GIB = 2**30
NUM_ORDERS = 12
PROBLEM = EnvironmentProblem("disk-full", "3 GiB free")
MISSING = Installed(problem=EnvironmentProblem("environment-missing", "no pointer"))
THERE = Installed(name="train-cu124-x", profile="cu124", built_at=1e9)
PLAN = Plan((Part("Libraries", 4 * GIB, 9 * GIB),), "/d", 50 * GIB, 540, "cu124", "RTX 3060: CUDA 12.4")
RTX = Gpu(index=0, name="RTX 3060", compute_capability=(8, 6), total_bytes=6 * GIB, free_bytes=5 * GIB, processes=())
MACHINE = Machine(system="windows", gpus=(RTX,), driver=Driver(version="560.94", cuda_version=(12, 6)))


def check(name: str = "disk", state: str = "ok", **values: Any) -> Finding:
    return Finding(State(state), id=name, title=name.title(), **values)


def random_event(chance: random.Random) -> SetupEvent:
    names = ("disk", "driver", "training-files", "torch", "proof", "network")
    codes = (None, "disk-full", "protocol-mismatch")
    kinds: list[SetupEvent] = [
        check(chance.choice(names), chance.choice(list(State)), code=chance.choice(codes)),
        PLAN,
        PhaseEvent("Unpack", chance.random() < 0.5, chance.choice((None, 2.0))),
        NoteEvent("one\n\ntwo"),
        ProgressEvent("torch", chance.randrange(200), chance.choice((None, 0, 100)), 5e6, chance.choice((None, 3.0))),
        ErrorEvent(PROBLEM),
    ]
    return chance.choice(kinds)


def must_hold(model: EnvironmentModel, flow: SetupFlow) -> None:
    """What is true at any moment, whatever came before."""
    assert verdict_words(model.verdict)
    assert model.busy or not any(each.state in ("waiting", "checking") for each in model.checks.values())
    assert not model.changing or model.verdict is Verdict.WORKING
    activity = model.activity
    if activity is not None:
        assert activity.share is None or 0.0 <= activity.share <= 1.0
        assert activity.running or (activity.progress_words() == "" and activity.phase == "")
        assert activity.stage is not Stage.DONE or activity.error is None or activity.command is not Command.CHECK
        assert isinstance(activity.title, str)
        assert isinstance(activity.outcome, str)
    assert flow.current in STEPS
    assert flow.current not in flow.skipped
    listed = [each.id for step in (COMPUTER, ENVIRONMENT) for each in flow.checks(step)]
    assert sorted(listed) == sorted(model.checks)
    for step in STEPS:
        assert flow.state(step) in list(State)
        assert flow.state_words(step)
        assert isinstance(flow.summary(step), str)
        assert {each.state for each in flow.remarkable_checks(step)} <= {"warning", "failed", "unknown"}


@pytest.fixture(autouse=True)
def no_leftovers() -> None:
    """Nothing here makes a window, a thread or a timer, so that nobody has to look for what is left of them."""


def test_no_order_of_events_contradicts_itself() -> None:
    for seed in range(NUM_ORDERS):
        try_an_order(random.Random(seed))


def try_an_order(chance: random.Random) -> None:
    model = EnvironmentModel()
    flow = SetupFlow(model)
    for _ in range(120):
        match chance.randrange(9):
            case 0 if not model.busy:
                model.begin(Activity(chance.choice(list(Command))))
            case 1:
                model.end(chance.choice((None, PROBLEM)), cancelled=chance.random() < 0.3)
            case 2:
                model.installed = chance.choice((None, MISSING, THERE))
            case 3:
                model.know_machine(MACHINE.to_dict() if chance.random() < 0.8 else {"system": "linux"})
            case 4:
                chance.choice((flow.next, flow.back, lambda: flow.open(chance.choice(STEPS))))()
            case 5:
                flow.place = chance.choice((None, Place(Path("/d"), 50 * GIB), Place(Path("/d"), problem="no")))
            case 6:
                flow.trial = chance.choice(("", "going", "finished", "failed", "stopped", "interrupted"))
            case _:
                model.apply(random_event(chance), 1e9)
        must_hold(model, flow)
    assert environment_report(model) is not None


def test_ways_lead_through_all_steps_and_back() -> None:
    assert [BACK[NEXT[step]] for step in STEPS[:-1]] == list(STEPS[:-1])  # type: ignore[index]
    flow = SetupFlow(EnvironmentModel())
    seen = [flow.current]
    while flow.next():
        seen.append(flow.current)
    assert seen == list(STEPS)
    assert not flow.next(), "the end is the end"
    while flow.back():
        pass
    assert flow.current == COMPUTER


def test_a_refused_folder_holds_up_and_nothing_else_does() -> None:
    flow = SetupFlow(EnvironmentModel())
    flow.open(FOLDER)
    flow.place = Place(Path("/cloud"), problem="It lies in a cloud.")
    assert flow.blocked() == "It lies in a cloud."
    assert not flow.next()
    assert flow.state(FOLDER) == "failed"
    flow.place = Place(Path("/d"), 50 * GIB)
    flow.model.plan = PLAN
    assert flow.state(FOLDER) == "ok"
    assert "50.0 GiB free" in flow.folder_words()
    assert "needs 9.0 GiB while installing" in flow.folder_words()
    flow.place = Place(Path("/d"), 10 * GIB)
    assert flow.state(FOLDER) == "warning"
    assert flow.next()
    assert flow.current == ENVIRONMENT


def test_a_step_that_is_left_out_says_so_until_it_is_opened() -> None:
    flow = SetupFlow(EnvironmentModel())
    flow.open(ENVIRONMENT)
    flow.model.installed = MISSING
    assert flow.state_words(ENVIRONMENT) == "Not installed"
    flow.next()
    assert flow.state_words(ENVIRONMENT) == "Skipped"
    assert flow.summary(ENVIRONMENT) == "Skipped for now"
    flow.open(ENVIRONMENT)
    assert flow.state_words(ENVIRONMENT) == "Not installed"


def test_states_of_an_installation() -> None:
    flow = SetupFlow(EnvironmentModel())
    model = flow.model
    model.installed = MISSING
    assert not flow.ready
    model.begin(Activity(Command.INSTALL))
    assert flow.state(ENVIRONMENT) == "checking"
    model.apply(ProgressEvent("torch", 61, 100, 12.4e6, 180.0), 1e9)
    assert model.activity is not None
    assert model.activity.progress_words() == "61%  ·  torch  ·  12.4 MB/s  ·  3 min left"
    model.apply(check("proof-imports", "checking"), 1e9)
    assert model.activity.progress_words() == "Proof-Imports", "the proof says what it tries"
    model.apply(PhaseEvent("Copy", True), 1e9)
    assert model.activity.progress_words() == "Working…"
    model.activity.cancelling = True
    assert model.activity.progress_words() == "Canceling…"
    model.end(PROBLEM)
    assert flow.state(ENVIRONMENT) == "failed"
    assert model.activity.outcome == "The disk is full"
    model.begin(Activity(Command.INSTALL))
    model.end(None, cancelled=True)
    assert flow.state(ENVIRONMENT) == "waiting"
    assert model.activity.progress_words() == ""
    assert model.activity.outcome.startswith("Canceled.")
    model.begin(Activity(Command.INSTALL))
    model.end(None)
    model.installed = THERE
    model.begin(Activity(Command.CHECK))
    model.apply(check("training-files"), 1e9)
    model.end(None)
    assert (flow.state(ENVIRONMENT), model.verdict, flow.ready) == ("ok", Verdict.HEALTHY, True)
    model.checks["launcher-files"] = check("launcher-files", "failed")
    assert (flow.state(ENVIRONMENT), flow.state(COMPUTER), flow.ready) == ("ok", "failed", True)
    assert flow.summary(ENVIRONMENT) == "PyTorch for CUDA 12.4"


def test_verdict_follows_the_gravest_check() -> None:
    table = [
        ([check()], Verdict.HEALTHY),
        ([check(), check("x", "warning")], Verdict.WARNINGS),
        ([check("x", "warning"), check("torch", "failed")], Verdict.BROKEN),
        ([check("launcher-files", "failed"), check("training-files", "failed")], Verdict.BROKEN),
        ([check("launcher-files", "failed"), check("program", "failed")], Verdict.WINDOW_BROKEN),
        ([check("launcher-files", "failed"), check("disk", "failed")], Verdict.COMPUTER),
        ([check("x", "warning", code="protocol-mismatch")], Verdict.OUTDATED),
        ([check("x", "unknown")], Verdict.UNKNOWN),
        ([], Verdict.UNKNOWN),
    ]
    model = EnvironmentModel()
    model.installed = THERE
    for checks, verdict in table:
        model.checks = {each.id: each for each in checks}
        assert model.verdict is verdict
    model.installed = MISSING
    assert model.verdict is Verdict.MISSING


def test_checks_keep_their_places_wait_again_and_are_forgotten_when_gone() -> None:
    model = EnvironmentModel()
    model.installed = THERE
    model.begin(Activity(Command.CHECK))
    for name in ("disk", "driver", "old"):
        model.apply(check(name), 1e9)
    model.end(None)
    model.begin(Activity(Command.CHECK))
    assert [(each.id, each.state) for each in model.checks.values()] == [
        ("disk", "waiting"),
        ("driver", "waiting"),
        ("old", "waiting"),
    ]
    assert model.verdict is Verdict.CHECKING
    model.apply(check("driver", "failed"), 1e9)
    model.apply(check("disk", "ok"), 1e9)
    model.end(None)
    assert list(model.checks) == ["disk", "driver"]
    model.begin(Activity(Command.CHECK))
    model.end(None, cancelled=True)
    assert {each.state for each in model.checks.values()} == {"unknown"}, "what a check did not get to is not known"


def test_counts_of_checks() -> None:
    flow = SetupFlow(EnvironmentModel())
    assert flow.count_words(COMPUTER) == ""
    flow.model.checks = {name: check(name, state) for name, state in (("a", "ok"), ("b", "checking"))}
    assert flow.count_words(COMPUTER) == "1 of 2 checks done"
    flow.model.checks["b"] = check("b", "warning")
    assert flow.count_words(COMPUTER) == "1 of 2 checks passed"
    flow.model.checks["b"] = check("b", "ok")
    assert flow.count_words(COMPUTER) == "All 2 checks passed"


def test_words_about_computers() -> None:
    flow = SetupFlow(EnvironmentModel())
    assert flow.facts() == []
    flow.model.know_machine(MACHINE.to_dict() | {"choice": {"profile": {"name": "cu124"}, "sentence": "because"}})
    flow.place = Place(Path("/d"), 50 * GIB)
    facts = {fact.label: fact for fact in flow.facts()}
    assert facts["GPU"].value == "RTX 3060  ·  6.0 GiB (5.0 GiB free)  ·  compute 8.6"
    assert facts["Driver"].value == "560.94  ·  supports CUDA 12.6"
    assert facts["Disk"].value == f"50.0 GiB free at {Path('/d')}"
    assert (flow.model.profile, flow.model.choice, flow.summary(COMPUTER)) == ("cu124", "because", "because")
    for gpus, words, state in (
        ((), "No NVIDIA GPU found. Training will use the processor, which is slow.", "warning"),
        (None, "Unknown, no response in time", "ok"),
    ):
        flow.model.know_machine(Machine(system="linux", gpus=gpus, other_gpus=("Radeon",)).to_dict())
        assert next(fact for fact in flow.facts() if fact.label == "GPU").value == words
        assert flow.state(COMPUTER) == state
    with pytest.raises(ValueError, match="no JSON object"):
        flow.model.know_machine([])


def test_small_and_busy_gpus_are_remarked_upon() -> None:
    game = GpuProcess(pid=7, name="game.exe", used_bytes=3 * GIB)
    holders = (game, GpuProcess(pid=8), GpuProcess(pid=9, used_bytes=9))
    gpu = Gpu(index=1, name="GTX 1650", total_bytes=4 * GIB, processes=holders)
    assert gpu_words(gpu) == "GTX 1650  ·  4.0 GiB"
    tones = [tone for tone, _words in gpu_notes(gpu)]
    sentences = " ".join(words for _tone, words in gpu_notes(gpu))
    assert tones == ["warn", "warn"]
    assert "models up to about 1B" in sentences
    assert "Another program uses 3.0 GiB (game.exe)" in sentences
    assert gpu_notes(RTX) == []


def test_plans_and_proofs_in_words() -> None:
    flow = SetupFlow(EnvironmentModel())
    assert flow.plan_words() == "Planning…"
    flow.model.plan = PLAN
    assert flow.plan_words() == "4.0 GiB to download  ·  9.0 GiB on the drive while installing  ·  about 9 min"
    flow.model.plan = Plan((Part("Libraries"),))
    assert "Nothing to download" in flow.plan_words()
    assert "RTX 3060" in proof_words(Proof(1e9, "RTX 3060"), 1e9)
    assert "not tested" in proof_words(None, 1e9)
    assert proof_words(None, None) == "Not tested on this computer yet"


def test_every_state_has_word_tone_and_icon() -> None:
    assert len({state_words(state)[0] for state in State}) == len(State)
    assert len({verdict_words(verdict)[0] for verdict in Verdict}) == len(Verdict)


def test_words_of_fixes_and_checks_in_chinese(chinese: None) -> None:
    found = check("x", "failed", message="3 files differ", code="environment-damaged")
    assert check_words(found).splitlines()[-1] == "3 files differ"
    assert check_words(found).startswith("已安装的文件缺失")
    assert check_words(check("x", "ok", message="fine")) == ""
    assert fix_words(Fix("Repair 3 files", "repair-environment")) == "修复训练环境"
    assert fix_words(Fix("Repair 3 files", "no-such-action")) == "Repair 3 files"


def told(kind: str, **data: object) -> object:
    return parse(Event(1, 0.0, kind, data))


def test_events_with_wrong_values_tell_nothing() -> None:
    assert told("plan", parts=[{"name": "a", "download_bytes": "x"}]) is None
    assert told("plan", parts=[{"name": "a", "of_a_newer_version": 1}]) == Plan((Part("a"),))
    assert told("progress", name="a", done_bytes=1, total_bytes=None) == ProgressEvent("a", 1)
    assert told("plan", parts=3) is None
    assert told("weather") is None
    assert told("check", id="x", state="odd") is None
    fix = {"label": "Do", "action": "retry", "automatic": False, "needs_network": True, "bytes": 5}
    found = Finding(State.FAILED, fix=Fix("Do", "retry", False, True, 5), id="a", title="A")
    assert told("check", id="a", title="A", state="failed", fix=fix) == found
    assert told("phase", name="Unpack", state="done", seconds=2.0) == PhaseEvent("Unpack", True, 2.0)


def test_every_check_of_the_doctor_has_a_name_to_translate() -> None:
    from tunesmith_setup.checks import all_checks

    assert {check.title for check in all_checks()} <= {str(text) for text in CORE_TEXTS}


def test_report_names_checks_and_facts() -> None:
    model = EnvironmentModel()
    model.installed = Installed(name="train-x", proof=Proof(1e9, "RTX", {"torch": "2.6"}, (("Import", True, 0.3),)))
    model.machine = MACHINE
    model.disk = (DiskUse("runs", 5),)
    model.begin(Activity(Command.CHECK))
    model.apply(check("disk", "failed", message="full", code="disk-full"), 1e9)
    text = environment_report(model)
    for words in ("train-x", "failed   disk: full [disk-full]", "RTX 3060", "Import: ok, 0.3 s", '"torch": "2.6"'):
        assert words in text


def test_try_says_how_the_check_went() -> None:
    flow = SetupFlow(EnvironmentModel())
    states = {}
    for trial in ("", "going", "finished", "failed", "interrupted", "stopped"):
        flow.trial = trial
        states[trial] = flow.state(TRY)
    assert list(states.values()) == ["waiting", "checking", "ok", "failed", "failed", "waiting"]


def test_states_are_never_in_the_color_of_actions() -> None:
    tones = {verdict_words(each)[1] for each in Verdict} | {state_words(each)[1] for each in State}
    tones |= {confidence_words(each)[1] for each in ("high", "medium", "low")}
    assert tones == {"ok", "warn", "error", "neutral"}
