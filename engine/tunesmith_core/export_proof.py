"""What the proof of an export says: how near it is to the trained model, in words and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tunesmith_core.messages import Message, joined

UNEQUAL_NATS = 1e-2
"""Mean divergence above which an export is not called equal, though every next token that was compared is the same."""

TOLD_NATS = 0.1
"""Mean divergence from which on a person is told: a judgement, by the bundled model, which has 0.06 to 0.11 in q4_k_m
and 0.54 in q5_k_m."""

SAME_NATS = 5e-8
"""Mean divergence of a model from itself, in another order of sums, is below: 1e-8 in 40 small models of many types."""

LEAST_NATS = 1e-4
"""Divergences below are too small to be told as numbers."""

ROUNDING, POSITIONS = "rounding", "positions"
"""Why the numbers of an export differ from the trained model's: the format has fewer bits, or llama.cpp stretches
positions in another way."""

Proof = Mapping[str, Any]  # Any: JSON values
Likeness = Literal["equal", "rounded", "changed"]

TITLES: Mapping[Likeness, Message] = {
    "equal": Message("Verified equal"),
    "rounded": Message("Verified: only rounding differs"),
    "changed": Message("Exported, but the answers change"),
}
BY_POSITIONS = Message("Verified: only stretched positions differ")
BY_BOTH = Message("Verified: only rounding and stretched positions differ")
UNVERIFIED = Message("Exported, but not verified")
NATS_HELP = Message("Nats tell how far apart the probabilities of two models are, and 0 is equal.")


def distance(nats: float) -> Message:
    """Return a divergence with its unit; of one that is too small to be told as a number, what it is below."""
    if nats < LEAST_NATS:
        return Message("less than {nats} nats", nats=f"{LEAST_NATS:.4f}")
    return Message("{nats} nats", nats=f"{nats:.2g}")


def likeness(proof: Proof) -> Likeness:
    """Return how near an export is to the trained model.

    It is equal only where every next token is the same, and where the format changes nothing: the few positions that
    are compared may all have the same next token though others have not.
    """
    if proof["mean_kl"] > TOLD_NATS:
        return "changed"
    by_format = (proof.get("rounding") or {}).get("mean_kl", 0.0)
    differs = proof["mean_kl"] > UNEQUAL_NATS or proof["agreement"] < 1 or by_format > SAME_NATS
    return "rounded" if differs else "equal"


def title(proof: Proof | None) -> Message:
    """Return in few words what the proof of an export says, None for one that was not compared."""
    if not proof:
        return UNVERIFIED
    found = likeness(proof)
    if found == "rounded" and POSITIONS in causes(proof):
        return BY_BOTH if ROUNDING in causes(proof) else BY_POSITIONS
    return TITLES[found]


def causes(proof: Proof) -> tuple[str, ...]:
    """Return why an export differs, ROUNDING or POSITIONS or both; proofs of earlier versions don't tell."""
    return tuple(proof.get("causes") or (ROUNDING,))


def reference(proof: Proof) -> Message | None:
    """Return how far the trained model is from itself with what the format does to it, None where it does nothing."""
    if not proof.get("rounding"):
        return None
    given = {"distance": distance(proof["rounding"]["mean_kl"]), "type": proof.get("type") or Message("this type")}
    if causes(proof) == (POSITIONS,):
        return Message(
            "The trained model with positions stretched as in llama.cpp gives {distance}.", distance=given["distance"]
        )
    if POSITIONS in causes(proof):
        return Message(
            "Rounding the trained model to {type}, with positions stretched as in llama.cpp, gives {distance}.", **given
        )
    return Message("Rounding the trained model to {type}, without converting it, gives {distance}.", **given)


def figures(proof: Proof) -> Message:
    """Return the figures of a proof, beside those of the trained model with what the format does to it."""
    return joined([_compared(proof), *filter(None, [reference(proof)])])


def _compared(proof: Proof) -> Message:
    given = {"share": f"{proof['agreement']:.1%}", "places": proof["num_positions"]}
    nats = proof["mean_kl"]
    if proof.get("rates"):
        at_most = f"{max(nats, LEAST_NATS):.2g}"
        return Message(
            "Rates {share} of {places} texts alike, at most {nats} nats apart on average.", **given, nats=at_most
        )
    return Message(
        "Same next token at {share} of {places} positions, {distance} apart.", **given, distance=distance(nats)
    )


def changed_answers(proof: Proof) -> Message | None:
    """Return what a person is told of an export that answers otherwise than the trained model, None of another.

    It rounds as its format does, so it is right, but its numbers are too small.
    """
    if likeness(proof) != "changed":
        return None
    if ROUNDING not in causes(proof):
        return Message(
            "llama.cpp stretches positions in another way, which changes the answers: {agreement} of the next tokens "
            "are the same as in the trained model.",
            agreement=f"{proof['agreement']:.0%}",
        )
    if proof.get("rates"):
        return Message(
            "The 16-bit numbers of this model change what it says: {agreement} of the texts are rated as the trained "
            "model rates them. The adapter on its base model loses nothing.",
            agreement=f"{proof['agreement']:.0%}",
        )
    return Message(
        "The smaller numbers of this file change the answers: {agreement} of the next tokens are the same as in the "
        "trained model. A larger type, such as q8_0, loses less.",
        agreement=f"{proof['agreement']:.0%}",
    )
