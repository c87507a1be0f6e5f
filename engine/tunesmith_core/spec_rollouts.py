"""The section of a RunSpec about learning from rewards: what the model writes for each prompt and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunesmith_core.declared import declared

RIGHT, EXACT, NUMBER, TASK, PATTERN, JSON, SCHEMA, LENGTH, LANGUAGE, TOOL_CALL, MODEL, PYTHON = REWARDS = (
    *("right", "exact", "number", "task", "pattern", "json", "schema", "length", "language", "tool-call"),
    *("model", "python"),
)
"""The kinds of rewards. Every one is between 0 and 1, but a reward model's and a person's own, which may be any number.
"""

NEED_ANSWERS = frozenset({RIGHT, EXACT, NUMBER})
"""Those that compare with the answer in the data."""

MOST_REWARDS = 20

NEED_PACKAGES = frozenset({TASK, SCHEMA})
"""Those that need packages which are installed apart, see `environments.rewards_packages`."""

OF_KINDS = {
    "pattern": PATTERN,
    "path": PYTHON,
    "schema": SCHEMA,
    "model": MODEL,
    "squash": MODEL,
    "language": LANGUAGE,
    "shortest": LENGTH,
    "longest": LENGTH,
}
"""Which kind of reward a setting is for; every other one is for all kinds."""

READ = {PYTHON: "path", SCHEMA: "schema", MODEL: "model"}
"""The kinds of rewards that read a file or folder, and the setting that names it."""


@dataclass(kw_only=True, slots=True)
class RewardSpec:
    """One reward; a run adds up all of its rewards."""

    kind: str = declared(
        RIGHT,
        label="Reward",
        meaning=(
            "What is rewarded. Right answer compares with the answer in the data, as suits it: numbers, choices, JSON "
            "or short texts. Your own Python file can reward anything."
        ),
        choices=REWARDS,
    )
    weight: float = declared(
        1.0,
        label="Weight of the reward",
        meaning="What the reward is multiplied by. A negative weight is a punishment.",
        minimum=-1000.0,
        maximum=1000.0,
    )
    pattern: str = declared(
        "",
        label="Pattern",
        meaning="For the reward for a pattern: a regular expression that is found in good answers.",
    )
    path: str = declared(
        "",
        label="Python file",
        meaning=(
            "For your own reward: a file with a function reward(prompt, answer, expected) that returns a number. More "
            "parameters get the columns of the row by their names."
        ),
    )
    schema: str = declared(
        "",
        label="JSON schema",
        meaning="For the reward for a JSON schema: a file with the schema. Answers that it allows are rewarded.",
    )
    model: str = declared(
        "",
        label="Reward model",
        meaning=(
            "For the score of a reward model: the folder of a run of yours that learned to score answers, of its "
            "export, or of another model for it. It must have the tokens and the chat template of the trained model."
        ),
    )
    squash: bool = declared(
        False,
        label="Between 0 and 1",
        meaning="For the score of a reward model: makes it a number between 0 and 1, with 0.5 for a score of 0.",
    )
    language: str = declared(
        "", label="Language", meaning="For the reward for a language: its code, such as en, de or zh."
    )
    shortest: int = declared(
        0,
        label="Shortest answer",
        meaning="For the reward for length: answers with fewer tokens get less, in proportion.",
        unit="tokens",
        minimum=0,
        maximum=1_000_000,
    )
    longest: int = declared(
        100,
        label="Longest answer",
        meaning="For the reward for length: answers with more tokens get less, and none from twice as many on.",
        unit="tokens",
        minimum=1,
        maximum=1_000_000,
    )

    @property
    def read(self) -> tuple[str, str]:
        """Its kind, and the file or folder that it reads; "" where it reads none, or none is chosen."""
        return self.kind, str(getattr(self, READ[self.kind])).strip() if self.kind in READ else ""


@dataclass(kw_only=True, slots=True)
class RolloutSpec:
    """The answers that a model writes to learn from them."""

    group_size: int = declared(
        8,
        label="Answers per prompt",
        meaning="How many answers the model writes to each prompt. They are compared with each other.",
        minimum=2,
        maximum=1024,
        effect="More answers tell better from worse more clearly and take longer.",
    )
    max_tokens: int = declared(
        256,
        label="Longest answer",
        meaning="Where an answer is cut while the model practices.",
        unit="tokens",
        minimum=1,
        maximum=131_072,
        effect="Longer answers take more time and memory.",
    )
    temperature: float = declared(
        1.0,
        label="Temperature",
        meaning="How random the answers are while the model practices. Training uses the same temperature.",
        minimum=0.1,
        maximum=5.0,
        effect="Higher values try more. Lower ones stay with what the model finds likely.",
    )
    updates: int = declared(
        1,
        label="Updates per round",
        meaning="How often the model is trained on the same answers before it writes new ones.",
        minimum=1,
        maximum=64,
        effect="More learns more from each answer. Clipping then limits how far the model moves.",
    )
    skip_cut: bool = declared(
        False,
        label="Ignore cut answers",
        meaning="Learns nothing from answers that were cut at the longest length, as DAPO recommends.",
    )
    rewards: list[RewardSpec] = field(default_factory=lambda: [RewardSpec()])
