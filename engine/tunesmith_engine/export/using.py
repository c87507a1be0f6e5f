"""What becomes of a finished export: programs of this computer that take it, and commands for others."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.export import ExportFormat, ExportSpec
from tunesmith_core.plain_text import pasted
from tunesmith_engine.export.gguf.modelfile import MODELFILE_NAME
from tunesmith_engine.export.other_programs import (
    create_in_ollama,
    lm_studio_folder,
    ollama_program,
    put_into_lm_studio,
)

BASE_FILE = "BASE_MODEL.gguf"
"""Stands for the base model's own file, which is not exported."""


class Takers:
    """The programs that an export is given to, looked for before anything is written."""

    def __init__(self, spec: ExportSpec) -> None:
        """Find the programs.

        Raises:
            UserError: `other-program-failed` when one is not there, `export-unsupported` for a format that they don't
                take.
        """
        if spec.format != "gguf" and (spec.ollama or spec.lm_studio):
            raise TunesmithError(
                "export-unsupported",
                "Ollama and LM Studio take GGUF files, but the format is {format}.",
                hint="Add --format gguf.",
                format=spec.format,
            )
        self._name = spec.ollama
        self._ollama = ollama_program() if spec.ollama else ""
        self._lm_studio = lm_studio_folder() if spec.lm_studio else None

    def hand_over(self, host: Host, folder: Path) -> dict[str, str]:
        """Give them a finished export, and return what it is called there, by program.

        Raises:
            UserError: `other-program-failed`.
        """
        taken = {}
        if self._lm_studio or self._ollama:
            host.phase("handing over")
        if self._lm_studio:
            taken["lm_studio"] = str(put_into_lm_studio(self._lm_studio, gguf_file(folder)))
        if self._ollama:
            create_in_ollama(self._ollama, self._name, folder)
            taken["ollama"] = self._name
        return taken


def gguf_file(folder: Path) -> Path:
    """Return the GGUF file of an export."""
    return next(folder.glob("*.gguf"))


def in_llama_cpp(model: list[str], system_prompt: str) -> str:
    """Return the command that talks to a model in llama.cpp, under the system prompt that it was trained with.

    One of several lines can't be pasted into every shell.
    """
    asked = ["-sys", system_prompt] if system_prompt and "\n" not in system_prompt else []
    return pasted(["llama-cli", *model, *asked])


def commands(kind: ExportFormat, folder: Path, base: str, name: str, system_prompt: str = "") -> list[str]:
    """Return commands that use an export, ready to be copied.

    Args:
        kind: its format.
        folder: of the export.
        base: path or name of the base model.
        name: of the model in Ollama.
        system_prompt: that the model was trained with, "" for none.
    """
    match kind:
        case "merged":
            return [pasted(["vllm", "serve", str(folder)])]
        case "adapter":
            return [pasted(["vllm", "serve", base, "--enable-lora", "--lora-modules", f"tuned={folder}"])]
        case "gguf":
            told = [in_llama_cpp(["-m", str(gguf_file(folder))], system_prompt)]
            if (folder / MODELFILE_NAME).is_file():
                told.append(pasted(["ollama", "create", name, "-f", str(folder / MODELFILE_NAME)]))
            return told
        case "gguf-adapter":
            return [in_llama_cpp(["-m", BASE_FILE, "--lora", str(gguf_file(folder))], system_prompt)]
