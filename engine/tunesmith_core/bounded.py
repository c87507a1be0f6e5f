"""Questions to the computer that must not take longer than they may: programs, and calls into drivers that can hang."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Output:
    """What a program wrote, standard error after standard output, and its exit code."""

    code: int
    data: bytes

    @property
    def text(self) -> str:
        """The output as UTF-8; what is not becomes a replacement mark."""
        return self.data.decode("utf-8", errors="replace")


def run(command: list[str], timeout_s: float) -> Output | None:
    """Run a program to its end; None when it can't be started or takes longer."""
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Output(result.returncode, result.stdout)


def ask_all(questions: Mapping[str, Callable[[], Answer]], timeout_s: float) -> dict[str, Answer]:
    """Ask everything at once, each in a thread of its own, and return the answers that came in time.

    A question that raises has no answer either. One that hangs is abandoned: its thread ends with the process.
    """
    answers: dict[str, Answer] = {}

    def ask(name: str, question: Callable[[], Answer]) -> None:
        # Whatever a computer answers, it may not end the program that asks.
        with contextlib.suppress(Exception):
            answers[name] = question()

    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in questions.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(answers)
