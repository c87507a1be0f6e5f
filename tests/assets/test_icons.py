"""The icons: one consistent set of tintable line drawings, and the program's mark in the types that systems want."""

from __future__ import annotations

import struct
from xml.etree import ElementTree

import pytest

from tunesmith_assets import app_image_path, assets_folder, icon_names, icon_path

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = {f"{SVG}{name}" for name in ("path", "circle", "ellipse", "rect")}
NEEDED = """
    train runs chat models data environment settings queue activity gpu play stop pause resume check warning
    error info close chevron-down chevron-up chevron-right chevron-left search copy folder file plus trash
    refresh moon sun more chart log sample checkpoint files download drop duplicate reset help external clock
    bolt memory compare image table fullscreen sidebar
""".split()


def test_every_icon_the_window_needs_is_there() -> None:
    assert set(NEEDED) <= set(icon_names())
    assert "app" not in icon_names()


@pytest.mark.parametrize("name", icon_names())
def test_icon_is_a_tintable_line_drawing_of_one_weight(name: str) -> None:
    root = ElementTree.fromstring(icon_path(name).read_text(encoding="utf-8"))
    assert root.tag == f"{SVG}svg"
    assert root.attrib == {
        "width": "24",
        "height": "24",
        "viewBox": "0 0 24 24",
        "fill": "none",
        "stroke": "currentColor",
        "stroke-width": "1.75",
        "stroke-linecap": "round",
        "stroke-linejoin": "round",
    }
    assert len(root) > 0
    for shape in root:
        assert shape.tag in SHAPES
        assert not shape.attrib.keys() & {"style", "fill", "stroke", "stroke-width", "transform"}


def test_an_unknown_icon_is_refused() -> None:
    with pytest.raises(KeyError):
        icon_path("no-such-icon")
    with pytest.raises(KeyError):
        app_image_path("bmp")


def test_mark_is_a_two_colour_drawing() -> None:
    root = ElementTree.fromstring(app_image_path("svg").read_text(encoding="utf-8"))
    colours = {shape.get(key) for shape in root for key in ("fill", "stroke")} - {None, "none"}
    assert len(colours) == 2


def test_mark_as_png_is_256_px() -> None:
    data = app_image_path("png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (256, 256)


def test_mark_as_ico_holds_the_sizes_of_a_desktop() -> None:
    data = app_image_path("ico").read_bytes()
    _reserved, kind, num_images = struct.unpack_from("<HHH", data)
    assert kind == 1
    widths = {data[6 + 16 * index] or 256 for index in range(num_images)}
    assert widths >= {16, 32, 48, 256}


@pytest.mark.parametrize(
    ("work", "licence"),
    [
        ("PySide6", "LGPL-3.0"),
        ("pyqtgraph", "MIT"),
        ("torch", "BSD-3-Clause"),
        ("SmolLM2", "Apache-2.0"),
        ("Inter", "OFL-1.1"),
    ],
)
def test_notice_names_licences(work: str, licence: str) -> None:
    notice = (assets_folder() / "licences" / "NOTICE.txt").read_text(encoding="utf-8")
    assert any(work in line and licence in line for line in notice.splitlines())


@pytest.mark.parametrize("name", ["Inter-Regular", "Inter-SemiBold", "JetBrainsMono-Regular"])
def test_a_bundled_typeface_has_its_licence_beside_it(name: str) -> None:
    folder = assets_folder() / "fonts"
    assert (folder / f"{name}.ttf").read_bytes().startswith(b"\x00\x01\x00\x00")
    assert "SIL OPEN FONT LICENSE Version 1.1" in (folder / f"OFL-{name.partition('-')[0]}.txt").read_text("utf-8")
