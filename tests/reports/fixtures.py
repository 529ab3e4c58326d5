"""The clusters that the reports begin with, and who is on their cards.

Cards go by the reports' short names: ``g0`` is the T4 with index 0 and has the UUID ``GPU-g0``. A
cluster of several nodes has ``GPU-n1-g0`` and so on. ``load`` fills cards::

    fixtures.answer(*fixtures.t4x4(), *fixtures.load(g0="2/4000/30"), build.pod(gpumem=1000))

``got`` runs a sequence of Pods through ``simulate`` and names the cards of each.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import build
import simulated
from cardwise import names
from cardwise.settings import Settings

Json = dict[str, Any]
T4_MIB, A100_MIB = 15360, 81920


def t4(count: int, numa: Sequence[int], node: str = "n1", *, several: bool = False) -> Json:
    """A GPUNode of T4s ``g0``, ``g1``…; of several nodes each UUID has its node's name."""
    return build.gpunode(
        node,
        [
            build.card(index, uuid=uuid(f"g{index}", node if several else ""), numaNode=numa[index])
            for index in range(count)
        ],
    )


def t4x4() -> list[Json]:
    """One node; g0 and g1 on NUMA node 0, g2 and g3 on NUMA node 1."""
    return [t4(4, (0, 0, 1, 1))]


def t4x2() -> list[Json]:
    """One node; g0 on NUMA node 0, g1 on NUMA node 1."""
    return [t4(2, (0, 1))]


def t4x1() -> list[Json]:
    """One node with one card, g0."""
    return [t4(1, (0,))]


def two_nodes(count: int = 1) -> list[Json]:
    """``2N``: n1 and n2, each with one T4, or with so many."""
    return [t4(count, (0, 1, 1, 1), node, several=True) for node in ("n1", "n2")]


def a8(*, links: bool = True) -> list[Json]:
    """One node with eight A100s; by NVLink each is joined to the three others of its half.

    Args:
        links: False: the node reports no links.
    """
    cards = [
        build.card(
            index,
            uuid=uuid(f"a{index}"),
            model="NVIDIA-A100-SXM4-80GB",
            memoryMiB=A100_MIB,
            numaNode=index // 4,
        )
        for index in range(8)
    ]
    joined: list[Json | tuple[Any, ...]] = [
        # Score 100 inside a half, by one NVLink; 10 across.
        {"between": [first, second], "nvlinks": 1}
        if first // 4 == second // 4
        else (first, second, 0, "SYS")
        for first in range(8)
        for second in range(first + 1, 8)
    ]
    return [build.gpunode("n1", cards, links=joined if links else None)]


def uuid(card: str, node: str = "") -> str:
    """``GPU-g0``; ``GPU-n1-g0`` where a node is named."""
    return f"GPU-{node}-{card}" if node else f"GPU-{card}"


def changed(gpunode: Json, card: int | None = None, **fields: Any) -> Json:
    """The GPUNode with other fields on one of its cards, or on all: ``slots=1``."""
    cards = [
        {**it, **(fields if card in (None, it["index"]) else {})}
        for it in gpunode["status"]["cards"]
    ]
    return {**gpunode, "status": {**gpunode["status"], "cards": cards}}


def load(node: str = "n1", *, several: bool = False, **cards: str) -> list[Json]:
    """Running Pods that fill cards: ``g0="2/4000/30"`` is 2 slots, 4000 MiB and 30 cores of g0.

    Each slot is a Pod, ``default/g0-0``, ``default/g0-1``… (``default/n1-g0-0`` where there are
    several nodes); memory and cores are divided among them, what is left goes to the first.
    """
    return [
        pod
        for card, text in cards.items()
        for pod in _tenants(node, card, *map(int, text.split("/")), several=several)
    ]


def _tenants(
    node: str, card: str, slots: int, mib: int, cores: int, *, several: bool
) -> list[Json]:
    name = f"{node}-{card}" if several else card
    on = uuid(card, node if several else "")
    return [
        build.pod(
            f"{name}-{number}",
            gpumem=_part(mib, slots, number),
            node=node,
            allocated=build.allocation(
                on, mib=_part(mib, slots, number), cores=_part(cores, slots, number)
            ),
        )
        for number in range(slots)
    ]


def _part(whole: int, parts: int, number: int) -> int:
    return whole // parts + (whole % parts if number == 0 else 0)


# The level of simulate ----------------------------------------------------------------------------


def answer(*objects: Json, settings: Settings | None = None, **options: Any) -> dict[str, Any]:
    """What ``cardwise simulate`` says of every Pod that waits, by its name alone."""
    found = simulated.answer(*objects, settings=settings, **options)
    return {key.rpartition("/")[2]: pod for key, pod in found.items()}


def one(*objects: Json, **options: Any) -> Json:
    """As `answer`, of the only Pod that waits."""
    [pod] = answer(*objects, **options).values()
    return dict(pod)


def cards_of(pod: Mapping[str, Any]) -> list[str] | str:
    """The cards that a Pod got, container after container (``g0``, ``n1/g0``); else the reason."""
    if pod["node"] is None:
        return str(pod["reason"])
    return [
        _short(card["uuid"], str(pod["node"]))
        for container in pod["containers"]
        for card in container["cards"]
    ]


def _short(card: str, node: str) -> str:
    bare = card.removeprefix("GPU-")
    return f"{node}/{bare.removeprefix(f'{node}-')}" if bare.startswith(f"{node}-") else bare


def got(*objects: Json, **options: Any) -> dict[str, list[str] | str]:
    """Every Pod that was to be placed: its cards, or the word for which it waits."""
    return {name: cards_of(pod) for name, pod in answer(*objects, **options).items()}


def pods(number: int, **fields: Any) -> list[Json]:
    """So many equal Pods, ``p0``, ``p1``… as build.pod makes them."""
    return [build.pod(f"p{index}", **fields) for index in range(number)]


def job(kind: str = "Job", *, on_workload: Mapping[str, str], **fields: Any) -> Json:
    """A workload ``w`` whose Pods are as build.pod makes them."""
    made = build.pod(**fields)
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "w", "namespace": "default", "annotations": dict(on_workload)},
        "spec": {
            "template": {
                "metadata": {"annotations": made["metadata"]["annotations"]},
                "spec": {**made["spec"], "schedulerName": names.SCHEDULER_NAME},
            }
        },
    }


def days(count: int) -> timedelta:
    """So many days."""
    return timedelta(days=count)
