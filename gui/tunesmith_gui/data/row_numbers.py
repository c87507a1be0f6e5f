"""The numbers beside the rows of a table, however many there are."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QHeaderView, QWidget

_NUM_MEASURED = 8


class RowNumbers(QHeaderView):
    """A vertical header that finds its width by a few of its sections.

    Qt measures two hundred of them whenever rows are added, and each asks the model, which reads a file.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(Qt.Orientation.Vertical, parent)
        self.setSectionsClickable(True)
        self.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.setHighlightSections(False)

    def sizeHint(self) -> QSize:
        """As wide as the widest of those spread over all, and of the last."""
        size, last = QSize(), self.count() - 1
        for section in range(last, -1, -max(1, self.count() // _NUM_MEASURED)):
            size = size.expandedTo(self.sectionSizeFromContents(section))
        return size
