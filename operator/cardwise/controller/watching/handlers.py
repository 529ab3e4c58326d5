"""The Kopf operator: watches, and nothing else.

Only raw events are used, so that Kopf writes nothing to a user's Pod (no finalizer, no last-handled
state). A handler takes one event to the mirror and returns.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any, Protocol

import kopf

from cardwise.controller.followers.classes import Classes
from cardwise.controller.watching.mirror import Mirror
from cardwise.controller.watching.watch import Health, Watchman
from cardwise.kube.client import LIST_SECONDS, PAGE, Client
from cardwise.kube.paths import UNFINISHED
from cardwise.names import API_GROUP, API_VERSION, GPUNODE_PLURAL
from cardwise.wire.pods import pod_ref

_log = logging.getLogger(__name__)

WATCH_SECONDS = 30
"""How long a watch lives: then the API server ends it, and it goes on from what it said last."""
DEAD_SECONDS = 35.0
"""Silence after which a watch is dead: one that lived would have come to its end by then."""
_IDLE_SECONDS = 1.0
"""How long Kopf keeps an object, and a task for it, after its last event: its own 5 s come to much
memory while thousands of objects are listed."""
KOPF_SECONDS = 3.0
"""How long Kopf may take to close its watches."""

Json = dict[str, Any]


class Take(Protocol):
    """Takes an object that is there, changed, or gone."""

    def __call__(self, document: Json, *, deleted: bool) -> None:
        """Take it; ``deleted``: as it was last."""
        ...


def register(
    registry: kopf.OperatorRegistry,
    *,
    mirror: Mirror,
    watchman: Watchman,
    health: Health,
    classes: Classes,
    login: Callable[[], Awaitable[kopf.ConnectionInfo]],
) -> None:
    """Register the handlers of the kinds that are watched."""

    def see_pod(document: Json, *, deleted: bool) -> None:
        if health.own_pod is not None and pod_ref(document).uid == health.own_pod.uid:
            health.heard()
        if not deleted:
            classes.see_pod(document)
        mirror.see_pod(document, deleted=deleted)

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    kinds: list[tuple[tuple[str, str, str], Take]] = [
        (("", "v1", "pods"), see_pod),
        ((API_GROUP, API_VERSION, GPUNODE_PLURAL), mirror.see_gpunode),
        (("", "v1", "nodes"), mirror.see_node),
        (("", "v1", "resourcequotas"), mirror.see_quota),
        *((kind.resource, partial(mirror.see, kind)) for kind in mirror.kinds),
    ]
    for kind, take in kinds:
        handler = _handler(take, watchman, kind[2])
        kopf.on.event(*kind, id=f"see-{kind[2]}", registry=registry)(handler)


def _handler(take: Take, watchman: Watchman, kind: str) -> Callable[..., Awaitable[None]]:
    """One event to the mirror; what fails is mended by a fresh list: Kopf does not repeat it."""

    # A coroutine, because Kopf would run a plain function in a thread, beside the decisions.
    async def handle(event: Any, **_: Any) -> None:
        if event["type"] is None:
            watchman.listed()
        try:
            take(dict(event["object"]), deleted=event["type"] == "DELETED")
        except Exception:  # noqa: BLE001 - whatever it was, the next list mends it
            _log.exception("an event could not be taken; a fresh list will mend what it said")
            watchman.doubt()
        watchman.heard(kind)

    return handle


class _Backoffs(Iterable[float]):
    """Seconds between tries, without end and never long.

    Kopf's own give a request up after 54 s of errors, which ends the watch for good; and they wait
    21 s before the last try, blind although the API server answers again.
    """

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 1.0, 2.0, 3.0), repeat(5.0))


class _NoDiffs(kopf.DiffBaseStorage):
    """Nothing is remembered of an object, and nothing compared with what was before.

    Kopf takes a deep copy of each event's object for that, although no handler of ours asks for
    differences: nearly half of what an event costs it.
    """

    def build(self, **_: object) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: object) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: object) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """No handler of ours is tried twice, so nothing is looked for, or taken out, in an object."""

    def fetch(self, **_: object) -> kopf.ProgressRecord | None:
        return None

    def store(self, **_: object) -> None:
        pass

    def purge(self, **_: object) -> None:
        pass

    def touch(self, **_: object) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def settings() -> kopf.OperatorSettings:
    """Kopf as we want it: it reads, and writes nothing."""
    wanted = kopf.OperatorSettings()
    wanted.persistence.diffbase_storage = _NoDiffs()
    wanted.persistence.progress_storage = _NoProgress()
    wanted.queueing.idle_timeout = _IDLE_SECONDS
    wanted.posting.enabled = False
    wanted.scanning.disabled = True
    wanted.peering.standalone = True
    wanted.watching.chunk_size = PAGE
    wanted.watching.server_timeout = WATCH_SECONDS
    wanted.watching.inactivity_timeout = DEAD_SECONDS
    # A list that is not answered would keep its watch away; Kopf waits 300 s.
    wanted.networking.request_timeout = LIST_SECONDS
    wanted.networking.error_backoffs = _Backoffs()
    # A Pod that ends is told as DELETED then; the finished ones cost nothing.
    wanted.watching.field_selectors["", "v1", "pods"] = UNFINISHED
    return wanted


async def watch(
    *,
    mirror: Mirror,
    watchman: Watchman,
    health: Health,
    classes: Classes,
    client: Client,
    stop: asyncio.Event,
    kopf_stop: asyncio.Event,
) -> None:
    """Run Kopf until ``kopf_stop``.

    Args:
        mirror: takes what is watched.
        watchman: is told where something may have been missed.
        health: hears the heartbeats of our own Pod.
        classes: sees new Pods.
        client: where and as whom Kopf asks.
        stop: is set where Kopf ends before, by a signal it took.
        kopf_stop: ends Kopf.

    Raises:
        RuntimeError: the watches failed for good.
    """

    async def login() -> kopf.ConnectionInfo:
        known = await client.credentials()
        scheme, _, token = known.authorization.partition(" ")
        return kopf.ConnectionInfo(
            server=known.server,
            ca_path=known.ca_file,
            certificate_path=known.certificate_file,
            private_key_path=known.key_file,
            insecure=known.insecure,
            scheme=scheme or None,
            token=token or None,
        )

    registry = kopf.OperatorRegistry()
    register(
        registry, mirror=mirror, watchman=watchman, health=health, classes=classes, login=login
    )
    # Where one of its watches fails for good, Kopf begins to end; it may never come to it, because
    # it waits for other watches, which wait for a login that it stopped. That it begins is enough.
    ending = asyncio.Event()

    @kopf.on.cleanup(registry=registry)
    async def begin_to_end(**_: Any) -> None:
        ending.set()

    # Before Kopf starts: in its end it waits for every task that began after it.
    ended = asyncio.create_task(ending.wait())
    # Kopf takes SIGTERM for itself; it is given back as soon as Kopf has started.
    ready = asyncio.Event()
    kopf_task = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings(),
            clusterwide=True,
            ready_flag=ready,
            stop_flag=kopf_stop,
        )
    )
    try:
        await asyncio.wait(
            {kopf_task, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await asyncio.wait({kopf_task, ended}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({kopf_task}, timeout=KOPF_SECONDS)
        if not kopf_task.done():
            raise RuntimeError("the watches failed, and Kopf does not come to its end")
        await kopf_task
    finally:
        ended.cancel()
        kopf_task.cancel()
        await asyncio.wait({kopf_task}, timeout=KOPF_SECONDS)
    stop.set()
