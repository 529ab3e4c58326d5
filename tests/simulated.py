"""Builders for ``cardwise simulate``: objects in, the JSON of every Pod out."""

from typing import Any

import yaml

import build
from cardwise.cli.documents import documents_of
from cardwise.cli.placements import Simulation
from cardwise.cli.rendering import document_of
from cardwise.cli.simulation import simulate
from cardwise.cli.workloads import expanded
from cardwise.settings import Settings


def small(name: str, **fields: Any) -> build.Json:
    """A Pod of 1000 MiB that wants a card without tenants."""
    return build.pod(name, **{"gpumem": 1000, "policy": "mutex", **fields})


def simulated(
    *objects: build.Json,
    settings: Settings | None = None,
    admission: bool = True,
    trace: bool = False,
) -> Simulation:
    """What became of these objects, through YAML and back as from a file."""
    documents = expanded(documents_of(yaml.safe_dump_all(objects), "f.yaml"))
    return simulate(documents, settings or Settings(), admission=admission, trace=trace)


def answer(*objects: build.Json, **options: Any) -> dict[str, Any]:
    """The JSON of every Pod, by ``namespace/name``."""
    found = document_of(simulated(*objects, **options))
    return {pod["pod"]: pod for pod in found["pods"]}


def node(name: str = "n1", cards: int = 4, **fields: Any) -> build.Json:
    """A GPUNode; the cards of ``n1`` are ``GPU-a``, ``GPU-b`` and so on."""
    return build.gpunode(name, cards, prefix="GPU-" if name == "n1" else None, **fields)


def tenant(name: str, text: str, on: str = "n1", **fields: Any) -> build.Json:
    """A bound Pod with that allocation text."""
    return build.pod(name, node=on, allocated=text, **fields)


def where(pod: dict[str, Any]) -> Any:
    """The indexes of a Pod's cards, container by container; the reason where it waits."""
    if pod["node"] is None:
        return pod["reason"]
    return [[card["index"] for card in each["cards"]] for each in pod["containers"]]


A1 = build.allocation("GPU-a")
WORKED = [
    node(),
    tenant("t1", A1),
    tenant("t2", A1),
    tenant("t3", build.allocation("GPU-b")),
    build.pod("new", gpumem=1000, policy="mutex,binpack"),
]
