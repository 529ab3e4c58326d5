"""The fake cluster keeps what an API server promises."""

import copy
from typing import Any

import pytest

import build
from contract.suite import CHUNK, ClusterContract
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


class TestFakeCluster(ClusterContract):
    """The suite over the fake."""

    @pytest.fixture
    def ground(self) -> FakeGround:
        return FakeGround()
