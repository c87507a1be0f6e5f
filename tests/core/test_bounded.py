"""Questions that hang, fail or can't be asked cost bounded time and harm nobody."""

from __future__ import annotations

import sys
import threading
import time

from tunesmith_core import bounded


def test_a_program_answers_with_both_its_streams() -> None:
    script = "import sys; print('out', flush=True); sys.stderr.buffer.write(b'\\xff!'); sys.exit(3)"
    output = bounded.run([sys.executable, "-c", script], 60)
    assert output is not None
    assert output.code == 3
    assert output.text.split() == ["out", "�!"]


def test_a_program_that_hangs_or_is_not_there_gives_no_answer() -> None:
    assert bounded.run([sys.executable, "-c", "import time; time.sleep(60)"], 0.2) is None
    assert bounded.run(["/no/such/program"], 1) is None
    assert bounded.run(["nul\0byte"], 1) is None


def test_only_answers_that_come_in_time_count() -> None:
    release = threading.Event()

    def fail() -> int:
        raise RuntimeError("broken")

    threads: list[threading.Thread] = []

    def hang() -> int:
        threads.append(threading.current_thread())
        return int(release.wait(60))

    try:
        assert bounded.ask_all({"good": lambda: 1, "hangs": hang, "fails": fail}, 0.3) == {"good": 1}
        assert [thread.daemon for thread in threads] == [True], "it would keep the program from ending"
    finally:
        release.set()


def test_answers_are_waited_for() -> None:
    def slow() -> int:
        time.sleep(0.1)
        return 1

    assert bounded.ask_all({"a": slow, "b": slow}, 60) == {"a": 1, "b": 1}
