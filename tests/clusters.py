"""Random clusters as Kubernetes JSON: small, crowded and odd, so that every rule gets its turn.

One generator for two drivers: Hypothesis, which shrinks what it finds, and a seeded ``Random``,
which always sees the same clusters. Both only choose from lists, the plainest member first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

import build
from cardwise import names
from cardwise.names import NodePolicy, TopologyMode
from cardwise.settings import Defaults, Scheduling, Settings, TopologyAware

T = TypeVar("T")
Json = dict[str, Any]

NAMESPACES = ("default", "other")
MODELS = ("NVIDIA-Tesla T4", "NVIDIA A100-SXM4-40GB", "NVIDIA A10")
CHAIN_WORDS = (
    "mutex",
    "topology-aware",
    "binpack",
    "spread",
    "numa",
    " numa",
    "binpack ",
    "Mutex",
    "turbo",
    "",
)
BROKEN_TEXTS = (
    "GPU-x,NVIDIA,1000:;",
    "GPU-x,NVIDIA,lots,0:;",
    ",NVIDIA,1000,0:;",
    "GPU-x,NVIDIA,-1,0:;",
)
INVALID_VALUES = ("16Gi", "1500m", "-1", "4G", "many")
INVALID_WEIGHTS = ("", "slot=1", "slot=0,core=0,memory=0", "slot=1,core=1,memory=x", "a=1,b=2,c=3")


class Dice(Protocol):
    """Whatever chooses."""

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""


class RandomDice:
    """Chooses by a seed: the same seed, the same choices."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)


class DrawnDice:
    """Lets Hypothesis choose; it shrinks towards the first option."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def pick(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))


@dataclass(frozen=True)
class Cluster:
    """Everything that decides where a Pod goes."""

    gpunodes: list[Json]
    nodes: list[Json]
    tenants: list[Json]
    quotas: list[Json]
    pods: list[Json]
    """To be placed."""
    settings: Settings = field(default_factory=Settings)

    @property
    def node_names(self) -> list[str]:
        """Every node that there is to ask about."""
        return sorted({each["metadata"]["name"] for each in (*self.gpunodes, *self.nodes)})


def cluster_by(dice: Dice, *, pods: int = 1, legal: bool = False) -> Cluster:
    """Throw a cluster.

    Args:
        dice: what chooses.
        pods: how many Pods are to be placed.
        legal: no tenant at all, so that whatever is over-booked later was over-booked by us.
    """
    count = dice.pick((1, 2, 3))
    gpunodes = [_gpunode(dice, f"n{number}") for number in range(count)]
    cards = {each["metadata"]["name"]: each["status"]["cards"] for each in gpunodes}
    nodes = [
        build.node_object(name, cordon=_uuids(dice, cards[name]))
        for name in cards
        if _one_in(dice, 10)
    ]
    if _one_in(dice, 5):
        nodes.append(build.node_object("bare", gpus=dice.pick((None, 4, 0, "1k", "x"))))
    tenants = (
        []
        if legal
        else [_tenant(dice, f"t{n}", cards) for n in range(dice.pick((2, 0, 1, 3, 5, 8)))]
    )
    return Cluster(
        gpunodes=gpunodes,
        nodes=nodes,
        tenants=tenants,
        quotas=[_quota(dice, f"q{number}") for number in range(dice.pick((0, 0, 0, 1, 2)))],
        pods=[_pod(dice, f"p{number}", cards) for number in range(pods)],
        settings=_settings(dice),
    )


@st.composite
def clusters(draw: st.DrawFn, *, pods: int = 1, legal: bool = False) -> Cluster:
    """Clusters that Hypothesis chooses."""
    return cluster_by(DrawnDice(draw), pods=pods, legal=legal)


def _one_in(dice: Dice, number: int) -> bool:
    return dice.pick((False,) * (number - 1) + (True,))


def _maybe(dice: Dice, number: int, options: Sequence[T]) -> T | None:
    """One of the options, one time in ``number``."""
    return dice.pick(options) if _one_in(dice, number) else None


def _uuids(dice: Dice, cards: Sequence[Json]) -> str:
    """A comma list of some of these cards, as people write them."""
    chosen = [dice.pick(cards)["uuid"] for _ in range(dice.pick((1, 2, 3)))] if cards else []
    return dice.pick((",", " , ", ",,")).join(chosen)


# Nodes --------------------------------------------------------------------------------------------


def _gpunode(dice: Dice, name: str) -> Json:
    count = dice.pick((4, 2, 3, 4, 5, 6, 8, 1, 0, 10))
    step = dice.pick((1, 1, 2))
    memory, model = dice.pick((15360, 8000, 1001)), dice.pick(MODELS)
    numa = dice.pick(((0, 0, 1, 1), (0,), (1, 0), (None, 0), (None,), (2, 0, 1)))
    slots, cores = dice.pick((10, 4, 2)), dice.pick((100, 100, 150, 50))
    cards = [
        build.card(
            index * step,
            uuid=f"GPU-{name}-{index}",
            numaNode=numa[index % len(numa)],
            model=dice.pick(MODELS) if _one_in(dice, 6) else model,
            memoryMiB=dice.pick((4000, 40960, 999)) if _one_in(dice, 6) else memory,
            cores=dice.pick((200, 30, 0)) if _one_in(dice, 8) else cores,
            slots=dice.pick((1, 3, 0)) if _one_in(dice, 8) else slots,
            mode=dice.pick(("mps", "mig", None)) if _one_in(dice, 8) else "hami-core",
            healthy=dice.pick((False, None)) if _one_in(dice, 8) else True,
        )
        for index in range(count)
    ]
    if _one_in(dice, 4):
        cards.reverse()
    cordoned = [card["uuid"] for card in cards if _one_in(dice, 25)]
    indexes = [card["index"] for card in cards]
    return build.gpunode(name, cards, cordoned=cordoned, links=_links(dice, indexes))


def _links(dice: Dice, indexes: Sequence[int]) -> list[Json] | None:
    """No list, some pairs, all pairs alike, or a mesh in which links differ."""
    pairs = [(a, b) for position, a in enumerate(indexes) for b in indexes[position + 1 :]]
    kind = dice.pick(("unknown", "mesh", "alike", "some", "none"))
    if kind == "unknown":
        return None
    if kind == "none":
        return []
    if kind == "alike":
        nvlinks, path = dice.pick((2, 0, 18)), dice.pick(names.LINK_PATHS)
        return [build.link(*pair, nvlinks=nvlinks, path=path) for pair in pairs]
    if kind == "some":
        pairs = [pair for pair in pairs if _one_in(dice, 2)]
    return [
        build.link(*pair, nvlinks=dice.pick((1, 0, 2, 0, 1)), path=dice.pick(("SYS", "PHB", "PIX")))
        for pair in pairs
    ]


# Pods ---------------------------------------------------------------------------------------------


def _tenant(dice: Dice, name: str, cards: dict[str, list[Json]]) -> Json:
    """A bound Pod; now and then one that ended, or whose text is not like the Pod."""
    node = dice.pick(sorted(cards))
    asks, init = _containers(dice, ask_cards=True)
    segments = [
        _segment(dice, cards[node], each["resources"].get("limits", {})) for each in (*init, *asks)
    ]
    text = "".join(segment + ";" for segment in segments)
    if _one_in(dice, 10):
        text = dice.pick((text + ";;", text.rstrip(";"), ";" + text, segments[0] + ";", "", ";"))
    if _one_in(dice, 30):
        text = dice.pick(BROKEN_TEXTS)
    return build.pod(
        name,
        namespace=dice.pick(NAMESPACES),
        containers=asks,
        init=init,
        node=None if _one_in(dice, 12) else node,
        phase=_maybe(dice, 12, ("Succeeded", "Failed", "Pending")),
        terminating=_one_in(dice, 8),
        allocated=text,
        exclusive_held=_one_in(dice, 6),
    )


def _segment(dice: Dice, cards: Sequence[Json], limits: Json) -> str:
    """The cards of one container, as many as it asks; one perhaps gone by now, or named twice."""
    count = int(limits.get(names.RESOURCE_COUNT, 0))
    free = [card["uuid"] for card in cards]
    chosen = []
    for _ in range(count):
        if not free:
            break
        uuid = dice.pick(free)
        free.remove(uuid)
        chosen.append("GPU-gone" if _one_in(dice, 20) else uuid)
        if _one_in(dice, 25):
            chosen.append(chosen[-1])
    mib, cores = dice.pick((1000, 250, 4000, 500, 7999, 0)), dice.pick((0, 0, 20, 10, 50, 100))
    extra = ",x" if _one_in(dice, 20) else ""
    return "".join(f"{uuid},NVIDIA,{mib},{cores}{extra}:" for uuid in chosen)


def _containers(dice: Dice, *, ask_cards: bool) -> tuple[list[Json], list[Json]]:
    """Regular and init containers; ``ask_cards``: in a form that is valid, but for the text."""
    shape = dice.pick(("r", "r", "r", "rr", "ir", "sr", "isr", "sirr", "irr"))
    init = [
        _container(dice, f"i{n}", valid=ask_cards, sidecar=kind == "s")
        for n, kind in enumerate(shape)
        if kind != "r"
    ]
    regular = [
        _container(dice, f"c{n}", valid=ask_cards) for n, kind in enumerate(shape) if kind == "r"
    ]
    return regular, init


def _container(dice: Dice, name: str, *, valid: bool, sidecar: bool = False) -> Json:
    count = dice.pick((1, 1, 1, 2, 1, 2, 3, 0))
    if count == 0:
        return build.container(name, sidecar=sidecar, gpu=dice.pick((None, 0)))
    odd = not valid and _one_in(dice, 60)
    return build.container(
        name,
        sidecar=sidecar,
        gpu=count,
        gpumem=dice.pick(INVALID_VALUES) if odd else dice.pick((1000, 500, 250, 3000, 8000, None)),
        percent=_maybe(dice, 2, (50, 10, 33, 5, 0)),
        gpucores=dice.pick((None, 0, 10, 30, 20, 10, 100, 120)),
        priority=_maybe(dice, 20, (0, 1)),
    )


def _pod(dice: Dice, name: str, cards: dict[str, list[Json]]) -> Json:
    regular, init = _containers(dice, ask_cards=False)
    every = [card for listed in cards.values() for card in listed]
    chain = ",".join(dice.pick(CHAIN_WORDS) for _ in range(dice.pick((1, 2, 3, 4))))
    written = {
        names.USE_TYPE: _maybe(dice, 16, ("t4", "A100,T4", "a10", "H100", " , ")),
        names.NOUSE_TYPE: _maybe(dice, 16, ("t4", "a100,", "H100", "")),
        names.USE_UUID: _uuids(dice, every) if _one_in(dice, 16) else None,
        names.NOUSE_UUID: _uuids(dice, every) if _one_in(dice, 16) else None,
        names.VGPU_MODE: _maybe(dice, 12, ("hami-core", "mps", "hami-core,mig", "warp", "")),
    }
    weights = dice.pick(
        ("slot=1,core=1,memory=3", " slot = 0 , memory=1,core=2", "core=9,slot=0,memory=0")
    )
    if _one_in(dice, 12):
        weights = dice.pick(INVALID_WEIGHTS)
    return build.pod(
        name,
        namespace=NAMESPACES[0],
        containers=regular,
        init=init,
        policy=None if _one_in(dice, 8) else chain,
        node_policy=_maybe(dice, 3, ("spread", "binpack", "Spread")),
        weights=weights if _one_in(dice, 5) else None,
        exclusive=_maybe(dice, 6, ("true", "1", "false", "yes")),
        topology=_maybe(dice, 2, ("preferred", "preferred", "required", "maybe")),
        numa_bind=_maybe(dice, 3, ("true", "T", "0", "on")),
        annotations={key: value for key, value in written.items() if value is not None},
    )


# Bounds and settings ------------------------------------------------------------------------------


def _quota(dice: Dice, name: str) -> Json:
    return build.quota(
        dice.pick(NAMESPACES),
        name=name,
        gpumem=dice.pick((16000, 40000, 6000, 100_000, 0, None, "x")),
        gpucores=dice.pick((None, None, 100, 250, 40)),
    )


def _settings(dice: Dice) -> Settings:
    if not _one_in(dice, 4):
        return Settings()
    return Settings(
        scheduling=Scheduling(
            cardPolicy=dice.pick(("spread", "binpack", "mutex,numa", "topology-aware", "nonsense")),
            nodePolicy=dice.pick(list(NodePolicy)),
            topologyAware=TopologyAware(
                enabled=dice.pick((True, True, False)), mode=dice.pick(list(TopologyMode))
            ),
        ),
        defaults=Defaults(memoryMiB=dice.pick((0, 2000)), cores=dice.pick((0, 20))),
    )


def oracle_settings(settings: Settings) -> Json:
    """The same settings, as the oracle takes them."""
    scheduling, defaults = settings.scheduling, settings.defaults
    return {
        "cardPolicy": scheduling.cardPolicy,
        "nodePolicy": scheduling.nodePolicy.value,
        "topologyEnabled": scheduling.topologyAware.enabled,
        "topologyMode": scheduling.topologyAware.mode.value,
        "defaultMemoryMiB": defaults.memoryMiB,
        "defaultCores": defaults.cores,
    }
