"""Required anti-affinity of Pods that are there, against a newcomer."""

import pytest

import build
from cardwise.names import NodeReason
from cardwise.noderules import Needs, NodeBook

AWAY = NodeReason.OTHERS
NAME = "kubernetes.io/metadata.name"


def repelling(selector, *, key="zone", **term):
    made = build.pod("tenant", gpus=None, namespace="home")
    required = [{"topologyKey": key, "labelSelector": selector, **term}]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    made["spec"]["affinity"] = {"podAntiAffinity": affinity}
    return Needs(made)


def newcomer(namespace="home", **labels):
    return Needs(build.pod("p", gpus=None, namespace=namespace, labels=labels))


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


ALICE = {"matchLabels": {"app": "a"}}


@pytest.mark.parametrize(
    ("tenant", "pod", "repelled"),
    [
        pytest.param(repelling(ALICE), newcomer(app="a"), True, id="the same label"),
        pytest.param(repelling(ALICE), newcomer(app="b"), False, id="another value"),
        pytest.param(repelling(ALICE), newcomer(), False, id="no label"),
        pytest.param(repelling({}), newcomer(), True, id="an empty selector means everybody"),
        pytest.param(repelling(None), newcomer(), False, id="no selector means nobody"),
        pytest.param(
            repelling(ALICE | expression("tier", "NotIn", "back")),
            newcomer(app="a", tier="back"),
            False,
            id="all of the selector must match",
        ),
        pytest.param(repelling(expression("app", "Exists")), newcomer(app="x"), True, id="Exists"),
        pytest.param(
            repelling(expression("app", "Gt", "1")), newcomer(app="2"), False, id="no such operator"
        ),
        pytest.param(repelling(ALICE), newcomer("away", app="a"), False, id="another namespace"),
        pytest.param(
            repelling(ALICE, namespaces=["away"]), newcomer("away", app="a"), True, id="named"
        ),
        pytest.param(
            repelling(ALICE, namespaces=["away"]), newcomer(app="a"), False, id="named: not its own"
        ),
        pytest.param(
            repelling(ALICE, namespaceSelector={}), newcomer("away", app="a"), True, id="in any"
        ),
        pytest.param(
            repelling(ALICE, namespaceSelector={"matchLabels": {NAME: "away"}}),
            newcomer(app="a"),
            False,
            id="by the label of its name: another",
        ),
        pytest.param(
            repelling(ALICE, namespaceSelector={"matchLabels": {NAME: "away", "team": "x"}}),
            newcomer("away", app="a"),
            True,
            id="labels of namespaces that are not known are taken to match",
        ),
        pytest.param(repelling(ALICE, key="none"), newcomer(app="a"), False, id="no such place"),
    ],
)
def test_who_keeps_whom_away(tenant, pod, repelled) -> None:
    book = NodeBook()
    for name, zone in (("n1", "x"), ("n2", "x"), ("n3", "y")):
        book.apply_node(build.node_object(name, labels={"zone": zone}))

    book.take("uid-tenant", "n1", tenant.load)

    away = dict.fromkeys(("n1", "n2"), AWAY) if repelled else {}
    assert book.refusals(pod, ("n1", "n2", "n3")) == away


def test_a_node_without_the_label_is_in_no_place() -> None:
    book = NodeBook()
    book.apply_node(build.node_object("n1"))
    book.take("uid-tenant", "n1", repelling({}).load)

    assert book.refusal(newcomer(), "n1") is None


def test_a_place_moves_with_the_label_of_its_node() -> None:
    book = NodeBook()
    for name, zone in (("n1", "x"), ("n2", "x"), ("n3", "y")):
        book.apply_node(build.node_object(name, labels={"zone": zone}))
    book.take("uid-tenant", "n1", repelling({}).load)

    book.apply_node(build.node_object("n1", labels={"zone": "y"}))

    assert book.refusals(newcomer(), ("n1", "n2", "n3")) == {"n1": AWAY, "n3": AWAY}


def test_whoever_is_on_a_node_that_is_gone_keeps_nobody_away() -> None:
    book = NodeBook()
    for name in ("n1", "n2"):
        book.apply_node(build.node_object(name, labels={"zone": "x"}))
    book.take("uid-tenant", "n1", repelling({}).load)
    assert book.refusal(newcomer(), "n2") is AWAY
    book.grew = False

    book.remove_node("n1")

    assert book.refusal(newcomer(), "n2") is None
    assert book.grew


def test_a_place_that_is_given_up_leaves_the_others_closed() -> None:
    book = NodeBook()
    for name in ("n1", "n2"):
        book.apply_node(build.node_object(name, labels={"zone": name}))
        book.take(f"uid-{name}", name, repelling(expression("app", "Exists")).load)
    book.take("uid-alice", "n1", repelling(ALICE).load)

    book.release("uid-n1")
    assert book.refusals(newcomer(app="b"), ("n1", "n2")) == {"n2": AWAY}

    book.take("uid-alice-too", "n1", repelling({"matchLabels": {"app": "a", "tier": "x"}}).load)
    book.release("uid-alice-too")
    assert book.refusals(newcomer(app="a"), ("n1", "n2")) == dict.fromkeys(("n1", "n2"), AWAY)

    book.release("uid-alice")
    book.release("uid-n2")
    assert book.refusals(newcomer(app="a"), ("n1", "n2")) == {}
