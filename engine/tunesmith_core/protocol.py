"""Protocol v1: events in the journal of an operation, such as a run, and commands in its control folder.

A journal line is one JSON object: `{"v":1,"seq":17,"t":1795219200.12,"type":"step",...,"crc":"9f3a12bc"}`, UTF-8, where
crc is the CRC-32 of the line's bytes before `,"crc"`. A torn or garbled line is counted and passed over. Units are in
the key suffixes; a number that is not finite is written as null and its place (`answer.rows[0].loss`) is named in
`nonfinite`.

Events and their fields:
- hello: protocol, version, python, torch, device, device_name, pid, resumed_from_step, threads
- phase: name (queued, written by the supervisor; starting, model, data, training, evaluating, saving; paused while the
  disk can't be written), done, total, unit; of a pause code and message; of the data rows_per_s and remaining_s (null
  where nobody knows)
- setup: total_steps, steps_per_epoch, num_train_rows, num_eval_rows, num_skipped_rows, num_truncated_rows,
  num_open_rows (cut before what is learned ends), num_trained_tokens, sources (of each data file path, num_train_rows,
  num_eval_rows and num_epoch_rows, which are its examples in an epoch), num_parameters, num_trainable_parameters,
  dtype, micro_batch_size, gradient_accumulation_steps, kernels (sentences: what runs fused, what doesn't and why),
  planned_bytes (on a GPU: expected peak of what PyTorch allocates, null where nobody knows), tried_bytes (on a GPU:
  that peak in a trial of the largest micro-batch)
- step: step, epoch, loss, lr, grad_norm, tokens (cumulative), tokens_per_s, step_s, vram_peak_bytes
- eval: step, loss, num_tokens, seconds, source_losses (of SFT on several data files of which rows are held out: of
  each path, loss and num_tokens)
- sample: step, prompt, text, cut_at_tokens (where the answer was cut, 0 where the model ended it)
- rollouts: step, prompt, expected, group (of each answer text, reward, is_cut)
- answers: step, answers (of each prompt, expected and answer), cuts (of each its cut_at_tokens), seconds
- checkpoint: step, path (relative to the run folder), bytes, seconds
- gpu: device, allocated_bytes, reserved_bytes, used_by_others_bytes, total_bytes, utilization_percent, temperature_c,
  power_w, process_bytes, host_used_bytes, host_total_bytes, cpu_machine_percent (of all cores together; before it
  there was cpu_percent, the sum over the cores); absent where unknown
- log: level, text
- warning: code, message, hint
- any event: templates (name of a field -> text, template and values of its sentence, see `messages`)
- error: code, kind, title, message, context, hint, link, actions (names of `actions.ACTIONS`)
- ack: id, command, ok, message
- stopping: mode (save, discard): a stop was accepted
- result: status (finished, stopped, failed), code; of a run step, seconds, artifacts (name -> relative path),
  eval_loss_before, eval_loss_after; of other operations exit_code, answer (what it was asked for)
- check: id, title, state (waiting, checking, ok, warning, failed, unknown), message, code, fix; of a selftest name,
  title, required, state, seconds, details, error; of a kernel its name, and afterwards reason
- plan: parts, folder, free_bytes, seconds, profile, sentence of an installation
- progress: name, done_bytes, total_bytes, bytes_per_s, remaining_s of a download; phases of an installation have state
  (started, done) and seconds

- ready: of a chat, step, device, device_name, most_tokens (of a conversation, null where the model sets no limit),
  seconds
- piece: of an answer, ask (id of the command), side (tuned, base), text, thinking
- done: of an answer, ask, side, status (end, length, canceled, failed), tokens, prompt_tokens, first_s, seconds,
  tokens_per_s, error
- prompt: of a rendered conversation, ask, ids, thinking (whether the template begins with thinking), error

Commands are files `control/ID.json` with `{"v":1,"id":...,"command":...}`: stop (mode: save or discard), checkpoint,
evaluate, sample (prompt), ping; of a chat ask (sides, messages, sampling), cancel, switch (checkpoint); render
(messages). A reader takes the same major version, ignores and counts types and fields it does not
know.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import threading
import time
import uuid
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tunesmith_core import files, json_values
from tunesmith_core.errors import BugError, TunesmithError, wrap
from tunesmith_core.event_fields import sound
from tunesmith_core.messages import Message, packed, restored

PROTOCOL_MAJOR = 1
PROTOCOL = "1.0"

EVENT_TYPES = frozenset(
    """hello phase setup step eval sample answers rollouts comparison checkpoint gpu log warning error ack stopping
    result check plan progress waiting ready piece done prompt""".split()
)
DURABLE_TYPES = frozenset({"hello", "checkpoint", "error", "result", "stopping"})
"""Events that are fsynced before `write` returns; the others may be lost with the last second of a power cut."""

MAX_WAITING = 10_000
"""How many events wait in memory for a disk that can't be written before those of the expendable types are dropped."""

EXPENDABLE_TYPES = frozenset({"step", "phase", "log", "progress", "rollouts"})
_BEGUN = ""
"""In place of the type of a line that is in the file in part: it must be completed."""

COMMANDS = frozenset("stop checkpoint evaluate sample ping ask cancel switch render".split())
STOP_MODES = ("save", "discard")
DISCARD_SIGNAL: int = getattr(signal, "SIGUSR1", 0)
"""Asks a supervisor for a stop that discards, as SIGTERM does for one that saves; 0 on Windows."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a journal; `data` holds the fields of its type."""

    seq: int
    t: float
    type: str
    data: dict[str, Any] = field(default_factory=dict)  # Any: JSON values


@dataclass(frozen=True, slots=True)
class Command:
    """One command for the engine; `data` holds its arguments."""

    id: str
    name: str
    data: dict[str, Any] = field(default_factory=dict)  # Any: JSON values


def encode(event: Event) -> bytes:
    """Return an event as a journal line with its checksum and newline."""
    nonfinite: list[str] = []
    data = {key: _finite(value, key, nonfinite) for key, value in packed(event.data).items()}
    if nonfinite:
        data["nonfinite"] = nonfinite
    envelope = {"v": PROTOCOL_MAJOR, "seq": event.seq, "t": round(event.t, 3), "type": event.type, **data}
    text = json.dumps(envelope, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate from a broken file name must not kill the writer.
    body = text[:-1].encode("utf-8", "replace")
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


def _finite(value: Any, place: str, nonfinite: list[str]) -> Any:  # Any: JSON values
    """Return a value without the numbers that JSON lacks, and note where they were."""
    if isinstance(value, dict):
        return {key: _finite(each, f"{place}.{key}", nonfinite) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each, f"{place}[{number}]", nonfinite) for number, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        nonfinite.append(place)
        return None
    return value


CRC_TAIL_BYTES = len(b',"crc":"00000000"}')
_CRC_TAIL = re.compile(rb',"crc":"[0-9a-f]{8}"}\Z')
_BEGINNING = b'{"v":'


def decode(line: bytes) -> Event | None:
    """Return the event of a journal line, or None for a line that is torn, garbled or no event.

    Raises:
        EnvironmentProblem: `protocol-mismatch` for a line of a newer major version.
    """
    line = line.rstrip(b"\r\n")
    body, tail = line[:-CRC_TAIL_BYTES], line[-CRC_TAIL_BYTES:]
    if tail != b',"crc":"%08x"}' % zlib.crc32(body):
        return None
    try:
        data = json_values.parse(body + b"}")
        major, seq, t, kind = data.pop("v"), data.pop("seq"), data.pop("t"), data.pop("type")
        fields = sound(restored(data))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    envelope = (json_values.is_count(major), json_values.is_count(seq), json_values.is_time(t), isinstance(kind, str))
    if not all(envelope):
        return None
    if major != PROTOCOL_MAJOR:
        raise TunesmithError(
            "protocol-mismatch",
            "The journal has version {major}, and this program reads {protocol}.",
            major=major,
            protocol=PROTOCOL,
        )
    return Event(seq, t, kind, fields)


class JournalWriter:
    """Appends events to a journal; safe for several threads of one process.

    One process writes at a time: the engine while it lives, the supervisor before and after it. Numbering continues
    where the file ends, and a torn last line is closed first so that it can't swallow the next event.

    A full, read-only or failing disk is no error here: events wait in memory, in order, and are written before the next
    one. A line of which the disk took only a part is continued where it was cut.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seq = last_seq(path)
        self._file: IO[bytes] | None = None
        self._closed = False
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._unsynced = False
        self._write_waiting()

    def write(self, kind: str, /, **data: Any) -> Event:  # Any: JSON values
        """Append one event and return it; durable types are on the disk when this returns, unless `fault` says why not.

        Raises:
            OSError: what is not among `files.DISK_FAULTS`, such as a folder that is gone.
        """
        if kind not in EVENT_TYPES:
            raise ValueError(f"unknown event type {kind!r}")
        with self._lock:
            if self._closed:
                raise ValueError("the journal is closed")
            self._seq += 1
            event = Event(self._seq, time.time(), kind, data)
            self._waiting.append((kind, encode(event)))
            self._unsynced |= kind in DURABLE_TYPES
            if self._write_waiting():
                self._thin_out()
        return event

    def fault(self) -> OSError | None:
        """Try again to write the events that wait; return why they can't be written, None when all are."""
        with self._lock:
            return None if self._closed else self._write_waiting()

    def close(self) -> None:
        """Make a last attempt to write what waits and close the file."""
        with self._lock:
            if self._closed:
                return
            self._write_waiting()
            self._closed = True
            if self._file:
                self._file.close()

    def _write_waiting(self) -> OSError | None:
        try:
            if self._file is None:
                file = files.open_file(self._path, "ab", buffering=0)
                if file.tell() and not _ends_with_newline(self._path):
                    self._waiting.appendleft((_BEGUN, b"\n"))
                self._file = file
            while self._waiting:
                line = self._waiting[0][1]
                written = self._file.write(line)
                if written == len(line):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = (_BEGUN, line[written:])
            if self._unsynced:
                os.fsync(self._file.fileno())
                self._unsynced = False
        except OSError as error:
            if error.errno not in files.DISK_FAULTS:
                raise
            return error
        return None

    def _thin_out(self) -> None:
        """Keep what waits within bounds: readings of sensors are worth nothing later, and a flood must not fill memory.
        """
        if self._waiting and self._waiting[-1][0] == "gpu":
            self._waiting.pop()
        elif len(self._waiting) > MAX_WAITING:
            oldest = next((place for place, (kind, _) in enumerate(self._waiting) if kind in EXPENDABLE_TYPES), None)
            if oldest is not None:
                del self._waiting[oldest]


def _ends_with_newline(path: Path) -> bool:
    with files.open_file(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def last_seq(path: Path) -> int:
    """Return the number of the last readable event of a journal, 0 when there is none."""
    if not path.exists():
        return 0
    with files.open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        block = 1 << 16
        while True:
            file.seek(max(0, size - block))
            for line in reversed(file.read().split(b"\n")):
                event = decode(line)
                if event:
                    return event.seq
            if block >= size:
                return 0
            block *= 16


class JournalReader:
    """Reads a journal that may still grow, in whole lines, from a byte offset.

    Attributes:
        offset: byte position after the last whole line that was read.
        num_bad_lines: lines that were torn or garbled.
        num_garbled: those of them that no process or computer leaves that ended while it wrote.
        num_unknown: events of types that this version does not know.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.num_bad_lines = 0
        self.num_garbled = 0
        self.num_unknown = 0

    def read(self, max_bytes: int = 1 << 22) -> list[Event]:
        """Return the events of the whole lines that follow, `max_bytes` at most; [] when there are none yet.

        Raises:
            EnvironmentProblem: `run-damaged`, `permission-or-antivirus`; `protocol-mismatch` for a newer journal.
        """
        try:
            with files.open_file(self.path) as file:
                file.seek(self.offset)
                block = file.read(max_bytes)
                end = block.rfind(b"\n") + 1
                if not end and len(block) == max_bytes:
                    # One line longer than the block: take it whole, so that it can't hold up the reader for ever.
                    block += file.readline()
                    end = block.rfind(b"\n") + 1
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(error) from error
        self.offset += end
        events = []
        for line in block[:end].split(b"\n")[:-1]:
            event = decode(line)
            if event is None:
                self.num_bad_lines += bool(line.strip())
                self.num_garbled += not _is_torn(line)
            elif event.type not in EVENT_TYPES:
                self.num_unknown += 1
            else:
                events.append(event)
        return events

    def damage(self) -> TunesmithError | None:
        """Return the error of a journal that somebody else changed, None for one that lost nothing it was told."""
        if not self.num_garbled:
            return None
        return TunesmithError(
            "run-damaged",
            "{path}: lines that are damaged: {count:,}. What they reported is missing.",
            path=self.path,
            count=self.num_garbled,
        )

    def read_all(self) -> list[Event]:
        """Return every event up to the present end."""
        events = []
        while True:
            before = self.offset
            events += self.read()
            if self.offset == before:
                return events


def _is_torn(line: bytes) -> bool:
    """Return whether a line that is no event is the beginning of one, with NULs where power failed before its bytes."""
    written = line.rstrip(b"\r").replace(b"\0", b"")
    return written[: len(_BEGINNING)] == _BEGINNING[: len(written)] and not _CRC_TAIL.search(written)


def _unreadable(error: OSError) -> TunesmithError:
    known = wrap(error)
    if not isinstance(known, BugError):
        return known
    reason = Message(str(error.strerror))
    return TunesmithError("run-damaged", "{path}: {reason}.", path=error.filename, reason=reason)


def read_journal(path: Path) -> list[Event]:
    """Return every readable event of a journal."""
    return JournalReader(path).read_all()


def post_command(control: Path, name: str, /, **data: Any) -> str:  # Any: JSON values
    """Drop a command into a control folder and return its id.

    Raises:
        ValueError: for a command that the protocol lacks. OSError: when the folder can't be written.
    """
    if name not in COMMANDS:
        raise ValueError(f"unknown command {name!r}")
    files.private_folder(control)
    # The time comes first, so that sorting by name is sorting by time.
    identifier = f"{time.time_ns():020d}-{uuid.uuid4().hex[:6]}"
    files.atomic_write_json(
        control / f"{identifier}.json", {"v": PROTOCOL_MAJOR, "id": identifier, "command": name, **data}
    )
    return identifier


class CommandInbox:
    """Takes commands out of a control folder, oldest first; files that are no command are dropped."""

    def __init__(self, control: Path) -> None:
        self.control = control
        self._taken: set[Path] = set()

    def poll(self) -> list[Command]:
        """Remove and return the commands that have come since the last call."""
        commands = []
        for path in pending_commands(self.control):
            if path in self._taken:
                continue
            try:
                command = _load_command(path)
            except OSError:
                # On Windows a file can't be opened for a moment while another process handles it: it waits here.
                continue
            try:
                # Supervisor and engine both read commands: the one holds up the other's removal for a moment.
                files.remove(path)
            except OSError:
                # On a disk that can't be written it is obeyed all the same, once.
                self._taken.add(path)
            if command:
                commands.append(command)
        return commands


def pending_commands(control: Path) -> list[Path]:
    """Return the command files of a control folder, oldest first; none while the folder can't be read."""
    try:
        names = sorted(os.listdir(control))
    except OSError:
        return []
    return [control / name for name in names if name.endswith(".json") and not name.startswith(".")]


def read_command(path: Path) -> Command | None:
    """Return the command in a file, or None when it is gone, held, damaged or unknown."""
    try:
        return _load_command(path)
    except OSError:
        return None


def _load_command(path: Path) -> Command | None:
    """Return the command in a file, or None when it is damaged or unknown. Raises OSError when it can't be read."""
    try:
        data = files.read_json(path)
        major, identifier, name = data.pop("v"), data.pop("id"), data.pop("command")
        known = major == PROTOCOL_MAJOR and name in COMMANDS and isinstance(identifier, str)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return Command(identifier, name, data) if known else None
