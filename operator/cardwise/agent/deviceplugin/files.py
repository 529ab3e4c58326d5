"""The files of a node that the plugin reads and writes: kubelet's checkpoint, CDI specs, caches.

A Pod's CDI spec is written when its start was found right, and removed when it is gone; so the
specs that are there tell which Pods were let start since the node's boot. That is what they are
for where the runtime reads none.
"""

import contextlib
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cardwise.agent.deviceplugin import checkpoint
from cardwise.agent.deviceplugin.handover import Library, spec_tokens

_PREFIX: Final = "cardwise-"
_SUFFIX: Final = ".json"
_LIBRARY: Final = "libvgpu.so"
_EVERYBODY: Final = 0o777


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """Where things are on this node."""

    plugins: Path = Path("/var/lib/kubelet/device-plugins")
    """kubelet's directory of device plugins."""
    cdi: Path = Path("/var/run/cdi")
    """Where the container runtime looks for CDI specs."""
    hami_core: Path = Path("/usr/local/vgpu")
    lock: Path = Path("/tmp/vgpulock")  # noqa: S108 - HAMi-core's own

    def checkpoint(self) -> bytes:
        """Read kubelet's checkpoint.

        Raises:
            OSError: it can't be read.
        """
        return (self.plugins / checkpoint.FILE).read_bytes()

    def library(self) -> Library:
        """HAMi-core, as it is here: a library with a version in its name, or without."""
        found = [path.name for path in self.hami_core.glob(f"{_LIBRARY}*") if path.is_file()]
        return Library(
            directory=str(self.hami_core),
            file=max(found, default=""),
            licensed=(self.hami_core / "license").exists(),
        )

    def begun(self) -> frozenset[str]:
        """UIDs of the Pods that were let start."""
        return frozenset(
            path.name[len(_PREFIX) : -len(_SUFFIX)]
            for path in self.cdi.glob(f"{_PREFIX}*{_SUFFIX}")
        )

    def tokens(self, uid: str) -> frozenset[str]:
        """The tokens of a Pod's CDI spec; none where it has none that can be read."""
        with contextlib.suppress(OSError):
            return spec_tokens(self._spec(uid).read_bytes())
        return frozenset()

    def let_start(
        self, uid: str, spec: bytes, caches: Iterable[str], *, aliases: Mapping[str, str]
    ) -> None:
        """Write a Pod's CDI spec, whole or not at all, after what it refers to.

        Args:
            uid: the Pod's.
            spec: its text.
            caches: the names of the containers' own directories.
            aliases: by token, the directory of a container whose runtime was told of it before
                anybody knew its name.

        Raises:
            OSError: it can't be written.
        """
        if self.library().file:
            for place in (*(self._caches / name for name in caches), self.lock):
                place.mkdir(parents=True, exist_ok=True)
                # Whatever user the container's programs run as.
                place.chmod(_EVERYBODY)
            for token, name in aliases.items():
                alias = self._caches / token
                alias.unlink(missing_ok=True)
                alias.symlink_to(name)
        self.cdi.mkdir(parents=True, exist_ok=True)
        # Runtimes read names that end in .json or .yaml alone.
        partial = self._spec(uid).with_suffix(".partial")
        partial.write_bytes(spec)
        partial.replace(self._spec(uid))

    def forget(self, gone: Collection[str]) -> None:
        """Remove what was made for Pods that are gone.

        Raises:
            OSError: something can't be removed; the next call tries again, as long as the Pod's
                spec is there.
        """
        trouble: OSError | None = None
        for uid in gone:
            try:
                for token in self.tokens(uid):
                    (self._caches / token).unlink(missing_ok=True)
                for place in self._caches.glob(f"{uid}_*"):
                    shutil.rmtree(place)
                self._spec(uid).unlink(missing_ok=True)
            except OSError as error:
                trouble = error
        if trouble is not None:
            raise trouble

    @property
    def _caches(self) -> Path:
        return self.hami_core / "containers"

    def _spec(self, uid: str) -> Path:
        return self.cdi / f"{_PREFIX}{uid}{_SUFFIX}"
