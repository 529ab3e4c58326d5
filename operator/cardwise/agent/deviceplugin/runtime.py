"""Whether the node's container runtime reads CDI specs: as the settings say, or by its version."""

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from cardwise.wire.fields import at, text

_log = logging.getLogger(__name__)

_VERSION: Final = re.compile(r"v?(\d+)\.")


def reads_cdi(runtime: str) -> bool:
    """What a runtime of this version does by itself.

    Args:
        runtime: as a Node tells it, ``containerd://2.1.4``.

    Returns:
        True for CRI-O and containerd 2. False for containerd 1, which has no CDI before 1.7 and has
        it turned off in 1.7; and for those that nobody knows, because what is told without CDI
        reaches every runtime.
    """
    name, _, version = runtime.partition("://")
    if name == "cri-o":
        return True
    found = _VERSION.match(version)
    return name == "containerd" and found is not None and int(found[1]) >= 2


@dataclass(slots=True, kw_only=True)
class Runtime:
    """The container runtime of one node."""

    node: Callable[[], Awaitable[dict[str, Any] | None]]
    """The Node as it is; raises ``ApiError``."""
    said: bool | None = None
    """What the settings say; None: the version tells."""
    _version: str = field(default="", init=False)

    @property
    def cdi(self) -> bool | None:
        """Whether it reads CDI specs; None: nobody knows yet."""
        if self.said is not None:
            return self.said
        return reads_cdi(self._version) if self._version else None

    async def look(self) -> None:
        """Learn the version, unless the settings have said enough.

        Raises:
            ApiError: the API server refuses or does not answer.
        """
        if self.said is not None:
            return
        version = text(at(await self.node(), "status", "nodeInfo", "containerRuntimeVersion"))
        if version and version != self._version:
            self._version = version
            _log.info(
                "the container runtime is %s: cards are told %s CDI",
                version,
                "by" if self.cdi else "without",
            )
