"""The adapter on a real kube-apiserver keeps what the fake cluster is held to."""

import base64
import contextlib
import http.client
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import fault_proxy
from cardwise.kube import connect
from cardwise.kube.client import Client
from cardwise.kube.cluster import KubeCluster
from contract.suite import CHUNK, ClusterContract
from contract.watching import WatchContract
from controlplane.launcher import ROOT, SYSTEM_NAMESPACE, ControlPlane, standing_ground
from fault_proxy import FaultProxy

Json = dict[str, Any]
_MERGE = "application/merge-patch+json"
_CORE = "/api/v1"
_COLLECTIONS = {
    "Node": f"{_CORE}/nodes",
    "GPUNode": "/apis/cardwise.dev/v1alpha1/gpunodes",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "Pod": f"{_CORE}/namespaces/NS/pods",
    "ResourceQuota": f"{_CORE}/namespaces/NS/resourcequotas",
    "PersistentVolumeClaim": f"{_CORE}/namespaces/NS/persistentvolumeclaims",
    "PersistentVolume": f"{_CORE}/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "Secret": f"{_CORE}/namespaces/NS/secrets",
    "MutatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    ),
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/NS/leases",
    "Event": "/apis/events.k8s.io/v1/namespaces/NS/events",
}
_ANSWERS = {
    "bind": "/binding",
    "evict": "/eviction",
    "patch_pod": "/pods/p",
    "write_lease": "/leases/cardwise-scheduler",
    "create_event": "/events",
    "count_event": ".0000000000000001",
    "annotate_node": "/nodes/n1",
    "apply_gpunode_status": "/status",
}
"""How the path of a call ends."""
_NOT_MINE = ("uid", "resourceVersion")


class OldClient(Client):
    """A client whose lists take longer than the API server remembers, once it is told so."""

    def __init__(self, client: Client) -> None:
        super().__init__(client._api)
        self.forgotten = False

    async def request(self, method: str, path: str, **more: Any) -> Json:
        token = (more.get("query") or {}).get("continue")
        if self.forgotten and token:
            # kube-apiserver keeps a copy of its own beside etcd's history: ask for a moment that
            # is in neither.
            fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            old = json.dumps({**fields, "rv": 1}).encode()
            more["query"]["continue"] = base64.urlsafe_b64encode(old).decode().rstrip("=")
        return await super().request(method, path, **more)


class RealGround:
    """An API server, and what others do to it."""

    namespace = SYSTEM_NAMESPACE
    """The one where the controller may annotate Pods."""

    def __init__(self, cp: ControlPlane, proxy: FaultProxy, client: OldClient) -> None:
        self.cp = cp
        self.proxy = proxy
        self.client = client
        self.cluster = KubeCluster(client, chunk=CHUNK)

    def put(self, document: Json) -> Json:
        metadata = {k: v for k, v in document["metadata"].items() if k not in _NOT_MINE}
        status = document.get("status")
        document = {**document, "metadata": metadata}
        path = self._path(document["kind"], metadata.get("namespace", ""))
        made: Json = self.cp.request("POST", path, document)
        if document["kind"] == "GPUNode" and status:
            made = self.cp.request(
                "PATCH",
                f"{path}/{metadata['name']}/status",
                {"status": status},
                content_type=_MERGE,
            )
        return made

    def get(self, kind: str, name: str, namespace: str = "") -> Json:
        found: Json = self.cp.request("GET", f"{self._path(kind, namespace)}/{name}")
        return found

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        path = f"{self._path(kind, namespace)}/{name}"
        self.cp.request("DELETE", path, {"gracePeriodSeconds": 0})

    def finish(self, name: str, phase: str) -> None:
        path = f"{self._path('Pod', self.namespace)}/{name}/status"
        self.cp.request("PATCH", path, {"status": {"phase": phase}}, content_type=_MERGE)

    def terminate(self, name: str) -> None:
        path = f"{self._path('Pod', self.namespace)}/{name}"
        self._finalizers(path, ["example.com/stays"])
        self.cp.request("DELETE", path)

    def lose_answer(self, verb: str) -> None:
        self.proxy.next(_ANSWERS[verb], fault_proxy.LOST)

    def forget(self) -> None:
        self.client.forgotten = True
        now = _etcd(self.cp, "range", {"key": base64.b64encode(b"/").decode()})
        _etcd(self.cp, "compaction", {"revision": now["header"]["revision"], "physical": True})

    async def show(self) -> None:
        """It shows by itself."""

    def clear(self) -> None:
        """Take away what the test brought."""
        for kind in (
            "Node",
            "GPUNode",
            "DeviceClass",
            "MutatingWebhookConfiguration",
            "PersistentVolume",
            "StorageClass",
        ):
            self.cp.request("DELETE", self._path(kind))
        self.cp.request("DELETE", self._path("PersistentVolumeClaim", self.namespace))
        pods = self._path("Pod", self.namespace)
        for pod in self.cp.request("GET", pods)["items"]:
            path = f"{pods}/{pod['metadata']['name']}"
            if pod["metadata"].get("finalizers"):
                self._finalizers(path, [])
            if not pod["metadata"].get("deletionTimestamp"):
                self.cp.request("DELETE", path, {"gracePeriodSeconds": 0})
        for kind in ("ResourceQuota", "Event", "Secret", "Lease"):
            self.cp.request("DELETE", self._path(kind, self.namespace))

    def _finalizers(self, path: str, finalizers: list[str]) -> None:
        change = {"metadata": {"finalizers": finalizers}}
        self.cp.request("PATCH", path, change, content_type=_MERGE)

    def _path(self, kind: str, namespace: str = "") -> str:
        return _COLLECTIONS[kind].replace("NS", namespace)


def _etcd(cp: ControlPlane, verb: str, body: Json) -> Json:
    """Ask etcd itself."""
    [url] = [each.url for each in cp._supervisor._all() if each.name == "etcd"]
    assert url is not None
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    with contextlib.closing(connection):
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v3/kv/{verb}", json.dumps(body), headers)
        found: Json = json.load(connection.getresponse())
    return found


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    # Nobody else at work: no scheduler, no controllers, no kubelets.
    with ControlPlane.start(kwok=False, controller_manager=False) as cp:
        standing_ground(cp)
        cp.apply(ROOT / "manifests/components/gates/rbac.yaml")
        cp.apply(ROOT / "manifests/components/webhook/self-test.yaml")
        accounts = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts"
        cp.request("POST", accounts, {"metadata": {"name": "default"}})
        with FaultProxy(cp) as proxy:
            yield proxy


@pytest.fixture
async def ground(proxy: FaultProxy) -> AsyncIterator[RealGround]:
    cp = proxy.cp
    account = proxy.through(cp.service_account_kubeconfig("cardwise-controller"))
    client = await connect(str(account))
    ground = RealGround(cp, proxy, OldClient(client))
    yield ground
    await client.close()
    ground.clear()


class TestKubeCluster(ClusterContract):
    """The suite over a kube-apiserver."""


class TestKubeWatches(WatchContract):
    """The watches over a kube-apiserver."""
