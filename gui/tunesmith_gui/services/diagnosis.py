"""The diagnosis as the window uses it: a log in, a named cause with its words, evidence and actions out. No Qt widgets.

Called on worker threads; the catalogue is imported on first use, so that a start does not pay for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QLocale

from tunesmith_core.error_codes import CODES
from tunesmith_core.machine import Machine

GENERAL_CODES = frozenset({"", "bug", "engine-crashed", "engine-killed", "environment-build-failed"})
"""Codes that say how something ended rather than why: the log may know more."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why something failed.

    Attributes:
        code: of `error_codes.CODES`, "" when nobody knows.
        confidence: "high", "medium" or "low".
        evidence: the line that gave the cause away.
        fix: what helps, in the window's language.
        actions: names of `core.explain.actions`, the best first.
    """

    code: str = ""
    confidence: str = "low"
    evidence: str = ""
    fix: str = ""
    actions: tuple[str, ...] = ()


def diagnose(text: str, machine: Machine | None = None) -> Diagnosis:
    """Name the cause that a log speaks of.

    Args:
        text: error output, as printed.
        machine: facts about this computer when the log is from here, else None.
    """
    from tunesmith_core.explain import explain

    found = explain(text, machine, language())
    code = found.code if found.code in CODES else ""
    return Diagnosis(code, found.confidence, found.evidence, found.fix, tuple(found.actions))


def diagnose_error(code: str, text: str, machine: Machine | None) -> Diagnosis:
    """Name the cause of a failure that has a code already: the log adds evidence and actions, and may know better.

    A code that names a cause is kept against another opinion, with what helps against it in general; one that only
    says how it ended gives way.
    """
    from tunesmith_core.explain.catalogue import repair

    found = diagnose(text, machine)
    if code in GENERAL_CODES or found.code == code:
        return found
    try:
        _words, actions = repair(code, "", language())
    except KeyError:
        actions = ()
    return Diagnosis(code, actions=tuple(actions))


def diagnose_run(folder: Path, error: dict[str, Any], machine: Machine | None) -> Diagnosis:  # Any: JSON values
    """Name the cause of a failed run from its error and from what its engine wrote. Raises OSError."""
    from tunesmith_core.explain import decode, read_bounded

    text = "\n".join(str(error[name]) for name in ("context", "message") if error.get(name))
    log = folder / "engine.log"
    if log.is_file():
        with log.open("rb") as file:
            text = f"{decode(read_bounded(file))}\n{text}"
    return diagnose_error(str(error.get("code") or ""), text, machine)


def read_log_file(path: Path) -> str:
    """Return head and tail of a log file as text, whatever its encoding. Raises OSError."""
    from tunesmith_core.explain import decode, read_bounded

    with path.open("rb") as file:
        return decode(read_bounded(file))


def language() -> str:
    """The window's language as the catalogue names it."""
    return "zh" if QLocale().language() == QLocale.Language.Chinese else "en"
