"""What Hypothesis draws of the engine's own values: small nodes, crowded enough to differ."""

from collections.abc import Sequence

from hypothesis import strategies as st

from cardwise.model import Ask, CardState, ContainerKind, NodeState, NodeView, Signature
from cardwise.names import LINK_PATHS, NodePolicy, PolicyName, TopologyMode
from states import LinkRow, ask, card, signature, state, view

FILTERS = ("mutex", "topology-aware")
NOISE = ("turbo", "Mutex", "BINPACK", "first-fit", "", " ", "numa;spread")
"""Members of a chain that mean nothing."""

numa_nodes = st.sampled_from([0, 1, None, 2])


@st.composite
def card_states(draw: st.DrawFn, index: int = 0) -> CardState:
    """A card, often idle, often like its neighbours."""
    tenants = draw(st.sampled_from([0, 0, 1, 2, 4]))
    return card(
        index,
        tenants=tenants,
        used_mib=draw(st.sampled_from([1000, 1, 4000])) * tenants,
        used_cores=draw(st.sampled_from([0, 25])) * tenants,
        numa=draw(numa_nodes),
        memory=draw(st.sampled_from([15360, 8000])),
        cores=draw(st.sampled_from([100, 100, 150, 50])),
        slots=draw(st.sampled_from([10, 4, 2])),
        healthy=draw(st.sampled_from([True] * 7 + [False])),
        cordoned=draw(st.sampled_from([False] * 7 + [True])),
        exclusive=tenants > 0 and draw(st.sampled_from([False] * 5 + [True])),
    )


@st.composite
def idle_cards(draw: st.DrawFn, most: int = 6) -> tuple[CardState, ...]:
    """Cards that differ in nothing but their NUMA node and index."""
    numa = draw(st.lists(numa_nodes, min_size=1, max_size=most))
    step = draw(st.sampled_from([1, 3]))
    return tuple(card(at * step, numa=node) for at, node in enumerate(numa))


@st.composite
def link_rows(draw: st.DrawFn, indexes: Sequence[int]) -> list[LinkRow]:
    """Links between some of the cards, with few different values, so that sums tie."""
    pairs = [(a, b) for at, a in enumerate(indexes) for b in indexes[at + 1 :]]
    nvlinks = st.sampled_from([0, 1, 2])
    paths = st.sampled_from(["", *LINK_PATHS[:3]])
    return [
        (*pair, draw(nvlinks), draw(paths))
        for pair in pairs
        if draw(st.sampled_from([True, False]))
    ]


@st.composite
def grouped_links(draw: st.DrawFn, indexes: Sequence[int]) -> list[LinkRow]:
    """Cards in a few groups; the group says how a card is linked, as behind switches."""
    groups = {index: draw(st.integers(0, 3)) for index in indexes}
    nvlinks = {(a, b): draw(st.sampled_from([0, 1, 4])) for a in range(4) for b in range(a, 4)}
    pairs = [(a, b) for at, a in enumerate(indexes) for b in indexes[at + 1 :]]
    return [(a, b, nvlinks[min(groups[a], groups[b]), max(groups[a], groups[b])]) for a, b in pairs]


@st.composite
def node_states(draw: st.DrawFn, *, most: int = 6, linked: bool = True) -> NodeState:
    """A node of mixed cards; ``linked``: its links are perhaps known."""
    indexes = range(draw(st.integers(1, most)))
    cards = [draw(card_states(index)) for index in indexes]
    known = linked and draw(st.booleans())
    return state(*cards, links=draw(link_rows(indexes)) if known else None)


@st.composite
def asks(draw: st.DrawFn, kind: ContainerKind = ContainerKind.REGULAR) -> Ask:
    """One container that asks for cards."""
    return ask(
        draw(st.sampled_from([1, 2, 1, 3])),
        draw(st.sampled_from([1000, 4000, 0])),
        draw(st.sampled_from([0, 30, 0, 100])),
        kind,
        percent=draw(st.sampled_from([20, 100])),
    )


chain_names = st.lists(
    st.sampled_from([name.value for name in PolicyName]), min_size=1, max_size=5, unique=True
)
chains = chain_names.map(",".join)
longer_chains = st.permutations(["mutex", "binpack", "spread", "numa"]).flatmap(
    lambda names: st.integers(2, len(names)).map(lambda length: names[:length])
)
"""Two names or more, and no links among them."""


@st.composite
def signatures(draw: st.DrawFn, *, policy: str | None = None) -> Signature:
    """A Pod of one or several containers."""
    first = [draw(asks(kind)) for kind in draw(st.lists(st.sampled_from(_BEFORE), max_size=2))]
    regular = [draw(asks()) for _ in range(draw(st.integers(1, 2)))]
    return signature(
        *first,
        *regular,
        policy=draw(chains) if policy is None else policy,
        node_policy=draw(st.sampled_from(NodePolicy)),
        weights=draw(st.sampled_from([(1, 1, 1), (0, 0, 3), (2, 1, 0)])),
        use_uuids=draw(st.sampled_from([(), (), ("GPU-a-0", "GPU-b-0", "GPU-c-1")])),
        nouse_uuids=draw(st.sampled_from([(), (), ("GPU-a-1", "GPU-c-0")])),
        numa_bind=draw(st.booleans()),
        exclusive=draw(st.booleans()),
        mode=draw(st.sampled_from(TopologyMode)),
    )


_BEFORE = (ContainerKind.INIT, ContainerKind.SIDECAR)


@st.composite
def views(draw: st.DrawFn) -> list[NodeView]:
    """A few nodes, some of them in the same state."""
    shown = draw(st.lists(node_states(most=4), min_size=1, max_size=3))
    return [
        view(name, draw(st.sampled_from(shown)))
        for name in draw(st.permutations("abcd"))[: draw(st.integers(1, 4))]
    ]


@st.composite
def decorated(draw: st.DrawFn, names: Sequence[str]) -> str:
    """The same chain with unknown names, blanks and repeats strewn in."""
    members: list[str] = []
    for at, name in enumerate(names):
        members += draw(st.lists(st.sampled_from([*NOISE, *names[:at]]), max_size=2))
        members.append(
            draw(st.sampled_from(["", " ", "\t"])) + name + draw(st.sampled_from(["", " "]))
        )
    members += draw(st.lists(st.sampled_from([*NOISE, *names]), max_size=2))
    return ",".join(members)
