"""What goes wrong again and again is logged once, until it is well or is wrong in another way."""

import logging

_log = logging.getLogger(__name__)


class Complaints:
    """What was last logged as wrong, by what it is about."""

    def __init__(self) -> None:
        """Nothing is wrong."""
        self._last: dict[str, str] = {}

    def complain(self, about: str, sentence: str) -> None:
        """Log a sentence where it is news about this thing."""
        if sentence != self._last.get(about):
            _log.warning("%s", sentence)
            self._last[about] = sentence

    def settle(self, about: str) -> None:
        """It is well again."""
        self._last.pop(about, None)

    def last(self, about: str) -> str:
        """What is wrong with it; empty where it is well."""
        return self._last.get(about, "")
