"""What an API server does with what the controller asks of it (``ports.Cluster``).

Written once: ``test_fake.py`` holds the fake to it, ``tests/e2e/test_contract.py`` the adapter on a
real kube-apiserver. The fake is thereby a tested claim.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import pytest

import build
from cardwise import names
from cardwise.controller.webhook import authority, selftest
from cardwise.controller.webhook.certificates import (
    CA_LIFE,
    CA_SECRET,
    WEBHOOK,
    secret_of,
    trust_of,
)
from cardwise.errors import ApiError
from cardwise.model import Booking, ContainerKind, PodRef, Share
from cardwise.ports import Cluster
from cardwise.wire import pins, pods
from cardwise.wire.events import again_body, event_body

Json = dict[str, Any]
CHUNK = 2
"""Objects on a page of a list."""
NOBODY = "nobody"
"""The scheduler of these Pods: each is bound by its test alone."""
WHEN = "2026-11-29T12:00:00.000000Z"
LATER = "2026-11-29T12:01:00.000000Z"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EXISTS = {"key": "disk", "operator": "Exists"}
ZONES = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchExpressions": [EXISTS]},
    ]
}
BUNDLE = authority.new_ca("a-ca", datetime(2026, 11, 29, tzinfo=UTC), CA_LIFE).certificate


class Ground(Protocol):
    """A cluster, and what others do to it."""

    cluster: Cluster
    """Lists come in pages of ``CHUNK``."""
    namespace: str

    def put(self, document: Json) -> Json:
        """Create an object; as it is kept."""
        ...

    def get(self, kind: str, name: str, namespace: str = "") -> Json:
        """An object as it is."""
        ...

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object."""
        ...

    def finish(self, name: str, phase: str) -> None:
        """A Pod's phase changes."""
        ...

    def terminate(self, name: str) -> None:
        """A Pod is being deleted, and stays for now."""
        ...

    def lose_answer(self, verb: str) -> None:
        """The next call of a verb does what it says, and nobody hears of it."""
        ...

    def forget(self) -> None:
        """The history is compacted: lists and watches of before can't go on."""
        ...


class ClusterContract:
    """The promises; a subclass brings the fixture ``ground``."""

    # Bindings -------------------------------------------------------------------------------------

    async def test_a_binding_writes_node_and_annotations_at_once(self, ground: Ground) -> None:
        pod = some_pod(ground, annotations={"own": "kept", names.BIND_PHASE: "failed"})

        await bind(ground, pod)

        bound = ground.get("Pod", "p", ground.namespace)
        written = bound["metadata"]["annotations"]
        assert bound["spec"]["nodeName"] == "n1"
        assert written.items() >= binding(pod)["metadata"]["annotations"].items()
        assert written["own"] == "kept"
        assert written[names.BIND_PHASE] == "allocating"
        assert version(bound) > version(pod)
        assert ("PodScheduled", "True") in {
            (each["type"], each["status"]) for each in bound["status"]["conditions"]
        }

    async def test_a_binding_needs_no_node_and_knows_no_bound_of_annotations(
        self, ground: Ground
    ) -> None:
        pod = some_pod(ground)
        large = {"large": "x" * 300 * 1024}

        await bind(ground, pod, node="nowhere", annotations=large)

        bound = ground.get("Pod", "p", ground.namespace)
        assert bound["spec"]["nodeName"] == "nowhere"
        assert bound["metadata"]["annotations"] == large

    @pytest.mark.parametrize(
        ("before", "words"),
        [
            pytest.param("bound", "is already assigned to node", id="of a Pod that is bound"),
            pytest.param("another", "UID in precondition", id="of another Pod of that name"),
            pytest.param("terminating", "is being deleted", id="of a Pod that is being deleted"),
            pytest.param("gated", "schedulingGates", id="of a Pod that has a gate"),
        ],
    )
    async def test_a_binding_is_refused(self, ground: Ground, before: str, words: str) -> None:
        gates = {"schedulingGates": [{"name": "example.com/gate"}]} if before == "gated" else {}
        pod = some_pod(ground, spec=gates)
        if before == "bound":
            await bind(ground, pod)
        if before == "another":
            pod["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
        if before == "terminating":
            ground.terminate("p")
        was = ground.get("Pod", "p", ground.namespace)

        error = await refusal(bind(ground, pod))

        assert error.status == 409
        assert words in str(error)
        assert ground.get("Pod", "p", ground.namespace) == was

    async def test_a_binding_of_no_pod_is_refused(self, ground: Ground) -> None:
        pod = some_pod(ground)
        ground.remove("Pod", "p", ground.namespace)

        assert (await refusal(bind(ground, pod))).status == 404

    async def test_of_many_bindings_at_once_one_is_taken(self, ground: Ground) -> None:
        pod = some_pod(ground)

        outcomes = await asyncio.gather(
            *(bind(ground, pod, node=f"n{number}") for number in range(6)), return_exceptions=True
        )

        errors = [outcome for outcome in outcomes if outcome is not None]
        assert [error.status for error in errors if isinstance(error, ApiError)] == [409] * 5

    async def test_a_binding_without_an_answer_has_happened_all_the_same(
        self, ground: Ground
    ) -> None:
        pod = some_pod(ground)
        ground.lose_answer("bind")

        error = await refusal(bind(ground, pod))

        assert error.status is None
        assert ground.get("Pod", "p", ground.namespace)["spec"]["nodeName"] == "n1"
        assert (await refusal(bind(ground, pod))).status == 409

    # Pins -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("affinity", [None, ZONES], ids=["no affinity", "two terms"])
    async def test_a_pin_opens_the_gate_and_leaves_one_node(
        self, ground: Ground, affinity: Json | None
    ) -> None:
        spec = {"affinity": {"nodeAffinity": {REQUIRED: affinity}}} if affinity else {}
        pod = some_pod(ground, gates=[names.GATE], spec=spec, annotations={"own": "kept"})

        await pin(ground, pod)

        pinned = ground.get("Pod", "p", ground.namespace)
        assert not pinned["spec"].get("schedulingGates")
        assert "nodeName" not in pinned["spec"]
        assert pods.placed_node(pinned) == "n1"
        assert pods.booking_of(pinned) == booking("n1")
        assert pinned["metadata"]["annotations"]["own"] == "kept"
        assert version(pinned) > version(pod)

    @pytest.mark.parametrize(
        ("before", "status"),
        [
            pytest.param("pinned", 409, id="of a Pod that is pinned"),
            pytest.param("annotated", 409, id="of a Pod that was changed since"),
            pytest.param("another", 409, id="of another Pod of that name"),
            pytest.param("gone", 404, id="of no Pod"),
        ],
    )
    async def test_a_pin_is_refused(self, ground: Ground, before: str, status: int) -> None:
        pod = some_pod(ground, gates=[names.GATE])
        if before == "pinned":
            await pin(ground, pod)
        if before == "annotated":
            await ground.cluster.annotate_pod(ground.namespace, "p", "example.com/k", "1")
        if before in ("another", "gone"):
            ground.remove("Pod", "p", ground.namespace)
        if before == "another":
            some_pod(ground, gates=[names.GATE], uid="another")

        assert (await refusal(pin(ground, pod, node="n2"))).status == status
        if before != "gone":
            left = ground.get("Pod", "p", ground.namespace)
            assert pods.placed_node(left) == ("n1" if before == "pinned" else None)

    async def test_of_many_pins_of_one_version_one_is_taken(self, ground: Ground) -> None:
        pod = some_pod(ground, gates=[names.GATE])

        outcomes = await asyncio.gather(
            *(pin(ground, pod, node=f"n{number}") for number in range(6)), return_exceptions=True
        )

        errors = [outcome for outcome in outcomes if outcome is not None]
        assert [error.status for error in errors if isinstance(error, ApiError)] == [409] * 5

    async def test_a_pin_whose_answer_is_lost_has_happened(self, ground: Ground) -> None:
        pod = some_pod(ground, gates=[names.GATE])
        ground.lose_answer("patch_pod")

        assert (await refusal(pin(ground, pod))).status is None
        assert pods.placed_node(ground.get("Pod", "p", ground.namespace)) == "n1"

    @pytest.mark.parametrize(
        ("gates", "terms", "wanted"),
        [
            pytest.param([], None, ZONES["nodeSelectorTerms"], id="of a Pod that has no gate"),
            pytest.param([names.GATE], ZONES, [{"matchFields": []}], id="a term less"),
            pytest.param(
                [names.GATE],
                ZONES,
                [{"matchExpressions": [EXISTS]}] * 2,
                id="expressions that are other ones",
            ),
        ],
    )
    async def test_an_affinity_is_not_changed_but_tightened(
        self, ground: Ground, gates: list[str], terms: Json | None, wanted: list[Json]
    ) -> None:
        spec = {"affinity": {"nodeAffinity": {REQUIRED: terms}}} if terms else {}
        some_pod(ground, gates=gates, spec=spec)
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": wanted}}}

        call = ground.cluster.patch_pod(
            ground.namespace, "p", {"spec": {"affinity": affinity}}, within=5.0
        )

        assert (await refusal(call)).status == 422

    async def test_no_gate_is_added(self, ground: Ground) -> None:
        some_pod(ground, gates=[names.GATE])
        more = {"spec": {"schedulingGates": [{"name": names.GATE}, {"name": "example.com/g"}]}}

        call = ground.cluster.patch_pod(ground.namespace, "p", more, within=5.0)

        assert (await refusal(call)).status == 422

    async def test_annotations_beyond_the_bound_are_refused_of_a_patch(
        self, ground: Ground
    ) -> None:
        some_pod(ground, gates=[names.GATE])
        large = {"metadata": {"annotations": {"large": "x" * 300 * 1024}}}

        call = ground.cluster.patch_pod(ground.namespace, "p", large, within=5.0)

        assert (await refusal(call)).status == 422

    async def test_a_gate_is_opened_by_itself(self, ground: Ground) -> None:
        pod = some_pod(ground, gates=[names.GATE])
        metadata = pod["metadata"]
        ref = PodRef(metadata["namespace"], "p", metadata["uid"])
        patch = pins.open_patch(ref, metadata["resourceVersion"])

        await ground.cluster.patch_pod(ground.namespace, "p", patch, within=5.0)

        assert not ground.get("Pod", "p", ground.namespace)["spec"].get("schedulingGates")

    # Evictions ------------------------------------------------------------------------------------

    async def test_an_eviction_deletes_the_version_of_the_pod_that_it_names(
        self, ground: Ground
    ) -> None:
        pod = some_pod(ground)

        await evict(ground, pod)

        assert await ground.cluster.pod(ground.namespace, "p") is None

    @pytest.mark.parametrize(
        "before",
        [
            pytest.param("bound", id="of a Pod that was bound since"),
            pytest.param("annotated", id="of a Pod that was annotated since"),
            pytest.param("another", id="of another Pod of that name"),
        ],
    )
    async def test_an_eviction_is_refused(self, ground: Ground, before: str) -> None:
        pod = some_pod(ground)
        if before == "bound":
            await bind(ground, pod)
        if before == "annotated":
            await ground.cluster.annotate_pod(ground.namespace, "p", "example.com/k", "1")
        if before == "another":
            pod["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
        was = ground.get("Pod", "p", ground.namespace)

        error = await refusal(evict(ground, pod))

        assert error.status == 409
        assert "precondition" in str(error)
        assert ground.get("Pod", "p", ground.namespace) == was

    async def test_an_eviction_of_no_pod_is_refused(self, ground: Ground) -> None:
        pod = some_pod(ground)
        ground.remove("Pod", "p", ground.namespace)

        assert (await refusal(evict(ground, pod))).status == 404

    async def test_of_a_binding_and_an_eviction_of_one_version_one_is_done(
        self, ground: Ground
    ) -> None:
        pod = some_pod(ground)

        outcomes = await asyncio.gather(
            bind(ground, pod), evict(ground, pod), return_exceptions=True
        )

        [error] = [outcome for outcome in outcomes if outcome is not None]
        assert isinstance(error, ApiError)
        assert error.status in (404, 409)
        left = await ground.cluster.pod(ground.namespace, "p")
        assert (left is None) == (outcomes[1] is None)
        assert left is None or left["spec"]["nodeName"] == "n1"

    async def test_an_eviction_whose_answer_is_lost_has_happened(self, ground: Ground) -> None:
        pod = some_pod(ground)
        ground.lose_answer("evict")

        assert (await refusal(evict(ground, pod))).status is None
        assert await ground.cluster.pod(ground.namespace, "p") is None

    # The Lease ------------------------------------------------------------------------------------

    async def test_a_lease_is_created_read_and_replaced(self, ground: Ground) -> None:
        assert await ground.cluster.lease(ground.namespace, names.SCHEDULER_NAME) is None

        made = await ground.cluster.write_lease(lease(ground, holder="a"))
        assert await ground.cluster.lease(ground.namespace, names.SCHEDULER_NAME) == made
        assert made["spec"] == lease(ground, holder="a")["spec"]
        second = await ground.cluster.write_lease(
            {**made, "spec": lease(ground, holder="", seconds=1)["spec"]}
        )
        third = await ground.cluster.write_lease({**second, "spec": made["spec"]})

        assert (second["spec"].get("holderIdentity"), third["spec"]) == ("", made["spec"])
        assert version(made) < version(second) < version(third)

    async def test_a_lease_that_is_there_is_not_created_again(self, ground: Ground) -> None:
        made = await ground.cluster.write_lease(lease(ground, holder="a"))

        again = ground.cluster.write_lease(lease(ground, holder="b"))

        assert (await refusal(again)).status == 409
        assert await ground.cluster.lease(ground.namespace, names.SCHEDULER_NAME) == made

    async def test_of_many_that_write_one_version_of_a_lease_one_does(self, ground: Ground) -> None:
        made = await ground.cluster.write_lease(lease(ground, holder="a"))

        outcomes = await asyncio.gather(
            *(
                ground.cluster.write_lease({**made, "spec": lease(ground, holder=who)["spec"]})
                for who in "bcdef"
            ),
            return_exceptions=True,
        )

        errors = [each for each in outcomes if isinstance(each, ApiError)]
        [written] = [each for each in outcomes if isinstance(each, dict)]
        assert [error.status for error in errors] == [409] * 4
        assert await ground.cluster.lease(ground.namespace, names.SCHEDULER_NAME) == written

    async def test_a_lease_that_went_since_is_not_replaced(self, ground: Ground) -> None:
        made = await ground.cluster.write_lease(lease(ground, holder="a"))
        ground.remove("Lease", names.SCHEDULER_NAME, ground.namespace)

        assert (await refusal(ground.cluster.write_lease(made))).status in (404, 409)

    async def test_a_lease_whose_answer_is_lost_is_written(self, ground: Ground) -> None:
        made = await ground.cluster.write_lease(lease(ground, holder="a"))
        ground.lose_answer("write_lease")

        write = ground.cluster.write_lease({**made, "spec": lease(ground, holder="b")["spec"]})

        # aiohttp sends a PUT again whose connection ended: the second meets the first.
        assert (await refusal(write)).status in (None, 409)
        kept = ground.get("Lease", names.SCHEDULER_NAME, ground.namespace)
        assert kept["spec"]["holderIdentity"] == "b"

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"leaseDurationSeconds": 0}, id="no duration"),
            pytest.param({"leaseTransitions": -1}, id="fewer hands than none"),
        ],
    )
    async def test_a_lease_of_no_sense_is_refused(self, ground: Ground, change: Json) -> None:
        body = lease(ground, holder="a")

        write = ground.cluster.write_lease({**body, "spec": {**body["spec"], **change}})

        assert (await refusal(write)).status == 422

    # Reading --------------------------------------------------------------------------------------

    async def test_one_pod(self, ground: Ground) -> None:
        pod = some_pod(ground)

        assert await ground.cluster.pod(ground.namespace, "p") == pod
        assert await ground.cluster.pod(ground.namespace, "q") is None
        assert await ground.cluster.pod("elsewhere", "p") is None

    async def test_a_list_comes_in_chunks_by_name(self, ground: Ground) -> None:
        for name in ("d", "b", "a", "e", "c"):
            some_pod(ground, name)

        pages = [named(page) async for page in ground.cluster.unfinished_pods()]

        assert pages == [["a", "b"], ["c", "d"], ["e"]]

    async def test_a_list_is_of_one_moment(self, ground: Ground) -> None:
        for name in ("a", "b", "c", "e"):
            some_pod(ground, name)
        pages = ground.cluster.unfinished_pods()
        first = named(await anext(pages))

        some_pod(ground, "d")
        ground.remove("Pod", "c", ground.namespace)
        ground.finish("e", "Failed")

        assert [first] + [named(page) async for page in pages] == [["a", "b"], ["c", "e"]]

    async def test_a_list_that_took_too_long_can_not_be_continued(self, ground: Ground) -> None:
        for name in ("a", "b", "c"):
            ground.put(build.gpunode(name, status={"cards": []}, reported_at=None))
        pages = ground.cluster.gpunodes()
        assert named(await anext(pages)) == ["a", "b"]

        ground.forget()

        assert (await refusal(anext(pages))).status == 410

    async def test_a_list_of_nothing_is_one_empty_page(self, ground: Ground) -> None:
        assert [page async for page in ground.cluster.unfinished_pods()] == [[]]
        assert [page async for page in ground.cluster.gpunodes()] == [[]]

    async def test_a_pod_on_a_list_is_the_pod_without_its_kind(self, ground: Ground) -> None:
        pod = some_pod(ground)

        [[listed]] = [page async for page in ground.cluster.unfinished_pods()]

        assert listed == {key: pod[key] for key in pod.keys() - {"kind", "apiVersion"}}

    async def test_finished_pods_are_not_listed(self, ground: Ground) -> None:
        for phase in ("Pending", "Running", "Unknown", "Succeeded", "Failed"):
            some_pod(ground, phase.lower())
            ground.finish(phase.lower(), phase)
        some_pod(ground, "terminating")
        ground.terminate("terminating")

        found = await everything(ground.cluster.unfinished_pods())

        assert found == ["pending", "running", "terminating", "unknown"]

    async def test_the_other_lists(self, ground: Ground) -> None:
        for name in ("n3", "n1", "n2"):
            ground.put(build.node_object(name))
            ground.put(build.gpunode(name))
            ground.put(build.quota(ground.namespace, gpumem=1, name=name))

            for document in storage(ground, name):
                ground.put(document)

        cluster = ground.cluster
        for pages in (
            cluster.nodes,
            cluster.gpunodes,
            cluster.quotas,
            cluster.claims,
            cluster.volumes,
            cluster.storage_classes,
        ):
            assert await everything(pages()) == ["n1", "n2", "n3"]

    async def test_where_nobody_knows_the_kind_there_is_no_pod_group(self, ground: Ground) -> None:
        assert await ground.cluster.pod_group(ground.namespace, "g") is None

    async def test_device_classes(self, ground: Ground) -> None:
        assert await ground.cluster.device_classes() == []
        ground.put(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": "c"},
                "spec": {"extendedResourceName": names.RESOURCE_COUNT},
            }
        )

        [found] = await ground.cluster.device_classes()

        assert found["metadata"]["name"] == "c"
        assert found["spec"]["extendedResourceName"] == names.RESOURCE_COUNT

    # Events ---------------------------------------------------------------------------------------

    async def test_an_event_is_posted_once_and_counted(self, ground: Ground) -> None:
        body = event(ground, some_pod(ground))
        name = body["metadata"]["name"]

        await ground.cluster.create_event(body)
        assert (await refusal(ground.cluster.create_event(body))).status == 409
        await ground.cluster.count_event(ground.namespace, name, again_body(2, WHEN, "a note"))
        await ground.cluster.count_event(ground.namespace, name, again_body(7, LATER, "news"))

        kept = ground.get("Event", name, ground.namespace)
        assert (kept["reason"], kept["note"], kept["type"]) == ("Reason", "news", "Warning")
        assert kept["series"] == {"count": 7, "lastObservedTime": LATER}

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"type": "Odd"}, id="of no known type"),
            pytest.param({"note": "x" * 1025}, id="with too long a note"),
            pytest.param({"reason": ""}, id="without a reason"),
            pytest.param({"reason": "x" * 129}, id="with too long a reason"),
            pytest.param({"action": ""}, id="without an action"),
            pytest.param({"reportingController": ""}, id="of nobody"),
            pytest.param({"reportingInstance": "x" * 129}, id="of too long an instance"),
        ],
    )
    async def test_an_event_is_refused(self, ground: Ground, change: Json) -> None:
        body = event(ground, some_pod(ground)) | change

        assert (await refusal(ground.cluster.create_event(body))).status == 422

    async def test_an_event_may_be_about_another_namespace(self, ground: Ground) -> None:
        body = event(ground, some_pod(ground))
        body["regarding"]["namespace"] = "elsewhere"

        await ground.cluster.create_event(body)

    async def test_an_event_that_is_gone_is_not_counted(self, ground: Ground) -> None:
        count = ground.cluster.count_event(ground.namespace, "e", again_body(2, WHEN, "a note"))

        assert (await refusal(count)).status == 404

    async def test_a_count_whose_answer_is_lost_has_happened(self, ground: Ground) -> None:
        body = event(ground, some_pod(ground))
        await ground.cluster.create_event(body)
        name = body["metadata"]["name"]
        ground.lose_answer("count_event")

        count = ground.cluster.count_event(ground.namespace, name, again_body(3, WHEN, "news"))

        assert (await refusal(count)).status is None
        assert ground.get("Event", name, ground.namespace)["note"] == "news"

    async def test_an_annotation_whose_answer_is_lost_is_set(self, ground: Ground) -> None:
        ground.put(build.node_object("n1"))
        ground.lose_answer("annotate_node")

        annotate = ground.cluster.annotate_node("n1", "example.com/k", "1")

        assert (await refusal(annotate)).status is None
        annotations = ground.get("Node", "n1")["metadata"]["annotations"]
        assert annotations["example.com/k"] == "1"

    async def test_a_status_whose_answer_is_lost_is_applied(self, ground: Ground) -> None:
        ground.put(build.gpunode("n1", status={"cards": []}, reported_at=None))
        ground.lose_answer("apply_gpunode_status")

        error = await refusal(apply(ground, "controller", summary={"slots": "3/20"}))

        assert error.status is None
        assert ground.get("GPUNode", "n1")["status"]["summary"] == {"slots": "3/20"}

    async def test_an_event_whose_answer_is_lost_is_there(self, ground: Ground) -> None:
        body = event(ground, some_pod(ground))
        ground.lose_answer("create_event")

        assert (await refusal(ground.cluster.create_event(body))).status is None
        assert ground.get("Event", body["metadata"]["name"], ground.namespace)

    # A Node that was read -------------------------------------------------------------------------

    async def test_a_node_is_changed_as_it_was_read_and_not_otherwise(self, ground: Ground) -> None:
        ground.put(build.node_object("n1", annotations={"own": "kept"}))
        read = await ground.cluster.node("n1")
        assert read is not None
        version_read = {"resourceVersion": read["metadata"]["resourceVersion"]}
        lock = {"metadata": {**version_read, "annotations": {"example.com/lock": "1"}}}

        await ground.cluster.patch_node("n1", lock, within=5.0)

        annotations = ground.get("Node", "n1")["metadata"]["annotations"]
        assert annotations == {"own": "kept", "example.com/lock": "1"}
        gone = {"metadata": {**version_read, "annotations": {"example.com/lock": None}}}
        assert (await refusal(ground.cluster.patch_node("n1", gone, within=5.0))).status == 409
        assert "example.com/lock" in ground.get("Node", "n1")["metadata"]["annotations"]
        gone["metadata"]["resourceVersion"] = version_of(ground, "n1")
        await ground.cluster.patch_node("n1", gone, within=5.0)
        assert ground.get("Node", "n1")["metadata"]["annotations"] == {"own": "kept"}

    async def test_a_node_that_is_not_there_is_none(self, ground: Ground) -> None:
        assert await ground.cluster.node("nobody") is None
        patch = {"metadata": {"annotations": {"k": "v"}}}

        assert (await refusal(ground.cluster.patch_node("nobody", patch, within=5.0))).status == 404

    # Annotations ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["Node", "Pod"])
    async def test_one_annotation_is_set_and_the_others_stay(
        self, ground: Ground, kind: str
    ) -> None:
        annotate, namespace = annotating(ground, kind)
        own = {"own": "kept"}
        ground.put(build.node_object("p", annotations=own)) if kind == "Node" else some_pod(
            ground, annotations=own
        )

        await annotate("p", "example.com/k", "1")
        first = ground.get(kind, "p", namespace)
        await annotate("p", "example.com/k", "2")

        second = ground.get(kind, "p", namespace)
        assert first["metadata"]["annotations"] == {**own, "example.com/k": "1"}
        assert second["metadata"]["annotations"] == {**own, "example.com/k": "2"}
        assert version(second) > version(first)

    @pytest.mark.parametrize("kind", ["Node", "Pod"])
    async def test_an_annotation_that_changes_nothing_is_no_change(
        self, ground: Ground, kind: str
    ) -> None:
        annotate, namespace = annotating(ground, kind)
        ground.put(build.node_object("p")) if kind == "Node" else some_pod(ground)
        await annotate("p", "example.com/k", "1")
        was = ground.get(kind, "p", namespace)

        await annotate("p", "example.com/k", "1")

        assert version(ground.get(kind, "p", namespace)) == version(was)

    @pytest.mark.parametrize("kind", ["Node", "Pod"])
    async def test_what_is_not_there_is_not_annotated(self, ground: Ground, kind: str) -> None:
        annotate, _ = annotating(ground, kind)

        assert (await refusal(annotate("p", "example.com/k", "1"))).status == 404

    # The status of a GPUNode ----------------------------------------------------------------------

    async def test_two_managers_apply_a_part_each(self, ground: Ground) -> None:
        ground.put(build.gpunode("n1", status={"cards": []}, reported_at=None))
        cards = build.gpunode("n1", 2)["status"]["cards"]

        await apply(ground, "agent", reportedAt=build.REPORTED_AT, cards=cards)
        await apply(ground, "controller", usage=[use("GPU-n1-a"), use("GPU-n1-b")])
        await apply(ground, "agent", reportedAt=build.REPORTED_AT, cards=cards[:1])
        await apply(ground, "controller", usage=[use("GPU-n1-b", 3)], summary={"slots": "3/20"})

        status = ground.get("GPUNode", "n1")["status"]
        assert [card["uuid"] for card in status["cards"]] == ["GPU-n1-a"]
        assert status["usage"] == [use("GPU-n1-b", 3)]
        assert status["summary"] == {"slots": "3/20"}
        assert status["reportedAt"] == build.REPORTED_AT

    async def test_what_a_manager_leaves_out_goes(self, ground: Ground) -> None:
        ground.put(build.gpunode("n1", status={"cards": []}, reported_at=None))
        await apply(ground, "agent", reportedAt=build.REPORTED_AT, driverVersion="580.1")
        await apply(ground, "controller", summary={"slots": "0/0", "model": "T4"})

        await apply(ground, "agent", reportedAt=build.REPORTED_AT)
        await apply(ground, "controller", summary={"slots": "0/0"})

        status = ground.get("GPUNode", "n1")["status"]
        assert "driverVersion" not in status
        assert status["summary"] == {"slots": "0/0"}

    async def test_a_field_belongs_to_who_applied_it_last(self, ground: Ground) -> None:
        ground.put(build.gpunode("n1", status={"cards": []}, reported_at=None))
        await apply(ground, "agent", driverVersion="1", reportedAt=build.REPORTED_AT)
        await apply(ground, "controller", driverVersion="2")

        await apply(ground, "agent", reportedAt=build.REPORTED_AT)

        assert ground.get("GPUNode", "n1")["status"]["driverVersion"] == "2"

    async def test_items_of_one_list_may_belong_to_two(self, ground: Ground) -> None:
        ground.put(build.gpunode("n1", status={"cards": []}, reported_at=None))
        await apply(ground, "agent", usage=[use("GPU-a"), use("GPU-b")])
        await apply(ground, "controller", usage=[use("GPU-c")])

        await apply(ground, "agent", usage=[use("GPU-a")])

        usage = ground.get("GPUNode", "n1")["status"]["usage"]
        assert {each["uuid"] for each in usage} == {"GPU-a", "GPU-c"}

    async def test_the_same_status_again_is_no_change(self, ground: Ground) -> None:
        ground.put(build.gpunode("n1", status={"cards": []}, reported_at=None))
        await apply(ground, "controller", usage=[use("GPU-a")])
        was = ground.get("GPUNode", "n1")

        await apply(ground, "controller", usage=[use("GPU-a")])

        assert version(ground.get("GPUNode", "n1")) == version(was)

    async def test_no_gpunode_no_status(self, ground: Ground) -> None:
        assert (await refusal(apply(ground, "controller", usage=[]))).status == 404

    # Secrets and the webhook's configuration ------------------------------------------------------

    async def test_a_secret_is_created_read_and_replaced(self, ground: Ground) -> None:
        assert await ground.cluster.secret(ground.namespace, CA_SECRET) is None

        await ground.cluster.write_secret(opaque(ground, a="QQ=="))
        first = await ground.cluster.secret(ground.namespace, CA_SECRET)
        assert first is not None
        assert (first["type"], first["data"]) == ("Opaque", {"a": "QQ=="})
        await ground.cluster.write_secret({**first, "data": {"b": "Qg=="}})

        second = ground.get("Secret", CA_SECRET, ground.namespace)
        assert second["data"] == {"b": "Qg=="}
        assert version(second) > version(first)

    async def test_a_secret_that_is_there_is_not_created_again(self, ground: Ground) -> None:
        await ground.cluster.write_secret(opaque(ground))

        again = ground.cluster.write_secret(opaque(ground, a="QQ=="))

        assert (await refusal(again)).status == 409
        assert not ground.get("Secret", CA_SECRET, ground.namespace).get("data")

    async def test_a_secret_that_was_changed_since_is_not_replaced(self, ground: Ground) -> None:
        await ground.cluster.write_secret(opaque(ground))
        seen = await ground.cluster.secret(ground.namespace, CA_SECRET)
        assert seen is not None
        await ground.cluster.write_secret({**seen, "data": {"a": "QQ=="}})

        late = ground.cluster.write_secret({**seen, "data": {"b": "Qg=="}})

        assert (await refusal(late)).status == 409
        assert ground.get("Secret", CA_SECRET, ground.namespace)["data"] == {"a": "QQ=="}

    async def test_a_secret_that_went_since_is_not_replaced(self, ground: Ground) -> None:
        await ground.cluster.write_secret(opaque(ground))
        seen = await ground.cluster.secret(ground.namespace, CA_SECRET)
        assert seen is not None
        ground.remove("Secret", CA_SECRET, ground.namespace)

        assert (await refusal(ground.cluster.write_secret(seen))).status in (404, 409)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"type": "example.com/other"}, id="its type"),
            pytest.param({"data": {"a": "QQ=="}}, id="what it holds, where it is immutable"),
        ],
    )
    async def test_what_can_not_be_changed_of_a_secret(self, ground: Ground, change: Json) -> None:
        fixed = {"immutable": True} if "data" in change else {}
        await ground.cluster.write_secret({**opaque(ground), **fixed})
        seen = await ground.cluster.secret(ground.namespace, CA_SECRET)

        assert (
            await refusal(ground.cluster.write_secret({**(seen or {}), **change}))
        ).status == 422

    async def test_a_secret_of_tls_needs_both_files(self, ground: Ground) -> None:
        body = {**opaque(ground, **{"tls.crt": "QQ=="}), "type": "kubernetes.io/tls"}

        assert (await refusal(ground.cluster.write_secret(body))).status == 422

    async def test_the_bundles_of_a_webhook_configuration_are_set(self, ground: Ground) -> None:
        assert await ground.cluster.webhook_configuration(WEBHOOK) is None
        made = ground.put(webhooks("a.cardwise.dev", "b.cardwise.dev"))
        seen = await ground.cluster.webhook_configuration(WEBHOOK)
        assert seen == made

        await ground.cluster.patch_webhook_configuration(WEBHOOK, trust_of(seen, BUNDLE))

        kept = ground.get("MutatingWebhookConfiguration", WEBHOOK)
        bundle = base64.b64encode(BUNDLE).decode()
        for webhook, before in zip(kept["webhooks"], made["webhooks"], strict=True):
            client = {**before["clientConfig"], "caBundle": bundle}
            assert webhook == {**before, "clientConfig": client}
        assert version(kept) > version(made)

    async def test_a_bundle_that_is_there_already_is_no_change(self, ground: Ground) -> None:
        made = ground.put(webhooks("a.cardwise.dev"))
        await ground.cluster.patch_webhook_configuration(WEBHOOK, trust_of(made, BUNDLE))
        was = ground.get("MutatingWebhookConfiguration", WEBHOOK)

        await ground.cluster.patch_webhook_configuration(WEBHOOK, trust_of(was, BUNDLE))

        assert version(ground.get("MutatingWebhookConfiguration", WEBHOOK)) == version(was)

    async def test_a_webhook_configuration_that_was_changed_since_is_not_patched(
        self, ground: Ground
    ) -> None:
        made = ground.put(webhooks("a.cardwise.dev"))
        await ground.cluster.patch_webhook_configuration(WEBHOOK, trust_of(made, BUNDLE))

        late = ground.cluster.patch_webhook_configuration(WEBHOOK, trust_of(made, b""))

        assert (await refusal(late)).status == 409

    async def test_a_webhook_configuration_that_is_gone_is_not_patched(
        self, ground: Ground
    ) -> None:
        made = ground.put(webhooks("a.cardwise.dev"))
        ground.remove("MutatingWebhookConfiguration", WEBHOOK)

        late = ground.cluster.patch_webhook_configuration(WEBHOOK, trust_of(made, BUNDLE))

        assert (await refusal(late)).status == 404

    async def test_no_webhook_is_added_to_a_configuration(self, ground: Ground) -> None:
        made = ground.put(webhooks("a.cardwise.dev"))
        change = trust_of({**made, "webhooks": [{"name": "other.cardwise.dev"}]}, BUNDLE)

        patch = ground.cluster.patch_webhook_configuration(WEBHOOK, change)

        assert (await refusal(patch)).status == 422

    async def test_a_dry_run_of_a_pod_template_stores_nothing(self, ground: Ground) -> None:
        template = {**selftest.TEMPLATE, "metadata": {"name": "p", "namespace": ground.namespace}}

        for _ in range(2):  # the second would be refused if the first were kept
            made = await ground.cluster.dry_run_pod_template(template)

            (container,) = made["template"]["spec"]["containers"]
            assert container["name"] == "self-test"


def opaque(ground: Ground, **data: str) -> Json:
    """A Secret of a name that the controller may read."""
    metadata = {"namespace": ground.namespace, "name": CA_SECRET}
    return {**secret_of(None, CA_SECRET, "Opaque", {}), "metadata": metadata, "data": data}


def webhooks(*names: str) -> Json:
    """A configuration that concerns nothing, as the API server completes it."""
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["nothings"]}
    service = {"namespace": "cardwise-system", "name": WEBHOOK, "path": "/mutate", "port": 443}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK},
        "webhooks": [
            {
                "name": name,
                "clientConfig": {"service": service},
                "rules": [{**rule, "operations": ["CREATE"], "scope": "*"}],
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for name in names
        ],
    }


def some_pod(ground: Ground, name: str = "p", *, spec: Json | None = None, **fields: Any) -> Json:
    """A Pod that nobody binds."""
    document = build.pod(name, namespace=ground.namespace, scheduler=NOBODY, **fields)
    document["spec"].update(spec or {})
    return ground.put(document)


def storage(ground: Ground, name: str) -> list[Json]:
    """A claim, a volume and a class."""
    size = {"storage": "1Gi"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": ground.namespace, "name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": size},
                "storageClassName": "none",
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": size,
                "hostPath": {"path": "/nowhere"},
                "storageClassName": "other",
            },
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": "example.com/none",
        },
    ]


def booking(node: str) -> Booking:
    """One card there."""
    return Booking(
        node=node, containers=((Share("GPU-a", 1000, 0),),), kinds=(ContainerKind.REGULAR,)
    )


def binding(pod: Json, node: str = "n1") -> Json:
    """A Binding with one card, as the controller writes it."""
    metadata = pod["metadata"]
    ref = PodRef(metadata["namespace"], metadata["name"], metadata["uid"])
    return pods.binding_body(ref, booking(node), 1_780_000_000, exclusive=False)


async def pin(ground: Ground, pod: Json, *, node: str = "n1") -> None:
    metadata = pod["metadata"]
    patch = pins.pin_patch(
        PodRef(metadata["namespace"], metadata["name"], metadata["uid"]),
        node=node,
        version=metadata["resourceVersion"],
        terms=pins.required_terms(pod),
        annotations=pods.allocation_annotations(booking(node), 1_780_000_000, exclusive=False),
    )
    await ground.cluster.patch_pod(ground.namespace, metadata["name"], patch, within=5.0)


async def bind(
    ground: Ground, pod: Json, *, node: str = "n1", annotations: Json | None = None
) -> None:
    body = binding(pod, node)
    if annotations is not None:
        body["metadata"]["annotations"] = annotations
    await ground.cluster.bind(body, within=5.0)


async def evict(ground: Ground, pod: Json) -> None:
    metadata = pod["metadata"]
    await ground.cluster.evict(
        ground.namespace,
        metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
    )


def lease(ground: Ground, *, holder: str, seconds: int = 12) -> Json:
    """The Lease as an elector writes it."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": ground.namespace, "name": names.SCHEDULER_NAME},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "leaseTransitions": 3,
            "acquireTime": WHEN,
            "renewTime": LATER,
        },
    }


async def refusal(call: Awaitable[object]) -> ApiError:
    """What a call raises."""
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


def event(ground: Ground, pod: Json) -> Json:
    ref = PodRef(ground.namespace, "p", pod["metadata"]["uid"])
    return event_body(
        ref, warning=True, reason="Reason", note="a note", when=WHEN, serial=1, instance="test"
    )


def annotating(ground: Ground, kind: str) -> tuple[Callable[[str, str, str], Awaitable[None]], str]:
    """How an object of this kind is annotated, and where it is."""
    if kind == "Node":
        return ground.cluster.annotate_node, ""
    return (
        lambda name, key, value: ground.cluster.annotate_pod(ground.namespace, name, key, value)
    ), ground.namespace


def version_of(ground: Ground, node: str) -> str:
    found: str = ground.get("Node", node)["metadata"]["resourceVersion"]
    return found


async def apply(ground: Ground, manager: str, **status: Any) -> None:
    await ground.cluster.apply_gpunode_status("n1", status, manager)


def use(uuid: str, slots: int = 1) -> Json:
    return {"uuid": uuid, "slots": slots, "memoryMiB": 1000, "cores": 0, "tenants": ["default/a"]}


def named(page: list[Json]) -> list[str]:
    return [each["metadata"]["name"] for each in page]


async def everything(pages: AsyncIterator[list[Json]]) -> list[str]:
    """The names on a list."""
    return [name async for page in pages for name in named(page)]


def version(document: Json) -> int:
    return int(document["metadata"]["resourceVersion"])
