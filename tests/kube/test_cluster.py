"""What the controller's questions look like on the wire, and what is made of the answers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import build
from cardwise.errors import ApiError
from cardwise.kube import connect
from cardwise.kube.cluster import KubeCluster
from cardwise.model import Booking, ContainerKind, PodRef, Share
from cardwise.wire import pods
from fakes.apiserver import ApiServer, Reply, status

# Real sockets keep real time.
pytestmark = pytest.mark.looptime(False)

Json = dict[str, Any]
GPUNODES = "/apis/cardwise.dev/v1alpha1/gpunodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
BINDING = pods.binding_body(
    PodRef("default", "p", "u"),
    Booking(node="n1", containers=((Share("GPU-a", 1000, 0),),), kinds=(ContainerKind.REGULAR,)),
    1,
    exclusive=False,
)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as server:
        yield server


@pytest.fixture
async def cluster(server: ApiServer, tmp_path: Path) -> AsyncIterator[KubeCluster]:
    client = await connect(server.kubeconfig(tmp_path))
    yield KubeCluster(client)
    await client.close()


@pytest.mark.parametrize(
    ("ask", "path", "selector"),
    [
        pytest.param(
            KubeCluster.unfinished_pods,
            "/api/v1/pods",
            "status.phase!=Succeeded,status.phase!=Failed",
            id="unfinished Pods",
        ),
        pytest.param(KubeCluster.gpunodes, GPUNODES, None, id="GPUNodes"),
        pytest.param(KubeCluster.nodes, "/api/v1/nodes", None, id="Nodes"),
        pytest.param(KubeCluster.quotas, "/api/v1/resourcequotas", None, id="ResourceQuotas"),
    ],
)
async def test_lists_are_quorum_reads_in_chunks(
    server: ApiServer,
    cluster: KubeCluster,
    ask: Callable[[KubeCluster], AsyncIterator[list[Json]]],
    path: str,
    selector: str | None,
) -> None:
    server.replies = [
        Reply({"items": [{"a": 1}], "metadata": {"continue": "t"}}),
        Reply({"items": [{"a": 2}]}),
    ]

    assert [page async for page in ask(cluster)] == [[{"a": 1}], [{"a": 2}]]

    assert [it.path for it in server.seen] == [path, path]
    assert server.seen[0].query.get("fieldSelector") == selector
    assert int(server.seen[0].query["limit"]) >= 100
    assert "resourceVersion" not in server.seen[0].query


@pytest.mark.parametrize(
    ("act", "method", "path", "query", "content_type", "body"),
    [
        pytest.param(
            lambda it: it.bind(BINDING, within=1.0),
            "POST",
            "/api/v1/namespaces/default/pods/p/binding",
            {},
            "application/json",
            BINDING,
            id="a Binding",
        ),
        pytest.param(
            lambda it: it.evict("default", "p", uid="u", version="7"),
            "POST",
            "/api/v1/namespaces/default/pods/p/eviction",
            {},
            "application/json",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"namespace": "default", "name": "p"},
                "deleteOptions": {"preconditions": {"uid": "u", "resourceVersion": "7"}},
            },
            id="an eviction",
        ),
        pytest.param(
            lambda it: it.write_lease({"metadata": {"namespace": "ns", "name": "l"}}),
            "POST",
            LEASES,
            {},
            "application/json",
            {"metadata": {"namespace": "ns", "name": "l"}},
            id="a new Lease",
        ),
        pytest.param(
            lambda it: it.write_lease(
                {"metadata": {"namespace": "ns", "name": "l", "resourceVersion": "7"}}
            ),
            "PUT",
            f"{LEASES}/l",
            {},
            "application/json",
            {"metadata": {"namespace": "ns", "name": "l", "resourceVersion": "7"}},
            id="a Lease that was read",
        ),
        pytest.param(
            lambda it: it.create_event({"metadata": {"namespace": "default", "name": "e"}}),
            "POST",
            EVENTS,
            {},
            "application/json",
            {"metadata": {"namespace": "default", "name": "e"}},
            id="an event",
        ),
        pytest.param(
            lambda it: it.count_event("default", "e", {"message": "news"}),
            "PATCH",
            "/api/v1/namespaces/default/events/e",
            {},
            "application/merge-patch+json",
            {"message": "news"},
            id="an event again",
        ),
        pytest.param(
            lambda it: it.write_secret({"metadata": {"namespace": "ns", "name": "s"}}),
            "POST",
            "/api/v1/namespaces/ns/secrets",
            {},
            "application/json",
            {"metadata": {"namespace": "ns", "name": "s"}},
            id="a new Secret",
        ),
        pytest.param(
            lambda it: it.write_secret(
                {"metadata": {"namespace": "ns", "name": "s", "resourceVersion": "7"}}
            ),
            "PUT",
            "/api/v1/namespaces/ns/secrets/s",
            {},
            "application/json",
            {"metadata": {"namespace": "ns", "name": "s", "resourceVersion": "7"}},
            id="a Secret that was read",
        ),
        pytest.param(
            lambda it: it.patch_webhook_configuration("w", {"webhooks": []}),
            "PATCH",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/w",
            {},
            "application/strategic-merge-patch+json",
            {"webhooks": []},
            id="a webhook configuration",
        ),
        pytest.param(
            lambda it: it.annotate_node("n1", "k", "v"),
            "PATCH",
            "/api/v1/nodes/n1",
            {},
            "application/merge-patch+json",
            {"metadata": {"annotations": {"k": "v"}}},
            id="a Node's annotation",
        ),
        pytest.param(
            lambda it: it.patch_node("n1", {"metadata": {"resourceVersion": "7"}}, within=1.0),
            "PATCH",
            "/api/v1/nodes/n1",
            {},
            "application/merge-patch+json",
            {"metadata": {"resourceVersion": "7"}},
            id="a Node that was read",
        ),
        pytest.param(
            lambda it: it.annotate_pod("default", "p", "k", "v"),
            "PATCH",
            "/api/v1/namespaces/default/pods/p",
            {},
            "application/merge-patch+json",
            {"metadata": {"annotations": {"k": "v"}}},
            id="a Pod's annotation",
        ),
        pytest.param(
            lambda it: it.apply_gpunode_status("n1", {"usage": []}, "me"),
            "PATCH",
            f"{GPUNODES}/n1/status",
            {"fieldManager": "me", "force": "true"},
            "application/apply-patch+yaml",
            {
                "apiVersion": "cardwise.dev/v1alpha1",
                "kind": "GPUNode",
                "metadata": {"name": "n1"},
                "status": {"usage": []},
            },
            id="a part of a GPUNode's status",
        ),
    ],
)
async def test_writes(
    server: ApiServer,
    cluster: KubeCluster,
    act: Callable[[KubeCluster], Awaitable[None]],
    method: str,
    path: str,
    query: dict[str, str],
    content_type: str,
    body: Json,
) -> None:
    await act(cluster)

    [seen] = server.seen
    assert (seen.method, seen.path, seen.query) == (method, path, query)
    assert seen.headers["Content-Type"] == content_type
    assert seen.body == body

    server.replies = [status(409, "no")]
    with pytest.raises(ApiError, match="no") as caught:
        await act(cluster)
    assert caught.value.status == 409


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda it, name: it.pod(name, name), id="a Pod"),
        pytest.param(lambda it, name: it.lease(name, name), id="a Lease"),
        pytest.param(lambda it, name: it.annotate_pod(name, name, "k", "v"), id="an annotation"),
        pytest.param(lambda it, name: it.annotate_node(name, "k", "v"), id="a Node"),
        pytest.param(lambda it, name: it.node(name), id="a Node that is read"),
        pytest.param(lambda it, name: it.count_event(name, name, {}), id="an event"),
        pytest.param(
            lambda it, name: it.bind({"metadata": {"namespace": name, "name": name}}, within=1.0),
            id="a Binding",
        ),
        pytest.param(
            lambda it, name: it.create_event({"metadata": {"namespace": name}}), id="a new event"
        ),
        pytest.param(lambda it, name: it.evict(name, name, uid="u", version="1"), id="an eviction"),
        pytest.param(
            lambda it, name: it.write_lease({"metadata": {"namespace": name}}), id="a new Lease"
        ),
        pytest.param(
            lambda it, name: it.write_lease(
                {"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}}
            ),
            id="a Lease written",
        ),
        pytest.param(lambda it, name: it.secret(name, name), id="a Secret"),
        pytest.param(
            lambda it, name: it.write_secret({"metadata": {"namespace": name}}), id="a new Secret"
        ),
        pytest.param(
            lambda it, name: it.write_secret(
                {"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}}
            ),
            id="a Secret written",
        ),
        pytest.param(lambda it, name: it.webhook_configuration(name), id="a webhook configuration"),
        pytest.param(lambda it, name: it.patch_webhook_configuration(name, {}), id="a bundle"),
    ],
)
async def test_no_name_leads_to_another_path(
    server: ApiServer, cluster: KubeCluster, act: Callable[[KubeCluster, str], Awaitable[object]]
) -> None:
    """Red when ``_segment`` takes a step for a name, or quotes nothing."""
    await act(cluster, "a/../../secrets?x=1")

    assert "a%2F..%2F..%2Fsecrets%3Fx=1" in server.seen[0].raw
    assert "/../" not in server.seen[0].raw
    assert server.seen[0].query == {}

    for step in (".", ".."):
        with pytest.raises(ApiError) as caught:
            await act(cluster, step)
        assert caught.value.status == 404
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("reply", "want"),
    [
        pytest.param(Reply({"spec": {}}), {"spec": {}}, id="it is there"),
        pytest.param(status(404, "none"), None, id="it is not"),
    ],
)
@pytest.mark.parametrize(
    ("read", "path"),
    [
        pytest.param(
            lambda it: it.lease("ns", "it"),
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases/it",
            id="a Lease",
        ),
        pytest.param(
            lambda it: it.secret("ns", "it"), "/api/v1/namespaces/ns/secrets/it", id="a Secret"
        ),
        pytest.param(
            lambda it: it.webhook_configuration("it"),
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/it",
            id="a webhook configuration",
        ),
    ],
)
async def test_one_object_is_read_as_it_is_now(
    server: ApiServer,
    cluster: KubeCluster,
    read: Callable[[KubeCluster], Awaitable[Json | None]],
    path: str,
    reply: Reply,
    want: Json | None,
) -> None:
    server.replies = [reply]

    assert await read(cluster) == want

    [seen] = server.seen
    assert seen.path == path
    assert seen.query == {}  # a resourceVersion would let a cache answer


async def test_a_lease_that_can_not_be_read_is_an_error(
    server: ApiServer, cluster: KubeCluster
) -> None:
    server.replies = [status(403, "no right")]

    with pytest.raises(ApiError, match="no right"):
        await cluster.lease("ns", "it")


async def test_a_binding_has_its_own_deadline(server: ApiServer, cluster: KubeCluster) -> None:
    server.replies = [Reply(delay=3.0)]

    with pytest.raises(ApiError) as caught:
        await cluster.bind(BINDING, within=0.1)

    assert caught.value.status is None


@pytest.mark.parametrize(
    ("reply", "want"),
    [
        pytest.param(Reply(build.pod()), build.pod(), id="it is there"),
        pytest.param(status(404, "none"), None, id="it is not"),
    ],
)
async def test_one_pod(
    server: ApiServer, cluster: KubeCluster, reply: Reply, want: Json | None
) -> None:
    server.replies = [reply]

    assert await cluster.pod("default", "p") == want

    assert server.seen[0].path == "/api/v1/namespaces/default/pods/p"
    assert server.seen[0].query == {}


@pytest.mark.parametrize(
    ("reply", "want"),
    [
        pytest.param(Reply({"items": [{"a": 1}]}), [{"a": 1}], id="one class"),
        pytest.param(Reply({"items": None}), [], id="null for the items"),
        pytest.param(status(404, "no such kind"), [], id="a cluster without the kind"),
        pytest.param(status(403, "no right"), [], id="no right to look"),
    ],
)
async def test_device_classes(
    server: ApiServer, cluster: KubeCluster, reply: Reply, want: list[Json]
) -> None:
    server.replies = [reply]

    assert await cluster.device_classes() == want


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda it: it.pod("default", "p"), id="a Pod"),
        pytest.param(lambda it: it.device_classes(), id="DeviceClasses"),
    ],
)
async def test_other_refusals_are_errors(
    server: ApiServer, cluster: KubeCluster, ask: Callable[[KubeCluster], Awaitable[object]]
) -> None:
    server.replies = [status(500, "broken")]

    with pytest.raises(ApiError) as caught:
        await ask(cluster)

    assert caught.value.status == 500
