"""Say on a GPUNode that its node is closed, because a Pod's allocation there can't be read.

The Pod itself is told by an event; whoever looks at nodes alone should not take it for an open one.
"""

from collections.abc import Sequence

from cardwise.controller.clock import Clock, rfc3339
from cardwise.ledger import Ledger
from cardwise.model import Condition
from cardwise.names import CONDITION_UNREADABLE


class Unreadable:
    """Makes the condition from the ledger, which marks the node as touched where it changes."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._since: dict[str, str] = {}
        """By node: RFC 3339 time at which it was first said to be closed."""

    def conditions(self, node: str) -> Sequence[Condition]:
        """What is to stand on its GPUNode."""
        account = self._ledger.account(node)
        pods = account.unreadable() if account is not None else []
        if not pods:
            self._since.pop(node, None)
            return ()
        pod, why = pods[0]
        others = f" (and {len(pods) - 1} more likewise)" if len(pods) > 1 else ""
        return (
            Condition(
                type=CONDITION_UNREADABLE,
                holds=True,
                reason="NodeClosed",
                message=f"Pod {pod}: {why}{others}: no new Pod with cards until it is mended",
                since=self._since.setdefault(node, rfc3339(self._clock.unix())),
            ),
        )
