"""Chat templates of the families' instruct models, for base models that come without one.

Each is the form in which the family's own instruct models were trained, as their published tokenizers write it, cut
down to plain turns. A base model knows the tokens of its family's template only where its vocabulary has them.
"""

from __future__ import annotations

from dataclasses import dataclass

OWN = "own"
"""The template that comes with the model."""

TURN = "{%- for turn in messages %}"
PROMPT = "{%- endfor %}{%- if add_generation_prompt %}"
END = "{%- endif %}"

SYSTEM_FIRST = (
    "{%- set turns = messages %}{%- set system = '' %}"
    "{%- if messages and messages[0].role == 'system' %}"
    "{%- set system = messages[0].content + '\n\n' %}{%- set turns = messages[1:] %}"
    "{%- endif %}"
)
"""For families whose chats have no system turn: what it says stands before the first question."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """How a family writes chats.

    Attributes:
        text: Jinja, without the token that begins a document, which `tunesmith_engine.model.chat_template` puts there.
        stop: the token that ends an answer; "" where it is the one that ends a document.
        tokens: that the model's vocabulary must have.
    """

    text: str
    stop: str = ""
    tokens: tuple[str, ...] = ()


def _headed(open_role: str, close_role: str, stop: str, *, tail: str = "", answerer: str = "assistant") -> str:
    """Return the template of a family that writes each turn as a role, its text and a token that ends it."""
    role = "turn.role" if answerer == "assistant" else f"('{answerer}' if turn.role == 'assistant' else turn.role)"
    return (
        f"{TURN}{{{{- '{open_role}' + {role} + '{close_role}' + turn.content + '{stop}{tail}' }}}}"
        f"{PROMPT}{{{{- '{open_role}{answerer}{close_role}' }}}}{END}"
    )


CHAT_TEMPLATES = {
    "plain": ChatTemplate(
        f"{TURN}"
        "{%- if turn.role == 'assistant' %}{{- 'Assistant: ' + turn.content + eos_token + '\n\n' }}"
        "{%- elif turn.role == 'system' %}{{- turn.content + '\n\n' }}"
        "{%- else %}{{- (turn.role | capitalize) + ': ' + turn.content + '\n\n' }}{%- endif %}"
        f"{PROMPT}{{{{- 'Assistant:' }}}}{END}"
    ),
    "alpaca": ChatTemplate(
        f"{TURN}"
        "{%- if turn.role == 'assistant' %}{{- '### Response:\n' + turn.content + eos_token + '\n\n' }}"
        "{%- elif turn.role == 'system' %}{{- turn.content + '\n\n' }}"
        "{%- else %}{{- '### Instruction:\n' + turn.content + '\n\n' }}{%- endif %}"
        f"{PROMPT}{{{{- '### Response:\n' }}}}{END}"
    ),
    "chatml": ChatTemplate(
        _headed("<|im_start|>", "\n", "<|im_end|>", tail="\n"), "<|im_end|>", ("<|im_start|>", "<|im_end|>")
    ),
    "llama-3": ChatTemplate(
        _headed("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
        "<|eot_id|>",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    "gemma": ChatTemplate(
        SYSTEM_FIRST
        + _headed("<start_of_turn>", "\n", "<end_of_turn>", tail="\n", answerer="model")
        .replace("in messages", "in turns")
        .replace("turn.content", "(system if loop.first else '') + turn.content"),
        "<end_of_turn>",
        ("<start_of_turn>", "<end_of_turn>"),
    ),
    "mistral": ChatTemplate(
        SYSTEM_FIRST + "{%- for turn in turns %}"
        "{%- if turn.role == 'assistant' %}{{- ' ' + turn.content + eos_token }}"
        "{%- else %}{{- '[INST] ' + (system if loop.first else '') + turn.content + '[/INST]' }}{%- endif %}"
        "{%- endfor %}",
        "",
        ("[INST]", "[/INST]"),
    ),
    "phi-3": ChatTemplate(
        _headed("<|", "|>\n", "<|end|>", tail="\n"), "<|end|>", ("<|user|>", "<|assistant|>", "<|end|>")
    ),
}
"""Name -> template. "plain" and "alpaca" need no token but the one that ends a document, so any model takes them."""
