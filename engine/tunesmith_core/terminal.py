"""What the command line says: the only module that writes to standard output and standard error.

Whatever it is given may hold foreign text, so everything passes `plain_text` on its way.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from tunesmith_core import preferences, rewards, source_losses
from tunesmith_core.errors import BugError, TunesmithError, UserError
from tunesmith_core.messages import Message, joined, said
from tunesmith_core.plain_text import num_columns, one_line, shortened, visible, visible_json
from tunesmith_core.protocol import Event
from tunesmith_core.runs import PAUSED_PHASE, counted_rows

QUIET_STEPS_S = 10.0
"""Where no terminal shows the line in place, a step is told at most so often."""

GIB = 1 << 30

MAX_CELL_COLUMNS = 255
"""Of a table: the longest name that a file can have."""

MAX_PADDED_COLUMNS = 60
"""A longer cell moves the rest of its own row only."""


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


def forget_reader() -> None:
    """Let the rest of our output go nowhere, also Python's last flush: its reader, such as head, wants no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str = "") -> None:
    """Write a line to standard output."""
    _write(said(text))


def say_json(value: Any) -> None:  # Any: JSON values
    """Write a value as readable JSON to standard output."""
    _write_json(value, indent=2)


def say_event(event: Event) -> None:
    """Write an event as one line of JSON to standard output."""
    line = {"seq": event.seq, "t": event.t, "type": event.type, **event.data}
    _write_json(line, separators=(",", ":"))


def note(text: str = "") -> None:
    """Write a line to standard error, for what is not the result."""
    _write(said(text), to_error=True)


def stream(text: str, *, to_error: bool = False) -> None:
    """Write a piece of text that grows, without ending its line."""
    _write(text, end="", to_error=to_error)


def ask(question: str) -> str:
    """Write a question without ending its line, and return the answer in small letters; nobody's answer is ""."""
    _write(said(question), end="")
    return sys.stdin.readline().strip().lower()


def _write(text: str, *, end: str = "\n", to_error: bool = False) -> None:
    stream = sys.stderr if to_error else sys.stdout
    if stream is not None:
        print(visible(text), end=end, file=stream, flush=True)


def _write_json(value: Any, **style: Any) -> None:  # Any: JSON values, and what json.dumps takes
    # Python's own escape for a letter that the stream can't encode is not valid JSON.
    lacks_letters = (getattr(sys.stdout, "encoding", None) or "utf-8").lower() != "utf-8"
    print(visible_json(json.dumps(value, ensure_ascii=lacks_letters, **style)), flush=True)


_WITHOUT_CONTEXT = (BugError.exit_code, UserError.exit_code)
"""Where the context is a traceback, which says nothing about a file or setting."""


def show_error(error: TunesmithError) -> None:
    """Write an error with its code, cause and next step to standard error."""
    title = Message("error[{code}]: {title}", code=error.code, title=error.title)
    lines = [said(title), *said(error.message).splitlines()]
    if error.context and error.exit_code not in _WITHOUT_CONTEXT:
        lines += ["", *error.context.rstrip().splitlines(), ""]
    lines += [said(Message("hint: {hint}", hint=error.hint))]
    if error.link:
        lines += [said(Message("see: {address}", address=error.link))]
    note("\n".join(lines))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as aligned columns under a header; a cell is one line, whatever it holds."""
    lines = [[cell(each) for each in line] for line in (header, *rows)]
    widths = [max(min(num_columns(each), MAX_PADDED_COLUMNS) for each in column) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(each + " " * (width - num_columns(each)) for each, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def cell(text: str) -> str:
    """Return foreign text for one line of ours, with an end."""
    return shortened(one_line(text), MAX_CELL_COLUMNS)


def rows(number: int) -> Message:
    """Return a number of rows for people."""
    return Message("{number:,} row", number=number) if number == 1 else Message("{number:,} rows", number=number)


def size(num_bytes: float) -> str:
    """Return the size of a file or folder for people, in the unit that suits it."""
    value, decimals, unit = scaled(num_bytes)
    return f"{value:,.{decimals}f} {unit}"


def scaled(num_bytes: float) -> tuple[float, int, str]:
    """Return a size in the unit that people read it in, with how many decimals, here and in the window alike."""
    for factor, decimals, unit in ((GIB, 1, "GiB"), (GIB >> 10, 0, "MiB"), (GIB >> 20, 0, "KiB")):
        if num_bytes >= factor:
            return num_bytes / factor, decimals, unit
    return num_bytes, 0, "B"


def gib(num_bytes: float) -> str:
    """Return a size for people."""
    return f"{num_bytes / GIB:.2f} GiB"


def duration(seconds: float) -> Message:
    """Return a time span for people: 0.25 s, 12 s, 3 min 05 s, 2 h 07 min."""
    if 0 < seconds < 1:
        return Message("{seconds} s", seconds=f"{seconds:.2g}")
    whole = max(0, round(seconds))
    if whole < 60:
        return Message("{seconds} s", seconds=whole)
    if whole < 3600:
        return Message("{minutes} min {seconds:02d} s", minutes=whole // 60, seconds=whole % 60)
    return Message("{hours} h {minutes:02d} min", hours=whole // 3600, minutes=whole % 3600 // 60)


def number(value: float | None) -> str:
    """Return a measured loss or reward, or a dash where it is unknown or not finite."""
    return "-" if value is None else f"{value:z.3f}"


class Progress:
    """Tells a run's events to a person: one line that is drawn over on a terminal, few lines elsewhere.

    Args:
        to_error: whether they stand beside a result, which is all that standard output then gets.
    """

    def __init__(self, *, to_error: bool = False) -> None:
        self._to_error = to_error
        self._in_place = (sys.stderr if to_error else sys.stdout).isatty()
        self._drawn_columns = 0
        self._total_steps = 0
        self._told_t = 0.0

    def show(self, event: Event) -> None:
        """Tell one event, if it is worth telling."""
        if event.type == "setup":
            self._total_steps = event.data.get("total_steps") or 0
            num_rows, num_skipped = counted_rows(event.data)
            if num_skipped:
                self._clear()
                self._say(Message("Skipped {num_skipped:,} of {rows}.", num_skipped=num_skipped, rows=rows(num_rows)))
        elif event.type == "step":
            self._step(event)
        elif event.type == "progress" and event.data.get("bytes_per_s") is not None:
            self._transfer(event)
        elif event.type in ("progress", "phase") and event.data.get("rows_per_s") is not None:
            self._rows(event)
        elif event.type == "progress" and event.data.get("passages_per_s") is not None:
            self._passages(event)
        elif line := _line(event):
            self._clear()
            self._say(line)

    def _step(self, event: Event) -> None:
        data = event.data
        total, loss = self._total_steps or "?", number(data.get("loss"))
        parts = [Message("step {step}/{total}  loss {loss}", step=data.get("step"), total=total, loss=loss)]
        if rewarded := rewards.in_brief(data):
            parts = [Message("step {step}/{total}", step=data.get("step"), total=total), rewarded]
        if preferred := preferences.in_brief(data):
            parts.append(preferred)
        tokens_per_s = data.get("tokens_per_s")
        if tokens_per_s:
            parts.append(Message("{speed:.0f} tokens/s", speed=tokens_per_s))
        left = self._total_steps - int(data.get("step") or 0)
        if left > 0 and data.get("step_s"):
            parts.append(Message("{time} left", time=duration(left * data["step_s"])))
        self._tell(event, said(joined(parts, "  ")), last=left == 0)

    def _transfer(self, event: Event) -> None:
        data = event.data
        done, total = data.get("done_bytes") or 0, data.get("total_bytes") or 0
        parts = [
            Message("{done} of {total}", done=size(done), total=size(total)),
            Message("{rate}/s", rate=size(data["bytes_per_s"])),
        ]
        if data.get("remaining_s"):
            parts.append(Message("{time} left", time=duration(data["remaining_s"])))
        self._tell(event, said(joined(parts, "  ")), last=done >= total)

    def _rows(self, event: Event) -> None:
        data = event.data
        parts = [
            rows(data.get("rows") or data.get("done") or 0),
            Message("{rate:,.0f} rows/s", rate=data["rows_per_s"]),
        ]
        if data.get("remaining_s"):
            parts.append(Message("{time} left", time=duration(data["remaining_s"])))
        self._tell(event, said(joined(parts, "  ")), last=data.get("remaining_s") == 0)

    def _passages(self, event: Event) -> None:
        data = event.data
        done, total = data.get("done_bytes") or 0, data.get("total_bytes") or 0
        parts = [
            Message("{done:,} of {total:,} passages", done=done, total=total),
            Message("{number:,} questions", number=data.get("questions") or 0),
            Message("{rate:,.1f} passages/min", rate=60 * data["passages_per_s"]),
        ]
        if data.get("remaining_s"):
            parts.append(Message("{time} left", time=duration(data["remaining_s"])))
        self._tell(event, said(joined(parts, "  ")), last=done >= total)

    def _tell(self, event: Event, line: str, *, last: bool) -> None:
        """Draw a line over the one before; elsewhere than on a terminal tell one every few seconds, and the last."""
        if self._in_place:
            line = cell(line)
            self._draw(line + " " * (self._drawn_columns - num_columns(line)))
            self._drawn_columns = num_columns(line)
        elif last or event.t - self._told_t >= QUIET_STEPS_S:
            self._told_t = event.t
            self._say(line)

    def _clear(self) -> None:
        if self._drawn_columns:
            self._draw(" " * self._drawn_columns + "\r")
            self._drawn_columns = 0

    def _say(self, text: str = "") -> None:
        _write(said(text), to_error=self._to_error)

    def _draw(self, line: str) -> None:
        print("\r" + line, end="", file=sys.stderr if self._to_error else sys.stdout, flush=True)

    def close(self) -> None:
        """End the line that was drawn in place."""
        if self._drawn_columns:
            self._say()
            self._drawn_columns = 0


def _line(event: Event) -> str:
    data, step = event.data, event.data.get("step")
    match event.type:
        case "hello" if data.get("resumed_from_step"):
            return Message("resumed from step {step}", step=data["resumed_from_step"])
        case "phase" if data.get("name") == PAUSED_PHASE:
            return paused(data.get("message") or "")
        case "phase" if not data.get("done"):
            return Message("{phase} ...", phase=Message(str(data.get("name"))))
        case "eval":
            if "reward" in data:
                return Message("step {step}: held-out reward {reward}", step=step, reward=number(data["reward"]))
            loss = Message("step {step}: evaluation loss {loss}", step=step, loss=number(data.get("loss")))
            of_sources = source_losses.in_brief(source_losses.of_event(data))
            return joined(filter(None, (loss, preferences.in_brief(data), of_sources)), "  ")
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
        case "waiting":
            seconds = round(data.get("seconds") or 0)
            return Message("{message} Trying again in {seconds} s.", message=data.get("message"), seconds=seconds)
        case "stopping":
            return Message("stopping ...")
    return ""


def paused(reason: str) -> Message:
    """Return what is said of a run that waits for its disk, which is the reason."""
    return Message("Paused: {message} The run keeps everything in memory and continues by itself.", message=reason)
