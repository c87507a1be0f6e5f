"""Which tokens of a row are learned, for chat templates of every kind; TRL and expectations by hand are the oracle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tunesmith_core.datafmt import Chat, Conversation, PromptCompletion, Text
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data.answers import ChatRenderer
from tunesmith_engine.data.example import Example
from tunesmith_engine.data.render import Renderer

QUESTION, ANSWER = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}
MORE, LAST = {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes\nsure"}
CHAT = Chat((QUESTION, ANSWER, MORE, LAST))

MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
)
ALWAYS_PROMPTS = (
    "{% for m in messages %}<|endoftext|>{{ m.role }}\n\n{{ m.content | trim }}<|im_end|>{% endfor %}"
    "{{ '<|endoftext|>assistant\n\n' }}"
)
ALWAYS_PROMPTS_ODD_ENDS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ '<|im_end|>' if m.role == 'assistant' else '#' }}"
    "{% endfor %}[assistant]"
)
THINKS = (
    "{% set at = namespace(last=0) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set at.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}"
    "{% if loop.index0 > at.last %}<think>\n{% if '</think>' in m.content %}"
    "{{ m.content.split('</think>')[0].split('<think>')[-1].strip() }}{% endif %}{{ '\n' }}</think>\n\n{% endif %}"
    "{{ m.content.split('</think>')[-1].lstrip() }}{% else %}{{ m.content }}{% endif %}<|im_end|>{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OTHER_NAMES = (
    "<|endoftext|>{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<|im_start|>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
OPENS_THINKING = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>{{ m.content.split('</think>')[-1] }}<|im_end|>"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|><think>\n{% endif %}"
)
PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TWO_STOPS = (
    "{% for m in messages %}<|im_start|>{% if m.role == 'assistant' %}bot<answer>{{ m.content }}</answer><|im_end|>"
    "{% else %}{{ m.role }}:{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>bot<answer>{% endif %}"
)
"""Of Cohere 2's kind: a token ends the answer, another ends the turn, and neither is called special."""

LAST_ENDS_OTHERWISE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{{ '<|endoftext|>' if loop.last and m.role == 'assistant' else '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Of the kind of gpt-oss: the last answer of a chat has a stop token of its own."""

MARKED_WITHOUT_STOP = MARKED.replace(
    "{{ m.content }}<|im_end|>{% endgeneration %}", "{{ m.content }}{% endgeneration %}<|im_end|>"
)
NO_STOP = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NEVER_PROMPTS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
NO_HEADERS = "{% for m in messages %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}> {% endif %}"
HIDES_ANSWERS = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
REPEATS = "{% for m in messages %}|{{ m.content }}|{{ m.content }}{% endfor %}"


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def render(tokenizer: PreTrainedTokenizerBase) -> Callable[..., Example]:
    def one(conversation: Conversation, template: str | None = None, **data: Any) -> Example:
        if template is not None:
            tokenizer.chat_template = template
        renderer = Renderer(tokenizer, DataSpec(**data))
        (tokenised,) = renderer.tokenise([renderer.render(conversation, "data.jsonl, line 3")])
        return tokenised.example

    return one


@pytest.fixture
def shown(tokenizer: PreTrainedTokenizerBase, render: Callable[..., Example]) -> Callable[..., str]:
    """Render and write the learned stretches in [[brackets]]."""

    def mark(conversation: Conversation, template: str | None = None, **data: Any) -> str:
        example = render(conversation, template, **data)
        return "".join(_pieces(tokenizer, example))

    return mark


def _pieces(tokenizer: PreTrainedTokenizerBase, example: Example) -> Iterator[str]:
    learned = example.labels != -100
    assert (example.labels[learned] == example.input_ids[learned]).all()
    edges = [0, *(np.flatnonzero(np.diff(learned)) + 1).tolist(), len(learned)]
    for start, end in pairwise(edges):
        text = tokenizer.decode(example.input_ids[start:end])
        yield f"[[{text}]]" if learned[start] else text


def test_chatml_without_marks_learns_answers_and_their_ends(shown: Callable[..., str]) -> None:
    assert shown(CHAT) == (
        "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n[[Me.<|im_end|>]]\n"
        "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n[[Yes\nsure<|im_end|>]]\n"
    )


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (
            MARKED,
            "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n[[Me.<|im_end|>]]\n"
            "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n[[Yes\nsure<|im_end|>]]\n",
        ),
        (
            ALWAYS_PROMPTS,
            "<|endoftext|>user\n\nWho?<|im_end|><|endoftext|>assistant\n\n[[Me.<|im_end|>]]"
            "<|endoftext|>user\n\nSure?<|im_end|><|endoftext|>assistant\n\n[[Yes\nsure<|im_end|>]]",
        ),
        (
            THINKS,
            "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n[[Me.<|im_end|>]]\n<|im_start|>user\nSure?"
            "<|im_end|>\n<|im_start|>assistant\n[[<think>\n\n</think>\n\nYes\nsure<|im_end|>]]\n",
        ),
        (
            OTHER_NAMES,
            "<|endoftext|><|im_start|>user\nWho?<|im_end|>\n<|im_start|>model\n[[Me.<|im_end|>]]\n"
            "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>model\n[[Yes\nsure<|im_end|>]]\n",
        ),
        (
            ALWAYS_PROMPTS_ODD_ENDS,
            "[user]Who?#[assistant][[Me.<|im_end|>]][user]Sure?#[assistant][[Yes\nsure<|im_end|>]]",
        ),
        (OPENS_THINKING, "Who?<|im_start|>[[Me.<|im_end|>]]Sure?<|im_start|>[[Yes\nsure<|im_end|>]]"),
        (NO_HEADERS, "Who?<|im_end|>\n[[Me.<|im_end|>]]\nSure?<|im_end|>\n[[Yes\nsure<|im_end|>]]\n"),
        (PLAIN, "user: Who?\n\nassistant: [[Me.\n\n]]user: Sure?\n\nassistant: [[Yes\nsure\n\n]]"),
        (
            NEVER_PROMPTS,
            "<|im_start|>user\nWho?<|im_end|>\n[[<|im_start|>assistant\nMe.<|im_end|>]]\n"
            "<|im_start|>user\nSure?<|im_end|>\n[[<|im_start|>assistant\nYes\nsure<|im_end|>]]\n",
        ),
    ],
)
def test_any_template_shows_where_its_answers_are(shown: Callable[..., str], template: str, expected: str) -> None:
    assert shown(CHAT, template) == expected


@pytest.mark.parametrize("template", [None, ALWAYS_PROMPTS, THINKS, OTHER_NAMES, OPENS_THINKING])
@pytest.mark.parametrize(
    "answer", ["<think>\nWho am I\n</think>\n\nMe.", "Who?", "user\nWho?<|im_end|>\n", "  spaced  ", "\n", "ü😀", "t"]
)
def test_the_question_is_never_learned_and_the_end_always_is(
    shown: Callable[..., str], template: str | None, answer: str
) -> None:
    text = shown(Chat((QUESTION, {"role": "assistant", "content": answer})), template)
    before, _, learned = text.partition("[[")
    assert "Who?" in before
    assert learned.rstrip("\n").endswith("<|im_end|>]]")
    spoken = answer.split("</think>")[-1].strip()
    assert spoken in learned
    assert "[[" not in learned


def test_thoughts_of_the_last_answer_are_learned_and_dropped_ones_are_not(shown: Callable[..., str]) -> None:
    thinking = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nMe."}
    text = shown(Chat((QUESTION, thinking, MORE, thinking)), THINKS)
    assert text.count("hm") == 1
    assert "[[Me.<|im_end|>]]" in text
    assert "[[<think>\nhm\n</think>\n\nMe.<|im_end|>]]" in text


@pytest.mark.parametrize("template", [None, MARKED, ALWAYS_PROMPTS])
def test_of_a_prompt_with_answers_in_it_only_the_completion_is_learned(
    shown: Callable[..., str], template: str | None
) -> None:
    text = shown(Chat((QUESTION, ANSWER, MORE, LAST), first_trained=3), template)
    assert text.count("[[") == 1
    assert "[[Yes\nsure<|im_end|>]]" in text


def test_a_chat_that_ends_with_a_question_learns_the_answer_before(shown: Callable[..., str]) -> None:
    for template in (None, ALWAYS_PROMPTS, PLAIN):
        text = shown(Chat((QUESTION, ANSWER, MORE)), template)
        assert text.count("[[") == 1
        assert "[[Me." in text


TOOL = {"role": "tool", "content": "42"}


@pytest.mark.parametrize("end", [(), (MORE,), (TOOL,), (MORE, LAST, MORE), (TOOL, LAST, MORE)])
@pytest.mark.parametrize(
    "template", [None, THINKS, ALWAYS_PROMPTS, TWO_STOPS, MARKED, MARKED_WITHOUT_STOP, NEVER_PROMPTS]
)
def test_every_answer_is_learned_with_its_stop_however_the_chat_ends(
    tokenizer: PreTrainedTokenizerBase, shown: Callable[..., str], template: str | None, end: tuple[dict[str, str], ...]
) -> None:
    tokenizer.add_tokens(["<answer>", "</answer>"], special_tokens=False)
    stop = "</answer><|im_end|>" if template == TWO_STOPS else "<|im_end|>"
    chat = Chat((QUESTION, ANSWER, *end))
    learned = "".join(piece for piece in shown(chat, template).split("[[")[1:])
    for answer in [message for message in chat.messages if message["role"] == "assistant"]:
        assert f"{answer['content']}{stop}]]" in learned
    assert learned.count("]]") == sum(message["role"] == "assistant" for message in chat.messages)


def test_the_last_answer_of_a_chat_may_have_a_stop_of_its_own(shown: Callable[..., str]) -> None:
    text = shown(Chat((QUESTION, ANSWER, MORE, LAST)), LAST_ENDS_OTHERWISE)
    assert "[[Me.<|im_end|>]]" in text
    assert "[[Yes\nsure<|endoftext|>]]" in text


@pytest.mark.parametrize(
    ("template", "has_stop"), [(None, True), (THINKS, True), (TWO_STOPS, True), (NO_STOP, False), (PLAIN, False)]
)
def test_a_template_without_a_stop_is_told(
    tokenizer: PreTrainedTokenizerBase, template: str | None, has_stop: bool
) -> None:
    tokenizer.chat_template = template or tokenizer.chat_template
    assert ChatRenderer(tokenizer).has_stop is has_stop


def test_a_chat_that_starts_with_the_assistant_is_learned_from_its_content(shown: Callable[..., str]) -> None:
    expected = "<|im_start|>assistant\n[[Me.<|im_end|>]]\n<|im_start|>user\nSure?<|im_end|>\n"
    assert shown(Chat((ANSWER, MORE)), NEVER_PROMPTS) == expected


def test_every_token_is_learned_when_asked_for(shown: Callable[..., str]) -> None:
    assert shown(Chat((QUESTION, ANSWER)), train_on="all") == (
        "[[<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\nMe.<|im_end|>\n]]"
    )
    assert shown(PromptCompletion("q", "a", as_chat=False), train_on="all") == "[[qa<|im_end|>]]"


def test_the_system_prompt_is_put_before_chats_without_one(shown: Callable[..., str]) -> None:
    assert shown(CHAT, system_prompt="Be brief.").startswith(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user"
    )
    own = Chat(({"role": "system", "content": "Own."}, QUESTION, ANSWER))
    assert "Be brief" not in shown(own, system_prompt="Be brief.")
    prompt = Chat((QUESTION, ANSWER, MORE, LAST), first_trained=3)
    assert shown(prompt, system_prompt="Be brief.").count("[[") == 1


def test_a_leading_token_in_the_text_is_not_doubled(
    tokenizer: PreTrainedTokenizerBase, shown: Callable[..., str]
) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    assert shown(Text("<|endoftext|>Once.")) == "[[<|endoftext|>Once.<|im_end|>]]"


def test_plain_texts_end_with_the_end_token(shown: Callable[..., str]) -> None:
    assert shown(PromptCompletion("Who? ", "Me.", as_chat=False)) == "Who? [[Me.<|im_end|>]]"
    assert shown(PromptCompletion("", "Me.<|im_end|>", as_chat=False)) == "[[Me.<|im_end|>]]"
    choice = PromptCompletion("Who?\nA. You", "A", as_chat=False, between="\n")
    assert shown(choice) == "Who?\nA. You\n[[A<|im_end|>]]"
    assert shown(Text("Once.")) == "[[Once.<|im_end|>]]"


@pytest.mark.parametrize("completion", ["Me.", "Me.<|im_end|>"])
def test_a_prompt_and_its_completion_are_a_chat_where_there_is_a_template(
    tokenizer: PreTrainedTokenizerBase, shown: Callable[..., str], completion: str
) -> None:
    chat = "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n[[Me.<|im_end|>]]\n"
    assert shown(PromptCompletion("Who?", completion)) == chat
    assert shown(PromptCompletion("Who?", completion), system_prompt="Be brief.").endswith(chat)
    tokenizer.chat_template = None
    assert shown(PromptCompletion("Who?", completion)) == "Who?[[Me.<|im_end|>]]"


def test_what_a_person_should_know_about_the_rows_is_noted(tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = Renderer(tokenizer, DataSpec())
    renderer.render(PromptCompletion("Who?", "Me."), "line 1")
    assert (renderer.notes, renderer.makes_chats) == ({}, True)
    renderer.render(PromptCompletion("Who?", "Me.", as_chat=False), "line 2")
    assert list(renderer.notes) == ["dataset-raw-text"]
    tokenizer.chat_template = NO_STOP
    renderer = Renderer(tokenizer, DataSpec())
    renderer.render(CHAT, "line 1")
    assert "tiny" in renderer.notes["chat-template-no-stop"]


def test_the_tokenizers_own_leading_token_comes_before_plain_texts(
    tokenizer: PreTrainedTokenizerBase, shown: Callable[..., str]
) -> None:
    from tokenizers.processors import TemplateProcessing

    for ending in ("", " <|im_end|>"):
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"<|endoftext|> $A{ending}", special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)]
        )
        assert shown(Text("Once.")) == "[[<|endoftext|>Once.<|im_end|>]]"
        assert shown(PromptCompletion("Who? ", "Me.", as_chat=False)) == "<|endoftext|>Who? [[Me.<|im_end|>]]"


def test_the_tokenizers_own_leading_token_comes_before_no_chat(
    tokenizer: PreTrainedTokenizerBase, shown: Callable[..., str]
) -> None:
    from tokenizers.processors import TemplateProcessing

    plain = shown(CHAT)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    assert shown(CHAT) == plain


def test_a_token_that_reaches_into_the_answer_is_learned(tokenizer: PreTrainedTokenizerBase) -> None:
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    core["model"]["vocab"]["\u0120M"] = len(core["model"]["vocab"])
    core["model"]["merges"] = [["\u0120", "M"]]
    merging = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(core)), eos_token="<|im_end|>")
    renderer = Renderer(merging, DataSpec())
    (tokenised,) = renderer.tokenise([renderer.render(PromptCompletion("Who? ", "Me.", as_chat=False), "line 1")])
    assert "".join(_pieces(merging, tokenised.example)) == "Who?[[ Me.<|im_end|>]]"


@pytest.mark.parametrize("template", [HIDES_ANSWERS, REPEATS])
def test_a_template_that_hides_its_answers_is_refused_by_name(render: Callable[..., Example], template: str) -> None:
    with pytest.raises(UserError, match=r"line 3: the chat template hides where the answer in message 2") as caught:
        render(CHAT, template)
    assert caught.value.code == "chat-template-unclear"
    assert render(CHAT, template, train_on="all").num_trained_tokens


def test_a_template_that_refuses_a_chat_names_the_row_and_the_reason(render: Callable[..., Example]) -> None:
    with pytest.raises(UserError, match=r"line 3: the chat template rejects this chat: System role not supported"):
        render(CHAT, OTHER_NAMES, system_prompt="Be brief.")
    with pytest.raises(UserError, match="roles must alternate"):
        render(Chat((QUESTION, QUESTION, ANSWER)), OTHER_NAMES)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for i in range(10000000) %}{% endfor %}", "blocks ranges larger than MAX_RANGE (100000)"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth exceeded"),
        ("{% if %}{{ messages }}", "Expected an expression, got 'end of statement block'"),
        ("{{ ''.__class__.x }}", "access to attribute '__class__' of 'str' object is unsafe"),
    ],
)
def test_a_template_that_is_at_fault_itself_is_not_said_of_the_data(
    render: Callable[..., Example], tokenizer: PreTrainedTokenizerBase, tmp_path: Path, template: str, words: str
) -> None:
    tokenizer.name_or_path = str(tmp_path)
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_text("{}")
        with pytest.raises(UserError) as caught:
            render(CHAT, template)
        assert caught.value.code == "model-files-missing-or-corrupt"
        message = caught.value.message
        assert message.startswith(f"{tmp_path / name}: the chat template can't be used: ")
        assert message.endswith(f"{words}. It failed at data.jsonl, line 3.")
        assert "template" in (caught.value.hint or "")


def test_a_refusal_by_a_template_ends_with_one_period(render: Callable[..., Example]) -> None:
    with pytest.raises(UserError, match=r"this chat: Not like that\.$"):
        render(CHAT, "{{ raise_exception('Not like that.') }}")


def test_chats_need_a_template_and_texts_do_not(render: Callable[..., Example]) -> None:
    with pytest.raises(UserError) as caught:
        render(CHAT, "")
    assert caught.value.code == "dataset-chat-template-missing"
    assert render(Text("Once."), "").num_trained_tokens


def test_a_template_can_not_reach_python(render: Callable[..., Example], tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    escape = "{{ messages.__class__.__mro__[1].__subclasses__() }}{{ ''.__class__.__base__ }}" + str(canary)
    with pytest.raises(UserError, match="chat template can't be used"):
        render(CHAT, escape)
    assert not canary.exists()


def test_a_tokenizer_without_offsets_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    class Slow:
        is_fast = False
        name_or_path = "slow"

    with pytest.raises(EnvironmentProblem) as caught:
        Renderer(Slow(), DataSpec())  # type: ignore[arg-type]
    assert caught.value.code == "tokenizer-missing-dep"
    assert tokenizer.is_fast


def _trl_labels(
    tokenizer: PreTrainedTokenizerBase, model: Path, rows: list[dict[str, Any]], out: Path, **options: Any
) -> list[list[int]]:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(
        output_dir=str(out), report_to=[], max_length=None, packing=False, use_cpu=True, bf16=False, **options
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    return [list(row["labels"]) for row in trainer.train_dataset]


@pytest.mark.filterwarnings("ignore")
def test_labels_equal_trls(
    tokenizer: PreTrainedTokenizerBase, tiny_model: Path, tmp_path: Path, render: Callable[..., Example]
) -> None:
    chats = [
        [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": f"It is ü{number}."}]
        for number in range(3)
    ]
    chats.append(json.loads(json.dumps(CHAT.messages)))
    tokenizer.chat_template = MARKED
    expected = _trl_labels(
        tokenizer, tiny_model, [{"messages": chat} for chat in chats], tmp_path / "chat", assistant_only_loss=True
    )
    assert [render(Chat(tuple(chat))).labels.tolist() for chat in chats] == expected
    pairs = [("Who? ", "Me."), ("a", "ü b"), ("x\n", "\ny")]
    expected = _trl_labels(
        tokenizer, tiny_model, [{"prompt": prompt, "completion": answer} for prompt, answer in pairs], tmp_path / "pair"
    )
    assert [render(PromptCompletion(*pair, as_chat=False)).labels.tolist() for pair in pairs] == expected
    texts = ["Once.", "Twice ü"]
    expected = _trl_labels(tokenizer, tiny_model, [{"text": text} for text in texts], tmp_path / "text")
    assert [render(Text(text)).labels.tolist() for text in texts] == expected
