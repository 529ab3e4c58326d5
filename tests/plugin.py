"""Builders for the device plugin: cards, tenants, and kubelet's checkpoint as kubelet writes it."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.fence import Tenant
from cardwise.agent.deviceplugin.handover import NO_CARD, cdi_name
from cardwise.agent.deviceplugin.messages import ContainerAnswer
from cardwise.model import Booking, Card, ContainerKind, PodRef, Share
from cardwise.names import RESOURCE_COUNT

MIB = 15360


def card(index: int = 0, **fields: Any) -> Card:
    """A card called ``GPU-a``, ``GPU-b`` and so on, of 15360 MiB."""
    made = {"memory_mib": MIB, "uuid": uuid(index), **fields}
    return Card(index=index, **made)


def uuid(index: int) -> str:
    """The card's UUID."""
    return f"GPU-{'abcdefgh'[index]}"


def share(index: int = 0, mib: int = 1000, cores: int = 0) -> Share:
    """A part of a card."""
    return Share(uuid(index), mib, cores)


def tenant(
    name: str,
    *shares: Share,
    started: bool = False,
    bound_at: int = 1,
    exclusive: bool = False,
    kinds: Sequence[ContainerKind] = (),
) -> Tenant:
    """A Pod with a container for each share."""
    return Tenant(
        pod=PodRef("default", name, uid(name)),
        booking=Booking(
            node="n1",
            containers=tuple((each,) for each in shares),
            kinds=tuple(kinds) or (ContainerKind.REGULAR,) * len(shares),
            exclusive=exclusive,
        ),
        started=started,
        bound_at=bound_at,
    )


def uid(name: str) -> str:
    """The UID of a Pod of `build.pod`."""
    return f"uid-default-{name}"


def entry(pod: str = "p", container: str = "app", *ids: str, **fields: Any) -> Entry:
    """What kubelet gave to a container; its token is ``t-POD-CONTAINER``.

    ``cdi`` are other names of CDI devices, ``answer`` is another answer than one by CDI.
    """
    cdi = fields.pop("cdi", (cdi_name(f"t-{pod}-{container}"),))
    answer = ContainerAnswer(envs=NO_CARD, cdi_devices=cdi)
    made = {"resource": RESOURCE_COUNT, "answer": answer, **fields}
    return Entry(
        pod_uid=uid(pod), container=container, ids=frozenset(ids or (f"{uuid(0)}-0",)), **made
    )


def checkpoint_text(entries: Sequence[Entry], *, numa: int = -1) -> bytes:
    """The file as kubelet writes it."""
    return orjson.dumps(
        {
            "Data": {
                "PodDeviceEntries": [_entry(each, numa) for each in entries],
                "RegisteredDevices": {RESOURCE_COUNT: []},
            },
            "Checksum": 4242,
        }
    )


def _entry(entry: Entry, numa: int) -> Mapping[str, Any]:
    return {
        "PodUID": entry.pod_uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {str(numa): sorted(entry.ids)},
        "AllocResp": base64.b64encode(entry.answer.encode()).decode(),
    }
