"""One container on one node: refuse cards, then rank what is left.

The law is docs/placement.md sections 2, 5 and 6. Filters first, whatever their place in the written
chain; then the sort keys in written order; the card index last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cardwise.engine.candidates import Sight, refusal
from cardwise.engine.sortkeys import ranked, set_rank
from cardwise.engine.topology import Links, best_set, loneliest
from cardwise.model import Link, Signature
from cardwise.names import Reason, TopologyMode

NO_LINK_DATA = "link data is missing: the node reports no links"
NOT_JOINED = (
    "no set of that many free cards is joined by NVLink; "
    "cardwise.dev/topology: preferred would take the best one there is"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What came of one container."""

    chosen: list[Sight] | None
    """In the order in which they were ranked; None when the container does not fit."""
    refusals: list[Reason | None]
    """Parallel to the cards that were looked at."""
    detail: str = ""


def choose(sights: Sequence[Sight], count: int, links: tuple[Link, ...] | None) -> Choice:
    """Choose ``count`` cards for a container, or say of each card why it can't be.

    Checks 11 and 12 speak only where enough cards passed the others: with fewer, links and NUMA
    nodes are not what is missing.
    """
    refusals = [refusal(sight) for sight in sights]
    fitting = [sight for sight, reason in zip(sights, refusals, strict=True) if reason is None]
    if len(fitting) < count:
        return Choice(None, refusals)
    signature = fitting[0].signature
    if not (signature.numa_bind or signature.policy.topology_aware):
        return Choice(ranked(fitting, signature.policy.keys)[:count], refusals)
    chosen, reason, detail = _choose_set(fitting, count, links, signature)
    if chosen is None:
        return Choice(None, [reason if known is None else known for known in refusals], detail)
    return Choice(ranked(chosen, signature.policy.keys), refusals)


def _choose_set(
    fitting: list[Sight], count: int, links: tuple[Link, ...] | None, signature: Signature
) -> tuple[list[Sight] | None, Reason | None, str]:
    """Choose where cards are judged together: sets, or a reason and what it means."""
    pools = _numa_pools(fitting, count) if signature.numa_bind else [fitting]
    if not pools:
        return None, Reason.NUMA, ""
    keys = signature.policy.keys
    if not signature.policy.topology_aware:
        tops = [ranked(pool, keys)[:count] for pool in pools]
        return min(tops, key=lambda cards: set_rank(cards, keys)), None, ""
    if count == 1:
        eligible = [sight for pool in pools for sight in pool]
        kept = eligible if links is None else loneliest(eligible, fitting, Links(links))
        return ranked(kept, keys)[:1], None, ""
    required = signature.topology_mode is TopologyMode.REQUIRED
    if links is None and required:
        return None, Reason.TOPOLOGY, NO_LINK_DATA
    best = best_set(pools, count, Links(links or ()), keys, joined=required)
    return best, None if best else Reason.TOPOLOGY, "" if best else NOT_JOINED


def _numa_pools(fitting: list[Sight], count: int) -> list[list[Sight]]:
    """The fitting cards of each NUMA node that has enough of them; unknown ones are out."""
    pools: dict[int, list[Sight]] = {}
    for sight in fitting:
        if sight.card.numa is not None:
            pools.setdefault(sight.card.numa, []).append(sight)
    return [pools[numa] for numa in sorted(pools) if len(pools[numa]) >= count]
