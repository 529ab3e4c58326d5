"""What the engine says of one Pod over some nodes, with the account of it.

Shared by ``simulate`` and ``explain``, so that files and a cluster get the same answer in the same
words.
"""

from collections.abc import Collection, Mapping

from cardwise.cli.placements import Placement
from cardwise.engine.decide import Memo, decide
from cardwise.engine.idle import hopeless
from cardwise.ledger import Ledger
from cardwise.model import NodeView, Request
from cardwise.names import NodeReason, Reason
from cardwise.wire.account import ClusterSize, QuotaAccount, pending_message, reason_of
from cardwise.wire.bounds_told import never_fits


def answered(  # noqa: PLR0913 - each is one thing that the answer depends on
    request: Request,
    views: Mapping[str, NodeView],
    refusals: Mapping[str, NodeReason],
    *,
    ledger: Ledger,
    memo: Memo,
    size: ClusterSize,
    name_tenants: bool,
    warnings: tuple[str, ...] = (),
    without: Collection[str] = (),
    preemption_note: bool = False,
) -> Placement:
    """Decide for a Pod; nothing is booked.

    Args:
        request: the Pod.
        views: the nodes to tell of, by name.
        refusals: those of them that are no candidates, whatever their cards, and why.
        ledger: for the quota of the Pod's namespace, and what the whole cluster offers.
        memo: what is known already.
        size: of the cluster.
        name_tenants: False counts tenants of other namespaces instead of naming them.
        warnings: what is to be told beside.
        without: UIDs whose use of the quota is left out, as it is of the views.
        preemption_note: whether to add that GPU tenants are not preempted.
    """
    namespace = request.pod.namespace
    unfit = {name: word.value for name, word in refusals.items()}
    candidates = [view for name, view in views.items() if name not in unfit]
    room = ledger.room(namespace, without=without)
    decision = decide(request, candidates, memo, room)
    if decision.node is not None:
        return Placement(
            pod=request.pod, decision=decision, views=views, unfit=unfit, warnings=warnings
        )
    # As in an event, a node without cards is not worth a word.
    telling = {
        name: word
        for name, word in refusals.items()
        if views[name].problem is not Reason.NODE_HAS_NO_CARDS
    }
    quota = QuotaAccount(
        namespace=namespace,
        bound=ledger.bound(namespace),
        used=ledger.quota_use(namespace, without=without),
    )
    never = hopeless(request.signature, ledger.views(ledger.gpunode_names()))
    return Placement(
        pod=request.pod,
        decision=decision,
        views=views,
        unfit=unfit,
        never=any(never_fits(request.signature, size, never)),
        reason=reason_of(decision, lambda: telling).value,
        message=pending_message(
            decision,
            views,
            what="nodes",
            name_tenants=name_tenants,
            quota=quota if decision.reason is Reason.QUOTA else None,
            cluster=size,
            hopeless=never,
            others=telling,
            preemption_note=preemption_note,
        ),
        warnings=warnings,
    )
