"""What the tests of the installers share: program folders with a small uv, and windows looked for on a screen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tunesmith_core
from tunesmith_setup.build import __main__ as build
from tunesmith_setup.build import sources
from tunesmith_setup.packages.uvtool import Uv

VERSION = tunesmith_core.__version__
DATE_S = 1_700_000_000
WINDOW_TIMEOUT_S = 300


def make_program(folder: Path, system: str, python_archive: Path | None = None) -> Path:
    """Make a complete program folder from the wheel of this very repository, with a text in place of uv.

    The real uv has 32 MB, whose compression would take most of the time of every test.
    """
    tools = folder / "tools"
    tools.mkdir(parents=True)
    (tools / sources.UV_PROGRAMS[system]).write_text("#!/bin/sh\necho uv 0.13.8\n")
    wheel = sources.build_wheel(folder / "wheel", Uv(Path("uv")), DATE_S)
    build.make_program(folder / system, wheel, tools, system, python_archive)
    return folder / system


@contextmanager
def screen() -> Iterator[str]:
    """Start a headless X server and yield the name of its display; with it end all windows on it."""
    read_end, write_end = os.pipe()
    command = ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "1280x800x24", "-nolisten", "tcp"]
    server = subprocess.Popen(command, pass_fds=[write_end], stderr=subprocess.DEVNULL)
    os.close(write_end)
    try:
        with os.fdopen(read_end) as numbers:
            yield f":{numbers.readline().strip()}"
    finally:
        server.terminate()
        server.wait()


WINDOW_TITLES = """
import ctypes, sys
x11 = ctypes.CDLL("libX11.so.6")
x11.XOpenDisplay.restype = ctypes.c_void_p
display = ctypes.c_void_p(x11.XOpenDisplay(None))
x11.XDefaultRootWindow.restype = ctypes.c_ulong

class Title(ctypes.Structure):  # XTextProperty
    _fields_ = [("value", ctypes.c_char_p), ("encoding", ctypes.c_ulong), ("bits", ctypes.c_int), ("n", ctypes.c_ulong)]

def titles(window, depth):
    root, parent, count = ctypes.c_ulong(), ctypes.c_ulong(), ctypes.c_uint()
    children, title = ctypes.POINTER(ctypes.c_ulong)(), Title()
    window = ctypes.c_ulong(window)
    if x11.XGetWMName(display, window, ctypes.byref(title)) and title.value:
        print(title.value.decode(errors="replace"))
    found = [ctypes.byref(value) for value in (root, parent, children, count)]
    if depth and x11.XQueryTree(display, window, *found):
        for child in children[: count.value]:
            titles(child, depth - 1)

titles(x11.XDefaultRootWindow(display), 2)
"""


def wait_for_window(display: str, title: str) -> None:
    """Wait until a window whose title holds a text is on the screen."""
    deadline = time.monotonic() + WINDOW_TIMEOUT_S
    command, shown = [sys.executable, "-I", "-c", WINDOW_TITLES], ""
    while title not in shown:
        assert time.monotonic() < deadline, f"no window {title!r} within {WINDOW_TIMEOUT_S} s, only: {shown!r}"
        time.sleep(0.2)
        answer = subprocess.run(command, env={"DISPLAY": display}, capture_output=True, text=True, check=False)
        shown = answer.stdout
