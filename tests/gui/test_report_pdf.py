"""The report as a PDF: pages with text and the curves, in a process without a screen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tunesmith_core import environments
from tunesmith_core.report.curves import curves


def test_a_page_is_printed_without_a_screen(tmp_path: Path) -> None:
    page, target = tmp_path / "report.html", tmp_path / "report.pdf"
    picture = curves({step: 3.0 / step for step in range(1, 30)}, {0: 3.0, 30: 1.0})
    sizes = []
    for drawn in ("", picture):
        head = "<head><title>t</title><style>p{color:red}</style></head>"
        body = f"<body><h1>运行</h1>{drawn}<p>Text</p></body>"
        page.write_text(f"<!doctype html><html>{head}{body}</html>", encoding="utf-8")
        command = environments.module_command(sys.executable, "tunesmith_gui.report_pdf", str(page), str(target))
        environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
        assert subprocess.call(command, env=environment | {"QT_QPA_PLATFORM": "offscreen"}) == 0
        printed = target.read_bytes()
        assert printed.startswith(b"%PDF")
        assert printed.rstrip().endswith(b"%%EOF")
        sizes.append(len(printed))
    assert sizes[1] > sizes[0], "the picture is in it"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.pdf"]
