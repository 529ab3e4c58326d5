"""The device plugin put together for a real node."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from cardwise.agent.deviceplugin.files import NodeFiles
from cardwise.agent.deviceplugin.offer import Offer
from cardwise.agent.deviceplugin.plugin import Plugin
from cardwise.agent.deviceplugin.runtime import Runtime
from cardwise.agent.deviceplugin.serving import Server
from cardwise.agent.deviceplugin.telling import Teller
from cardwise.ports import NodePods
from cardwise.settings import Settings


def device_plugin(
    node: str,
    pods: NodePods,
    offer: Offer,
    settings: Settings,
    *,
    counted: Callable[[str], None],
    node_object: Callable[[], Awaitable[dict[str, Any] | None]],
    files: NodeFiles | None = None,
) -> Server:
    """The server for one node's kubelet.

    Args:
        node: its name.
        pods: its Pods.
        offer: its cards, kept up by the publisher's probes.
        settings: the settings file.
        counted: told what became of each start.
        node_object: the Node as the API server has it; raises ``ApiError``.
        files: where things are; by default where kubelet and the runtimes have them.
    """
    plugin = Plugin(
        node=node,
        pods=pods,
        files=files or NodeFiles(),
        teller=Teller(node=node, pods=pods, monotonic=time.monotonic, counted=counted),
        offer=offer,
        runtime=Runtime(node=node_object, said=settings.agent.said_cdi),
        init_shrink=settings.scheduling.initShrink,
    )
    return Server(plugin=plugin)
