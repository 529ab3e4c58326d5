"""A directory for one run, which is removed afterwards even when the run was killed.

A killed run cannot clean up behind itself, and etcd alone leaves more than 60 MB. So every run
holds a file lock in its directory, and every new run removes the directories that nobody holds.
"""

import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import IO

_PREFIX = "cardwise-controlplane-"
_LOCK = ".held"


class Scratch:
    """A directory of one's own, temporary unless a place for it is given."""

    path: Path

    def __init__(self, path: Path | None = None, *, keep: bool = False) -> None:
        """Make it. A directory that the caller named is the caller's: it stays."""
        self._keep = keep or path is not None
        if path is None:
            _remove_abandoned()
            path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock: IO[bytes] | None = None
        if not self._keep:
            self._lock = (self.path / _LOCK).open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the directory, unless it is to be kept."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock.close()
            self._lock = None


def _remove_abandoned() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with lock.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # held by a run that lives, removed just now, or another user's
            continue
