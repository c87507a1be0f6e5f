"""What is done with models on this computer that takes its time: bring one in from elsewhere, read one whole."""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core.messages import Message
from tunesmith_core.operations.kind import AbsolutePath, Kind, Place


@dataclass(frozen=True, slots=True)
class FolderSpec:
    """The folder of a model."""

    path: AbsolutePath


IMPORT_FOLDER = Kind(
    name="import-model",
    title="Importing a model",
    cut_short="What has been copied is deleted. The next import starts from the beginning.",
    spec=FolderSpec,
    function="tunesmith_core.model_import:import_folder",
    place=Place.SAME,
    help="copy a model folder into the models of Tunesmith",
    options={"path": Message("the folder")},
)
VERIFY = Kind(
    name="verify-model",
    title="Verifying a model",
    cut_short="The next verification starts from the beginning.",
    spec=FolderSpec,
    function="tunesmith_core.model_import:verify",
    place=Place.SAME,
)
