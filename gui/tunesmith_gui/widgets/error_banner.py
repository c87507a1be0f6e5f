"""A TunesmithError as a banner: title, cause and next step, with its code behind Details."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QWidget

from tunesmith_core.error_code import USER
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import TunesmithError
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.widgets.banner import Banner

Action = tuple[str, Callable[[], object]]


def error_words(error: TunesmithError, folder: Path | None = None) -> str:
    """What happened, why in general, and the next step; a file in `folder` is named without it.

    What a person can mend is named exactly by the message; a list of what it may be in general would only cast doubt.
    """
    entry = CODES[error.code]
    why = [] if entry.kind == USER else [core_text(entry.cause)]
    said = core_text(error.message)
    if folder is not None:
        said = said.replace(f"{folder}{os.sep}", "")
    return "\n".join([said, *why, core_text(error.hint)])


def error_details(error: TunesmithError) -> str:
    """The code, by which others find what is known of the error."""
    return fill(translate("ErrorBanner", "Code: %1"), error.code)


def error_banner(
    error: TunesmithError,
    *,
    actions: tuple[Action, ...] = (),
    dismissable: bool = True,
    folder: Path | None = None,
    parent: QWidget | None = None,
) -> Banner:
    """A banner of the error tone that tells an error; a file in `folder` is named without it."""
    return Banner(
        "error",
        core_text(error.title),
        error_words(error, folder),
        details=error_details(error),
        actions=actions,
        dismissable=dismissable,
        parent=parent,
    )
