"""Chats that are one text, written down with who says what, as sets made for one model are often published."""

from __future__ import annotations

import re
from collections.abc import Iterator

Turn = dict[str, str]
"""A message: who speaks, as the text calls it, and what is said."""

ENCLOSED = tuple(
    re.compile(f"{begin}(.*?)(?:{end}|(?={begin})|$)", re.DOTALL)
    for begin, end in (
        (r"<\|im_start\|>[ ]*(\w+)\n", r"<\|im_end\|>"),
        (r"<start_of_turn>[ ]*(\w+)\n", "<end_of_turn>"),
        (r"<\|start_header_id\|>[ ]*(\w+)[ ]*<\|end_header_id\|>", r"<\|eot_id\|>"),
        (r"<\|(system|user|assistant|prompter)\|>", r"<\|end\|>"),
    )
)
"""What is said between marks: of ChatML, Gemma, Llama 3, and Zephyr, Phi and Open Assistant."""

BRACKETS = re.compile(r"\[(/?INST)\]")
SYSTEM = re.compile(r"\s*<<SYS>>(.*?)<</SYS>>", re.DOTALL)
"""Llama 2 and Mistral: a question in brackets, its answer behind them."""

NAMED = (
    re.compile(r"###\s*(Human|Assistant|User|System):"),
    re.compile(r"\[\|(Human|AI)\|\]"),
    re.compile(r"(?:^|\n)[ \t]{0,16}(Human|Assistant):"),
    re.compile(r"(?:^|\n)[ \t]{0,16}(USER|ASSISTANT|SYSTEM|FUNCTION RESPONSE):"),
    re.compile(r"(?:^|\n)[ \t]{0,16}(User|Assistant|System):"),
)
"""What is said behind a name. Space before it is limited, so that the time to look grows with the text alone."""

FORM = re.compile(r"(?:^|\n)###\s*(Instruction|Input|Response):?\s*\n")
"""Alpaca's form, with some words above it."""

HINTS = (
    *("<|im_start|>", "<start_of_turn>", "<|start_header_id|>", "<|system|>", "<|user|>", "<|assistant|>"),
    *("<|prompter|>", "[INST]", "###", "[|Human|]", "[|AI|]", "Human:", "Assistant:", "User:", "System:"),
    *("USER:", "ASSISTANT:", "SYSTEM:", "FUNCTION RESPONSE:"),
)
"""One of these is in every such text: a long one without is told apart before it is copied."""

ANSWERING = frozenset(("assistant", "model", "ai"))
"""Who answers, in small letters."""

MARKS = re.compile(r"<\|endoftext\|>|<\|begin_of_text\|>|<\|end_of_text\|>|</?s>|<[be]os>")
"""Where a text begins or ends for its model."""


def turns(text: str) -> list[Turn] | None:
    """Return who says what in a text that is a chat: it begins with a speaker, and an answer follows a question."""
    if not any(hint in text for hint in HINTS):
        return None
    text = MARKS.sub("\n", text).strip()
    styles = (_enclosed, _bracketed, _form, _named)
    found = next((found for style in styles if (found := style(text))), [])
    said = [(turn["role"].lower(), turn["content"].strip()) for turn in found]
    begins = next((role for role, _ in said if role != "system"), "assistant")
    is_chat = begins not in ANSWERING and any(role in ANSWERING and content for role, content in said)
    return [{"role": role, "content": content} for role, content in said] if is_chat else None


def is_transcript(value: object) -> bool:
    """Return whether a value is a text that is a chat."""
    return isinstance(value, str) and turns(value) is not None


def split_by(names: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    """Yield each name that a pattern's group finds in a text, and what follows up to the next one."""
    parts = names.split(text)
    return zip(parts[1::2], parts[2::2], strict=True)


def _enclosed(text: str) -> list[Turn]:
    for style in ENCLOSED:
        if style.match(text):
            return [{"role": each[1], "content": each[2]} for each in style.finditer(text)]
    return []


def _bracketed(text: str) -> list[Turn]:
    parts = BRACKETS.split(text)
    marks = parts[1::2]
    if parts[0] or not marks or marks != ["INST", "/INST"] * (len(marks) // 2):
        return []
    found: list[Turn] = []
    for question, answer in zip(parts[2::4], parts[4::4], strict=True):
        if system := SYSTEM.match(question):
            found.append({"role": "system", "content": system[1]})
            question = question[system.end() :]
        found += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return found


def _named(text: str) -> list[Turn]:
    for style in NAMED:
        if style.match(text):
            return [{"role": name, "content": said} for name, said in split_by(style, text)]
    return []


def _form(text: str) -> list[Turn]:
    """Return what a form says: words above it are a system message, an input belongs to its instruction."""
    fields = dict(split_by(FORM, text))
    if "Instruction" not in fields or "Response" not in fields:
        return []
    above = FORM.split(text, maxsplit=1)[0].strip()
    question = "\n\n".join(part.strip() for name in ("Instruction", "Input") if (part := fields.get(name, "")).strip())
    before = [{"role": "system", "content": above}] if above else []
    return [*before, {"role": "user", "content": question}, {"role": "assistant", "content": fields["Response"]}]
