"""HAMi's device plugin, as far as it looks at Pods and Nodes: read from its description, not run.

kubelet asks it for so many devices and does not say for which Pod. It takes the Pod that the node's
lock names, else the first listed Pod that looks as if its turn were now, and pops the first segment
that is left of ``vgpu-devices-to-allocate``. What it pops is what the container gets, whoever that
is.
"""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
PHASE = "hami.io/bind-phase"
LOCK = "hami.io/mutex.lock"
BIND_TIME = "hami.io/bind-time"
NODE = "hami.io/vgpu-node"


class AllocateError(Exception):
    """What kubelet is told; it then fails the Pod that it asked for."""


@dataclass
class DevicePlugin:
    """One node's."""

    node: Json
    pods: list[Json] = field(default_factory=list)
    """As the API server lists them: by namespace and name."""

    def allocate(self, count: int) -> list[str]:
        """The UUIDs that one container gets which kubelet gave so many devices.

        Raises:
            AllocateError: the Pod that it took to be the right one is marked as failed, and the
                lock is removed.
        """
        pod = self._pending()
        annotations = pod["metadata"]["annotations"]
        segments = annotations.get(TO_ALLOCATE, "").split(";")
        at = next((at for at, segment in enumerate(segments) if segment.strip(":")), None)
        if at is None:
            raise self._failed(pod, "no pending device allocation found")
        devices = [piece.split(",") for piece in segments[at].split(":") if "," in piece]
        if any(len(fields) < 4 for fields in devices):
            raise self._failed(pod, "pod annotation format error")
        if len(devices) != count:
            raise self._failed(pod, "device number not matched")
        segments[at] = ""
        # One more at every round trip, because what is split has one segment more than was joined.
        annotations[TO_ALLOCATE] = "".join(segment + ";" for segment in segments)
        if "NVIDIA" not in annotations[TO_ALLOCATE]:
            annotations[PHASE] = "success"
            self._release(pod)
        return [fields[0] for fields in devices]

    def _pending(self) -> Json:
        lock = self.node["metadata"]["annotations"].get(LOCK)
        if lock is not None and lock.count(",") == 2:
            _, namespace, name = lock.split(",")
            for pod in self.pods:
                if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (namespace, name):
                    return pod
            raise AllocateError("the Pod of the lock is not found")
        for pod in self.pods:
            annotations = pod["metadata"]["annotations"]
            if (
                pod["status"]["phase"] == "Pending"
                and BIND_TIME in annotations
                and annotations.get(PHASE) in ("allocating", "success")
                and annotations.get(NODE) == self.node["metadata"]["name"]
            ):
                return pod
        raise AllocateError(f"no binding pod found on node {self.node['metadata']['name']}")

    def _failed(self, pod: Json, why: str) -> AllocateError:
        pod["metadata"]["annotations"][PHASE] = "failed"
        self._release(pod)
        return AllocateError(why)

    def _release(self, pod: Json) -> None:
        """Remove the lock, if it is this Pod's or nobody's by name."""
        annotations, metadata = self.node["metadata"]["annotations"], pod["metadata"]
        lock = annotations.get(LOCK)
        own = f",{metadata['namespace']},{metadata['name']}"
        if lock is not None and (lock.endswith(own) or "," not in lock):
            del annotations[LOCK]
