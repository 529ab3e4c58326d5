"""What a Pod needs of a node besides cards, read once for all nodes."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from cardwise.noderules.amounts import Amounts, asked_by
from cardwise.noderules.selectors import (
    Requirements,
    Terms,
    compares,
    equal_to,
    label_selector,
    pairs,
    terms_of,
)
from cardwise.wire.fields import at, items, mapping, text

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - what a Pod's hostIP means, nothing listens here
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_DISKS: Final = ("awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd")
"""Volumes without a claim that kube-scheduler lets two Pods of a node share only read-only."""


class Taint(NamedTuple):
    """A taint that keeps Pods away."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """What a Pod puts up with."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration is for that taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        match self.operator:
            case "Exists":
                return True
            case "" | "Equal":
                return self.value == taint.value
            case "Gt" | "Lt":
                return compares(self.operator, self.value, taint.value)
            case _:
                return False


@dataclass(frozen=True, slots=True, eq=True)
class Rules:
    """What a Pod says about nodes, whatever their room; many Pods share one."""

    tolerations: tuple[Toleration, ...] = ()
    selector: Requirements = ()
    terms: Terms | None = None
    """Alternatives; None: any node. None of them: no node will do."""
    digest: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        # Looked up for every Pod that waits: hashed once.
        digest = hash((self.tolerations, self.selector, self.terms))
        object.__setattr__(self, "digest", digest)

    def __hash__(self) -> int:
        return self.digest


class Port(NamedTuple):
    """A port of the node that a Pod takes."""

    address: str
    protocol: str
    number: int


class Claim(NamedTuple):
    """A claim that a Pod uses."""

    namespace: str
    name: str
    owner: str
    """The UID of the Pod that the claim must belong to; empty where it may be anyone's."""


class Repulsion(NamedTuple):
    """Other Pods that a Pod does not want near it (one term of its required anti-affinity)."""

    topology_key: str
    namespaces: frozenset[str]
    of_namespace: Requirements | None
    """About the labels of the other's namespace; None: only ``namespaces`` count."""
    selector: Requirements

    def repels(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a Pod of these labels is meant.

        The labels of namespaces are not known here: all but the name that every namespace bears
        are taken to match, so that a Pod waits rather than being pinned where it is refused.
        """
        if namespace not in self.namespaces:
            if self.of_namespace is None:
                return False
            known = {_NAMESPACE_NAME: namespace}
            if not all(
                each.holds(known) for each in self.of_namespace if each.key == _NAMESPACE_NAME
            ):
                return False
        return all(each.holds(labels) for each in self.selector)


class Load(NamedTuple):
    """What a Pod takes of the node that it is on."""

    asked: Amounts
    ports: tuple[Port, ...] = ()
    repulsions: tuple[Repulsion, ...] = ()


class Needs:
    """What a Pod needs of a node and takes of it, besides cards.

    Small, and nothing of the JSON is kept: tens of thousands may be waiting or running.
    """

    __slots__ = ("claims", "labels", "load", "namespace", "rules")

    def __init__(self, pod: Mapping[str, Any]) -> None:
        """Read a Pod."""
        spec, metadata = mapping(pod.get("spec")), mapping(pod.get("metadata"))
        self.namespace = text(metadata.get("namespace")) or "default"
        self.labels = dict(pairs(metadata.get("labels")))
        self.rules = _rules_of(spec)
        self.load = load_of(pod)
        self.claims = _claims_of(spec, metadata, self.namespace)

    @property
    def kind(self) -> Hashable:
        """Equal for Pods that ask the same; `NodeBook.kind` adds what others make of them."""
        return self.rules, self.load.asked, self.load.ports


def load_of(pod: Mapping[str, Any]) -> Load:
    """What a Pod takes of its node: all that counts once it is placed."""
    spec = mapping(pod.get("spec"))
    namespace = text(at(pod, "metadata", "namespace")) or "default"
    return _load(asked_by(pod), _ports_of(spec), _repulsions_of(spec, namespace))


def unchecked(pod: Mapping[str, Any]) -> str:
    """The first field by which the Pod asks what is checked by kube-scheduler alone; "": none.

    Claims are `Volumes.judge`'s.
    """
    spec = mapping(pod.get("spec"))
    for kind in ("podAffinity", "podAntiAffinity"):
        if items(at(spec, "affinity", kind, _REQUIRED)):
            return f"spec.affinity.{kind}"
    spreads = items(spec.get("topologySpreadConstraints"))
    if any(at(each, "whenUnsatisfiable") != "ScheduleAnyway" for each in spreads):
        return "spec.topologySpreadConstraints"
    if items(spec.get("resourceClaims")):
        return "spec.resourceClaims"
    for position, volume in enumerate(items(spec.get("volumes"))):
        for disk in _DISKS:
            if at(volume, disk) is not None:
                return f"spec.volumes[{position}].{disk}"
    return _of_declared_features(spec)


def _of_declared_features(spec: Mapping[str, Any]) -> str:
    """Fields that need a kubelet which says in its Node's status that it knows them."""
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        return "spec.hostUsers"
    for key in ("initContainers", "containers"):
        for position, container in enumerate(items(spec.get(key))):
            where = f"spec.{key}[{position}]"
            rules = items(at(container, "restartPolicyRules"))
            if any(at(rule, "action") == "RestartAllContainers" for rule in rules):
                return f"{where}.restartPolicyRules"
            mounts = items(at(container, "volumeMounts"))
            if any(at(mount, "bindMountOptions") for mount in mounts):
                return f"{where}.volumeMounts"
    return ""


_rules = lru_cache(maxsize=4096)(Rules)


@lru_cache(maxsize=10_000)
def _load(asked: Amounts, ports: tuple[Port, ...], repulsions: tuple[Repulsion, ...]) -> Load:
    """One object for Pods that take the same."""
    return Load(asked, ports, repulsions)


def _rules_of(spec: Mapping[str, Any]) -> Rules:
    tolerations = tuple(
        Toleration(*(text(at(each, key)) for key in Toleration._fields))
        for each in items(spec.get("tolerations"))
    )
    required = at(spec, "affinity", "nodeAffinity", _REQUIRED)
    terms = None if required is None else terms_of(required)
    return _rules(tolerations, equal_to(spec.get("nodeSelector")), terms)


def _ports_of(spec: Mapping[str, Any]) -> tuple[Port, ...]:
    """Ports of the node, of the containers that run for the Pod's whole life."""
    sidecars = (
        each for each in items(spec.get("initContainers")) if at(each, "restartPolicy") == "Always"
    )
    ports = {
        Port(
            text(at(port, "hostIP")) or ANY_ADDRESS,
            text(at(port, "protocol")) or "TCP",
            number,
        )
        for container in (*sidecars, *items(spec.get("containers")))
        for port in items(at(container, "ports"))
        if isinstance(number := at(port, "hostPort"), int) and number > 0
    }
    return tuple(sorted(ports))


def _claims_of(
    spec: Mapping[str, Any], metadata: Mapping[str, Any], namespace: str
) -> tuple[Claim, ...]:
    claims = []
    for volume in items(spec.get("volumes")):
        if (claim := at(volume, "persistentVolumeClaim")) is not None:
            claims.append(Claim(namespace, text(at(claim, "claimName")), ""))
        elif at(volume, "ephemeral") is not None:
            name = f"{text(metadata.get('name'))}-{text(at(volume, 'name'))}"
            claims.append(Claim(namespace, name, text(metadata.get("uid"))))
    return tuple(claims)


def _repulsions_of(spec: Mapping[str, Any], namespace: str) -> tuple[Repulsion, ...]:
    terms = items(at(spec, "affinity", "podAntiAffinity", _REQUIRED))
    read = (_repulsion(mapping(term), namespace) for term in terms)
    return tuple(each for each in read if each is not None)


def _repulsion(term: Mapping[str, Any], namespace: str) -> Repulsion | None:
    selector = label_selector(term.get("labelSelector"))
    if selector is None:
        return None
    names = frozenset(each for each in items(term.get("namespaces")) if isinstance(each, str))
    of_namespace = label_selector(term.get("namespaceSelector"))
    if not names and term.get("namespaceSelector") is None:
        names = frozenset((namespace,))
    return Repulsion(text(term.get("topologyKey")), names, of_namespace, selector)
