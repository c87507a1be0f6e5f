"""The two environments as the launcher sees them: which Python runs what, with which variables.

`envs/train.current` and `envs/launcher.current` hold one line each: the name of a folder under envs, or an absolute
path.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tunesmith_core import paths
from tunesmith_core.errors import EnvironmentProblem

TRAINING_POINTER = "train.current"
LAUNCHER_POINTER = "launcher.current"

REMOVED_VARIABLES = frozenset(
    """CC CXX CUDA_PATH CUDA_HOME TRITON_PTXAS_PATH TRITON_PTXAS.EXE_PATH TRITON_LIBCUDA_PATH VCINSTALLDIR
    VCTOOLSVERSION WINDOWSSDKDIR WINDOWSSDKVERSION BNB_CUDA_VERSION CONDA_PREFIX LD_LIBRARY_PATH LD_PRELOAD
    CUDA_VISIBLE_DEVICES
    CUDA_LAUNCH_BLOCKING HF_TOKEN HUGGING_FACE_HUB_TOKEN OMP_NUM_THREADS MKL_NUM_THREADS""".split()
)
"""Variables of the person's shell that make libraries pick foreign compilers, toolkits, libraries or secrets."""

REMOVED_PREFIXES = ("PYTHON", "CONDA_", "VIRTUAL_ENV")


def environment_python(folder: Path) -> Path:
    """Return the interpreter of an environment folder."""
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def pointed_environment(pointer: str) -> Path:
    """Return the environment folder that a pointer file names.

    Raises:
        EnvironmentProblem: `environment-missing` when the pointer, the folder or its interpreter is gone.
    """
    path = paths.envs_dir() / pointer
    try:
        name = path.read_text(encoding="utf-8").strip()
    except OSError:
        raise EnvironmentProblem("environment-missing", f"{path} does not exist.") from None
    folder = paths.envs_dir() / name
    if not name or not environment_python(folder).exists():
        raise EnvironmentProblem("environment-missing", f"The environment {folder} has no Python any more.")
    return folder


def training_python() -> Path:
    """Return the interpreter of the training environment. Raises EnvironmentProblem `environment-missing`."""
    return environment_python(pointed_environment(TRAINING_POINTER))


def launcher_python() -> Path:
    """Return the interpreter of the launcher environment. Raises EnvironmentProblem `environment-missing`."""
    return environment_python(pointed_environment(LAUNCHER_POINTER))


def module_command(python: Path | str, module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules isolated, in any environment, from any working folder."""
    start = paths.package_folder("tunesmith_core") / "start.py"
    return [str(python), "-I", "-X", "utf8", str(start), module, *arguments]


def engine_command(*arguments: str) -> list[str]:
    """Return the command of an engine subcommand. Raises EnvironmentProblem `environment-missing`."""
    return module_command(training_python(), "tunesmith_engine", *arguments)


def own_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules with the Python that runs this process."""
    return module_command(sys.executable, module, *arguments)


def scrubbed_environment() -> dict[str, str]:
    """Return this process's variables without those that lead libraries astray or carry secrets."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper() not in REMOVED_VARIABLES and not name.upper().startswith(REMOVED_PREFIXES)
    }


def engine_environment() -> dict[str, str]:
    """Return the variables of an engine process: scrubbed, with temporary files and caches inside the data root."""
    cache, tmp = paths.cache_dir(), paths.tmp_dir()
    for folder in (cache, tmp):
        folder.mkdir(parents=True, exist_ok=True)
    environment = scrubbed_environment()
    for name in ("TMP", "TEMP", "TMPDIR"):
        environment[name] = str(tmp)
    environment |= {
        "TRITON_CACHE_DIR": str(cache / "tc"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "ic"),
        "HF_HOME": str(cache / "hf"),
        "MPLCONFIGDIR": str(cache / "mpl"),
        "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_COMPILE_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        paths.HOME_VARIABLE: str(paths.data_root()),
    }
    if Path("/usr/lib/wsl/lib").is_dir():  # pragma: no cover - only under WSL
        environment["LD_LIBRARY_PATH"] = "/usr/lib/wsl/lib"
    return environment
