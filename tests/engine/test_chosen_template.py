"""A base model without a chat template learns chats by one of the catalogue, and whoever takes it along gets that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.engine.exports import export, trained_run
from tests.engine.test_chat_templates import CHATS, STOPS, learned, tokenizer_of
from tunesmith_core.chat_templates import CHAT_TEMPLATES, OWN
from tunesmith_core.errors import TunesmithError
from tunesmith_engine.model.chat_template import take_chat_template, taking_texts

SISTERS = {"chatml": "qwen2_5", "llama-3": "llama3", "gemma": "gemma", "phi-3": "phi3"}
"""The same family's own template, as TRL has it."""


def base_tokenizer(name: str) -> Any:  # Any: a transformers tokenizer
    """A tokenizer with the tokens of a template and none of its own."""
    result = tokenizer_of("", "<eos>")
    result.chat_template = None
    result.add_special_tokens({"additional_special_tokens": list(CHAT_TEMPLATES[name].tokens)})
    return result


@pytest.fixture
def base_model(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model without its template."""
    folder = tmp_path / "base"
    folder.mkdir()
    for path in tiny_model.iterdir():
        if path.name != "chat_template.jinja":
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("name", CHAT_TEMPLATES)
def test_every_answer_is_learned_with_its_stop(name: str, kind: str) -> None:
    tokenizer = base_tokenizer(name)
    take_chat_template(tokenizer, name)
    answers = [turn["content"] for turn in CHATS[kind] if turn["role"] == "assistant"]
    found = learned(tokenizer, CHATS[kind])
    assert [stretch.strip() for stretch in found] == [answer + tokenizer.eos_token for answer in answers]
    assert tokenizer.eos_token == (CHAT_TEMPLATES[name].stop or "<eos>")


@pytest.mark.parametrize("kind", ["answer", "answers", "question"])
@pytest.mark.parametrize("name", SISTERS)
def test_a_family_reads_what_its_own_template_writes(name: str, kind: str) -> None:
    sister = tokenizer_of(SISTERS[name])
    tokenizer = tokenizer_of(SISTERS[name])
    take_chat_template(tokenizer, name)
    system = [{"role": "system", "content": "Be."}] if name == "chatml" else []
    for prompts in (False, True):
        ours, theirs = (
            each.apply_chat_template([*system, *CHATS[kind]], tokenize=False, add_generation_prompt=prompts)
            for each in (tokenizer, sister)
        )
        # Phi-3's writes its stop once more behind a whole chat.
        end = "" if prompts or name != "phi-3" else sister.eos_token
        assert ours == theirs.removeprefix("<bos>").removesuffix(end)


def test_what_the_system_says_stands_before_the_first_question() -> None:
    for name in ("gemma", "mistral"):
        tokenizer = base_tokenizer(name)
        take_chat_template(tokenizer, name)
        text = tokenizer.apply_chat_template(CHATS["system"], tokenize=False)
        assert text.count("Be.") == 1
        assert "Be.\n\nWho?" in text


def test_a_model_without_the_tokens_is_refused() -> None:
    tokenizer = base_tokenizer("chatml")
    with pytest.raises(TunesmithError, match="lacks <|start_header_id|>".replace("|", r"\|")) as refused:
        take_chat_template(tokenizer, "llama-3")
    assert refused.value.code == "chat-template-tokens-missing"
    tokenizer.eos_token = None
    with pytest.raises(TunesmithError, match="a token that ends a document"):
        take_chat_template(tokenizer, "plain")


@pytest.mark.usefixtures("home", "whole_vocabulary", "few_prompts")
def test_a_merged_model_writes_chats_as_they_were_trained(base_model: Path, tmp_path: Path) -> None:
    run, _ = trained_run(base_model)
    values = json.loads(run.spec_path.read_text())
    assert values["model"]["chat_template"] == OWN
    values["model"]["chat_template"] = "alpaca"
    run.spec_path.write_text(json.dumps(values))
    export(run, tmp_path / "merged")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    text = tokenizer.apply_chat_template(CHATS["answer"], tokenize=False)
    assert text == "### Instruction:\nWho?\n\n### Response:\nMe.<|im_end|>\n\n"
    generation = json.loads((tmp_path / "merged" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2]


OF_IMAGES = {
    "by index": (
        "{% for message in messages %}<|{{ message['role'] }}|>"
        "{% if message['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
        "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
        "{% elif part['type'] == 'image' %}<image>{% endif %}{% endfor %}<eos>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>: {% endif %}"
    ),
    "by filter": (
        "{% for message in messages %}<|{{ message['role'] }}|>"
        "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}<image>{% endfor %}"
        "{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}{{ part['text'] }}{% endfor %}"
        "<eos>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
}
"""Ways in which models for images write lists of parts, and nothing of a string."""


@pytest.mark.parametrize("name", OF_IMAGES)
def test_a_template_of_parts_takes_texts(name: str) -> None:
    chat = CHATS["system"]
    parts = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in chat]
    tokenizer = tokenizer_of("", OF_IMAGES[name])
    expected = tokenizer.apply_chat_template(parts, tokenize=False)
    take_chat_template(tokenizer, OWN)
    assert tokenizer.apply_chat_template(chat, tokenize=False) == expected
    assert tokenizer.apply_chat_template(parts, tokenize=False) == expected
    answers = [turn["content"] for turn in chat if turn["role"] == "assistant"]
    assert [stretch.strip() for stretch in learned(tokenizer, chat)] == [f"{answer}<eos>" for answer in answers]


@pytest.mark.parametrize("name", STOPS)
def test_other_templates_stay_as_they_are(name: str) -> None:
    template = tokenizer_of(name).chat_template
    assert taking_texts(template) == template
