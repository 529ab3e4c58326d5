"""Kubernetes JSON in, a decision out: readers, ledger and engine together, as in the processes."""

from collections.abc import Iterable
from typing import Any

from cardwise.engine.decide import Memo, decide
from cardwise.errors import BadAllocation
from cardwise.ledger import Ledger, Sighting
from cardwise.model import Decision, InvalidRequest, Outcome
from cardwise.settings import Settings
from cardwise.wire import allocation, gpunodes, pods, quotas

Json = dict[str, Any]


def ledger_of(
    reports: Iterable[Json],
    nodes: Iterable[Json] = (),
    tenants: Iterable[Json] = (),
    bounds: Iterable[Json] = (),
) -> Ledger:
    """A ledger that was told all this."""
    ledger = Ledger()
    for report in reports:
        ledger.apply_gpunode(gpunodes.gpunode_of(report), 0.0)
    for node in nodes:
        ledger.apply_node(
            node["metadata"]["name"],
            offers_cards=gpunodes.offers_cards(node),
            cordoned=gpunodes.cordoned_by_annotation(node),
        )
    for tenant in tenants:
        tell(ledger, tenant)
    by_namespace: dict[str, list[Json]] = {}
    for bound in bounds:
        by_namespace.setdefault(bound["metadata"]["namespace"], []).append(bound)
    for namespace, listed in by_namespace.items():
        ledger.set_bound(namespace, quotas.merge(map(quotas.bound_of, listed)))
    return ledger


def tell(ledger: Ledger, pod: Json) -> None:
    """Tell the ledger of a Pod, as an event would."""
    booking = unreadable = None
    try:
        booking = pods.booking_of(pod)
    except BadAllocation as error:
        unreadable = str(error)
    sighting = Sighting(
        pod=pods.pod_ref(pod),
        version=int(pods.resource_version(pod)),
        node=pods.bound_node(pod),
        booking=booking,
        unreadable=unreadable,
        gone=pods.is_finished(pod),
    )
    ledger.see(sighting, 0.0)


def decision_of(
    ledger: Ledger, pod: Json, nodes: Iterable[str], settings: Settings, memo: Memo | None = None
) -> Decision | InvalidRequest | None:
    """Where a Pod goes; None for one that asks for no card."""
    request = pods.request_of(pod, settings)
    if request is None or isinstance(request, InvalidRequest):
        return request
    room = ledger.room(request.pod.namespace)
    return decide(request, ledger.views(nodes), Memo() if memo is None else memo, room)


def annotation_of(decision: Decision) -> str | None:
    """The allocation text that a bound Pod would carry."""
    return allocation.encode(decision.booking.containers) if decision.booking else None


def bound(pod: Json, decision: Decision) -> Json:
    """The Pod as it looks once it is bound."""
    assert decision.booking is not None
    body = pods.binding_body(pods.pod_ref(pod), decision.booking, 0, decision.booking.exclusive)
    metadata = {
        **pod["metadata"],
        "resourceVersion": "2",
        "annotations": {**pod["metadata"]["annotations"], **body["metadata"]["annotations"]},
    }
    spec = {**pod["spec"], "nodeName": decision.node}
    return {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def account_of(ledger: Ledger, decision: Decision) -> dict[str, Any]:
    """What every node says, in the form of the oracle's answer."""
    return {
        name: _node_account(ledger, name, outcome) for name, outcome in decision.outcomes.items()
    }


def _node_account(ledger: Ledger, name: str, outcome: Outcome) -> dict[str, Any]:
    view = ledger.view(name)
    uuids = {card.index: uuid for card, uuid in zip(view.state.cards, view.uuids, strict=True)}
    return {
        "fits": outcome.fits,
        "score": view.score,
        "reason": outcome.reason,
        "cards": [
            {
                "uuid": uuids[told.index],
                "index": told.index,
                "score": told.score,
                "reason": told.reason,
            }
            for told in outcome.cards
        ],
    }
