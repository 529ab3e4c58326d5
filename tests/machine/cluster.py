"""The fake API server, counting what became of Bindings, and the ways in which it fails."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from cardwise.errors import ApiError
from fakes.cluster import FakeCluster, Fault, refused, unanswered
from machine.tally import Tally

Json = dict[str, Any]
OUTCOMES: dict[str, tuple[Fault | None, ...]] = {
    "success": (None,),
    "409": (refused(409),),
    "404": (refused(404),),
    "403": (refused(403),),
    "429": (refused(429),),
    "500": (refused(500),),
    "500, carried out": (Fault(500, "broken", lands=0.0),),
    "no answer, not carried out": (unanswered(after=2.0),),
    "no answer twice, not carried out": (unanswered(after=2.0), unanswered(after=2.0)),
    "no answer, carried out before": (unanswered(after=2.0, lands=0.0),),
    "no answer, carried out at the deadline": (unanswered(after=2.0, lands=1.9),),
    "no answer, carried out soon": (unanswered(after=2.0, lands=2.3),),
    "no answer, carried out later, refused meanwhile": (
        unanswered(after=2.0, lands=20.0),
        *[refused(403)] * 100,
    ),
    "no answer, carried out later, silence meanwhile": (
        unanswered(after=2.0, lands=58.0),
        *[unanswered(after=2.0)] * 30,
    ),
}
"""What may become of a Binding, and of those that repeat it."""
FAULTS: dict[str, tuple[str, Fault]] = {
    "a GET of a Pod fails": ("pod", unanswered(after=2.0)),
    "a GET of a Pod is refused": ("pod", refused(403)),
    "a list of GPUNodes breaks": ("gpunodes", refused(410)),
    "a list of Pods breaks": ("unfinished_pods", refused(410)),
    "a list of quotas breaks": ("quotas", refused(500)),
    "a wake is refused": ("annotate_node", refused(500)),
    "a wake has no answer": ("annotate_node", unanswered(after=10.0, lands=0.0)),
    "a look at the Lease fails": ("lease", refused(503)),
    "an event is refused": ("create_event", refused(500)),
    "usage is refused": ("apply_gpunode_status", refused(409)),
}
"""What else may fail, once."""
_BIND_SECONDS, _LIST_SECONDS = 0.05, 0.005


class CountingCluster(FakeCluster):
    """A fake cluster where Bindings take a moment, and their outcomes are counted."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(chunk=5)
        self._tally = tally
        self._outcomes: dict[str, deque[Fault | None]] = {}
        """Of Bindings to come, by the Pod's UID."""
        self._sent: set[str] = set()
        """Whose Binding was sent; what follows repeats it."""
        self.listed = self._list_began = 0.0
        """When the newest complete list was begun."""
        self.heal()

    def forgive(self) -> None:
        """Forget the faults to come, but for those of Bindings."""
        self._faults.clear()

    def gpunodes(self) -> AsyncIterator[list[Json]]:
        """The first of the lists that are compared with the ledger."""
        self._list_began = asyncio.get_running_loop().time()
        return super().gpunodes()

    async def unfinished_pods(self) -> AsyncIterator[list[Json]]:
        """The last of them."""
        async for page in super().unfinished_pods():
            yield page
        self.listed = self._list_began

    def heal(self) -> None:
        """From now on nothing fails, and nothing is slow."""
        self._faults.clear()
        self._outcomes.clear()
        self.slow("bind", _BIND_SECONDS)
        self.slow("unfinished_pods", _LIST_SECONDS)

    @property
    def version(self) -> int:
        """It grows with every write."""
        return self._version

    @property
    def is_late(self) -> bool:
        """Whether something that nobody waits for is still to be carried out."""
        return bool(self._late)

    def alive(self) -> list[Json]:
        """Every Pod of ours that is not finished."""
        return [
            pod
            for (namespace, _), pod in self.objects["Pod"].items()
            if namespace != "cardwise-system" and pod["status"]["phase"] not in _FINISHED
        ]

    def expect(self, uid: str, outcome: str) -> None:
        """Say what becomes of the next Bindings of a Pod."""
        self._outcomes[uid] = deque(OUTCOMES[outcome])
        self._sent.discard(uid)

    async def bind(self, binding: Json, *, within: float) -> None:
        uid = binding["metadata"]["uid"]
        counts = self._tally.repeats if uid in self._sent else self._tally.binds
        self._sent.add(uid)
        coming = self._outcomes.get(uid)
        fault = coming.popleft() if coming else None
        self.fail("bind", fault)
        try:
            await super().bind(binding, within=within)
        except ApiError as error:
            counts[_told(fault, error, within)] += 1
            raise
        counts["success"] += 1


_FINISHED = ("Succeeded", "Failed")


def _told(fault: Fault | None, error: ApiError, within: float) -> str:
    if error.status is not None:
        carried_out = fault is not None and fault.lands is not None
        return f"{error.status}, carried out" if carried_out else str(error.status)
    if fault is None or fault.lands is None:
        return "no answer, not carried out"
    return f"no answer, carried out {'before' if fault.lands < within else 'later'}"
