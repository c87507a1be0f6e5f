"""Turns the bytes of a log into clean lines that know their role: message of the final exception, frame, warning.

Whatever printed or copied the log is undone here, so that signatures need not care: encodings, terminal escapes,
progress bars, frames drawn with box characters, and the prefixes of ranks, containers and loggers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

MAX_HEAD_BYTES = 1 << 17
MAX_TAIL_BYTES = 1 << 19
MAX_LINE_CHARS = 4000
MAX_MESSAGE_LINES = 14
"""Of an exception's message; what follows it is another program's output."""

MAX_LOGGED_MESSAGE_LINES = 3
"""Of an exception that a logger printed within a line."""

MAX_SOURCE_LINES = 14
"""That a notebook or a drawn traceback shows around the line of a frame."""

MIN_CONSOLE_COLUMNS = 60
MIN_CUT_LINES = 2
"""Full lines of one length that speak for a console that cuts."""

MAX_LINES_AFTER_END = 40
"""What still goes on for longer has not ended with the exception."""

_FALLBACK_ENCODINGS = ("gb18030", "cp1254", "latin-1")

_ESCAPES = re.compile(r"(?:\x1b|␛|\\x1b|\\u001b)(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\u200b-\u200f]")
_FRAME_CHARACTERS = re.compile(r"^[\s]*[│┃|║╎]\s?|\s*[│┃║╎]\s*$|^[\s]*[╭╰┌└┏┗+][─━═\-]{3,}|[─━═]{3,}[╮╯┐┘┓┛]?\s*$")

_STAMP = r"\[?(?:\d{4}-\d\d-\d\d[T ,])?\d\d?:\d\d:\d\d(?:[.,:]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
_PREFIX = re.compile(
    r"\s*(?:"
    r"\[?(?:default|rank)_?\d+\]?:"  # torchrun
    r"|\[rank\w+\]:?"
    r"|\([\w ,=]{0,60}?\bpid=\d+[^)]*\)"  # vLLM, Ray
    r"|[A-Za-z][\w.-]*[-_]\d+\s+\|"  # docker compose
    r"|(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \S+ [\w./-]+(?:\[\d+\])?:"  # journald
    r"|[EWIF]\d{4} " + _STAMP + r"\s+\d+ \S+?\]\s?(?:\[[\d/_]+\])?"  # torch's own logger
    rf"|{_STAMP}(?:\s+[-|])?"
    r"|\d{2}-\d{2} \d\d:\d\d:\d\d"
    r"|(?:\d{4}[-/]\d\d[-/]\d\d|\d\d[-/]\d\d[-/]\d{4}|\d\d-\d\d) " + _STAMP + r""
    r"|(?:stderr|stdout)(?: [FP])?(?=[:\s]):?"
    r"|^E {2,}"  # pytest
    r"|> "  # quoted
    r"|!!! Exception during processing !{2,3}(?= )"
    r"|\[(?:transformers|ERROR|WARNING|INFO|DEBUG|WARN)(?:\s*\|[^\]]*)?\s*\]"
    r"|(?:ERROR|CRITICAL|WARNING|INFO|DEBUG|FATAL)(?::root:| -|:(?=\s))"
    r"|(?:ERROR|WARNING|CRITICAL) {2,}"
    r"|\[[\w./-]+\.(?:py|cpp|cc):\d+(?::\w+)?\]"
    r")\s?"
)
_MAX_PREFIXES = 4

_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*_?(?:[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|Failure|Failed|Unavailable|OutOfMemory"
    r"|NotFound|Timeout|Fault|Missing|IsEnabled|OutOfResources|Invalid\w*|Unsupported\w*)(?:\d+)?"
    r"|InvalidCxxCompiler|TritonMissing|ArrowInvalid)(?=[:(\s]|$)(?!\s*[=+*/]|\s+\w+\s*=|\s\w+ \w+ \w+.*\.$)"
)
_INNER_EXCEPTION = re.compile(
    r"(?:^|[\s:\[(>'\"])((?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Failure|Missing|OutOfMemory)|ArrowInvalid)): "
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|^Traceback ")
_CHAIN = re.compile(
    r"During handling of the above exception|The above exception was the direct cause|caused by the following", re.I
)
_FILE_FRAME = re.compile(
    r"^\s*(?:File [\"']?.+?[\"']?, line \d+|File .+?:\d+|\S+\.(?:py|pyx|ipynb)(?::\d+)? in |<ipython-input-|at 0x"
    r"|\S+\.py:\d+(?: in \S+|, in \S+|:? in |$)|\S+ in <?\w+>?\(.*\)$|.*site-packages.* in \S+\()"
)
_CODE_FRAME = re.compile(r"^\s*(?:-{2,}>|❱|>)?\s*\d{1,5}\s*(?:[│|]|\s{2,}\S|$|\s(?=\S.*[(=:,]))")
_MARKED_CODE = re.compile(r"^\s*(?:-{3,}>|❱)\s*\d+")
_STATEMENT = re.compile(
    r"^\s*(?:raise \w[\w.]*\(|raise$|except(?: .*)?:|def \w+\(.*|class \w+.*:|print\(|return .*[(=\"']|assert .*[,=<>(]"
    r"|log(?:ger|ging)?\.\w+\(|warnings\.warn\(|warn\(|if .*:\s*$|elif .*:|else:|try:|with .*:\s*$|for .* in .*:\s*$"
    r"|import \w[\w., ]*$|from [\w.]+ import |@\w[\w.]*)"
)
_NOTEBOOK_HEAD = re.compile(r"^(?:\w+\.)*[A-Z]\w+\s{2,}Traceback \(most recent call last\)")
_UNDERLINE = re.compile(r"^\s*[\^~]+\s*$")
_WARNING_CLASS = re.compile(r"(?:\w+\.)*\w*Warning\b")
_WARNING = re.compile(r"\w*Warning:|\bWARN(?:ING)?\b|\bwarn\(")
_WRAPPERS = re.compile(
    r"CalledProcessError|ChildFailedError|KeyboardInterrupt|SystemExit|BrokenPipeError|ProcessRaisedException"
    r"|ProcessExitedException|RayTaskError|EngineDeadError|DatasetGenerationError|BackendCompilerFailed|CompilationError"
)


class Role(IntEnum):
    """What a line is in the log, the more telling the greater."""

    FRAME = 0
    WARNING = 1
    PLAIN = 2
    EXCEPTION = 3
    CHAIN = 4
    FINAL = 5


@dataclass(slots=True)
class Log:
    """A log, cleaned.

    Attributes:
        lines: without prefixes, escapes and frames.
        roles: of each line.
        text: the lines in one string.
        squeezed: the text in lower case with single spaces, to look for words quickly.
        starts: offset of each line in `text`.
        ends_with_exception: whether the log ends with one (that of a mere launcher does not count by itself).
    """

    lines: list[str]
    roles: list[Role]
    text: str = ""
    squeezed: str = ""
    starts: list[int] = field(default_factory=list)
    ends_with_exception: bool = False

    def line_at(self, offset: int) -> int:
        """Return the number of the line at an offset of `text`."""
        return bisect_right(self.starts, offset) - 1


def read_bounded(file: BinaryIO) -> bytes:
    """Return the head and the tail of a stream, all of it when it is small; memory stays bounded."""
    head = file.read(MAX_HEAD_BYTES)
    tail = b""
    dropped = False
    while block := file.read(MAX_TAIL_BYTES):
        dropped = dropped or len(tail) + len(block) > MAX_TAIL_BYTES
        tail = (tail + block)[-MAX_TAIL_BYTES:]
    if not dropped:
        return head + tail
    if _looks_like_utf16(head):
        # The cut must not split a pair of bytes.
        tail = tail[len(tail) % 2 :]
        return head + "\n[...]\n".encode("utf-16-le" if not head.startswith(b"\xfe\xff") else "utf-16-be") + tail
    return head + b"\n[...]\n" + tail


def read_file(path: Path) -> bytes:
    """Return the head and the tail of a file.

    Raises:
        OSError: when it can't be read.
    """
    with path.open("rb") as file:
        head = file.read(MAX_HEAD_BYTES)
        size = file.seek(0, 2)
        if size <= MAX_HEAD_BYTES + MAX_TAIL_BYTES:
            file.seek(0)
            return file.read()
        file.seek((size - MAX_TAIL_BYTES) // 2 * 2)
        tail = file.read(MAX_TAIL_BYTES)
    if _looks_like_utf16(head):
        return head + "\n".encode("utf-16-be" if head.startswith(b"\xfe\xff") else "utf-16-le") + tail
    return head + b"\n" + tail


def _looks_like_utf16(data: bytes) -> bool:
    start = data[:2000]
    return start[:2] in (b"\xff\xfe", b"\xfe\xff") or start.count(0) > len(start) // 5


def decode(data: bytes) -> str:
    """Return the text of a log in UTF-8, UTF-16 (as PowerShell redirects, also without a mark) or a code page."""
    if data[:2] == b"\xfe\xff" or (_looks_like_utf16(data) and data[:1] == b"\0"):
        return data.decode("utf-16-be", "replace").lstrip("\ufeff")
    if _looks_like_utf16(data):
        return data.decode("utf-16-le", "replace").lstrip("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    replaced = data.decode("utf-8-sig", "replace")
    # A cut in the middle, or one damaged line, leaves UTF-8 what it is.
    if replaced.count("\ufffd") * 4 <= sum(character > "\x7f" for character in replaced):
        return replaced
    for encoding in _FALLBACK_ENCODINGS[:-1]:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode(_FALLBACK_ENCODINGS[-1])


def unwrapped(text: str) -> str:
    """Join lines that a console cut at its width, in the middle of words; the same text where none was."""
    lines = text.replace("\r\n", "\n").split("\n")
    width = max(map(len, lines))
    cut = [len(line) == width for line in lines]
    if width < MIN_CONSOLE_COLUMNS or sum(cut) < MIN_CUT_LINES:
        return text
    return "".join(line if is_cut else f"{line}\n" for line, is_cut in zip(lines, cut, strict=True))


def read_log(text: str) -> Log:
    """Clean a text and give each line its role."""
    lines = list(_clean_lines(text))
    log = Log(lines, _roles(lines))
    _find_final(log)
    offset = 0
    for line in lines:
        log.starts.append(offset)
        offset += len(line) + 1
    log.text = "\n".join(lines)
    log.squeezed = " ".join(log.text.lower().split())
    return log


def _clean_lines(text: str) -> Iterator[str]:
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\n" not in text.strip() and text.count("\\n") > 2:
        # One line of JSON or of a repr: its newlines are spelled out.
        text = text.replace("\\r", "").replace("\\n", "\n")
    previous, num_repeated = "", 0
    for raw in text.split("\n"):
        for part in _states(raw):
            line = _CONTROLS.sub("", part)[:MAX_LINE_CHARS].rstrip()
            line = _without_prefix(_FRAME_CHARACTERS.sub("", _FRAME_CHARACTERS.sub("", line)))
            num_repeated = num_repeated + 1 if line == previous else 0
            previous = line
            if num_repeated < 4:
                yield line


def _states(raw: str) -> list[str]:
    """Split a line at carriage returns: of a progress bar the last states count, but an error may hide in between."""
    if "\r" not in raw:
        return [raw]
    parts = [part for part in raw.split("\r") if part.strip()]
    return [part for part in parts[:-1] if "Error" in part or "nan" in part][-50:] + parts[-1:]


def _without_prefix(line: str) -> str:
    for _ in range(_MAX_PREFIXES):
        found = _PREFIX.match(line)
        line = line[found.end() :] if found else line
    return line


def _roles(lines: list[str]) -> list[Role]:
    roles: list[Role] = []
    source = message = 0  # how many lines may still belong to shown source, or to the current message
    for line in lines:
        stripped = line.strip()
        if _NOTEBOOK_HEAD.match(line):
            # A notebook names the exception before its frames, and its message after them.
            role, source, message = Role.EXCEPTION, MAX_SOURCE_LINES, 0
        elif _FILE_FRAME.match(line) or _TRACEBACK.search(line):
            role, source, message = Role.FRAME, MAX_SOURCE_LINES, 0
        elif _is_source(line, bool(source), bool(message)):
            role, source = Role.FRAME, max(source, 2) - 1
        elif _EXCEPTION.match(stripped) and not (source and line[:1].isspace()):
            role, source, message = Role.EXCEPTION, 0, MAX_MESSAGE_LINES
            if _WARNING_CLASS.match(stripped):
                role = Role.WARNING
        elif source and stripped and line[:1].isspace():
            role, source = Role.FRAME, source - 1
        elif message and stripped and not _CHAIN.search(line):
            role, message = Role.EXCEPTION, message - 1
        elif _INNER_EXCEPTION.search(line) and not _WARNING.search(line):
            role, message = Role.EXCEPTION, MAX_LOGGED_MESSAGE_LINES
        elif _WARNING.search(line):
            role, message = Role.WARNING, 0
        else:
            role = Role.PLAIN
            message, source = (0, 0) if stripped else (max(0, message - 1), source)
        roles.append(role)
    return roles


def _is_source(line: str, in_source: bool, in_message: bool) -> bool:
    """Whether a line is shown source: marked, underlined, numbered after a frame, or a statement by itself."""
    if _UNDERLINE.match(line) or _MARKED_CODE.match(line):
        return True
    return bool((in_source and _CODE_FRAME.match(line)) or (not in_message and _STATEMENT.match(line)))


def _find_final(log: Log) -> None:
    """Mark the message of the last exception, and of those that it was chained to."""
    starts = [index for index, role in enumerate(log.roles) if role is Role.EXCEPTION]
    if not starts:
        return
    last = starts[-1]
    index = last
    while index > 0 and log.roles[index - 1] is Role.EXCEPTION:
        index -= 1
    for position in range(index, last + 1):
        log.roles[position] = Role.FINAL
    separators = [position for position, line in enumerate(log.lines) if _CHAIN.search(line)]
    low = index
    for separator in reversed(separators):
        # A chain is unbroken while only frames and messages lie between.
        if separator < low and all(
            log.roles[position] in (Role.FRAME, Role.EXCEPTION) or not log.lines[position].strip()
            for position in range(separator + 1, low)
        ):
            start = separator - 1
            while start >= 0 and log.roles[start] is not Role.FRAME:
                if log.roles[start] is Role.EXCEPTION:
                    log.roles[start] = Role.CHAIN
                start -= 1
            low = separator
    if sum(1 for line in log.lines[last + 1 :] if line.strip()) > MAX_LINES_AFTER_END:
        return
    # A launcher's exception only says that its worker failed, by an exception of its own as a rule.
    log.ends_with_exception = not _WRAPPERS.search(" ".join(log.lines[index : last + 1])) or any(
        _EXCEPTION.match(line.strip()) and not _WRAPPERS.search(line) and role in (Role.EXCEPTION, Role.CHAIN)
        for line, role in zip(log.lines[:index], log.roles[:index], strict=True)
    )
