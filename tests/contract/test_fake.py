"""The fake cluster keeps what an API server promises."""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import build
from cardwise.kube import connect
from cardwise.kube.client import Client
from contract.suite import CHUNK, ClusterContract
from contract.watching import WatchContract
from fakes.apiserver import ClusterServer
from fakes.cluster import FakeCluster, unanswered

Json = dict[str, Any]


class FakeGround:
    """A fake cluster, and what others do to it."""

    namespace = "default"

    def __init__(self) -> None:
        self.cluster = FakeCluster(chunk=CHUNK)

    def put(self, document: Json) -> Json:
        return self.cluster.put(document)

    def get(self, kind: str, name: str, namespace: str = "") -> Json:
        return self.cluster.get(kind, name, namespace)

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        self.cluster.remove(kind, name, namespace)

    def finish(self, name: str, phase: str) -> None:
        pod = self.cluster.get("Pod", name, self.namespace)
        self.cluster.put({**pod, "status": {**pod["status"], "phase": phase}})

    def terminate(self, name: str) -> None:
        pod = copy.deepcopy(self.cluster.get("Pod", name, self.namespace))
        pod["metadata"]["deletionTimestamp"] = build.REPORTED_AT
        self.cluster.put(pod)

    def lose_answer(self, verb: str) -> None:
        self.cluster.fail(verb, unanswered(lands=0.0, after=0.1))

    def forget(self) -> None:
        self.cluster.forget()


class ServedGround(FakeGround):
    """A fake cluster over HTTP."""

    def __init__(self, server: ClusterServer, client: Client) -> None:
        self.cluster = server.cluster
        self.server = server
        self.client = client

    async def show(self) -> None:
        await self.server.show()

    def forget(self) -> None:
        self.server.forget()


class TestFakeCluster(ClusterContract):
    """The suite over the fake."""

    @pytest.fixture
    def ground(self) -> FakeGround:
        return FakeGround()


class TestClusterServer(WatchContract):
    """The watches over the fake's HTTP server."""

    @pytest.fixture
    async def ground(self, tmp_path: Path) -> AsyncIterator[ServedGround]:
        server = ClusterServer(FakeCluster(chunk=CHUNK))
        async with server.running():
            client = await connect(server.kubeconfig(tmp_path))
            yield ServedGround(server, client)
            await client.close()
