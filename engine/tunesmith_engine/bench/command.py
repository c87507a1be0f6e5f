"""The operation `bench`: workloads as rows of figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.engine import BenchSpec
from tunesmith_engine.bench.workload import Workload


def bench(host: Host, spec: BenchSpec) -> dict[str, Any]:  # Any: JSON values
    """Time all workloads with one loaded model; return "rows", and "error" of the first row that has one."""
    # Nothing about a local model may wait for a network that is not there.
    os.environ["HF_HUB_OFFLINE"] = "1"
    from tunesmith_engine.bench.decoding import decode
    from tunesmith_engine.bench.longest import longest_row
    from tunesmith_engine.bench.session import Session

    if not (Path(spec.model) / "config.json").is_file():
        raise TunesmithError("model-files-missing-or-corrupt", "{model} is not a model folder.", model=spec.model)
    workloads = [Workload.parse(text) for text in spec.workloads.split()]
    session = Session(spec)
    rows = []
    for number, workload in enumerate(workloads):
        host.phase(workload.name, number, len(workloads), "workloads")
        if spec.decode:
            rows.append(decode(session, workload))
        else:
            rows.append(longest_row(session, workload) if spec.longest else session.run(workload))
        host.event("log", level="info", text=_sentences(rows[-1]))
    errors = [row["error"] for row in rows if "error" in row]
    return {"rows": rows} | ({"error": errors[0]} if errors else {})


def _sentences(row: dict[str, Any]) -> str:  # Any: JSON values
    """Return a row for a person."""
    head = f"{row['workload']}, {row['method']}, {row['batch']} x {row['sequence_length']} tokens: "
    if "error" in row:
        return f"{head}{row['error']['message']}"
    if "longest_tokens" in row:
        return f"{head}the longest row that trains has {row['longest_tokens']:,} tokens"
    if "first_token_s" in row:
        way = f"by the {row['decoder']} decoder, first token after {row['first_token_s'] * 1000:.0f} ms"
        share = f", {row['share_of_reading']:.0%} of reading the weights" if "share_of_reading" in row else ""
        return f"{head}{row['tokens_per_s']:,.1f} tokens/s {way}{share}"
    figures = [f"{row['tokens_per_s']:,.0f} tokens/s", f"{row['step_ms']:.1f} ms a step"]
    if "peak_gib" in row:
        figures += [f"peak {row['peak_gib']:.2f} GiB", f"reserved {row['reserved_gib']:.2f} GiB"]
    if "share_of_replay_none" in row:
        figures.append(f"{row['share_of_replay_none']:.0%} of what this device can do at best")
    return f"{head}{', '.join(figures)}\n{' '.join(row['report'])}"
