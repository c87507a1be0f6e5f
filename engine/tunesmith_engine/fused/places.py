"""Which weights of a fused model lie in the computer's memory instead of the GPU's: its embedding, packed experts."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from tunesmith_engine.host_memory import HostTable, has_own_memory
from tunesmith_engine.model.expert_places import ExpertPlaces


class Places:
    """Moves them as a plan says.

    Attributes:
        embedding_bytes: memory of the input embedding; 0 if it stays.
        experts: of the model.
    """

    def __init__(self, model: nn.Module, embedding: nn.Embedding, device: torch.device, embedding_stays: bool) -> None:
        """Find what may leave the device.

        Args:
            model: whose weights.
            embedding: its input embedding.
            device: of the run.
            embedding_stays: something needs it on the device.
        """
        self.experts = ExpertPlaces(model, device)
        self._embedding = embedding
        self._host_table: HostTable | None = None
        stays = embedding_stays or not has_own_memory(device)
        self.embedding_bytes = 0 if stays else embedding.weight.nbytes

    @property
    def embedding_on_host(self) -> bool:
        """Whether the embedding lies in the computer's memory now."""
        return self._host_table is not None

    @property
    def host_bytes(self) -> int:
        """What has left the device by now."""
        return self.experts.host_bytes + (self.embedding_bytes if self.embedding_on_host else 0)

    def place(self, embedding_on_host: bool, experts_on_host: int) -> None:
        """Move what does not lie where a plan has it.

        Raises:
            PinningError: this machine gives no pinned memory for all of it; some has gone.
        """
        self.experts.place(experts_on_host)
        if embedding_on_host and self._host_table is None:
            self._host_table = HostTable(self._embedding.weight.data)
            self._embedding.weight.data = self._host_table.view
            torch.cuda.empty_cache()
        elif not embedding_on_host and self._host_table is not None:
            self._embedding.weight.data = self._host_table.taken_back()
            self._host_table = None

    def bring_back(self) -> None:
        """Move the embedding to the device if there is room; where it is, it serves as well, as experts do."""
        with contextlib.suppress(torch.OutOfMemoryError):
            self.place(False, self.experts.num_on_host)
