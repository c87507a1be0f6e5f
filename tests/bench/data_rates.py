"""How fast a JSONL file of a million rows is read and checked, and in how much memory, beside `datasets.load_dataset`.

    python tests/bench/data_rates.py [ROWS]

Each reader has a process of its own; the file has pairs of question and answer of about 200 bytes. The last line is a
file of 50 GiB, mostly a hole behind its first rows, which is opened and previewed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENGINE = Path(__file__).parents[2] / "engine"
LARGE_BYTES = 50 * 1024**3

OURS = """
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import Source
source = Source(SourceSpec(path=path), skip_bad_rows=False)
begin()
num = sum(1 for _ in source.conversations())
"""
THEIRS = """
import datasets
datasets.disable_progress_bars()
begin()
rows = datasets.load_dataset("json", data_files=path, split="train", cache_dir=path + ".cache")
num = len(rows)
"""
HEAD = """
from itertools import islice
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_core.datafmt import check_head, sniff
from tunesmith_engine.data.read import Source
begin()
sniff(__import__("pathlib").Path(path))
check_head(SourceSpec(path=path))
num = len(list(islice(Source(SourceSpec(path=path), skip_bad_rows=False).conversations(), 5000)))
"""
AROUND = """
import json, resource, sys, time
path = sys.argv[1]
def begin():
    global wall, cpu
    wall, cpu = time.perf_counter(), time.process_time()
{body}
print(json.dumps([num, time.perf_counter() - wall, time.process_time() - cpu,
                  resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10]))
"""


def timed(body: str, path: Path) -> str:
    """Run a reader in a process of its own on one core; return what it took."""
    command = [sys.executable, "-c", AROUND.format(body=body), str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ENGINE), "HF_HUB_OFFLINE": "1"}
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(affinity)})
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    os.sched_setaffinity(0, affinity)
    if done.returncode:
        return done.stderr[-400:]
    num, wall_s, cpu_s, mib = json.loads(done.stdout.splitlines()[-1])
    rates = f"{num / cpu_s:>9,.0f} rows/s of the core, {num / wall_s:>9,.0f} by the clock"
    return f"{num:>9,} rows {cpu_s:6.2f} s of the core, {wall_s:6.2f} by the clock: {rates}; {mib:,} MiB at most"


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def write_rows(path: Path, num_rows: int) -> None:
    """Write pairs of a question and an answer."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(num_rows):
            asked = f"What comes after {number}, and why is that so in the sequence of whole numbers?"
            said = f"After {number} comes {number + 1}, for each whole number is followed by the one larger by one."
            file.write(json.dumps({"question": asked, "answer": said}) + "\n")


def main() -> None:
    """Time the readers and print a table."""
    num_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        begin = time.perf_counter()
        for part in (num_rows // 10, num_rows):
            write_rows(path, part)
            say(f"{part:,} rows, {path.stat().st_size / 1024**2:,.0f} MiB, one core")
            say(f"  Tunesmith             {timed(OURS, path)}")
            say(f"  datasets.load_dataset {timed(THEIRS, path)}")
        with path.open("r+b") as file:
            file.truncate(LARGE_BYTES)
        say(f"50 GiB, head: {timed(HEAD, path)}; all in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
