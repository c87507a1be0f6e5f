"""Prints a report: `python -m tunesmith_gui.report_pdf PAGE.html TARGET.pdf`. Needs no screen."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from PySide6.QtCore import QMarginsF, QSizeF, QUrl
from PySide6.QtGui import (
    QFont,
    QGuiApplication,
    QImage,
    QPageLayout,
    QPageSize,
    QPainter,
    QPdfWriter,
    QTextDocument,
)
from PySide6.QtSvg import QSvgRenderer

from tunesmith_core import files

POINTS = 10
DOTS_PER_INCH = 150
PIXELS_PER_INCH = 96
"""Of lengths in HTML."""
SHARPNESS = 3
"""Dots of a picture for each of its points."""

STYLE = """
h1{font-size:18pt;font-weight:600} h2{font-size:13pt;font-weight:600;margin-top:24px;margin-bottom:6px}
h3{font-size:10pt;font-weight:600;margin-top:12px;margin-bottom:2px} p.verdict{font-size:11pt;font-weight:600}
th{font-weight:600;text-align:left} th,td{padding-top:2px;padding-bottom:2px;padding-right:14px} .soft{color:#5c6166}
"""
CURVES = """<style>text{font-size:11px;fill:#5c6166} polyline,path{fill:none;stroke-width:1.6} path{stroke:#d9dde1}
polyline.training{stroke:#0b6bcb} polyline.heldout{stroke:#b3450b} circle.heldout{fill:#b3450b}</style>"""
LINES = {"training": "#0b6bcb", "heldout": "#b3450b"}
_PICTURE = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_SHEET = re.compile(r"<style>.*?</style>", re.DOTALL)


def write_pdf(page: str, target: Path) -> None:
    """Print a report's HTML into a file. Raises OSError when it can't be written."""
    staged = target.with_name(target.name + ".part")
    writer = QPdfWriter(str(staged))
    writer.setResolution(DOTS_PER_INCH)
    writer.setPageSize(QPageSize(QPageSize.PageSizeId.A4))
    writer.setPageMargins(QMarginsF(15, 15, 15, 15), QPageLayout.Unit.Millimeter)
    document = QTextDocument()
    document.setDefaultFont(QFont("sans-serif", POINTS))
    document.setDefaultStyleSheet(STYLE)
    pictures = _PICTURE.findall(page)
    width = writer.pageLayout().paintRect(QPageLayout.Unit.Inch).width() * PIXELS_PER_INCH
    for number, picture in enumerate(pictures):
        image = _drawn(picture)
        document.addResource(QTextDocument.ResourceType.ImageResource.value, QUrl(f"picture:{number}"), image)
        height = width * image.height() / image.width()
        page = page.replace(picture, f'<img src="picture:{number}" width="{width:.0f}" height="{height:.0f}">')
    for kind, color in LINES.items():
        page = page.replace(f'<i class="{kind}"></i>', f'&nbsp;&nbsp;<span style="color:{color}">■</span> ')
    document.setHtml(_SHEET.sub("", page))
    rect = writer.pageLayout().paintRectPixels(writer.resolution())
    document.documentLayout().setPaintDevice(writer)
    document.setPageSize(QSizeF(rect.size()))
    document.print_(writer)
    del writer
    with files.open_file(staged) as file:
        printed = file.read()
    files.atomic_write_bytes(target, printed)
    files.remove(staged)


def _drawn(picture: str) -> QImage:
    """Return a picture of the page with the colors of paper."""
    renderer = QSvgRenderer(picture.replace(">", f">{CURVES}", 1).encode())
    image = QImage(renderer.defaultSize() * SHARPNESS, QImage.Format.Format_ARGB32)
    image.fill(0xFFFFFFFF)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    return image


def main(arguments: list[str]) -> int:
    """Print the page of the first argument into the file of the second; return the exit code."""
    application = QGuiApplication.instance() or QGuiApplication([sys.argv[0]])
    application.setApplicationName("Tunesmith")
    source, target = map(Path, arguments)
    write_pdf(source.read_text(encoding="utf-8"), target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
