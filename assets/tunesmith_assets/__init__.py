"""Files that ship with the program: icons and licences here, example data in `samples`. Standard library only.

Everything is handed out as a real path, because Qt, the engine and the person's file manager want to open it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def assets_folder() -> Path:
    """Return the folder of this package, which holds all files."""
    return Path(str(resources.files("tunesmith_assets")))


def icon_path(name: str) -> Path:
    """Return the SVG file of an icon such as "play"; "app" is the program's mark.

    Line icons are drawn in a 24 x 24 box with `currentColor`, to be tinted by whoever paints them.

    Raises:
        KeyError: no icon has this name.
    """
    path = assets_folder() / "icons" / f"{name}.svg"
    if not path.is_file():
        raise KeyError(name)
    return path


def icon_names() -> list[str]:
    """Return the names of all line icons in alphabetical order; the program's mark "app" is not among them."""
    names = {path.stem for path in (assets_folder() / "icons").glob("*.svg")}
    return sorted(names - {"app"})


def app_image_path(suffix: str) -> Path:
    """Return the program's mark as a file of type "svg", "png" (256 px) or "ico".

    Raises:
        KeyError: the mark does not exist in this type.
    """
    path = assets_folder() / "icons" / f"app.{suffix}"
    if not path.is_file():
        raise KeyError(suffix)
    return path
