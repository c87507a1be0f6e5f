"""Real logs that were provoked, logs of other systems written by hand, and texts that only look like failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.logs.provoke import read_cases
from tunesmith_core.explain import UNKNOWN, decode, explain

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
PROVOKED = sorted(LOGS.glob("*.txt"))
WRITTEN = sorted((LOGS / "written").glob("*.txt"))


def test_logs_are_those_of_the_cases() -> None:
    assert {path.stem for path in PROVOKED} == set(read_cases())
    assert len(PROVOKED) >= 90
    assert len({path.stem.partition("--")[0] for path in PROVOKED + WRITTEN}) == 44


@pytest.mark.parametrize("path", PROVOKED + WRITTEN, ids=lambda path: path.stem)
def test_the_cause_of_a_log(path: Path) -> None:
    code = path.stem.partition("--")[0]
    text = decode(path.read_bytes())
    answer = explain(text)
    assert answer.code == code, answer
    if code != UNKNOWN:
        assert answer.evidence
        assert answer.evidence[:9] in text.replace("\r", "")
        assert answer.actions


TRACEBACK = 'Traceback (most recent call last):\n  File "/home/me/mine.py", line 8, in <module>\n    go()\n'


@pytest.mark.parametrize(
    "text",
    [
        # Nearly a signature of: environment and GPU
        "Torch was compiled last night with CUDA samples enabled",
        "The driver of the bus was found to be too old for night shifts.",
        "nvidia-smi shows one GPU, driver 552.44, CUDA 12.4",
        "RuntimeError: no kernel matched the query",
        "Loaded library libcudnn.so.9 in 0.2 s",
        "Loading kernel32.dll: found",
        "numpy.dtype('float32') has size 4",
        "import triton  # version 3.2.0 is fine",
        "Compiling for sm_80, target sm_80 or higher: done",
        "ptxas info    : Used 32 registers, 380 bytes cmem[0]",
        "gcc -I/usr/include/python3.11 -c module.c  # finds Python.h",
        "CC=gcc make -j8",
        "the first input and the second input have the same shape",
        "cl.exe /O2 program.cpp\nprogram.cpp\nLinking ... done",
        "bitsandbytes 0.49.2 loaded libbitsandbytes_cuda124.so",
        "Flash Attention 2.7 is installed and used",
        # of: libraries, model and data
        "PyTorch 2.6.0 is at least 2.6: good",
        "Transformers 5.23.0 recognizes llama",
        TRACEBACK + "TypeError: greet() got an unexpected keyword argument 'name'",
        "target_modules: all-linear (7 kinds of layers)",
        "sentencepiece 0.2.0 is installed",
        "peak memory 7.1 GiB of 24 GiB; nothing ran out",
        "{'loss': 1.01, 'grad_norm': 0.7, 'learning_rate': 1e-4}\n" * 4,
        "memory access patterns of legal kernels",
        "all tensors are on cuda:0",
        TRACEBACK + "KeyError: 'optimizer'",
        TRACEBACK + "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "chat_template: chatml",
        "config.json and model.safetensors were found",
        # of: hub and system
        '10.0.0.1 - - "GET /api/models HTTP/1.1" 401 18',
        "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
        "the certificate was verified; proxy: none",
        "ln -s target link  # a symlink",
        "Filesystem 91% used, 120G available",
        "page 14 of the file is too small to read",
        "path /data/a/b/c.json is short",
        "C:\\Users\\me\\models\\model.pt was opened",
        "git@host: Permission denied (publickey).",
        "the text was encoded as UTF-8",
        "4 worker processes were started",
        "torch.distributed is available: gloo",
        "libcuda.so.1 => /lib/x86_64-linux-gnu/libcuda.so.1",
        "wsl.exe -l -v\n  NAME      STATE     VERSION\n* Ubuntu    Running   2",
    ],
)
def test_what_only_looks_like_a_failure_is_unknown(text: str) -> None:
    assert explain(text).code == UNKNOWN


UNRELATED = """\
2026/03/01 12:00:01 [error] 31#31: *1 open() "/usr/share/nginx/html/favicon.ico" failed (2: No such file or directory)
2026/03/01 12:00:02 [error] 31#31: *2 connect() failed (111: Connection refused) while connecting to upstream
2026/03/01 12:00:03 [crit] 31#31: *3 stat() "/srv" failed (13: Permission denied)
Mar 12 03:14:07 web sshd[1201]: Failed password for invalid user admin from 10.1.1.1 port 5022 ssh2
ERROR 1045 (28000): Access denied for user 'root'@'localhost' (using password: YES)
npm ERR! code EACCES
java.lang.OutOfMemoryError: Java heap space
src/foo.c:12:5: error: expected ';' before 'return'
make: *** [Makefile:10: foo.o] Error 1
error[E0382]: borrow of moved value: `x`
FAILED tests/test_x.py::test_y - AssertionError: assert 1 == 2
Successfully installed numpy-2.1.0 torch-2.6.0 triton-3.2.0 flash-attn-2.7.4 bitsandbytes-0.49.0
PermissionError is raised when an operation lacks the rights; MemoryError when it runs out of memory.
A UnicodeDecodeError tells which codec could not decode which byte.
    except FileNotFoundError:
        raise RuntimeError("could not open " + path)
新华社北京电：今年上半年，数据中心显卡出货量同比增长，多家企业宣布扩大内存与磁盘产能。
The cat sat on the mat, and the driver of the tram waved at it.
redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.
ValueError: Expected input batch_size (32) to match target batch_size (16).
"""


def test_two_hundred_unrelated_lines_are_unknown() -> None:
    assert explain(UNRELATED * 10).code == UNKNOWN
    for line in UNRELATED.splitlines():
        assert explain(line).code == UNKNOWN, line
