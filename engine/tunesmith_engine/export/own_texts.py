"""The first texts that a run learned to rate: what an export of it is compared by."""

from __future__ import annotations

import logging
from itertools import islice

from transformers import PreTrainedTokenizerBase

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.prepare import rendered_rows
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.weighing import sources_of

logger = logging.getLogger(__name__)


def own_texts(spec: RunSpec, tokenizer: PreTrainedTokenizerBase, most: int) -> list[list[int]]:
    """Return the tokens of the first texts in the data of a run; nothing where its files can't be read any more."""
    portions = Portions()
    renderer = Renderer(tokenizer, spec.data, portions)
    try:
        source = sources_of(spec, portions)[0]
        rendered = [each for _, each in islice(rendered_rows(source, renderer), most)]
        tokenised = list(renderer.tokenise(rendered))
    except TunesmithError as error:
        logger.warning("The data of the run can't be read: %s", error.message)
        return []
    return [each.example.input_ids.tolist() for each in tokenised]
