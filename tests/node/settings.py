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


def containerd(directory: Path, *, runc: Path, plugin: str = "", cdi: bool = True) -> str:
    """containerd's own settings, as TOML; what is left out is as containerd has it.

    Args:
        directory: for what the settings refer to.
        runc: the program.
        plugin: a script that joins Pods to a network, by CNI.
        cdi: whether it is containerd 2, which always has CDI, or 1.6, which has none.
    """
    network = directory / "cni"
    network.mkdir()
    (network / "10-test.conflist").write_text(_NETWORK)
    if plugin:
        (network / _PLUGIN).write_text(plugin)
        (network / _PLUGIN).chmod(0o755)
    return (_CONTAINERD_2 if cdi else _CONTAINERD_1).format(network=network, runc=runc)


_PLACES: Final = f"""\
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
"""
_CONTAINERD_2: Final = f"""\
version = 3
{_PLACES}
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{{network}}"]
conf_dir = "{{network}}"
use_internal_loopback = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{{runc}}"
"""
_CONTAINERD_1: Final = f"""\
version = 2
{_PLACES}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{{network}}"
conf_dir = "{{network}}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{{runc}}"
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
