"""A faithful stub of wsl.exe for Linux: options, exit codes, UTF-16 texts; a distribution is a plain folder.

`install_stub` makes a folder with the executable `wsl.exe` and its state. Inside a distribution nothing of the outer
environment is seen, drives are below /mnt, and ending wsl.exe leaves the Linux process running, as it really does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PYTHON_NAMES = ("python3.13", "python3.12", "python3.11", "python3")
HEADERS = {
    "en": "  NAME      STATE           VERSION",
    "zh": "  NAME      状态           版本",
    "tr": "  AD      DURUM           SÜRÜM",
}
STATES = {"en": "Running", "zh": "正在运行", "tr": "Çalışıyor"}
ERRORS = {
    "WSL_E_DISTRO_NOT_FOUND": "There is no distribution with the supplied name.\n"
    "Error code: Wsl/Service/WSL_E_DISTRO_NOT_FOUND\n",
    "WSL_E_DEFAULT_DISTRO_NOT_FOUND": "Windows Subsystem for Linux has no installed distributions.\n"
    "Error code: Wsl/WSL_E_DEFAULT_DISTRO_NOT_FOUND\n",
    "0x8007019e": "Linux için Windows Alt Sistemi etkinleştirilmedi.\nError: 0x8007019e\n",
    "0x80370102": "请启用虚拟机平台 Windows 功能并确保在 BIOS 中启用虚拟化。\n"
    "Error code: Wsl/Service/CreateInstance/CreateVm/HCS/0x80370102\n",
}
WSLPATH = """#!/bin/sh
# wslpath -a -u PATH: drives are below /mnt; a path of this machine stands for one of drive C.
path="$3"
case "$path" in
    [A-Za-z]:*)
        drive=$(printf %s "$path" | cut -c1 | tr 'A-Z' 'a-z')
        rest=$(printf %s "$path" | cut -c3- | tr '\\\\' /) ;;
    *) drive=c; rest="$path" ;;
esac
[ -d "ROOT/mnt/$drive" ] || { echo "wslpath: $path: Invalid argument" >&2; exit 1; }
printf '%s\\n' "ROOT/mnt/$drive$rest"
"""


def install_stub(folder: Path) -> Path:
    """Make wsl.exe without any distribution in a folder and return its state file."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "wsl.exe"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -X utf8 "{Path(__file__).resolve()}" "{folder}" "$@"\n')
    program.chmod(0o755)
    write_state(folder, {"distributions": [], "fails": None, "language": "en", "calls": []})
    return folder / "state.json"


def add_distribution(folder: Path, name: str, *, version: int = 2) -> Path:
    """Add a distribution with a user's home, drives and Python; return its root folder."""
    root = folder / "distributions" / name
    (root / "home" / "user").mkdir(parents=True)
    (root / "mnt").mkdir()
    (root / "mnt" / "c").symlink_to("/")
    (root / "bin").mkdir()
    (root / "bin" / "wslpath").write_text(WSLPATH.replace("ROOT", str(root)))
    for python in PYTHON_NAMES:
        # All of them: what this machine has in /usr/bin must not shine through.
        (root / "bin" / python).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in (root / "bin").iterdir():
        program.chmod(0o755)
    state = read_state(folder)
    state["distributions"].append({"name": name, "version": version, "root": str(root)})
    write_state(folder, state)
    return root


def read_state(folder: Path) -> dict[str, Any]:
    """Return the state of the stub in a folder."""
    state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return state


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write the state of the stub in a folder."""
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")


def say(text: str) -> None:
    """Write one of wsl.exe's own texts as it does, in UTF-16 with Windows' line ends."""
    sys.stdout.buffer.write(text.replace("\n", "\r\n").encode("utf-16-le"))
    sys.stdout.buffer.flush()


def fail(name: str) -> int:
    """Write an error and return the exit code of every failure of wsl.exe itself (-1)."""
    say(ERRORS[name])
    return 255


def listing(state: dict[str, Any]) -> str:
    """Return the table of `wsl -l -v`."""
    lines = [HEADERS[state["language"]]]
    for index, one in enumerate(state["distributions"]):
        mark = "*" if index == 0 else " "
        lines.append(f"{mark} {one['name']}      {STATES[state['language']]}           {one['version']}")
    return "\n".join(lines) + "\n"


def run_inside(root: Path, words: list[str]) -> int:
    """Run a program inside a distribution; it sees no variable of the outside and outlives this process."""
    home = root / "home" / "user"
    inside = {"HOME": str(home), "PATH": f"{root / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    # What measures coverage is no part of what is imitated.
    inside |= {name: value for name, value in os.environ.items() if name.startswith(("COVERAGE_", "TUNESMITH_REPO"))}
    try:
        return subprocess.Popen(words, cwd=home, env=inside, start_new_session=True).wait() & 0xFF
    except FileNotFoundError:
        sys.stderr.write(f"<3>WSL (2) ERROR: CreateProcessCommon:559: execvpe({words[0]}) failed: No such file\n")
        return 1


def main(folder: Path, words: list[str]) -> int:
    """Answer one call."""
    state = read_state(folder)
    if state.get("hangs"):
        time.sleep(60)
    if state["fails"]:
        return fail(state["fails"])
    if words[:1] in (["--status"], ["--version"]):
        say("Default Version: 2\n")
        return 0
    if words in (["-l", "-v"], ["--list", "--verbose"]):
        if not state["distributions"]:
            return fail("WSL_E_DEFAULT_DISTRO_NOT_FOUND")
        say(listing(state))
        return 0
    if words[:1] == ["--install"]:
        if "--no-distribution" not in words:
            add_distribution(folder, words[words.index("-d") + 1])
        say("The requested operation is successful.\n")
        return 0
    options: dict[str, str] = {}
    while words and words[0] != "--exec":
        options[words[0]] = words[1]
        words = words[2:]
    found = [one for one in state["distributions"] if one["name"] == options.get("-d")]
    if not found:
        return fail("WSL_E_DISTRO_NOT_FOUND")
    assert options.get("--cd", "~") == "~", "only the home folder is imitated"
    return run_inside(Path(found[0]["root"]), words[1:])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
