"""The section of a RunSpec about learning from a bigger model: which one, and how both are compared."""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core.declared import declared


@dataclass(kw_only=True, slots=True)
class TeacherSpec:
    """The model that is learned from."""

    path: str = declared(
        "",
        label="Bigger model",
        meaning=(
            "Folder or hub id of the bigger model that is learned from. It must have the same tokenizer as the base "
            "model, as models of one family do."
        ),
    )
    weights: str = declared(
        "none",
        label="Weights of the bigger model",
        meaning="None keeps the bigger model at 16 bits. NF4 stores its linear layers and experts in 4 bits.",
        choices=("none", "nf4"),
        effect="NF4 needs about a quarter of the memory, and the bigger model answers a little less exactly.",
    )
    beta: float = declared(
        0.5,
        label="Forward or backward",
        meaning=(
            "How the two models are compared (beta of the generalized Jensen-Shannon divergence). At 0 the model "
            "learns to cover everything that the bigger model might say (forward KL), at 1 it keeps to what that one "
            "finds most likely (reverse KL). 0.5 is in between."
        ),
        minimum=0.0,
        maximum=1.0,
    )
    own_answers: float = declared(
        0.0,
        label="Share of own answers",
        meaning=(
            "In so many of the steps the model answers the prompts itself and learns what the bigger model would have "
            "said at each word (lambda of GKD). With none it learns from the answers in the data only, with all from "
            "its own answers only. Half of them is a good value where the data has prompts."
        ),
        minimum=0.0,
        maximum=1.0,
        effect="Own answers correct the model's own mistakes. Writing them takes longer.",
    )
    max_tokens: int = declared(
        128,
        label="Longest own answer",
        meaning="Where an answer that the model writes itself is cut.",
        unit="tokens",
        minimum=1,
        maximum=131_072,
        effect="Longer answers take more time and memory.",
    )
