"""Ctrl-C, and the window's Cancel, which ends an installation as Ctrl-C does. Neither may be lost, nor leave a child.

Python raises KeyboardInterrupt wherever the main thread happens to be. Two places are wrong: callbacks whose errors it
prints and drops (those of a fork, of a weak reference, `__del__`), after which the installation would go on, and the
moment at which a child runs already but nobody holds it yet.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tunesmith_core.operations.host import interrupt_main_thread

ASK_AGAIN_S = 0.05


@contextmanager
def heard() -> Iterator[None]:
    """Raise KeyboardInterrupt also when asked to end (SIGTERM), and once more when a callback dropped it.

    Main thread only.
    """
    print_dropped, on_terminate = sys.unraisablehook, signal.getsignal(signal.SIGTERM)
    timers: list[threading.Timer] = []

    def ask_again(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            # From another thread and a moment later: raised in here, it would be dropped as well.
            timers.append(threading.Timer(ASK_AGAIN_S, interrupt_main_thread))
            timers[-1].start()
        else:
            print_dropped(dropped)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.unraisablehook = ask_again
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        sys.unraisablehook = print_dropped
        signal.signal(signal.SIGTERM, on_terminate)


@contextmanager
def postponed() -> Iterator[None]:
    """Interrupt at the end of the block rather than inside it. Main thread only."""
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: asked.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            signal.raise_signal(asked[0])
