"""The device plugin put together for a real node."""

import time
from collections.abc import Callable

from cardwise.agent.deviceplugin.files import NodeFiles
from cardwise.agent.deviceplugin.offer import Offer
from cardwise.agent.deviceplugin.plugin import Plugin
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
    files: NodeFiles | None = None,
) -> Server:
    """The server for one node's kubelet.

    Args:
        node: its name.
        pods: its Pods.
        offer: its cards, kept up by the publisher's probes.
        settings: the settings file.
        counted: told what became of each start.
        files: where things are; by default where kubelet and the runtimes have them.
    """
    plugin = Plugin(
        node=node,
        pods=pods,
        files=files or NodeFiles(),
        teller=Teller(node=node, pods=pods, monotonic=time.monotonic, counted=counted),
        offer=offer,
        init_shrink=settings.scheduling.initShrink,
    )
    return Server(plugin=plugin)
