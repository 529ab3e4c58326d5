"""Notice DeviceClasses that take our resource names.

With NVIDIA's DRA driver a DeviceClass may claim ``nvidia.com/gpu``; kube-scheduler then looks for
devices of that class and refuses our Pods before it asks us. Nothing here can help but saying so.
"""

import logging
from typing import Any

from cardwise.controller.telling.teller import Teller
from cardwise.errors import ApiError
from cardwise.names import RESOURCES, SCHEDULER_NAME
from cardwise.ports import Cluster
from cardwise.wire import pods
from cardwise.wire.fields import at, text

_log = logging.getLogger(__name__)


class Classes:
    """What DeviceClasses were found to take, and who suffers from it."""

    def __init__(self, cluster: Cluster, teller: Teller) -> None:
        self._cluster = cluster
        self._teller = teller
        self.conflicts: dict[str, str] = {}
        """DeviceClass → the resource name of ours that it takes."""

    async def refresh(self) -> None:
        """List DeviceClasses; a failure leaves what was known."""
        try:
            found = await self._cluster.device_classes()
        except ApiError as error:
            _log.info("DeviceClasses can't be listed: %s", error)
            return
        conflicts = {
            text(at(item, "metadata", "name")): text(at(item, "spec", "extendedResourceName"))
            for item in found
            if at(item, "spec", "extendedResourceName") in RESOURCES
        }
        for name, resource in sorted(conflicts.items()):
            if name not in self.conflicts:
                _log.error("%s", _sentence(name, resource))
        self.conflicts = conflicts

    def see_pod(self, pod: dict[str, Any]) -> None:
        """Tell a waiting Pod of ours that kube-scheduler will refuse it before it asks us."""
        if (
            self.conflicts
            and pods.bound_node(pod) is None
            and at(pod, "spec", "schedulerName") == SCHEDULER_NAME
            and pods.asks_cards(pod)
        ):
            name, resource = min(self.conflicts.items())
            self._teller.class_takes(pods.pod_ref(pod), _sentence(name, resource))


def _sentence(name: str, resource: str) -> str:
    return (
        f"DeviceClass {name} takes the resource name {resource}: kube-scheduler refuses Pods that "
        "ask for it before it asks Cardwise; remove extendedResourceName from that DeviceClass"
    )
