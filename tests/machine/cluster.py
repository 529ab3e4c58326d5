"""The fake API server, counting what became of Bindings and pins, and the ways it fails."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from typing import Any, Protocol

from cardwise.errors import ApiError
from fakes.cluster import FakeCluster, Fault, copied, refused, unanswered
from machine.gated import as_placed, relabelled
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
SLOW, CHANGED, GONE = "success, slow", "the Pod is changed before", "the Pod is deleted before"
PIN_OUTCOMES: dict[str, tuple[Fault | None, ...]] = {
    **{name: faults for name, faults in OUTCOMES.items() if name not in ("409", "404")},
    "422": (refused(422),),
    SLOW: (None,),
    CHANGED: (None,),
    GONE: (None,),
}
"""What may become of a pin; a conflict has a cause."""
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
    "a renewal fails": ("write_lease", refused(500)),
    "a renewal has no answer": ("write_lease", unanswered(after=2.0, lands=0.0)),
}
"""What else may fail, once."""
_BIND_SECONDS, _LIST_SECONDS = 0.05, 0.005
_SLOW_SECONDS, _SOON_SECONDS = 1.5, 0.01


class PinWatch(Protocol):
    """Looks at every pin."""

    def sent(self, patch: Json) -> None:
        """A patch is on its way."""
        ...

    def failed(self, patch: Json, *, is_known: bool) -> None:
        """It was refused, or nobody knows what became of it."""
        ...

    def landed(self, before: Json, after: Json) -> None:
        """A gate was opened."""
        ...


class CountingCluster(FakeCluster):
    """A fake cluster where Bindings and pins take a moment, and their outcomes are counted."""

    pins: PinWatch

    def __init__(self, tally: Tally) -> None:
        super().__init__(chunk=5)
        self._tally = tally
        self._outcomes: dict[str, deque[Fault | None]] = {}
        """Of Bindings and pins to come, by the Pod's UID."""
        self._special: dict[str, str] = {}
        """Likewise, by name."""
        self._broken_off = 0
        """Pins whose sender was killed: every second one is carried out all the same."""
        self.put_off: dict[str, float] = {}
        """By UID: when its pin was last refused; the controller may wait a minute after that."""
        self.pinning: Counter[str] = Counter()
        """By UID: patches under way."""
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
        self._special.clear()
        self.slow("bind", _BIND_SECONDS)
        self.slow("patch_pod", _BIND_SECONDS)
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

    def placed(self) -> list[Json]:
        """The same, each bound that can go to one node only."""
        return [as_placed(pod) for pod in self.alive()]

    def expect(self, uid: str, outcome: str) -> None:
        """Say what becomes of the next Bindings, or pins, of a Pod."""
        self._outcomes[uid] = deque({**PIN_OUTCOMES, **OUTCOMES}[outcome])
        self._special[uid] = outcome
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

    async def patch_pod(self, namespace: str, name: str, patch: Json, *, within: float) -> None:
        uid = patch["metadata"]["uid"]
        self.pins.sent(patch)
        self.pinning[uid] += 1
        try:
            await self._pin(namespace, name, patch, within)
        finally:
            self.pinning[uid] -= 1

    async def _pin(self, namespace: str, name: str, patch: Json, within: float) -> None:
        uid = patch["metadata"]["uid"]
        counts = self._tally.pin_repeats if uid in self._sent else self._tally.pins
        self._sent.add(uid)
        fault = None
        try:
            await self._before_pin(namespace, name, self._special.pop(uid, ""))
            coming = self._outcomes.get(uid)
            fault = coming.popleft() if coming else None
            self.fail("patch_pod", fault)
            await super().patch_pod(namespace, name, patch, within=within)
        except ApiError as error:
            counts[_told(fault, error, within)] += 1
            is_known = error.status is not None and error.status < 500
            self.pins.failed(patch, is_known=is_known)
            if is_known and error.status not in (404, 409):
                self.put_off[uid] = asyncio.get_running_loop().time()
            raise
        except asyncio.CancelledError:
            self._broken_off += 1
            if fault is None and self._broken_off % 2:
                body = copied(patch)
                self._land(0.3, lambda: self._patch(namespace, name, body))
            raise
        counts["success"] += 1

    async def _before_pin(self, namespace: str, name: str, outcome: str) -> None:
        """What comes between a decision and its pin."""
        if outcome == SLOW:
            await asyncio.sleep(_SLOW_SECONDS)
        elif outcome in (CHANGED, GONE):
            await asyncio.sleep(_SOON_SECONDS)
            pod = self.objects["Pod"].get((namespace, name))
            if pod is None:
                return
            if outcome == GONE:
                self.remove("Pod", name, namespace)
            else:
                self.put(relabelled(pod))

    def _patch(self, namespace: str, name: str, patch: Json) -> None:
        before = self.objects["Pod"].get((namespace, name))
        super()._patch(namespace, name, patch)
        assert before is not None
        self.pins.landed(before, self.objects["Pod"][namespace, name])


_FINISHED = ("Succeeded", "Failed")


def _told(fault: Fault | None, error: ApiError, within: float) -> str:
    if error.status is not None:
        carried_out = fault is not None and fault.lands is not None
        return f"{error.status}, carried out" if carried_out else str(error.status)
    if fault is None or fault.lands is None:
        return "no answer, not carried out"
    return f"no answer, carried out {'before' if fault.lands < within else 'later'}"
