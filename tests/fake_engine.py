"""A scripted engine: plays the actions of TUNESMITH_HOME/fake-engine.json instead of training, without torch.

The file maps a run's name ("*" for any other) to a list of actions, each a list of a name and arguments; see `ACTIONS`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "engine"))

from tunesmith_core.protocol import CommandInbox, JournalWriter

TRAINING = [["hello"], ["steps", 3], ["checkpoint"], ["result", "finished"]]
"""A short good run."""


class FakeEngine:
    """Plays actions into the journal of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = JournalWriter(folder / "events.jsonl")
        self.inbox = CommandInbox(folder / "control")
        self.step = 0

    def hello(self, resumed_from_step: int | None = None) -> None:
        self.journal.write("hello", protocol="1.0", pid=os.getpid(), resumed_from_step=resumed_from_step)
        self.step = resumed_from_step or 0
        self.journal.write("phase", name="training", done=0, total=0, unit="")

    def steps(self, count: int, pause_s: float = 0.0) -> None:
        for _ in range(count):
            self.step += 1
            self.journal.write("step", step=self.step, loss=1.0 / self.step, lr=1e-4, tokens_per_s=10.0, step_s=0.01)
            time.sleep(pause_s)

    def checkpoint(self) -> None:
        folder = self.folder / "checkpoints" / f"step-{self.step:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "MANIFEST.json").write_text("{}")
        self.journal.write("checkpoint", step=self.step, path=f"checkpoints/{folder.name}", bytes=2, seconds=0.0)

    def save_slowly(self, seconds: float) -> None:
        """Write a checkpoint bit by bit."""
        staging = self.folder / "checkpoints" / ".staging-slow"
        staging.mkdir(parents=True)
        deadline = time.monotonic() + seconds
        with (staging / "adapter.safetensors").open("wb", buffering=0) as file:
            while time.monotonic() < deadline:
                file.write(b"weights")
                time.sleep(0.02)
        self.checkpoint()
        (staging / "adapter.safetensors").unlink()
        staging.rmdir()

    def result(self, status: str) -> None:
        self.journal.write("result", status=status, step=self.step, seconds=1.0, artifacts={})

    def event(self, kind: str, fields: dict[str, Any]) -> None:
        self.journal.write(kind, **fields)

    def obey(self, limit_s: float = 60.0) -> None:
        """Step until a stop comes, answering every command, then stop in good order."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for command in self.inbox.poll():
                self.journal.write("ack", id=command.id, command=command.name, ok=True, message="")
                if command.name == "sample":
                    self.journal.write("sample", step=self.step, prompt=command.data["prompt"], text="an answer")
                if command.name == "checkpoint":
                    self.checkpoint()
                if command.name == "stop":
                    self.journal.write("stopping", mode=command.data["mode"])
                    self.checkpoint()
                    self.result("stopped")
                    return
            self.steps(1, 0.02)

    def refuse(self) -> None:
        """Refuse the first command that comes, then end."""
        while not (commands := self.inbox.poll()):
            time.sleep(0.02)
        self.journal.write("ack", id=commands[0].id, command=commands[0].name, ok=False, message="not now")
        self.result("finished")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def ignore_terminate(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def grandchild(self, own_session: bool = False) -> None:
        """Start a process that holds our output open and ignores SIGTERM; its pid goes into grandchild.pid."""
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=own_session)
        with (self.folder / "grandchild.pid").open("a") as file:
            file.write(f"{child.pid}\n")

    def kill_self(self, number: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(10)

    def exit(self, code: int) -> None:
        os._exit(code)

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def flood(self, num_bytes: int) -> None:
        line = b"x" * 199 + b"\n"
        for _ in range(num_bytes // len(line)):
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    def show_environment(self) -> None:
        (self.folder / "environment.json").write_text(json.dumps(dict(os.environ)))


ACTIONS: dict[str, Callable[..., None]] = {
    name: method for name, method in vars(FakeEngine).items() if not name.startswith("_")
}


def answer(folder: Path, home: Path) -> int:
    """Play a short operation: what fake-engine.json holds under its kind, an answer or {"error": ...}."""
    reply = json.loads((home / "fake-engine.json").read_text()).get(
        json.loads((folder / "operation.json").read_text())["kind"]
    )
    if reply is None:
        return 1
    journal = JournalWriter(folder / "events.jsonl")
    if "error" in reply:
        journal.write("error", **reply["error"])
    journal.write("result", status="failed" if "error" in reply else "finished", exit_code=0, answer=reply)
    return 0


def main() -> int:
    """Play the script for `... tunesmith_engine SUBCOMMAND ARGUMENTS`."""
    home = Path(os.environ["TUNESMITH_HOME"])
    arguments = sys.argv[sys.argv.index("tunesmith_engine") + 1 :]
    if arguments[0] != "run":
        return answer(Path(arguments[1]), home)
    folder = Path(arguments[arguments.index("--run-dir") + 1])
    scripts = json.loads((home / "fake-engine.json").read_text())
    name = json.loads((folder / "spec.json").read_text())["name"]
    engine = FakeEngine(folder)
    for action, *parameters in scripts.get(name, scripts.get("*", TRAINING)):
        ACTIONS[action](engine, *parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
