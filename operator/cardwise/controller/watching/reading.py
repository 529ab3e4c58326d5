"""What a Pod's JSON says to the ledger, read once for each of its versions.

Kopf's lists and our own show thousands of Pods that have not changed since they were read last; of
40,000 Pods the reading alone takes seconds. A resourceVersion names one content, so what was read
of it is what would be read again.
"""

import logging
from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any

from cardwise.errors import BadAllocation
from cardwise.ledger import Ledger, Sighting
from cardwise.model import PodRef
from cardwise.names import ALLOCATED
from cardwise.wire import pods
from cardwise.wire.fields import at, text

_log = logging.getLogger(__name__)

Json = dict[str, Any]


class Reading:
    """Reads Pods, and remembers of each that has cards what its last version said."""

    def __init__(
        self, ledger: Ledger, *, init_shrink: bool, unreadable: Callable[[PodRef, str], None]
    ) -> None:
        """Know nothing yet.

        Args:
            ledger: what it has of a Pod decides whether the Pod is of interest.
            init_shrink: how init containers count, as `pods.booking_of` takes it.
            unreadable: called with a Pod whose allocation can't be read, and why.
        """
        self._ledger = ledger
        self._init_shrink = init_shrink
        self._unreadable = unreadable
        self._known: dict[str, Sighting] = {}
        """By UID: what is placed and has cards."""

    def read(self, pod: Json, *, deleted: bool = False, listed: bool = False) -> Sighting | None:
        """What a Pod says; None for one that has nothing to do with cards.

        Args:
            pod: as the API server shows it.
            deleted: it is gone; this is how it was last.
            listed: it stands on a list, so it may have been told of before.
        """
        number = pods.version_number(pod)
        known = self._known.get(text(at(pod, "metadata", "uid")))
        if known is not None and known.version == number and not deleted:
            return known
        ref = pods.pod_ref(pod) if known is None else known.pod
        entry = self._ledger.entry(ref.uid)
        if (
            entry is None
            and not pods.has_allocation(pod)
            # The end of a Pod that waits is remembered: kube-scheduler may yet ask about it.
            and not (deleted and pods.asks_cards(pod))
        ):
            return None
        node = pods.placed_node(pod)
        if deleted or pods.is_finished(pod):
            self._known.pop(ref.uid, None)
            return Sighting(pod=ref, version=number, node=node, gone=True)
        try:
            booking = pods.booking_of(pod, init_shrink=self._init_shrink)
        except BadAllocation as error:
            why = f"{ALLOCATED} {error}"
            if not listed or entry is None:
                _log.warning("Pod %s closes node %s for new Pods: %s", ref, node, why)
                self._unreadable(ref, why)
            return Sighting(pod=ref, version=number, node=node, unreadable=why)
        found = Sighting(
            pod=ref, version=number, node=node, booking=booking, handing=pods.is_handing(pod)
        )
        if booking is None or not number:  # without a number, versions can't be told apart
            return found
        if entry is not None and entry.booking == booking:
            found = replace(found, booking=entry.booking)  # one copy of it is enough
        self._known[ref.uid] = found
        return found

    def keep(self, uids: Set[str]) -> None:
        """Forget all Pods but these; one that is shown again is read again."""
        for uid in self._known.keys() - uids:
            del self._known[uid]
