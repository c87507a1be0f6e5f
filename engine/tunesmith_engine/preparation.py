"""The data of a run, prepared in a limited child process beside this one.

What others made (data files, tokenizer, chat template) is handled only there, while PyTorch is loaded here. The
rows come back through files in the folder of the operation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tunesmith_core import environments
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.operations.folder import Operation, OperationState
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.engine import PREPARE, PROMPT, TOKENIZER_LOADED, PrepareSpec
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.protocol import Event
from tunesmith_core.spec import RunSpec

if TYPE_CHECKING:
    from tunesmith_engine.data import PreparedData

WAIT_S = 0.05
FIELDS = ("done", "total", "unit", "rows_per_s", "remaining_s")

logger = logging.getLogger(__name__)

ShouldStop = Callable[[], bool]

OnRows = Callable[[dict[str, Any]], object]  # Any: JSON values
"""Told how many rows are tokens as the fields of a phase event: done, total (about; 0 where that can't be told), unit,
rows_per_s, remaining_s."""


def _never() -> bool:
    return False


class _Child:
    """An operation of the engine beside this process, from its start to its answer."""

    def __init__(
        self,
        kind: Kind,
        spec: PrepareSpec,
        take: Callable[[Path, Any], Any],  # Any: JSON values
        on_rows: OnRows = lambda _fields: None,
    ) -> None:
        self._on_rows = on_rows
        self._kind, self._spec, self._take = kind, spec, take
        self._outcome: Outcome | None = None
        self._error: TunesmithError | None = None
        self._logs: list[Event] = []
        self._cancel, self._has_loaded = threading.Event(), threading.Event()
        # The child dies with the thread that conducts it, which lasts as long.
        self._thread = threading.Thread(target=self._conduct, name=kind.name, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """End it."""
        self._cancel.set()
        self._thread.join()

    def wait_for_tokenizer(self, should_stop: ShouldStop) -> bool:
        """Return True once the tokenizer was loaded within its limits, False after a stop. Raises why it was not."""
        if not self._wait(self._has_loaded, should_stop):
            return False
        if self._error or (self._outcome and self._outcome.error):
            self._get()
        return True

    def answer(self, should_stop: ShouldStop) -> Any:  # Any: what was made of the answer
        """Return what was made of the answer, None after a stop."""
        while self._thread.is_alive():
            if should_stop():
                self.cancel()
                return None
            self._thread.join(WAIT_S)
        return self._get()

    def _get(self) -> Any:  # Any: what was made of the answer
        self._thread.join()
        for event in self._logs:
            level = logging.getLevelNamesMapping().get(str(event.data["level"]).upper(), logging.WARNING)
            logger.log(level, "%s", event.data["text"])
        self._logs.clear()
        if self._error:
            raise self._error
        assert self._outcome is not None
        return None if self._outcome.state is OperationState.STOPPED else self._outcome.get()

    def _wait(self, event: threading.Event, should_stop: ShouldStop) -> bool:
        while not event.wait(WAIT_S):
            if should_stop():
                self.cancel()
                return False
        return True

    def _conduct(self) -> None:
        try:
            self._outcome = conduct(
                self._kind,
                self._spec,
                on_event=self._listen,
                cancel=self._cancel,
                command=_own_engine,
                take=self._take,
            )
        except Exception as error:
            self._error = wrap(error)
        finally:
            self._has_loaded.set()

    def _listen(self, event: Event) -> None:
        if event.type == "log":
            self._logs.append(event)
        elif event.type == "phase" and event.data.get("name") == TOKENIZER_LOADED:
            self._has_loaded.set()
            if event.data.get("done"):
                self._on_rows({name: event.data.get(name) for name in FIELDS})


def _own_engine(operation: Operation) -> list[str]:
    """Return the command of an engine in the environment of this process."""
    return environments.own_command("tunesmith_engine", "operation", str(operation.path))


class Preparation:
    """The preparation of a run's data; a context manager, whose end ends it.

    Args:
        spec: the run. With a model folder on this computer the work begins at once.
        on_rows: told how far it is, by another thread.

    Attributes:
        fingerprint: of the checkpoint behind which the run continues; its rows are split as there.
    """

    def __init__(self, spec: RunSpec, on_rows: OnRows = lambda _fields: None) -> None:
        self._spec, self._on_rows = spec, on_rows
        self._child: _Child | None = None
        self.fingerprint: Mapping[str, Any] = {}  # Any: JSON values
        folder = Path(spec.model.path).expanduser()
        if folder.is_dir():
            self.begin(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child:
            self._child.cancel()

    def begin(self, folder: Path) -> None:
        """Begin with a model folder, unless that was done."""
        self._child = self._child or _Child(
            PREPARE, PrepareSpec(self._spec, str(folder)), _taken, self._on_rows
        )

    def wait_for_tokenizer(self, should_stop: ShouldStop = _never) -> bool:
        """Return True once the tokenizer was loaded within its limits, False after a stop.

        Raises:
            TunesmithError: why it was not loaded, or `foreign-limit`.
        """
        assert self._child, "it was begun"
        return self._child.wait_for_tokenizer(should_stop)

    def data(self, should_stop: ShouldStop = _never) -> PreparedData | None:
        """Return the rows, None after a stop.

        Raises:
            TunesmithError: what is wrong with the data, or `foreign-limit`.
        """
        assert self._child, "it was begun"
        data: PreparedData | None = self._child.answer(should_stop)
        return data.as_in(self.fingerprint) if data else None


def _taken(folder: Path, answer: dict[str, Any]) -> PreparedData:  # Any: JSON values
    from tunesmith_engine.data import PreparedData
    from tunesmith_engine.data.rows_file import read_kept, read_questions, read_rows

    rows = read_rows(folder)
    asked = read_questions(folder, range(len(rows))) if answer.get("asks_all") else {}
    return PreparedData.from_rows(rows, answer, asked, read_kept(folder) if asked else ())


def prompt_tokens(spec: RunSpec, folder: Path, prompt: str, should_stop: ShouldStop) -> list[int] | None:
    """Return the tokens of a prompt, None after a stop; the chat template runs in a limited child process.

    Raises:
        TunesmithError: `sample-failed` when the template refuses it, or `foreign-limit`.
    """
    child = _Child(PROMPT, PrepareSpec(spec, str(folder), prompt), lambda _folder, answer: answer)
    try:
        tokens: list[int] | None = child.answer(should_stop)
    finally:
        child.cancel()
    return tokens
