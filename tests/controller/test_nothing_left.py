"""Of Pods that came and went nothing is left: memory does not grow with what a cluster has seen."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

import build
from cardwise.controller.followers import rejected
from cardwise.controller.gates import tracker
from cardwise.controller.telling import recorder
from cardwise.ledger import ledger
from cardwise.names import GATE, Door
from cardwise.settings import Scheduling, Settings
from controllers import World, passing

Json = dict[str, Any]
_REMEMBERED = 40
_LIVES = 60
"""More than is remembered of those that went."""


def collections(thing: object, path: str, met: set[int]) -> Iterator[tuple[str, int]]:
    """Every collection of ours within a thing: under which names it stands, and how long it is."""
    if id(thing) in met:
        return
    met.add(id(thing))
    if isinstance(thing, dict | set | list | deque):
        yield path, len(thing)
        for each in thing.values() if isinstance(thing, dict) else thing:
            yield from collections(each, f"{path}[]", met)
    elif type(thing).__module__.startswith(("cardwise", "prometheus_client")):
        names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in [*getattr(thing, "__dict__", {}), *names]:
            if hasattr(thing, name):
                yield from collections(getattr(thing, name), f"{path}.{name}", met)


def kept(world: World) -> dict[str, int]:
    """How much there is in the controller's collections, by their names."""
    found: dict[str, int] = {}
    for path, length in collections(world.controller, "controller", set()):
        found[path] = found.get(path, 0) + length
    return found


async def by_extender(world: World, pod: Json, *, fits: bool) -> None:
    """kube-scheduler asks about a Pod, and has it bound where it fits."""
    answer = world.filter(pod, "n1", "n2")
    assert bool(answer["NodeNames"]) is fits
    if fits:
        await world.bind(pod, answer["NodeNames"][0])


async def by_gates(world: World, pod: Json, *, fits: bool) -> None:
    """The door decides by itself."""
    await passing(0.1)
    entry = world.entry(pod)
    assert (entry is not None and entry.booking is not None) is fits


async def lives(world: World, live: Any, numbers: range) -> None:
    """Each Pod in a namespace of its own: it is placed or not, and goes, with a word or without."""
    for name in ("n1", "n2"):  # their agents are alive
        world.cluster.put(
            build.gpunode(name, reported_at=f"2026-11-30T12:{numbers[0] // 60:02}:00Z")
        )
    for number in numbers:
        for fits in (True, False):
            gates = {"gates": [GATE], "scheduler": "default-scheduler"}
            pod = build.pod(
                f"{'p' if fits else 'q'}{number}",
                namespace=f"space-{number}",
                gpumem=1000 if fits else 50_000,
                **(gates if live is by_gates else {}),
            )
            pod = world.cluster.put(pod)
            await live(world, pod, fits=fits)
            world.cluster.remove("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    await passing(400.0)  # events are written behind, and lists compared


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("door", "live"),
    [
        pytest.param(Door.EXTENDER, by_extender, id="extender"),
        pytest.param(Door.GATES, by_gates, id="gates"),
    ],
)
async def test_of_pods_that_went_nothing_is_kept_for_each(
    door: Door, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Red: the ledger's ended UIDs, the recorder's events or what was read of Pods have no end.
    for module in (ledger, rejected, tracker):
        monkeypatch.setattr(module, "_TOMBSTONES", _REMEMBERED)
    monkeypatch.setattr(recorder, "_REMEMBERED", _REMEMBERED)
    nodes = [build.node_object(name, gpus=40) for name in ("n1", "n2")]
    settings = Settings(scheduling=Scheduling(door=door))
    world = await World(*nodes, settings=settings).load()
    world.cluster.watch = world.show
    if world.controller.gates_door is not None:
        world.controller.gates_door.begin()

    async with world.running():
        await lives(world, live, range(_LIVES))
        before = kept(world)
        await lives(world, live, range(_LIVES, 2 * _LIVES))
        after = kept(world)

    grown = {name: (before.get(name, 0), many) for name, many in after.items()}
    assert {n: pair for n, pair in grown.items() if pair[1] > pair[0] + _LIVES // 4} == {}
    assert before["controller.ledger._ended"] == _REMEMBERED
