"""Which news the person dismissed: a banner stays away, over restarts too, until what it is about changes."""

from __future__ import annotations

from tunesmith_gui.services.window_state import window_state


class Dismissed:
    """Remembers, by a banner's name, the state that was dismissed."""

    def __init__(self) -> None:
        self._file = window_state()

    def __contains__(self, news: tuple[str, str]) -> bool:
        """Whether the news (name, state) was dismissed."""
        name, state = news
        return self._file.value(_key(name)) == state

    def add(self, name: str, state: str) -> None:
        """The person dismissed a banner."""
        self._file.setValue(_key(name), state)

    def forget(self, name: str) -> None:
        """All is well: when it comes again, it is news."""
        self._file.remove(_key(name))


def _key(name: str) -> str:
    return f"dismissed/{name}"
