"""What a checkpoint notes of the files of its base model, and which of them have changed since.

Hashing gigabytes at every start would take longer than loading them. A note therefore holds size, date and a hash of
samples: the head of a file and blocks all over it. The hash of all bytes is taken in the background after the first
save, and compared where only the date differs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.model_folder import INDEX_NAME, weight_files
from tunesmith_core.spec_changes import OTHER_TOKENS
from tunesmith_core.tokenizer_files import TOKENIZER_FILES

HEAD_BYTES = 1 << 20
BLOCK_BYTES = 4096
NUM_BLOCKS = 64
WHOLE_BYTES = 4 << 20
"""Files up to this size are hashed whole at once."""

FIXED_NAMES = frozenset({"config.json", "added_tokens.json", INDEX_NAME}.union(*TOKENIZER_FILES))
"""An adapter belongs to these as it does to the weights: with others it would mean something else."""

TOLD_NAMES = {
    "chat_template.jinja": OTHER_TOKENS,
    "chat_template.json": OTHER_TOKENS,
    "tokenizer_config.json": OTHER_TOKENS,
    "special_tokens_map.json": OTHER_TOKENS,
    "generation_config.json": Message("Samples can end elsewhere. Training is not affected."),
}
"""Files that may change, and what that does to the rest of the run."""

NOTHING_NOTED = Message("The checkpoint is from an earlier version, so changes to the base model can't be detected.")


@dataclass(frozen=True, slots=True)
class FileNote:
    """What is noted of a file.

    Attributes:
        num_bytes: its size.
        modified_ns: its date.
        sampled: SHA-256 of samples, or of all bytes of a small file.
        sha256: of all bytes; "" while nobody has read them.
    """

    num_bytes: int
    modified_ns: int
    sampled: str
    sha256: str


def note(path: Path) -> FileNote:
    """Return the note of a file, reading little of a large one. Raises OSError."""
    stat = path.stat()
    if stat.st_size <= WHOLE_BYTES:
        whole = files.sha256_file(path)
        return FileNote(stat.st_size, stat.st_mtime_ns, whole, whole)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(HEAD_BYTES))
        for number in range(NUM_BLOCKS):
            file.seek((stat.st_size - BLOCK_BYTES) * (number + 1) // NUM_BLOCKS)
            digest.update(file.read(BLOCK_BYTES))
    return FileNote(stat.st_size, stat.st_mtime_ns, digest.hexdigest(), "")


def is_other(earlier: Mapping[str, FileNote], now: Mapping[str, FileNote]) -> bool:
    """Return whether notes of files are of another model than earlier ones, as far as sizes and samples tell."""
    names = (earlier.keys() | now.keys()) - TOLD_NAMES.keys()
    return bool(earlier) and any(_differ(earlier.get(name), now.get(name)) for name in names)


def _differ(old: FileNote | None, new: FileNote | None) -> bool:
    return old is None or new is None or (old.num_bytes, old.sampled) != (new.num_bytes, new.sampled)


class BaseModel:
    """The files of a checked model folder, noted."""

    def __init__(self, folder: Path, earlier: Mapping[str, FileNote] | None) -> None:
        """Note the files.

        Args:
            folder: of the model.
            earlier: what a checkpoint noted; None in a run that begins.
        """
        self._folder, self._earlier = folder, earlier or {}
        self._is_compared = earlier is not None
        names = {*FIXED_NAMES, *TOLD_NAMES, *weight_files(folder)}
        self.notes = {name: note(folder / name) for name in sorted(names) if (folder / name).is_file()}
        for name, new in self.notes.items():
            old = self._earlier.get(name)
            if old and dataclasses.replace(new, sha256=old.sha256) == old:
                self.notes[name] = old
        self._thread: threading.Thread | None = None

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the notes as JSON values."""
        return {name: dataclasses.asdict(each) for name, each in self.notes.items()}

    def check(self) -> list[Message]:
        """Return a sentence for each file that changed since the checkpoint and may.

        Raises:
            UserError: `base-model-differs` when weights, configuration or tokenizer changed.
        """
        if not self._earlier:
            return [NOTHING_NOTED] if self._is_compared else []
        changed = [name for name in self._names() if self._has_changed(name)]
        self._refuse(changed)
        told = [Message("{name} changed. {effect}", name=name, effect=TOLD_NAMES[name]) for name in changed]
        unsure = [name for name, new in self.notes.items() if name in self._earlier and self._is_unsure(name, new)]
        return told + [
            Message("{name} has another date than before. Only samples of it were compared: they are equal.", name=name)
            for name in unsure
        ]

    def check_samples(self) -> None:
        """Refuse what sizes and samples show, without reading a large file whole. Raises as `check`."""
        if self._earlier:
            self._refuse([name for name in self._names() if self._differs(name)])

    def _names(self) -> list[str]:
        return sorted(self._earlier.keys() | self.notes.keys())

    def _refuse(self, changed: list[str]) -> None:
        fixed = [name for name in changed if name not in TOLD_NAMES]
        if fixed:
            raise TunesmithError(
                "base-model-differs",
                "{folder}: the base model is not the one that this run was trained on. Changed since: {names}.",
                folder=self._folder,
                names=", ".join(fixed),
            )

    def _differs(self, name: str) -> bool:
        return _differ(self._earlier.get(name), self.notes.get(name))

    def _has_changed(self, name: str) -> bool:
        if self._differs(name):
            return True
        old, new = self._earlier[name], self.notes[name]
        if old.modified_ns == new.modified_ns or new.sha256 or not old.sha256:
            return False
        self.notes[name] = dataclasses.replace(new, sha256=files.sha256_file(self._folder / name))
        return self.notes[name].sha256 != old.sha256

    def _is_unsure(self, name: str, new: FileNote) -> bool:
        return not new.sha256 and new.modified_ns != self._earlier[name].modified_ns

    def hash_in_background(self) -> None:
        """Read large files whole, once, beside the training."""
        if self._thread is None and not all(each.sha256 for each in self.notes.values()):
            self._thread = threading.Thread(target=self._hash, name="model-hash", daemon=True)
            self._thread.start()

    def _hash(self) -> None:
        for name, each in self.notes.items():
            # A file that is gone or changes meanwhile keeps its note; the next resume sees what became of it.
            with contextlib.suppress(OSError):
                path = self._folder / name
                whole = each.sha256 or files.sha256_file(path)
                if path.stat().st_mtime_ns == each.modified_ns:
                    self.notes = self.notes | {name: dataclasses.replace(each, sha256=whole)}
