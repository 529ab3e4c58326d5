from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise.errors import BadAllocation
from cardwise.model import Booking, ContainerKind, PodRef, Share
from cardwise.names import (
    ALLOCATED,
    ALLOCATION_ANNOTATIONS,
    EXCLUSIVE_HELD,
    RESOURCES,
    TO_ALLOCATE,
    VGPU_NODE,
)
from cardwise.wire import allocation
from cardwise.wire.pods import (
    annotation_bytes,
    asks_cards,
    binding_body,
    booking_of,
    bound_node,
    is_finished,
    is_terminating,
    pod_ref,
    resource_version,
    version_number,
)

INIT, SIDECAR, REGULAR = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.REGULAR
A = Share("GPU-a", 1000, 0)
B = Share("GPU-b", 1000, 0)
A_TEXT, B_TEXT = "GPU-a,NVIDIA,1000,0:", "GPU-b,NVIDIA,1000,0:"


def gpu(name: str, **more: Any) -> build.Json:
    return build.container(name, gpu=1, gpumem=1000, **more)


# What a Pod is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "ref"),
    [
        pytest.param(
            {"namespace": "team", "name": "p", "uid": "u"}, PodRef("team", "p", "u"), id="all three"
        ),
        pytest.param({"name": "p"}, PodRef("default", "p", ""), id="not stored yet"),
        pytest.param({"generateName": "p-"}, PodRef("default", "p-", ""), id="not named yet"),
        pytest.param({"name": 1, "namespace": [], "uid": {}}, PodRef("default", ""), id="no texts"),
        pytest.param(None, PodRef("default", ""), id="no metadata"),
    ],
)
def test_which_pod_it_is(metadata: object, ref: PodRef) -> None:
    assert pod_ref({"metadata": metadata}) == ref


@pytest.mark.parametrize(
    ("phase", "finished"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("Succeeded", True),
        ("Failed", True),
        ([], False),
    ],
    ids=str,
)
def test_which_phases_end_a_pod(phase: Any, finished: bool) -> None:
    assert is_finished({"status": {"phase": phase}}) is finished


def test_deletion_begins_with_its_timestamp() -> None:
    assert is_terminating(build.pod(terminating=True))
    assert not is_terminating(build.pod())


def test_the_node_and_version_of_a_pod() -> None:
    assert bound_node(build.pod(node="n1")) == "n1"
    assert bound_node(build.pod()) is None
    assert bound_node(build.pod(node="")) is None
    assert resource_version(build.pod(resource_version="42")) == "42"
    assert resource_version({}) == ""


@pytest.mark.parametrize(
    ("version", "number"),
    [
        pytest.param("42", 42, id="a number"),
        pytest.param("18446744073709551615", 2**64 - 1, id="the largest"),
        pytest.param("9" * 5000, 0, id="more digits than any has"),
        pytest.param("v2", 0, id="no number"),
        pytest.param("-1", 0, id="a sign"),
        pytest.param("", 0, id="empty"),
        pytest.param(7, 0, id="no text"),
        pytest.param(None, 0, id="none"),
    ],
)
def test_the_version_of_an_object_as_a_number(version: object, number: int) -> None:
    assert version_number({"metadata": {"resourceVersion": version}}) == number


@pytest.mark.parametrize("key", RESOURCES)
@pytest.mark.parametrize("side", ["limits", "requests"])
@pytest.mark.parametrize("group", ["containers", "init"])
def test_a_pod_asks_cards_by_naming_any_resource(key: str, side: str, group: str) -> None:
    naming = build.container("x", **{side: {key: "0"}})
    containers = {"containers": [build.container()], "init": [build.container("i")]}
    containers[group].append(naming)

    assert asks_cards(build.pod(**containers))


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(build.pod(gpus=None), id="no resource"),
        pytest.param(build.pod(gpus=None, policy="mutex"), id="a policy alone"),
        pytest.param(
            build.pod(containers=[build.container(limits={"cpu": "1"})]), id="another resource"
        ),
        pytest.param(
            build.pod(containers=[build.container(limits={"nvidia.com/gpu": None})]),
            id="a null for the value",
        ),
        pytest.param({"spec": {"containers": [None, 1, {"resources": []}]}}, id="no containers"),
        pytest.param({"spec": {"containers": {"a": 1}}}, id="an object for the containers"),
        pytest.param({}, id="an empty object"),
    ],
)
def test_other_pods_do_not_ask_cards(pod: dict[str, Any]) -> None:
    assert not asks_cards(pod)


# Bookings -----------------------------------------------------------------------------------------


def booked(*segments: tuple[Share, ...], kinds: Any, exclusive: bool = False) -> Booking:
    return Booking(node="n1", containers=segments, kinds=tuple(kinds), exclusive=exclusive)


@pytest.mark.parametrize(
    ("pod", "booking"),
    [
        pytest.param(
            build.pod(node="n1", allocated=A_TEXT + ";"),
            booked((A,), kinds=[REGULAR]),
            id="bound and running",
        ),
        pytest.param(
            build.pod(node="n1", allocated=A_TEXT + ";", phase="Pending"),
            booked((A,), kinds=[REGULAR]),
            id="bound, not started",
        ),
        pytest.param(
            build.pod(node="n1", allocated=A_TEXT + ";", terminating=True),
            booked((A,), kinds=[REGULAR]),
            id="terminating",
        ),
        pytest.param(build.pod(allocated=A_TEXT + ";"), None, id="not bound: somebody's text"),
        pytest.param(build.pod(allocated="garbage"), None, id="not bound, unreadable"),
        pytest.param(build.pod(node="n1"), None, id="no allocation"),
        pytest.param(
            build.pod(node="n1", allocated=A_TEXT + ";", phase="Succeeded"),
            None,
            id="succeeded, so it holds nothing",
        ),
        pytest.param(
            build.pod(node="n1", allocated="garbage", phase="Failed"), None, id="failed, unreadable"
        ),
        pytest.param(build.pod(node="n1", allocated=""), booked(kinds=[]), id="an empty text"),
        pytest.param(
            build.pod(node="n1", annotations={ALLOCATED: None}),
            booked(kinds=[]),
            id="a null for the value",
        ),
        pytest.param(
            build.pod(node="n1", allocated=A_TEXT + ";", exclusive_held=True),
            booked((A,), kinds=[REGULAR], exclusive=True),
            id="exclusive",
        ),
        pytest.param(
            build.pod(node="n1", allocated=A_TEXT + ";", exclusive="true"),
            booked((A,), kinds=[REGULAR]),
            id="the wish for exclusiveness is not the mark",
        ),
        pytest.param(
            build.pod(node="n1", allocated=A_TEXT + ";", annotations={EXCLUSIVE_HELD: "True"}),
            booked((A,), kinds=[REGULAR]),
            id="the mark is exactly true",
        ),
    ],
)
def test_the_booking_of_a_pod(pod: dict[str, Any], booking: Booking | None) -> None:
    assert booking_of(pod) == booking


@pytest.mark.parametrize(
    ("text", "containers", "kinds"),
    [
        pytest.param(
            f"{A_TEXT};{A_TEXT};{B_TEXT};",
            {"init": [gpu("i"), gpu("s", sidecar=True)], "containers": [gpu("app")]},
            [INIT, SIDECAR, REGULAR],
            id="each segment belongs to the container in its place",
        ),
        pytest.param(
            f";{B_TEXT};;",
            {"init": [build.container("i")], "containers": [gpu("a"), build.container("b")]},
            [INIT, REGULAR, REGULAR],
            id="containers without cards have empty segments",
        ),
        pytest.param(
            f"{A_TEXT};",
            {"init": [gpu("i")], "containers": [gpu("app")]},
            [REGULAR],
            id="fewer segments than containers: summed",
        ),
        pytest.param(
            f"{A_TEXT};{B_TEXT};",
            {"init": [gpu("i")], "containers": [build.container("app")]},
            [REGULAR, REGULAR],
            id="cards for a container that asks for none: summed",
        ),
        pytest.param(
            f"{A_TEXT};{B_TEXT};",
            {"init": [build.container("i", gpu=0)], "containers": [gpu("app")]},
            [REGULAR, REGULAR],
            id="cards for a container that asks for 0: summed",
        ),
        pytest.param(
            f"{A_TEXT};{B_TEXT};",
            {"init": [build.container("i", gpu="1Ki")], "containers": [gpu("app")]},
            [REGULAR, REGULAR],
            id="cards for a container whose count can't be read: summed",
        ),
        pytest.param(
            f"{A_TEXT};;{B_TEXT};",
            {"init": [gpu("i")], "containers": [gpu("app")]},
            [REGULAR, REGULAR, REGULAR],
            id="cards beyond the last container: summed",
        ),
        pytest.param(
            f"{A_TEXT};;;",
            {"init": [gpu("i")], "containers": [gpu("app")]},
            [INIT, REGULAR],
            id="empty segments beyond the last container are of no account",
        ),
        pytest.param(
            f"{A_TEXT};;",
            {"init": [gpu("i")], "containers": [gpu("app")]},
            [INIT, REGULAR],
            id="no cards for a container that asks",
        ),
        pytest.param(
            f"{A_TEXT};",
            {"containers": [build.container(requests={"nvidia.com/gpu": "1"})]},
            [REGULAR],
            id="a count among the requests alone",
        ),
    ],
)
def test_whose_segment_it_is(text: str, containers: dict[str, Any], kinds: Any) -> None:
    booking = booking_of(build.pod(node="n1", allocated=text, **containers))

    assert booking is not None
    assert booking.kinds == tuple(kinds)
    assert booking.containers == allocation.decode(text)[: len(kinds)]


@pytest.mark.parametrize(
    ("exits", "kept"),
    [
        pytest.param(None, True, id="no status yet"),
        pytest.param({"one": 0, "two": None}, True, id="one still runs"),
        pytest.param({"one": 0}, True, id="one has no status"),
        pytest.param({"one": 0, "two": 1}, True, id="one failed"),
        pytest.param({"one": 0, "two": 0}, False, id="all ended well"),
        pytest.param({"one": 0, "two": 0, "side": None}, False, id="sidecars run on"),
    ],
)
def test_init_shrink_drops_what_ended_init_containers_took(exits: Any, kept: bool) -> None:
    pod = build.pod(
        node="n1",
        allocated=f"{A_TEXT};{A_TEXT};{B_TEXT};{B_TEXT};",
        init=[gpu("one"), gpu("side", sidecar=True), gpu("two")],
        containers=[gpu("app")],
        init_exits=exits,
    )
    kinds = [INIT, SIDECAR, INIT, REGULAR]
    whole = booked((A,), (A,), (B,), (B,), kinds=kinds)

    assert booking_of(pod) == whole
    shrunk = booked((), (A,), (), (B,), kinds=kinds)
    assert booking_of(pod, init_shrink=True) == (whole if kept else shrunk)


def test_init_shrink_leaves_a_text_that_does_not_match_the_pod() -> None:
    pod = build.pod(
        node="n1",
        allocated=f"{A_TEXT};",
        init=[gpu("i")],
        containers=[gpu("app")],
        init_exits={"i": 0},
    )

    assert booking_of(pod, init_shrink=True) == booked((A,), kinds=[REGULAR])


@pytest.mark.parametrize(
    ("value", "named"),
    [
        pytest.param("GPU-a,NVIDIA,many,0:;", '"GPU-a,NVIDIA,many,0"', id="a number that is none"),
        pytest.param("GPU-a;", '"GPU-a"', id="too few fields"),
        pytest.param(7, "7 is no text", id="no text"),
        pytest.param(["GPU-a"], "a list is no text", id="a list"),
    ],
)
def test_an_unreadable_allocation_is_not_no_cards(value: Any, named: str) -> None:
    with pytest.raises(BadAllocation) as caught:
        booking_of(build.pod(node="n1", annotations={ALLOCATED: value}))

    assert named in str(caught.value)


# The Binding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclusive", [False, True], ids=["ordinary", "exclusive"])
def test_the_binding_is_the_contracts(exclusive: bool) -> None:
    body = binding_body(
        PodRef("team", "p", "u-1"),
        booked((A,), (), kinds=[REGULAR, REGULAR]),
        1764417600,
        exclusive,
    )

    assert body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u-1",
            "annotations": {
                "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1000,0:;;",
                "hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,1000,0:;;",
                "hami.io/vgpu-node": "n1",
                "hami.io/vgpu-time": "1764417600",
                "hami.io/bind-time": "1764417600",
                "hami.io/bind-phase": "allocating",
                **({"cardwise.dev/exclusive-held": "true"} if exclusive else {}),
            },
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    assert set(body["metadata"]["annotations"]) <= set(ALLOCATION_ANNOTATIONS)


def test_a_binding_without_a_uid_checks_none() -> None:
    body = binding_body(PodRef("team", "p"), booked((A,), kinds=[REGULAR]), 0, False)

    assert "uid" not in body["metadata"]


@given(st.data())
def test_a_bound_pod_has_what_was_booked(data: st.DataObject) -> None:
    kinds = [
        *data.draw(st.lists(st.sampled_from([INIT, SIDECAR]), max_size=3)),
        *data.draw(st.lists(st.just(REGULAR), min_size=1, max_size=3)),
    ]
    counts = [data.draw(st.integers(0, 2)) for _ in kinds]
    exclusive = data.draw(st.booleans())
    booking = booked(*((A, B)[:count] for count in counts), kinds=kinds, exclusive=exclusive)
    asking = [
        build.container(f"c{place}", gpu=count or None, sidecar=kind is SIDECAR)
        for place, (kind, count) in enumerate(zip(kinds, counts, strict=True))
    ]
    inits = sum(kind is not REGULAR for kind in kinds)
    body = binding_body(PodRef("default", "p", "u"), booking, 1, exclusive)

    pod = build.pod(
        node="n1",
        init=asking[:inits],
        containers=asking[inits:],
        annotations=body["metadata"]["annotations"],
    )

    assert booking_of(pod) == booking


@pytest.mark.parametrize(
    ("annotations", "extra", "size"),
    [
        pytest.param({}, {}, 0, id="no annotations"),
        pytest.param({"ab": "cde"}, {}, 5, id="keys and values"),
        pytest.param({"ab": "cde"}, {"f": "gh"}, 8, id="what is there and what is added"),
        pytest.param({"ab": "cde"}, {"ab": "x"}, 3, id="a key that is there is replaced"),
        pytest.param({"ä": "€"}, {}, 5, id="bytes, not characters"),
        pytest.param({"a": "\ud800"}, {}, 4, id="half a surrogate pair"),
        pytest.param({"a": None, "b": 1}, {}, 1, id="no texts"),
    ],
)
def test_the_size_of_annotations(annotations: Any, extra: dict[str, str], size: int) -> None:
    assert annotation_bytes({"metadata": {"annotations": annotations}}, extra) == size


# Anything anywhere --------------------------------------------------------------------------------

WHOLE = st.just(
    build.pod(
        node="n1",
        allocated=f"{A_TEXT};{B_TEXT};",
        exclusive_held=True,
        init=[gpu("i")],
        containers=[gpu("app")],
        init_exits={"i": 0},
        terminating=True,
    )
)


@given(hostile.spoilt(WHOLE))
def test_no_pod_gives_a_traceback(pod: Any) -> None:
    assert pod_ref(pod).namespace
    assert isinstance(asks_cards(pod), bool)
    assert isinstance(is_finished(pod), bool)
    assert isinstance(is_terminating(pod), bool)
    assert isinstance(resource_version(pod), str)
    assert version_number(pod) >= 0
    assert annotation_bytes(pod, {TO_ALLOCATE: "x", VGPU_NODE: "y"}) >= 2
    try:
        booking = booking_of(pod, init_shrink=True)
    except BadAllocation as error:
        assert "\n" not in str(error)  # noqa: PT017 - a refusal is right, a traceback is not
    else:
        assert booking is None or booking.node == bound_node(pod)
        assert booking is None or len(booking.kinds) == len(booking.containers)
