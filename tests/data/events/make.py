"""Writes the recorded event streams beside this file, always the same bytes: run it after the protocol has grown."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tunesmith_core.protocol import Event, encode

FOLDER = Path(__file__).resolve().parent
START = 1_795_219_200.0


class Stream:
    """Collects journal lines with a clock of its own."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.seq = 0
        self.t = START

    def add(self, kind: str, /, **data: Any) -> Stream:
        """Append one event; 1 s passes."""
        self.seq += 1
        self.t += 1.0
        self.lines.append(encode(Event(self.seq, self.t, kind, data)))
        return self

    def begin(self, total: int, resumed: int = 0, version: str = "1.0") -> Stream:
        """From hello to the start of training."""
        self.add(
            "hello",
            protocol=version,
            version="0.1.0",
            device="cuda",
            device_name="Test GPU",
            pid=7,
            resumed_from_step=resumed,
        )
        for name in ("starting", "model", "data"):
            self.add("phase", name=name, done=0, total=1, unit="")
        self.add("setup", total_steps=total, steps_per_epoch=10, num_train_rows=80)
        return self.add("phase", name="training", done=0, total=total, unit="steps")

    def steps(self, first: int, last: int, nan_from: int = 10**9) -> Stream:
        """Steps with a falling loss; NaN from a step on."""
        for step in range(first, last + 1):
            loss = float("nan") if step >= nan_from else 1.0 + math.exp(-step / 10)
            self.add(
                "step",
                step=step,
                epoch=step / 10,
                loss=loss,
                lr=2e-4,
                grad_norm=0.5,
                tokens=step * 512,
                tokens_per_s=512.0,
                step_s=1.0,
            )
            if step % 10 == 0:
                self.add("eval", step=step, loss=1.05 + math.exp(-step / 12), num_tokens=640, seconds=0.5)
                self.add("checkpoint", step=step, path=f"checkpoints/step-{step:06d}", bytes=1_048_576, seconds=0.1)
        return self

    def save(self, name: str, *, tail: bytes = b"") -> None:
        """Write the file."""
        (FOLDER / f"{name}.jsonl").write_bytes(b"".join(self.lines) + tail)


def error(code: str, title: str, message: str) -> dict[str, str]:
    """Fields of an error event."""
    return {
        "code": code,
        "kind": "RunFailure",
        "title": title,
        "message": message,
        "hint": "Try less.",
        "context": "tail",
    }


def main() -> None:
    """Write all streams."""
    done = {
        "step": 30,
        "seconds": 60,
        "artifacts": {"adapter": "adapter"},
        "eval_loss_before": 2.1,
        "eval_loss_after": 1.1,
    }
    gpu = {
        "device": "cuda:0",
        "reserved_bytes": 2**31,
        "total_bytes": 2**32,
        "utilization_percent": 90,
        "temperature_c": 60,
        "power_w": 80,
    }
    happy = (
        Stream().begin(30).add("gpu", **gpu).steps(1, 30).add("sample", step=30, prompt="Hi", text="Hello <b>there</b>")
    )
    happy.add("phase", name="saving", done=0, total=1, unit="").add(
        "result", status="finished", code=None, **done
    ).save("happy")
    oom = error("cuda-oom", "The GPU memory is full", "2.1 GiB were asked for, 0.4 GiB were free.")
    Stream().begin(30).steps(1, 7).add("error", **oom).add("result", status="failed", code="cuda-oom", step=7).save(
        "oom"
    )
    nan = (
        Stream()
        .begin(30)
        .steps(1, 12, nan_from=10)
        .add("warning", code="nan-loss", message="The loss is not a number", hint="Lower the learning rate.")
    )
    nan.save("nan")
    stop = (
        Stream()
        .begin(30)
        .steps(1, 14)
        .add("stopping", mode="save")
        .add("phase", name="saving", done=0, total=1, unit="")
    )
    stop.add("checkpoint", step=14, path="checkpoints/step-000014", bytes=1_048_576, seconds=0.1)
    stop.add("result", status="stopped", code=None, step=14).save("stop_save")
    Stream().begin(30).steps(1, 15).save("crash", tail=b'{"v":1,"seq":99,"t":17952192')
    resumed = Stream().begin(30).steps(1, 15)
    resumed.begin(30, resumed=10).steps(11, 18).save("resumed")
    old = Stream().begin(30, version="1.0").steps(1, 5).add("holo", shape="not known here")
    old.save("unknown_type")
    garbage = Stream().begin(30).steps(1, 5)
    garbage.lines.insert(8, b"\xff\xfe garbage \x00\n")
    garbage.lines.insert(9, b'{"v":1,"seq":5}\n')
    garbage.save("garbage")
    Stream().begin(5).add("log", level="info", text="模型已加载 🎉 école").add(
        "sample", step=1, prompt="你好", text="您好！"
    ).save("utf8")


if __name__ == "__main__":
    main()
