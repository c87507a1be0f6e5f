"""Forms in which causes show themselves in other versions, languages and tools: each is told from its neighbours."""

from __future__ import annotations

import pytest

from tunesmith_core.explain import explain
from tunesmith_core.explain.reading import read_log

FORMS = [
    # A CPU build outweighs the missing GPU that follows from it
    ("torch-cpu-build", "torch 2.7.0+cpu\nValueError: Your setup doesn't support bf16/gpu."),
    ("torch-cpu-build", "CUDA used to build PyTorch: None\nGPU models: GPU 0: NVIDIA GeForce RTX 3050"),
    ("driver-missing", "torch 2.7.0+cu126\nValueError: Your setup doesn't support bf16/gpu."),
    ("driver-missing", "RuntimeError: Cannot access accelerator device when none is available."),
    ("driver-missing", "RuntimeError: Failed to infer device type, turn logging on"),
    ("driver-missing", "nvidia-smi : Le terme «nvidia-smi» n'est pas reconnu comme nom d'applet de commande"),
    # GPU memory and libraries
    ("cuda-oom", "allocating 99.00 MiB on device 0: cudaMalloc failed: out of memory"),
    ("cuda-oom", "DistBackendError: NCCL error, unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"),
    ("cuda-runtime-lib-missing", "ValueError: libcusparse.so.*[0-9] not found in the system path ['/opt/x']"),
    ("no-kernel-image-for-arch", "FATAL: kernel `fmha_x` is for sm70-sm75, but was built for sm37"),
    ("page-file-too-small", "RuntimeError: Couldn't open shared file mapping: <torch_1_2>, error code: <1455>"),
    # Compilers
    ("triton-arch-unsupported", "AssertionError: fp8e5 data type is not supported on CUDA arch < 90"),
    (
        "triton-arch-unsupported",
        'AccelerateMatmul.cpp:36: Assertion `false && "computeCapability not supported"\' failed.',
    ),
    (
        "triton-dtype-mismatch",
        "initial value for `sum` is of type <[64, 8], bf16>, but the else block redefines it as <fp32>",
    ),
    ("ptxas-mismatch", "RuntimeError: Cannot find cuobjdump"),
    ("triton-bad-cc-env", "cc_cmd: ['C:\\\\VS\\\\bin\\\\Hostx64\\\\x64', 'C:\\\\t\\\\cuda_utils.c', '-O3', '-shared']"),
    (
        "triton-link-missing-python-libs",
        "C:\\Temp\\q\\main.c(12): fatal error C1083: 无法打开包括文件: “Python.h”: No such file",
    ),
    (
        "triton-link-missing-python-libs",
        'cuda_utils.c(9): fatal error C1083: Datei kann nicht geöffnet werden: "Python.h"',
    ),
    (
        "triton-link-missing-python-libs",
        "from /tmp/a1/main.c:1:\n/usr/x/stdlib.h:26:10: fatal error: bits/x.h: No such file",
    ),
    (
        "wsl-libcuda-missing",
        "/usr/bin/ld: cannot find -lcuda\nCalledProcessError: Command '['gcc', 'main.c', '-L/usr/lib/wsl/lib']'",
    ),
    ("wsl-libcuda-missing", 'Unable to dynamically load the "cuda" shared library - searched for ["cuda", "nvcuda"]'),
    # Libraries
    ("flash-attn-missing", "NameError: name '_flash_supports_window' is not defined"),
    ("numpy-abi-mismatch", "TypeError: expected np.ndarray (got numpy.ndarray)"),
    ("torch-too-old-for-transformers", "AttributeError: module 'torch.library' has no attribute 'triton_op'"),
    ("trl-peft-api-mismatch", "AttributeError: 'PagedAdamW' object has no attribute 'train'"),
    ("tokenizer-missing-dep", "ValueError: make sure you have `sentencepiece` installed for this one"),
    ("lora-target-modules-missing", "ValueError: No target modules found for the adapter"),
    ("bnb-cuda-lib-missing", "NameError: name 'str2optimizer8bit' is not defined"),
    # Data, numbers and devices
    (
        "dataset-parse-error",
        '  File "datasets/packaged_modules/json/json.py", line 9, in _generate_tables\n'
        "AttributeError: 'str' object has no attribute 'keys'",
    ),
    ("dataset-chat-template-missing", "AttributeError: 'X' object has no attribute 'chat_template'"),
    ("dataset-column-missing", 'RuntimeError: Data-point "{}" has no keyset match within format "[\'a,b\']"'),
    ("dataset-parse-error", "pyarrow.lib.ArrowTypeError: Expected bytes, got a 'list' object"),
    ("dataset-parse-error", 'ValueError: Instruction "test" corresponds to no data!'),
    ("nan-loss", "step 4\ntensor(nan, device='cuda:0', grad_fn=<X>)"),
    ("nan-loss", "NansException: A tensor with NaNs was produced in VAE."),
    ("device-mismatch", "RuntimeError: stack(): all tensors must be on the same device. Received cpu and cuda:0"),
    ("device-mismatch", "ValueError: input module must be on the same type of devices, but found {'cpu', 'cuda'}"),
    (
        "device-mismatch",
        "ValueError: a model that has been loaded in 4-bit precision on several devices can't be trained",
    ),
    ("hub-offline", "FileMetadataError: Distant resource does not seem to be on the hub."),
    # Letters that only native loaders stumble over
    ("path-non-ascii", "gguf_init_from_file: failed to open GGUF file 'D:\\模型\\a.gguf'"),
    (
        "path-non-ascii",
        "[ONNXRuntimeError] : NO_SUCHFILE : Load model from C:\\Users\\Zoë\\a.onnx failed. File doesn't exist",
    ),
    ("path-non-ascii", "cv2.error: imread_('D:\\données\\1.png'): can't open/read file"),
    (
        "model-files-missing-or-corrupt",
        "gguf_init_from_file: failed to open GGUF file 'D:\\models\\a.gguf': invalid magic",
    ),
    # Workers
    ("windows-multiprocessing-spawn", "RuntimeError: DataLoader worker (pid(s) 11, 12) exited unexpectedly"),
    ("unknown", '  File "/home/me/a.py", line 1\nRuntimeError: DataLoader worker (pid(s) 11, 12) exited unexpectedly'),
    (
        "windows-multiprocessing-spawn",
        'Traceback (most recent call last):\n  File "C:\\py\\Lib\\multiprocess\\spawn.py", line 122, in spawn_main',
    ),
    ("windows-multiprocessing-spawn", "AttributeError: Can't get attribute 'f' on <module '__main__' (built-in)>"),
    # WSL in other languages
    ("wsl-not-usable", "请启用“虚拟机平台”Windows 功能。"),
    ("wsl-not-usable", 'Bitte aktivieren Sie die Windows-Funktion "VM-Plattform".'),
    ("wsl-not-usable", 'wsl : Die Benennung "wsl" wurde nicht als Name eines Cmdlet erkannt.'),
    ("wsl-not-usable", "Il sottosistema Windows per Linux non ha distribuzioni installate."),
    ("wsl-not-usable", "Invalid command line option: --update"),
    ("wsl-not-usable", "Klass ej registrerad\nFelkod: Wsl/CallMsi/Install/REGDB_E_CLASSNOTREG"),
]


@pytest.mark.parametrize(("code", "text"), FORMS)
def test_the_cause_of_a_form(code: str, text: str) -> None:
    assert explain(text).code == code


def test_the_evidence_is_the_line_that_tells_most_not_that_of_the_launcher() -> None:
    failed = "subprocess.CalledProcessError: Command '['cl.exe', 'main.c']' returned non-zero exit status 2.\n"
    for line in (
        "main.obj : error LNK2001: unresolved external symbol __imp_PyErr_Format",
        "LINK : fatal error LNK1181: cannot open input file 'aio.lib'",
        "/tmp/t/main.c:4:10: fatal error: Python.h: No such file or directory",
    ):
        log = f'main.c\n{line}\nTraceback (most recent call last):\n  File "b.py", line 1\n{failed}'
        assert explain(log).evidence == line


def test_the_repair_fits_the_form_of_the_cause() -> None:
    assert "safetensors" in explain("_pickle.UnpicklingError: Weights only load failed.").fix
    assert "base model" in explain("size mismatch for model.embed.weight: copying a param with shape (2,)").fix
    assert "Restart" in explain("Failed to initialize NVML: Driver/library version mismatch").fix


def test_a_long_word_in_parentheses_is_read_at_once() -> None:
    """A pattern that tries all ways to cut a word would never come back from this."""
    line = "(" + "implicit_multiplication " * 3 + "w" * 200 + "!"
    assert read_log(line).lines == [line]
    assert read_log("(Worker_TP0 pid=3259, ip=10.0.0.1) ERROR: x").lines[0].endswith("x")


@pytest.mark.parametrize(
    "text",
    [
        "## Installation\n\n    pip install sentencepiece\n\nThen import it.",
        "This is needed only for a self-signed certificate. The certificate has expired when its date is past.",
        "`ENOSPC` is the code for a full device, `ENAMETOOLONG` that for names.",
        "The Windows Subsystem for Linux (WSL) is not covered by this guide; see DNS errors below.",
        "Other requests over the limit will get `503 Service Unavailable`, see the issues on github.",
        "Xet replaces Git LFS, which does not know chunks.",
        "Opening a symlink failed in version 1; a path that has special letters is quoted; EDQUOT maps to UV_ENOSPC.",
        "These files may have a UTF-8 BOM marker at the beginning.",
    ],
)
def test_documentation_of_a_failure_is_none(text: str) -> None:
    assert explain(text).code == "unknown"


def test_a_launcher_after_an_unknown_failure_makes_no_warning_the_cause() -> None:
    warning = "A matching Triton is not available, some optimizations will not be enabled\n"
    script = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nTypeError: bad operand\n\n'
    launcher = (
        'Traceback (most recent call last):\n  File "launch.py", line 9, in <module>\n'
        "subprocess.CalledProcessError: Command '['python', 'a.py']' returned non-zero exit status 1.\n"
    )
    assert explain(warning + script + launcher).code == "unknown"
    assert explain(warning + launcher).code == "triton-not-installed"


def test_a_server_of_this_computer_is_not_the_hub() -> None:
    refused = "ConnectionError: host='localhost', port=11434: [Errno 111] Connection refused\n"
    assert explain("Loaded from the hub cache\n" + refused).code == "unknown"
    reached = refused.replace("localhost", "huggingface.co")
    assert explain(reached).code == "hub-offline"
