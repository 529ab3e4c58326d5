"""Pods for a real node: on the host's network, of busybox, bound to the node from the start."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from node.images import BUSYBOX

Json = dict[str, Any]

FOREVER: Final = "exec sleep 100000"
SEE: Final = "env; echo seen; "
"""Prints the variables, and that these were all."""


def container(
    name: str,
    script: str = FOREVER,
    *,
    gpus: int = 0,
    sidecar: bool = False,
    env: Mapping[str, str] | None = None,
) -> Json:
    """A container that runs a script; ``gpus`` is how many of ``nvidia.com/gpu`` it asks for."""
    made: Json = {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
    }
    if gpus:
        made["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    if sidecar:
        made["restartPolicy"] = "Always"
    return made


def pod(
    name: str,
    containers: Sequence[Json],
    *,
    init: Sequence[Json] = (),
    node: str = "node-a",
    restart: str = "Never",
    annotations: Mapping[str, str] | None = None,
    blocked: bool = False,
) -> Json:
    """A Pod that is on its node already.

    ``blocked``: kubelet admits it, and starts nothing before there is a ConfigMap of its name.
    """
    volumes = [{"name": "blocking", "configMap": {"name": name}}] if blocked else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
            "volumes": volumes,
            "initContainers": list(init),
            "containers": list(containers),
        },
    }
