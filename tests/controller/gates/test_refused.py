"""Pinned Pods that kube-scheduler refuses: told of, evicted, and never once they are bound."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import build
from cardwise import names
from cardwise.controller.clock import Clock
from cardwise.controller.gates.evictions import MOST_EVICTIONS
from cardwise.controller.gates.refused import RefusedPods
from cardwise.controller.lease.duty import Duty
from cardwise.controller.lease.tenure import Tenure
from cardwise.controller.telling.recorder import Recorder
from cardwise.model import PodRef
from cardwise.names import EventReason
from cardwise.settings import GatesSection
from cardwise.wire import pins
from controllers import background, loop_clock, passing
from fakes.cluster import Change, FakeCluster, Fault, refused, unanswered

Json = dict[str, Any]
REFUSED, ABSENT = EventReason.PINNED_NODE_REFUSED, EventReason.SCHEDULER_ABSENT
WORDS = "0/1 nodes are available: 1 Insufficient cpu."


class Floor:
    """Pods that are pinned, what kube-scheduler does to them, and who follows it."""

    def __init__(
        self,
        settings: GatesSection | None = None,
        *,
        tenure: Callable[[Clock], Tenure] | None = None,
    ) -> None:
        self.cluster = FakeCluster()
        self.clock = loop_clock()
        self.tenure = tenure(self.clock) if tenure else None
        self.duty = Duty(self.tenure)
        self.duty.loaded = True
        self.recorder = Recorder(self.cluster, self.clock, self.duty, "test")
        self.results: list[str] = []
        self.refusals = RefusedPods(
            cluster=self.cluster,
            recorder=self.recorder,
            duty=self.duty,
            clock=self.clock,
            settings=settings or GatesSection(),
            counted=self.results.append,
        )
        self.cluster.watch = self.show
        self.blind = False
        """The watch shows nothing for now."""

    def running(self) -> Any:
        return background(self.refusals.run(), self.recorder.run())

    def show(self, change: Change) -> None:
        if change.kind == "Pod" and not self.blind:
            self.refusals.see_pod(change.object, deleted=change.type == "DELETED")

    # What others do -------------------------------------------------------------------------------

    async def pin(
        self, name: str = "p", *, owner: str | None = "web", kind: str = "ReplicaSet", **more: Any
    ) -> Json:
        """A Pod waits at the gate, and is pinned."""
        pod = build.pod(name, scheduler=more.pop("scheduler", "default-scheduler"), **more)
        pod["spec"]["schedulingGates"] = [{"name": names.GATE}]
        pod["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        ]
        if owner is not None:
            pod["metadata"]["ownerReferences"] = [
                {"kind": "Other", "name": "other", "uid": "uid-other"},
                {"kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True},
            ]
        put = self.cluster.put(pod)
        patch = pins.pin_patch(
            PodRef("default", name, put["metadata"]["uid"]),
            node="n1",
            version=put["metadata"]["resourceVersion"],
            terms=None,
            annotations={
                names.ALLOCATED: build.allocation("GPU-n1-a"),
                names.VGPU_NODE: "n1",
            },
        )
        await self.cluster.patch_pod("default", name, patch, within=1.0)
        self.cluster.calls.clear()
        return self.pod(name)

    def pod(self, name: str = "p") -> Json:
        return self.cluster.get("Pod", name, "default")

    def there(self, name: str = "p") -> bool:
        return ("default", name) in self.cluster.objects["Pod"]

    def condition(self, name: str = "p", *, reason: str, message: str = WORDS) -> None:
        """kube-scheduler writes the Pod's condition."""
        pod = self.pod(name)
        verdict = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        pod["status"]["conditions"] = [{"type": "Other", "status": "True"}, verdict]
        self.cluster.put(pod)

    def refuse(self, name: str = "p", words: str = WORDS) -> None:
        self.condition(name, reason="Unschedulable", message=words)

    async def refused_pin(self, name: str = "p", **more: Any) -> None:
        await self.pin(name, **more)
        self.refuse(name)

    def bind(self, name: str = "p") -> None:
        pod = self.pod(name)
        pod["spec"]["nodeName"] = "n1"
        self.cluster.put(pod)

    # What came of it ------------------------------------------------------------------------------

    def notes(self, reason: str = REFUSED, name: str = "p") -> list[str]:
        return [
            event["note"]
            for event in self.cluster.events()
            if event["reason"] == reason and event["regarding"]["name"] == name
        ]

    def tries(self) -> int:
        return self.cluster.called("evict")


# Told ---------------------------------------------------------------------------------------------


async def test_a_refusal_is_told_after_five_seconds_in_kube_schedulers_words() -> None:
    floor = Floor()
    async with floor.running():
        await floor.pin()
        await passing(30.0)
        floor.refuse()
        await passing(4.9)
        assert floor.notes() == []
        await passing(0.2)

    [event] = floor.cluster.events()
    assert event["type"] == "Warning"
    assert event["note"] == (
        "kube-scheduler refuses this Pod on node n1, where its cards are: 0/1 nodes are available: "
        "1 Insufficient cpu. Once it was refused for 60 s it is evicted, so that ReplicaSet web "
        "makes a new Pod, which is decided anew."
    )


async def test_a_pod_that_is_bound_within_five_seconds_is_not_told_of() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        await passing(4.0)
        floor.bind()
        await passing(600.0)

    assert floor.cluster.events() == []
    assert floor.cluster.called("pod") == 0
    assert len(floor.refusals) == 0


async def test_what_waits_to_be_told_of_a_pod_is_dropped_when_it_is_bound() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        await passing(4.9)
        for number in range(30):  # the recorder is busy
            floor.recorder.post(PodRef("default", f"o{number}", f"uid-{number}"), "Other", "x")
        await passing(0.2)
        floor.bind()
        await passing(100.0)

    assert floor.notes() == []


@pytest.mark.parametrize(
    ("settings", "owner", "kind", "want"),
    [
        pytest.param(
            GatesSection(),
            None,
            "",
            "Nobody would make it anew, so it stays and keeps its cards",
            id="bare",
        ),
        pytest.param(
            GatesSection(evictRefused=False),
            "web",
            "ReplicaSet",
            "It stays and keeps its cards (gates.evictRefused is false)",
            id="evictions are off",
        ),
        pytest.param(
            GatesSection(refusedSeconds=90),
            "train",
            "Job",
            "Once it was refused for 90 s it is evicted, so that Job train makes a new Pod, which "
            "is decided anew. The Job counts that as a failure unless its podReplacementPolicy is "
            "Failed.",
            id="a Job's",
        ),
    ],
)
async def test_the_event_says_what_follows(
    settings: GatesSection, owner: str | None, kind: str, want: str
) -> None:
    floor = Floor(settings)
    async with floor.running():
        await floor.refused_pin(owner=owner, kind=kind)
        await passing(6.0)

    [note] = floor.notes()
    assert want in note


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("x" * 5000, id="long"),
        pytest.param("\u00e4" * 2000, id="of two bytes each"),
        pytest.param("no\nfull\tstop", id="in lines"),
        pytest.param("", id="none"),
        pytest.param(None, id="no text"),
    ],
)
async def test_words_of_every_kind_leave_room_for_what_follows(words: Any) -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        floor.refuse(words=words)
        await passing(6.0)

    [note] = floor.notes()
    assert len(note.encode()) <= 1024
    assert "\n" not in note
    assert note.endswith("which is decided anew.")


async def test_a_pod_that_stays_is_told_of_every_five_minutes_with_the_present_words() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin(owner=None)
        await passing(100.0)
        floor.refuse(words="1 node(s) had untolerated taint(s)")
        await passing(1000.0)

    [event] = floor.cluster.events()
    assert event["series"]["count"] == 4
    assert "untolerated taint(s)." in event["note"]
    assert floor.tries() == 0
    assert floor.there()


# Evicted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [1, 4, 60, 300])
async def test_a_pod_is_evicted_when_it_was_refused_for_long_enough(seconds: int) -> None:
    floor = Floor(GatesSection(refusedSeconds=seconds))
    async with floor.running():
        await floor.pin()
        await passing(40.0)
        floor.refuse()
        await passing(seconds - 0.1)
        assert floor.there()
        await passing(0.2)
        assert not floor.there()
        await passing(10.0)

    assert floor.results == ["evicted"]
    assert len(floor.refusals) == 0
    assert floor.notes()[-1] == (
        f"Evicted: kube-scheduler refused it for {seconds} s on node n1: 0/1 nodes are available: "
        "1 Insufficient cpu. ReplicaSet web makes a new Pod, which is decided anew."
    )


async def test_an_evicted_pod_that_ends_slowly_is_evicted_once_and_its_event_is_kept() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        pod = floor.pod()
        pod["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
        floor.cluster.put(pod)
        await passing(59.9)
        for number in range(30):  # the recorder is busy
            floor.recorder.post(PodRef("default", f"o{number}", f"uid-{number}"), "Other", "x")
        await passing(0.2)
        floor.cluster.remove("Pod", "p", "default")
        await passing(120.0)

    assert floor.tries() == 1
    assert floor.notes()[-1].startswith("Evicted: ")


async def test_what_the_watch_shows_between_an_eviction_and_the_end_begins_nothing() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        await passing(59.9)
        shown = floor.pod()
        for number in range(30):  # the recorder is busy
            floor.recorder.post(PodRef("default", f"o{number}", f"uid-{number}"), "Other", "x")
        floor.blind = True
        await passing(0.2)
        assert not floor.there()
        # The API server writes a condition before it deletes.
        shown["metadata"]["resourceVersion"] = "10000"
        floor.refusals.see_pod(shown, deleted=False)
        floor.refusals.see_pod(shown, deleted=True)
        await passing(600.0)

    assert floor.tries() == 1
    assert len(floor.refusals) == 0
    assert floor.notes()[-1].startswith("Evicted: ")


async def test_another_verdict_begins_the_time_anew_and_other_words_do_not() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        await passing(40.0)
        floor.condition(reason="SchedulerError")
        await passing(100.0)
        floor.refuse()
        await passing(40.0)
        floor.refuse(words="other words")
        await passing(19.9)
        assert floor.there()
        await passing(0.2)
        assert not floor.there()


async def test_a_pod_for_which_others_are_being_removed_is_not_evicted() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        pod = floor.pod()
        pod["status"]["nominatedNodeName"] = "n1"
        floor.cluster.put(pod)
        await passing(300.0)
        assert floor.there()
        assert "being removed from there for it" in floor.notes()[0]

        del pod["status"]["nominatedNodeName"]
        floor.cluster.put(pod)
        await passing(60.0)
        assert not floor.there()


# Never --------------------------------------------------------------------------------------------


async def test_a_pod_that_was_bound_unseen_is_not_evicted_nor_told_of() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        floor.blind = True
        floor.bind()
        await passing(300.0)

    assert floor.there()
    assert floor.tries() == 0
    assert floor.cluster.events() == []


@pytest.mark.parametrize("deadline", [0.1, 3.0])
async def test_a_pod_that_is_bound_while_it_is_being_evicted_stays(deadline: float) -> None:
    # Red when the eviction names no version.
    floor = Floor()
    floor.cluster.slow("evict", deadline)
    async with floor.running():
        await floor.refused_pin()
        await passing(60.0 + deadline / 2)
        assert floor.tries() == 1
        floor.blind = True
        floor.bind()
        await passing(300.0)

    assert floor.there()
    assert floor.results == ["changed"]
    assert len(floor.refusals) == 0


async def test_an_eviction_that_arrives_late_does_not_reach_a_bound_pod() -> None:
    floor = Floor()
    floor.cluster.fail("evict", unanswered(lands=8.0, after=2.0))
    async with floor.running():
        await floor.refused_pin()
        await passing(63.0)
        floor.bind()
        await passing(100.0)

    assert floor.there()


async def test_a_namesake_is_not_evicted() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin(uid="first")
        floor.blind = True
        floor.cluster.remove("Pod", "p", "default")
        await floor.refused_pin(uid="second")
        await passing(300.0)

    assert floor.there()
    assert floor.tries() == 0
    assert len(floor.refusals) == 0


def changed(pod: Json, what: str) -> Json:
    """The Pod, but for one thing."""
    match what:
        case "bound":
            pod["spec"]["nodeName"] = "n1"
        case "gated":
            pod["spec"]["schedulingGates"] = [{"name": names.GATE}]
        case "gated by others":
            pod["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
        case "without an allocation":
            del pod["metadata"]["annotations"][names.ALLOCATED]
        case "free to go elsewhere":
            del pod["spec"]["affinity"]
        case "terminating":
            pod["metadata"]["deletionTimestamp"] = build.REPORTED_AT
        case "failed":
            pod["status"]["phase"] = "Failed"
    return pod


@pytest.mark.parametrize(
    "what",
    [
        *("bound", "gated", "gated by others", "without an allocation"),
        *("free to go elsewhere", "terminating", "failed"),
    ],
)
@pytest.mark.parametrize("before", [False, True], ids=["from the beginning", "later"])
async def test_of_other_pods_nothing_is_told(what: str, before: bool) -> None:
    floor = Floor()
    floor.blind = not before
    async with floor.running():
        await floor.refused_pin()
        if before:
            await passing(2.0)
        floor.blind = False
        floor.cluster.put(changed(floor.pod(), what))
        await passing(600.0)

    assert floor.cluster.events() == []
    assert floor.tries() == 0
    if what != "gated by others":
        assert len(floor.refusals) == 0


# Refused and unanswered evictions -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "result", "again"),
    [
        pytest.param(refused(429), "forbidden", 10.0, id="a budget for disruption"),
        pytest.param(refused(409), "changed", 1.0, id="a newer version"),
        pytest.param(refused(500), "failed", 10.0, id="an error"),
        pytest.param(refused(403), "failed", 10.0, id="no right"),
        pytest.param(unanswered(after=2.0), "failed", 12.0, id="no answer"),
    ],
)
async def test_an_eviction_that_fails_is_tried_again_later(
    fault: Fault, result: str, again: float
) -> None:
    floor = Floor()
    floor.cluster.fail("evict", fault, fault)
    async with floor.running():
        await floor.refused_pin()
        await passing(60.0 + again - 0.1)
        assert floor.tries() == 1
        await passing(0.2)
        assert floor.tries() == 2
        await passing(again)

    assert floor.results == [result, result, "evicted"]


async def test_an_eviction_whose_answer_is_lost_is_not_repeated() -> None:
    floor = Floor()
    floor.cluster.fail("evict", unanswered(lands=0.0, after=2.0))
    async with floor.running():
        await floor.refused_pin()
        await passing(300.0)

    assert floor.tries() == 1
    assert len(floor.refusals) == 0


async def test_a_pod_that_went_meanwhile_is_done_with() -> None:
    floor = Floor()
    floor.cluster.fail("evict", refused(404))
    async with floor.running():
        await floor.refused_pin()
        await passing(300.0)

    assert floor.results == ["gone"]
    assert len(floor.refusals) == 0


async def test_a_pod_that_can_not_be_read_is_looked_at_again() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        await passing(59.0)
        floor.cluster.fail("pod", refused(500), unanswered(after=2.0))
        await passing(24.0)

    assert floor.results == ["evicted"]


# An owner whose Pods are refused again and again --------------------------------------------------


async def remade(floor: Floor, seconds: float, owner: str = "web") -> None:
    """For so long, the owner makes a Pod whenever there is none, and it is refused."""
    loop = asyncio.get_running_loop()
    end, number = loop.time() + seconds, 0
    while loop.time() < end:
        if not any(name.startswith(owner) for _, name in floor.cluster.objects["Pod"]):
            await floor.refused_pin(f"{owner}-{number}", owner=owner, uid=f"{owner}-{number}")
            number += 1
        await passing(1.0)


async def test_of_one_owner_three_pods_are_evicted_in_ten_minutes() -> None:
    # Red when the count is one more, or by the Pod.
    floor = Floor()
    async with floor.running():
        await remade(floor, 590.0)
        assert floor.results == ["evicted"] * MOST_EVICTIONS
        [note] = floor.notes(name="web-3")
        assert "It stays for now and keeps its cards: 3 Pods of ReplicaSet web were" in note

        await remade(floor, 300.0)
        assert len(floor.results) >= MOST_EVICTIONS + 1, "the first are old by now"


async def test_the_evictions_of_one_owner_do_not_count_for_another() -> None:
    floor = Floor()
    async with floor.running():
        await asyncio.gather(remade(floor, 500.0, "one"), remade(floor, 500.0, "two"))

    assert floor.results == ["evicted"] * 2 * MOST_EVICTIONS


@pytest.mark.parametrize("seed", range(8))
async def test_never_more_than_three_in_any_ten_minutes_whatever_becomes_of_them(seed: int) -> None:
    chance = Random(seed)
    floor = Floor(GatesSection(refusedSeconds=chance.choice((1, 5, 30))))
    loop, went = asyncio.get_running_loop(), list[float]()

    def watch(change: Change) -> None:
        if change.type == "DELETED":
            went.append(loop.time())
        floor.show(change)

    floor.cluster.watch = watch
    async with floor.running():
        for _ in range(30):
            if chance.random() < 0.4:
                lands = chance.choice((None, 0.0, 1.0))
                fault = unanswered(after=2.0, lands=lands)
                floor.cluster.fail("evict", chance.choice((fault, refused(409), refused(429))))
            await remade(floor, chance.choice((20.0, 60.0, 150.0)))

    assert len(went) > MOST_EVICTIONS
    for first, last in zip(went, went[MOST_EVICTIONS:], strict=False):
        # An eviction is counted when its answer is there, or is given up: 2 s later.
        assert last - first >= 600.0 - 2.0


async def test_old_evictions_are_forgotten() -> None:
    floor = Floor()
    async with floor.running():
        for number in range(20):
            await floor.refused_pin(f"p{number}", owner=f"o{number}")
            await passing(100.0)

    assert len(floor.refusals.evictions) <= 7


# No scheduler looks -------------------------------------------------------------------------------


@pytest.mark.parametrize("without", [False, True], ids=["as it was gated", "no condition at all"])
async def test_a_pod_that_no_scheduler_looks_at_is_told_of_and_stays(without: bool) -> None:
    floor = Floor()
    async with floor.running():
        await floor.pin(scheduler="custom")
        if without:
            pod = floor.pod()
            del pod["status"]["conditions"]
            floor.cluster.put(pod)
        await passing(59.9)
        assert floor.cluster.events() == []
        await passing(0.2)
        [note] = floor.notes(ABSENT)
        assert note == (
            "The Pod has its cards on node n1, and no scheduler has looked at it for 60 s. See "
            'that a scheduler named "custom" runs, or create the Pod with another schedulerName.'
        )
        await passing(600.0)
        assert floor.there()

        floor.refuse()
        await passing(61.0)
        assert not floor.there()


# Who may act, and when ----------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["stopping", "not loaded"])
async def test_nothing_is_done_while_the_gate_is_closed(why: str) -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        await passing(3.0)
        floor.duty.stopping, floor.duty.loaded = why == "stopping", why != "not loaded"
        await passing(300.0)
        assert floor.cluster.calls == []

        floor.duty.stopping, floor.duty.loaded = False, True
        await passing(10.0)
        assert floor.results == ["evicted"]


async def test_a_gate_that_closes_during_a_look_lets_nothing_follow() -> None:
    floor = Floor()
    floor.cluster.slow("pod", 1.0)
    async with floor.running():
        await floor.refused_pin()
        await passing(60.5)
        floor.duty.stopping = True
        await passing(300.0)

    assert floor.tries() == 0


async def test_times_begin_anew_with_a_term() -> None:
    floor = Floor(tenure=lambda clock: Tenure("a", clock))
    tenure = floor.tenure
    assert tenure is not None
    holder, transitions = "b_1", 1

    async def lease() -> None:
        renewals = 0
        while True:
            renewals += 1
            spec = {
                "holderIdentity": holder,
                "leaseDurationSeconds": 12,
                "leaseTransitions": transitions,
                "renewTime": renewals,
            }
            now = floor.clock.monotonic()
            tenure.see({"spec": spec}, now, now)
            if tenure.ours:
                tenure.listed()
            await passing(0.5)

    async with floor.running(), background(lease()):
        await floor.refused_pin()
        await passing(100.0)
        assert floor.cluster.calls == []

        holder, transitions = "a_1", 2
        await passing(59.0)
        assert floor.notes() == [floor.notes()[0]], "told of, by the new one as well"
        assert floor.tries() == 0
        await passing(7.0)
        assert floor.results == ["evicted"]


# Many, and none -----------------------------------------------------------------------------------


async def test_a_thousand_are_followed_by_one_task_that_sleeps() -> None:
    floor = Floor()
    async with floor.running() as tasks:
        for number in range(1000):
            await floor.refused_pin(f"p{number}", owner=None)
        await passing(6.0)
        looks = floor.cluster.called("pod")
        assert looks == 1000
        await passing(250.0)
        assert floor.cluster.called("pod") == looks
        assert len(tasks) == 2


async def test_an_earlier_time_wakes_the_sleeper() -> None:
    floor = Floor(GatesSection(refusedSeconds=600))
    async with floor.running():
        await floor.pin("first")
        await passing(10.0)
        await floor.refused_pin("second")
        await passing(5.1)

        assert len(floor.notes(name="second")) == 1


async def test_who_is_not_on_a_complete_list_is_forgotten() -> None:
    floor = Floor()
    loop = asyncio.get_running_loop()
    for name in ("gone", "listed", "newer"):
        if name == "newer":
            await passing(10.0)
        await floor.refused_pin(name)
    floor.blind = True
    floor.cluster.remove("Pod", "gone", "default")
    floor.refusals.listed({"uid-default-listed"}, loop.time() - 5.0)

    assert len(floor.refusals) == 2


async def test_what_comes_late_changes_nothing() -> None:
    floor = Floor()
    async with floor.running():
        await floor.pin()
        old = floor.pod()
        floor.refuse()
        await passing(30.0)
        floor.refusals.see_pod(old, deleted=False)
        await passing(30.1)

    assert floor.results == ["evicted"]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"metadata": None, "spec": 7, "status": []}, id="other types"),
        pytest.param(
            {"metadata": {"uid": 7, "annotations": {names.ALLOCATED: 7}}, "spec": {}},
            id="numbers for texts",
        ),
        pytest.param(
            {"metadata": {"annotations": {names.ALLOCATED: "", names.VGPU_NODE: "n1"}}},
            id="an allocation alone",
        ),
    ],
)
async def test_pods_of_any_shape_are_borne(pod: Json) -> None:
    floor = Floor()
    floor.refusals.see_pod(pod, deleted=False)
    floor.refusals.see_pod(pod, deleted=True)

    assert len(floor.refusals) == 0


async def test_ownership_and_conditions_of_any_shape_are_borne() -> None:
    floor = Floor()
    async with floor.running():
        await floor.refused_pin()
        pod = floor.pod()
        pod["metadata"]["ownerReferences"] = ["x", None, {"controller": True, "uid": 7}]
        pod["status"]["conditions"] = [None, "x", *pod["status"]["conditions"]]
        floor.cluster.put(pod)
        await passing(100.0)

    assert floor.tries() == 0
    assert len(floor.notes()) == 1
