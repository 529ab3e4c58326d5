"""What a watch shows, by the API server that the controller's watches talk to.

Written once, as ``suite.py`` is: over the fake's HTTP server, and over a real kube-apiserver. And
what the mirror makes of it where events come twice or never.
"""

import json
from typing import Any, Protocol

import aiohttp

import build
from cardwise.controller.clock import Clock
from cardwise.controller.watching.mirror import Mirror
from cardwise.kube.client import Client
from cardwise.ledger import Ledger, Stage
from cardwise.settings import Settings
from contract.suite import Ground, Json, bind, some_pod, version

PODS = "/api/v1/pods"
GPUNODES = "/apis/cardwise.dev/v1alpha1/gpunodes"
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class WatchGround(Ground, Protocol):
    """A cluster that is asked over HTTP."""

    client: Client

    async def show(self) -> None:
        """Let the watches see all that was written."""
        ...


class WatchContract:
    """The promises; a subclass brings the fixture ``ground``."""

    async def test_a_watch_shows_what_came_after_the_list_in_its_order(
        self, ground: WatchGround
    ) -> None:
        some_pod(ground, "a")
        since = await listed(ground, PODS)
        await bind(ground, some_pod(ground, "b"))
        ground.finish("a", "Running")
        ground.remove("Pod", "a", ground.namespace)

        shown = await watched(ground, PODS, since)

        assert [told(line) for line in shown if line["type"] == "ADDED"] == [("ADDED", "b")]
        assert told(shown[-1]) == ("DELETED", "a")
        versions = [version(line["object"]) for line in shown]
        assert versions == sorted(set(versions))
        assert versions[0] > int(since)
        bound = [line for line in shown if told(line) == ("MODIFIED", "b")]
        assert bound[-1]["object"]["spec"]["nodeName"] == "n1"

    async def test_a_watch_from_the_same_moment_shows_the_same_again(
        self, ground: WatchGround
    ) -> None:
        since = await listed(ground, PODS)
        some_pod(ground, "a")
        ground.finish("a", "Running")

        once = await watched(ground, PODS, since)
        again = await watched(ground, PODS, since)
        later = await watched(ground, PODS, once[0]["object"]["metadata"]["resourceVersion"])

        assert again == once
        assert later == once[1:]

    async def test_a_pod_that_finished_is_shown_as_deleted_as_it_was_before(
        self, ground: WatchGround
    ) -> None:
        some_pod(ground, "a")
        ground.finish("a", "Running")
        since = await listed(ground, PODS)
        ground.finish("a", "Failed")
        ground.remove("Pod", "a", ground.namespace)

        [line] = await watched(ground, PODS, since)

        assert told(line) == ("DELETED", "a")
        assert line["object"]["status"]["phase"] == "Running"
        assert version(line["object"]) > int(since)

    async def test_a_watch_from_too_long_ago_is_told_to_list_anew(
        self, ground: WatchGround
    ) -> None:
        ground.put(build.gpunode("n1", status={"cards": []}, reported_at=None))
        ground.forget()

        [line] = await watched(ground, GPUNODES, "1")

        assert (line["type"], line["object"]["code"]) == ("ERROR", 410)
        assert line["object"]["reason"] == "Expired"
        assert "too old resource version" in line["object"]["message"]

    async def test_what_comes_twice_or_never_comes_to_what_a_list_shows(
        self, ground: WatchGround
    ) -> None:
        """Each at once twice, then all again, the end of one never; the next list mends that.

        Red when ``Ledger.see`` does not ask who has ended, or ``reconcile`` ends nobody.
        """
        ground.put(build.gpunode("n1", status={"cards": []}, reported_at=None))
        ledger = Ledger()
        mirror = Mirror(ledger, Settings(), Clock())
        await mirror.reconcile(ground.cluster, first=True)
        since = await listed(ground, PODS)
        for name in ("stays", "goes", "goes-unseen"):
            await bind(ground, some_pod(ground, name))
        for name in ("goes", "goes-unseen"):
            ground.remove("Pod", name, ground.namespace)
        shown = await watched(ground, PODS, since)
        seen = [line for line in shown if told(line) != ("DELETED", "goes-unseen")]

        for line in [*[each for each in seen for _ in range(2)], *seen]:
            mirror.see_pod(line["object"], deleted=line["type"] == "DELETED")

        assert booked(ledger) == ["goes-unseen", "stays"]
        assert await mirror.reconcile(ground.cluster) == 1
        assert booked(ledger) == ["stays"]
        for line in seen:
            mirror.see_pod(line["object"], deleted=line["type"] == "DELETED")
        assert booked(ledger) == ["stays"]


async def listed(ground: WatchGround, path: str) -> str:
    """The moment of a list."""
    await ground.show()
    answer = await ground.client.request("GET", path, query=_of(path))
    return str(answer["metadata"]["resourceVersion"])


async def watched(ground: WatchGround, path: str, since: str) -> list[Json]:
    """The lines of a watch from a moment on, until a second is over."""
    await ground.show()
    known = await ground.client.credentials()
    query = {**_of(path), "watch": "true", "resourceVersion": since, "timeoutSeconds": "1"}
    headers = {"Authorization": known.authorization}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(known.server + path, params=query) as answer,
    ):
        return [json.loads(line) async for line in answer.content]


def told(line: Json) -> tuple[str, str]:
    """What a line says of whom."""
    return line["type"], line["object"]["metadata"]["name"]


def booked(ledger: Ledger) -> list[str]:
    """Pods with cards."""
    return sorted(each.pod.name for each in ledger.entries() if each.stage is Stage.BOOKED)


def _of(path: str) -> dict[str, Any]:
    return {"fieldSelector": _UNFINISHED} if path == PODS else {}
