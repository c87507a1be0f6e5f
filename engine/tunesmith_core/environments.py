"""The two environments as the launcher sees them: which Python runs what, with which variables.

`envs/train.current` and `envs/launcher.current` hold one line each: the name of a folder under envs, or an absolute
path.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import mmap
import os
import sys
from pathlib import Path

from tunesmith_core import files, paths, redact
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.settings import SettingsFile

TRAINING_POINTER = "train.current"
LAUNCHER_POINTER = "launcher.current"
HARNESS_POINTER = "harness.current"
REWARDS_POINTER = "rewards.current"

INSTALL_REWARDS = Message("Run: tunesmith rewards")
"""What to do where packages for rewards are missing."""

MANIFEST = "tunesmith-environment.json"
"""In an environment's folder: what it was built from."""
PROOF = "proof.json"
"""Beside it: what was tried on this computer before the environment was used."""

FILE_LIST = "tunesmith-files.txt"
"""In it, too: every file as it was installed, a JSON list a line that begins with path, size, time and digest."""

KNOWN_STARTUP_FILES = frozenset({"distutils-precedence.pth", "_virtualenv.pth"})
"""Files that Python runs at every start and that packages of the locks bring (setuptools) or uv itself writes."""

COMPILE_CACHES = ("tc", "ic", "mpl")
"""Folders below the cache of what Triton and Inductor compiled and Matplotlib drew; made again when missing."""

MODELSCOPE = "https://www.modelscope.cn"
MODELSCOPE_VARIABLE = "TUNESMITH_MODELSCOPE"
"""Holds the address of ModelScope where it is the hub of the settings."""

ENGINE_VARIABLES = frozenset(
    """PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TZDIR NO_PROXY
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE HF_ENDPOINT HF_HUB_OFFLINE TRANSFORMERS_OFFLINE
    SYSTEMROOT WINDIR SYSTEMDRIVE COMSPEC PATHEXT OS USERNAME USERDOMAIN USERPROFILE HOMEDRIVE HOMEPATH COMPUTERNAME
    APPDATA LOCALAPPDATA PROGRAMDATA ALLUSERSPROFILE PUBLIC PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432
    COMMONPROGRAMFILES COMMONPROGRAMFILES(X86) COMMONPROGRAMW6432 NUMBER_OF_PROCESSORS PROCESSOR_ARCHITECTURE
    PROCESSOR_IDENTIFIER PROCESSOR_LEVEL PROCESSOR_REVISION DRIVERDATA KMP_AFFINITY OMP_THREAD_LIMIT""".split()
)
"""Variables of a person that an engine sees. All others stay outside: a shell may hold passwords under any name.

What a program needs to find itself, its libraries and its person, on Linux and on Windows; certificates and a mirror
of the hub for downloads; where Triton looks for Windows' own compiler; where threads may run, without which PyTorch
does not start on some computers; and how many at most, where engines share the cores, as those of our tests do."""

ENGINE_PREFIXES = ("LC_", "XDG_", "TUNESMITH_", "COVERAGE_", "WINE")
"""So do these; the last two are for our tests, which measure child processes and run programs of Windows on Linux."""

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

MOST_TOKENIZER_THREADS = 8

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
    """Return the interpreter of the training environment, in which nothing runs before our own code does.

    Raises:
        EnvironmentProblem: `environment-missing`; `environment-damaged` when it would run files that nobody installed.
    """
    folder = pointed_environment(TRAINING_POINTER)
    if planted := planted_files(folder):
        raise TunesmithError(
            "environment-damaged",
            "{folder} contains files that Python would run at every start and that Tunesmith did not install: {names}.",
            actions=("repair-environment",),
            folder=folder,
            names=", ".join(planted),
        )
    return environment_python(folder)


def harness_packages() -> Path:
    """Return the folder of packages that lm-evaluation-harness adds to the training environment of this process.

    Raises:
        EnvironmentProblem: `environment-missing` when they were not installed for this Python.
    """
    return _added_packages(HARNESS_POINTER, Message("Run: tunesmith harness"))


def rewards_packages() -> Path:
    """Return the folder of packages that tasks and JSON schemas need beside those of this process.

    Raises:
        EnvironmentProblem: `environment-missing` when they were not installed for this Python.
    """
    check_rewards()
    return _added_packages(REWARDS_POINTER, INSTALL_REWARDS)


def check_rewards() -> None:
    """Check that the packages for tasks and JSON schemas were installed. Raises EnvironmentProblem."""
    if not (paths.envs_dir() / REWARDS_POINTER).exists():
        raise TunesmithError(
            "environment-missing",
            "The packages for tasks and JSON schemas are not installed.",
            hint=INSTALL_REWARDS,
        )


def _added_packages(pointer: str, hint: Message) -> Path:
    folder = pointed_environment(pointer)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / ("Lib" if os.name == "nt" else f"lib/python{version}") / "site-packages"
    if f"py{version.replace('.', '')}" not in folder.name.split("-") or not packages.is_dir():
        raise TunesmithError(
            "environment-missing",
            "{folder} was not made for Python {version}.",
            hint=hint,
            folder=folder,
            version=version,
        )
    return packages


def launcher_python() -> Path:
    """Return the interpreter of the launcher environment. Raises EnvironmentProblem `environment-missing`."""
    return environment_python(pointed_environment(LAUNCHER_POINTER))


def window_python() -> str:
    """Return the Python that has the window's libraries: the launcher environment's, else this one.

    Raises:
        EnvironmentProblem: `environment-missing` when neither has them.
    """
    try:
        return str(launcher_python())
    except EnvironmentProblem:
        if importlib.util.find_spec("PySide6") is None:
            raise
        return sys.executable


def site_folders(folder: Path) -> list[Path]:
    """Return the package folders of an environment: one, or none when it is gone."""
    candidates = (*folder.glob("lib/python3.*/site-packages"), folder / "Lib/site-packages")
    return [path for path in candidates if path.is_dir()]


def startup_files(site: Path) -> list[Path]:
    """Return the files of a package folder that Python runs at every start, whatever program it is started for."""
    names = os.listdir(site)
    return [
        site / name for name in names if name.endswith(".pth") or name.startswith(("sitecustomize", "usercustomize"))
    ]


def planted_files(folder: Path) -> list[str]:
    """Return the names of startup files of an environment that are not as they were installed, within milliseconds.

    Doctor and repair compare every file; this comes before each start, for these files would run before any of ours.
    An environment that Tunesmith did not build is not judged.
    """
    if not (folder / MANIFEST).exists():
        return []
    found = (path for site in site_folders(folder) for path in startup_files(site))
    return sorted(path.name for path in found if not _is_installed(path, folder))


def _is_installed(path: Path, folder: Path) -> bool:
    """Return whether a file of an environment has the digest that its list names."""
    start = b"\n[" + json.dumps(path.relative_to(folder).as_posix(), ensure_ascii=False).encode() + b","
    try:
        # Mapped and not read: the list is megabytes long, and one line of it counts.
        with (folder / FILE_LIST).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as listed:
            listed.seek(listed.find(start) + 1)
            name, _size, _time, digest, *_ = json.loads(listed.readline())
        content = path.read_bytes()
    except FileNotFoundError:
        # An environment of a version that made no list.
        return path.name in KNOWN_STARTUP_FILES
    except (OSError, ValueError, TypeError):
        return False
    is_listed = folder / str(name) == path
    return bool(is_listed and digest == files.digest_text(hashlib.sha256(content).digest()))


def module_command(python: Path | str, module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules isolated, in any environment, from any working folder."""
    start = paths.package_folder("tunesmith_core") / "start.py"
    return [str(python), "-I", "-X", "utf8", str(start), module, *arguments]


def engine_command(*arguments: str) -> list[str]:
    """Return the command of an engine subcommand. Raises EnvironmentProblem as `training_python`."""
    return module_command(training_python(), "tunesmith_engine", *arguments)


def own_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules with the Python that runs this process."""
    return module_command(sys.executable, module, *arguments)


def scrubbed_environment() -> dict[str, str]:
    """Return this process's variables without those that lead libraries astray; for uv and pip, whose own are many."""
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


NO_COMPILING = {
    # Importing bitsandbytes would start a process for compiling that takes half a gigabyte and is never used.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",
    # Importing bitsandbytes asks for compiled functions; with this it does so without the compiler's 500 modules.
    "TORCHDYNAMO_DISABLE": "1",
}
"""Variables of processes with PyTorch, none of which compiles by PyTorch's compiler."""


def engine_environment(*, downloads: bool = False) -> dict[str, str]:
    """Return the variables of an engine process: named ones, with temporary files and caches where we want them.

    A proxy, which may have a password, is only for what downloads: the one of the settings, or the one that this
    computer is set up with.

    Args:
        downloads: whether something is downloaded.
    """
    cache, tmp = paths.cache_dir(), paths.tmp_dir()
    for folder in (cache, tmp):
        files.private_folder(folder)
    allowed = ENGINE_VARIABLES | (PROXY_VARIABLES if downloads else frozenset[str]())
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in allowed or name.upper().startswith(ENGINE_PREFIXES)
    }
    # Read in any case: what the engine prints is redacted by the passwords that are known.
    chosen = SettingsFile().values
    proxy = chosen.proxy
    redact.note_passwords(*(value for name, value in os.environ.items() if name.upper() in PROXY_VARIABLES))
    environment |= proxy_variables(proxy if downloads else "")
    if chosen.hub == "modelscope":
        environment[MODELSCOPE_VARIABLE] = chosen.hub_endpoint or MODELSCOPE
    elif chosen.hub_endpoint:
        environment["HF_ENDPOINT"] = chosen.hub_endpoint
    environment |= {"HF_HUB_OFFLINE": "1"} if chosen.offline else {}
    environment |= dict.fromkeys(("TMP", "TEMP", "TMPDIR"), str(tmp))
    environment |= {
        "TRITON_CACHE_DIR": str(cache / COMPILE_CACHES[0]),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / COMPILE_CACHES[1]),
        **NO_COMPILING,
        "HF_HOME": str(cache / "hf"),
        "MPLCONFIGDIR": str(cache / COMPILE_CACHES[2]),
        "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        # No process of ours forks itself. Beyond some threads a tokenizer waits for what Python makes of its tokens.
        "TOKENIZERS_PARALLELISM": "true",
        "RAYON_NUM_THREADS": str(min(os.cpu_count() or 1, MOST_TOKENIZER_THREADS)),
        "PYTHONDONTWRITEBYTECODE": "1",
        paths.HOME_VARIABLE: str(paths.data_root()),
    }
    if Path(WSL_LIBRARIES).is_dir():
        environment |= dict.fromkeys(("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH"), str(WSL_LIBRARIES))
    return environment
