"""Who is on one card, and what they use of it together: kept as tenants come and go.

A node with eight cards may have eighty tenants, and each change is of one of them: what the others
use is not summed up again for it.
"""

from bisect import bisect_left
from typing import NamedTuple

from cardwise.model import Card, CardState, CardUse


class Tenancy(NamedTuple):
    """The tenants of one card, and the sums of what they use."""

    slots: int = 0
    memory_mib: int = 0
    cores: int = 0
    exclusive: int = 0
    """How many of the tenants are exclusive Pods."""
    names: tuple[str, ...] = ()
    """``namespace/name`` of each, sorted; a Pod and its successor may have the same."""

    def joined(self, name: str, use: CardUse, *, exclusive: bool) -> "Tenancy":
        """As it is with one more tenant, who uses this much."""
        at = bisect_left(self.names, name)
        return Tenancy(
            self.slots + use.slots,
            self.memory_mib + use.memory_mib,
            self.cores + use.cores,
            self.exclusive + exclusive,
            (*self.names[:at], name, *self.names[at:]),
        )

    def left(self, name: str, use: CardUse, *, exclusive: bool) -> "Tenancy":
        """As it is without one of its tenants, who used this much."""
        at = bisect_left(self.names, name)
        return Tenancy(
            self.slots - use.slots,
            self.memory_mib - use.memory_mib,
            self.cores - use.cores,
            self.exclusive - exclusive,
            (*self.names[:at], *self.names[at + 1 :]),
        )


NOBODY = Tenancy()


def state_of(card: Card, tenancy: Tenancy, *, cordoned: bool) -> CardState:
    """The card with these tenants, as the engine sees it."""
    return CardState(
        index=card.index,
        model=card.model,
        memory_mib=card.memory_mib,
        cores=card.cores,
        slots=card.slots,
        numa=card.numa,
        mode=card.mode,
        healthy=card.healthy,
        cordoned=cordoned,
        used_slots=tenancy.slots,
        used_memory_mib=tenancy.memory_mib,
        used_cores=tenancy.cores,
        exclusive=tenancy.exclusive > 0,
    )
