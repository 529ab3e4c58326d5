"""Claims, volumes and classes: to which nodes a Pod's bound volumes let it go."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from cardwise.noderules.needs import Claim, Needs
from cardwise.noderules.selectors import Terms, terms_of
from cardwise.wire.fields import at, items, mapping, text

_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_NEWER: Final = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
}
_PLACES: Final = (*_NEWER, _ZONE, _REGION)
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_MIGRATED: Final = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cinder", "gcePersistentDisk",
    "portworxVolume", "vsphereVolume",
)  # fmt: skip
"""Kinds of volume whose rules kube-scheduler rewrites into those of a driver."""
_FIELD: Final = "spec.volumes.persistentVolumeClaim"

_K = TypeVar("_K")
_V = TypeVar("_V")


class VolumeRule(NamedTuple):
    """What one volume says about nodes."""

    terms: Terms | None
    """Alternatives; None: any node."""
    places: tuple[tuple[str, frozenset[str]], ...]
    """Zone and region labels, and the values that a node may have there."""

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Whether the volume can be used on a node of these labels."""
        if self.terms is not None and not any(term.matches(labels, None) for term in self.terms):
            return False
        # A node that is in no zone at all is in all of them.
        if not any(key in labels for key in _PLACES):
            return True
        return all(
            labels.get(key, labels.get(_NEWER.get(key, key))) in values
            for key, values in self.places
        )


Reach = frozenset[VolumeRule]
"""What all volumes of a Pod say: a node must be allowed by each."""
ANYWHERE: Final[Reach] = frozenset()


class Judged(NamedTuple):
    """What is known of a Pod's claims; at most one of the texts is not empty."""

    reach: Reach = ANYWHERE
    waits_for: str = ""
    """For people: the claim or volume that is not there yet, so that no node will do."""
    unchecked: str = ""
    """The field, and why, that only kube-scheduler can decide."""


class _ClaimRead(NamedTuple):
    """A claim as far as it matters here."""

    volume: str
    class_name: str
    owner: str
    bound: bool
    gone: bool
    alone: bool


class _VolumeRead(NamedTuple):
    rule: VolumeRule
    migrated: bool


class Volumes:
    """All claims, volumes and classes that were told of."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._claims: dict[tuple[str, str], _ClaimRead] = {}
        self._volumes: dict[str, _VolumeRead] = {}
        self._waiting_classes: dict[str, bool] = {}
        self.version = 0
        """Counts the changes: an answer of `judge` holds as long as this stays the same."""

    def apply_claim(self, claim: Mapping[str, Any]) -> None:
        """Take in a PersistentVolumeClaim as it is now."""
        metadata, spec = mapping(claim.get("metadata")), mapping(claim.get("spec"))
        annotations = mapping(metadata.get("annotations"))
        volume = text(spec.get("volumeName"))
        owners = (mapping(each) for each in items(metadata.get("ownerReferences")))
        self._put(
            self._claims,
            _key(metadata),
            _ClaimRead(
                volume=volume,
                class_name=text(annotations.get(_CLASS, spec.get("storageClassName"))),
                owner=next((text(o.get("uid")) for o in owners if o.get("controller") is True), ""),
                bound=bool(volume) and _BIND_COMPLETED in annotations,
                gone=bool(metadata.get("deletionTimestamp"))
                or at(claim, "status", "phase") == "Lost",
                alone="ReadWriteOncePod" in items(spec.get("accessModes")),
            ),
        )

    def remove_claim(self, namespace: str, name: str) -> None:
        """Forget a claim."""
        self._drop(self._claims, (namespace, name))

    def apply_volume(self, volume: Mapping[str, Any]) -> None:
        """Take in a PersistentVolume as it is now."""
        metadata, spec = mapping(volume.get("metadata")), mapping(volume.get("spec"))
        required = at(spec, "nodeAffinity", "required")
        rule = VolumeRule(
            terms=None if required is None else terms_of(required),
            places=_places_of(mapping(metadata.get("labels"))),
        )
        migrated = any(spec.get(kind) is not None for kind in _MIGRATED)
        self._put(self._volumes, text(metadata.get("name")), _VolumeRead(rule, migrated))

    def remove_volume(self, name: str) -> None:
        """Forget a volume."""
        self._drop(self._volumes, name)

    def apply_class(self, storage_class: Mapping[str, Any]) -> None:
        """Take in a StorageClass as it is now."""
        waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        self._put(self._waiting_classes, text(at(storage_class, "metadata", "name")), waits)

    def remove_class(self, name: str) -> None:
        """Forget a class."""
        self._drop(self._waiting_classes, name)

    def judge(self, needs: Needs) -> Judged:
        """Where the Pod's volumes let it go, or what stands in the way of telling."""
        if not needs.claims:
            return Judged()
        rules = []
        for claim in needs.claims:
            judged = self._judged(claim)
            if isinstance(judged, Judged):
                return judged
            rules.append(judged)
        return Judged(frozenset(rules))

    def _judged(self, claim: Claim) -> VolumeRule | Judged:
        """The rule of a claim's volume, or the answer for the whole Pod."""
        read = self._claims.get((claim.namespace, claim.name))
        if read is None or read.gone or (claim.owner and read.owner != claim.owner):
            return Judged(waits_for=f"PersistentVolumeClaim {claim.name}")
        if read.alone:
            return Judged(unchecked=f"{_FIELD} ({claim.name}: ReadWriteOncePod)")
        if not read.bound:
            if not read.volume and self._waiting_classes.get(read.class_name, False):
                return Judged(unchecked=f"{_FIELD} ({claim.name}: WaitForFirstConsumer)")
            return Judged(waits_for=f"PersistentVolumeClaim {claim.name} to be bound")
        volume = self._volumes.get(read.volume)
        if volume is None:
            return Judged(waits_for=f"PersistentVolume {read.volume}")
        if volume.migrated:
            return Judged(unchecked=f"{_FIELD} ({claim.name}: a volume of a built-in kind)")
        # Zones are not looked at for a volume that is made for the Pod and goes with it.
        return volume.rule._replace(places=()) if claim.owner else volume.rule

    def _put(self, known: dict[_K, _V], key: _K, value: _V) -> None:
        if known.get(key) != value:
            known[key] = value
            self.version += 1

    def _drop(self, known: dict[_K, _V], key: _K) -> None:
        if known.pop(key, None) is not None:
            self.version += 1


def _key(metadata: Mapping[str, Any]) -> tuple[str, str]:
    return text(metadata.get("namespace")), text(metadata.get("name"))


def _places_of(labels: Mapping[str, Any]) -> tuple[tuple[str, frozenset[str]], ...]:
    """Zone and region of a volume; a value with an empty part says nothing."""
    places = []
    for key in _PLACES:
        values = frozenset(part.strip() for part in text(labels.get(key)).split("__"))
        if "" not in values:
            places.append((key, values))
    return tuple(places)
