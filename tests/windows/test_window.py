"""The launcher's window on Windows: the whole program with a screenshot, and pytest-qt on its parts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from tests.windows.conftest import PATIENCE_S, RunTests
from tests.windows.rig import REPOSITORY, Rig
from tunesmith_setup.packages.uvtool import Uv

LOCK = "launcher-win-py311.txt"
PAGES = REPOSITORY / "tests" / "gui"
ROOMS = sorted({path.parent.name for path in PAGES.glob("*/test_*.py")})
FILES = sorted(path.name for path in PAGES.glob("test_*.py"))
MIN_NUM_COLOURS = 50
SCREENSHOT = "window.png"
"""Stays in the rig's folder, to be looked at."""

SHOW = r"""
import sys
sys.path[:0] = sys.argv[2:]
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from tunesmith_gui import app

class Photographed(app.App):
    def __init__(self, application):
        super().__init__(application)
        QTimer.singleShot(6000, self.take)

    def take(self):
        screen = self.window.screen()
        print(QApplication.platformName(), self.window.pages.current_title(), self.window.isVisible(), flush=True)
        assert screen.grabWindow(0).save(sys.argv[1])
        self.window.close_without_asking()

app.App = Photographed
sys.exit(app.main([]))
"""


@pytest.fixture(scope="module")
def python(rig: Rig, uv: Uv) -> str:
    """The Python of a launcher environment of Windows."""
    return rig.environment("launcher", LOCK, uv)


def test_the_window_opens_and_looks_right(rig: Rig, python: str, windows_tmp: Path) -> None:
    (windows_tmp / "show.py").write_text(SHOW)
    roots = [rig.windows_path(REPOSITORY / name) for name in ("gui", "engine", "assets")]
    place = rig.windows_path(windows_tmp)
    variables = {"TUNESMITH_HOME": place, "TUNESMITH_WORK": place}
    script, picture = f"{place}\\show.py", f"{place}\\{SCREENSHOT}"
    code, output = rig.python(script, picture, *roots, python=python, timeout_s=PATIENCE_S, **variables)
    log = windows_tmp / "logs" / "window.log"
    assert code == 0, output[-5000:] + (log.read_text(errors="replace")[-5000:] if log.is_file() else "")
    assert "windows " in output, output  # the platform plugin of Qt
    shutil.copy(windows_tmp / SCREENSHOT, rig.folder / SCREENSHOT)
    image = QImage(str(windows_tmp / SCREENSHOT))
    colours = {image.pixel(x, y) for x in range(0, image.width(), 3) for y in range(0, image.height(), 3)}
    assert len(colours) > MIN_NUM_COLOURS, "the screen is blank"
    assert " ERROR " not in log.read_text(errors="replace")


def test_the_window_works(run_tests: RunTests, python: str) -> None:
    """What meets the operating system: files, processes, fonts, the desktop around the window."""
    rooms = [f"tests/gui/{room}" for room in ("services", "shell")]
    files = [f"tests/gui/test_{name}.py" for name in ("app", "background", "early", "hub_settings", "hub_token")]
    run_tests(*rooms, *files, "-m", "not long", python=python)


@pytest.mark.long
@pytest.mark.parametrize("room", ROOMS)
def test_every_page_works(run_tests: RunTests, python: str, room: str) -> None:
    run_tests(f"tests/gui/{room}", "-m", "not long", python=python)


@pytest.mark.long
def test_what_pages_share_works(run_tests: RunTests, python: str) -> None:
    run_tests(*(f"tests/gui/{name}" for name in FILES), "-m", "not long", python=python)
