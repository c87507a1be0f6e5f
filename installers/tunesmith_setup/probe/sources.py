"""Where the facts about a computer come from: files, programs, variables, the Windows registry and system calls.

Every subject of the probe reads through one `Sources`, so that tests replay recorded answers of other computers.
"""

from __future__ import annotations

import sys


class Sources:
    """The computer that this process runs on.

    Attributes:
        system: "windows" or "linux".
    """

    def __init__(self) -> None:
        self.system = "windows" if sys.platform == "win32" else "linux"
