"""A stand-in for `tunesmith_setup`: prints the lines of a script at a pace, sleeps, writes garbage, ends as told.

Run as `python setup_lines.py SCRIPT.json ARGUMENTS`; the script maps the first argument (or "") to
{"lines": [...], "pace": "lines"|"bytes", "pause_s": s, "stderr": text, "hang": bool, "ignore_end": bool, "exit": n}.
"""

import json
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    scripts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    script = scripts.get(sys.argv[2], scripts.get("", {}))
    with Path(sys.argv[1]).with_name("asked.txt").open("a", encoding="utf-8") as asked:
        asked.write(" ".join(sys.argv[2:]) + "\n")
    if script.get("ignore_end"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    out = sys.stdout.buffer
    lines = script.get("lines", [])
    data = b"".join(bytes.fromhex(line["hex"]) if isinstance(line, dict) else line.encode() + b"\n" for line in lines)
    size = 1 if script.get("pace") == "bytes" else max(len(data), 1)
    for start in range(0, len(data), size):
        out.write(data[start : start + size])
        out.flush()
        time.sleep(script.get("pause_s", 0))
    sys.stderr.write(script.get("stderr", ""))
    sys.stderr.flush()
    while script.get("hang"):
        time.sleep(0.05)
    return int(script.get("exit", 0))


sys.exit(main())
