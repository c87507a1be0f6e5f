"""The message on top of a run's page: what went wrong, how it ended, what to do next."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtWidgets import QWidget

from tunesmith_core.actions import ACTIONS, RAISE_CONTEXT, doable
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import TunesmithError
from tunesmith_core.explain.catalogue import actions_against
from tunesmith_core.memory_steps import steps_left
from tunesmith_core.outcome import DISAPPOINTING, Verdict
from tunesmith_core.runs import RunState
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.tr import core_text, fill, number, translate
from tunesmith_gui.widgets.banner import Banner, BannerAction, Tone

MOST_RETRIES = 3
MOST_NEXT_STEPS = 2

ADVISING = frozenset({"dataset-rows-cut"})
"""Warnings that end with their own advice, with its numbers; the general advice of their code would repeat it."""

Ask = Callable[[str], object]
"""Takes the id of an action, see `DashboardPage.ask`."""


def banner_key(model: DashboardModel, silent_since: float | None) -> tuple[object, ...]:
    """Two equal keys mean that the same message is right."""
    status = model.status
    code = (status.error or {}).get("code")
    silent, ended = silent_since is not None, bool(model.result)
    paused = (status.obstacle, model.pause_reason)
    return (status.state, code, paused, silent, model.can_resume, len(model.warnings), ended)


def make_banner(
    model: DashboardModel,
    spec: RunSpec | None,
    folder: Path,
    silent_since: float | None,
    ask: Ask,
    parent: QWidget,
) -> Banner | None:
    """The message for the present state, or None while all is well."""
    state = model.status.state
    if state is RunState.DAMAGED and model.damage is not None:
        return _damaged(model.damage, ask, parent)
    if state is RunState.PAUSED:
        return _paused(model, ask, parent)
    if silent_since is not None:
        return _silent(silent_since, ask, parent)
    if state is RunState.FAILED or (model.status.error and not state.live):
        return _failed(model, spec, ask, parent)
    if state is RunState.INTERRUPTED:
        return _interrupted(model, ask, parent)
    if state is RunState.FINISHED:
        return _finished(model, folder, ask, parent)
    if state is RunState.STOPPED:
        return _stopped(model, ask, parent)
    if model.warnings:
        warning = model.warnings[-1]
        title, _, more = core_text(warning.get("message") or warning.get("code") or "").partition("\n")
        hint = "" if warning.get("code") in ADVISING else core_text(warning.get("hint") or "")
        text = "\n".join(filter(None, (more, hint)))
        actions: tuple[BannerAction, ...] = ()
        if warning.get("code") == "rewards-collapsed":
            actions = ((translate("Dashboard", "Show the answers"), lambda: ask("show_rollouts")),)
        return Banner("warn", title, text, actions=actions, dismissable=True, parent=parent)
    return None


def _damaged(damage: TunesmithError, ask: Ask, parent: QWidget) -> Banner:
    known = CODES["run-damaged"]
    actions = (
        (translate("Dashboard", "Open folder"), lambda: ask("open_folder")),
        (translate("Dashboard", "Delete…"), lambda: ask("delete")),
    )
    text = f"{core_text(damage.message)}\n{core_text(known.action)}"
    return Banner("error", core_text(known.title), text, actions=actions, parent=parent)


def _paused(model: DashboardModel, ask: Ask, parent: QWidget) -> Banner:
    full = model.status.obstacle == "disk-full"
    title = (
        translate("Dashboard", "Paused: the disk is full")
        if full
        else translate("Dashboard", "Paused: the run can’t save to its disk")
    )
    text = (
        translate("Dashboard", "Nothing is lost. The run continues by itself once there is space.")
        if full
        else translate("Dashboard", "Nothing is lost. The run continues by itself once it can save again.")
    )
    actions = ((translate("Dashboard", "Open folder"), lambda: ask("open_folder")),)
    return Banner("warn", title, f"{model.pause_reason}\n{text}", actions=actions, parent=parent)


def _silent(since: float, ask: Ask, parent: QWidget) -> Banner:
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    return Banner(
        "warn",
        fill(translate("Dashboard", "No sign of life since %1"), clock),
        translate("Dashboard", "The run may be busy with a long step, or its computer may be asleep."),
        actions=((translate("Dashboard", "Show the log"), lambda: ask("show_log")),),
        parent=parent,
    )


def _failed(model: DashboardModel, spec: RunSpec | None, ask: Ask, parent: QWidget) -> Banner:
    told = model.status.error
    error = TunesmithError.from_dict(told or {})
    title = core_text(error.title) if told else translate("Dashboard", "The run failed")
    if model.status.step:
        title = fill(translate("Dashboard", "%1 at step %2"), title, number(model.status.step))
    actions = _retries(spec, ask) if error.code == "cuda-oom" and spec is not None else []
    fixes = doable(error.actions or actions_against(error.code))
    repeats = bool(actions) or any(ACTIONS[name].place in ("run", "setting") for name in fixes)
    actions += [(core_text(ACTIONS[name].label), partial(ask, f"fix:{name}")) for name in fixes]
    if not repeats and not model.can_resume:
        actions.append((translate("Dashboard", "Change and retry"), lambda: ask("duplicate")))
    if not repeats and model.can_resume:
        saved = number(model.status.last_checkpoint_step)
        actions.append((fill(translate("Dashboard", "Resume from %1"), saved), lambda: ask("resume")))
    actions.append((translate("Dashboard", "Details"), lambda: ask("show_log")))
    actions.append((translate("Dashboard", "Copy diagnostics"), lambda: ask("copy_diagnostics")))
    text = f"{core_text(error.message)}\n{core_text(error.hint)}" if told else ""
    return Banner("error", title, text, actions=tuple(actions), parent=parent)


def _retries(spec: RunSpec, ask: Ask) -> list[tuple[str, Callable[[], object]]]:
    return [
        (
            fill(translate("Dashboard", "Retry with %1"), core_text(step.label(step.changes(spec)))),
            partial(ask, f"retry:{step.name}"),
        )
        for step in steps_left(spec)[:MOST_RETRIES]
    ]


def _interrupted(model: DashboardModel, ask: Ask, parent: QWidget) -> Banner:
    title = fill(translate("Dashboard", "The run was interrupted at step %1"), number(model.status.step))
    if not model.can_resume:
        text = translate("Dashboard", "There is no checkpoint to resume from. Duplicate the run to start again.")
        actions = ((translate("Dashboard", "Duplicate"), lambda: ask("duplicate")),)
        return Banner("warn", title, text, actions=actions, parent=parent)
    step = model.status.last_checkpoint_step
    words = fill(translate("Dashboard", "Resume from %1"), number(step)) if step else translate("Dashboard", "Resume")
    text = translate("Dashboard", "Nothing up to the last checkpoint is lost.")
    return Banner(
        "warn",
        title,
        text if step else translate("Dashboard", "Nothing was trained yet. Resuming begins again."),
        actions=(
            (words, lambda: ask("resume")),
            (translate("Dashboard", "Keep as is"), lambda: ask("keep")),
        ),
        parent=parent,
    )


def outcome_text(model: DashboardModel, verdict: Verdict, folder: Path) -> str:
    """What came of it, what to do next, and where the adapter lies."""
    parts = [core_text(verdict.sentence), core_text(verdict.advice)]
    adapter = model.status.artifacts.get("adapter")
    if adapter:
        words = translate("Dashboard", "Model: %1") if is_whole(model) else translate("Dashboard", "Adapter: %1")
        parts.append(fill(words, str(folder / adapter)))
    return "\n".join(parts)


def is_whole(model: DashboardModel) -> bool:
    """Whether the run has made a whole model, not an adapter."""
    return model.status.artifacts.get("adapter") == "model"


def tells_verdict(model: DashboardModel) -> bool:
    """Whether the banner over all tabs says what came of the run."""
    return model.status.state is RunState.FINISHED and model.adapter_problem is None


def next_actions(verdict: Verdict, ask: Ask) -> list[BannerAction]:
    """A button for each thing to do about an outcome."""
    return [
        (core_text(step.label), partial(ask, f"next:{place}")) for place, step in enumerate(verdict.next_steps)
    ]


def _finished(model: DashboardModel, folder: Path, ask: Ask, parent: QWidget) -> Banner:
    if model.adapter_problem is not None:
        return _without_adapter(model, model.adapter_problem, ask, parent)
    verdict = model.verdict()
    actions = [
        *next_actions(verdict, ask)[:MOST_NEXT_STEPS],
        (translate("Dashboard", "Report"), lambda: ask("report")),
        (translate("Dashboard", "Open folder"), lambda: ask("open_folder")),
    ]
    if model.status.artifacts.get("adapter"):
        actions.append((translate("Dashboard", "Copy path"), lambda: ask("copy_path")))
    actions.append((translate("Dashboard", "Duplicate"), lambda: ask("duplicate")))
    title = translate("Dashboard", "Finished: the adapter is ready")
    if is_whole(model):
        title = translate("Dashboard", "Finished: the model is ready")
    if model.lost_ends:
        actions.insert(0, (core_text(ACTIONS[RAISE_CONTEXT].label), partial(ask, f"fix:{RAISE_CONTEXT}")))
        title = translate("Dashboard", "Finished, but most answers were cut before their end")
    tone: Tone = "warn" if model.lost_ends or verdict.outcome in DISAPPOINTING else "ok"
    text = "\n\n".join([outcome_text(model, verdict, folder), *_lasting_notes(model)])
    return Banner(tone, title, text, actions=tuple(actions), parent=parent)


def _lasting_notes(model: DashboardModel) -> list[str]:
    """What the run noted of its data, rewards and experts, which stays worth knowing once it has ended."""
    kinds = ("dataset-", "rewards-", "experts-")
    notes = [each for each in model.warnings if str(each.get("code")).startswith(kinds)]
    return list(dict.fromkeys(core_text(each.get("message") or "") for each in notes))


def _without_adapter(model: DashboardModel, problem: TunesmithError, ask: Ask, parent: QWidget) -> Banner:
    title = translate("Dashboard", "Finished, but the adapter is missing")
    if is_whole(model):
        title = translate("Dashboard", "Finished, but the model is missing")
    actions = (
        (translate("Dashboard", "Open folder"), lambda: ask("open_folder")),
        (translate("Dashboard", "Duplicate"), lambda: ask("duplicate")),
    )
    text = f"{core_text(problem.message)}\n{core_text(problem.hint)}"
    return Banner("error", title, text, actions=actions, parent=parent)


def _stopped(model: DashboardModel, ask: Ask, parent: QWidget) -> Banner:
    title = fill(translate("Dashboard", "Stopped at step %1"), number(model.status.step))
    text = (
        fill(translate("Dashboard", "You can resume from step %1."), number(model.status.last_checkpoint_step))
        if model.can_resume
        else translate("Dashboard", "Nothing was saved. Duplicate it to start again.")
    )
    actions = (
        (translate("Dashboard", "Duplicate"), lambda: ask("duplicate")),
        (translate("Dashboard", "Open folder"), lambda: ask("open_folder")),
    )
    return Banner("neutral", title, "\n\n".join([text, *_lasting_notes(model)]), actions=actions, parent=parent)
