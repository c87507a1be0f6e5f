"""An export that is uploaded: where to is asked first, it happens after the proof, and what fails keeps the export."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from tests.gui.export.test_sheet import ANSWER, end, started, tell
from tests.gui.export.test_sheet import run as run
from tests.gui.export.test_sheet import service as service
from tests.gui.export.test_sheet import sheet as sheet
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.run_folders import texts
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.hub import PUSH, PushSpec
from tunesmith_gui import tr
from tunesmith_gui.export.service import ExportService
from tunesmith_gui.export.sheet import ExportSheet

PUSHED = {"id": "me/bot", "url": "https://hub/me/bot", "private": True}


def choose(sheet: ExportSheet, qtbot: Any, name: str = "me/bot") -> None:
    assert sheet.form is not None
    assert not sheet.form.hub_id.isVisible()
    sheet.form.hub.click()
    qtbot.waitUntil(lambda: sheet.room.text().startswith("Name the repository"))
    assert not sheet.start.isEnabled()
    QTest.keyClicks(sheet.form.hub_id, name)
    qtbot.waitUntil(sheet.start.isEnabled)
    assert "free on this drive" in sheet.room.text(), "the size is shown before the start"


def test_an_export_is_uploaded_after_it_is_done(sheet: ExportSheet, service: ExportService, qtbot: Any) -> None:
    choose(sheet, qtbot)
    sheet.copy_command.click()
    assert QGuiApplication.clipboard().text().endswith("--push me/bot")
    export = started(sheet, service)
    end(export, ANSWER)
    assert (export.live, export.task.kind) == (True, PUSH)
    assert export.task.spec == PushSpec(ANSWER["path"], "me/bot", public=False)
    tell(export, "progress", name="uploading", done_bytes=1, total_bytes=4)
    assert "Uploading to the model hub: 25%" in texts(sheet)
    end(export, PUSHED)
    shown = texts(sheet)
    assert "Verified: only rounding differs" in shown
    assert "On the hub, private: https://hub/me/bot" in shown
    assert not export.live


def test_a_refused_upload_says_why_and_can_be_tried_again(
    sheet: ExportSheet, service: ExportService, qtbot: Any
) -> None:
    choose(sheet, qtbot)
    assert sheet.form is not None
    sheet.form.public.click()
    export = started(sheet, service)
    assert export.push is not None
    assert export.push.words() == ["--push", "me/bot", "--public"]
    end(export, ANSWER)
    end(export, error=TunesmithError("hub-write-refused", "me/bot: the hub refused access (403)."))
    assert "the hub refused access (403)" in texts(sheet)
    assert "The hub refused the upload" in texts(sheet)
    sheet.again.click()
    qtbot.waitUntil(sheet.start.isEnabled)


def test_an_upload_can_be_canceled(sheet: ExportSheet, service: ExportService, qtbot: Any) -> None:
    choose(sheet, qtbot)
    export = started(sheet, service)
    end(export, ANSWER)
    sheet.cancel.click()
    assert export.canceled
    qtbot.waitUntil(sheet.start.isEnabled)


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_the_choice_can_be_read_and_has_names(sheet: ExportSheet, qtbot: Any, language: str) -> None:
    tr.install_language(language)
    try:
        sheet._ask()
        qtbot.waitUntil(sheet.start.isEnabled)
        assert sheet.form is not None
        sheet.form.hub.click()
        qtbot.waitUntil(lambda: not sheet.start.isEnabled())
        assert (unnamed(sheet), clipped(sheet)) == ([], [])
    finally:
        tr.install_language("en")
