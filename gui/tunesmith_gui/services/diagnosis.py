"""The diagnosis as the window uses it: a log in, a named cause with its words, evidence and actions out. No Qt widgets.

Called on worker threads; the catalogue is imported on first use, so that a start does not pay for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QLocale

from tunesmith_core.error_codes import SYMPTOMS
from tunesmith_core.machine import Machine

if TYPE_CHECKING:
    from tunesmith_core.explain import Explanation


def diagnose(text: str, machine: Machine | None = None) -> Explanation:
    """Name the cause that a log speaks of.

    Args:
        text: error output, as printed.
        machine: facts about this computer when the log is from here, else None.
    """
    from tunesmith_core.explain import explain

    return explain(text, machine, language())


def diagnose_error(code: str, text: str, machine: Machine | None) -> Explanation:
    """Name the cause of a failure that has a code already: the log adds evidence and actions, and may know better.

    A code that names a cause is kept against another opinion, with what helps against it in general; one that only
    says how it ended gives way.
    """
    from tunesmith_core.explain import Explanation
    from tunesmith_core.explain.catalogue import repair

    found = diagnose(text, machine)
    if not code or code in SYMPTOMS or found.code == code:
        return found
    try:
        _words, actions = repair(code, "")
    except KeyError:
        actions = ()
    return Explanation(code, actions=tuple(actions))


def diagnose_run(folder: Path, error: dict[str, Any], machine: Machine | None) -> Explanation:  # Any: JSON values
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
