"""Our timing beside the rivals', each in a process of its own, one after another on the same rows.

`python tests/bench/rivals.py MODEL_DIR --method qlora --workload NAME:BATCH:SEQ[:varied]...` prints a table of tokens
per second and peak memory, with ratios to Unsloth's or to the last rival that is installed. No network is needed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "engine"))

from tunesmith_core.environments import own_command  # noqa: E402
from tunesmith_core.operations.folder import Operation  # noqa: E402
from tunesmith_core.operations.kinds.engine import BENCH, BenchSpec  # noqa: E402
from tunesmith_core.operations.runner import conduct  # noqa: E402
from tunesmith_engine.bench.workload import Workload  # noqa: E402

OURS = "tunesmith"
NEEDED = {
    "trl": ("trl", "peft", "datasets"),
    "liger": ("trl", "peft", "datasets", "liger_kernel"),
    "unsloth": ("trl", "peft", "datasets", "unsloth", "unsloth_zoo"),
    OURS: ("peft",),
}
"""Ours last, so that it can be held to the memory that a rival took."""

Row = dict[str, Any]


def missing(stack: str) -> list[str]:
    """Packages that a stack needs and that are not installed here."""
    return [name for name in NEEDED[stack] if importlib.util.find_spec(name) is None]


def command(stack: str, arguments: argparse.Namespace, workloads: Sequence[str], scratch: str) -> list[str]:
    """The command that times workloads with a rival."""
    options = ["--method", arguments.method, "--rank", str(arguments.rank)]
    options += ["--optimizer", arguments.optimizer]
    for workload in workloads:
        options += ["--workload", workload]
    driver = Path(__file__).with_name("rival_driver.py")
    return [sys.executable, str(driver), stack, arguments.model, "--scratch", scratch, *options]


def processes(stack: str, workloads: Sequence[str]) -> list[list[str]]:
    """Divide workloads into processes.

    A rival decides about checkpointing once, when it loads the model. A limit on memory wants a process of its own,
    without the gaps that other workloads leave.
    """
    if stack == OURS:
        held = [workload for workload in workloads if Workload.parse(workload).vram_gib]
        free = [workload for workload in workloads if workload not in held]
        return ([free] if free else []) + [[workload] for workload in held]
    groups: dict[bool, list[str]] = defaultdict(list)
    for workload in workloads:
        groups[Workload.parse(workload).checkpointing].append(workload)
    return list(groups.values())


def time_stack(stack: str, arguments: argparse.Namespace, workloads: Sequence[str]) -> Iterator[Row]:
    """Run one process and yield its rows; a process that dies gives a row of its own."""
    rows, problem, output = (time_ours if stack == OURS else partial(time_rival, stack))(arguments, workloads)
    yield from rows
    if problem or any("error" in row for row in rows):
        sys.stderr.write(f"--- {stack}: {problem or 'errors'}; the end of its output:\n{output[-3000:]}\n")
    done = {row["workload"] for row in rows}
    for name in (Workload.parse(workload).name for workload in workloads):
        if name not in done:
            yield {"program": stack, "workload": name, "error": {"code": "process", "message": problem}}


def time_ours(arguments: argparse.Namespace, workloads: Sequence[str]) -> tuple[list[Row], str, str]:
    """Do the operation `bench` with this Python; return rows, what went wrong, and output."""

    def command(operation: Operation) -> list[str]:
        return own_command("tunesmith_engine", "operation", str(operation.path))

    spec = BenchSpec(arguments.model, " ".join(workloads), arguments.method, arguments.rank, arguments.optimizer)
    outcome = conduct(BENCH, spec, command=command, limit_s=arguments.limit_s)
    return (outcome.answer or {}).get("rows", []), str(outcome.error or ""), outcome.output


def time_rival(stack: str, arguments: argparse.Namespace, workloads: Sequence[str]) -> tuple[list[Row], str, str]:
    """Run a rival's driver; return rows, what went wrong, and output."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as log:
        given = command(stack, arguments, workloads, scratch)
        # Unsloth leaves what it compiled in the working folder.
        with subprocess.Popen(
            given, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=scratch
        ) as process:
            try:
                output, _ = process.communicate(timeout=arguments.limit_s)
                problem = "" if process.returncode == 0 else f"ended with {process.returncode}"
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                problem = f"took longer than {arguments.limit_s} s"
        log.seek(0)
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")], problem, log.read()


def held(workloads: Sequence[str], rows: Sequence[Row], reference: str | None) -> list[str]:
    """Return workloads that hold us to the memory that the reference reserved in its own."""
    reserved = {
        row["workload"]: row["reserved_gib"] for row in rows if row["program"] == reference and "reserved_gib" in row
    }
    found = []
    for workload in workloads:
        name, rest = workload.split(":", 1)
        if name in reserved:
            found.append(f"{name}/same-memory:{rest}:vram-gib={reserved[name]}")
    return found


def table(rows: Sequence[Row], reference: str | None) -> str:
    """The rows as text: medians over rounds, and ratios to a reference's row of the same workload."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["workload"], row["program"]].append(row)
    lines = [f"{'workload':<16}{'program':<12}{'tokens/s':>10}{'peak GiB':>10}{'step ms':>10}{'speed':>8}{'memory':>8}"]
    for (workload, program), given in found.items():
        good = [row for row in given if "error" not in row]
        if not good:
            lines.append(f"{workload:<16}{program:<12}{given[0]['error']['message'][:70]}")
            continue
        other = [row for row in found.get((workload.split("/")[0], reference or ""), []) if "error" not in row]
        speed, peak, step_ms = (median(good, key) for key in ("tokens_per_s", "peak_gib", "step_ms"))
        ratios = ""
        if other:
            ratios = f"{speed / median(other, 'tokens_per_s'):>8.2f}"
            ratios += f"{peak / (median(other, 'peak_gib') or float('nan')):>8.2f}"
        shares = "".join(f"  {good[0][key]:.2f} of {key[9:]}" for key in good[0] if key.startswith("share_of_"))
        lines.append(f"{workload:<16}{program:<12}{speed:>10,.0f}{peak:>10.2f}{step_ms:>10.1f}{ratios}{shares}")
        if "report" in good[0]:
            lines.append("    " + " ".join([*good[0]["report"], *good[0]["warnings"]]))
    return "\n".join(lines)


def median(rows: Sequence[Row], key: str) -> float:
    """The median of a figure over rounds; 0 where it is not measured."""
    return statistics.median(row.get(key, 0.0) for row in rows)


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--method", choices=("lora", "qlora"), required=True)
    parser.add_argument("--workload", action="append", default=[], help="for all; NAME/VARIANT compares with NAME")
    parser.add_argument("--ours", action="append", default=[], help="a workload for our program alone")
    parser.add_argument("--same-memory", action="store_true", help="time ours in the last rival's memory, too")
    parser.add_argument("--stacks", default=",".join(NEEDED))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--optimizer", default="adamw_8bit")
    parser.add_argument("--limit-s", type=float, default=900.0, help="longest time of a process")
    parser.add_argument("--out", type=Path, help="file to which rows are appended, a line of JSON each")
    arguments = parser.parse_args()
    arguments.model = str(Path(arguments.model).absolute())
    rows: list[Row] = []
    stacks = arguments.stacks.split(",")
    for stack in list(stacks):
        if absent := missing(stack):
            sys.stdout.write(f"{stack} is left out: {', '.join(absent)} not installed\n")
            stacks.remove(stack)
    rivals = [stack for stack in stacks if stack != OURS]
    reference = rivals[-1] if rivals else None
    for number in range(arguments.rounds):
        for stack in stacks:
            wanted = list(arguments.workload)
            if stack == OURS:
                wanted += arguments.ours
                wanted += held(arguments.workload, rows, reference) if arguments.same_memory else []
            for workloads in processes(stack, wanted):
                for row in time_stack(stack, arguments, workloads):
                    rows.append(row | {"round": number})
                    if arguments.out:
                        with arguments.out.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(rows[-1]) + "\n")
    sys.stdout.write(table(rows, reference) + "\n")


if __name__ == "__main__":
    main()
