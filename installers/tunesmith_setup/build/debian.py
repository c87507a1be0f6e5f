"""The Debian package: program files in /usr/lib/tunesmith for everyone on the computer, environments per person."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from pathlib import Path

from tunesmith_core import files
from tunesmith_setup.build import payload, tools
from tunesmith_setup.build.sources import REPOSITORY
from tunesmith_setup.packages import system_libraries

PROGRAM = Path("usr/lib/tunesmith")
SHARE = Path("usr/share")
ARCHITECTURE = "amd64"


def build(folder: Path, staging: Path, output: Path, version: str, source_date_s: int) -> Path:
    """Build the package.

    Args:
        folder: complete program folder.
        staging: new folder for the package's tree.
        output: folder of the result.
        version: version of the program.
        source_date_s: date of everything in the package, seconds since 1970.

    Returns:
        The package's file.

    Raises:
        EnvironmentProblem: `environment-build-failed`.
    """
    shutil.copytree(folder, staging / PROGRAM)
    (staging / "usr/bin").mkdir()
    (staging / "usr/bin/tunesmith").symlink_to("../lib/tunesmith/tunesmith")
    icons = SHARE / "icons/hicolor"
    copies = {
        folder / "tunesmith.desktop": SHARE / "applications/tunesmith.desktop",
        folder / "tunesmith.svg": icons / "scalable/apps/tunesmith.svg",
        folder / "tunesmith.png": icons / "256x256/apps/tunesmith.png",
        payload.LINUX / "tunesmith.metainfo.xml": SHARE / "metainfo/org.tunesmith.Tunesmith.metainfo.xml",
        payload.LINUX / "copyright": SHARE / "doc/tunesmith/copyright",
        payload.LINUX / "postrm": Path("DEBIAN/postrm"),
    }
    for source, target in copies.items():
        (staging / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, staging / target)
    changelog = gzip.compress((REPOSITORY / "CHANGELOG.md").read_bytes(), mtime=0)
    (staging / SHARE / "doc/tunesmith/changelog.gz").write_bytes(changelog)
    _write_control(staging, version)
    payload.normalise(staging, source_date_s)
    result = output / f"tunesmith_{version}_{ARCHITECTURE}.deb"
    # One thread: several would split the compressed stream by the number of cores.
    options = ["--root-owner-group", "-Zxz", "--threads-max=1"]
    tools.run(["dpkg-deb", *options, "--build", str(staging), str(result.absolute())], staging, source_date_s)
    return result


def dependencies() -> str:
    """Return the packages that the window needs, as the package's Depends field names them."""
    window = sorted(set(system_libraries.WINDOW_LIBRARIES.values()))
    return ", ".join(["python3 (>= 3.11)", "python3 (<< 3.14)", *window])


def _write_control(staging: Path, version: str) -> None:
    control = (payload.LINUX / "control.in").read_text(encoding="utf-8")
    values = {
        "@VERSION@": version,
        "@ARCHITECTURE@": ARCHITECTURE,
        "@SIZE_KIB@": str(files.folder_bytes(staging) // 1024),
        "@DEPENDS@": dependencies(),
        "@FONTS@": system_libraries.FONT_PACKAGE,
    }
    for placeholder, value in values.items():
        control = control.replace(placeholder, value)
    (staging / "DEBIAN/control").write_text(control, encoding="utf-8")
    lines = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(staging).as_posix()}\n"
        for path in sorted((staging / "usr").rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    (staging / "DEBIAN/md5sums").write_text("".join(lines), encoding="utf-8")
