"""A stand-in for `tunesmith_setup`: writes the events of a script into its journal, sleeps, says more, ends as told.

Run as `python setup_lines.py SCRIPT.json ARGUMENTS --operation FOLDER`; the script maps the first argument (or "") to
{"events": [...], "stderr": text, "hang": bool, "ignore_end": bool, "exit": n}.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "engine"))

from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host


def main() -> int:
    scripts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    script = scripts.get(sys.argv[2], scripts.get("", {}))
    with Path(sys.argv[1]).with_name("asked.txt").open("a", encoding="utf-8") as asked:
        asked.write(" ".join(sys.argv[2:-2]) + "\n")
    with Host(Operation(Path(sys.argv[-1]))) as host:
        for event in script.get("events", []):
            host.event(event.pop("type"), **event)
        sys.stderr.write(script.get("stderr", ""))
        sys.stderr.flush()
        while script.get("hang") and (script.get("ignore_end") or not host.stop_requested()):
            time.sleep(0.05)
    return int(script.get("exit", 0))


sys.exit(main())
