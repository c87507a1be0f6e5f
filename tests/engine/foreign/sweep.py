"""Runs blocks of mutants through fresh child processes, which may crash or hang without ending the sweep."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path

from tests.engine.foreign.model_mutations import build_originals
from tests.tiny_model import write_chats

SEED = 12
HANG_S = 600.0
"""Without an answer. A process that waits for nothing is told by this, one that works by the judge, which counts
seconds of the processor: a busy computer takes many times as long."""

BLOCK = 250
ROOT = Path(__file__).resolve().parents[3]


def prepare(place: Path) -> None:
    """Write what all mutants are made of: models, rows, a spec of one step."""
    (place / "home").mkdir(parents=True)
    build_originals(place / "originals")
    write_chats(place / "rows.jsonl", 8)
    spec = {
        "version": 2,
        "name": "",
        "model": {"path": str(place / "originals" / "llama"), "revision": "", "dtype": "auto"},
        "data": {
            "sources": [{"path": str(place / "rows.jsonl"), "format": "auto", "columns": {}, "encoding": "utf-8"}],
            "system_prompt": "",
            "train_on": "assistant",
            "context_length": 64,
            "overlong": "truncate",
            "skip_bad_rows": False,
        },
        "objective": {"kind": "sft"},
        "adapter": {"rank": 2, "alpha": 4.0, "dropout": 0.0, "target_modules": "all-linear", "bias": "none"},
        "quantization": {"kind": "none"},
        "optimizer": {"name": "adamw", "learning_rate": 1e-3, "weight_decay": 0.0, "beta1": 0.9, "epsilon": 1e-8},
        "schedule": {"epochs": 1.0, "max_steps": 1, "micro_batch_size": 2, "warmup_steps": 0, "seed": 1},
        "evaluation": {"path": "", "percent": 0.0, "every_steps": 0, "sample_prompts": ["Hi"], "sample_max_tokens": 4},
        "saving": {"every_minutes": 10.0, "every_steps": 0, "keep": 2},
        "hardware": {"devices": ["cpu"], "system": "native", "kernels": False, "cpu_threads": 1},
    }
    (place / "spec.json").write_text(json.dumps(spec))


def sweep(place: Path, kind: str, numbers: list[int], seed: int = SEED) -> dict[str, list[str]]:
    """Return the faults of mutants by what was done, for those that have any."""
    found: dict[str, list[str]] = {}
    while numbers:
        block, numbers = numbers[:BLOCK], numbers[BLOCK:]
        while block:
            block = _judged(place, kind, seed, block, found)
    return found


def _judged(place: Path, kind: str, seed: int, block: list[int], found: dict[str, list[str]]) -> list[int]:
    """Judge a block in a child process and return what is left of it."""
    command = [sys.executable, "-m", "tests.engine.foreign.judge", str(place), kind, str(seed), *map(str, block)]
    log = place / "judge.log"
    with log.open("wb") as errors:
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True
        )
    assert child.stdout is not None
    lines: queue.Queue[str] = queue.Queue()

    def read(stream: object = child.stdout) -> None:
        for line in stream:  # type: ignore[attr-defined]
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=read)
    reader.start()
    current = -1
    try:
        while line := lines.get(timeout=HANG_S):
            answer = json.loads(line)
            if "begins" in answer:
                current = answer["begins"]
                continue
            block.remove(answer["number"])
            current = -1
            if answer["faults"]:
                found[f"{answer['number']} {answer['what']}"] = answer["faults"]
        code = child.wait()
        how = f"ends its process with {code}: {log.read_text(errors='replace')[-400:]}"
    except queue.Empty:
        how = "hangs"
    finally:
        child.kill()
        child.wait()
        reader.join()
    if current >= 0:
        found[f"{current}"] = [how]
        block.remove(current)
    elif block:
        raise AssertionError(f"the judge did not begin: {how}")
    return block


def main() -> None:
    """Count the faults of a sweep: `python -m tests.engine.foreign.sweep PLACE KIND COUNT [FIRST]`."""
    place, kind, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    if not place.exists():
        prepare(place)
    found = sweep(place, kind, list(range(first, first + count)))
    for what, faults in found.items():
        for fault in faults:
            sys.stdout.write(f"{what}\n    {fault[:500]}\n")
    sys.stdout.write(f"{len(found)} of {count} {kind} mutants have faults\n")


if __name__ == "__main__":
    main()
