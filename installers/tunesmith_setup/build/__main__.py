"""`python -m tunesmith_setup.build [--python ARCHIVE] [--output DIR] [exe|deb|run ...]`: builds the installers."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import tunesmith_core
from tunesmith_core.errors import EXIT_DONE, wrap
from tunesmith_setup.build import debian, payload, selfextracting, sources, tools, windows
from tunesmith_setup.installation import program
from tunesmith_setup.packages import uvtool
from tunesmith_setup.progress import Progress, size_text

Builder = Callable[[Path, Path, Path, str, int], Path]

KINDS: dict[str, tuple[str, str, Builder]] = {
    "exe": ("win", "makensis", windows.build),
    "deb": ("linux", "dpkg-deb", debian.build),
    "run": ("linux", "makeself", selfextracting.build),
}
"""Name of each installer, its system, the program that builds it, and our part."""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the arguments. Raises SystemExit for unknown ones."""
    parser = argparse.ArgumentParser(prog="python -m tunesmith_setup.build", description="Build the installers.")
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], metavar="exe|deb|run", help="what to build (all)")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="folder of the installers (dist)")
    parser.add_argument("--python", type=Path, metavar="ARCHIVE", help="zip of a CPython, to be part of the exe")
    return parser.parse_args(argv)


def build(kinds: list[str], output: Path, python_archive: Path | None, progress: Progress) -> list[Path]:
    """Build installers.

    Args:
        kinds: names in KINDS.
        output: folder of the results; made when missing.
        python_archive: zip of a whole CPython for Windows, or None to use the one on the person's computer.
        progress: takes what the person sees.

    Returns:
        The installers' files.

    Raises:
        EnvironmentProblem: `system-library-missing` or `environment-build-failed`. UserError: a bad archive or no date.
    """
    tools.require([KINDS[kind][1] for kind in kinds])
    version, date_s = tunesmith_core.__version__, sources.source_date_s()
    output.mkdir(parents=True, exist_ok=True)
    built = []
    with tempfile.TemporaryDirectory(prefix="tunesmith-build-") as temporary:
        workspace = Path(temporary)
        with progress.phase("Wheel"):
            uv = uvtool.obtain(progress)
            wheel = sources.build_wheel(workspace / "wheel", uv, date_s)
        for kind in kinds:
            system, _, builder = KINDS[kind]
            folder = workspace / system
            with progress.phase(f"Installer: {kind}"):
                if not folder.exists():
                    uv_tools = sources.fetch_uv(uv, system, workspace / f"uv-{system}")
                    make_program(folder, wheel, uv_tools, system, python_archive if system == "win" else None)
                built.append(builder(folder, workspace / kind, output, version, date_s))
                progress.note(f"{built[-1]}: {size_text(built[-1].stat().st_size)}")
    if "exe" in kinds and python_archive is None:
        progress.line("Tunesmith-Setup.exe holds no Python: it looks for Python 3.11 to 3.13 on the person's computer.")
    return built


def make_program(folder: Path, wheel: Path, uv_tools: Path, system: str, python_archive: Path | None) -> None:
    """Make a complete program folder with its manifest. Raises UserError for an archive that does not serve."""
    payload.assemble(folder, wheel, uv_tools, system)
    if python_archive:
        sources.unpack_python(python_archive, folder / "python")
    program.write_manifest(folder, tunesmith_core.__version__)


def main(argv: list[str] | None = None) -> int:
    """Build what is asked for and return the exit code; no error leaves here as a traceback."""
    arguments = parse(argv)
    progress = Progress()
    try:
        build(arguments.kinds or list(KINDS), arguments.output, arguments.python, progress)
    except Exception as error:
        failure = wrap(error)
        progress.error(failure)
        return failure.exit_code
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
