"""Speaks with one distribution: paths, programs, the GPU and our own installation inside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tunesmith_core import files, paths
from tunesmith_core.environments import WSL_LIBRARIES
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.wsl import client

RECORD = "wsl.json"
PYTHON_NAMES = ("python3.12", "python3.11", "python3.13", "python3")
_PYTHON_QUESTION = "import sys; print(sys.executable, *sys.version_info[:2])"
_SUPPORTED = {("3", "11"), ("3", "12"), ("3", "13")}
_GPU_QUESTION = (
    f"test -e /dev/dxg && echo device; test -e {WSL_LIBRARIES}/libcuda.so.1 && echo library; "
    f"{WSL_LIBRARIES}/nvidia-smi -L 2>/dev/null | grep -c '^GPU' "
)


@dataclass(frozen=True, slots=True)
class Guest:
    """A distribution that was prepared for training.

    Attributes:
        distribution: its name.
        python: the interpreter inside that starts our modules.
    """

    distribution: str
    python: str

    def command(self, *arguments: str, user: str | None = None) -> list[str]:
        """Return the command that runs a program inside; no shell reads its arguments."""
        return [client.program(), *self._options(user), "--exec", *arguments]

    def run(self, *arguments: str, user: str | None = None, timeout_s: float = client.TIMEOUT_S) -> client.Answer:
        """Run a program inside to its end. Raises EnvironmentProblem `wsl-not-usable` when it can't be started."""
        return client.call(*self._options(user), "--exec", *arguments, timeout_s=timeout_s)

    def _options(self, user: str | None) -> list[str]:
        return ["-d", self.distribution, *(["-u", user] if user else []), "--cd", "~"]

    def path_of(self, windows_path: str) -> str:
        """Return how a path of Windows is called inside: drives, network shares and paths of the distribution itself.

        Raises:
            EnvironmentProblem: `wsl-not-usable` when it can't be reached from inside.
        """
        answer = self.run("wslpath", "-a", "-u", windows_path)
        if answer.code != 0:
            raise TunesmithError(
                "wsl-not-usable",
                "{windows_path} can't be reached from inside {distribution}.",
                hint="Put the file on a local drive.",
                context=answer.text.strip(),
                windows_path=windows_path,
                distribution=self.distribution,
            )
        return answer.text.strip("\n")

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs one of our modules inside, from the program folder on Windows."""
        start = self.path_of(str(paths.package_folder("tunesmith_core") / "start.py"))
        return self.command(self.python, "-I", "-X", "utf8", start, module, *arguments)

    def kill(self, pid: int, signal_name: str) -> None:
        """Signal a process group inside by the pid of its leader; ending wsl.exe alone would leave it running."""
        self.run("kill", f"-{signal_name}", "--", f"-{pid}")

    def gpu_problem(self) -> TunesmithError | None:
        """Return why no GPU can be used inside, or None when one can."""
        answer = self.run("sh", "-c", _GPU_QUESTION)
        words = answer.text.split()
        if "device" not in words:
            message = Message("{name} sees no GPU: /dev/dxg is missing.", name=self.distribution)
            hint = Message("Update the subsystem (wsl --update), and remove gpuSupport=false from .wslconfig.")
            return TunesmithError("wsl-libcuda-missing", message, hint=hint)
        if "library" not in words:
            path = f"{WSL_LIBRARIES}/libcuda.so.1"
            message = Message("{path} is missing in {name}.", path=path, name=self.distribution)
            hint = Message(
                "Install a current NVIDIA driver in Windows (never one inside Linux), then run: wsl --shutdown"
            )
            return TunesmithError("wsl-libcuda-missing", message, hint=hint)
        if not words[-1].isdecimal() or words[-1] == "0":
            return TunesmithError(
                "driver-missing", "nvidia-smi lists no GPU inside {distribution}.", distribution=self.distribution
            )
        return None

    def save(self) -> None:
        """Remember this distribution as the one that runs use."""
        path = files.private_folder(paths.config_dir()) / RECORD
        files.atomic_write_json(path, {"distribution": self.distribution, "python": self.python})

    @classmethod
    def load(cls) -> Self:
        """Return the distribution that was prepared.

        Raises:
            EnvironmentProblem: `wsl-not-usable` when none was.
        """
        try:
            data: dict[str, Any] = files.read_json(paths.config_dir() / RECORD)  # Any: JSON values
            return cls(str(data["distribution"]), str(data["python"]))
        except (OSError, ValueError, KeyError, TypeError):
            raise TunesmithError(
                "wsl-not-usable",
                "Training in the Windows Subsystem for Linux was not set up yet.",
                hint="Set it up on the Environment page (tunesmith wsl install), or train natively.",
            ) from None


def find_python(distribution: str) -> str | None:
    """Return the first Python inside a distribution that can carry the training environment, or None."""
    for name in PYTHON_NAMES:
        answer = Guest(distribution, name).run(name, "-I", "-c", _PYTHON_QUESTION)
        words = answer.text.split()
        if answer.code == 0 and len(words) == 3 and (words[1], words[2]) in _SUPPORTED:
            return words[0]
    return None
