"""What Cardwise asks of the outside: one Protocol a neighbour, one docstring a verb.

Separate, so that no caller can tell the real thing from a fake: adapters implement these classes
(``agent/nvml.py``, ``kube/``), and the fakes under ``tests/fakes`` do too.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cardwise.model import Link, PodRef

# The driver ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """One card as its driver shows it, before any setting is applied."""

    uuid: str
    index: int
    name: str = ""
    """The driver's name of the model."""
    memory_mib: int | None = None
    """None: the driver can't tell (cards that share the machine's memory)."""
    numa: int | None = None
    """NUMA node; None is unknown."""
    pci_bus_id: str = ""
    mig: bool = False
    """Whether the card is split by MIG."""
    trouble: str = ""
    """Why no tenant may use the card; empty where it is healthy."""
    slots: int | None = None
    """What a simulated profile says of slots; None leaves them to the settings."""
    cores: int | None = None
    """Likewise."""
    mode: str | None = None
    """Likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One error that the driver told of, as NVIDIA numbers them."""

    uuid: str
    """Whose; empty where nobody can say, so that it may be any card's."""
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """All that was read of one machine, at one moment."""

    driver_version: str = ""
    cards: tuple[CardReading, ...] = ()
    links: tuple[Link, ...] | None = None
    """By card index; None where the driver can't tell how cards are joined."""
    troubles: tuple[str, ...] = ()
    """Sentences about cards that are too broken to be listed in ``cards``."""
    doubts: tuple[str, ...] = ()
    """Sentences about links that the two cards of a pair tell differently."""
    xids: tuple[Xid, ...] = ()
    """What happened since the last read."""


class Nvml(Protocol):
    """The NVIDIA driver's management library, or what stands for it."""

    def read(self) -> Readings | None:
        """Read the whole machine; None where it has no NVIDIA library at all.

        It may block for as long as the driver does.

        Raises:
            NvmlUnavailable: the library is there and fails.
        """
        ...


# The cluster, as the agent sees it ----------------------------------------------------------------


class GPUNodeStore(Protocol):
    """GPUNodes in the cluster.

    Raises:
        ApiError: every verb, where the API server refuses or does not answer.
    """

    async def get(self, name: str) -> dict[str, Any] | None:
        """The GPUNode as it is; None where there is none."""
        ...

    async def create(self, name: str) -> None:
        """Make an empty GPUNode that goes when its Node goes; one that is there already is fine.

        Where there is no such Node, none is made.
        """
        ...

    async def apply_status(
        self, name: str, status: dict[str, Any], manager: str
    ) -> dict[str, Any] | None:
        """Make ``status`` the manager's part of the status, and return the whole GPUNode.

        What the manager applied before and leaves out now is removed; the parts of other managers
        stay. None where there is no such GPUNode.
        """
        ...

    def watch(self, name: str) -> AsyncIterator[dict[str, Any] | None]:
        """The GPUNode as it is, then after each change, None when it went.

        It ends after some minutes, or with ``ApiError``; another one begins with the GPUNode as it
        is.
        """
        ...


class NodeEvents(Protocol):
    """Events on a Node, which its agent writes.

    Raises:
        ApiError: where the API server refuses or does not answer.
    """

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post an event (events.k8s.io/v1)."""
        ...


class NodeStatus(Protocol):
    """What a Node advertises, and whether its agent is to stay.

    Raises:
        ApiError: every verb, where the API server refuses or does not answer.
    """

    async def get(self, name: str) -> dict[str, Any] | None:
        """The Node as it is; None where there is none."""
        ...

    def watch(self, name: str) -> AsyncIterator[dict[str, Any] | None]:
        """The Node as it is, then after each change, None when it went.

        It ends after some minutes, or with ``ApiError``; another one begins with the Node as it is.
        """
        ...

    async def advertise(self, name: str, changes: Mapping[str, int | None]) -> None:
        """Write resources into the Node's capacity and allocatable; None removes one.

        The Node then tells that they are an agent's, until another writes them. Where there is no
        such Node, nothing is done.
        """
        ...

    async def installed(self) -> bool:
        """Whether the agents' DaemonSet is there, and is not being deleted."""
        ...


class NodePods(Protocol):
    """The Pods of one node, and what its agent says about them.

    Raises:
        ApiError: every verb, where the API server refuses or does not answer.
    """

    async def pods(self, node: str, *, within: float) -> list[dict[str, Any]]:
        """Every unfinished Pod that is bound to the node: what is true now, not what was seen."""
        ...

    async def set_phase(self, pod: PodRef, phase: str) -> None:
        """Write ``hami.io/bind-phase``; a Pod that went, or a namesake in its place, is let be."""
        ...

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post an event (events.k8s.io/v1)."""
        ...


# The cluster, as the controller sees it -----------------------------------------------------------


class Cluster(Protocol):
    """What the controller asks of the cluster.

    Every method raises ``ApiError``: with a status when the API server refused, with status None
    when nobody knows whether the request had its effect.
    """

    def unfinished_pods(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Pod that is not Succeeded or Failed, in chunks of one consistent list."""
        ...

    def gpunodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every GPUNode, in chunks."""
        ...

    def nodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Node, in chunks."""
        ...

    def quotas(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every ResourceQuota, in chunks."""
        ...

    def claims(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every PersistentVolumeClaim, in chunks."""
        ...

    def volumes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every PersistentVolume, in chunks."""
        ...

    def storage_classes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every StorageClass, in chunks."""
        ...

    async def pod_group(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One PodGroup of the coscheduling plugin; None where there is none, or no such kind."""
        ...

    async def device_classes(self) -> list[dict[str, Any]]:
        """Every DeviceClass; none where the cluster has no such kind."""
        ...

    async def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Pod as it is now, or None."""
        ...

    async def lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Lease as it is now, or None; asked twice a second, so it waits for 2 s at most."""
        ...

    async def write_lease(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Replace the version of a Lease that was read; without a version, create it.

        Waits for 2 s at most; returns the Lease as it is kept. Status 409: it is there already, or
        was changed since, perhaps by this very call, whose first answer was lost.
        """
        ...

    async def node(self, name: str) -> dict[str, Any] | None:
        """One Node as it is now, or None."""
        ...

    async def patch_node(self, name: str, patch: dict[str, Any], *, within: float) -> None:
        """Merge ``patch`` into a Node, ``within`` seconds.

        Status 409: it was changed since the version that the patch names.
        """
        ...

    async def bind(self, binding: dict[str, Any], *, within: float) -> None:
        """Send a Binding: node, annotations and identity in one write, ``within`` seconds."""
        ...

    async def patch_pod(
        self, namespace: str, name: str, patch: dict[str, Any], *, within: float
    ) -> None:
        """Merge ``patch`` into a Pod, ``within`` seconds.

        Status 409: it was changed since the version that the patch names.
        """
        ...

    async def evict(self, namespace: str, name: str, *, uid: str, version: str) -> None:
        """Have one Pod deleted by the Eviction API, as budgets for disruption allow.

        Status 409: it is another Pod, or another version of it; 429: a budget, or the API server's
        own load, forbids it now.
        """
        ...

    async def dry_run_pod_template(self, template: dict[str, Any]) -> dict[str, Any]:
        """What would be stored of a new PodTemplate, all webhooks asked; nothing is."""
        ...

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post an event (events.k8s.io/v1)."""
        ...

    async def count_event(self, namespace: str, name: str, again: dict[str, Any]) -> None:
        """Say that an event happened again: a patch of core/v1's fields."""
        ...

    async def annotate_node(self, name: str, key: str, value: str) -> None:
        """Set one annotation of a Node."""
        ...

    async def annotate_pod(self, namespace: str, name: str, key: str, value: str) -> None:
        """Set one annotation of a Pod."""
        ...

    async def apply_gpunode(self, name: str, metadata: dict[str, Any], manager: str) -> None:
        """Server-side apply of a part of a GPUNode's metadata; it is made where there is none."""
        ...

    async def apply_gpunode_status(
        self, name: str, status: dict[str, Any], manager: str, *, force: bool = True
    ) -> None:
        """Server-side apply of a part of a GPUNode's status.

        Status 409: not by ``force``, and another manager has a field with another value.
        """
        ...

    async def delete_gpunode(self, name: str, version: str) -> None:
        """Delete a GPUNode, if it is this version of it.

        Status 409: it was changed since.
        """
        ...

    async def secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Secret as it is now, or None."""
        ...

    async def write_secret(self, secret: dict[str, Any]) -> None:
        """Replace the version of a Secret that was read; without a version, create it.

        Status 409: it is there already, or was changed since.
        """
        ...

    async def webhook_configuration(self, name: str) -> dict[str, Any] | None:
        """One MutatingWebhookConfiguration as it is now, or None."""
        ...

    async def patch_webhook_configuration(self, name: str, change: dict[str, Any]) -> None:
        """Strategic merge into a MutatingWebhookConfiguration.

        Status 409: it was changed since the version that ``change`` names.
        """
        ...


# The cluster, as a person at the command line sees it ---------------------------------------------


class ClusterReader(Protocol):
    """What the command line reads of a cluster; it writes nothing.

    Raises:
        ApiError: every verb, where the API server refuses or does not answer.
    """

    async def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Pod as it is now, or None."""
        ...

    def pods(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Pod that is not Succeeded or Failed, in chunks."""
        ...

    def gpunodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every GPUNode, in chunks."""
        ...

    def nodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Every Node, in chunks."""
        ...

    def node_metadata(self) -> AsyncIterator[list[dict[str, Any]]]:
        """The metadata of every Node, in chunks: a tenth of the whole."""
        ...

    def cordoned_nodes(self) -> AsyncIterator[list[dict[str, Any]]]:
        """The metadata of every Node that takes no new Pod (kubectl cordon), in chunks."""
        ...

    def quotas(self, namespace: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Every ResourceQuota of a namespace, in chunks."""
        ...

    async def events(self, pod: PodRef) -> list[dict[str, Any]]:
        """What was said of a Pod (core/v1), in no order; old events are gone."""
        ...

    async def settings(self) -> str | None:
        """The text of the settings file that the installed controller reads, or None."""
        ...

    def now(self) -> float:
        """Unix seconds by the API server's clock at its last answer; else by this machine's."""
        ...
