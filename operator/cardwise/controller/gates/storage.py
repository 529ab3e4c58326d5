"""Claims, volumes and classes, as the mirror shows them, for the node rules."""

from collections.abc import Callable
from typing import Any

from cardwise.controller.mirror import Kind
from cardwise.noderules import Volumes
from cardwise.wire.fields import at, text

Json = dict[str, Any]


class Storage:
    """Takes what is watched of storage."""

    def __init__(self, volumes: Volumes, changed: Callable[[], None]) -> None:
        """Make it.

        Args:
            volumes: what is told.
            changed: called when a Pod's volumes may let it go elsewhere than before.
        """
        self._volumes = volumes
        self._changed = changed
        self._known: dict[str, set[tuple[str, str]]] = {"claim": set(), "volume": set()}
        self._known["class"] = set()

    def kinds(self) -> list[Kind]:
        """What the mirror has to list and watch."""
        volumes = self._volumes
        return [
            Kind(
                "claim",
                ("", "v1", "persistentvolumeclaims"),
                lambda cluster: cluster.claims(),
                self._taker("claim", volumes.apply_claim, volumes.remove_claim),
                lambda: set(self._known["claim"]),
            ),
            Kind(
                "volume",
                ("", "v1", "persistentvolumes"),
                lambda cluster: cluster.volumes(),
                self._taker(
                    "volume", volumes.apply_volume, lambda _, name: volumes.remove_volume(name)
                ),
                lambda: set(self._known["volume"]),
            ),
            Kind(
                "class",
                ("storage.k8s.io", "v1", "storageclasses"),
                lambda cluster: cluster.storage_classes(),
                self._taker(
                    "class", volumes.apply_class, lambda _, name: volumes.remove_class(name)
                ),
                lambda: set(self._known["class"]),
            ),
        ]

    def _taker(
        self, kind: str, apply: Callable[[Json], None], remove: Callable[[str, str], None]
    ) -> Callable[..., None]:
        known = self._known[kind]

        def take(document: Json, *, deleted: bool) -> None:
            namespace = text(at(document, "metadata", "namespace"))
            key = namespace, text(at(document, "metadata", "name"))
            version = self._volumes.version
            if deleted:
                known.discard(key)
                remove(*key)
            else:
                known.add(key)
                apply(document)
            if self._volumes.version != version:
                self._changed()

        return take
