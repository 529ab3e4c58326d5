"""The engine against the oracle: two readings of docs/placement.md that know nothing of each other.

Kubernetes JSON goes in on both sides, so the readers and the ledger are held as well.
"""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings

import oracle
from cardwise.model import Decision, InvalidRequest
from cardwise.names import Reason
from clusters import Cluster, RandomDice, cluster_by, clusters, oracle_settings
from pipeline import account_of, annotation_of, bound, decision_of, ledger_of

EXAMPLES = min(5 * settings().max_examples, 10_000)
SWEPT = 1500

pytestmark = pytest.mark.timeout(60 + EXAMPLES // 5)
"""A machine that is busy elsewhere makes a search slow, not wrong."""


def ours(cluster: Cluster) -> tuple[dict[str, Any], Decision | None]:
    """Our answer for the cluster's first Pod, in the oracle's form."""
    (pod,) = cluster.pods
    ledger = ledger_of(cluster.gpunodes, cluster.nodes, cluster.tenants, cluster.quotas)
    decision = decision_of(ledger, pod, cluster.node_names, cluster.settings)
    if decision is None:
        return {"asks": False, "node": None, "reason": None, "annotation": None, "nodes": {}}, None
    if isinstance(decision, InvalidRequest):
        refused = {
            name: {
                "fits": False,
                "score": ledger.view(name).score,
                "reason": Reason.INVALID_REQUEST,
                "cards": [],
            }
            for name in cluster.node_names
        }
        answer = {"node": None, "reason": Reason.INVALID_REQUEST, "annotation": None}
        return {"asks": True, **answer, "nodes": refused}, None
    return {
        "asks": True,
        "node": decision.node,
        "reason": decision.reason,
        "annotation": annotation_of(decision),
        "nodes": account_of(ledger, decision),
    }, decision


def theirs(cluster: Cluster) -> dict[str, Any]:
    """The oracle's answer."""
    answer = oracle.place(
        cluster.pods[0],
        cluster.gpunodes,
        cluster.tenants,
        cluster.quotas,
        cluster.nodes,
        oracle_settings(cluster.settings),
    )
    answer.pop("containers")  # the annotation says the same
    return answer


def check(cluster: Cluster) -> tuple[dict[str, Any], Decision | None]:
    """Hold the two against each other; our answer."""
    answer, decision = ours(cluster)
    assert answer == theirs(cluster)
    return answer, decision


def words(answer: dict[str, Any]) -> list[str]:
    """Every reason in an answer, of cards and of nodes."""
    nodes = answer["nodes"].values()
    told = [node["reason"] for node in nodes]
    told += [card["reason"] for node in nodes for card in node["cards"]]
    return [word.value for word in told if word is not None]


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_engine_and_oracle_agree(cluster: Cluster) -> None:
    """Sections 1 to 9: node, annotation, reasons of nodes and cards, scores of nodes and cards."""
    answer, _ = check(cluster)

    event(answer["reason"].value if answer["reason"] else f"fits: {answer['node'] is not None}")


def test_engine_and_oracle_agree_on_swept_clusters() -> None:
    """The same clusters on every run; together they must make every rule speak."""
    fits: Counter[str] = Counter()
    told: Counter[str] = Counter()
    for seed in range(SWEPT):
        try:
            answer, decision = check(cluster_by(RandomDice(seed)))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        told.update(set(words(answer)))
        if decision is not None and decision.node is not None:
            fits.update(shapes(decision))
        elif decision is not None:
            fits["refused"] += 1
    print(json.dumps({"fits": fits, "words": told}, indent=1))  # noqa: T201 - shown by pytest -s

    # Each word of section 3, and each way of placing, often enough not to be blind by chance.
    # No snapshot shows a node in the middle of handing over cards, nor what its kubelet rejected.
    unseen = {Reason.NODE_HANDING_OVER, Reason.NODE_REJECTS_PODS}
    met = [reason.value for reason in Reason if reason not in unseen]
    assert {word: told[word] for word in met if told[word] < 5} == {}
    assert {shape: fits[shape] for shape in SHAPES if fits[shape] < 5} == {}


SHAPES = (
    "one card",
    "several cards",
    "several containers",
    "init or sidecar",
    "mutex",
    "topology-aware",
    "topology-aware, several cards",
    "numa-bind",
    "numa-bind, several cards",
    "exclusive",
    "a card shared with a tenant",
    "refused",
)


def shapes(decision: Decision) -> list[str]:
    """In what ways a Pod was placed."""
    assert decision.booking is not None
    signature = decision.request.signature
    outcome = decision.outcomes[decision.booking.node]
    most = max(ask.count for ask in signature.asks)
    facts = {
        "one card": most == 1,
        "several cards": most > 1,
        "several containers": sum(ask.count > 0 for ask in signature.asks) > 1,
        "init or sidecar": len({ask.kind for ask in signature.asks if ask.count}) > 1,
        "mutex": signature.policy.mutex,
        "topology-aware": signature.policy.topology_aware,
        "topology-aware, several cards": signature.policy.topology_aware and most > 1,
        "numa-bind": signature.numa_bind,
        "numa-bind, several cards": signature.numa_bind and most > 1,
        "exclusive": signature.exclusive,
        "a card shared with a tenant": any(
            card.score and not card.reason for card in outcome.cards
        ),
    }
    return [fact for fact, holds in facts.items() if holds]


@settings(max_examples=EXAMPLES // 2, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_a_placement_makes_nothing_illegal(cluster: Cluster) -> None:
    """Section 9: whatever was over-booked before, nothing is that was not."""
    _, decision = ours(cluster)
    if decision is None or decision.node is None:
        return
    before = oracle.violations(cluster.gpunodes, cluster.tenants)

    after = oracle.violations(
        cluster.gpunodes, [*cluster.tenants, bound(cluster.pods[0], decision)]
    )

    assert set(after) <= set(before)
