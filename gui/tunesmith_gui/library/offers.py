"""Models that can be had: those of the curated list and those that a hub finds, and what they are filtered by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tunesmith_core.curated_models import CuratedModel, has_words
from tunesmith_core.hardware import Hardware
from tunesmith_core.hub_fits import likely_fits
from tunesmith_core.hub_repository import HubModel
from tunesmith_core.operations.kinds.hub import SearchSpec
from tunesmith_gui.library.shelf import Placed
from tunesmith_gui.models.model_words import context_text, license_text, parameters_text, parts_text
from tunesmith_gui.tr import fill, number, size, translate

SIZES = {"any": (0.0, 0.0), "1": (0.0, 1.0), "4": (1.0, 4.0), "9": (4.0, 9.0), "20": (9.0, 20.0), "more": (20.0, 0.0)}
"""Billions of parameters, from and to."""

FAMILIES = {
    "gemma3_text": "Gemma 3",
    "gemma2": "Gemma 2",
    "granite": "Granite",
    "llama": "Llama, SmolLM 2",
    "mistral": "Mistral",
    "olmo2": "OLMo 2",
    "phi3": "Phi-3, Phi-4",
    "qwen2": "Qwen 2.5",
    "qwen3": "Qwen 3",
    "smollm3": "SmolLM 3",
}
"""Names of families by what config.json calls them."""

LICENSES = ("apache-2.0", "mit", "llama3.1", "llama3.2", "gemma")
FORMAT_BYTES = {"F64": 8, "F32": 4, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1}
"""Bytes of a number on the disk; of a format that is not listed 2."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that can be downloaded.

    Attributes:
        size_bytes: about what it takes on the disk; 0 when unknown.
        fits: how it would likely fit on this computer, by method.
        places: where a word may be that is searched for; () for its id only.
        gated: whether access has to be asked for.
        folder: where it is on this computer; None where it is not.
    """

    id: str
    model_type: str = ""
    year: int = 0
    num_parameters: int = 0
    size_bytes: int = 0
    licence: str = ""
    context_length: int = 0
    downloads: int = 0
    gated: bool = False
    folder: Path | None = None
    fits: Mapping[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the person looks for; "" and "any" for everything."""

    text: str = ""
    family: str = ""
    licence: str = ""
    size: str = "any"
    only_fitting: bool = False

    def takes(self, offer: Offer) -> bool:
        """Return whether an offer is what is looked for; what is not known of it counts against it."""
        smallest, largest = SIZES[self.size]
        billions = offer.num_parameters / 1e9
        return (
            has_words(self.text, *(offer.places or (offer.id,)))
            and self.family in ("", offer.model_type)
            and (not self.licence or offer.licence.casefold() == self.licence)
            and (self.size == "any" or smallest < billions <= (largest or billions))
            and (not self.only_fitting or _may_fit(offer))
        )

    def spec(self) -> SearchSpec:
        """Return the same as a hub is asked for it."""
        smallest, largest = SIZES[self.size]
        return SearchSpec(self.text.strip(), self.family, self.licence, smallest, largest)


def _may_fit(offer: Offer) -> bool:
    return any(verdict != "exceeds" for verdict in offer.fits.values())


Fits = Mapping[int, Mapping[str, str]]
"""The verdicts by method of each number of parameters."""

Here = Mapping[str, Placed]
"""Models on this computer by their ids; their own shapes tell what they fit for."""


def fits_of(sizes: Iterable[int], hardware: Hardware) -> Fits:
    """Return whether models of these sizes would fit. Takes its time, so it is called on a worker thread."""
    return {size: likely_fits(size, hardware) for size in sizes}


def curated_offer(model: CuratedModel, fits: Fits, here: Here) -> Offer:
    """Return a model of the curated list as an offer."""
    placed = here.get(model.id)
    return Offer(
        model.id,
        model.model_type,
        model.year,
        model.num_parameters,
        2 * model.num_parameters,
        model.licence,
        model.context_length,
        gated=model.gated,
        folder=placed.model.path if placed else None,
        fits=placed.fits if placed else fits.get(model.num_parameters, {}),
        places=model.places,
    )


def hub_offer(
    model: HubModel, fits: Fits, here: Here, contexts: Mapping[str, int] | None = None
) -> Offer:
    """Return a model of the hub as an offer; a search doesn't tell the context, but the curated list may."""
    placed = here.get(model.id)
    return Offer(
        model.id,
        model.model_type,
        0,
        model.num_parameters,
        model.num_parameters * FORMAT_BYTES.get(model.dtype, 2),
        model.licence,
        model.context_length or (contexts or {}).get(model.id, 0),
        model.downloads,
        bool(model.gated) or model.private,
        placed.model.path if placed else None,
        placed.fits if placed else fits.get(model.num_parameters, {}),
    )


def offer_words(offer: Offer) -> str:
    """Size, license and context in one line."""
    downloads = fill(translate("Offers", "%1 downloads"), number(offer.downloads)) if offer.downloads else ""
    return parts_text(
        parameters_text(offer.num_parameters) if offer.num_parameters else translate("Offers", "size unknown"),
        fill(translate("Offers", "about %1"), size(offer.size_bytes)) if offer.size_bytes else "",
        license_text(offer.licence),
        context_text(offer.context_length),
        str(offer.year or ""),
        downloads,
    )
