"""`python -m tunesmith_gui [FILES]`: opens the window, or brings the one that is open to the front with these files."""

from __future__ import annotations

import sys

from tunesmith_gui import early


def main() -> int:
    """Checks the ground, then hands over to `app.main`; returns the exit code."""
    try:
        early.open_crash_file()
        early.check_versions()
        early.check_screen()
        early.import_qt()
        from tunesmith_gui import app

        return app.main(sys.argv[1:])
    except Exception as error:
        return early.show_problem(error)


if __name__ == "__main__":
    sys.exit(main())
