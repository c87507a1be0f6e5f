"""The two environments as the launcher sees them: which Python runs what, with which variables.

`envs/train.current` and `envs/launcher.current` hold one line each: the name of a folder under envs, or an absolute
path.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tunesmith_core import paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import is_hub_id
from tunesmith_core.settings import SettingsFile

TRAINING_POINTER = "train.current"
LAUNCHER_POINTER = "launcher.current"

MANIFEST = "tunesmith-environment.json"
"""In an environment's folder: what it was built from."""
PROOF = "proof.json"
"""Beside it: what was tried on this computer before the environment was used."""

COMPILE_CACHES = ("tc", "ic", "mpl")
"""Folders below the cache of what Triton and Inductor compiled and Matplotlib drew; made again when missing."""

REMOVED_VARIABLES = frozenset(
    """CC CXX CUDA_PATH CUDA_HOME TRITON_PTXAS_PATH TRITON_PTXAS.EXE_PATH TRITON_LIBCUDA_PATH VCINSTALLDIR
    VCTOOLSVERSION WINDOWSSDKDIR WINDOWSSDKVERSION BNB_CUDA_VERSION CONDA_PREFIX LD_LIBRARY_PATH LD_PRELOAD
    CUDA_VISIBLE_DEVICES
    CUDA_LAUNCH_BLOCKING HF_TOKEN HUGGING_FACE_HUB_TOKEN OMP_NUM_THREADS MKL_NUM_THREADS""".split()
)
"""Variables of the person's shell that make libraries pick foreign compilers, toolkits, libraries or secrets. In upper
case: Windows does not tell cases apart, and elsewhere the other spellings mean nothing."""

REMOVED_PREFIXES = ("PYTHON", "CONDA_", "VIRTUAL_ENV")

PROXY_VARIABLES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})

_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS|API_?KEY|ACCESS_KEY)(_|$)")

WSL_LIBRARIES = "/usr/lib/wsl/lib"
"""Where the Windows Subsystem for Linux puts the driver's libraries; bitsandbytes and Triton look there only when
told."""


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
        raise TunesmithError("environment-missing", "{path} does not exist.", path=path) from None
    folder = paths.envs_dir() / name
    if not name or not environment_python(folder).exists():
        raise TunesmithError("environment-missing", "The Python of the environment {folder} is missing.", folder=folder)
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


def proxy_variables(address: str) -> dict[str, str]:
    """Return the variables that send every download through a proxy; none for an empty address."""
    # Other programs than Windows' tell cases apart, and they disagree about which case counts.
    names = PROXY_VARIABLES if os.name == "nt" else PROXY_VARIABLES | {name.lower() for name in PROXY_VARIABLES}
    return dict.fromkeys(names, address) if address else {}


def engine_environment(model: str = "") -> dict[str, str]:
    """Return the variables of an engine process: scrubbed, with temporary files and caches where we want them.

    An engine sees no secret, and no proxy unless one is chosen: in the settings, or by a run whose model comes from the
    hub, which needs the way out that this computer is set up with.

    Args:
        model: the run's base model, a folder or a hub id.
    """
    cache, tmp = paths.cache_dir(), paths.tmp_dir()
    for folder in (cache, tmp):
        folder.mkdir(parents=True, exist_ok=True)
    from_hub = is_hub_id(model) and not Path(model).is_dir()
    environment = {
        name: value
        for name, value in scrubbed_environment().items()
        if not _SECRET.search(name.upper()) and (from_hub or name.upper() not in PROXY_VARIABLES)
    }
    environment |= proxy_variables(SettingsFile().values.proxy)
    environment |= dict.fromkeys(("TMP", "TEMP", "TMPDIR"), str(tmp))
    environment |= {
        "TRITON_CACHE_DIR": str(cache / COMPILE_CACHES[0]),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / COMPILE_CACHES[1]),
        # Importing bitsandbytes would start a process for compiling that takes half a gigabyte and is never used.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "HF_HOME": str(cache / "hf"),
        "MPLCONFIGDIR": str(cache / COMPILE_CACHES[2]),
        "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_COMPILE_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        paths.HOME_VARIABLE: str(paths.data_root()),
    }
    if Path(WSL_LIBRARIES).is_dir():
        environment |= dict.fromkeys(("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH"), str(WSL_LIBRARIES))
    return environment
