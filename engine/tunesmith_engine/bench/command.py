"""The subcommand `bench`: workloads of a command line as rows of figures."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.bench.workload import Workload


def add_arguments(command: Any) -> None:  # Any: an argument parser, whose type is private
    """Declare what `bench` takes."""
    command.add_argument("model", type=Path, help="model folder; a tokenizer is not needed")
    command.add_argument("--method", choices=("lora", "qlora"), default="lora")
    command.add_argument("--batch", type=int, default=1, help="rows of a step")
    command.add_argument("--seq", type=int, default=2048, help="tokens of a row, or their most with --varied")
    command.add_argument("--varied", action="store_true", help="rows as long as short chats are")
    command.add_argument("--rank", type=int, default=16)
    command.add_argument("--vram-gib", type=float, help="memory of the GPU that may be taken")
    command.add_argument("--policy", default="auto", help="what the memory policy is told")
    command.add_argument("--steps", type=int, default=10, help="timed steps, after 6 to warm up")
    command.add_argument("--optimizer", choices=("adamw", "adamw_8bit"), default="adamw_8bit")
    command.add_argument("--fp8", action="store_true", help="multiply with frozen weights in 8 bits")
    command.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    command.add_argument("--longest", action="store_true", help="search the longest row that trains, from --seq on")
    command.add_argument("--json", action="store_true", help="write each row to standard output as a line of JSON")
    command.add_argument(
        "--workload",
        type=Workload.parse,
        action="append",
        help="NAME:BATCH:SEQ[:varied][:packed][:vram-gib=X][:policy=P][:warmup=N][:steps=N], instead of batch, seq, "
        "varied, vram-gib, policy and steps; may be repeated",
    )


def bench(arguments: argparse.Namespace, write: Callable[[str], object]) -> dict[str, Any]:  # Any: JSON values
    """Time all workloads with one loaded model.

    Args:
        arguments: see `add_arguments`.
        write: takes each row as text as soon as it is there.

    Returns:
        "rows", and "error" of the first row that has one.
    """
    # Nothing about a local model may wait for a network that is not there.
    os.environ["HF_HUB_OFFLINE"] = "1"
    from tunesmith_engine.bench.longest import longest_row
    from tunesmith_engine.bench.session import Session, Settings

    if not (arguments.model / "config.json").is_file():
        raise TunesmithError("model-files-missing-or-corrupt", "{model} is not a model folder.", model=arguments.model)
    workloads = arguments.workload or [
        Workload(
            arguments.model.name,
            arguments.batch,
            arguments.seq,
            varied=arguments.varied,
            vram_gib=arguments.vram_gib,
            policy=arguments.policy,
            num_steps=arguments.steps,
        )
    ]
    settings = Settings(
        arguments.model, arguments.method, arguments.rank, arguments.optimizer, arguments.device, arguments.fp8
    )
    session = Session(settings, arguments.vram_gib)
    rows = []
    for workload in workloads:
        rows.append(longest_row(session, workload) if arguments.longest else session.run(workload))
        write(json.dumps(rows[-1]) + "\n" if arguments.json else _sentences(rows[-1]))
    errors = [row["error"] for row in rows if "error" in row]
    return {"rows": rows} | ({"error": errors[0]} if errors else {})


def _sentences(row: dict[str, Any]) -> str:  # Any: JSON values
    """Return a row for a person."""
    head = f"{row['workload']}, {row['method']}, {row['batch']} x {row['sequence_length']} tokens: "
    if "error" in row:
        return f"{head}{row['error']['message']}\n"
    if "longest_tokens" in row:
        return f"{head}the longest row that trains has {row['longest_tokens']:,} tokens\n"
    figures = [f"{row['tokens_per_s']:,.0f} tokens/s", f"{row['step_ms']:.1f} ms a step"]
    if "peak_gib" in row:
        figures += [f"peak {row['peak_gib']:.2f} GiB", f"reserved {row['reserved_gib']:.2f} GiB"]
    if "share_of_replay_none" in row:
        figures.append(f"{row['share_of_replay_none']:.0%} of what this device can do at best")
    return f"{head}{', '.join(figures)}\n{' '.join(row['report'])}\n"
