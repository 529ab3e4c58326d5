"""Kubelet's messages, held against Google's own protocol buffers."""

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from cardwise.agent.deviceplugin import messages, protobuf
from cardwise.agent.deviceplugin.handover import Mount
from cardwise.agent.deviceplugin.messages import ContainerAnswer, Device, Options, RegisterRequest
from cardwise.errors import BadBody

_FIELD = descriptor_pb2.FieldDescriptorProto
_STRING, _BOOL, _INT32, _INT64 = (
    _FIELD.TYPE_STRING,
    _FIELD.TYPE_BOOL,
    _FIELD.TYPE_INT32,
    _FIELD.TYPE_INT64,
)

# What kubelet speaks: name, number, type (a text names a message), whether it is repeated.
API: dict[str, list[tuple[str, int, int | str, bool]]] = {
    "DevicePluginOptions": [
        ("pre_start_required", 1, _BOOL, False),
        ("get_preferred_allocation_available", 2, _BOOL, False),
    ],
    "RegisterRequest": [
        ("version", 1, _STRING, False),
        ("endpoint", 2, _STRING, False),
        ("resource_name", 3, _STRING, False),
        ("options", 4, "DevicePluginOptions", False),
    ],
    "NUMANode": [("ID", 1, _INT64, False)],
    "TopologyInfo": [("nodes", 1, "NUMANode", True)],
    "Device": [
        ("ID", 1, _STRING, False),
        ("health", 2, _STRING, False),
        ("topology", 3, "TopologyInfo", False),
    ],
    "ListAndWatchResponse": [("devices", 1, "Device", True)],
    "Pair": [("key", 1, _STRING, False), ("value", 2, _STRING, False)],
    "CDIDevice": [("name", 1, _STRING, False)],
    "Mount": [
        ("container_path", 1, _STRING, False),
        ("host_path", 2, _STRING, False),
        ("read_only", 3, _BOOL, False),
    ],
    "ContainerAllocateResponse": [
        ("envs", 1, "Pair", True),
        ("mounts", 2, "Mount", True),
        ("annotations", 4, "Pair", True),
        ("cdi_devices", 5, "CDIDevice", True),
    ],
    "AllocateResponse": [("container_responses", 1, "ContainerAllocateResponse", True)],
    "ContainerAllocateRequest": [("devices_ids", 1, _STRING, True)],
    "AllocateRequest": [("container_requests", 1, "ContainerAllocateRequest", True)],
    "ContainerPreferredAllocationRequest": [
        ("available_deviceIDs", 1, _STRING, True),
        ("must_include_deviceIDs", 2, _STRING, True),
        ("allocation_size", 3, _INT32, False),
    ],
    "PreferredAllocationRequest": [
        ("container_requests", 1, "ContainerPreferredAllocationRequest", True)
    ],
    "ContainerPreferredAllocationResponse": [("deviceIDs", 1, _STRING, True)],
    "PreferredAllocationResponse": [
        ("container_responses", 1, "ContainerPreferredAllocationResponse", True)
    ],
}


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="api.proto", package="v1beta1", syntax="proto3")
    for name, fields in API.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            added = message.field.add(name=field, number=number)
            added.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            if isinstance(kind, str):
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".v1beta1.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


POOL = _pool()


def theirs(name: str, data: bytes = b"") -> Any:
    """A message of Google's, read from bytes."""
    made = message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"v1beta1.{name}"))()
    made.ParseFromString(data)
    return made


texts = st.text(max_size=40)
ids = st.lists(texts, max_size=5)


@given(texts, texts, st.booleans(), st.booleans())
def test_a_registration_is_read_as_it_was_meant(
    endpoint: str, resource: str, start: bool, prefer: bool
) -> None:
    options = Options(pre_start_required=start, get_preferred_allocation_available=prefer)
    request = RegisterRequest(endpoint=endpoint, resource_name=resource, options=options)

    read = theirs("RegisterRequest", request.encode())

    assert (read.version, read.endpoint, read.resource_name) == ("v1beta1", endpoint, resource)
    assert read.options.pre_start_required == start
    assert read.options.get_preferred_allocation_available == prefer


@given(
    st.lists(st.builds(Device, texts, st.booleans(), st.none() | st.integers(0, 2**40)), max_size=5)
)
def test_devices_are_read_as_they_were_meant(devices: list[Device]) -> None:
    read = theirs("ListAndWatchResponse", messages.devices(devices)).devices

    assert [(each.ID, each.health == "Healthy") for each in read] == [
        (each.id, each.healthy) for each in devices
    ]
    assert [[node.ID for node in each.topology.nodes] for each in read] == [
        [] if each.numa is None else [each.numa] for each in devices
    ]


pairs = st.dictionaries(texts, texts, max_size=3)
answers_to_allocate = st.builds(
    ContainerAnswer,
    envs=pairs,
    mounts=st.lists(st.builds(Mount, texts, texts, st.booleans()), max_size=3).map(tuple),
    annotations=pairs,
    cdi_devices=ids.map(tuple),
)


@given(st.lists(answers_to_allocate, max_size=3))
def test_answers_to_allocate_are_read_as_they_were_meant(answers: list[ContainerAnswer]) -> None:
    read = theirs("AllocateResponse", messages.allocated(answers)).container_responses

    assert [
        (
            {pair.key: pair.value for pair in each.envs},
            [(mount.host_path, mount.container_path, mount.read_only) for mount in each.mounts],
            {pair.key: pair.value for pair in each.annotations},
            [device.name for device in each.cdi_devices],
        )
        for each in read
    ] == [
        (
            each.envs,
            [(mount.host, mount.container, mount.read_only) for mount in each.mounts],
            each.annotations,
            list(each.cdi_devices),
        )
        for each in answers
    ]


@given(answers_to_allocate)
def test_what_kubelet_keeps_of_an_answer_is_read_as_it_was_meant(answer: ContainerAnswer) -> None:
    written = theirs("ContainerAllocateResponse", answer.encode()).SerializeToString()

    assert messages.answered(written) == answer


@given(st.lists(ids, max_size=3))
def test_preferences_are_read_as_they_were_meant(chosen: list[list[str]]) -> None:
    read = theirs("PreferredAllocationResponse", messages.preferred(chosen)).container_responses

    assert [list(each.deviceIDs) for each in read] == chosen


@given(st.lists(ids, max_size=3))
def test_what_kubelet_asks_to_allocate_is_understood(asked: list[list[str]]) -> None:
    request = theirs("AllocateRequest")
    for each in asked:
        request.container_requests.add(devices_ids=each)

    assert messages.asked_to_allocate(request.SerializeToString()) == [tuple(e) for e in asked]


@given(ids)
def test_whose_start_it_is_is_understood(asked: list[str]) -> None:
    request = theirs("ContainerAllocateRequest")
    request.devices_ids.extend(asked)

    assert messages.about_to_start(request.SerializeToString()) == frozenset(asked)


@given(st.lists(st.tuples(ids, ids, st.integers(-(2**31), 2**31 - 1)), max_size=3))
def test_what_kubelet_can_choose_from_is_understood(
    rows: list[tuple[list[str], list[str], int]],
) -> None:
    request = theirs("PreferredAllocationRequest")
    for available, must_include, size in rows:
        request.container_requests.add(
            available_deviceIDs=available,
            must_include_deviceIDs=must_include,
            allocation_size=size,
        )

    understood = messages.asked_to_prefer(request.SerializeToString())

    assert [(list(e.available), list(e.must_include), e.size) for e in understood] == rows


@given(st.binary(max_size=60))
def test_bytes_are_a_message_or_are_refused(data: bytes) -> None:
    try:
        fields = list(protobuf.fields(data))
    except BadBody:
        return
    assert sum(len(value) for _, value in fields if isinstance(value, bytes)) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x0a", id="no-length"),
        pytest.param(b"\x0a\x05ab", id="cut-off"),
        pytest.param(b"\x80", id="number-cut-off"),
        pytest.param(b"\x80" * 11, id="number-too-long"),
        pytest.param(b"\x0b", id="group"),
        pytest.param(b"\x09abc", id="fixed-cut-off"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadBody):
        list(protobuf.fields(data))


def test_a_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(BadBody, match="UTF-8"):
        messages.about_to_start(protobuf.message(1, b"\xff"))


def test_fields_that_we_do_not_know_are_skipped() -> None:
    known = protobuf.text(1, "GPU-a-0")
    strange = protobuf.number(9, 7) + protobuf.message(8, b"x") + b"\x51" + bytes(8) + b"\x55????"

    assert messages.about_to_start(strange + known + strange) == {"GPU-a-0"}
