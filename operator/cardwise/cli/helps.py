"""What helps a Pod that waits, word by word: docs/policies.md in one line each."""

from collections.abc import Mapping
from typing import Final

from cardwise.names import EventReason, NodeReason, Reason

NEVER_FITS: Final = "the Pod asks for less, or the cluster gets cards that have so much"
"""Where no Pod that ends makes room, whatever the word."""
HELPS: Final[Mapping[str, str]] = {
    Reason.CARD_NOT_HEALTHY: "its agent reports the card well again",
    Reason.CARD_CORDONED: "the card is opened again: spec.cordonedCards of the GPUNode, or "
    "hami.io/device-cordon on the Node",
    Reason.CARD_TYPE: "other type annotations on the Pod, or nodes with such cards",
    Reason.CARD_UUID: "other UUID annotations on the Pod",
    Reason.SLOTS: "a tenant of the card leaves, or more slotsPerCard",
    Reason.QUOTA: "a larger ResourceQuota, or less use in the namespace",
    Reason.MEMORY: "a tenant of the card leaves, or the Pod asks for less gpumem",
    Reason.CORES: "a tenant of the card leaves, or the Pod asks for less gpucores",
    Reason.EXCLUSIVE: "the card's tenants leave",
    Reason.COMPUTE: "a tenant that holds the card's cores leaves",
    Reason.TOPOLOGY: "cards joined by NVLink get free, or cardwise.dev/topology: preferred",
    Reason.NUMA: "more cards of one NUMA node get free, or no nvidia.com/numa-bind",
    Reason.NODE_TOO_FEW_CARDS: "fewer cards per container, or nodes with more cards",
    Reason.NODE_NOT_REPORTED: "the agent's Pod on that node works again",
    Reason.NODE_HAS_NO_CARDS: "a node with cards: no node that the Pod may go to has any",
    Reason.NODE_HANDING_OVER: "a moment: HAMi's device plugin hands over to one Pod at a time",
    Reason.NODE_UNREADABLE: "the Pod whose allocation can't be read is mended or deleted",
    Reason.NODE_REJECTS_PODS: "the node's kubelet takes Pods again; it is tried by itself",
    Reason.INVALID_REQUEST: "the Pod is created anew with a value that can be read",
    NodeReason.UNSCHEDULABLE: "kubectl uncordon, or a toleration",
    NodeReason.TAINT: "a toleration on the Pod, or the taint goes",
    NodeReason.AFFINITY: "another nodeSelector or node affinity, or the node's labels",
    NodeReason.VOLUMES: "a volume that can be used there",
    NodeReason.OTHERS: "the Pod whose anti-affinity forbids it leaves",
    NodeReason.PORTS: "the Pod that has the host port leaves",
    NodeReason.PODS: "a Pod leaves the node",
    NodeReason.CPU: "a Pod leaves the node, or this one requests less CPU",
    NodeReason.MEMORY: "a Pod leaves the node, or this one requests less memory",
    NodeReason.STORAGE: "a Pod leaves the node, or this one requests less ephemeral storage",
    NodeReason.RESOURCE: "a Pod leaves the node, or the node advertises what the Pod requests",
    EventReason.GANG_INCOMPLETE: "the rest of the gang is created, or its size is mended",
    EventReason.VOLUME_NOT_READY: "the claim is made, or bound to a volume",
    EventReason.NEEDS_EXTENDER_DOOR: "the field goes, or cardwise.dev/door: extender",
}
"""By the word."""
