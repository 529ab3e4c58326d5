"""Random Nodes, Pods, claims and volumes, as somebody might write them: what node rules read.

Everything is drawn by a seed, and nearly every field that a rule looks at is there in some of them.
Objects are as they are sent to the API server; it fills in its defaults.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

Json = dict[str, Any]

NAMESPACES: Final = ("rules-a", "rules-b")
APPS: Final = tuple(f"app-{letter}" for letter in "abcdefgh")
ZONES: Final = ("zone-a", "zone-b", "zone-c")
_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TAINTS: Final = (
    {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "b", "effect": "NoExecute"},
    {"key": "flaky", "effect": "NoSchedule"},
    {"key": "soft", "value": "x", "effect": "PreferNoSchedule"},
)
_TOLERATIONS: Final = (
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "value": "a"},
    {"key": "dedicated", "operator": "Equal", "value": "b", "effect": "NoExecute"},
    {"key": "dedicated", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
    {"key": "flaky", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "flaky", "operator": "Equal"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
    {"operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists"},
)
RUNTIME_CLASS: Final[Json] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "heavy"},
    "handler": "heavy",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "100Mi", "ephemeral-storage": "10Mi"}},
}
STORAGE_CLASS: Final[Json] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "at-once"},
    "provisioner": "test.example/none",
    "volumeBindingMode": "Immediate",
}


class World:
    """Draws objects; the same seed draws the same ones in the same order."""

    def __init__(self, seed: int) -> None:
        """Begin anew."""
        self._random = random.Random(seed)

    # Nodes --------------------------------------------------------------------------------------

    def node(self, name: str) -> Json:
        """A Node."""
        room = {
            "cpu": self._one("2", "3500m", "4", "8", "16"),
            "memory": self._one("2Gi", "3000000001", "8Gi", "16G"),
            "pods": str(self._random.randint(4, 16)),
            "ephemeral-storage": self._one("1Gi", "5G", "20Gi", "20Gi"),
            "hugepages-2Mi": self._one("0", "64Mi", "256Mi"),
            "example.com/fpga": self._one("0", "1", "2", "4"),
        }
        if self._maybe(0.2):
            del room["ephemeral-storage"]
        if self._maybe(0.4):
            del room["example.com/fpga"]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": self._node_labels(name)},
            "spec": {
                "unschedulable": self._maybe(0.07),
                "taints": [taint for taint in _TAINTS if self._maybe(0.06)],
            },
            "status": {"allocatable": room, "capacity": room},
        }

    def _node_labels(self, name: str) -> dict[str, str]:
        some = (
            (_ZONE, self._one(*ZONES), 0.8),
            (_BETA_ZONE, self._one(*ZONES), 0.1),
            (_REGION, self._one("here", "there"), 0.5),
            ("disk", self._one("ssd", "hdd", ""), 0.7),
            ("cores", self._one("4", "16", "64", "many"), 0.6),
        )
        return {
            "kubernetes.io/hostname": name,
            "rack": f"rack-{self._random.randint(0, 9)}",
            **{key: value for key, value, chance in some if self._maybe(chance)},
        }

    # Pods ---------------------------------------------------------------------------------------

    def tenant(self, name: str, node: str) -> Json:
        """A Pod that is on a node already, perhaps on more than the node has."""
        pod = self._pod(name, scheduler="somebody-else")
        pod["spec"]["nodeName"] = node
        if self._maybe(0.06):
            terms = [self._repulsion() for _ in range(self._one(1, 1, 2))]
            pod["spec"]["affinity"] = {"podAntiAffinity": {_REQUIRED: terms}}
        return pod

    def newcomer(self, name: str, *, nodes: Sequence[str], claims: Sequence[str]) -> Json:
        """A Pod that asks for a node; ``claims`` are of its namespace by its name, or missing."""
        pod = self._pod(name, scheduler="default-scheduler")
        spec = pod["spec"]
        if self._maybe(0.6):
            spec["tolerations"] = [one for one in _TOLERATIONS if self._maybe(0.3)]
        if self._maybe(0.12):
            spec["nodeSelector"] = self._one(
                {"disk": "ssd"}, {"disk": ""}, {"disk": "hdd", "cores": "16"}, {_ZONE: "zone-a"}
            )
        if self._maybe(0.25):
            terms = [self._term(nodes) for _ in range(self._one(1, 2, 2, 3))]
            required = {"nodeSelectorTerms": terms}
            spec["affinity"] = {"nodeAffinity": {_REQUIRED: required}}
        if claims and self._maybe(0.25):
            chosen = self._random.sample(list(claims), self._one(1, 1, 2))
            spec["volumes"] = [
                {"name": f"data-{number}", "persistentVolumeClaim": {"claimName": claim}}
                for number, claim in enumerate(chosen)
            ]
        return pod

    def resized(self) -> list[Json]:
        """What kubelet might tell of a Pod's containers while it is being resized."""
        requests = self._one({"cpu": "2", "memory": "2Gi"}, {"cpu": "10m", "memory": "1Mi"})
        status: Json = {"name": "c0", "image": "i", "imageID": "i", "ready": True}
        status |= {"restartCount": 0, "allocatedResources": requests}
        if self._maybe(0.5):
            status["resources"] = {"requests": self._one(requests, {"cpu": "3", "memory": "1Gi"})}
        return [status]

    def _pod(self, name: str, scheduler: str) -> Json:
        containers = [self._container(f"c{n}") for n in range(self._one(1, 1, 2))]
        spec: Json = {"schedulerName": scheduler, "containers": containers}
        if self._maybe(0.25):
            spec["initContainers"] = [self._init(f"i{n}") for n in range(self._one(1, 2, 3))]
        drop_repeated_ports(containers + spec.get("initContainers", []))
        if self._maybe(0.1):
            spec["runtimeClassName"] = "heavy"
        if self._maybe(0.1):
            spec["resources"] = {"requests": self._one({"cpu": "6"}, {"memory": "6Gi"})}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self._one(*NAMESPACES),
                "labels": {"app": self._one(*APPS), "tier": self._one("front", "back")},
            },
            "spec": spec,
        }

    def _container(self, name: str, ports: float = 0.15) -> Json:
        requests: dict[str, str] = {}
        for key, values, chance in (
            ("cpu", ("1m", "100m", "250m", "500m", "1500m"), 0.7),
            ("memory", ("1", "64Mi", "300M", "500000001", "1Gi"), 0.7),
            ("ephemeral-storage", ("1Mi", "500M", "2Gi"), 0.2),
        ):
            if self._maybe(chance):
                requests[key] = self._one(*values)
        limits = {}
        if self._maybe(0.08):
            limits["example.com/fpga"] = self._one("1", "1", "2")
        if requests and self._maybe(0.08):
            limits["hugepages-2Mi"] = self._one("32Mi", "64Mi")
            requests.setdefault("cpu", "1m")
        # A limit alone becomes the request.
        if "cpu" in requests and self._maybe(0.2):
            limits["cpu"] = requests.pop("cpu")
        container: Json = {"name": name, "image": "busybox"}
        container["resources"] = {"requests": requests, "limits": limits}
        if self._maybe(ports):
            container["ports"] = [self._port()]
        return container

    def _init(self, name: str) -> Json:
        container = self._container(name)
        if self._maybe(0.5):
            container["restartPolicy"] = "Always"
        return container

    def _port(self) -> Json:
        port: Json = {"containerPort": 80, "hostPort": self._one(8080, 8080, 9090, 53)}
        if self._maybe(0.5):
            port["hostIP"] = self._one("10.0.0.1", "10.0.0.2", "0.0.0.0")  # noqa: S104
        if self._maybe(0.3):
            port["protocol"] = self._one("UDP", "TCP")
        return port

    # Selectors ----------------------------------------------------------------------------------

    def _term(self, nodes: Sequence[str]) -> Json:
        term: Json = {}
        if self._maybe(0.9):
            expressions = [self._expression() for _ in range(self._one(1, 1, 2))]
            term["matchExpressions"] = expressions
        if self._maybe(0.15):
            operator = self._one("In", "NotIn", "NotIn")
            name = {"key": "metadata.name", "operator": operator, "values": [self._one(*nodes)]}
            term["matchFields"] = [name]
        return term

    def _expression(self) -> Json:
        key, operator, *values = self._one(
            ("disk", "In", "ssd", "hdd"),
            ("disk", "In", ""),
            ("disk", "NotIn", "ssd"),
            (_ZONE, "NotIn", "zone-a", "zone-b"),
            (_ZONE, "Exists"),
            ("cores", "Exists"),
            ("disk", "DoesNotExist"),
            ("cores", "Gt", "8"),
            ("cores", "Lt", "64"),
            ("rack", "NotIn", "rack-1", "rack-2"),
        )
        return {"key": key, "operator": operator, **({"values": values} if values else {})}

    def _repulsion(self) -> Json:
        """One term of a required anti-affinity.

        Of the labels of namespaces only the name is looked at: the others are not known to us.
        """
        term: Json = {"topologyKey": self._one("kubernetes.io/hostname", _ZONE, "rack", "rack")}
        term["labelSelector"] = self._one(
            {"matchLabels": {"app": self._one(*APPS)}},
            {"matchLabels": {"app": self._one(*APPS), "tier": "front"}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": list(APPS[:2])}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": list(APPS[1:])}]},
            {"matchExpressions": [{"key": "none", "operator": "Exists"}]},
        )
        if self._maybe(0.03):
            term["labelSelector"] = {}
            term["topologyKey"] = "kubernetes.io/hostname"
        if self._maybe(0.3):
            term["namespaces"] = self._one([NAMESPACES[0]], list(NAMESPACES))
        if self._maybe(0.3):
            of_name = {"kubernetes.io/metadata.name": self._one(*NAMESPACES)}
            term["namespaceSelector"] = self._one({}, {"matchLabels": of_name})
        return term

    # Volumes ------------------------------------------------------------------------------------

    def volume(self, name: str, namespace: str, claim: str, nodes: Sequence[str]) -> Json:
        """A PersistentVolume that belongs to a claim."""
        labels = {}
        if self._maybe(0.4):
            key = self._one(_ZONE, _BETA_ZONE, _REGION)
            labels[key] = self._one("zone-a", "zone-a__zone-b", "here", "zone-c____x")
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "csi": {"driver": "test.example", "volumeHandle": name},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim},
        }
        if self._maybe(0.5):
            terms = [self._term(nodes) for _ in range(self._one(1, 2))]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }

    def claim(self, name: str, namespace: str, volume: str | None, *, bound: bool = True) -> Json:
        """A PersistentVolumeClaim; ``bound`` is the mark of the controller that binds them."""
        metadata: Json = {"name": name, "namespace": namespace}
        if bound:
            metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        spec: Json = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "at-once",
        }
        if volume is not None:
            spec["volumeName"] = volume
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": spec,
        }

    # Chance -------------------------------------------------------------------------------------

    def sample(self, things: Sequence[Any], count: int) -> list[Any]:
        """So many of them, each once."""
        return self._random.sample(list(things), count)

    def _maybe(self, chance: float) -> bool:
        return self._random.random() < chance

    def _one(self, *things: Any) -> Any:
        return self._random.choice(things)


def drop_repeated_ports(containers: Sequence[Json]) -> None:
    """The API server lets a Pod ask for a port once."""
    seen: set[int] = set()
    for container in containers:
        number = container.get("ports", [{}])[0].get("hostPort")
        if number in seen:
            del container["ports"]
        elif number is not None:
            seen.add(number)
