"""kubelet's device plugin API, v1beta1: the messages that we read and write.

Names and field numbers are the API's. What we don't use is left out: a reader skips fields that it
does not know, and a writer need not write any.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cardwise.agent.deviceplugin import protobuf
from cardwise.agent.deviceplugin.handover import Mount

VERSION: Final = "v1beta1"
REGISTER: Final = "/v1beta1.Registration/Register"
"""What kubelet serves; the other service is ours."""
SERVICE: Final = "v1beta1.DevicePlugin"

EMPTY: Final = b""
"""``Empty``, ``PreStartContainerResponse``: messages without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``DevicePluginOptions``."""

    pre_start_required: bool
    get_preferred_allocation_available: bool

    def encode(self) -> bytes:
        """On the wire."""
        return protobuf.number(1, self.pre_start_required) + protobuf.number(
            2, self.get_preferred_allocation_available
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest:
    """What kubelet is told of a plugin."""

    endpoint: str
    """The name of our socket in kubelet's directory."""
    resource_name: str
    options: Options

    def encode(self) -> bytes:
        """On the wire."""
        return (
            protobuf.text(1, VERSION)
            + protobuf.text(2, self.endpoint)
            + protobuf.text(3, self.resource_name)
            + protobuf.message(4, self.options.encode())
        )


@dataclass(frozen=True, slots=True)
class Device:
    """One slot of a card."""

    id: str
    healthy: bool
    numa: int | None = None
    """NUMA node; None: kubelet's topology manager is told nothing."""

    def encode(self) -> bytes:
        """On the wire."""
        topology = b""
        if self.numa is not None:
            topology = protobuf.message(3, protobuf.message(1, protobuf.number(1, self.numa)))
        health = "Healthy" if self.healthy else "Unhealthy"
        return protobuf.text(1, self.id) + protobuf.text(2, health) + topology


def devices(listed: Sequence[Device]) -> bytes:
    """``ListAndWatchResponse``."""
    return b"".join(protobuf.message(1, device.encode()) for device in listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAnswer:
    """``ContainerAllocateResponse``; kubelet keeps it, and tells the runtime at each start."""

    envs: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the container, for the runtime."""
    cdi_devices: tuple[str, ...] = ()
    """Full names, ``vendor/class=name``."""

    def encode(self) -> bytes:
        """On the wire."""
        mounts = (protobuf.message(2, _mount(mount)) for mount in self.mounts)
        named = (protobuf.message(5, protobuf.text(1, name)) for name in self.cdi_devices)
        return b"".join([*_pairs(1, self.envs), *mounts, *_pairs(4, self.annotations), *named])


def allocated(answers: Sequence[ContainerAnswer]) -> bytes:
    """``AllocateResponse``: an answer for each container that was asked about, in that order."""
    return b"".join(protobuf.message(1, answer.encode()) for answer in answers)


def asked_to_allocate(data: bytes) -> list[tuple[str, ...]]:
    """``AllocateRequest``: the device ids of each container.

    Raises:
        BadBody: it is no message.
    """
    return [protobuf.texts_of(each, 1) for each in protobuf.messages_of(data, 1)]


def about_to_start(data: bytes) -> frozenset[str]:
    """``PreStartContainerRequest``: the device ids of the container.

    Raises:
        BadBody: it is no message.
    """
    return frozenset(protobuf.texts_of(data, 1))


def answered(data: bytes) -> ContainerAnswer:
    """``ContainerAllocateResponse``, as kubelet kept it.

    Raises:
        BadBody: it is no message.
    """
    return ContainerAnswer(
        envs=_read_pairs(data, 1),
        mounts=tuple(
            Mount(
                host=_last_text(each, 2),
                container=_last_text(each, 1),
                read_only=bool(protobuf.number_of(each, 3)),
            )
            for each in protobuf.messages_of(data, 2)
        ),
        annotations=_read_pairs(data, 4),
        cdi_devices=tuple(_last_text(each, 1) for each in protobuf.messages_of(data, 5)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """``ContainerPreferredAllocationRequest``: choose ``size`` of the available ids."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


def asked_to_prefer(data: bytes) -> list[Preference]:
    """``PreferredAllocationRequest``.

    Raises:
        BadBody: it is no message.
    """
    return [
        Preference(
            available=protobuf.texts_of(each, 1),
            must_include=protobuf.texts_of(each, 2),
            size=protobuf.number_of(each, 3),
        )
        for each in protobuf.messages_of(data, 1)
    ]


def preferred(chosen: Sequence[Sequence[str]]) -> bytes:
    """``PreferredAllocationResponse``: the ids for each container that was asked about."""
    return b"".join(protobuf.message(1, protobuf.texts(1, ids)) for ids in chosen)


def _mount(mount: Mount) -> bytes:
    return (
        protobuf.text(1, mount.container)
        + protobuf.text(2, mount.host)
        + protobuf.number(3, mount.read_only)
    )


def _pairs(field_number: int, pairs: Mapping[str, str]) -> Iterator[bytes]:
    """A map: a message for each pair."""
    for name, value in sorted(pairs.items()):
        yield protobuf.message(field_number, protobuf.text(1, name) + protobuf.text(2, value))


def _read_pairs(data: bytes, field_number: int) -> dict[str, str]:
    pairs = protobuf.messages_of(data, field_number)
    return {_last_text(each, 1): _last_text(each, 2) for each in pairs}


def _last_text(data: bytes, field_number: int) -> str:
    """The text of a field that is not repeated: the last one written counts."""
    return "".join(protobuf.texts_of(data, field_number)[-1:])
