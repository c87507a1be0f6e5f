"""A finished GGUF file reaches Ollama and LM Studio, and Ollama renders chats as the model's own template does."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.engine import causal_types
from tests.engine.exports import export, trained_run
from tests.engine.tokenizers_made import write_tokenizer
from tunesmith_core.errors import TunesmithError
from tunesmith_core.plain_text import pasted
from tunesmith_core.runs import Run
from tunesmith_engine.export import other_programs, using
from tunesmith_engine.export.gguf import modelfile as modelfile_module
from tunesmith_engine.export.gguf.modelfile import MODELFILE_NAME, frame_of, modelfile

pytestmark = pytest.mark.usefixtures("home", "unproven")

LLAMA_3 = (
    "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}<|{{ m.role }}|>\n\n{{ m.content | trim }}"
    "<|over|>{% endfor %}{% if add_generation_prompt %}<|assistant|>\n\n{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|system|>You are kind.<|over|>\n{% endif %}{% for m in messages %}"
    "<|{{ m.role }}|>{{ m.content }}<|over|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% set first = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}"
    "{% for m in messages %}{% if m.role != 'system' %}<turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ first if loop.first or (loop.index0 == 1 and first) else '' }}{{ m.content }}</turn>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}[{{ m.role }}]"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{{ '{{' }}{% endif %}"
)
THINKING = DEFAULT_SYSTEM.replace("<|assistant|>{% endif %}", "<|assistant|><think></think>{% endif %}")
COUNTED = DEFAULT_SYSTEM.replace("<|over|>\n{% endfor", "{{ loop.index }}<|over|>\n{% endfor")

TEMPLATES = {
    "llama-3": LLAMA_3,
    "default": DEFAULT_SYSTEM,
    "gemma": GEMMA,
    "no system": NO_SYSTEM,
    "thinking": THINKING,
}


def _tokenizer(folder: Path, template: str, begins: bool = False) -> Any:
    write_tokenizer("qwen-2", folder, begins=begins)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    return tokenizer


def _modelfile(tokenizer: Any, stops: Sequence[int] = ()) -> str:
    found = modelfile("a.gguf", tokenizer, stops)
    assert found
    assert not found.lacks_system_prompt
    return found.text


def _by_ollama(text: str, chat: list[dict[str, str]]) -> str:
    """Render the template of a Modelfile, of whose language only what we write is understood here."""
    template = re.search(r'TEMPLATE """(.*?)"""', text, re.DOTALL)
    assert template
    head, _, rest = template[1].partition("{{ range .Messages }}")
    body, _, tail = rest.partition("{{ end }}{{ end }}")
    has_system = any(message["role"] == "system" for message in chat)
    said = "" if has_system and ".System" in head else re.sub(r"{{ (if not \.System|end) }}", "", head)
    parts = re.split(r'{{ (?:else )?if eq \.Role "(\w+)" }}', body)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    said += "".join(texts[each["role"]].replace("{{ .Content }}", each["content"]) for each in chat)
    return (said + tail).replace('{{ "{{" }}', "{{")


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("name", list(TEMPLATES))
def test_ollama_renders_a_chat_as_the_template_does(name: str, begins: bool, tmp_path: Path) -> None:
    tokenizer = _tokenizer(tmp_path, TEMPLATES[name], begins)
    text = _modelfile(tokenizer)
    assert text.startswith("FROM ./a.gguf\n")
    system = [] if name == "no system" else [{"role": "system", "content": "Be brief."}]
    talk = [("user", "Hi"), ("assistant", "Yes?"), ("user", "What is 1 + 1?"), ("assistant", "2"), ("user", "Thanks")]
    whole = [{"role": role, "content": content} for role, content in talk]
    for chat in (whole, whole[:1], system + whole, system + whole[:3]):
        expected = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        # Ollama puts it there by itself.
        expected = expected.removeprefix(tokenizer.bos_token) if begins else expected
        assert _by_ollama(text, chat) == expected


def test_stop_tokens_are_named(tmp_path: Path) -> None:
    tokenizer = _tokenizer(tmp_path, DEFAULT_SYSTEM.replace("<|over|>", "<|im_end|>"))
    text = _modelfile(tokenizer, [tokenizer.convert_tokens_to_ids("<|im_start|>")])
    assert re.findall(r'PARAMETER stop "(.*)"', text) == ["<|endoftext|>", "<|im_end|>", "<|im_start|>"]


@pytest.mark.parametrize(
    ("template", "prompt", "is_told"),
    [
        (DEFAULT_SYSTEM, "Answer as a\nsailor.", True),
        (DEFAULT_SYSTEM, 'Say "ahoy"', False),
        (DEFAULT_SYSTEM, 'Use """ for code.', False),
        (TEMPLATES["no system"], "Answer as a sailor.", False),
        ("", "Answer as a sailor.", False),
    ],
)
def test_the_system_prompt_of_the_rows_is_told(template: str, prompt: str, is_told: bool, tmp_path: Path) -> None:
    found = modelfile("a.gguf", _tokenizer(tmp_path, template), [], prompt)
    assert found
    assert (f'SYSTEM """{prompt}"""\n' in found.text, found.lacks_system_prompt) == (is_told, not is_told)
    assert ("SYSTEM" in found.text) == is_told


@pytest.mark.parametrize(
    "template", [COUNTED, "{{ messages[5].content }}", "{{ messages[0].role }}", DEFAULT_SYSTEM + '"""']
)
def test_a_template_that_ollama_can_not_say_has_no_modelfile(template: str, tmp_path: Path) -> None:
    assert modelfile("a.gguf", _tokenizer(tmp_path, template), []) is None


def test_a_model_without_a_template_gets_the_text_alone(tmp_path: Path) -> None:
    text = _modelfile(_tokenizer(tmp_path, ""))
    assert 'TEMPLATE """{{ .Prompt }}"""' in text


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run on a small model that llama.cpp has."""
    write_tokenizer("qwen-2", tmp_path / "tokenizer")
    folder = causal_types.write_model("llama", tmp_path / "model", tmp_path / "tokenizer", vocab_size=480)
    return trained_run(folder)[0]


@pytest.fixture
def ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that notes what it is asked, and fails for the name "bad"; returns where it notes."""
    notes = tmp_path / "asked.json"
    script = tmp_path / "fake_ollama.py"
    script.write_text(
        "import json, os, sys\n"
        f"open({str(notes)!r}, 'w').write(json.dumps([sys.argv[1:], os.getcwd(), open('Modelfile').read()]))\n"
        "print('transferring model data')\n"
        "sys.exit('Error: something is wrong' if sys.argv[2] == 'bad' else 0)\n"
    )
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / ("ollama.cmd" if sys.platform == "win32" else "ollama")
    program.write_text(
        f'@"{sys.executable}" "{script}" %*\n'
        if sys.platform == "win32"
        else f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return notes


def test_ollama_gets_the_export(run: Run, ollama: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    answer = export(run, target, "gguf", ollama="mine")
    arguments, folder, text = json.loads(ollama.read_text())
    assert arguments == ["create", "mine", "-f", "Modelfile"]
    assert Path(folder) == target
    assert text == (target / MODELFILE_NAME).read_text(encoding="utf-8")
    assert re.search(r"FROM ./(.*)", text)[1] == next(target.glob("*.gguf")).name  # type: ignore[index]
    assert answer["ollama"] == "mine"
    # What is there already is given to it again.
    ollama.unlink()
    assert export(run, target, "gguf", ollama="mine")["existed"] is True
    assert ollama.exists()


def test_what_ollama_says_is_told_and_the_export_stays(run: Run, ollama: Path, tmp_path: Path) -> None:
    with pytest.raises(TunesmithError, match="did not create bad: Error: something is wrong") as failure:
        export(run, tmp_path / "out", "gguf", ollama="bad")
    assert failure.value.code == "other-program-failed"
    assert ollama.exists()
    assert list((tmp_path / "out").glob("*.gguf"))


def test_a_template_that_ollama_can_not_say_is_told(
    run: Run, ollama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelfile_module, "frame_of", lambda _: None)
    with pytest.raises(TunesmithError, match="can't use this chat template"):
        export(run, tmp_path / "out", "gguf", ollama="mine")
    assert not ollama.exists()


@pytest.mark.parametrize("options", [{"ollama": "mine"}, {"lm_studio": True}])
def test_a_program_that_is_missing_is_told_first(
    options: dict[str, Any], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_programs.shutil, "which", lambda _: None)
    monkeypatch.setattr(other_programs.Path, "home", lambda: tmp_path)
    with pytest.raises(TunesmithError, match="was not found") as missing:
        export(run, tmp_path / "out", "gguf", **options)
    assert missing.value.code == "other-program-failed"
    with pytest.raises(TunesmithError, match="take GGUF files"):
        export(run, tmp_path / "out", "merged", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("links", [True, False])
def test_lm_studio_finds_the_export(
    links: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_programs.Path, "home", lambda: tmp_path)
    models = tmp_path / ".lmstudio" / "models"
    models.mkdir(parents=True)
    if not links:
        monkeypatch.setattr(other_programs.os, "link", lambda *_: (_ for _ in ()).throw(OSError(18, "another drive")))
    answer = export(run, tmp_path / "out", "gguf", lm_studio=True)
    file = next((tmp_path / "out").glob("*.gguf"))
    place = Path(answer["lm_studio"])
    assert place == models / "tunesmith" / file.stem / file.name
    assert place.samefile(file) is links
    assert place.read_bytes() == file.read_bytes()
    assert [path.name for path in place.parent.iterdir()] == [file.name]
    assert export(run, tmp_path / "out", "gguf", lm_studio=True)["lm_studio"] == str(place)
    place.unlink()
    place.write_bytes(b"mine")
    with pytest.raises(TunesmithError, match="is not this export"):
        export(run, tmp_path / "out", "gguf", lm_studio=True)
    assert place.read_bytes() == b"mine"


def test_commands_are_ready_to_be_copied(tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "a.gguf").touch()
    kinds = ("merged", "adapter", "gguf", "gguf-adapter")
    told = {kind: using.commands(kind, folder, "base", "mine")[0] for kind in kinds}  # type: ignore[arg-type]
    quoted = f'"{folder}' if sys.platform == "win32" else f"'{folder}"
    assert told["merged"].startswith(f"vllm serve {quoted}")
    assert told["adapter"].startswith("vllm serve base --enable-lora --lora-modules ")
    assert told["gguf"].startswith(f"llama-cli -m {quoted}")
    assert told["gguf-adapter"].startswith(f"llama-cli -m BASE_MODEL.gguf --lora {quoted}")
    assert len(using.commands("gguf", folder, "base", "mine")) == 1
    assert using.commands("gguf", folder, "base", "mine", "Be brief.")[0].endswith(f" -sys {pasted(['Be brief.'])}")
    assert "-sys" not in using.commands("gguf", folder, "base", "mine", "Two\nlines")[0]
    (folder / MODELFILE_NAME).touch()
    assert using.commands("gguf", folder, "base", "mine")[1].startswith(f"ollama create mine -f {quoted}")


def test_a_frame_is_what_is_put_around_messages(tmp_path: Path) -> None:
    frame = frame_of(_tokenizer(tmp_path, DEFAULT_SYSTEM))
    assert frame
    assert frame.start == "<|system|>You are kind."
    assert frame.answer == ""
