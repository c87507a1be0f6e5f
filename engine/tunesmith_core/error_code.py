"""What an entry of the catalogue of error codes says."""

from __future__ import annotations

from dataclasses import dataclass

USER, ENVIRONMENT, RUN, BUG = "UserError", "EnvironmentProblem", "RunFailure", "BugError"
"""Who can act: the person, a repair, a changed run or us. Names of the classes in `errors`."""


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """What is said about a cause in general; the error itself adds the values of the case.

    Attributes:
        kind: who can act, which decides the class of the error and the exit code.
        title: a few words, without a full stop.
        cause: why this happens, one or two sentences.
        action: the next step.
    """

    kind: str
    title: str
    cause: str
    action: str
