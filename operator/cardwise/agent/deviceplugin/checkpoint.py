"""kubelet's checkpoint: which device ids it gave to which container, and what we answered then.

kubelet writes it before any container of the Pod starts. It names Pod and container, which no call
of the device plugin API does; so it is what tells whose a start is.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cardwise.agent.deviceplugin import messages
from cardwise.agent.deviceplugin.handover import TOKEN, tokens_of
from cardwise.agent.deviceplugin.messages import ContainerAnswer
from cardwise.errors import BadBody

FILE: Final = "kubelet_internal_checkpoint"
"""Its name in kubelet's directory of device plugins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one container was given of one resource."""

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    answer: ContainerAnswer
    """What the plugin said, which kubelet tells the runtime at each start."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """Ours in the answer, one; none in another plugin's."""
        told = self.answer.annotations.get(TOKEN)
        return tokens_of(self.answer.cdi_devices) if told is None else (told,)

    @property
    def cache(self) -> str:
        """The name of the container's own directory, by which HAMi's tools know it."""
        return f"{self.pod_uid}_{self.container}"

    @property
    def by_cdi(self) -> bool:
        """Whether the cards are told by a CDI device, and not by the answer itself."""
        return bool(tokens_of(self.answer.cdi_devices))


def parse(data: bytes) -> list[Entry]:
    """Read the file.

    Raises:
        BadBody: one sentence; no container can be told from it.
    """
    try:
        document = orjson.loads(data)
        listed = document["Data"]["PodDeviceEntries"] or []
        return [_entry(each) for each in listed]
    except (orjson.JSONDecodeError, binascii.Error, KeyError, TypeError, AttributeError) as error:
        raise BadBody(f"kubelet's checkpoint is not as we know it: {error!r}") from error


def _entry(listed: Any) -> Entry:
    answer = base64.b64decode(listed["AllocResp"] or "", validate=True)
    ids = (each for numa in (listed["DeviceIDs"] or {}).values() for each in numa or ())
    return Entry(
        pod_uid=str(listed["PodUID"]),
        container=str(listed["ContainerName"]),
        resource=str(listed["ResourceName"]),
        ids=frozenset(map(str, ids)),
        answer=messages.answered(answer),
    )


def of_start(entries: Iterable[Entry], resource: str, ids: frozenset[str]) -> list[Entry]:
    """All that kubelet gave of a resource to the Pod of which a container with these ids starts.

    The ids tell the Pod and not the container: an ordinary init container and a later one of the
    same Pod may have the same. Two Pods that live never share an id.

    Raises:
        BadBody: kubelet gave these ids to no Pod, or to two.
    """
    ours = [entry for entry in entries if entry.resource == resource]
    pods = {entry.pod_uid for entry in ours if entry.ids == ids}
    if len(pods) != 1:
        told = f"{len(pods)} Pods" if pods else "no Pod"
        raise BadBody(f"kubelet's checkpoint gives {', '.join(sorted(ids))} to {told}")
    return [entry for entry in ours if entry.pod_uid in pods]
