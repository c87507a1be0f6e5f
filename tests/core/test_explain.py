"""Explaining failures: whatever tool, encoding, terminal or language a log comes from, its cause is found."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tunesmith_core import hardware
from tunesmith_core.capped_log import CappedLog
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import BugError, EnvironmentProblem, RunFailure, TunesmithError, UserError
from tunesmith_core.explain import UNKNOWN, decode, explain, failure, read_bounded, reading
from tunesmith_core.explain.catalogue import actions_against
from tunesmith_core.explain.failure import explained, this_machine
from tunesmith_core.explain.reading import Role, read_file, read_log
from tunesmith_core.machine import Driver, Gpu, Machine
from tunesmith_core.nvml import Reading

OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
TRACEBACK = "Traceback (most recent call last):\n"
LOCALISED = "PermissionError: [WinError 5] 拒绝访问。: 'C:\\\\训练\\\\run'"


# Encodings


@pytest.mark.parametrize(
    "data",
    [
        LOCALISED.encode(),
        b"\xef\xbb\xbf" + LOCALISED.encode(),
        LOCALISED.encode("utf-16"),
        LOCALISED.encode("utf-16-le"),
        b"\xfe\xff" + LOCALISED.encode("utf-16-be"),
        ("a" * 300 + "\n" + LOCALISED).encode("utf-16-be"),
        LOCALISED.encode("gbk"),
    ],
    ids=["utf-8", "bom", "utf-16", "utf-16-le", "utf-16-be-bom", "utf-16-be", "gbk"],
)
def test_encodings_of_windows(data: bytes) -> None:
    answer = explain(decode(data))
    assert answer.code == "permission-or-antivirus"
    assert "拒绝访问" in answer.evidence


def test_turkish_code_page_and_any_bytes() -> None:
    assert "ı" in decode("[WinError 127] Belirtilen yordam bulunamadı\n".encode("cp1254"))
    assert decode(b"\x80\xff\x81") != ""


def test_one_damaged_byte_leaves_utf_8_what_it_is() -> None:
    data = "训练失败，内存不足\n".encode() * 20 + b"\xff" + OOM.encode()
    assert "内存不足" in decode(data)
    assert explain(decode(data)).code == "cuda-oom"


# Big logs


def test_a_big_stream_keeps_head_and_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_HEAD_BYTES", 100)
    monkeypatch.setattr(reading, "MAX_TAIL_BYTES", 200)
    middle = b"noise\n" * 1000
    kept = read_bounded(io.BytesIO(b"start\n" + middle + OOM.encode()))
    assert kept.startswith(b"start\n")
    assert kept.endswith(OOM.encode())
    assert len(kept) < 400
    assert read_bounded(io.BytesIO(b"all of it")) == b"all of it"
    for encoding in ("utf-16-le", "utf-16-be"):
        mark = b"\xff\xfe" if encoding == "utf-16-le" else b"\xfe\xff"
        text = mark + ("start\n" + "noise\n" * 1000 + OOM).encode(encoding)
        assert explain(decode(read_bounded(io.BytesIO(text)))).code == "cuda-oom"


def test_a_big_file_keeps_head_and_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_HEAD_BYTES", 100)
    monkeypatch.setattr(reading, "MAX_TAIL_BYTES", 200)
    path = tmp_path / "train.log"
    for encoding in ("utf-8", "utf-16"):
        path.write_bytes(("noise\n" * 1000 + OOM).encode(encoding))
        kept = read_file(path)
        assert len(kept) < 400
        assert explain(decode(kept)).code == "cuda-oom"
    path.write_bytes(OOM.encode())
    assert read_file(path) == OOM.encode()


def test_a_flood_of_one_line_is_folded() -> None:
    log = read_log("same line\n" * 10_000 + OOM)
    assert len(log.lines) < 10
    assert explain("CUDA out of memory. Tried to allocate 1 GiB\n" * 3 + "step ok\n" * 50).code == "cuda-oom"


# Terminals, containers, copies


@pytest.mark.parametrize(
    "text",
    [
        f"\x1b[31m{OOM}\x1b[0m",
        f"[rank3]: {OOM}",
        f"[default0]:{OOM}",
        f"(EngineCore_0 pid=77) ERROR 09-06 23:28:45 [core.py:714] {OOM}",
        f"Jan 04 13:19:39 box trainer[394]: {OOM}",
        f"trainer-1  | {OOM}",
        f"2026-01-26T21:09:49.616916 - {OOM}",
        f"E1112 09:08:27.178000 28392 torch/_inductor/x.py:715] [0/3] {OOM}",
        f"E       {OOM}",
        f"> {OOM}",
        f"!!! Exception during processing !!! {OOM}",
        f" 18%|#8   | 11/60 [00:32<02:25]\r 20%|## | 12/60 [00:35<02:25]\n{OOM}",
        f"100%|##########| 60/60\r{OOM}\r 12%|#   | 5/60",
        "╭──── Traceback (most recent call last) ────╮\n│ ❱ 12 │   train()       │\n╰────╯\n"
        "RuntimeError: CUDA out of \nmemory. Tried to allocate",
        'Traceback (most recent call last):\\n  File \\"x.py\\", line 1, in <module>\\n' + OOM + "\\n",
        f"ERROR:root:{OOM}",
        f"[2026-01-01 10:00:00,001] [ERROR] worker: {OOM}",
    ],
)
def test_prefixes_and_drawings(text: str) -> None:
    answer = explain(text)
    assert answer.code == "cuda-oom"
    assert "CUDA out of" in answer.evidence


def test_a_console_that_cuts_words() -> None:
    text = (
        "python : Traceback (most recent call last):\r\nAt line:1 char:1\r\n+ python train.py 2> train.log\r\n"
        '  File "D:\\ai\\venv\\lib\\site-packages\\torch\\nn\\modules\\module.py", line 1501, in go\n    return f()\n'
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!\n"
    )
    for width in range(60, 90):
        cut = [line[at : at + width] for line in text.splitlines() for at in range(0, len(line), width)]
        assert explain("\n".join(cut)).code == "device-mismatch", width
    assert reading.unwrapped("short\nlines\n") == "short\nlines\n"
    assert reading.unwrapped("a" * 80 + "\n" + "b" * 80 + "\nend\n") == "a" * 80 + "b" * 80 + "end\n\n"


def test_shown_source_is_not_what_happened() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "load.py", line 3, in <module>\n'
        '    raise ImportError("FlashAttention2 has been toggled on, but it cannot be used")\n'
        "ZeroDivisionError: division by zero\n"
    )
    assert explain(text).code == UNKNOWN
    notebook = "File ~/x.py:8, in go()\n      7 # CUDA out of memory is caught\n----> 8 go()\n\nKeyError: 'optimizer'\n"
    assert explain(notebook).code == UNKNOWN


def test_the_head_of_a_notebooks_traceback_names_the_exception() -> None:
    text = (
        "OutOfMemoryError                          Traceback (most recent call last)\n"
        "Cell In[4], line 1\n----> 1 trainer.train()\n"
    )
    assert explain(text).code == "cuda-oom"


def test_source_that_names_errors_is_no_failure() -> None:
    text = (
        "def load(path):\n    try:\n        go(path)\n    except RuntimeError as error:\n"
        '        raise RuntimeError("CUDA out of memory. Lower the batch size") from error\n'
        '    logger.error("No space left on device")\n'
    )
    assert explain(text).code == UNKNOWN


def test_roles_of_a_chain() -> None:
    log = read_log(
        "Traceback (most recent call last):\n"
        '  File "a.py", line 1, in <module>\n'
        "OSError: first\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 2, in <module>\n'
        "ValueError: second\n"
        "told on two lines\n"
    )
    by_role = {log.lines[number]: role for number, role in enumerate(log.roles)}
    assert by_role["OSError: first"] is Role.CHAIN
    assert by_role["ValueError: second"] is Role.FINAL
    assert by_role["told on two lines"] is Role.FINAL
    assert log.ends_with_exception


# What outweighs what


def test_a_run_that_went_on_has_not_ended_with_its_exception() -> None:
    warning = "A matching Triton is not available, some optimizations will not be enabled.\n"
    went_on = "".join(f"step {number} of 60 took 0.4 s\n" for number in range(60))
    assert explain(warning + "ZeroDivisionError: division by zero\n" + went_on).code == "triton-not-installed"


def test_the_root_outweighs_its_consequences() -> None:
    proxy = (
        "ProxyError: Unable to connect to proxy\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file\n"
    )
    assert explain(proxy).code == "hub-ssl-or-proxy"
    spawned = f'OSError: [WinError 1455] too small\n{TRACEBACK}  File "x", line 1, in spawn_main\n'
    assert explain(spawned).code == "page-file-too-small"
    tuned = 'File "triton/runtime/autotuner.py", line 9, in _bench\nRuntimeError: Triton Error [CUDA]: out of memory\n'
    assert explain(tuned).code == "cuda-oom"


def test_a_warning_counts_only_where_nothing_else_failed() -> None:
    warning = "A matching Triton is not available, some optimizations will not be enabled.\n"
    assert explain(warning).code == "triton-not-installed"
    assert explain(warning).confidence != "high"
    assert explain(warning + "{'train_runtime': 12.0, 'train_loss': 1.2}\n").code == UNKNOWN
    script = f'{TRACEBACK}  File "mine.py", line 3, in <module>\nZeroDivisionError: division by zero\n'
    assert explain(warning + script).code == UNKNOWN
    assert explain(warning + OOM).code == "cuda-oom"


def test_the_evidence_is_short_and_without_secrets() -> None:
    answer = explain(f"requests.HTTPError: 401 Client Error: https://huggingface.co/x?token=abcdefgh {'x' * 500}")
    assert answer.code == "hub-gated-401"
    assert "abcdefgh" not in answer.evidence
    assert len(answer.evidence) <= 301
    assert explain("").to_dict()["code"] == UNKNOWN
    assert explain("").actions == ()


# Facts about the computer

PTXAS = (
    "RuntimeError: `ptxas` failed with error code 255\n"
    "ptxas fatal : Value 'sm_120' is not defined for option 'gpu-name'"
)
NO_CUDA = "AssertionError: Torch not compiled with CUDA enabled"
NO_GPU = "RuntimeError: No CUDA GPUs are available"
NO_LIBCUDA = "OSError: libcuda.so: cannot open shared object file: No such file or directory"
DLL = 'OSError: [WinError 126] Error loading "C:\\torch\\lib\\shm.dll" or one of its dependencies.'


def gpu(*capability: int) -> tuple[Gpu, ...]:
    return (Gpu(index=0, name="GPU", compute_capability=(capability[0], capability[1])),)


@pytest.mark.parametrize(
    ("text", "facts", "code"),
    [
        (NO_CUDA, {"gpus": gpu(8, 6)}, "torch-cpu-build"),
        (NO_CUDA, {"gpus": ()}, "driver-missing"),
        (NO_CUDA, {}, "torch-cpu-build"),
        (NO_GPU, {"gpus": (), "is_wsl": True}, "wsl-libcuda-missing"),
        (NO_GPU, {"gpus": ()}, "driver-missing"),
        ("PyTorch is not linked with support for cuda devices", {"gpus": gpu(8, 6)}, "torch-cpu-build"),
        (PTXAS, {}, "ptxas-mismatch"),
        (PTXAS, {"leaks": {"CUDA_PATH": "C:\\CUDA"}, "gpus": gpu(12, 0)}, "ptxas-mismatch"),
        (PTXAS, {"leaks": {}, "gpus": gpu(12, 0)}, "triton-arch-unsupported"),
        ("RuntimeError: `ptxas` failed with error code 255", {"gpus": gpu(6, 1)}, "triton-arch-unsupported"),
        (
            "RuntimeError: `ptxas` failed with error code 255",
            {"gpus": gpu(7, 5), "leaks": {}},
            "triton-arch-unsupported",
        ),
        (
            "RuntimeError: `ptxas` failed with error code 255",
            {"gpus": gpu(12, 0), "leaks": {}},
            "triton-arch-unsupported",
        ),
        ("RuntimeError: `ptxas` failed with error code 255", {"gpus": gpu(8, 6)}, "ptxas-mismatch"),
        ("RuntimeError: Cannot find ptxas", {"gpus": gpu(12, 0), "leaks": {}}, "ptxas-mismatch"),
        (NO_GPU, {"gpus": gpu(8, 6), "driver": Driver(version="470", cuda_version=(11, 4))}, "driver-too-old"),
        (NO_GPU, {"gpus": gpu(8, 6), "driver": Driver(version="550", cuda_version=(12, 4))}, "driver-missing"),
        ("RuntimeError: invalid device ordinal\ntorch 2.6.0+cpu", {"gpus": gpu(8, 6)}, "torch-cpu-build"),
        (DLL, {"vc_runtime": (0, 0)}, "dll-load-failed-vcredist"),
        (DLL, {"commit_limit_bytes": 20 << 30, "commit_used_bytes": 19 << 30}, "page-file-too-small"),
        (DLL, {"commit_limit_bytes": 40 << 30, "commit_used_bytes": 9 << 30}, "dll-load-failed-vcredist"),
        (DLL, {}, "dll-load-failed-vcredist"),
        (NO_LIBCUDA, {"is_wsl": True}, "wsl-libcuda-missing"),
        (NO_LIBCUDA, {"is_wsl": False, "gpus": ()}, "driver-missing"),
        (NO_LIBCUDA, {"is_wsl": False, "gpus": gpu(8, 6), "driver": Driver(version="550")}, "wsl-libcuda-missing"),
        (OOM, {"gpus": ()}, "cuda-oom"),
    ],
)
def test_facts_decide_between_causes(text: str, facts: dict[str, object], code: str) -> None:
    answer = explain(text, Machine(system="linux", **facts))  # type: ignore[arg-type]
    assert answer.code == code
    assert answer.fix


@pytest.mark.parametrize(
    ("capability", "words"),
    [
        ((1, 0), "can't compile for this GPU generation"),
        ((6, 9), "can't compile for this GPU generation"),
        ((7, 0), "bf16, that this GPU does not have"),
        ((7, 9), "bf16, that this GPU does not have"),
        ((8, 0), "CUDA_PATH"),
        ((9, 0), "CUDA_PATH"),
        ((9, 1), "older than the GPU"),
        (None, "CUDA_PATH"),
    ],
)
def test_what_a_compiler_can_not_do_depends_on_the_generation(capability: tuple[int, int] | None, words: str) -> None:
    gpus = (Gpu(index=0, name="GPU", compute_capability=capability),)
    answer = explain("RuntimeError: `ptxas` failed with error code 255", Machine(system="linux", gpus=gpus))
    assert words in answer.fix


# Failures of our own


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "nvidia_reading", lambda _timeout_s: None)


@pytest.mark.parametrize(
    ("output", "kind", "code"),
    [
        (OOM, RunFailure, "cuda-oom"),
        ("ValueError: Target modules {'x'} not found in the base model.", UserError, "lora-target-modules-missing"),
        ("OSError: [Errno 28] No space left on device", EnvironmentProblem, "disk-full"),
        (DLL, EnvironmentProblem, "dll-load-failed-vcredist"),
        ("nothing of note", RunFailure, "engine-crashed"),
    ],
)
def test_a_generic_failure_gets_its_cause(no_driver: None, output: str, kind: type, code: str) -> None:
    found = explained(RunFailure("engine-crashed", "ended", context="log"), output)
    assert (type(found), found.code, found.context) == (kind, code, "log")
    assert bool(found.actions) is (code != "engine-crashed")
    assert TunesmithError.from_dict(found.to_dict()).actions == found.actions


def test_what_helps_is_that_of_this_form_of_the_cause(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert actions_against("driver-missing")[0] == "open-driver-page"
    assert actions_against("bug") == ()
    monkeypatch.setattr(failure, "this_machine", lambda: Machine(system="linux", gpus=()))
    found = explained(RunFailure("engine-crashed", "ended"), NO_CUDA)
    assert (found.code, found.actions) == ("driver-missing", ("use-cpu",))


def test_a_cause_that_is_not_sure_becomes_the_next_step(no_driver: None) -> None:
    words = "see '/x/site-packages/triton/backends/nvidia/bin/ptxas'"
    found = explained(RunFailure("engine-crashed", "ended", context="log"), words)
    assert (type(found), found.code, found.message, found.context) == (RunFailure, "engine-crashed", "ended", "log")
    assert found.hint.startswith(f"Possible cause: {CODES['ptxas-mismatch'].title}. ")
    assert found.actions == actions_against("ptxas-mismatch")


def test_what_an_earlier_process_printed_is_not_blamed(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    assert failure.printed(path) == ""
    for words in (OOM, "KeyError: 'x'"):
        log = CappedLog(path)
        log.write(f"{words}\n".encode())
        log.close()
    assert failure.printed(path) == "\nKeyError: 'x'\n"
    assert OOM in path.read_text()


def test_a_failure_with_a_cause_stands(no_driver: None) -> None:
    known = EnvironmentProblem("disk-full", "full")
    assert explained(known, OOM) is known
    assert explained(BugError("bug", "x"), OOM).code == "cuda-oom"


def test_cheap_facts_about_this_computer(monkeypatch: pytest.MonkeyPatch, no_driver: None) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/old/ptxas")
    here = this_machine()
    assert (here.gpus, here.driver) == (None, None)
    assert (here.leaks or {})["TRITON_PTXAS_PATH"] == "/old/ptxas"
    reading_of_one = Reading(gpus=gpu(8, 6), driver=None)
    monkeypatch.setattr(hardware, "nvidia_reading", lambda _timeout_s: reading_of_one)
    assert [item.compute_capability for item in failure.this_machine().gpus or ()] == [(8, 6)]
