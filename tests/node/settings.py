"""What containerd and kubelet are told, and why."""

from pathlib import Path
from typing import Any, Final

from node.images import PAUSE

CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"

_PLUGIN: Final = "test-network"
_NETWORK: Final = f"""\
{{"cniVersion": "1.0.0", "name": "test", "plugins": [{{"type": "{_PLUGIN}"}}]}}
"""
"""For Pods on the host's network nobody calls it; but without any, the node is not ready."""


def containerd(directory: Path, *, runc: Path, plugin: str = "") -> str:
    """containerd's own settings, as TOML; what is left out is as containerd has it (CDI is on).

    ``plugin`` is a script that joins Pods to a network, by CNI.
    """
    network = directory / "cni"
    network.mkdir()
    (network / "10-test.conflist").write_text(_NETWORK)
    if plugin:
        (network / _PLUGIN).write_text(plugin)
        (network / _PLUGIN).chmod(0o755)
    runtime = "io.containerd.cri.v1.runtime"
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."{runtime}"]
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."{runtime}".cni]
bin_dirs = ["{network}"]
conf_dir = "{network}"
use_internal_loopback = true
[plugins."{runtime}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."{runtime}".containerd.runtimes.runc.options]
BinaryName = "{runc}"
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
"""


def kubelet(directory: Path, *, port: int, health_port: int) -> dict[str, Any]:
    """kubelet's configuration, which is a document of its own kind."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": health_port,
        # Reachable from this machine alone, and thrown away.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "podLogsDir": str(directory / "logs"),
        "resolvConf": str(directory / "resolv.conf"),
        # The machine's cgroups are whatever they are: nothing is reserved, nothing is bounded.
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        # A crowded test machine is no reason to evict.
        "evictionHard": {
            "memory.available": "10Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        # A test must not wait: Pods are looked at, and told of, often.
        "syncFrequency": "5s",
        "nodeStatusUpdateFrequency": "2s",
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
    }
