"""The pin can be taken off again: what is left is what the Pod's owner wrote."""

import pytest

import build
from cardwise.wire.pins import pin_patch, required_terms, unpinned
from cardwise.wire.pods import pod_ref
from fakes.cluster import merged

ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
DISK = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
OTHER = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}]}
SAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}

TERMS = [
    pytest.param(None, id="none at all"),
    pytest.param([ZONE], id="one term"),
    pytest.param([ZONE, DISK], id="alternatives"),
    pytest.param([{**ZONE, **OTHER}], id="a term that names nodes itself"),
    pytest.param([SAME], id="a term that names this node, as of a DaemonSet's Pod"),
]


@pytest.mark.parametrize("terms", TERMS)
def test_a_pod_without_its_pin_may_go_where_its_owner_let_it(terms) -> None:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {"affinity": {"podAffinity": {}, **({"nodeAffinity": affinity} if terms else {})}}
    pod = build.pod("p", spec=spec)
    patch = pin_patch(pod_ref(pod), node="n1", version="1", terms=terms, annotations={})

    pinned = merged(pod, patch)
    free = unpinned(pinned, "n1")

    assert required_terms(pinned) != terms
    assert required_terms(free) == terms
    assert free["spec"]["affinity"]["podAffinity"] == {}
    assert free["spec"]["containers"] == pod["spec"]["containers"]


def test_a_pin_to_another_node_stays() -> None:
    pod = build.pod("p")
    patch = pin_patch(pod_ref(pod), node="n1", version="1", terms=None, annotations={})
    pinned = merged(pod, patch)

    assert required_terms(unpinned(pinned, "n2")) == required_terms(pinned)
