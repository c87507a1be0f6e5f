"""A Data page on its own data root, with an engine that a test scripts where one is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tunesmith_gui.context import Context
from tunesmith_gui.data.kept_check import kept_check
from tunesmith_gui.data.page import DataPage

PATIENCE_MS = 20_000
CSV = "Question text,Best answer\nWho?,Me.\nWo?,Über dir\nWhen?,Now\n"


@pytest.fixture
def page(qtbot: QtBot, context: Context) -> Iterator[DataPage]:
    """The page, shown, without a file."""
    result = DataPage(context)
    result.resize(1080, 760)
    result.show()
    result.on_shown()
    qtbot.waitExposed(result)
    settle()
    yield result
    close(result)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A small table whose columns leave no doubt."""
    path = tmp_path / "table.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


@pytest.fixture
def opened(qtbot: QtBot, page: DataPage) -> Callable[[Path], DataPage]:
    """Opens a file and waits until it is read."""

    def opened(path: Path) -> DataPage:
        page.open(str(path))
        qtbot.waitUntil(lambda: page.data is not None, timeout=PATIENCE_MS)
        qtbot.waitUntil(lambda: page.rows is None or page.rows.is_complete, timeout=PATIENCE_MS)
        return page

    return opened


def close(page: DataPage) -> None:
    """Ends what the page has begun."""
    kept_check().cancel()
    page.on_hidden()
    page.hide()
    if page.rows is not None:
        page.rows.forget_changes()
        page.grid.finder.cancel()  # type: ignore[union-attr]
        page.rows.close()
    settle()
    page.deleteLater()
    settle()
