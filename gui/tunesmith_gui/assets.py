"""Where the bundled files lie: icons, control marks and translations are read from `tunesmith_assets` as real files."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core.paths import package_folder


def asset_folder(name: str) -> Path:
    """The folder `name` of the bundled assets (icons, controls, i18n, samples)."""
    return package_folder("tunesmith_assets") / name
