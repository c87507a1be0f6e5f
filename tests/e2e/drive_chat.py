"""Asks a run in the real window with the mouse, as a process of its own: see `test_chat_window`.

Counts the clicks from the run's page to the first answer, and the seconds that they and the model took.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QAbstractButton

from tests.e2e.drive_window import Driver, click, drive, rest, wait_for
from tunesmith_core import launch
from tunesmith_core.operations.kinds.chat import TUNED
from tunesmith_core.runs import RunState, open_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.chat.service import ModelState

SEEN_S = 1.5
"""From the end of a run until a person has seen it and moved the mouse to the button."""

RUN_LIMIT_S = 1500.0
"""For a run of the example model beside other work."""


class ChatDriver(Driver):
    """One person who asks the model that has just been trained, or that of a run of yesterday."""

    def press(self, button: QAbstractButton) -> None:
        """Click a button once one can."""
        wait_for(lambda: button.isVisible() and button.isEnabled(), button.text())
        click(button)
        self.seen["clicks"] = self.seen.get("clicks", 0) + 1

    def watch(self, spec: str) -> None:
        """Start a run, look at its page until it is finished, and ask."""
        run = launch.start(RunSpec.load(Path(spec)))
        self.seen["run"] = run.id
        self.window.show_page("dashboard", run.id)
        wait_for(lambda: hasattr(self.page, "header"), "the run")
        wait_for(lambda: self.page.model.status.state is RunState.FINISHED, "the end", RUN_LIMIT_S)
        self.seen["ended"] = time.monotonic()
        rest(SEEN_S)
        # It is loaded without being asked for.
        wait_for(lambda: self.window.context.chat.state is not ModelState.OFF, "the model")
        self.ask()

    def come_back(self, run: str) -> None:
        """Open a run that ended before the window was opened, and ask at once."""
        self.window.show_page("dashboard", open_run(run).id)
        wait_for(lambda: hasattr(self.page, "header") and self.page.header.try_it.isVisible(), "the run")
        self.ask()

    def ask(self) -> None:
        """Press Try it, and send the question that is proposed."""
        service, seen = self.window.context.chat, self.seen
        began = time.monotonic()
        seen["was_loaded"] = service.state.name
        times: dict[str, float] = {}

        def note(name: str) -> None:
            times.setdefault(name, round(time.monotonic() - began, 2))

        service.changed.connect(lambda: note("ready") if service.state is ModelState.READY else None)
        service.happened.connect(lambda _asker, event: note(event.type))
        self.press(self.page.header.try_it)
        wait_for(lambda: hasattr(self.page, "composer"), "the chat")
        note("page")
        self.press(self.page.composer.send)
        note("sent")
        wait_for(lambda: self.page.model.current.turns and not self.page.model.answering, "the answer", RUN_LIMIT_S)
        answer: Any = self.page.model.current.turns[-1].answers[TUNED]
        seen |= {"seconds": times, "answer": answer.text, "tokens": answer.tokens, "tokens_per_s": answer.tokens_per_s}
        seen["loading_s"] = service.ready.get("seconds")
        seen["since_end_s"] = round(began - seen["ended"] + times["piece"], 2) if "ended" in seen else None
        self.shoot("chat")


def main(way: str, run: str, shots: str, report: str) -> int:
    """Drive one chat: "watch" starts the run of a spec file, "come-back" opens one by its id."""
    return drive(ChatDriver, shots, report, lambda each: each.watch(run) if way == "watch" else each.come_back(run))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
