"""The account of a decision, in the words that people read: the Pod's event and the log's lines.

Separate from the engine, which hands over verdicts as values, and from whoever posts an event: the
controller, ``cardwise simulate`` and ``cardwise explain`` tell the same story in the same words.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from cardwise.model import (
    Booking,
    CardState,
    CardVerdict,
    Decision,
    NodeView,
    Outcome,
    Request,
    Share,
)
from cardwise.names import NodeReason, Reason
from cardwise.wire.bounds_told import ClusterSize, QuotaAccount, never_fits, over_quota
from cardwise.wire.cards_told import CardDetails, shared
from cardwise.wire.phrases import (
    MESSAGE_BYTES,
    ask_text,
    cards_text,
    container_text,
    fitted,
    policy_text,
    score_text,
    terms_text,
)

__all__ = [
    "MESSAGE_BYTES",
    "ClusterSize",
    "QuotaAccount",
    "allocated_message",
    "ask_text",
    "card_lines",
    "pending_message",
    "reason_of",
    "score_text",
]

_NODES_BY_NAME = 3
"""Up to so many nodes are told one by one at once; of more, the words are counted first."""
_NODES_TOLD = 64
"""Far more than fit into a message: the rest is not even looked at."""
_NO_PREEMPTION = " Preemption of GPU tenants is not supported."


def pending_message(  # noqa: PLR0913 - each is one thing that the caller may know
    decision: Decision,
    views: Mapping[str, NodeView],
    *,
    what: str = "candidate nodes",
    name_tenants: bool = True,
    quota: QuotaAccount | None = None,
    cluster: ClusterSize | None = None,
    hopeless: Reason | None = None,
    others: Mapping[str, str] | None = None,
    preemption_note: bool = False,
) -> str:
    """Say why a Pod waits (docs/placement.md section 3, "The Pod's event").

    Args:
        decision: one that chose no node.
        views: the nodes that the decision looked at, by name.
        what: what the nodes are called that n counts.
        name_tenants: False counts tenants of other namespaces instead of naming them.
        quota: the namespace's, told where a node's word is ``ResourceQuotaNotFit``.
        cluster: given, a request that no card could ever take is said first to be one.
        hopeless: why it would fit nowhere even without tenants: said first, with ``cluster``.
        others: nodes that were no candidates, and why; counted in n.
        preemption_note: whether to add that GPU tenants are not preempted.

    Returns:
        At most 1,024 bytes of UTF-8, the most informative first; the note is never cut off.
    """
    request = decision.request
    tail = _NO_PREEMPTION if preemption_note else ""
    told: defaultdict[Reason | None, list[str]] = defaultdict(list)
    for name, outcome in decision.outcomes.items():
        told[outcome.reason].append(name)
    told.pop(Reason.NODE_HAS_NO_CARDS, None)
    words = Counter({str(reason): len(names) for reason, names in told.items()})
    others = others or {}
    words.update(others.values())
    n = words.total()
    parts = [
        *never_fits(request.signature, cluster, hopeless),
        f"0/{n} {what} can take {ask_text(request.signature, request.containers)}"
        f" ({terms_text(request)}).",
    ]
    if n == 0:
        parts.append(_no_candidates(len(decision.outcomes)))
        return fitted(" ".join(parts), tail)
    if quota is not None:
        cards = _cards_over_quota(decision, told.get(Reason.QUOTA, ()), views)
        parts += over_quota(request.signature, cards, quota)
    if n > _NODES_BY_NAME:
        counted = sorted(words.items(), key=lambda item: (-item[1], item[0]))
        parts.append(", ".join(f"{count} {word}" for word, count in counted) + ".")
    accounts = _node_accounts(decision, told, views, words, name_tenants=name_tenants)
    clauses = _taken_while(accounts, MESSAGE_BYTES)
    clauses += [f"{name}: {word}" for name, word in sorted(others.items())[:_NODES_TOLD]]
    parts.append("; ".join(clauses) + ".")
    return fitted(" ".join(parts), tail)


def reason_of(
    decision: Decision, others: Callable[[], Mapping[str, NodeReason]]
) -> Reason | NodeReason:
    """The word for a Pod that fits nowhere: the leading reason of the candidates.

    Where no node with cards was a candidate, the word of most of those that were none.

    Args:
        decision: one that chose no node.
        others: says which nodes with cards are no candidates, and why; asked only where it matters.
    """
    nobody = decision.reason in (None, Reason.NODE_HAS_NO_CARDS)
    if nobody and (counts := Counter(others().values())):
        return min(counts, key=lambda word: (-counts[word], word))
    return decision.reason or Reason.NODE_HAS_NO_CARDS


def allocated_message(request: Request, booking: Booking, view: NodeView | None) -> str:
    """Say what a bound Pod got: ``node-a: GPU 2 (GPU-c) 1000 MiB; policy mutex,binpack``.

    Args:
        request: what it asked.
        booking: what it got.
        view: its node, for the cards' indexes; without it only their UUIDs are told.

    Returns:
        At most 1,024 bytes of UTF-8; the policy is never cut off.
    """
    indexes: dict[str, int] = {}
    if view is not None:
        indexes = {
            uuid: card.index for uuid, card in zip(view.uuids, view.state.cards, strict=False)
        }
    with_cards = [(number, cards) for number, cards in enumerate(booking.containers) if cards]
    texts = []
    for number, cards in with_cards:
        text = ", ".join(_share(share, indexes) for share in cards)
        if len(with_cards) > 1:
            text = f"{container_text(number, request.containers)}: {text}"
        texts.append(text)
    policy = policy_text(request.signature.policy)
    return fitted(f"{booking.node}: {'; '.join(texts)}", f"; policy {policy}")


def card_lines(decision: Decision, view: NodeView) -> list[str]:
    """The log's lines for one node, one a candidate card (docs/placement.md section 4)."""
    outcome = decision.outcomes.get(view.name)
    if outcome is None:
        return []
    uuids = {card.index: uuid for card, uuid in zip(view.state.cards, view.uuids, strict=False)}
    start = f"pod={decision.request.pod} node={view.name} gpu="
    return [
        f"{start}{verdict.index}"
        f" uuid={uuids.get(verdict.index, '')}"
        f" computer score is {score_text(verdict.score)} {verdict.reason or 'kept'}"
        for verdict in outcome.cards
    ]


def _share(share: Share, indexes: Mapping[str, int]) -> str:
    index = indexes.get(share.uuid)
    card = share.uuid if index is None else f"GPU {index} ({share.uuid})"
    cores = f" {share.cores} % cores" if share.cores else ""
    return f"{card} {share.memory_mib} MiB{cores}"


def _no_candidates(asked: int) -> str:
    if asked == 0:
        return "No node was asked about."
    nodes = "the one node" if asked == 1 else f"none of the {asked} nodes"
    verb = "has no GPU" if asked == 1 else "has a GPU"
    return f"{nodes[0].upper()}{nodes[1:]} asked about {verb} ({Reason.NODE_HAS_NO_CARDS})."


def _cards_over_quota(
    decision: Decision, names: Iterable[str], views: Mapping[str, NodeView]
) -> list[CardState]:
    return [
        card
        for name in names
        if name in views
        for card in views[name].state.cards
        if card.index in _refused_for(Reason.QUOTA, decision.outcomes[name])
    ]


def _refused_for(reason: Reason, outcome: Outcome) -> set[int]:
    return {verdict.index for verdict in outcome.cards if verdict.reason is reason}


def _node_accounts(
    decision: Decision,
    told: Mapping[Reason | None, list[str]],
    views: Mapping[str, NodeView],
    words: Counter[str],
    *,
    name_tenants: bool,
) -> Iterator[str]:
    """What each node says, those with the leading reason first, then by frequency and name."""
    # A rank at a time: of thousands of nodes, those that a message has no room for are not sorted.
    ranked: defaultdict[tuple[bool, int], list[str]] = defaultdict(list)
    for reason, names in told.items():
        ranked[reason is not decision.reason, -words[str(reason)]] += names
    left = _NODES_TOLD
    for rank in sorted(ranked):
        for name in heapq.nsmallest(left, ranked[rank]):
            outcome, view = decision.outcomes[name], views.get(name)
            yield f"{name}: {_node_account(decision.request, outcome, view, name_tenants)}"
            left -= 1


def _node_account(
    request: Request, outcome: Outcome, view: NodeView | None, name_tenants: bool
) -> str:
    """One node's account: its words with counts and details, the leading one first."""
    if view is None or not outcome.cards:
        details = [outcome.detail, view.problem_detail if view else ""]
        if view and outcome.reason is Reason.NODE_TOO_FEW_CARDS and not any(details):
            details = [f"it has {cards_text(len(view.state.cards))}"]
        return f"{outcome.reason}{shared(details)}"
    groups: dict[Reason | None, list[CardVerdict]] = {}
    for verdict in outcome.cards:
        groups.setdefault(verdict.reason, []).append(verdict)
    asking = [number for number, ask in enumerate(request.signature.asks) if ask.count]
    cards = CardDetails(
        view,
        namespace=request.pod.namespace,
        name_tenants=name_tenants,
        # What earlier containers of the Pod would take is not in the view.
        first_asking=outcome.container in asking[:1],
    )
    ordered = sorted(
        groups.items(),
        key=lambda group: (
            group[0] is not outcome.reason,
            -len(group[1]),
            group[0].rank if group[0] else len(Reason),
        ),
    )
    clauses = []
    # A detail belongs to what was said of sets of cards, else to the cards' type or mode.
    of_sets = outcome.reason in (Reason.TOPOLOGY, Reason.NUMA)
    owner = Reason.CARD_TYPE if Reason.CARD_TYPE in groups and not of_sets else outcome.reason
    for reason, verdicts in ordered:
        detail = outcome.detail if reason is owner else ""
        clauses.append(
            f"{len(verdicts)}/{len(outcome.cards)} "
            + (f"{reason}{shared([detail, cards.of(reason, verdicts)])}"
               if reason else "could take it")
        )  # fmt: skip
    if outcome.reason not in groups:
        clauses.insert(0, f"{outcome.reason}{shared([outcome.detail])}")
    text = ", ".join(clauses)
    if len(asking) > 1:
        text = f"{container_text(outcome.container, request.containers)}: {text}"
    return text


def _taken_while(texts: Iterator[str], limit: int) -> list[str]:
    """As many texts as it takes to pass the limit: no more work than a message can show."""
    taken: list[str] = []
    length = 0
    for text in texts:
        taken.append(text)
        length += len(text)
        if length > limit:
            break
    return taken
