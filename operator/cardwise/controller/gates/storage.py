"""Claims, volumes and classes, as the mirror shows them, for the node rules."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from cardwise.controller.watching.mirror import Kind
from cardwise.noderules import Volumes
from cardwise.ports import Cluster
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

    def kinds(self) -> list[Kind]:
        """What the mirror has to list and watch."""
        volumes = self._volumes
        return [
            self._kind(
                ("", "v1", "persistentvolumeclaims"),
                lambda cluster: cluster.claims(),
                volumes.apply_claim,
                volumes.remove_claim,
            ),
            self._kind(
                ("", "v1", "persistentvolumes"),
                lambda cluster: cluster.volumes(),
                volumes.apply_volume,
                lambda _, name: volumes.remove_volume(name),
            ),
            self._kind(
                ("storage.k8s.io", "v1", "storageclasses"),
                lambda cluster: cluster.storage_classes(),
                volumes.apply_class,
                lambda _, name: volumes.remove_class(name),
            ),
        ]

    def _kind(
        self,
        resource: tuple[str, str, str],
        pages: Callable[[Cluster], AsyncIterator[list[Json]]],
        apply: Callable[[Json], None],
        remove: Callable[[str, str], None],
    ) -> Kind:
        known: set[tuple[str, str]] = set()

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

        return Kind(resource, pages, take, lambda: set(known))
