"""What the command line says: the only module that writes to standard output and standard error."""

from __future__ import annotations

import errno
import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, joined, said
from tunesmith_core.protocol import Event
from tunesmith_core.runs import PAUSED_PHASE

QUIET_STEPS_S = 10.0
"""Where no terminal shows the line in place, a step is told at most so often."""

GIB = 1 << 30


def prepare() -> None:
    """Make output safe in any locale: UTF-8 where possible, and no letter that can't be shown ends the program."""
    # What Python writes into a pipe on Windows is in the code page of the system otherwise, which no program expects.
    encoding = "utf-8" if sys.platform == "win32" else None
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def reader_has_left(error: Exception) -> bool:
    """Return whether an error says that nobody reads our output any more; Windows calls that an invalid argument."""
    invalid = isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or (sys.platform == "win32" and invalid)


def say(text: str = "") -> None:
    """Write a line to standard output."""
    print(said(text), flush=True)


def say_json(value: Any) -> None:  # Any: JSON values
    """Write a value as readable JSON to standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)


def say_event(event: Event) -> None:
    """Write an event as one line of JSON to standard output."""
    line = {"seq": event.seq, "t": event.t, "type": event.type, **event.data}
    print(json.dumps(line, ensure_ascii=False, separators=(",", ":")), flush=True)


def note(text: str) -> None:
    """Write a line to standard error, for what is not the result."""
    print(said(text), file=sys.stderr, flush=True)


def show_error(error: TunesmithError) -> None:
    """Write an error with its code, cause and next step to standard error."""
    title = Message("error[{code}]: {title}", code=error.code, title=error.title)
    lines = [said(title), *said(error.message).splitlines()]
    if error.context and error.exit_code != 1:
        lines += ["", *error.context.rstrip().splitlines(), ""]
    lines += [said(Message("hint: {hint}", hint=error.hint))]
    if error.link:
        lines += [said(Message("see: {address}", address=error.link))]
    print("\n".join(lines), file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as aligned columns under a header."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(_num_columns(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell + " " * (width - _num_columns(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _num_columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: Chinese letters take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def size(num_bytes: float) -> str:
    """Return any size for people, in the unit that suits it."""
    for unit, name in ((GIB, "GiB"), (GIB >> 10, "MiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes / (GIB >> 20):.1f} KiB"


def gib(num_bytes: float) -> str:
    """Return a size for people."""
    return f"{num_bytes / GIB:.2f} GiB"


def duration(seconds: float) -> str:
    """Return a time span for people: 12 s, 3 min 05 s, 2 h 07 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def number(value: float | None, digits: int = 4) -> str:
    """Return a measured number, or a dash where it is unknown or not finite."""
    return "-" if value is None else f"{value:.{digits}f}"


class Progress:
    """Tells a run's events to a person: one line that is drawn over on a terminal, few lines elsewhere."""

    def __init__(self) -> None:
        self._in_place = sys.stdout.isatty()
        self._drawn_chars = 0
        self._total_steps = 0
        self._told_t = 0.0

    def show(self, event: Event) -> None:
        """Tell one event, if it is worth telling."""
        if event.type == "setup":
            self._total_steps = event.data.get("total_steps") or 0
        elif event.type == "step":
            self._step(event)
        elif line := _line(event):
            self._clear()
            say(line)

    def _step(self, event: Event) -> None:
        data = event.data
        total, loss = self._total_steps or "?", number(data.get("loss"))
        parts = [Message("step {step}/{total}  loss {loss}", step=data.get("step"), total=total, loss=loss)]
        tokens_per_s = data.get("tokens_per_s")
        if tokens_per_s:
            parts.append(Message("{speed:.0f} tokens/s", speed=tokens_per_s))
        left = self._total_steps - int(data.get("step") or 0)
        if left > 0 and data.get("step_s"):
            parts.append(Message("{time} left", time=duration(left * data["step_s"])))
        line = said(joined(parts, "  "))
        if self._in_place:
            print("\r" + line.ljust(self._drawn_chars), end="", flush=True)
            self._drawn_chars = len(line)
        elif left == 0 or event.t - self._told_t >= QUIET_STEPS_S:
            self._told_t = event.t
            say(line)

    def _clear(self) -> None:
        if self._drawn_chars:
            print("\r" + " " * self._drawn_chars + "\r", end="", flush=True)
            self._drawn_chars = 0

    def close(self) -> None:
        """End the line that was drawn in place."""
        if self._drawn_chars:
            say()
            self._drawn_chars = 0


def _line(event: Event) -> str:
    data, step = event.data, event.data.get("step")
    match event.type:
        case "hello" if data.get("resumed_from_step"):
            return Message("resumed from step {step}", step=data["resumed_from_step"])
        case "phase" if data.get("name") == PAUSED_PHASE:
            return Message(
                "Paused: {message} The run keeps everything in memory and continues by itself.",
                message=data.get("message"),
            )
        case "phase" if not data.get("done"):
            return Message("{phase} ...", phase=Message(str(data.get("name"))))
        case "eval":
            return Message("step {step}: evaluation loss {loss}", step=step, loss=number(data.get("loss")))
        case "sample":
            return Message(
                "step {step}: {prompt!r} -> {text!r}", step=step, prompt=data.get("prompt"), text=data.get("text")
            )
        case "checkpoint":
            return Message("saved step {step} in {path}", step=step, path=data.get("path"))
        case "warning":
            return Message("warning[{code}]: {message}", code=data.get("code"), message=data.get("message"))
        case "log" if data.get("level") == "info":
            return str(data.get("text"))
        case "stopping":
            return Message("stopping ...")
    return ""
