"""What Kopf costs for one event of a Pod, our handler left out: it is part of each Pod's price.

It goes by Kopf's own inside, as its queue does; another version may need another call here.
"""

import asyncio
from itertools import count
from typing import Any

import kopf
import pytest
from kopf._cogs.structs import ephemera, references
from kopf._core.engines import indexing
from kopf._core.reactor import inventory, processing
from pytest_benchmark.fixture import BenchmarkFixture

import build
from cardwise.controller.watching import handlers

_A_ROUND = 200
FIELDS = {f"f:{field}": {} for field in ("spec", "status", "metadata", "containers")}
PODS = references.Resource(
    group="", version="v1", plural="pods", kind="Pod", namespaced=True, verbs=frozenset({"watch"})
)


def placed(number: int) -> build.Json:
    pod = build.pod("p", uid=f"u{number}", gpumem=1000, node="n1", allocated="GPU-a,NVIDIA,1,0:;")
    pod["metadata"]["managedFields"] = [{"manager": "x", "fieldsV1": FIELDS}] * 3
    pod["spec"]["tolerations"] = [{"key": "k", "operator": "Exists", "effect": "NoExecute"}] * 2
    return pod


@pytest.mark.parametrize("settings", ["ours", "kopf's own"])
def test_events(benchmark: BenchmarkFixture, settings: str) -> None:
    """The figure is of 200 events."""
    registry, numbers = kopf.OperatorRegistry(), count()

    async def handle(event: Any, **_: Any) -> None:
        pass

    kopf.on.event("", "v1", "pods", id="see-pods", registry=registry)(handle)
    known = inventory.ResourceMemories()
    wanted = handlers.settings() if settings == "ours" else kopf.OperatorSettings()

    async def process() -> None:
        queue: Any = asyncio.Queue()
        for _ in range(_A_ROUND):
            await processing.process_resource_event(
                lifecycle=kopf.lifecycles.all_at_once,
                indexers=indexing.OperatorIndexers(),
                registry=registry,
                settings=wanted,
                memories=known,
                memobase=ephemera.Memo(),
                resource=PODS,
                raw_event={"type": "MODIFIED", "object": placed(next(numbers) % 500)},  # type: ignore[typeddict-item]
                event_queue=queue,
            )

    with asyncio.Runner() as runner:
        benchmark(lambda: runner.run(process()))
