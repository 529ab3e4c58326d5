"""Builders for ``cardwise explain`` and ``top``: a cluster's objects in, the account out."""

import io
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

import build
from cardwise.cli.explain import explain_pod
from cardwise.cli.explanation import Explanation
from cardwise.cli.telling import document_of, print_explanation
from cardwise.cli.world import unix_seconds
from cardwise.settings import Settings
from fakes.cluster import FakeCluster
from fakes.reader import FakeReader

Json = dict[str, Any]
NOW = (unix_seconds(build.REPORTED_AT) or 0.0) + 30
"""Unix seconds: half a minute after every GPUNode was reported."""


def node(name: str, **fields: Any) -> Json:
    """A Node that offers cards, as its agent advertises them."""
    return build.node_object(name, **{"gpus": 40, **fields})


def card_node(name: str = "n1", cards: int = 4, **fields: Any) -> tuple[Json, Json]:
    """A Node and its GPUNode; the cards of ``n1`` are ``GPU-a``, ``GPU-b`` and so on."""
    prefix = "GPU-" if name == "n1" else None
    return node(name), build.gpunode(name, cards, prefix=prefix, **fields)


def tenant(name: str, *cards: str, on: str = "n1", **fields: Any) -> Json:
    """A bound Pod with 1000 MiB of each of these cards in one container."""
    text = build.allocation(*cards, mib=fields.pop("mib", 1000))
    return build.pod(name, node=on, allocated=text, **{"gpumem": 1000, **fields})


def event(pod: Json, reason: str, note: str, *, ago: float = 10.0, count: int = 1) -> Json:
    """An event of the controller's on a Pod, as core/v1 shows it."""
    when = datetime.fromtimestamp(NOW - ago, UTC).isoformat()
    series = {"series": {"count": count, "lastObservedTime": when}} if count > 1 else {}
    return {
        "reason": reason,
        "message": note,
        "eventTime": when,
        "reportingComponent": "cardwise.dev/controller",
        "involvedObject": {"uid": pod["metadata"]["uid"]},
        **series,
    }


def reader(*objects: Any, **fields: Any) -> FakeReader:
    """Reads a cluster of these objects; a pair is a Node and its GPUNode."""
    flat = [each for one in objects for each in (one if isinstance(one, tuple) else (one,))]
    return FakeReader(FakeCluster(*flat), **{"now": NOW, **fields})


async def explained(
    pod: Json, *objects: Any, settings: Settings | None = None, **fields: Any
) -> Explanation:
    """The account of a Pod in a cluster of these objects."""
    metadata = pod["metadata"]
    return await explain_pod(
        reader(*objects, pod, **fields), metadata["namespace"], metadata["name"], settings
    )


def printed(found: Explanation, *, trace: bool = False) -> str:
    """What a pipe is told."""
    out = io.StringIO()
    print_explanation(found, Console(file=out, highlight=False, emoji=False), trace=trace)
    return out.getvalue()


def document(found: Explanation, *, trace: bool = False) -> Json:
    """What a program is told."""
    return document_of(found, trace=trace)
