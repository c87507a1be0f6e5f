"""Installs Tunesmith and opens it: `python3 installers/bootstrap.py` (`--help` shows the rest).

This file only checks the Python version and finds the program's own folders; it must parse under any Python 3, so that
an old one gets a clear answer instead of a syntax error. The work is done in `tunesmith_setup`.
"""

import os
import sys

OLDEST = (3, 11)


def main():
    """Run tunesmith_setup with the arguments of this command and return its exit code."""
    if sys.version_info < OLDEST:
        version = "%d.%d" % sys.version_info[:2]
        print("Tunesmith needs Python 3.11, 3.12 or 3.13; this is Python %s (%s)." % (version, sys.executable))
        print("Install one of them, then run for example: python3.11 installers/bootstrap.py")
        return 3
    installers = os.path.dirname(os.path.abspath(__file__))
    top = os.path.dirname(installers)
    for root in (installers, os.path.join(top, "engine"), os.path.join(top, "assets")):
        sys.path.insert(0, root)
    sys.dont_write_bytecode = True

    from tunesmith_setup.__main__ import main as setup

    return setup(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
