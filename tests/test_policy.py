"""The policy chain: docs/placement.md section 2, rules 1 to 6."""

import pytest

from cardwise.names import PolicyName
from cardwise.policy import SORT_KEYS, nearest, parse
from cardwise.settings import Scheduling, TopologyAware

MUTEX, TOPOLOGY, BINPACK, SPREAD, NUMA = PolicyName

OFF = Scheduling(topologyAware=TopologyAware(enabled=False))
"""The cluster's administrator has switched topology-aware off."""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("binpack", (BINPACK,), id="one name"),
        pytest.param(
            "mutex,binpack,numa", (MUTEX, BINPACK, NUMA), id="names stay in written order"
        ),
        pytest.param("numa,mutex", (NUMA, MUTEX), id="a filter stays where it was written"),
        pytest.param(" mutex ,\tbinpack\n", (MUTEX, BINPACK), id="blanks around names are trimmed"),
        pytest.param(",mutex,, ,binpack,", (MUTEX, BINPACK), id="empty members are dropped"),
        pytest.param("numa,spread,numa", (NUMA, SPREAD), id="of two equal names the first stays"),
        pytest.param("turbo,binpack", (BINPACK,), id="an unknown name is ignored"),
        pytest.param("Binpack,spread", (SPREAD,), id="case matters"),
        pytest.param("mutex;binpack,numa", (NUMA,), id="a semicolon separates nothing"),
        pytest.param(None, (SPREAD,), id="an absent chain is the cluster's, spread by default"),
        pytest.param("", (SPREAD,), id="an empty chain is the cluster's"),
        pytest.param(" , ", (SPREAD,), id="a blank chain is the cluster's"),
        pytest.param("turbo,Mutex", (SPREAD,), id="a chain with nothing known is the cluster's"),
    ],
)
def test_names_in_force(text: str | None, want: tuple[PolicyName, ...]) -> None:
    """Section 2, rule 1."""
    assert parse(text, Scheduling()).policy.names == want


@pytest.mark.parametrize(
    ("text", "cluster", "want"),
    [
        pytest.param(None, "mutex,numa", (MUTEX, NUMA), id="the cluster's policy may be a chain"),
        pytest.param(
            "x", "binpack", (BINPACK,), id="nothing known: the cluster's policy stands in"
        ),
        pytest.param("numa", "binpack", (NUMA,), id="a known name keeps the cluster's policy out"),
        pytest.param(None, "", (SPREAD,), id="an empty cluster policy is spread"),
        pytest.param(None, "nonsense", (SPREAD,), id="a cluster policy nobody knows is spread"),
        pytest.param(None, "x,numa,numa", (NUMA,), id="the cluster's policy is read like a Pod's"),
    ],
)
def test_cluster_policy(text: str | None, cluster: str, want: tuple[PolicyName, ...]) -> None:
    """Section 2, rule 1: exactly as if the Pod had written it."""
    scheduling = Scheduling(cardPolicy=cluster)

    assert parse(text, scheduling).policy.names == want
    assert parse(text, scheduling).policy == parse(",".join(want), scheduling).policy


@pytest.mark.parametrize(
    ("text", "want_unknown", "want_disabled"),
    [
        pytest.param("mutex,binpack", (), (), id="nothing to tell of known names"),
        pytest.param(None, (), (), id="nothing to tell of an absent chain"),
        pytest.param(" ,", (), (), id="nothing to tell of a blank chain"),
        pytest.param("turbo, Mutex,spread", ("turbo", "Mutex"), (), id="unknown names, as written"),
        pytest.param("x,x,spread", ("x",), (), id="an unknown name is told once"),
        pytest.param(
            "topology-aware,x",
            ("x",),
            ("topology-aware",),
            id="a disabled name is not an unknown one",
        ),
    ],
)
def test_names_without_effect(
    text: str | None, want_unknown: tuple[str, ...], want_disabled: tuple[str, ...]
) -> None:
    """Section 2, rule 1 (unknown) and section 5 (topology-aware switched off)."""
    parsed = parse(text, OFF)

    assert parsed.unknown == want_unknown
    assert parsed.disabled == want_disabled


def test_nothing_of_the_clusters_own_policy_is_told_to_the_pod() -> None:
    parsed = parse("turbo", Scheduling(cardPolicy="nonsense,topology-aware"))

    assert parsed.unknown == ("turbo",)
    assert parsed.disabled == ()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("topology-aware,binpack", (BINPACK,), id="off: the name is dropped"),
        pytest.param(
            "topology-aware", (SPREAD,), id="off and alone: the cluster's policy stands in"
        ),
        pytest.param(
            "mutex,topology-aware", (MUTEX,), id="off: a chain of two comes down to a chain of one"
        ),
    ],
)
def test_topology_aware_switched_off(text: str, want: tuple[PolicyName, ...]) -> None:
    """Section 5: dropped like an unknown name."""
    policy = parse(text, OFF).policy

    assert policy.names == want
    assert not policy.topology_aware
    assert policy == parse(",".join(want), OFF).policy


def test_topology_aware_of_the_cluster_is_dropped_too_when_it_is_off() -> None:
    scheduling = Scheduling(cardPolicy="topology-aware,numa", topologyAware=OFF.topologyAware)

    assert parse(None, scheduling).policy.names == (NUMA,)


@pytest.mark.parametrize(
    ("text", "want_mutex", "want_topology"),
    [
        pytest.param("binpack,numa", False, False, id="sort keys filter nothing"),
        pytest.param("mutex,binpack", True, False, id="mutex first"),
        pytest.param("binpack,mutex", True, False, id="mutex last"),
        pytest.param("numa,topology-aware,spread", False, True, id="topology-aware in the middle"),
        pytest.param("topology-aware,mutex", True, True, id="both filters"),
        pytest.param("mutex", True, False, id="mutex alone"),
        pytest.param("topology-aware", False, True, id="topology-aware alone"),
    ],
)
def test_filters(text: str, want_mutex: bool, want_topology: bool) -> None:
    """Section 2, rule 2: filters, whatever their place in the list."""
    policy = parse(text, Scheduling()).policy

    assert policy.mutex is want_mutex
    assert policy.topology_aware is want_topology


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("binpack,numa", (BINPACK, NUMA), id="written order"),
        pytest.param("numa,binpack", (NUMA, BINPACK), id="the other order"),
        pytest.param("mutex,numa,spread", (NUMA, SPREAD), id="a filter is no sort key"),
        pytest.param("binpack,spread", (BINPACK, SPREAD), id="opposites may both be written"),
        pytest.param("mutex,binpack", (BINPACK,), id="of two names only the written key counts"),
        pytest.param("mutex,topology-aware", (SPREAD,), id="no sort key: spread alone"),
        pytest.param("topology-aware,spread", (SPREAD,), id="topology-aware and one key"),
        pytest.param("binpack", (BINPACK, NUMA), id="binpack alone: then the lower NUMA node"),
        pytest.param("spread", (SPREAD, NUMA), id="spread alone: then the lower NUMA node"),
        pytest.param("mutex", (SPREAD, NUMA), id="mutex alone: spread, then the lower NUMA node"),
        pytest.param(
            "topology-aware", (SPREAD, NUMA), id="topology-aware alone: spread, then the NUMA node"
        ),
        pytest.param("numa", (NUMA,), id="numa alone: nothing but NUMA"),
        pytest.param("binpack,binpack", (BINPACK, NUMA), id="a repeated name is a chain of one"),
        pytest.param("binpack,turbo", (BINPACK, NUMA), id="an unknown name makes no chain of two"),
        pytest.param(None, (SPREAD, NUMA), id="the default behaves as spread alone"),
    ],
)
def test_sort_keys(text: str | None, want: tuple[PolicyName, ...]) -> None:
    """Section 2, rules 3, 5 and 6."""
    assert parse(text, Scheduling()).policy.keys == want


def test_sort_keys_are_the_names_that_are_no_filter() -> None:
    assert set(PolicyName) - set(SORT_KEYS) == {MUTEX, TOPOLOGY}


def test_a_policy_is_told_as_it_is_in_force() -> None:
    assert str(parse(" mutex,turbo, binpack", Scheduling()).policy) == "mutex,binpack"


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("binpak", "binpack", id="a letter is missing"),
        pytest.param("MUTEX", "mutex", id="the wrong case"),
        pytest.param(" Spread ", "spread", id="blanks and the wrong case"),
        pytest.param("topology", "topology-aware", id="a part of the name"),
        pytest.param("topology_aware", "topology-aware", id="an underscore"),
        pytest.param("num", "numa", id="just near enough"),
        pytest.param("mutex;binpack", "mutex,binpack", id="a semicolon for a comma"),
        pytest.param("Mutex topology-aware + numa", "mutex,topology-aware,numa", id="other marks"),
        pytest.param("mutex mutex", "mutex", id="one name twice"),
        pytest.param("first-fit", None, id="nothing is near"),
        pytest.param("", None, id="nothing at all"),
        pytest.param("space", None, id="half right is not near"),
    ],
)
def test_nearest_known_name(name: str, want: str | None) -> None:
    """Section 2, rule 1: what the warning suggests."""
    assert nearest(name) == want
