"""Runs that have finished on a CPU named x86, and what they measured."""

from __future__ import annotations

from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec

GIB = 1024**3


def finish(spec: RunSpec, *, device: str = "cpu", status: str = "finished") -> Run:
    run = create_run(spec)
    journal = JournalWriter(run.journal_path)
    journal.write("hello", device=device, device_name="x86")
    for step, peak_bytes, step_s in ((1, GIB, 9.0), (2, 2 * GIB, 0.5), (3, GIB, 0.5)):
        journal.write("step", step=step, step_s=step_s)
        journal.write("gpu", device=device, process_bytes=peak_bytes, reserved_bytes=peak_bytes)
    journal.write("result", status=status, seconds=30.0)
    journal.close()
    return run


def trained(spec: RunSpec, *, device: str = "cpu") -> Run:
    """Make a finished run of steps with 8 rows of 100 tokens each, 200 tokens a second."""
    spec.schedule.micro_batch_size, spec.schedule.gradient_accumulation_steps = 2, 4
    run = create_run(spec)
    journal = JournalWriter(run.journal_path)
    journal.write("hello", device=device, device_name="x86")
    journal.write("setup", num_train_rows=90)
    for step in (1, 2, 3):
        journal.write("step", step=step, step_s=4.0, tokens=step * 800, tokens_per_s=200.0 if step > 1 else 9.0)
    journal.write("result", status="finished", seconds=20.0)
    journal.close()
    return run
